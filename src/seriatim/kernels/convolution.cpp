// Causal convolutions over sequences of vectors, forward and backward.
//
// x is (B, S, C) and includes the elements before the sequence, the weights are (D, C, k) as in torch, and
// y_t = b + Σ_j W_j x_{t + j·dilation}, so that there are S − (k − 1)·dilation outputs. Every tap is a product with a
// small matrix that stays in the nearest cache while the rows pass, and windows are never materialized. The reference is
// the equations in models/tcn.py, and tests hold both equal.

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <deque>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "gemm.h"

namespace seriatim {
namespace {

using at::Tensor;

constexpr int64_t kRows = 8 * kBlockRows;  // outputs that stay near while all taps are added up

struct Shape {
  int64_t batch, places, inputs, width, taps, dilation;
  int64_t outputs() const { return places - (taps - 1) * dilation; }
};

Shape checked(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, int64_t dilation) {
  TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble,
                   "x must be float32 or float64, not ", x.scalar_type());
  TORCH_CHECK_VALUE(x.device().is_cpu() && weight.device().is_cpu(), "x and weight must be on the CPU");
  TORCH_CHECK_VALUE(x.dim() == 3, "x must be (B, S, C), not ", x.sizes());
  TORCH_CHECK_VALUE(weight.dim() == 3 && weight.numel() > 0 && weight.size(1) == x.size(2),
                    "weight must be (D, C, k) for vectors of ", x.size(2), ", not ", weight.sizes());
  TORCH_CHECK_TYPE(weight.scalar_type() == x.scalar_type(), "weight is ", weight.scalar_type(), ", x ", x.scalar_type());
  if (bias) {
    TORCH_CHECK_TYPE(bias->scalar_type() == x.scalar_type(), "bias is ", bias->scalar_type(), ", x ", x.scalar_type());
    TORCH_CHECK_VALUE(bias->device().is_cpu() && bias->sizes() == at::IntArrayRef({weight.size(0)}), "bias has shape ",
                      bias->sizes(), ", expected ", at::IntArrayRef({weight.size(0)}));
  }
  TORCH_CHECK_VALUE(dilation >= 1, "dilation must be at least 1, not ", dilation);
  const Shape shape{x.size(0), x.size(1), x.size(2), weight.size(0), weight.size(2), dilation};
  TORCH_CHECK_VALUE(shape.outputs() >= 0, x.size(1), " elements are too few for ", shape.taps, " taps, ", dilation,
                    " apart");
  return shape;
}

// The matrix of each tap, for products x W_jᵀ, or `turned` for y W_j.
template <typename T>
std::deque<Packed<T>> packed_taps(const Tensor& weight, const Shape& shape, bool turned) {
  const T* from = weight.const_data_ptr<T>();
  const int64_t of_output = shape.inputs * shape.taps, of_input = shape.taps;
  std::deque<Packed<T>> taps;
  for (int64_t j = 0; j < shape.taps; ++j) {
    if (turned) {
      taps.emplace_back(from + j, of_output, of_input, shape.width, shape.inputs);
    } else {
      taps.emplace_back(from + j, of_input, of_output, shape.inputs, shape.width);
    }
  }
  return taps;
}

int64_t worth(const Shape& shape) {  // sequences for which another thread is worth waking
  return std::max<int64_t>(1, (1 << 17) / (shape.outputs() * shape.inputs * shape.width * shape.taps + 1));
}

Tensor convolution(const Tensor& x_, const Tensor& weight_, const std::optional<Tensor>& bias_, int64_t dilation) {
  const Shape shape = checked(x_, weight_, bias_, dilation);
  const Tensor x = x_.contiguous(), weight = weight_.contiguous(), bias = bias_ ? bias_->contiguous() : Tensor();
  const int64_t outputs = shape.outputs(), C = shape.inputs, D = shape.width;
  Tensor y = at::empty({shape.batch, outputs, D}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "convolution", [&] {
    using T = scalar_t;
    const auto taps = packed_taps<T>(weight, shape, false);
    const int64_t stride = row_stride<T>(D);
    Buffer<T> shift(stride);
    if (bias.defined()) std::copy_n(bias.const_data_ptr<T>(), D, +shift);
    at::parallel_for(0, shape.batch, worth(shape), [&](int64_t item, int64_t end) {
      Buffer<T> sums(kRows * stride);  // rows with space for whole vectors
      for (; item < end; ++item) {
        const T* from = x.const_data_ptr<T>() + item * shape.places * C;
        T* to = y.mutable_data_ptr<T>() + item * outputs * D;
        for (int64_t first = 0; first < outputs; first += kRows) {
          const int64_t rows = std::min(kRows, outputs - first);
          for (int64_t row = 0; row < rows; ++row) std::copy_n(+shift, D, sums + row * stride);
          for (int64_t j = 0; j < shape.taps; ++j) {
            taps[j].multiply_all(from + (first + j * dilation) * C, C, rows, sums, stride, true);
          }
          for (int64_t row = 0; row < rows; ++row) std::copy_n(sums + row * stride, D, to + (first + row) * D);
        }
      }
    });
  });
  return y;
}

// What one thread has added up: the gradients of the taps, (D, C) each, and of the bias.
template <typename T>
struct TapSums {
  Buffer<T> taps, bias;
  explicit TapSums(const Shape& shape)
      : taps(shape.taps * shape.width * row_stride<T>(shape.inputs)), bias(shape.width) {}
};

// The gradients of x (empty unless asked for), of the weights and of the bias.
std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& dy_, const Tensor& x_, const Tensor& weight_,
                                                        int64_t dilation, bool inputs) {
  const Shape shape = checked(x_, weight_, std::nullopt, dilation);
  const int64_t outputs = shape.outputs(), C = shape.inputs, D = shape.width, places = shape.places;
  TORCH_CHECK_TYPE(dy_.scalar_type() == x_.scalar_type(), "dy is ", dy_.scalar_type(), ", x ", x_.scalar_type());
  TORCH_CHECK_VALUE(dy_.device().is_cpu() && dy_.sizes() == at::IntArrayRef({shape.batch, outputs, D}), "dy has shape ",
                    dy_.sizes(), ", expected ", at::IntArrayRef({shape.batch, outputs, D}));
  const Tensor dy = dy_.contiguous(), x = x_.contiguous(), weight = weight_.contiguous();
  Tensor dx = at::empty(inputs ? x.sizes() : at::IntArrayRef({0}), x.options());
  Tensor dw = at::empty(weight.sizes(), x.options()), db = at::empty({D}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "convolution_backward", [&] {
    using T = scalar_t;
    const auto taps = inputs ? packed_taps<T>(weight, shape, true) : std::deque<Packed<T>>();
    const int64_t stride = row_stride<T>(C);
    std::vector<std::unique_ptr<TapSums<T>>> threads(at::get_num_threads());
    at::parallel_for(0, shape.batch, worth(shape), [&](int64_t item, int64_t end) {
      auto& sums = threads[at::get_thread_num()];
      if (sums == nullptr) sums = std::make_unique<TapSums<T>>(shape);
      Buffer<T> blocks(outputs * D + kBlockRows), panels(places * round_up(C, kLanes<T>)), spread(places * stride);
      for (; item < end; ++item) {
        const T *d = dy.const_data_ptr<T>() + item * outputs * D, *from = x.const_data_ptr<T>() + item * places * C;
        to_blocks<T>(d, D, D, outputs, blocks);
        to_panels<T>(from, C, C, places, panels);
        for (int64_t j = 0; j < shape.taps; ++j) {
          add_outer_products<T>(blocks, D, panels, C, outputs, sums->taps + j * D * stride, stride, places, j * dilation);
        }
        for (int64_t t = 0; t < outputs; ++t) {
          for (int64_t n = 0; n < D; ++n) sums->bias[n] += d[t * D + n];
        }
        if (!inputs) continue;
        std::fill_n(+spread, places * stride, T(0));
        for (int64_t first = 0; first < outputs; first += kRows) {
          const int64_t rows = std::min(kRows, outputs - first);
          for (int64_t j = 0; j < shape.taps; ++j) {
            taps[j].multiply_all(d + first * D, D, rows, spread + (first + j * dilation) * stride, stride, true);
          }
        }
        T* to = dx.mutable_data_ptr<T>() + item * places * C;
        for (int64_t t = 0; t < places; ++t) std::copy_n(spread + t * stride, C, to + t * C);
      }
    });
    dw.zero_(), db.zero_();
    for (const auto& sums : threads) {  // in the order of the threads, so that the sum is the same each time
      if (sums == nullptr) continue;
      T *to = dw.mutable_data_ptr<T>(), *bias = db.mutable_data_ptr<T>();
      for (int64_t n = 0; n < D; ++n, to += C * shape.taps) {
        for (int64_t c = 0; c < C; ++c) {
          for (int64_t j = 0; j < shape.taps; ++j) to[c * shape.taps + j] += sums->taps[(j * D + n) * stride + c];
        }
        bias[n] += sums->bias[n];
      }
    }
  });
  return {dx, dw, db};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def("convolution(Tensor x, Tensor weight, Tensor? bias, int dilation) -> Tensor");
  library.def(
      "convolution_backward(Tensor dy, Tensor x, Tensor weight, int dilation, bool inputs) -> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) {
  library.impl("convolution", convolution);
  library.impl("convolution_backward", convolution_backward);
}

}  // namespace seriatim
