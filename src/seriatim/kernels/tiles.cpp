// Scaled dot-product attention, forward and backward, for sequences longer than those of attention.cpp, as long as keys
// and values stay in the caches.
//
// Queries, keys and values are read where the projections wrote them, (B, T, heads·d) with any stride between elements.
// A thread processes one head of one row after the other: its keys are transposed once, and a few queries at a time are
// multiplied with them, weighted, and multiplied with the values, all within the nearest caches. Only the logarithm of the
// sum of the weights is saved for each query, (B, heads, T); the backward pass recomputes the weights. Masked tiles are
// skipped. The reference is `attention_with_weights` in nn/attention.py, and tests hold both equal.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "attention.h"
#include "gemm.h"

namespace seriatim {
namespace {

using at::Tensor;

constexpr int64_t kQueries = 8 * kBlockRows;  // whose weights the backward pass holds at once
constexpr int64_t kWorth = 1 << 17;           // products of numbers for which another thread is worth waking

// ---- products of small matrices, in any order --------------------------------------------------------------------

// A matrix whose element (i, k) is first[i * stride + k] or, turned, first[i + k * stride].
template <typename T>
struct Left {
  const T* first;
  int64_t stride;
};

// c (+)= a b for `Count` rows of a, and `Vectors` vectors of each row of b.
template <typename T, bool Turned, int Count, int Vectors>
void tile(Left<T> a, Rows<const T> b, int64_t depth, Rows<T> c, bool add) {
  constexpr int L = kLanes<T>;
  Vector<T> sum[Count][Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Count; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sum[i][v] = add ? load(c[i] + v * L) : Vector<T>{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vector<T> row[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) row[v] = load(b[k] + v * L);
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) {
      const Vector<T> value = splat(Turned ? a.first[i + k * a.stride] : a.first[i * a.stride + k]);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sum[i][v] += value * row[v];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Count; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) store(c[i] + v * L, sum[i][v]);
  }
}

template <typename T>
using Tile = void (*)(Left<T>, Rows<const T>, int64_t, Rows<T>, bool);

template <typename T, bool Turned, int Vectors, int... Index>
constexpr std::array<Tile<T>, kBlockRows> tiles(std::integer_sequence<int, Index...>) {
  return {tile<T, Turned, Index + 1, Vectors>...};
}

// The same for up to kBlockRows rows and columns that are a multiple of a vector.
template <typename T, bool Turned = false>
void multiply(Left<T> a, int64_t rows, Rows<const T> b, int64_t columns, int64_t depth, Rows<T> c, bool add = false) {
  constexpr int L = kLanes<T>;
  static constexpr auto one = tiles<T, Turned, 1>(std::make_integer_sequence<int, kBlockRows>());
  static constexpr auto two = tiles<T, Turned, 2>(std::make_integer_sequence<int, kBlockRows>());
  int64_t n = 0;
  for (; n + 2 * L <= columns; n += 2 * L) {
    two[rows - 1](a, {b.first + n, b.stride}, depth, {c.first + n, c.stride}, add);
  }
  if (n < columns) one[rows - 1](a, {b.first + n, b.stride}, depth, {c.first + n, c.stride}, add);
}

// ---- one head of one row -----------------------------------------------------------------------------------------

// Sizes of a head, and the memory that a thread works in.
template <typename T>
struct Head {
  int64_t queries, keys, size;
  bool causal;
  int64_t across = round_up(keys, 2 * kLanes<T>) + 4 * kLanes<T>;  // between rows that have a number for each key
  Buffer<T> turned_keys, turned_values, near_keys, near_values, weights, slopes, some, above, d_keys, d_values;

  Head(int64_t queries, int64_t keys, int64_t size, bool causal, bool backward)
      : queries(queries),
        keys(keys),
        size(size),
        causal(causal),
        turned_keys(size * across),
        turned_values(backward ? size * across : 1),
        near_keys(backward ? keys * size : 1),
        near_values(backward ? 1 : keys * size),
        weights((backward ? kQueries : kBlockRows) * across),
        slopes(backward ? kQueries * across : 1),
        some(backward ? kQueries * size : 1),
        above(backward ? kQueries * size : 1),
        d_keys(backward ? keys * size : 1),
        d_values(backward ? keys * size : 1) {}

  T scale() const { return 1 / std::sqrt(static_cast<T>(size)); }
  int64_t reach(int64_t t) const { return within_reach(t, queries, keys, causal); }
  int64_t filled(int64_t reach) const { return round_up(reach, 2 * kLanes<T>); }

