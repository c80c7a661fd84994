// Matrices of activations in panels, and their products: with packed weights, and with each other for weight gradients.
//
// A matrix (rows, columns) is stored as (panel, row, W), panels of W columns, two vectors. In this one order it is the
// left side of a product with packed weights, either side of a weight gradient, and what a product writes. So nothing
// but the weights is packed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "simd.h"

namespace seriatim {

template <typename T>
constexpr int kColumns = 2 * kLanes<T>;  // of a panel
constexpr int64_t kDepth = 256;          // of a product at once: a panel of weights stays in the nearest cache

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename T>
SERIATIM_INLINE T sum_lanes(Vector<T> vector) {
  T sum = 0;
  for (int lane = 0; lane < kLanes<T>; ++lane) sum += vector[lane];
  return sum;
}

// A matrix in panels: the first number, and the distance between panels.
template <typename T>
struct Panels {
  T* first;
  int64_t jump;
};

// ---- products of a few rows --------------------------------------------------------------------------------------

// c (+)= a b (+ bias) for `Rows` rows. If a is in panels, `jump` is the distance between them, else between rows.
template <typename T, int Rows, bool InPanels>
void multiply_rows(const T* a, int64_t jump, const T* b, int64_t depth, T* c, int64_t c_stride, const T* bias,
                   bool add) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  Vector<T> sum[Rows][2];
  const Vector<T> bias0 = bias ? load(bias) : Vector<T>{}, bias1 = bias ? load(bias + L) : Vector<T>{};
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    sum[i][0] = add ? load(c + i * c_stride) + bias0 : bias0;
    sum[i][1] = add ? load(c + i * c_stride + L) + bias1 : bias1;
  }
  if constexpr (InPanels) {
    for (; depth >= W; depth -= W, a += jump) {
#pragma GCC unroll 4
      for (int k = 0; k < W; ++k, b += W) {
        const Vector<T> b0 = load(b), b1 = load(b + L);
#pragma GCC unroll 16
        for (int i = 0; i < Rows; ++i) {
          const Vector<T> value = splat(a[i * W + k]);
          sum[i][0] += value * b0;
          sum[i][1] += value * b1;
        }
      }
    }
  }
  const int64_t stride = InPanels ? W : jump;
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k, b += W) {
    const Vector<T> b0 = load(b), b1 = load(b + L);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vector<T> value = splat(a[i * stride + k]);
      sum[i][0] += value * b0;
      sum[i][1] += value * b1;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    store(c + i * c_stride, sum[i][0]);
    store(c + i * c_stride + L, sum[i][1]);
  }
}

// c (+)= aᵀ b for `Rows` columns of a: element (i,k) of aᵀ is a[k * a_stride + i], row k of b is b + k * W.
template <typename T, int Rows>
void multiply_columns(const T* a, int64_t a_stride, const T* b, int64_t depth, T* c, int64_t c_stride, bool add) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  Vector<T> sum[Rows][2];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    sum[i][0] = add ? load(c + i * c_stride) : Vector<T>{};
    sum[i][1] = add ? load(c + i * c_stride + L) : Vector<T>{};
  }
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k, a += a_stride, b += W) {
    const Vector<T> b0 = load(b), b1 = load(b + L);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vector<T> value = splat(a[i]);
      sum[i][0] += value * b0;
      sum[i][1] += value * b1;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    store(c + i * c_stride, sum[i][0]);
    store(c + i * c_stride + L, sum[i][1]);
  }
}

template <typename T>
using RowProduct = void (*)(const T*, int64_t, const T*, int64_t, T*, int64_t, const T*, bool);
template <typename T>
using ColumnProduct = void (*)(const T*, int64_t, const T*, int64_t, T*, int64_t, bool);

template <typename T, bool InPanels, int... Index>
constexpr std::array<RowProduct<T>, kBlockRows> row_products_of(std::integer_sequence<int, Index...>) {
  return {multiply_rows<T, Index + 1, InPanels>...};
}

