// Activations of feed-forward networks and their derivatives, for a vector of numbers.
#pragma once

#include <cmath>

#include "simd.h"

namespace seriatim {

enum class Activation : int64_t { none = -1, relu, gelu, gelu_tanh, silu };

// e^x for x ≤ 0. In single precision it falls to e^-60 and no further: what is multiplied by it must not come near
// the numbers that processors are slow with.
template <typename T>
SERIATIM_INLINE Vector<T> falling(Vector<T> x) {
  Vector<T> power, rest;
  split_exp<T>(clamp_below<T>(x, splat(T(sizeof(T) == 4 ? -60 : -Exponential<T>::kLimit))), power, rest);
  return power * rest + power;
}

// The share of a normal distribution that lies below x, (1 + erf(x/√2)) / 2, where `bell` is e^(−x²/2). In single
// precision by Abramowitz and Stegun 7.1.26, which is exact to 1e-7.
template <typename T>
SERIATIM_INLINE Vector<T> below(Vector<T> x, Vector<T> bell) {
  if constexpr (sizeof(T) == 8) {
    Vector<T> y;
    for (int lane = 0; lane < kLanes<T>; ++lane) y[lane] = T(0.5) * std::erfc(-x[lane] * T(0.7071067811865475244));
    return y;
  } else {
    const Bits<T> sign = (Bits<T>)x & Exponential<T>::kSign;
    const Vector<T> size = (Vector<T>)((Bits<T>)x ^ sign);
    const Vector<T> t = reciprocal<T>(T(1) + T(0.3275911 * 0.7071067811865475) * size);
    Vector<T> tail = splat(T(0.5 * 1.061405429));
    tail = tail * t + T(0.5 * -1.453152027);
    tail = tail * t + T(0.5 * 1.421413741);
    tail = tail * t + T(0.5 * -0.284496736);
    tail = tail * t + T(0.5 * 0.254829592);
    tail = tail * t * bell;
    return x < T(0) ? tail : T(1) - tail;
  }
}

constexpr double kRootTwoOverPi = 0.7978845608028653559, kCubic = 0.044715;  // of the tanh that stands for the erf

template <typename T>
SERIATIM_INLINE Vector<T> activated(Vector<T> x, Activation kind) {
  if (kind == Activation::none) return x;
  if (kind == Activation::relu) return x < T(0) ? Vector<T>{} : x;  // a NaN stays one
  if (kind == Activation::silu) return x * sigmoid<T>(x);
  if (kind == Activation::gelu_tanh) {
    const Vector<T> inner = T(kRootTwoOverPi) * x * (T(1) + T(kCubic) * x * x);
    return T(0.5) * x * (T(1) + tanh<T>(inner));
  }
  return x * below<T>(x, falling<T>(T(-0.5) * x * x));
}

template <typename T>
SERIATIM_INLINE Vector<T> slope(Vector<T> x, Activation kind) {
  if (kind == Activation::none) return splat(T(1));
  if (kind == Activation::relu) return x > T(0) ? splat(T(1)) : Vector<T>{};
  if (kind == Activation::silu) {
    const Vector<T> s = sigmoid<T>(x);
    return s * (T(1) + x * (T(1) - s));
  }
  if (kind == Activation::gelu_tanh) {
    const Vector<T> square = x * x;
    const Vector<T> t = tanh<T>(T(kRootTwoOverPi) * x * (T(1) + T(kCubic) * square));
    const Vector<T> steep = T(kRootTwoOverPi) * (T(1) + T(3 * kCubic) * square);
    return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * steep;
  }
  const Vector<T> bell = falling<T>(T(-0.5) * x * x);
  return below<T>(x, bell) + T(0.3989422804014326779) * x * bell;
}

// Both at once, which share their exponential.
template <typename T>
SERIATIM_INLINE void activated_with_slope(Vector<T> x, Activation kind, Vector<T>& y, Vector<T>& steep) {
  if (kind == Activation::gelu_tanh) {  // 1 + tanh z = 2 σ(2z)
    const Vector<T> square = x * x;
    const Vector<T> share = sigmoid<T>(T(2 * kRootTwoOverPi) * x * (T(1) + T(kCubic) * square));
    y = x * share;
    steep = share + y * (T(1) - share) * (T(2 * kRootTwoOverPi) * (T(1) + T(3 * kCubic) * square));
  } else if (kind == Activation::gelu) {
    const Vector<T> bell = falling<T>(T(-0.5) * x * x), share = below<T>(x, bell);
    y = x * share;
    steep = share + T(0.3989422804014326779) * x * bell;
  } else {
    y = activated<T>(x, kind);
    steep = slope<T>(x, kind);
  }
}

}  // namespace seriatim
