// Vectors of numbers by the compiler's vector types (GCC, Clang), so that one source serves AVX-512, AVX2, NEON and
// others. Only loads and stores of parts of a vector need more.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define SERIATIM_INLINE inline __attribute__((always_inline))

namespace seriatim {

#if defined(__AVX512F__)
#define SERIATIM_VECTOR_BYTES 64
constexpr int kBlockRows = 14;  // with two vectors each, 28 of the 32 registers accumulate
#elif defined(__AVX2__)
#define SERIATIM_VECTOR_BYTES 32
constexpr int kBlockRows = 6;  // 12 of 16
#else
#define SERIATIM_VECTOR_BYTES 16
constexpr int kBlockRows = 12;  // 24 of 32 on ARM
#endif

template <typename T>
struct Simd;

template <>
struct Simd<float> {
  typedef float Vector __attribute__((vector_size(SERIATIM_VECTOR_BYTES)));
  typedef uint32_t Bits __attribute__((vector_size(SERIATIM_VECTOR_BYTES)));
  static constexpr int kLanes = SERIATIM_VECTOR_BYTES / 4;
};

template <>
struct Simd<double> {
  typedef double Vector __attribute__((vector_size(SERIATIM_VECTOR_BYTES)));
  typedef uint64_t Bits __attribute__((vector_size(SERIATIM_VECTOR_BYTES)));
  static constexpr int kLanes = SERIATIM_VECTOR_BYTES / 8;
};

template <typename T>
using Vector = typename Simd<T>::Vector;
template <typename T>
using Bits = typename Simd<T>::Bits;
template <typename T>
constexpr int kLanes = Simd<T>::kLanes;

template <typename T>
SERIATIM_INLINE Vector<T> splat(T value) {
  return value - Vector<T>{};
}

template <typename T>
SERIATIM_INLINE Vector<T> load(const T* from) {
  Vector<T> vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

template <typename T>
SERIATIM_INLINE void store(T* to, Vector<T> vector) {
  std::memcpy(to, &vector, sizeof vector);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
// All bits of the first `count` lanes.
template <typename T>
SERIATIM_INLINE __m256i first_lanes(int count) {
  alignas(32) static constexpr int32_t kBits[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kBits + 8 - count * static_cast<int>(sizeof(T) / 4)));
}
#endif

// The first `count` lanes only; the others read as zero and are not written.
template <typename T>
SERIATIM_INLINE Vector<T> load(const T* from, int count) {
  if (count == kLanes<T>) return load(from);
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return (Vector<T>)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
  } else {
    return (Vector<T>)_mm512_maskz_loadu_pd((__mmask8)((1u << count) - 1), from);
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    return (Vector<T>)_mm256_maskload_ps(from, first_lanes<T>(count));
  } else {
    return (Vector<T>)_mm256_maskload_pd(from, first_lanes<T>(count));
  }
#else
  Vector<T> vector{};
  for (int lane = 0; lane < count; ++lane) vector[lane] = from[lane];
  return vector;
#endif
}

template <typename T>
SERIATIM_INLINE void store(T* to, Vector<T> vector, int count) {
  if (count == kLanes<T>) return store(to, vector);
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)vector);
  } else {
    _mm512_mask_storeu_pd(to, (__mmask8)((1u << count) - 1), (__m512d)vector);
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    _mm256_maskstore_ps(to, first_lanes<T>(count), (__m256)vector);
  } else {
    _mm256_maskstore_pd(to, first_lanes<T>(count), (__m256d)vector);
  }
#else
  for (int lane = 0; lane < count; ++lane) to[lane] = vector[lane];
#endif
}

// ---- the exponential and its kin -------------------------------------------------------------------------------

// e^r − 1 = r + r² q(r) for |r| ≤ ln(2)/2, and what reduces any x to such an r: x = n ln 2 + r.
template <typename T>
struct Exponential;

