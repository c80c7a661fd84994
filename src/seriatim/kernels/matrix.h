// Packed weights for products with few rows, in float32 or 8 bits, in the order in which they are read.
//
// With one to sixteen rows a product takes as long as reading its weights from memory. They are therefore stored in panels
// of two vectors per row, one panel after the other, in large pages, and everything that follows a product is computed
// while its sums are in cache. In 8 bits, each output has its own scale (its largest weight is 127), and the inputs stay
// float32.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "simd.h"

namespace seriatim {

constexpr int kWide = kLanes<float>;   // numbers of a vector
constexpr int kPanel = 2 * kWide;      // columns of a panel
constexpr int64_t kPage = 1 << 21;     // bytes of a large page
constexpr int64_t kShare = 64 << 10;   // bytes of weights that a thread takes at once, at most
constexpr int64_t kLeast = 8 << 10;    // and at least

inline int64_t filled_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Zeroed memory, aligned to cache lines; if it is large, to large pages, which the system is asked for.
template <typename T>
class Lines {
 public:
  Lines() = default;
  explicit Lines(int64_t count) : count_(count) {
    const int64_t bytes = filled_up(std::max<int64_t>(count, 1) * sizeof(T), 64);
    const int64_t align = bytes >= 2 * kPage ? kPage : 64;
    data_ = static_cast<T*>(std::aligned_alloc(align, filled_up(bytes, align)));
    if (data_ == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (align == kPage) madvise(data_, filled_up(bytes, align), MADV_HUGEPAGE);
#endif
    std::memset(static_cast<void*>(data_), 0, bytes);
  }
  ~Lines() { std::free(data_); }
  Lines(Lines&& other) noexcept { *this = std::move(other); }
  Lines& operator=(Lines&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  operator T*() const { return data_; }
  int64_t count() const { return count_; }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

SERIATIM_INLINE Vector<float> weights_at(const float* from) { return load(from); }

SERIATIM_INLINE Vector<float> weights_at(const int8_t* from) {
#if defined(__AVX512F__)
  return (Vector<float>)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)from)));
#elif defined(__AVX2__)
  return (Vector<float>)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from)));
#else
  typedef int8_t Bytes __attribute__((vector_size(kWide)));
  typedef int32_t Whole __attribute__((vector_size(4 * kWide)));
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return __builtin_convertvector(__builtin_convertvector(bytes, Whole), Vector<float>);
#endif
}

// c = a b for `Rows` rows of a and a panel b. Where there are few rows several steps are summed side by side: a sum
// could not go on before the one before it is ready.
template <typename W, int Rows>
void few_rows(const float* a, int64_t a_stride, const W* b, int64_t depth, float* c) {
  constexpr int kSide = Rows == 1 ? 4 : Rows <= 3 ? 2 : 1;
  constexpr int kAheadBytes = 1024;
  Vector<float> sum[kSide][Rows][2] = {};
  int64_t k = 0;
  for (; k + kSide <= depth; k += kSide, b += kSide * kPanel) {
#pragma GCC unroll 4
    for (int s = 0; s < kSide; ++s) {
      if ((s * kPanel * sizeof(W)) % 64 == 0) {
        __builtin_prefetch(reinterpret_cast<const char*>(b + s * kPanel) + kAheadBytes);
      }
      const Vector<float> left = weights_at(b + s * kPanel), right = weights_at(b + s * kPanel + kWide);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const Vector<float> value = splat(a[i * a_stride + k + s]);
        sum[s][i][0] += value * left;
        sum[s][i][1] += value * right;
      }
    }
  }
  for (; k < depth; ++k, b += kPanel) {
    const Vector<float> left = weights_at(b), right = weights_at(b + kWide);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vector<float> value = splat(a[i * a_stride + k]);
      sum[0][i][0] += value * left;
      sum[0][i][1] += value * right;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      Vector<float> total = sum[0][i][v];
#pragma GCC unroll 4
      for (int s = 1; s < kSide; ++s) total += sum[s][i][v];
      store(c + i * kPanel + v * kWide, total);
    }
  }
}

template <typename W>
using FewRows = void (*)(const float*, int64_t, const W*, int64_t, float*);

template <typename W, int... Index>
constexpr std::array<FewRows<W>, sizeof...(Index)> all_few_rows(std::integer_sequence<int, Index...>) {
  return {few_rows<W, Index + 1>...};
}

template <typename W>
class Matrix {
 public:
  Matrix() = default;

