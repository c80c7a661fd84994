// The mask of dropout: a hash of the element's position and a seed.
#pragma once

#include <cstdint>

#include "simd.h"

namespace seriatim {

// Every bit of the result depends on every bit of the place; the constants are those of a search for little bias.
SERIATIM_INLINE uint32_t mixed(uint32_t place, uint32_t seed, uint32_t more) {
  uint32_t h = place ^ seed;
  h = (h ^ (h >> 16)) * 0x7feb352dU + more;
  h = (h ^ (h >> 15)) * 0x846ca68bU;
  return h ^ (h >> 16);
}

// A share of numbers below 1 that is dropped, and one seed.
template <typename T>
struct DropoutMask {
  uint32_t low, high, threshold;
  T scale;

  DropoutMask(double share, int64_t seed)
      : low(static_cast<uint32_t>(seed)),
        high(static_cast<uint32_t>(seed >> 32)),
        threshold(static_cast<uint32_t>(share * 4294967296.0)),
        scale(static_cast<T>(1 / (1 - share))) {}

  // The number at a place of a tensor, kept and scaled or zero.
  SERIATIM_INLINE T apply(T value, uint32_t place) const {
    return mixed(place, low, high) >= threshold ? value * scale : T(0);
  }

  // The numbers at the places from `begin` to `end`.
  void apply(const T* __restrict from, T* __restrict to, int64_t begin, int64_t end) const {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = apply(from[i], static_cast<uint32_t>(i));
  }
};

}  // namespace seriatim
