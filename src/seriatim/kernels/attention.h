// Shared by both attention kernels: the layout of heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "simd.h"

namespace seriatim {

using at::Tensor;

// How many keys query t may see at most: of as many queries as keys, the last stands at the last.
SERIATIM_INLINE int64_t within_reach(int64_t t, int64_t queries, int64_t keys, bool causal) {
  return causal ? std::max<int64_t>(keys - queries + t + 1, 0) : keys;
}

// One head of one row: where its first element stands, and how far it is to the next.
template <typename T>
struct Rows {
  T* first;
  int64_t stride;
  T* operator[](int64_t place) const { return first + place * stride; }
};

template <typename T>
Rows<T> rows_of(const Tensor& tensor, int64_t row, int64_t head, int64_t size) {
  return {tensor.data_ptr<std::remove_const_t<T>>() + row * tensor.stride(0) + head * size, tensor.stride(1)};
}

inline void check(const Tensor& tensor, const Tensor& like, const char* name) {
  TORCH_CHECK(tensor.dim() == 3 && tensor.stride(2) == 1, name, " must be (B,T,D), its last dimension contiguous");
  TORCH_CHECK(tensor.size(0) == like.size(0) && tensor.size(2) == like.size(2), name, " does not fit the queries");
  TORCH_CHECK(tensor.scalar_type() == like.scalar_type(), name, " is of another type than the queries");
}

// Part `index` of `count` that stand side by side in the last dimension.
inline Tensor part(const Tensor& tensor, int64_t index, int64_t count) {
  const int64_t width = tensor.size(2) / count;
  return tensor.narrow(2, index * width, width);
}

}  // namespace seriatim