  void turn(Rows<const T> from, T factor, T* to) const {
    constexpr int L = kLanes<T>;
    int64_t s = 0;
    for (; s + L <= keys; s += L) {  // L rows at once: reading from them is slow
      for (int64_t i = 0; i < size; ++i) {
        Vector<T> column;
#pragma GCC unroll 16
        for (int lane = 0; lane < L; ++lane) column[lane] = from[s + lane][i];
        store<T>(to + i * across + s, factor * column);
      }
    }
    for (; s < keys; ++s) {
      for (int64_t i = 0; i < size; ++i) to[i * across + s] = factor * from[s][i];
    }
  }
  void copy(Rows<const T> from, int64_t count, T factor, T* to) const {
    for (int64_t s = 0; s < count; ++s) {
      for (int64_t i = 0; i < size; ++i) to[s * size + i] = factor * from[s][i];
    }
  }
};

// Scores beyond the reach of a query, or of keys that are not real, become −∞.
template <typename T>
void hide(T* w, int64_t reach, int64_t columns, const bool* real) {
  std::fill(w + reach, w + columns, -std::numeric_limits<T>::infinity());
  if (real == nullptr) return;
  for (int64_t s = 0; s < reach; ++s) {
    if (!real[s]) w[s] = -std::numeric_limits<T>::infinity();
  }
}

// e^(x − less), exactly 0 for −∞.
template <typename T>
SERIATIM_INLINE Vector<T> raised(Vector<T> x, T less) {
  const Vector<T> away = x - less, limit = splat(-Exponential<T>::kLimit);
  Vector<T> power, rest;
  split_exp<T>(clamp_below<T>(away, limit), power, rest);
  return away < limit ? Vector<T>{} : power * rest + power;
}

template <typename T>
SERIATIM_INLINE T total(Vector<T> vector) {
  T sum = 0;
  for (int lane = 0; lane < kLanes<T>; ++lane) sum += vector[lane];
  return sum;
}

// Scores (columns) of a query to weights that are not yet divided by their sum; returns that and the highest score.
template <typename T>
std::pair<T, T> weigh(T* w, int64_t columns) {
  constexpr int L = kLanes<T>;
  Vector<T> most = load(w), sum{};
  for (int64_t s = L; s < columns; s += L) {
    const Vector<T> some = load(w + s);
    most = some > most ? some : most;
  }
  T highest = most[0];
  for (int lane = 1; lane < L; ++lane) highest = std::max(highest, most[lane]);
  if (highest == -std::numeric_limits<T>::infinity()) {  // no key to look at: zeros
    std::fill_n(w, columns, T(0));
    return {0, highest};
  }
  for (int64_t s = 0; s < columns; s += L) {
    const Vector<T> e = raised<T>(load(w + s), highest);
    store(w + s, e);
    sum += e;
  }
  return {total<T>(sum), highest};
}

template <typename T>
void look(Head<T>& head, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> y, T* sums, const bool* real) {
  constexpr int L = kLanes<T>;
  head.turn(k, head.scale(), head.turned_keys);
  head.copy(v, head.keys, 1, head.near_values);
  const Rows<T> w{head.weights, head.across};
  const int64_t blocks = (head.queries + kBlockRows - 1) / kBlockRows;  // of nearly equal size
  for (int64_t block = 0, first = 0; block < blocks; ++block) {
    const int64_t last = head.queries * (block + 1) / blocks, rows = last - first;
    const int64_t reach = head.reach(last - 1), columns = head.filled(reach);
    multiply<T>({q[first], q.stride}, rows, {head.turned_keys, head.across}, columns, head.size, w);
    T shares[kBlockRows];
    for (int64_t i = 0; i < rows; ++i) {
      hide(w[i], head.reach(first + i), columns, real);
      const auto [sum, highest] = columns > 0 ? weigh(w[i], columns) : std::pair<T, T>();
      shares[i] = sum > 0 ? 1 / sum : 0;
      sums[first + i] = sum > 0 ? highest + std::log(sum) : std::numeric_limits<T>::infinity();
    }
    multiply<T>({w.first, w.stride}, rows, {head.near_values, head.size}, head.size, reach, {y[first], y.stride});
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t n = 0; n < head.size; n += L) store<T>(y[first + i] + n, shares[i] * load(y[first + i] + n));
    }
    first = last;
  }
}

