// Dropout with a mask that is a hash of the element's position and a seed: no random number per element is drawn, and
// nothing is saved for the backward pass, which is the same function of the gradient.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <cstdint>

#include "dropout.h"

namespace seriatim {
namespace {

using at::Tensor;

Tensor dropped(const Tensor& x, double share, int64_t seed) {
  TORCH_CHECK_VALUE(share >= 0 && share <= 1, "a share of ", share, " cannot be dropped");
  if (share == 1) return at::zeros_like(x, at::MemoryFormat::Contiguous);  // the threshold has 32 bits
  const Tensor from = x.contiguous();
  Tensor to = at::empty_like(from);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dropped", [&] {
    const auto* source = from.const_data_ptr<scalar_t>();
    auto* target = to.data_ptr<scalar_t>();
    const DropoutMask<scalar_t> mask(share, seed);
    at::parallel_for(0, from.numel(), 1 << 15,
                     [&](int64_t begin, int64_t end) { mask.apply(source, target, begin, end); });
  });
  return to;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def("dropped(Tensor x, float share, int seed) -> Tensor");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) { library.impl("dropped", dropped); }

}  // namespace seriatim
