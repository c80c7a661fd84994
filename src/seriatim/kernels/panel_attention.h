// Attention of one head of one sequence, forward and backward, on matrices in panels (panels.h).
//
// A few queries at a time are multiplied with the transposed keys, weighted, and multiplied with the values, all within
// the nearest caches. The logarithm of the sum of the weights is saved for each query; the backward pass recomputes the
// weights.
#pragma once

#include <cmath>

#include "panels.h"

namespace seriatim {

constexpr int64_t kQueriesAtOnce = 8 * kBlockRows;  // whose weights the backward pass holds

// e^x for x ≤ 0, not below e^-80 in single precision. A NaN stays one.
template <typename T>
SERIATIM_INLINE Vector<T> exp_below(Vector<T> x) {
  Vector<T> power, rest;
  split_exp<T>(clamp_below<T>(x, splat(T(sizeof(T) == 4 ? -80 : -700))), power, rest);
  return power * rest + power;
}

template <typename T>
class PanelAttention {
 public:
  static constexpr int L = kLanes<T>, W = kColumns<T>;

  // Where a head is in a matrix: the panels of the rows of one sequence, and the head's first column.
  struct Place {
    Panels<T> rows;
    int64_t column;
  };

  // Heads of `size` numbers, padded to a multiple of a vector.
  PanelAttention(int64_t longest, int64_t size, bool backward)
      : size_(ceil_div(size, L) * L),
        panels_(ceil_div(size_, W)),
        across_(ceil_div(longest, W) * W + W),
        longest_(longest),
        scale_(1 / std::sqrt(static_cast<T>(size))),
        aligned_(size_ % W == 0),
        backward_(backward) {}

  // The numbers of memory that it works in, and where they are.
  int64_t memory() const { return (backward_ ? 2 : 1) * (turned() + weights()) + copies() + ceil_div(longest_, W) * W; }
  void set_memory(T* at) {
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    turned_keys_ = take(turned());
    turned_values_ = take(backward_ ? turned() : 0);
    weights_ = take(weights());
    slopes_ = take(backward_ ? weights() : 0);
    copies_ = take(copies());
    means_ = at;
  }

  // y = softmax(q kᵀ / √size) v; `sums` gets the logarithm of the sum of the weights of each query.
  void forward(Place q, Place k, Place v, Place y, int64_t queries, int64_t keys, bool causal, T* sums) {
    next_copy_ = copies_;
    transpose(k, keys, scale_, turned_keys_);
    const Panels<T> query = fetch(q, queries), value = fetch(v, keys), output = target(y, queries);
    each_block(queries, [&](int64_t first, int64_t last) {
      const int64_t rows = last - first, reach = causal ? last : keys, filled = ceil_div(reach, W);
      for (int64_t p = 0; p < filled; ++p) {
        kRowProducts<T, true>[rows - 1](query.first + first * W, query.jump, turned_keys_ + p * size_ * W, size_,
                                        weights_ + p * W, across_, nullptr, false);
      }
      T share[kBlockRows];
      for (int64_t i = 0; i < rows; ++i) {
        T* w = weights_ + i * across_;
        const int64_t own = causal ? first + i + 1 : keys, end = ceil_div(own, L) * L;
        std::fill(w + own, w + end, T(-1e30));
        Vector<T> most = load(w), sum{};
        for (int64_t s = L; s < end; s += L) {
          const Vector<T> score = load(w + s);
          most = score > most ? score : most;
        }
        T highest = most[0];
        for (int lane = 1; lane < L; ++lane) highest = std::max(highest, most[lane]);
        for (int64_t s = 0; s < end; s += L) {
          const Vector<T> e = exp_below<T>(load(w + s) - highest);
          store(w + s, e);
          sum += e;
        }
        std::fill(w + own, w + filled * W, T(0));
        const T total = sum_lanes<T>(sum);
        share[i] = 1 / total;
        sums[first + i] = highest + std::log(total);
      }
      for (int64_t p = 0; p < panels_; ++p) {
        T* c = output.first + p * output.jump + first * W;
        kRowProducts<T, false>[rows - 1](weights_, across_, value.first + p * value.jump, reach, c, W, nullptr, false);
        for (int64_t i = 0; i < rows; ++i) {
          for (int l = 0; l < W; l += L) store<T>(c + i * W + l, load(c + i * W + l) * share[i]);
        }
      }
    });
    give(output, queries, y);
  }

