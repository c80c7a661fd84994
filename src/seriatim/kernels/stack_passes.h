// What lies between the products of a stack of Transformer blocks (stack.cpp): norms, dropout, and the order of rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "dropout.h"
#include "stack_layout.h"

namespace seriatim {

// Calls work(offset of a vector, its numbers) for the D numbers of row r of a matrix in panels.
template <typename T, typename Work>
SERIATIM_INLINE void each_vector(int64_t D, int64_t jump, int64_t r, const Work& work) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  for (int64_t k = 0; k < D; k += L) {
    work(k / W * jump + r * W + k % W, static_cast<int>(std::min<int64_t>(L, D - k)));
  }
}

// Rows of x with mean 0 and variance 1.
template <typename T>
void normalize(const Layout<T>& z, int64_t rows, const T* x, T* to, T* inverse) {
  for (int64_t r = 0; r < rows; ++r) {
    Vector<T> sum{}, squares{};
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) { sum += load(x + at, count); });
    const T mean = sum_lanes<T>(sum) / z.D;
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
      Vector<T> away = load(x + at, count) - mean;
      if (count < kLanes<T>) {
        for (int lane = count; lane < kLanes<T>; ++lane) away[lane] = 0;
      }
      squares += away * away;
    });
    const T scale = 1 / std::sqrt(sum_lanes<T>(squares) / z.D + static_cast<T>(z.settings.eps));
    inverse[r] = scale;
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
      store<T>(to + at, (load(x + at, count) - mean) * scale, count);
    });
  }
}

// to (+)= (d − mean d − x̂ mean(d x̂)) / σ, row by row.
template <typename T>
void normalize_backward(const Layout<T>& z, int64_t rows, const T* d, const T* normed, const T* inverse, T* to,
                        bool add) {
  for (int64_t r = 0; r < rows; ++r) {
    Vector<T> sum{}, with{};
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
      const Vector<T> slope = load(d + at, count);
      sum += slope;
      with += slope * load(normed + at, count);
    });
    const T scale = inverse[r], mean = sum_lanes<T>(sum) / z.D * scale, along = sum_lanes<T>(with) / z.D * scale;
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
      Vector<T> slope = load(d + at, count) * scale - mean - load(normed + at, count) * along;
      if (add) slope += load(to + at, count);
      store(to + at, slope, count);
    });
  }
}

// Where the numbers of a tile are among those that dropout counts: the first of each row.
inline std::vector<uint32_t> dropout_rows(const Tile& tile, int64_t D) {
  std::vector<uint32_t> first;
  for (const Sequence& sequence : tile.sequences) {
    for (int64_t r = 0; r < sequence.rows; ++r) first.push_back(static_cast<uint32_t>((sequence.number + r) * D));
  }
  return first;
}

// to (+)= dropout(from), for a matrix of Dp panels.
template <typename T>
void drop(const Layout<T>& z, const std::vector<uint32_t>& first, int64_t seed, const T* from, T* to, bool add) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  const int64_t rows = static_cast<int64_t>(first.size());
  const DropoutMask<T> mask(z.settings.dropout, seed);
  for (int64_t p = 0; p < z.Dp; ++p) {
    const T* source = from + p * z.jump();
    T* target = to + p * z.jump();
    for (int64_t r = 0; r < rows && z.settings.dropout > 0; ++r) {
      const uint32_t place = first[r] + static_cast<uint32_t>(p * W);
      T values[W];
#pragma omp simd
      for (int j = 0; j < W; ++j) values[j] = mask.apply(source[r * W + j], place + j);
      for (int j = 0; j < W; j += L) {
        store<T>(target + r * W + j, add ? load(target + r * W + j) + load(values + j) : load(values + j));
      }
    }
    for (int64_t i = 0; i < rows * W && z.settings.dropout == 0; i += L) {
      store<T>(target + i, add ? load(target + i) + load(source + i) : load(source + i));
    }
  }
}

// x = γ x̂ + β.
template <typename T>
void scale_and_shift(const Layout<T>& z, int64_t rows, const T* normed, const T* scale, const T* shift, T* x) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  for (int64_t k = 0; k < z.Dp * W; k += L) {
    const Vector<T> by = load(scale + k), plus = load(shift + k);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = k / W * z.jump() + r * W + k % W;
      store<T>(x + at, load(normed + at) * by + plus);
    }
  }
}

// d ← γ d; the sums over rows of d and d x̂, the gradients of β and γ, are those of this tile.
template <typename T>
void scale_backward(const Layout<T>& z, int64_t rows, T* d, const T* normed, const T* scale, T* d_scale, T* d_shift) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  for (int64_t k = 0; k < z.Dp * W; k += L) {
    const Vector<T> by = load(scale + k);
    Vector<T> sum{}, with{};
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = k / W * z.jump() + r * W + k % W;
      const Vector<T> slope = load(d + at);
      sum += slope;
      with += slope * load(normed + at);
      store<T>(d + at, slope * by);
    }
    store(d_shift + k, sum);
    store(d_scale + k, with);
  }
}

// The rows of a tile between the tensor (N, D) and panels, whose padding is zero.
template <typename T>
void to_panels(const Layout<T>& z, const Tile& tile, const T* x, T* to) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  int64_t r = 0;
  for (const Sequence& sequence : tile.sequences) {
    for (int64_t i = 0; i < sequence.rows; ++i, ++r) {
      const T* row = x + (sequence.start + i) * z.D;
      for (int64_t k = 0; k < z.Dp * W; k += L) {
        const int count = static_cast<int>(std::clamp<int64_t>(z.D - k, 0, L));
        store<T>(to + k / W * z.jump() + r * W + k % W, count > 0 ? load(row + k, count) : Vector<T>{});
      }
    }
  }
}

template <typename T>
void from_panels(const Layout<T>& z, const Tile& tile, const T* x, T* to) {
  int64_t r = 0;
  for (const Sequence& sequence : tile.sequences) {
    for (int64_t i = 0; i < sequence.rows; ++i, ++r) {
      T* row = to + (sequence.start + i) * z.D;
      int64_t k = 0;
      each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
        store<T>(row + k, load(x + at, count), count);
        k += count;
      });
    }
  }
}

// Keys and values of a sequence between the memory (S, 2·D) and panels, in which each head begins with a vector.
template <typename T, typename Work>
SERIATIM_INLINE void each_source_vector(const Layout<T>& z, int64_t rows, const Work& work) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t h = 0; h < z.H; ++h) {
      for (int64_t i = 0; i < z.padded_head; i += L) {
        const int64_t column = part * z.Ap * W + h * z.padded_head + i;
        const int count = static_cast<int>(std::clamp<int64_t>(z.head - i, 0, L));
        for (int64_t r = 0; r < rows; ++r) {
          work(r * 2 * z.D + part * z.D + h * z.head + i, column / W * z.source_jump() + r * W + column % W, count);
        }
      }
    }
  }
}

}  // namespace seriatim
