// Products with one matrix that stays the same over all time steps: it is packed once, panel by panel, into the
// order in which the innermost loop reads it, and a block of rows times a panel is kept in registers throughout.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <utility>

#include "simd.h"

namespace seriatim {

inline int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Zeroed memory for one call, aligned to cache lines.
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t count)
      : data_(static_cast<T*>(::operator new(sizeof(T) * static_cast<size_t>(count), std::align_val_t(64)))) {
    std::fill_n(data_, count, T(0));
  }
  ~Buffer() { ::operator delete(data_, std::align_val_t(64)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  operator T*() const { return data_; }

 private:
  T* data_;
};

// The distance between rows of working matrices. The extra line keeps the rows of a block out of each other's
// cache sets where the width is a power of two.
template <typename T>
int64_t row_stride(int64_t columns) {
  return round_up(columns, 64 / sizeof(T)) + 64 / sizeof(T);
}

constexpr int kAhead = 96;  // how many rows of a panel before their use they are sent for

// c (+)= a b, for `Rows` rows of a and a panel b of `Vectors` vectors a row; or c (+)= aᵀ b, for as many columns.
template <typename T, int Rows, int Vectors, bool Turned>
void multiply_block(const T* a, int64_t a_stride, const T* b, int64_t depth, T* c, int64_t c_stride, bool add) {
  constexpr int L = kLanes<T>;
  Vector<T> sum[Rows][Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sum[i][v] = add ? load(c + i * c_stride + v * L) : Vector<T>{};
  }
  for (int64_t k = 0; k < depth; ++k, b += Vectors * L) {
    Vector<T> column[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      column[v] = load(b + v * L);
      __builtin_prefetch(b + (kAhead * Vectors + v) * L);
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vector<T> row = splat(Turned ? a[k * a_stride + i] : a[i * a_stride + k]);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sum[i][v] += row * column[v];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) store(c + i * c_stride + v * L, sum[i][v]);
  }
}

template <typename T>
using BlockProduct = void (*)(const T*, int64_t, const T*, int64_t, T*, int64_t, bool);

template <typename T, int Vectors, bool Turned, int... Index>
constexpr std::array<BlockProduct<T>, kBlockRows> block_products(std::integer_sequence<int, Index...>) {
  return {multiply_block<T, Index + 1, Vectors, Turned>...};
}

// The same for any number of rows (of columns, if turned), in blocks of nearly equal size.
template <typename T, bool Turned>
void multiply_rows(int vectors, const T* a, int64_t a_stride, int64_t rows, const T* b, int64_t depth, T* c,
                   int64_t c_stride, bool add) {
  static constexpr auto one = block_products<T, 1, Turned>(std::make_integer_sequence<int, kBlockRows>());
  static constexpr auto two = block_products<T, 2, Turned>(std::make_integer_sequence<int, kBlockRows>());
  const auto& products = vectors == 2 ? two : one;
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  for (int64_t i = 0, first = 0; i < blocks; ++i) {
    const int64_t last = rows * (i + 1) / blocks;
    const T* from = Turned ? a + first : a + first * a_stride;
    products[last - first - 1](from, a_stride, b, depth, c + first * c_stride, c_stride, add);
    first = last;
  }
}

// A matrix b (depth, columns) in panels of two vectors; the last panel may be one vector wide, and is filled up
// with zeros.
template <typename T>
class Packed {
 public:
  static constexpr int kPanel = 2 * kLanes<T>;

  // b[k][n] = from[k * row_step + n * column_step]
  Packed(const T* from, int64_t row_step, int64_t column_step, int64_t depth, int64_t columns)
      : depth_(depth), columns_(columns), data_(depth * round_up(columns, kLanes<T>)) {
    at::parallel_for(0, panels(), std::max<int64_t>(1, (1 << 15) / (depth * kPanel + 1)), [&](int64_t p, int64_t end) {
      for (; p < end; ++p) {
        T* to = panel(p);
        const int64_t real = std::min<int64_t>(kPanel, columns_ - p * kPanel), width = vectors(p) * kLanes<T>;
        for (int64_t k = 0; k < depth_; ++k, to += width) {
          const T* row = from + k * row_step + p * kPanel * column_step;
          for (int64_t n = 0; n < real; ++n) to[n] = row[n * column_step];
        }
      }
    });
  }

  int64_t panels() const { return (columns_ + kPanel - 1) / kPanel; }
  int vectors(int64_t p) const { return columns_ - p * kPanel > kLanes<T> ? 2 : 1; }

  // c (+)= a b, the columns of panel p only; c starts at that panel.
  void multiply(int64_t p, const T* a, int64_t a_stride, int64_t rows, T* c, int64_t c_stride, bool add) const {
    multiply_rows<T, false>(vectors(p), a, a_stride, rows, panel(p), depth_, c, c_stride, add);
  }

  // All panels: c (+)= a b.
  void multiply_all(const T* a, int64_t a_stride, int64_t rows, T* c, int64_t c_stride, bool add) const {
    for (int64_t p = 0; p < panels(); ++p) multiply(p, a, a_stride, rows, c + p * kPanel, c_stride, add);
  }

 private:
  T* panel(int64_t p) const { return data_ + p * kPanel * depth_; }

  int64_t depth_, columns_;
  Buffer<T> data_;
};

// c (columns of a, columns of b) += aᵀ b, over `depth` rows of both. `room` holds depth · panel numbers; the rows of c
// have space for whole vectors.
template <typename T>
void add_outer_products(const T* a, int64_t a_stride, int64_t a_columns, const T* b, int64_t b_stride, int64_t b_columns,
                        int64_t depth, T* room, T* c, int64_t c_stride) {
  constexpr int kPanel = Packed<T>::kPanel;
  for (int64_t first = 0; first < b_columns; first += kPanel) {
    const int64_t real = std::min<int64_t>(kPanel, b_columns - first);
    const int vectors = real > kLanes<T> ? 2 : 1;
    for (int64_t k = 0; k < depth; ++k) {
      T* to = std::copy_n(b + k * b_stride + first, real, room + k * vectors * kLanes<T>);
      std::fill_n(to, vectors * kLanes<T> - real, T(0));
    }
    multiply_rows<T, true>(vectors, a, a_stride, a_columns, room, depth, c + first, c_stride, true);
  }
}

}  // namespace seriatim
