// Linear layers: products with packed weights for inference, and fused bias and activation for training.
//
// Packed weights are panels (see gemm.h). Rows are processed in blocks that stay in a core's second cache while all panels
// pass, and bias and activation are applied to the sums before they leave the nearest one. In training the product is the
// library's; bias and activation after it are one pass, and so are their two gradients. The reference is nn/layers.py,
// and tests hold both equal.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <type_traits>

#include "activation.h"
#include "gemm.h"

namespace seriatim {
namespace {

using at::Tensor;

constexpr int64_t kNear = 256 << 10;  // bytes of rows that stay in the second cache
constexpr int64_t kWorth = 1 << 17;   // multiplications for which another thread is worth waking

Activation kind_of(int64_t activation) {
  TORCH_CHECK_VALUE(activation >= -1 && activation <= 3, "there is no activation ", activation);
  return static_cast<Activation>(activation);
}

// Calls `work` with the activation as a constant.
template <typename Work>
void with_kind(Activation kind, const Work& work) {
  switch (kind) {
    case Activation::none: return work(std::integral_constant<Activation, Activation::none>());
    case Activation::relu: return work(std::integral_constant<Activation, Activation::relu>());
    case Activation::gelu: return work(std::integral_constant<Activation, Activation::gelu>());
    case Activation::gelu_tanh: return work(std::integral_constant<Activation, Activation::gelu_tanh>());
    case Activation::silu: return work(std::integral_constant<Activation, Activation::silu>());
  }
}

void check_bias(const std::optional<Tensor>& bias, const Tensor& x, int64_t columns) {
  if (!bias.has_value()) return;
  TORCH_CHECK_TYPE(bias->scalar_type() == x.scalar_type(), "bias is ", bias->scalar_type(), ", x ", x.scalar_type());
  TORCH_CHECK_VALUE(bias->dim() == 1 && bias->size(0) == columns, "bias has shape ", bias->sizes(), ", expected ",
                    at::IntArrayRef({columns}));
}

// ---- weights that rest -------------------------------------------------------------------------------------------

// (columns, depth) → (panels, depth, two vectors), filled up with zeros.
Tensor packed_weights(const Tensor& weight) {
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.numel() > 0, "weights must be a matrix, not ", weight.sizes());
  const int64_t columns = weight.size(0), depth = weight.size(1);
  const Tensor from = weight.contiguous();
  Tensor packed;
  AT_DISPATCH_FLOATING_TYPES(weight.scalar_type(), "packed_weights", [&] {
    constexpr int64_t panel = Packed<scalar_t>::kPanel;
    packed = at::zeros({(columns + panel - 1) / panel, depth, panel}, weight.options());
    const scalar_t* source = from.const_data_ptr<scalar_t>();
    scalar_t* to = packed.data_ptr<scalar_t>();
    at::parallel_for(0, packed.size(0), 16, [&](int64_t p, int64_t end) {
      for (; p < end; ++p) {
        for (int64_t n = p * panel; n < std::min(columns, (p + 1) * panel); ++n) {
          for (int64_t k = 0; k < depth; ++k) to[(p * depth + k) * panel + n - p * panel] = source[n * depth + k];
        }
      }
    });
  });
  return packed;
}

// y = activation(x b + bias) for rows [first, last) and panels [begin, end).
template <typename T, Activation kind>
void multiply(const T* x, const T* packed, const T* bias, T* y, int64_t depth, int64_t columns, int64_t first,
              int64_t last, int64_t begin, int64_t end) {
  constexpr int L = kLanes<T>, panel = Packed<T>::kPanel;
  const auto& products = block_products<T, false>(2);
  alignas(64) T sums[kBlockRows * panel];
  const int64_t rows = last - first, blocks = (rows + kBlockRows - 1) / kBlockRows;  // of nearly equal size
  for (int64_t p = begin; p < end; ++p) {
    const int64_t column = p * panel;
    const T* weights = packed + p * depth * panel;
    const int counts[2] = {static_cast<int>(std::min<int64_t>(L, columns - column)),
                           static_cast<int>(std::clamp<int64_t>(columns - column - L, 0, L))};
    Vector<T> shift[2] = {};
    if (bias != nullptr) {
      shift[0] = load(bias + column, counts[0]);
      if (counts[1] > 0) shift[1] = load(bias + column + L, counts[1]);
    }
    for (int64_t i = 0, row = first; i < blocks; ++i) {
      const int64_t next = first + rows * (i + 1) / blocks;
      products[next - row - 1](x + row * depth, depth, weights, depth, sums, panel, false,
                               panel_ahead<T>(weights, depth, i, blocks));
      for (const T* sum = sums; row < next; ++row, sum += panel) {
        T* to = y + row * columns + column;
        store(to, activated<T>(load(sum) + shift[0], kind), counts[0]);
        if (counts[1] > 0) store(to + L, activated<T>(load(sum + L) + shift[1], kind), counts[1]);
      }
    }
  }
}

Tensor packed_linear(const Tensor& x, const Tensor& packed, int64_t columns, const std::optional<Tensor>& bias,
                     int64_t activation) {
  const Activation kind = kind_of(activation);
  TORCH_CHECK_VALUE(x.dim() >= 1 && packed.dim() == 3 && x.size(-1) == packed.size(1), "x has shape ", x.sizes(),
                    ", expected vectors of ", packed.size(1));
  TORCH_CHECK_TYPE(x.scalar_type() == packed.scalar_type(), "x is ", x.scalar_type(), ", the weights ",
                   packed.scalar_type());
  TORCH_CHECK_VALUE(columns <= packed.size(0) * packed.size(2) && columns > (packed.size(0) - 1) * packed.size(2),
                    columns, " outputs do not fit ", packed.size(0), " panels");
  check_bias(bias, x, columns);
  const int64_t depth = packed.size(1), panels = packed.size(0), rows = x.numel() / depth;
  const Tensor given = x.contiguous(), shift = bias.has_value() ? bias->contiguous() : Tensor();
  auto sizes = x.sizes().vec();
  sizes.back() = columns;
  Tensor y = at::empty(sizes, x.options());
  if (rows == 0) return y;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "packed_linear", [&] {
    const int64_t near = kNear / static_cast<int64_t>(depth * sizeof(scalar_t)) / kBlockRows * kBlockRows;
    const int64_t most = std::max<int64_t>(kBlockRows, near), chunks = (rows + most - 1) / most;
    const int64_t parts = std::min<int64_t>(panels, std::max<int64_t>(1, 16 / chunks));  // of the panels, for threads
    const int64_t cost = std::max<int64_t>(1, rows * columns * depth / (chunks * parts));
    with_kind(kind, [&](auto constant) {
      at::parallel_for(0, chunks * parts, std::max<int64_t>(1, kWorth / cost), [&](int64_t item, int64_t end) {
        for (; item < end; ++item) {
          const int64_t chunk = item / parts, part = item % parts;
          multiply<scalar_t, constant>(given.const_data_ptr<scalar_t>(), packed.const_data_ptr<scalar_t>(),
                                       bias.has_value() ? shift.const_data_ptr<scalar_t>() : nullptr,
                                       y.data_ptr<scalar_t>(), depth, columns, rows * chunk / chunks,
                                       rows * (chunk + 1) / chunks, panels * part / parts, panels * (part + 1) / parts);
        }
      });
    });
  });
  return y;
}