template <typename T>
void look_back(Head<T>& head, Rows<const T> dy, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> dq,
               Rows<T> dk, Rows<T> dv, const T* sums, const bool* real) {
  constexpr int L = kLanes<T>;
  const int64_t size = head.size, keys = head.keys;
  head.turn(k, head.scale(), head.turned_keys);
  head.turn(v, 1, head.turned_values);
  head.copy(k, keys, head.scale(), head.near_keys);
  std::fill_n(static_cast<T*>(head.d_keys), keys * size, T(0));
  std::fill_n(static_cast<T*>(head.d_values), keys * size, T(0));
  const Rows<T> w{head.weights, head.across}, d{head.slopes, head.across};
  for (int64_t begin = 0; begin < head.queries; begin += kQueries) {
    const int64_t end = std::min(head.queries, begin + kQueries);
    head.copy({q[begin], q.stride}, end - begin, head.scale(), head.some);
    head.copy({dy[begin], dy.stride}, end - begin, 1, head.above);
    for (int64_t first = begin; first < end; first += kBlockRows) {
      const int64_t last = std::min<int64_t>(end, first + kBlockRows), rows = last - first;
      const int64_t reach = head.reach(last - 1), columns = head.filled(reach);
      const Rows<T> own{w[first - begin], w.stride}, slope{d[first - begin], d.stride};
      multiply<T>({q[first], q.stride}, rows, {head.turned_keys, head.across}, columns, size, own);
      multiply<T>({dy[first], dy.stride}, rows, {head.turned_values, head.across}, columns, size, slope);
      for (int64_t i = 0; i < rows; ++i) {
        hide(own[i], head.reach(first + i), columns, real);
        Vector<T> mean{};
        for (int64_t s = 0; s < columns; s += L) {
          const Vector<T> weight = raised<T>(load(own[i] + s), sums[first + i]);
          store(own[i] + s, weight);
          mean += weight * load(slope[i] + s);
        }
        const T middle = total<T>(mean);
        for (int64_t s = 0; s < columns; s += L) {
          store<T>(slope[i] + s, load(own[i] + s) * (load(slope[i] + s) - middle));
        }
        const int64_t beyond = std::min(head.across, columns + kBlockRows);  // which the tiles below may touch
        std::fill(own[i] + columns, own[i] + beyond, T(0));
        std::fill(slope[i] + columns, slope[i] + beyond, T(0));
      }
      multiply<T>({slope.first, slope.stride}, rows, {head.near_keys, size}, size, reach, {dq[first], dq.stride});
    }
    const int64_t seen = head.reach(end - 1);
    for (int64_t key = 0; key < seen; key += kBlockRows) {
      const int64_t rows = std::min<int64_t>(kBlockRows, seen - key);
      const int64_t earliest = head.causal ? std::max<int64_t>(begin, key - (keys - head.queries)) : begin;
      const int64_t skipped = earliest - begin, depth = end - earliest;
      multiply<T, true>({w[skipped] + key, w.stride}, rows, {head.above + skipped * size, size}, size, depth,
                        {head.d_values + key * size, size}, true);
      multiply<T, true>({d[skipped] + key, d.stride}, rows, {head.some + skipped * size, size}, size, depth,
                        {head.d_keys + key * size, size}, true);
    }
  }
  for (int64_t s = 0; s < keys; ++s) {
    std::copy_n(head.d_keys + s * size, size, dk[s]);
    std::copy_n(head.d_values + s * size, size, dv[s]);
  }
}

// ---- all of them -------------------------------------------------------------------------------------------------

// Which keys are real, contiguous; undefined where all are.
Tensor held(const std::optional<Tensor>& mask, int64_t batch, int64_t keys) {
  if (!mask.has_value()) return Tensor();
  TORCH_CHECK(mask->sizes() == at::IntArrayRef({batch, keys}), "mask must be (B,S)");
  return mask->contiguous();
}

// Calls work(head, row, index of the head, real keys) for every head of every row.
template <typename T, typename Work>
void each_head(const Tensor& query, int64_t keys, int64_t heads, const Tensor& mask, bool causal, bool backward,
               const Work& work) {
  const int64_t batch = query.size(0), queries = query.size(1), size = query.size(2) / heads;
  TORCH_CHECK(size > 0 && size % kLanes<T> == 0, "heads of ", size, " numbers are not among the sizes of this kernel");
  const int64_t cost = std::max<int64_t>(1, queries * keys * size);
  at::parallel_for(0, batch * heads, std::max<int64_t>(1, kWorth / cost), [&](int64_t index, int64_t end) {
    Head<T> head(queries, keys, size, causal, backward);
    for (; index < end; ++index) {
      const int64_t row = index / heads;
      work(head, row, index % heads, mask.defined() ? mask.const_data_ptr<bool>() + row * keys : nullptr);
    }
  });
}