  // Weights (columns, depth) as torch keeps them, from several tensors side by side; a bias or nothing. The scale of a
  // column is that of the largest of its weights, or of those of other tensors that it shares it with.
  Matrix(const std::vector<at::Tensor>& parts, const at::Tensor& bias, const std::vector<at::Tensor>& scaled = {}) {
    columns_ = parts[0].size(0);
    for (const auto& part : parts) depth_ += part.size(1);
    data_ = Lines<W>(panels() * kPanel * depth_);
    scale_ = Lines<float>(panels() * kPanel);
    bias_ = Lines<float>(panels() * kPanel);
    if (bias.defined()) std::copy_n(bias.const_data_ptr<float>(), columns_, static_cast<float*>(bias_));
    at::parallel_for(0, panels(), 1, [&](int64_t p, int64_t end) {
      for (; p < end; ++p) pack(p, parts, scaled.empty() ? parts : scaled);
    });
  }

  int64_t columns() const { return columns_; }
  int64_t depth() const { return depth_; }
  int64_t panels() const { return (columns_ + kPanel - 1) / kPanel; }
  int64_t bytes() const { return panels() * kPanel * depth_ * static_cast<int64_t>(sizeof(W)); }

  // y = a b + bias: take(row, column, first vector, second vector) gets every row of every panel.
  template <typename E, typename F>
  void multiply(E& pool, const float* a, int64_t a_stride, int64_t rows, const F& take) const {
    const int64_t one = kPanel * depth_ * static_cast<int64_t>(sizeof(W));
    const int64_t at_once = std::clamp(bytes() / (2 * pool.workers()), kLeast, kShare);
    const int64_t share = std::max<int64_t>(1, at_once / one), items = (panels() + share - 1) / share;
    pool.each(items, [&](int64_t item, int) {
      const int64_t end = std::min(panels(), (item + 1) * share);
      for (int64_t p = item * share; p < end; ++p) panel(p, a, a_stride, rows, take);
    });
  }

 private:
  void pack(int64_t p, const std::vector<at::Tensor>& parts, const std::vector<at::Tensor>& scaled) {
    W* to = data_ + p * kPanel * depth_;
    const int64_t first = p * kPanel, count = std::min<int64_t>(kPanel, columns_ - first);
    for (int64_t n = first; n < first + count; ++n) {
      float largest = 0;
      for (const auto& part : scaled) {
        const float* row = part.const_data_ptr<float>() + n * part.size(1);
        for (int64_t k = 0; k < part.size(1); ++k) largest = std::max(largest, std::fabs(row[k]));
      }
      scale_[n] = sizeof(W) == 1 && largest > 0 ? largest / 127.0f : 1.0f;
    }
    for (const auto& part : parts) {
      const int64_t depth = part.size(1);
      const float* from = part.const_data_ptr<float>() + first * depth;
      for (int64_t k = 0; k < depth; ++k, to += kPanel) {
        for (int64_t n = 0; n < count; ++n) {
          const float value = from[n * depth + k];
          to[n] = sizeof(W) == 1 ? static_cast<W>(std::lrint(value / scale_[first + n])) : static_cast<W>(value);
        }
      }
    }
  }

  template <typename F>
  SERIATIM_INLINE void panel(int64_t p, const float* a, int64_t a_stride, int64_t rows, const F& take) const {
    static constexpr auto products = all_few_rows<W>(std::make_integer_sequence<int, kBlockRows>());
    alignas(64) float sums[kBlockRows * kPanel];
    const Vector<float> bias[2] = {load(bias_ + p * kPanel), load(bias_ + p * kPanel + kWide)};
    const Vector<float> scale[2] = {load(scale_ + p * kPanel), load(scale_ + p * kPanel + kWide)};
    const W* from = data_ + p * kPanel * depth_;
    const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;  // of nearly equal size
    for (int64_t i = 0, first = 0; i < blocks; ++i) {
      const int64_t last = rows * (i + 1) / blocks;
      products[last - first - 1](a + first * a_stride, a_stride, from, depth_, sums);
      for (int64_t row = first; row < last; ++row) {
        const float* sum = sums + (row - first) * kPanel;
        take(row, p * kPanel, load(sum) * scale[0] + bias[0], load(sum + kWide) * scale[1] + bias[1]);
      }
      first = last;
    }
  }

  int64_t depth_ = 0, columns_ = 0;
  Lines<W> data_;
  Lines<float> scale_, bias_;
};

}  // namespace seriatim
