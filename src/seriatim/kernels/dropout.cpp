// Dropout with a mask that is a hash of the element's position and a seed: no random number per element is drawn, and
// nothing is saved for the backward pass, which is the same function of the gradient.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <cstdint>

namespace seriatim {
namespace {

using at::Tensor;

// Every bit of the result depends on every bit of the place; the constants are those of a search for little bias.
inline uint32_t mixed(uint32_t place, uint32_t seed, uint32_t more) {
  uint32_t h = place ^ seed;
  h = (h ^ (h >> 16)) * 0x7feb352dU + more;
  h = (h ^ (h >> 15)) * 0x846ca68bU;
  return h ^ (h >> 16);
}

template <typename T>
void drop(const T* __restrict from, T* __restrict to, int64_t begin, int64_t end, uint32_t seed, uint32_t more,
          uint32_t threshold, T scale) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    to[i] = mixed(static_cast<uint32_t>(i), seed, more) >= threshold ? from[i] * scale : T(0);
  }
}

Tensor dropped(const Tensor& x, double share, int64_t seed) {
  TORCH_CHECK_VALUE(share >= 0 && share <= 1, "a share of ", share, " cannot be dropped");
  if (share == 1) return at::zeros_like(x, at::MemoryFormat::Contiguous);  // the threshold has 32 bits
  const Tensor from = x.contiguous();
  Tensor to = at::empty_like(from);
  const auto threshold = static_cast<uint32_t>(share * 4294967296.0);
  const auto low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dropped", [&] {
    const auto* source = from.const_data_ptr<scalar_t>();
    auto* target = to.data_ptr<scalar_t>();
    at::parallel_for(0, from.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
      drop<scalar_t>(source, target, begin, end, low, high, threshold, static_cast<scalar_t>(1 / (1 - share)));
    });
  });
  return to;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def("dropped(Tensor x, float share, int seed) -> Tensor");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) { library.impl("dropped", dropped); }

}  // namespace seriatim