std::tuple<Tensor, Tensor> attend(const Tensor& query, const Tensor& key, const Tensor& value, int64_t heads,
                                  const std::optional<Tensor>& mask, bool causal) {
  check_all(query, key, value);
  const int64_t batch = query.size(0), queries = query.size(1), keys = key.size(1), size = head_size(query, heads);
  const Tensor real = held(mask, batch, keys);
  Tensor output = at::empty({batch, queries, heads * size}, query.options());
  Tensor sums = at::empty({batch, heads, queries}, query.options());
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "attend", [&] {
    using T = scalar_t;
    each_head<T>(query, keys, heads, real, causal, false, [&](auto& head, int64_t row, int64_t h, const bool* seen) {
      look<T>(head, rows_of<const T>(query, row, h, size), rows_of<const T>(key, row, h, size),
              rows_of<const T>(value, row, h, size), rows_of<T>(output, row, h, size),
              sums.data_ptr<T>() + (row * heads + h) * queries, seen);
    });
  });
  return {output, sums};
}

void attend_backward(const Tensor& d_output, const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& sums, int64_t heads, const std::optional<Tensor>& mask, bool causal,
                     const Tensor& d_query, const Tensor& d_key, const Tensor& d_value) {
  check_all(query, key, value);
  const int64_t batch = query.size(0), queries = query.size(1), keys = key.size(1), size = head_size(query, heads);
  const Tensor dy = d_output.contiguous(), real = held(mask, batch, keys);
  check_saved(dy, query, sums, {batch, heads, queries});
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "attend_backward", [&] {
    using T = scalar_t;
    each_head<T>(query, keys, heads, real, causal, true, [&](auto& head, int64_t row, int64_t h, const bool* seen) {
      look_back<T>(head, rows_of<const T>(dy, row, h, size), rows_of<const T>(query, row, h, size),
                   rows_of<const T>(key, row, h, size), rows_of<const T>(value, row, h, size),
                   rows_of<T>(d_query, row, h, size), rows_of<T>(d_key, row, h, size), rows_of<T>(d_value, row, h, size),
                   sums.const_data_ptr<T>() + (row * heads + h) * queries, seen);
    });
  });
}

// ---- queries, keys and values side by side, (B, T, 3·D) ----------------------------------------------------------

std::tuple<Tensor, Tensor> self_attend_tiled(const Tensor& inputs, int64_t heads, const std::optional<Tensor>& mask,
                                             bool causal) {
  return attend(part(inputs, 0, 3), part(inputs, 1, 3), part(inputs, 2, 3), heads, mask, causal);
}

Tensor self_attend_tiled_backward(const Tensor& d_output, const Tensor& inputs, const Tensor& sums, int64_t heads,
                                  const std::optional<Tensor>& mask, bool causal) {
  const Tensor d_inputs = at::empty(inputs.sizes(), inputs.options());
  attend_backward(d_output, part(inputs, 0, 3), part(inputs, 1, 3), part(inputs, 2, 3), sums, heads, mask, causal,
                  part(d_inputs, 0, 3), part(d_inputs, 1, 3), part(d_inputs, 2, 3));
  return d_inputs;
}

// ---- queries (B, T, D) of one sequence, keys and values of another side by side, (B, S, 2·D) ---------------------

std::tuple<Tensor, Tensor> cross_attend_tiled(const Tensor& query, const Tensor& memory, int64_t heads,
                                              const std::optional<Tensor>& mask) {
  return attend(query, part(memory, 0, 2), part(memory, 1, 2), heads, mask, false);
}

std::tuple<Tensor, Tensor> cross_attend_tiled_backward(const Tensor& d_output, const Tensor& query,
                                                       const Tensor& memory, const Tensor& sums, int64_t heads,
                                                       const std::optional<Tensor>& mask) {
  const Tensor d_query = at::empty(query.sizes(), query.options());
  const Tensor d_memory = at::empty(memory.sizes(), memory.options());
  attend_backward(d_output, query, part(memory, 0, 2), part(memory, 1, 2), sums, heads, mask, false, d_query,
                  part(d_memory, 0, 2), part(d_memory, 1, 2));
  return {d_query, d_memory};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def("self_attend_tiled(Tensor inputs, int heads, Tensor? mask, bool causal) -> (Tensor y, Tensor sums)");
  library.def(
      "self_attend_tiled_backward(Tensor dy, Tensor inputs, Tensor sums, int heads, Tensor? mask, bool causal) -> "
      "Tensor");
  library.def("cross_attend_tiled(Tensor query, Tensor memory, int heads, Tensor? mask) -> (Tensor y, Tensor sums)");
  library.def(
      "cross_attend_tiled_backward(Tensor dy, Tensor query, Tensor memory, Tensor sums, int heads, Tensor? mask) -> "
      "(Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) {
  library.impl("self_attend_tiled", self_attend_tiled);
  library.impl("self_attend_tiled_backward", self_attend_tiled_backward);
  library.impl("cross_attend_tiled", cross_attend_tiled);
  library.impl("cross_attend_tiled_backward", cross_attend_tiled_backward);
}

}  // namespace seriatim
