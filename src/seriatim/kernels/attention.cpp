// Scaled dot-product attention over short sequences, forward and backward.
//
// For a dozen elements, calling a library for each product and bringing the heads into its layout and back takes many
// times as long as the computation. Here queries, keys and values are read where the projections wrote them, (B, T,
// heads·d) with any stride between elements, and each head of each row is a few loops within the nearest cache. The
// weights (B, heads, T, S) are saved for the backward pass. The reference is `attention_with_weights` in
// nn/attention.py, and tests hold both equal.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "attention.h"
#include "simd.h"

namespace seriatim {
namespace {

using at::Tensor;

constexpr int64_t kGrain = 16;  // heads of rows that a thread takes at least

template <typename T>
SERIATIM_INLINE T sum_of(Vector<T> vector) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return _mm512_reduce_add_ps((__m512)vector);
  if constexpr (sizeof(T) == 8) return _mm512_reduce_add_pd((__m512d)vector);
#endif
  T sum = 0;
  for (int lane = 0; lane < kLanes<T>; ++lane) sum += vector[lane];
  return sum;
}

// One element of one head in N registers.
template <typename T, int N>
struct Held {
  Vector<T> parts[N];

  static SERIATIM_INLINE Held zero() { return Held{}; }
  static SERIATIM_INLINE Held of(const T* from) {
    Held held;
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) held.parts[i] = load(from + i * kLanes<T>);
    return held;
  }
  SERIATIM_INLINE void to(T* place) const {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) store(place + i * kLanes<T>, parts[i]);
  }
  SERIATIM_INLINE T dot(const T* other) const {
    Vector<T> sum = parts[0] * load(other);
#pragma GCC unroll 8
    for (int i = 1; i < N; ++i) sum += parts[i] * load(other + i * kLanes<T>);
    return sum_of<T>(sum);
  }
  SERIATIM_INLINE void add(T factor, const T* other) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) parts[i] += factor * load(other + i * kLanes<T>);
  }
  SERIATIM_INLINE void add_to(T factor, T* place) const {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      store<T>(place + i * kLanes<T>, load<T>(place + i * kLanes<T>) + factor * parts[i]);
    }
  }
};

// e^(x − highest) where the query may look, 0 elsewhere; returns the sum.
template <typename T>
T exponentials(T* w, T highest, int64_t reach, int64_t keys, const bool* real) {
  T sum = 0;
  for (int64_t first = 0; first < reach; first += kLanes<T>) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes<T>, reach - first));
    Vector<T> power, rest;
    split_exp<T>(clamp_below<T>(load(w + first, count) - highest, splat(-Exponential<T>::kLimit)), power, rest);
    store<T>(w + first, power * rest + power, count);
  }
  for (int64_t s = 0; s < keys; ++s) {
    if (s >= reach || (real != nullptr && !real[s])) w[s] = 0;
    sum += w[s];
  }
  return sum;
}

template <typename T, int N>
void look(Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> y, T* w, const bool* real, int64_t queries,
          int64_t keys, bool causal) {
  const T scale = 1 / std::sqrt(static_cast<T>(N * kLanes<T>));
  for (int64_t t = 0; t < queries; ++t, w += keys) {
    const int64_t reach = within_reach(t, queries, keys, causal);
    const auto query = Held<T, N>::of(q[t]);
    T highest = -std::numeric_limits<T>::infinity();
    for (int64_t s = 0; s < reach; ++s) {
      w[s] = scale * query.dot(k[s]);
      if (real == nullptr || real[s]) highest = std::max(highest, w[s]);
    }
    const T sum = exponentials(w, highest, reach, keys, real);
    auto gathered = Held<T, N>::zero();
    const T share = sum > 0 ? 1 / sum : 0;  // no key to look at: zeros
    for (int64_t s = 0; s < reach; ++s) {
      w[s] *= share;
      gathered.add(w[s], v[s]);
    }
    gathered.to(y[t]);
  }
}

template <typename T, int N>
void look_back(Rows<const T> dy, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> dq, Rows<T> dk, Rows<T> dv,
               const T* w, T* d_scores, int64_t queries, int64_t keys) {
  const T scale = 1 / std::sqrt(static_cast<T>(N * kLanes<T>));
  for (int64_t s = 0; s < keys; ++s) {
    Held<T, N>::zero().to(dk[s]);
    Held<T, N>::zero().to(dv[s]);
  }
  for (int64_t t = 0; t < queries; ++t, w += keys) {
    const auto d = Held<T, N>::of(dy[t]);
    T mean = 0;
    for (int64_t s = 0; s < keys; ++s) {
      if (w[s] == 0) continue;
      d_scores[s] = d.dot(v[s]);
      d.add_to(w[s], dv[s]);
      mean += w[s] * d_scores[s];
    }
    const auto query = Held<T, N>::of(q[t]);
    auto d_query = Held<T, N>::zero();
    for (int64_t s = 0; s < keys; ++s) {
      if (w[s] == 0) continue;
      const T factor = scale * w[s] * (d_scores[s] - mean);
      d_query.add(factor, k[s]);
      query.add_to(factor, dk[s]);
    }
    d_query.to(dq[t]);
  }
}

// Calls `work` with the number of registers of an element as a constant.
template <typename T, typename Work>
void with_size(int64_t size, const Work& work) {
  switch (size % kLanes<T> ? 0 : size / kLanes<T>) {
    case 1: return work(std::integral_constant<int, 1>());
    case 2: return work(std::integral_constant<int, 2>());
    case 4: return work(std::integral_constant<int, 4>());
    case 8: return work(std::integral_constant<int, 8>());
    default: TORCH_CHECK(false, "heads of ", size, " numbers are not among the sizes of this kernel");
  }
}