// ---- behind a product of weights that learn ----------------------------------------------------------------------

// activation(x + bias), the bias along the last dimension.
Tensor biased(const Tensor& x, const Tensor& bias, int64_t activation) {
  const Activation kind = kind_of(activation);
  TORCH_CHECK_VALUE(x.dim() >= 1, "x must have a dimension");
  check_bias(bias, x, x.size(-1));
  const int64_t columns = x.size(-1), rows = columns == 0 ? 0 : x.numel() / columns;
  const Tensor given = x.contiguous(), shift = bias.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "biased", [&] {
    constexpr int L = kLanes<scalar_t>;
    const scalar_t *from = given.const_data_ptr<scalar_t>(), *b = shift.const_data_ptr<scalar_t>();
    scalar_t* to = y.data_ptr<scalar_t>();
    with_kind(kind, [&](auto constant) {
      at::parallel_for(0, rows, std::max<int64_t>(1, (1 << 14) / (columns + 1)), [&](int64_t row, int64_t end) {
        for (; row < end; ++row) {
          const scalar_t* in = from + row * columns;
          scalar_t* out = to + row * columns;
          int64_t n = 0;
          for (; n + L <= columns; n += L) store(out + n, activated<scalar_t>(load(in + n) + load(b + n), constant));
          const int left = static_cast<int>(columns - n);
          if (left > 0) store(out + n, activated<scalar_t>(load(in + n, left) + load(b + n, left), constant), left);
        }
      });
    });
  });
  return y;
}

