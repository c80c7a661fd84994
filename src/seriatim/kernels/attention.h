// Shared by both attention kernels: the layout of heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

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

inline void check_all(const Tensor& query, const Tensor& key, const Tensor& value) {
  for (const auto& [tensor, name] : {std::pair(query, "query"), std::pair(key, "key"), std::pair(value, "value")}) {
    TORCH_CHECK(tensor.dim() == 3 && tensor.stride(2) == 1, name, " must be (B,T,D), its last dimension contiguous");
    TORCH_CHECK(tensor.size(0) == query.size(0) && tensor.size(2) == query.size(2), name, " does not fit the queries");
    TORCH_CHECK(tensor.scalar_type() == query.scalar_type(), name, " is of another type than the queries");
  }
  TORCH_CHECK(key.size(1) == value.size(1), "there are ", key.size(1), " keys and ", value.size(1), " values");
}

// How many numbers a head has.
inline int64_t head_size(const Tensor& query, int64_t heads) {
  TORCH_CHECK(heads >= 1 && query.size(2) % heads == 0, heads, " heads do not divide a width of ", query.size(2));
  return query.size(2) / heads;
}

// Of the backward pass: the gradient, and what the forward pass has saved.
inline void check_saved(const Tensor& dy, const Tensor& query, const Tensor& saved, at::IntArrayRef sizes) {
  TORCH_CHECK(dy.sizes() == query.sizes() && dy.scalar_type() == query.scalar_type(), "dy has shape ", dy.sizes(),
              ", expected ", query.sizes(), " of the same type");
  TORCH_CHECK(saved.sizes() == sizes && saved.is_contiguous() && saved.scalar_type() == query.scalar_type(),
              "what was saved has shape ", saved.sizes(), ", expected ", sizes, ", contiguous and of the same type");
}

// Part `index` of `count` that stand side by side in the last dimension.
inline Tensor part(const Tensor& tensor, int64_t index, int64_t count) {
  TORCH_CHECK(tensor.dim() == 3 && tensor.size(2) % count == 0, "expected (B,T,", count, "*D), not ", tensor.sizes());
  const int64_t width = tensor.size(2) / count;
  return tensor.narrow(2, index * width, width);
}

}  // namespace seriatim