template <>
struct Exponential<float> {
  static constexpr float kLog2e = 1.44269504088896341f;
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  static constexpr float kRound = 12582912.0f;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  static constexpr uint32_t kBias = 127, kMantissa = 23, kSign = 0x80000000u;
  static constexpr float kLimit = 87.0f;      // e^±limit is a normal number
  static constexpr float kTanhLimit = 10.0f;  // beyond it tanh rounds to 1
  static constexpr float kSeries[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                      4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
};

template <>
struct Exponential<double> {
  static constexpr double kLog2e = 1.44269504088896340736;
  static constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 · 2^52
  static constexpr uint64_t kBias = 1023, kMantissa = 52, kSign = 0x8000000000000000ull;
  static constexpr double kLimit = 708.0;
  static constexpr double kTanhLimit = 22.0;
  static constexpr double kSeries[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                                       1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                                       1.0 / 120,        1.0 / 24,        1.0 / 6,        1.0 / 2};
};

// e^x = power · (1 + rest), where power is 2^n. A NaN stays one.
template <typename T>
SERIATIM_INLINE void split_exp(Vector<T> x, Vector<T>& power, Vector<T>& rest) {
  using E = Exponential<T>;
  const Vector<T> shifted = x * E::kLog2e + E::kRound;
  const Vector<T> n = shifted - E::kRound;
  const Vector<T> r = (x - n * E::kLn2High) - n * E::kLn2Low;
  Vector<T> q = splat(E::kSeries[0]);
#pragma GCC unroll 16
  for (int i = 1; i < static_cast<int>(sizeof(E::kSeries) / sizeof(T)); ++i) q = q * r + E::kSeries[i];
  rest = (r * r) * q + r;
  power = (Vector<T>)(((Bits<T>)shifted + E::kBias) << E::kMantissa);
}

// A NaN stays one: the processor's minimum and maximum give their second operand then.
template <typename T>
SERIATIM_INLINE Vector<T> clamp_above(Vector<T> x, Vector<T> limit) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return (Vector<T>)_mm512_min_ps((__m512)limit, (__m512)x);
#endif
  return x > limit ? limit : x;
}

template <typename T>
SERIATIM_INLINE Vector<T> clamp_below(Vector<T> x, Vector<T> limit) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return (Vector<T>)_mm512_max_ps((__m512)limit, (__m512)x);
#endif
  return x < limit ? limit : x;
}

template <typename T>
SERIATIM_INLINE Vector<T> reciprocal(Vector<T> x) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {  // an estimate to 14 bits and one step of Newton's are cheaper than a division
    const Vector<T> estimate = (Vector<T>)_mm512_rcp14_ps((__m512)x);
    return estimate + estimate * (T(1) - x * estimate);
  }
#endif
  return T(1) / x;
}

template <typename T>
SERIATIM_INLINE Vector<T> sigmoid(Vector<T> x) {
  const Vector<T> limit = splat(Exponential<T>::kLimit);
  x = clamp_below<T>(clamp_above<T>(x, limit), -limit);
  Vector<T> power, rest;
  split_exp<T>(-x, power, rest);
  return reciprocal<T>(power * rest + (power + T(1)));
}

// tanh x = (e^2x − 1) / (e^2x + 1) on |x|, with the numerator free of cancellation near zero.
template <typename T>
SERIATIM_INLINE Vector<T> tanh(Vector<T> x) {
  using E = Exponential<T>;
  const Bits<T> sign = (Bits<T>)x & E::kSign;
  const Vector<T> limit = splat(E::kTanhLimit);
  Vector<T> size = (Vector<T>)((Bits<T>)x ^ sign);
  size = clamp_above<T>(size, limit);
  Vector<T> power, rest;
  split_exp<T>(size + size, power, rest);
  const Vector<T> up = power * rest + (power - T(1));
  return (Vector<T>)((Bits<T>)(up * reciprocal<T>(up + T(2))) | sign);
}

}  // namespace seriatim