std::tuple<Tensor, Tensor> attend(const Tensor& query, const Tensor& key, const Tensor& value, int64_t heads,
                                  const std::optional<Tensor>& mask, bool causal) {
  check_all(query, key, value);
  const int64_t batch = query.size(0), queries = query.size(1), keys = key.size(1), size = head_size(query, heads);
  if (mask.has_value()) {
    TORCH_CHECK(mask->sizes() == at::IntArrayRef({batch, keys}), "mask must be (B,S)");
  }
  const std::optional<Tensor> held = mask.has_value() ? std::optional<Tensor>(mask->contiguous()) : std::nullopt;
  const bool* real = held.has_value() ? held->const_data_ptr<bool>() : nullptr;
  Tensor output = at::empty({batch, queries, heads * size}, query.options());
  Tensor weights = at::empty({batch, heads, queries, keys}, query.options());
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "attend", [&] {
    at::parallel_for(0, batch * heads, kGrain, [&](int64_t begin, int64_t end) {
      with_size<scalar_t>(size, [&](auto registers) {
        for (int64_t index = begin; index < end; ++index) {
          const int64_t row = index / heads, head = index % heads;
          look<scalar_t, registers>(
              rows_of<const scalar_t>(query, row, head, size), rows_of<const scalar_t>(key, row, head, size),
              rows_of<const scalar_t>(value, row, head, size), rows_of<scalar_t>(output, row, head, size),
              weights.data_ptr<scalar_t>() + index * queries * keys, real == nullptr ? nullptr : real + row * keys,
              queries, keys, causal);
        }
      });
    });
  });
  return {output, weights};
}

void attend_backward(const Tensor& d_output, const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& weights, int64_t heads, const Tensor& d_query, const Tensor& d_key,
                     const Tensor& d_value) {
  check_all(query, key, value);
  const int64_t batch = query.size(0), queries = query.size(1), keys = key.size(1), size = head_size(query, heads);
  const Tensor dy = d_output.contiguous();
  check_saved(dy, query, weights, {batch, heads, queries, keys});
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "attend_backward", [&] {
    at::parallel_for(0, batch * heads, kGrain, [&](int64_t begin, int64_t end) {
      std::vector<scalar_t> d_scores(keys);
      with_size<scalar_t>(size, [&](auto registers) {
        for (int64_t index = begin; index < end; ++index) {
          const int64_t row = index / heads, head = index % heads;
          look_back<scalar_t, registers>(
              rows_of<const scalar_t>(dy, row, head, size), rows_of<const scalar_t>(query, row, head, size),
              rows_of<const scalar_t>(key, row, head, size), rows_of<const scalar_t>(value, row, head, size),
              rows_of<scalar_t>(d_query, row, head, size), rows_of<scalar_t>(d_key, row, head, size),
              rows_of<scalar_t>(d_value, row, head, size),
              weights.const_data_ptr<scalar_t>() + index * queries * keys, d_scores.data(), queries, keys);
        }
      });
    });
  });
}

// ---- queries, keys and values side by side, (B, T, 3·D) ----------------------------------------------------------

std::tuple<Tensor, Tensor> self_attend(const Tensor& inputs, int64_t heads, const std::optional<Tensor>& mask,
                                       bool causal) {
  return attend(part(inputs, 0, 3), part(inputs, 1, 3), part(inputs, 2, 3), heads, mask, causal);
}

Tensor self_attend_backward(const Tensor& d_output, const Tensor& inputs, const Tensor& weights, int64_t heads) {
  const Tensor d_inputs = at::empty(inputs.sizes(), inputs.options());
  attend_backward(d_output, part(inputs, 0, 3), part(inputs, 1, 3), part(inputs, 2, 3), weights, heads,
                  part(d_inputs, 0, 3), part(d_inputs, 1, 3), part(d_inputs, 2, 3));
  return d_inputs;
}

// ---- queries (B, T, D) of one sequence, keys and values of another side by side, (B, S, 2·D) ---------------------

std::tuple<Tensor, Tensor> cross_attend(const Tensor& query, const Tensor& memory, int64_t heads,
                                        const std::optional<Tensor>& mask) {
  return attend(query, part(memory, 0, 2), part(memory, 1, 2), heads, mask, false);
}

std::tuple<Tensor, Tensor> cross_attend_backward(const Tensor& d_output, const Tensor& query, const Tensor& memory,
                                                 const Tensor& weights, int64_t heads) {
  const Tensor d_query = at::empty(query.sizes(), query.options());
  const Tensor d_memory = at::empty(memory.sizes(), memory.options());
  attend_backward(d_output, query, part(memory, 0, 2), part(memory, 1, 2), weights, heads, d_query,
                  part(d_memory, 0, 2), part(d_memory, 1, 2));
  return {d_query, d_memory};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def("self_attend(Tensor inputs, int heads, Tensor? mask, bool causal) -> (Tensor y, Tensor weights)");
  library.def("self_attend_backward(Tensor dy, Tensor inputs, Tensor weights, int heads) -> Tensor");
  library.def("cross_attend(Tensor query, Tensor memory, int heads, Tensor? mask) -> (Tensor y, Tensor weights)");
  library.def(
      "cross_attend_backward(Tensor dy, Tensor query, Tensor memory, Tensor weights, int heads) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) {
  library.impl("self_attend", self_attend);
  library.impl("self_attend_backward", self_attend_backward);
  library.impl("cross_attend", cross_attend);
  library.impl("cross_attend_backward", cross_attend_backward);
}

}  // namespace seriatim