  // The gradients of queries, keys and values from that of y; `sums` are those of the forward pass.
  void backward(Place q, Place k, Place v, Place y, Place dy, int64_t queries, int64_t keys, bool causal, const T* sums,
                Place dq, Place dk, Place dv) {
    next_copy_ = copies_;
    transpose(k, keys, scale_, turned_keys_);
    transpose(v, keys, 1, turned_values_);
    const Panels<T> query = fetch(q, queries), key = fetch(k, keys), above = fetch(dy, queries);
    const Panels<T> d_query = target(dq, queries), d_key = target(dk, keys), d_value = target(dv, keys);
    for (int64_t r = 0; r < queries; ++r) {  // Σ w dw of a query = y·dy
      Vector<T> sum{};
      for (int64_t c = 0; c < size_; c += L) sum += load(number(dy, r, c)) * load(number(y, r, c));
      means_[r] = sum_lanes<T>(sum);
    }
    for (int64_t begin = 0; begin < queries; begin += kQueriesAtOnce) {
      const int64_t end = std::min(queries, begin + kQueriesAtOnce);
      for (int64_t first = begin; first < end; first += kBlockRows) {
        const int64_t last = std::min<int64_t>(end, first + kBlockRows), rows = last - first;
        const int64_t reach = causal ? last : keys, filled = ceil_div(reach, W);
        T *w = weights_ + (first - begin) * across_, *d = slopes_ + (first - begin) * across_;
        for (int64_t p = 0; p < filled; ++p) {
          kRowProducts<T, true>[rows - 1](query.first + first * W, query.jump, turned_keys_ + p * size_ * W, size_,
                                          w + p * W, across_, nullptr, false);
          kRowProducts<T, true>[rows - 1](above.first + first * W, above.jump, turned_values_ + p * size_ * W, size_,
                                          d + p * W, across_, nullptr, false);
        }
        for (int64_t i = 0; i < rows; ++i) {
          T *wi = w + i * across_, *di = d + i * across_;
          const T less = sums[first + i], mean = means_[first + i];
          const int64_t own = causal ? first + i + 1 : keys, beyond = filled * W + W;
          for (int64_t s = 0; s < own; s += L) {
            const Vector<T> weight = exp_below<T>(load(wi + s) - less);
            store(wi + s, weight);
            store<T>(di + s, weight * (load(di + s) - mean) * scale_);
          }
          std::fill(wi + own, wi + beyond, T(0));
          std::fill(di + own, di + beyond, T(0));
        }
        for (int64_t p = 0; p < panels_; ++p) {
          kRowProducts<T, false>[rows - 1](d, across_, key.first + p * key.jump, reach,
                                           d_query.first + p * d_query.jump + first * W, W, nullptr, false);
        }
      }
      const int64_t reach = causal ? end : keys;
      for (int64_t first = 0; first < reach; first += kBlockRows) {
        const int64_t rows = std::min<int64_t>(kBlockRows, reach - first);
        const int64_t from = causal ? std::max(begin, first) : begin, skipped = (from - begin) * across_;
        const bool add = causal ? first < begin : begin > 0;  // whether earlier queries attended to these keys
        for (int64_t p = 0; p < panels_; ++p) {
          kColumnProducts<T>[rows - 1](weights_ + skipped + first, across_, above.first + p * above.jump + from * W,
                                       end - from, d_value.first + p * d_value.jump + first * W, W, add);
          kColumnProducts<T>[rows - 1](slopes_ + skipped + first, across_, query.first + p * query.jump + from * W,
                                       end - from, d_key.first + p * d_key.jump + first * W, W, add);
        }
      }
    }
    give(d_query, queries, dq);
    give(d_key, keys, dk);
    give(d_value, keys, dv);
  }

 private:
  int64_t turned() const { return across_ * size_; }
  int64_t weights() const { return (backward_ ? kQueriesAtOnce : kBlockRows) * across_; }
  int64_t copies() const { return aligned_ ? 0 : (backward_ ? 6 : 3) * panels_ * longest_ * W; }

  static T* number(Place place, int64_t row, int64_t column) {
    const int64_t at = place.column + column;
    return place.rows.first + at / W * place.rows.jump + row * W + at % W;
  }

  // A matrix whose first column begins a panel: the head itself, or a copy of it.
  Panels<T> target(Place place, int64_t rows) {
    if (aligned_) return {number(place, 0, 0), place.rows.jump};
    const Panels<T> copy{next_copy_, rows * W};
    next_copy_ += panels_ * rows * W;
    return copy;
  }

  Panels<T> fetch(Place place, int64_t rows) {
    const Panels<T> copy = target(place, rows);
    for (int64_t c = 0; c < size_ && !aligned_; c += L) {
      T* to = copy.first + c / W * copy.jump + c % W;
      for (int64_t r = 0; r < rows; ++r) store(to + r * W, load(number(place, r, c)));
    }
    return copy;
  }

  void give(Panels<T> copy, int64_t rows, Place place) const {
    for (int64_t c = 0; c < size_ && !aligned_; c += L) {
      const T* from = copy.first + c / W * copy.jump + c % W;
      for (int64_t r = 0; r < rows; ++r) store(number(place, r, c), load(from + r * W));
    }
  }

  // to[panel of keys][column][key], times a factor.
  void transpose(Place place, int64_t keys, T factor, T* to) const {
    for (int64_t first = 0; first < keys; first += W, to += size_ * W) {
      const int count = static_cast<int>(std::min<int64_t>(W, keys - first));
      for (int64_t c = 0; c < size_; c += L) {
        const T* rows[W];
        for (int r = 0; r < count; ++r) rows[r] = number(place, first + r, c);
        transpose_rows(rows, count, L, to + c * W, W);
      }
      for (int64_t i = 0; factor != 1 && i < size_ * W; i += L) store<T>(to + i, load(to + i) * factor);
    }
  }

  int64_t size_, panels_, across_, longest_;  // across_: between rows that have a number for each key
  T scale_;
  bool aligned_;  // every head begins with a panel
  bool backward_;
  T *turned_keys_ = nullptr, *turned_values_ = nullptr, *weights_ = nullptr, *slopes_ = nullptr, *means_ = nullptr;
  T *copies_ = nullptr, *next_copy_ = nullptr;
};

}  // namespace seriatim
