// Products with one matrix for all time steps: it is packed once, panel by panel, into the order in which the innermost
// loop reads it, and a block of rows times a panel stays in registers throughout.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
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

// What is sent for while a block is multiplied: with every row of its panel, `step` numbers further.
template <typename T>
struct Ahead {
  const T* from;
  int64_t step;
};

// The rows of a panel some time before they are used.
template <typename T>
Ahead<T> rows_ahead(const T* panel) {
  constexpr int kRows = 96, kPanel = 2 * kLanes<T>;
  return {panel + kRows * kPanel, kPanel};
}

// Of the panel behind this one that part which falls to block i: all blocks together send for the whole.
template <typename T>
Ahead<T> panel_ahead(const T* panel, int64_t depth, int64_t i, int64_t blocks) {
  constexpr int kPanel = 2 * kLanes<T>;
  return {panel + depth * kPanel + i * depth * kPanel / blocks, (kPanel + blocks - 1) / blocks};
}

// c (+)= a b, for `Rows` rows of a and a panel b of `Vectors` vectors a row; or c (+)= aᵀ b, for a block of as many columns
// of a, which stands by itself.
template <typename T, int Rows, int Vectors, bool Turned>
void multiply_block(const T* a, int64_t a_stride, const T* b, int64_t depth, T* c, int64_t c_stride, bool add,
                    Ahead<T> ahead) {
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
    for (int v = 0; v < Vectors; ++v) column[v] = load(b + v * L);
    for (int n = 0; n < Vectors * L; n += 64 / static_cast<int>(sizeof(T))) __builtin_prefetch(ahead.from + n);
    ahead.from += ahead.step;
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vector<T> row = splat(Turned ? a[k * Rows + i] : a[i * a_stride + k]);
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
using BlockProduct = void (*)(const T*, int64_t, const T*, int64_t, T*, int64_t, bool, Ahead<T>);

template <typename T, int Vectors, bool Turned, int... Index>
constexpr std::array<BlockProduct<T>, kBlockRows> block_products_of(std::integer_sequence<int, Index...>) {
  return {multiply_block<T, Index + 1, Vectors, Turned>...};
}

// For a panel of one vector or of two: the products of blocks of 1, 2 … rows.
template <typename T, bool Turned>
const std::array<BlockProduct<T>, kBlockRows>& block_products(int vectors) {
  static constexpr auto one = block_products_of<T, 1, Turned>(std::make_integer_sequence<int, kBlockRows>());
  static constexpr auto two = block_products_of<T, 2, Turned>(std::make_integer_sequence<int, kBlockRows>());
  return vectors == 2 ? two : one;
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
    const auto& products = block_products<T, false>(vectors(p));
    const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;  // of nearly equal size
    for (int64_t i = 0, first = 0; i < blocks; ++i) {
      const int64_t last = rows * (i + 1) / blocks;
      products[last - first - 1](a + first * a_stride, a_stride, panel(p), depth_, c + first * c_stride, c_stride, add,
                                 rows_ahead<T>(panel(p)));
      first = last;
    }
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

// ---- aᵀ b of two matrices with as many rows each -----------------------------------------------------------------
//
// The columns of a are put into blocks and those of b into panels, in the order in which they are read, and every block
// meets every panel. Both want room for depth · columns numbers: of a and kBlockRows more, of b rounded up to whole vectors.

template <typename T>
void to_blocks(const T* a, int64_t stride, int64_t columns, int64_t depth, T* to) {
  constexpr int64_t kSome = 16;  // rows that stay near while their columns are gone through
  const int64_t blocks = (columns + kBlockRows - 1) / kBlockRows;
  for (int64_t begin = 0; begin < depth; begin += kSome) {
    const int64_t end = std::min(depth, begin + kSome);
    for (int64_t i = 0, first = 0; i < blocks; ++i) {
      const int64_t last = columns * (i + 1) / blocks, size = last - first;
      T* block = to + first * depth;
      int64_t k = begin;
      for (; k < end - 1 && stride >= kBlockRows; ++k) {  // a full block, the rest of which the next row writes over
        std::memcpy(block + k * size, a + k * stride + first, kBlockRows * sizeof(T));
      }
      for (; k < end; ++k) std::copy_n(a + k * stride + first, size, block + k * size);
      first = last;
    }
  }
}

template <typename T>
void to_panels(const T* b, int64_t stride, int64_t columns, int64_t depth, T* to) {
  constexpr int kPanel = Packed<T>::kPanel;
  for (int64_t first = 0; first < columns; first += kPanel) {
    const int64_t real = std::min<int64_t>(kPanel, columns - first), width = round_up(real, kLanes<T>);
    for (int64_t k = 0; k < depth; ++k, to += width) {
      if (real == kPanel) {
        std::memcpy(to, b + k * stride + first, kPanel * sizeof(T));
      } else {
        std::fill(std::copy_n(b + k * stride + first, real, to), to + width, T(0));
      }
    }
  }
}

// c (columns of a, columns of b) += aᵀ b, from blocks and panels; the rows of c have space for whole vectors. Where b has
// more rows than a, with those of them that begin at one.
template <typename T>
void add_outer_products(const T* blocks_of_a, int64_t a_columns, const T* panels_of_b, int64_t b_columns, int64_t depth,
                        T* c, int64_t c_stride, int64_t b_rows, int64_t first_row) {
  const int64_t blocks = (a_columns + kBlockRows - 1) / kBlockRows;
  for (int64_t i = 0, first = 0; i < blocks; ++i) {
    const int64_t last = a_columns * (i + 1) / blocks;
    for (int64_t column = 0; column < b_columns; column += Packed<T>::kPanel) {
      const int vectors = b_columns - column > kLanes<T> ? 2 : 1;
      const auto& products = block_products<T, true>(vectors);
      const T* panel = panels_of_b + column * b_rows + first_row * vectors * kLanes<T>;
      products[last - first - 1](blocks_of_a + first * depth, 0, panel, depth, c + first * c_stride + column, c_stride,
                                 true, rows_ahead<T>(panel));
    }
    first = last;
  }
}

template <typename T>
void add_outer_products(const T* blocks_of_a, int64_t a_columns, const T* panels_of_b, int64_t b_columns, int64_t depth,
                        T* c, int64_t c_stride) {
  add_outer_products<T>(blocks_of_a, a_columns, panels_of_b, b_columns, depth, c, c_stride, depth, 0);
}

}  // namespace seriatim