// The gradients of x and of the bias.
std::tuple<Tensor, Tensor> biased_backward(const Tensor& dy, const Tensor& x, const Tensor& bias, int64_t activation) {
  const Activation kind = kind_of(activation);
  check_bias(bias, x, x.size(-1));
  TORCH_CHECK_VALUE(dy.sizes() == x.sizes() && dy.scalar_type() == x.scalar_type(), "dy has shape ", dy.sizes(),
                    ", expected ", x.sizes(), " of the same type");
  const int64_t columns = x.size(-1), rows = columns == 0 ? 0 : x.numel() / columns;
  const Tensor given = x.contiguous(), shift = bias.contiguous(), above = dy.contiguous();
  Tensor dx = at::empty(x.sizes(), x.options());
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(at::get_num_threads(), rows * columns >> 14));
  Tensor sums = at::zeros({parts, columns}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "biased_backward", [&] {
    constexpr int L = kLanes<scalar_t>;
    const scalar_t *from = given.const_data_ptr<scalar_t>(), *b = shift.const_data_ptr<scalar_t>();
    const scalar_t* d = above.const_data_ptr<scalar_t>();
    scalar_t *to = dx.data_ptr<scalar_t>(), *totals = sums.data_ptr<scalar_t>();
    with_kind(kind, [&](auto constant) {
      at::parallel_for(0, parts, 1, [&](int64_t part, int64_t end) {
        for (; part < end; ++part) {
          scalar_t* sum = totals + part * columns;
          for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
            const scalar_t *in = from + row * columns, *over = d + row * columns;
            scalar_t* out = to + row * columns;
            for (int64_t n = 0; n < columns; n += L) {
              const int count = static_cast<int>(std::min<int64_t>(L, columns - n));
              const Vector<scalar_t> at = load(in + n, count) + load(b + n, count);
              const Vector<scalar_t> back = load(over + n, count) * slope<scalar_t>(at, constant);
              store(out + n, back, count);
              store<scalar_t>(sum + n, load(sum + n, count) + back, count);
            }
          }
        }
      });
    });
  });
  return {dx, parts == 1 ? sums[0] : sums.sum(0)};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def("packed_weights(Tensor weight) -> Tensor");
  library.def("packed_linear(Tensor x, Tensor packed, int columns, Tensor? bias, int activation) -> Tensor");
  library.def("biased(Tensor x, Tensor bias, int activation) -> Tensor");
  library.def("biased_backward(Tensor dy, Tensor x, Tensor bias, int activation) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) {
  library.impl("packed_weights", packed_weights);
  library.impl("packed_linear", packed_linear);
  library.impl("biased", biased);
  library.impl("biased_backward", biased_backward);
}

}  // namespace seriatim