template <typename T, int... Index>
constexpr std::array<ColumnProduct<T>, kBlockRows> column_products_of(std::integer_sequence<int, Index...>) {
  return {multiply_columns<T, Index + 1>...};
}

// The products of 1, 2 … kBlockRows rows.
template <typename T, bool InPanels>
inline constexpr auto kRowProducts = row_products_of<T, InPanels>(std::make_integer_sequence<int, kBlockRows>());
template <typename T>
inline constexpr auto kColumnProducts = column_products_of<T>(std::make_integer_sequence<int, kBlockRows>());

// Calls work(first, last) for blocks of at most kBlockRows of `count` rows, of nearly equal size.
template <typename Work>
SERIATIM_INLINE void each_block(int64_t count, const Work& work) {
  const int64_t blocks = ceil_div(count, kBlockRows);
  for (int64_t i = 0, first = 0; i < blocks; ++i) {
    const int64_t last = count * (i + 1) / blocks;
    work(first, last);
    first = last;
  }
}

// One panel of columns, c (rows, W) (+)= a w (+ bias): w has W columns and `depth` rows.
template <typename T>
void multiply_panel(Panels<const T> a, int64_t rows, const T* w, int64_t depth, T* c, const T* bias, bool add) {
  constexpr int W = kColumns<T>;
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t part = std::min(kDepth, depth - k);
    each_block(rows, [&](int64_t first, int64_t last) {
      kRowProducts<T, true>[last - first - 1](a.first + first * W + k / W * a.jump, a.jump, w + k * W, part,
                                              c + first * W, W, k == 0 ? bias : nullptr, add || k > 0);
    });
  }
}

// ---- weights -----------------------------------------------------------------------------------------------------

// Rows of `depth` numbers to columns: to[k * stride + j] = rows[j][k].
template <typename T>
void transpose_rows(const T* const* rows, int count, int64_t depth, T* to, int64_t stride) {
  int j = 0;
#if defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    for (; j + 8 <= count; j += 8) {
      int64_t k = 0;
      for (; k + 8 <= depth; k += 8) {
        __m256 r[8], t[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(rows[j + i] + k);
#pragma GCC unroll 4
        for (int i = 0; i < 8; i += 2) {
          t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
          t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
          r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
          r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
          r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
          r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          _mm256_storeu_ps(to + (k + i) * stride + j, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
          _mm256_storeu_ps(to + (k + i + 4) * stride + j, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
        }
      }
      for (; k < depth; ++k) {
        for (int i = 0; i < 8; ++i) to[k * stride + j + i] = rows[j + i][k];
      }
    }
  }
#endif
  for (; j < count; ++j) {
    for (int64_t k = 0; k < depth; ++k) to[k * stride + j] = rows[j][k];
  }
}

// The columns of a padded matrix by those of the plain one, -1 for padding.
struct Columns {
  std::vector<int64_t> from;
  bool same = false;  // without padding before the end

  int64_t size() const { return static_cast<int64_t>(from.size()); }
  int64_t operator[](int64_t index) const { return index < size() ? from[index] : -1; }
};

inline Columns plain_columns(int64_t count) {
  Columns columns{std::vector<int64_t>(count), true};
  for (int64_t i = 0; i < count; ++i) columns.from[i] = i;
  return columns;
}

// A panel of weights (N, K) for x Wᵀ: to[k][j] = w[n_j][k] · scale[k], for the outputs n_j = panel · W + j.
template <typename T>
void pack_outputs(const T* w, int64_t stride, const Columns& outputs, const Columns& inputs, const T* scale,
                  int64_t panel, T* to) {
  constexpr int W = kColumns<T>;
  const int64_t depth = inputs.size();
  thread_local std::vector<T> rows;
  if (static_cast<int64_t>(rows.size()) < W * depth) rows.resize(W * depth);
  const T* each[W];
  for (int j = 0; j < W; ++j) {
    const int64_t n = outputs[panel * W + j];
    T* row = rows.data() + j * depth;
    each[j] = row;
    if (n < 0) {
      std::fill_n(row, depth, T(0));
    } else if (inputs.same && scale == nullptr) {
      each[j] = w + n * stride;
    } else if (inputs.same) {
      for (int64_t k = 0; k < depth; ++k) row[k] = w[n * stride + k] * scale[k];
    } else {
      for (int64_t k = 0; k < depth; ++k) {
        const int64_t at = inputs[k];
        row[k] = at < 0 ? T(0) : w[n * stride + at] * (scale ? scale[at] : T(1));
      }
    }
  }
  transpose_rows(each, W, depth, to, W);
}

// A panel of weights (N, K) for y W: to[n][j] = w[n][k_j] · scale[k_j], for the inputs k_j = panel · W + j.
template <typename T>
void pack_inputs(const T* w, int64_t stride, const Columns& outputs, const Columns& inputs, const T* scale,
                 int64_t panel, T* to) {
  constexpr int W = kColumns<T>;
  const int64_t first = panel * W;
  const bool whole = inputs.same && first + W <= inputs.size();
  T factor[W];
  for (int j = 0; j < W; ++j) factor[j] = inputs[first + j] < 0 ? T(0) : scale ? scale[inputs[first + j]] : T(1);
  for (int64_t k = 0; k < outputs.size(); ++k, to += W) {
    const T* row = w + outputs[k] * stride;
    if (outputs[k] < 0) {
      std::fill_n(to, W, T(0));
    } else if (whole) {
      for (int j = 0; j < W; ++j) to[j] = row[first + j] * factor[j];
    } else {
      for (int j = 0; j < W; ++j) to[j] = inputs[first + j] < 0 ? T(0) : row[inputs[first + j]] * factor[j];
    }
  }
}

// ---- weight gradients --------------------------------------------------------------------------------------------

constexpr int64_t kRowsDeep = 192;  // summed at once: a panel of each side stays in the nearest cache
constexpr int64_t kTogether = 4;    // panels of outputs that are multiplied with a panel of inputs while it is near

// c (outputs, W of each panel of inputs) (+)= aᵀ b for panels begin … end of the outputs a and all of the inputs b, and
// the sums over the rows of a. The block of c of panel p and input panel q is c + ((p - begin) * b_panels + q) * W * W.
template <typename T>
void add_weight_gradient(Panels<const T> a, int64_t begin, int64_t end, Panels<const T> b, int64_t b_panels,
                         int64_t rows, T* c, T* sums, bool add) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  const int64_t cuts = ceil_div(rows, kRowsDeep);
  for (int64_t cut = 0, first = 0; cut < cuts; ++cut) {
    const int64_t last = rows * (cut + 1) / cuts;
    for (int64_t p = begin; p < end; ++p) {
      T* sum = sums + (p - begin) * W;
      Vector<T> sum0 = add || cut > 0 ? load(sum) : Vector<T>{}, sum1 = add || cut > 0 ? load(sum + L) : Vector<T>{};
      for (int64_t r = first; r < last; ++r) {
        sum0 += load(a.first + p * a.jump + r * W);
        sum1 += load(a.first + p * a.jump + r * W + L);
      }
      store(sum, sum0);
      store(sum + L, sum1);
    }
    for (int64_t q = 0; q < b_panels; ++q) {
      for (int64_t p = begin; p < end; ++p) {
        T* block = c + ((p - begin) * b_panels + q) * W * W;
        each_block(W, [&](int64_t top, int64_t bottom) {
          kColumnProducts<T>[bottom - top - 1](a.first + p * a.jump + first * W + top, W,
                                               b.first + q * b.jump + first * W, last - first, block + top * W, W,
                                               add || cut > 0);
        });
      }
    }
    first = last;
  }
}

}  // namespace seriatim
