// One recurrent layer in one direction over all time steps, forward and backward: RNN, LSTM and GRU.
//
// The product of the inputs with their weights for all steps is the caller's (one large product); what is left is
// the part that must go step by step. The batch is split over threads, and each thread runs its rows through the
// whole of time without waiting for another. At each step the product with the packed recurrent weights and the
// work of the gates alternate panel by panel, so that sums go into the gates while they are in the nearest cache.
// The gradient of the recurrent weights is one large product at the end.
//
// Tensors that the caller sees are batch-first and contiguous. Where a mask is false the state is carried over
// unchanged and the output is zero. `kept` is what the backward pass needs of a forward pass, time-major:
// (T, B, parts, H), empty if nobody asked for it.
//
// The plain definition of each cell is in recurrent.py, and the tests hold the two equal.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <deque>
#include <optional>
#include <tuple>
#include <vector>

#include "product.h"

#define SERIATIM_ALWAYS __attribute__((always_inline))

namespace seriatim {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kNearBytes = 768 << 10;  // what of the weights the second-level cache of a core may hold

// ---- what the cells share --------------------------------------------------------------------------------------

// Sizes, direction and mask of one layer.
struct Layer {
  int64_t batch, time, width, gates;
  bool reverse;
  const bool* mask;  // nullptr: every step is real

  int64_t at_step(int64_t step) const { return reverse ? time - 1 - step : step; }
  bool real(int64_t row, int64_t t) const { return mask == nullptr || mask[row * time + t]; }
};

void check_tensor(const Tensor& tensor, at::IntArrayRef sizes, const Tensor& like, const char* name) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), name, " is ", tensor.scalar_type(), ", projected is ",
                   like.scalar_type());
  TORCH_CHECK_VALUE(tensor.device() == like.device(), name, " is on ", tensor.device(), ", projected on ",
                    like.device());
  TORCH_CHECK_VALUE(tensor.sizes() == sizes, name, " has shape ", tensor.sizes(), ", expected ", sizes);
}

Layer check_layer(const Tensor& projected, const Tensor& weight, const Tensor& h0, const OptionalTensor& mask,
                  int64_t gates, bool reverse) {
  TORCH_CHECK_TYPE(projected.scalar_type() == at::kFloat || projected.scalar_type() == at::kDouble,
                   "projected must be float32 or float64, not ", projected.scalar_type());
  TORCH_CHECK_VALUE(projected.device().is_cpu(), "projected must be on the CPU, not on ", projected.device());
  TORCH_CHECK_VALUE(projected.dim() == 3, "projected must be (B, T, ", gates, "*H), not ", projected.sizes());
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.size(1) > 0, "weight must be (", gates, "*H, H), not ", weight.sizes());
  const Layer layer{projected.size(0), projected.size(1), weight.size(1), gates, reverse, nullptr};
  TORCH_CHECK_VALUE(projected.size(2) == gates * layer.width, "projected has ", projected.size(2),
                    " values a step; for weight ", weight.sizes(), " there must be ", gates * layer.width);
  check_tensor(weight, {gates * layer.width, layer.width}, projected, "weight");
  check_tensor(h0, {layer.batch, layer.width}, projected, "h0");
  if (mask) {
    TORCH_CHECK_TYPE(mask->scalar_type() == at::kBool, "mask must be boolean, not ", mask->scalar_type());
    TORCH_CHECK_VALUE(mask->device().is_cpu(), "mask is on ", mask->device(), ", projected on the CPU");
    TORCH_CHECK_VALUE(mask->sizes() == at::IntArrayRef({layer.batch, layer.time}), "mask has shape ", mask->sizes(),
                      ", expected ", at::IntArrayRef({layer.batch, layer.time}));
  }
  return layer;
}

// A new tensor. For large ones the system is asked for large pages: with small ones, the first touch of each would take
// longer than the work on it.
Tensor new_tensor(at::IntArrayRef sizes, const Tensor& like) {
  Tensor tensor = at::empty(sizes, like.options());
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kPage = 1 << 21;
  const uintptr_t start = round_up(reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr()), kPage);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr()) + tensor.nbytes()) / kPage * kPage;
  if (start < end) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#endif
  return tensor;
}

Tensor new_kept(const Layer& layer, int64_t parts, bool keep, const Tensor& like) {
  if (!keep) return at::empty({0}, like.options());
  if (layer.mask != nullptr) return at::zeros({layer.time, layer.batch, parts, layer.width}, like.options());
  return new_tensor({layer.time, layer.batch, parts, layer.width}, like);
}

void check_kept(const Layer& layer, int64_t parts, const Tensor& kept, const Tensor& like) {
  check_tensor(kept, {layer.time, layer.batch, parts, layer.width}, like, "kept");
  TORCH_CHECK_VALUE(kept.is_contiguous(), "kept must be contiguous");
}

OptionalTensor contiguous(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(tensor->contiguous()) : std::nullopt;
}

template <typename T>
const T* data(const OptionalTensor& tensor) {
  return tensor ? tensor->const_data_ptr<T>() : nullptr;
}

// Runs f(first row, last row) for all rows, on several threads where there is work for more than one. A thread takes
// its rows through time in groups: few enough that what a step touches stays near, but all at once where the weights
// must come from far away at every step.
template <typename T, typename F>
void split_batch(const Layer& layer, const F& f) {
  const int64_t products = layer.gates * layer.width * layer.width;
  const int64_t most = products * sizeof(T) <= kNearBytes ? 2 * kBlockRows : layer.batch;
  const int64_t grain =
      std::max<int64_t>(1, (1 << 17) / (layer.time * (products + 32 * layer.gates * layer.width) + 1));
  at::parallel_for(0, layer.batch, grain, [&](int64_t first, int64_t last) {
    const int64_t rows = last - first, groups = (rows + most - 1) / most;
    for (int64_t i = 0; i < groups; ++i) f(first + rows * i / groups, first + rows * (i + 1) / groups);
  });
}

// Rows `first` to `last` of a (B, H) tensor, or zeros, into a working matrix; and back.
template <typename T>
void take_rows(const T* from, int64_t first, int64_t last, int64_t width, T* to, int64_t stride) {
  for (int64_t row = first; from != nullptr && row < last; ++row) {
    std::copy_n(from + row * width, width, to + (row - first) * stride);
  }
}

template <typename T>
void give_rows(const T* from, int64_t stride, int64_t first, int64_t last, int64_t width, T* to) {
  for (int64_t row = first; row < last; ++row) {
    std::copy_n(from + (row - first) * stride, width, to + row * width);
  }
}

// Calls f(unit, lanes) for the units of a layer, a vector at a time.
template <typename T, typename F>
SERIATIM_INLINE void each_vector(int64_t first, int64_t last, const F& f) {
  int64_t unit = first;
  for (; unit + kLanes<T> <= last; unit += kLanes<T>) f(unit, kLanes<T>);
  if (unit < last) f(unit, static_cast<int>(last - unit));
}

// The inputs of one step: from one row to the next, and from this step to the one after it.
template <typename T>
struct Inputs {
  const T* data;
  int64_t row, next;
};

template <typename T>
Inputs<T> inputs_of(const Layer& layer, const T* projected, int64_t first, int64_t t) {
  const int64_t step = layer.gates * layer.width;
  return {projected + (first * layer.time + t) * step, layer.time * step, layer.reverse ? -step : step};
}

// The recurrent weights of some gates, each packed for products h W_gᵀ.
template <typename T, int Gates>
class GateWeights {
 public:
  GateWeights(const T* weight, int64_t width) : width_(width) {
    for (int g = 0; g < Gates; ++g) gates_.emplace_back(weight + g * width * width, 1, width, width, width);
  }

  // For every row and vector of units, f(row, unit, lanes, sums, in): the products of all gates, and where the inputs
  // of the first of them stand. The inputs of a panel are sent for while the one before is worked on: rows lie far
  // apart, and the processor does not see by itself which comes next.
  template <typename F>
  SERIATIM_INLINE void apply(const T* h, int64_t stride, int64_t rows, T* room, const Inputs<T>& inputs,
                             const F& f) const {
    constexpr int kPanel = Packed<T>::kPanel;
    const int64_t panels = gates_[0].panels();
    for (int64_t start = 0; start < rows; start += kRoomRows) {
      const int64_t count = std::min<int64_t>(kRoomRows, rows - start);
      for (int64_t p = 0; p < panels; ++p) {
        for (int g = 0; g < Gates; ++g) {
          gates_[g].multiply(p, h + start * stride, stride, count, room + g * kRoomRows * kPanel, kPanel, false);
        }
        const int64_t ahead = p + 1 < panels ? kPanel : inputs.next - p * kPanel;
        for (int64_t i = 0; i < count; ++i) {
          const T* row_inputs = inputs.data + (start + i) * inputs.row;
          each_vector<T>(p * kPanel, std::min(width_, (p + 1) * kPanel), [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
            const T* in = row_inputs + unit;
            Vector<T> sums[Gates];
            for (int g = 0; g < Gates; ++g) {
              __builtin_prefetch(in + ahead + g * width_);
              sums[g] = load(room + (g * kRoomRows + i) * kPanel + unit - p * kPanel);
            }
            f(start + i, unit, lanes, sums, in);
          });
        }
      }
    }
  }

  static constexpr int64_t kRoomRows = 4 * kBlockRows;
  static constexpr int64_t kRoom = Gates * kRoomRows * Packed<T>::kPanel;

 private:
  int64_t width_;
  std::deque<Packed<T>> gates_;
};

// In the backward pass: sends for what the next row will read and write at this step.
template <typename T>
SERIATIM_INLINE void send_for_next_row(const Layer& layer, const T* dy, const T* d_out, int64_t at, int64_t unit) {
  const int64_t next_row = layer.time * layer.width;
  if (dy != nullptr) __builtin_prefetch(dy + at * layer.width + unit + next_row);
  for (int64_t g = 0; g < layer.gates; ++g) {
    __builtin_prefetch(d_out + g * layer.width + unit + layer.gates * next_row, 1);
  }
}

// The step whose state entered step t of a row: −1 where that was h0. Only asked for at real steps.
class Previous {
 public:
  explicit Previous(const Layer& layer) : layer_(layer) {
    if (layer.mask == nullptr) return;
    steps_.resize(layer.batch * layer.time);
    for (int64_t row = 0; row < layer.batch; ++row) {
      int64_t last = -1;
      for (int64_t step = 0; step < layer.time; ++step) {
        const int64_t t = layer.at_step(step);
        steps_[row * layer.time + t] = static_cast<int32_t>(last);
        if (layer.real(row, t)) last = t;
      }
    }
  }

  int64_t operator()(int64_t row, int64_t t) const {
    if (!steps_.empty()) return steps_[row * layer_.time + t];
    const int64_t before = layer_.reverse ? t + 1 : t - 1;
    return before == layer_.time ? -1 : before;
  }

 private:
  Layer layer_;
  std::vector<int32_t> steps_;
};

// dᵀ v for matrices of many rows. Up to a few hundred columns, the libraries are faster at vᵀ d.
Tensor sum_of_outer_products(const Tensor& d, const Tensor& v) {
  if (v.size(1) > 400 || d.size(1) <= v.size(1)) return at::mm(d.t(), v);
  return at::mm(v.t(), d).t().contiguous();
}

// Σ over rows and steps of d[b,t]ᵀ h[b, step before t]: the gradient of recurrent weights.
//
// With both as flat matrices of B·T rows, the state before a step is the output one row up (one row down in reverse):
// one product. The rows for which that is wrong (a row's first step, the first after a gap in the mask) are few;
// a second, small product puts in the difference.
template <typename T>
Tensor weight_gradient(const Layer& layer, const Previous& previous, const Tensor& d, const Tensor& y,
                       const Tensor& h0) {
  const int64_t rows = layer.batch * layer.time, width = layer.width, gates = d.size(-1);
  const Tensor d_flat = d.reshape({rows, gates});
  if (layer.time == 1) return at::mm(d_flat.t(), h0);
  if (rows == 0) return at::zeros({gates, width}, d.options());
  const Tensor y_flat = y.view({rows, width});
  const int64_t back = layer.reverse ? 1 : -1;

  std::vector<int64_t> wrong;
  for (int64_t row = 0; row < layer.batch; ++row) {
    for (int64_t t = 0; t < layer.time; ++t) {
      const int64_t last = previous(row, t);
      if (layer.real(row, t) && (last < 0 || last != t + back)) wrong.push_back(row * layer.time + t);
    }
  }
  const int64_t count = static_cast<int64_t>(wrong.size());
  Tensor d_wrong = at::empty({count, gates}, d.options()), correction = at::empty({count, width}, d.options());
  const T *d_from = d_flat.const_data_ptr<T>(), *y_from = y_flat.const_data_ptr<T>(), *h_from = h0.const_data_ptr<T>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = wrong[i] / layer.time, last = previous(row, wrong[i] % layer.time), taken = wrong[i] + back;
    const T* right = last < 0 ? h_from + row * width : y_from + (row * layer.time + last) * width;
    T* to = correction.mutable_data_ptr<T>() + i * width;
    std::copy_n(d_from + wrong[i] * d_flat.stride(0), gates, d_wrong.mutable_data_ptr<T>() + i * gates);
    std::copy_n(right, width, to);
    if (taken >= 0 && taken < rows) {
      for (int64_t unit = 0; unit < width; ++unit) to[unit] -= y_from[taken * width + unit];
    }
  }
  Tensor gradient = sum_of_outer_products(d_flat.narrow(0, layer.reverse ? 0 : 1, rows - 1),
                                          y_flat.narrow(0, layer.reverse ? 1 : 0, rows - 1));
  return gradient.addmm_(d_wrong.t(), correction);
}

// ---- the inputs' part: projected = x Wᵀ + b -----------------------------------------------------------------------

// Runs f(first row, count) over the rows of a product with w: in blocks, each by one thread and without waiting for the
// others, or all at once where w is so large that the library should divide the work.
template <typename F>
void each_block(int64_t rows, const Tensor& w, const F& f) {
  constexpr int64_t kBlock = 256;
  if (w.nbytes() > kNearBytes) return f(0, rows);
  at::parallel_for(0, (rows + kBlock - 1) / kBlock, 1, [&](int64_t block, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView plain;  // each thread has its own idea of whether gradients are recorded
    for (; block < end; ++block) f(block * kBlock, std::min(kBlock, rows - block * kBlock));
  });
}

Tensor project(const Tensor& x_, const Tensor& weight, const OptionalTensor& bias) {
  TORCH_CHECK_VALUE(x_.dim() == 3, "x must be (B, T, D), not ", x_.sizes());
  TORCH_CHECK_VALUE(weight.dim() == 2, "weight must be a matrix, not ", weight.sizes());
  check_tensor(weight, {weight.size(0), x_.size(2)}, x_, "weight");
  if (bias) check_tensor(*bias, {weight.size(0)}, x_, "bias");
  const Tensor x = x_.contiguous();
  Tensor projected = new_tensor({x.size(0), x.size(1), weight.size(0)}, x);
  Tensor flat = projected.view({x.size(0) * x.size(1), weight.size(0)});
  const Tensor x_flat = x.view({x.size(0) * x.size(1), x.size(2)});
  const Tensor w = weight.t();
  each_block(x_flat.size(0), w, [&](int64_t first, int64_t count) {
    Tensor block = flat.narrow(0, first, count);
    at::mm_out(block, x_flat.narrow(0, first, count), w);
    if (bias) block.add_(*bias);  // while the block is near: cheaper than within the product
  });
  return projected;
}

// The gradients of x (empty unless asked for), weight and bias.
std::tuple<Tensor, Tensor, Tensor> project_backward(const Tensor& d_, const Tensor& x_, const Tensor& weight,
                                                    bool inputs) {
  TORCH_CHECK_VALUE(x_.dim() == 3, "x must be (B, T, D), not ", x_.sizes());
  check_tensor(d_, {x_.size(0), x_.size(1), weight.size(0)}, x_, "the gradient of projected");
  const Tensor d = d_.contiguous(), x = x_.contiguous();
  const int64_t rows = x.size(0) * x.size(1);
  const Tensor d_flat = d.view({rows, d.size(2)}), x_flat = x.view({rows, x.size(2)});
  Tensor d_x = at::empty({0}, x.options());
  if (inputs) {
    d_x = new_tensor(x.sizes(), x);
    Tensor d_x_flat = d_x.view({rows, x.size(2)});
    each_block(rows, weight, [&](int64_t first, int64_t count) {
      Tensor block = d_x_flat.narrow(0, first, count);
      at::mm_out(block, d_flat.narrow(0, first, count), weight);
    });
  }
  return {d_x, sum_of_outer_products(d_flat, x_flat), at::mv(d_flat.t(), at::ones({rows}, d.options()))};
}

// ---- RNN: h = φ(x + h W) -----------------------------------------------------------------------------------------

std::tuple<Tensor, Tensor> rnn(const Tensor& projected_, const Tensor& weight_, const Tensor& h0_,
                               const OptionalTensor& mask_, bool reverse, bool relu) {
  Layer layer = check_layer(projected_, weight_, h0_, mask_, 1, reverse);
  const Tensor projected = projected_.contiguous(), weight = weight_.contiguous(), h0 = h0_.contiguous();
  const OptionalTensor mask = contiguous(mask_);
  layer.mask = data<bool>(mask);
  Tensor y = new_tensor({layer.batch, layer.time, layer.width}, projected), h = at::empty_like(h0);

  AT_DISPATCH_FLOATING_TYPES(projected.scalar_type(), "rnn", [&] {
    using T = scalar_t;
    const int64_t width = layer.width, stride = row_stride<T>(width);
    const GateWeights<T, 1> weights(weight.const_data_ptr<T>(), width);
    const T *x = projected.const_data_ptr<T>(), *start = h0.const_data_ptr<T>();
    T *out = y.mutable_data_ptr<T>(), *end = h.mutable_data_ptr<T>();
    split_batch<T>(layer, [&](int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> states(2 * rows * stride), room(weights.kRoom);
      T *state = states, *next = states + rows * stride;
      take_rows(start, first, last, width, state, stride);
      for (int64_t step = 0; step < layer.time; ++step, std::swap(state, next)) {
        const int64_t t = layer.at_step(step);
        const auto advance = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                 const T* in) SERIATIM_ALWAYS {
          const int64_t at = ((first + row) * layer.time + t) * width + unit, here = row * stride + unit;
          if (!layer.real(first + row, t)) {
            store(next + here, load(state + here));
            return store(out + at, Vector<T>{}, lanes);
          }
          const Vector<T> sum = sums[0] + load(in, lanes);
          const Vector<T> value = relu ? (sum < T(0) ? Vector<T>{} : sum) : tanh<T>(sum);
          store(next + here, value);
          store(out + at, value, lanes);
        };
        weights.apply(state, stride, rows, room, inputs_of(layer, x, first, t), advance);
      }
      give_rows(state, stride, first, last, width, end);
    });
  });
  return {y, h};
}

std::tuple<Tensor, Tensor, Tensor> rnn_backward(const OptionalTensor& dy_, const OptionalTensor& dh_,
                                                const Tensor& weight_, const Tensor& h0_, const OptionalTensor& mask_,
                                                const Tensor& y_, bool reverse, bool relu) {
  Layer layer = check_layer(y_, weight_, h0_, mask_, 1, reverse);
  const Tensor y = y_.contiguous(), weight = weight_.contiguous(), h0 = h0_.contiguous();
  const OptionalTensor mask = contiguous(mask_), dy = contiguous(dy_), dh = contiguous(dh_);
  layer.mask = data<bool>(mask);
  if (dy) check_tensor(*dy, y.sizes(), y, "the gradient of y");
  if (dh) check_tensor(*dh, h0.sizes(), y, "the gradient of h");
  Tensor d_projected = new_tensor(y.sizes(), y), d_h0 = at::empty_like(h0), d_weight;

  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "rnn_backward", [&] {
    using T = scalar_t;
    const int64_t width = layer.width, stride = row_stride<T>(width);
    const Packed<T> weights(weight.const_data_ptr<T>(), width, 1, width, width);
    const T *dy_in = data<T>(dy), *dh_in = data<T>(dh), *out = y.const_data_ptr<T>();
    T *dx = d_projected.mutable_data_ptr<T>(), *d_start = d_h0.mutable_data_ptr<T>();
    split_batch<T>(layer, [&](int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> d_state(rows * stride), d_sum(rows * stride);
      take_rows(dh_in, first, last, width, +d_state, stride);
      for (int64_t step = layer.time - 1; step >= 0; --step) {
        const int64_t t = layer.at_step(step);
        for (int64_t row = 0; row < rows; ++row) {
          const bool real = layer.real(first + row, t);
          each_vector<T>(0, width, [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
            const int64_t at = ((first + row) * layer.time + t) * width + unit, here = row * stride + unit;
            Vector<T> d{};
            if (real) {
              send_for_next_row(layer, dy_in, dx + at - unit, (first + row) * layer.time + t, unit);
              const Vector<T> value = load(out + at, lanes);
              d = load(d_state + here);
              if (dy_in != nullptr) d += load(dy_in + at, lanes);
              d = relu ? (value > T(0) ? d : Vector<T>{}) : d * (T(1) - value * value);
              store(d_state + here, Vector<T>{});
            }
            store(d_sum + here, d);
            store(dx + at, d, lanes);
          });
        }
        weights.accumulate(d_sum, stride, rows, d_state, stride);
      }
      give_rows<T>(d_state, stride, first, last, width, d_start);
    });
    d_weight = weight_gradient<T>(layer, Previous(layer), d_projected, y, h0);
  });
  return {d_projected, d_weight, d_h0};
}

// ---- LSTM: c = f c + i g,  h = o tanh c; gates in the order i, f, g, o -------------------------------------------

// kept: i, f, g, o and the cell before the step.
constexpr int64_t kLstmParts = 5;

std::tuple<Tensor, Tensor, Tensor, Tensor> lstm(const Tensor& projected_, const Tensor& weight_, const Tensor& h0_,
                                                const Tensor& c0_, const OptionalTensor& mask_, bool reverse,
                                                bool keep) {
  Layer layer = check_layer(projected_, weight_, h0_, mask_, 4, reverse);
  check_tensor(c0_, h0_.sizes(), projected_, "c0");
  const Tensor projected = projected_.contiguous(), weight = weight_.contiguous();
  const Tensor h0 = h0_.contiguous(), c0 = c0_.contiguous();
  const OptionalTensor mask = contiguous(mask_);
  layer.mask = data<bool>(mask);
  Tensor y = new_tensor({layer.batch, layer.time, layer.width}, projected);
  Tensor h = at::empty_like(h0), c = at::empty_like(c0), kept = new_kept(layer, kLstmParts, keep, projected);

  AT_DISPATCH_FLOATING_TYPES(projected.scalar_type(), "lstm", [&] {
    using T = scalar_t;
    const int64_t width = layer.width, stride = row_stride<T>(width);
    const GateWeights<T, 4> weights(weight.const_data_ptr<T>(), width);
    const T* x = projected.const_data_ptr<T>();
    T *out = y.mutable_data_ptr<T>(), *record = keep ? kept.mutable_data_ptr<T>() : nullptr;
    split_batch<T>(layer, [&](int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> states(2 * rows * stride), cells(rows * stride), room(weights.kRoom);
      T *state = states, *next = states + rows * stride, *cell = cells;
      take_rows(h0.const_data_ptr<T>(), first, last, width, state, stride);
      take_rows(c0.const_data_ptr<T>(), first, last, width, cell, stride);
      for (int64_t step = 0; step < layer.time; ++step, std::swap(state, next)) {
        const int64_t t = layer.at_step(step);
        const auto advance = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                 const T* in) SERIATIM_ALWAYS {
          const int64_t at = (first + row) * layer.time + t, here = row * stride + unit;
          if (!layer.real(first + row, t)) {
            store(next + here, load(state + here));
            return store(out + at * width + unit, Vector<T>{}, lanes);
          }
          const Vector<T> i = sigmoid<T>(sums[0] + load(in, lanes));
          const Vector<T> f = sigmoid<T>(sums[1] + load(in + width, lanes));
          const Vector<T> g = tanh<T>(sums[2] + load(in + 2 * width, lanes));
          const Vector<T> o = sigmoid<T>(sums[3] + load(in + 3 * width, lanes));
          const Vector<T> before = load(cell + here), after = f * before + i * g, value = o * tanh<T>(after);
          store(cell + here, after);
          store(next + here, value);
          store(out + at * width + unit, value, lanes);
          if (record != nullptr) {
            T* to = record + (t * layer.batch + first + row) * kLstmParts * width + unit;
            store(to, i, lanes);
            store(to + width, f, lanes);
            store(to + 2 * width, g, lanes);
            store(to + 3 * width, o, lanes);
            store(to + 4 * width, before, lanes);
          }
        };
        weights.apply(state, stride, rows, room, inputs_of(layer, x, first, t), advance);
      }
      give_rows(state, stride, first, last, width, h.mutable_data_ptr<T>());
      give_rows(cell, stride, first, last, width, c.mutable_data_ptr<T>());
    });
  });
  return {y, h, c, kept};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> lstm_backward(const OptionalTensor& dy_, const OptionalTensor& dh_,
                                                         const OptionalTensor& dc_, const Tensor& weight_,
                                                         const Tensor& h0_, const OptionalTensor& mask_,
                                                         const Tensor& y_, const Tensor& kept, bool reverse) {
  const Tensor y = y_.contiguous(), weight = weight_.contiguous(), h0 = h0_.contiguous();
  TORCH_CHECK_VALUE(y.dim() == 3, "y must be (B, T, H), not ", y.sizes());
  Tensor d_projected = new_tensor({y.size(0), y.size(1), 4 * y.size(2)}, y);
  Layer layer = check_layer(d_projected, weight, h0, mask_, 4, reverse);
  check_kept(layer, kLstmParts, kept, y);
  const OptionalTensor mask = contiguous(mask_), dy = contiguous(dy_), dh = contiguous(dh_), dc = contiguous(dc_);
  layer.mask = data<bool>(mask);
  if (dy) check_tensor(*dy, y.sizes(), y, "the gradient of y");
  if (dh) check_tensor(*dh, h0.sizes(), y, "the gradient of h");
  if (dc) check_tensor(*dc, h0.sizes(), y, "the gradient of c");
  Tensor d_h0 = at::empty_like(h0), d_c0 = at::empty_like(h0), d_weight;

  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "lstm_backward", [&] {
    using T = scalar_t;
    const int64_t width = layer.width;
    const int64_t stride = row_stride<T>(width), d_stride = row_stride<T>(4 * width);
    const Packed<T> weights(weight.const_data_ptr<T>(), width, 1, 4 * width, width);
    const T *dy_in = data<T>(dy), *record = kept.const_data_ptr<T>();
    T* dx = d_projected.mutable_data_ptr<T>();
    split_batch<T>(layer, [&](int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> d_state(rows * stride), d_cell(rows * stride), d_sums(rows * d_stride);
      take_rows(data<T>(dh), first, last, width, +d_state, stride);
      take_rows(data<T>(dc), first, last, width, +d_cell, stride);
      for (int64_t step = layer.time - 1; step >= 0; --step) {
        const int64_t t = layer.at_step(step);
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t at = (first + row) * layer.time + t;
          T *d_sum = d_sums + row * d_stride, *d_out = dx + at * 4 * width;
          if (!layer.real(first + row, t)) {
            std::fill_n(d_sum, 4 * width, T(0));
            std::fill_n(d_out, 4 * width, T(0));
            continue;
          }
          const T* from = record + (t * layer.batch + first + row) * kLstmParts * width;
          each_vector<T>(0, width, [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
            const int64_t here = row * stride + unit;
            send_for_next_row(layer, dy_in, d_out, at, unit);
            const Vector<T> i = load(from + unit, lanes), f = load(from + width + unit, lanes),
                            g = load(from + 2 * width + unit, lanes);
            const Vector<T> o = load(from + 3 * width + unit, lanes), before = load(from + 4 * width + unit, lanes);
            const Vector<T> squashed = tanh<T>(f * before + i * g);
            Vector<T> d = load(d_state + here);
            if (dy_in != nullptr) d += load(dy_in + at * width + unit, lanes);
            const Vector<T> dc = load(d_cell + here) + d * o * (T(1) - squashed * squashed);
            const Vector<T> d_gates[] = {dc * g * i * (T(1) - i), dc * before * f * (T(1) - f), dc * i * (T(1) - g * g),
                                         d * squashed * o * (T(1) - o)};
            for (int gate = 0; gate < 4; ++gate) {
              store(d_sum + gate * width + unit, d_gates[gate], lanes);
              store(d_out + gate * width + unit, d_gates[gate], lanes);
            }
            store(d_cell + here, dc * f);
            store(d_state + here, Vector<T>{});
          });
        }
        weights.accumulate(d_sums, d_stride, rows, d_state, stride);
      }
      give_rows<T>(d_state, stride, first, last, width, d_h0.mutable_data_ptr<T>());
      give_rows<T>(d_cell, stride, first, last, width, d_c0.mutable_data_ptr<T>());
    });
    d_weight = weight_gradient<T>(layer, Previous(layer), d_projected, y, h0);
  });
  return {d_projected, d_weight, d_h0, d_c0};
}

// ---- GRU: h = z h + (1 − z) n; gates in the order r, z, n --------------------------------------------------------
// Reset before the product: n = tanh(x + (r h) W).  After: n = tanh(x + r (h W + b)).

// kept: r, z, n and, with the reset after the product, what r is multiplied with.
constexpr int64_t gru_parts(bool after) { return after ? 4 : 3; }

std::tuple<Tensor, Tensor, Tensor> gru(const Tensor& projected_, const Tensor& weight_, const Tensor& h0_,
                                       const OptionalTensor& bias_, const OptionalTensor& mask_, bool reverse,
                                       bool after, bool keep) {
  Layer layer = check_layer(projected_, weight_, h0_, mask_, 3, reverse);
  if (bias_) check_tensor(*bias_, {layer.width}, projected_, "bias");
  TORCH_CHECK_VALUE(after || !bias_, "a bias inside the reset exists only with the reset after the product");
  const Tensor projected = projected_.contiguous(), weight = weight_.contiguous(), h0 = h0_.contiguous();
  const OptionalTensor mask = contiguous(mask_), bias = contiguous(bias_);
  layer.mask = data<bool>(mask);
  Tensor y = new_tensor({layer.batch, layer.time, layer.width}, projected), h = at::empty_like(h0);
  Tensor kept = new_kept(layer, gru_parts(after), keep, projected);

  AT_DISPATCH_FLOATING_TYPES(projected.scalar_type(), "gru", [&] {
    using T = scalar_t;
    const int64_t width = layer.width, stride = row_stride<T>(width);
    const T *x = projected.const_data_ptr<T>(), *b = data<T>(bias), *w = weight.const_data_ptr<T>();
    T *out = y.mutable_data_ptr<T>(), *record = keep ? kept.mutable_data_ptr<T>() : nullptr;

    if (after) {
      const GateWeights<T, 3> weights(w, width);
      split_batch<T>(layer, [&](int64_t first, int64_t last) {
        const int64_t rows = last - first;
        Buffer<T> states(2 * rows * stride), room(weights.kRoom);
        T *state = states, *next = states + rows * stride;
        take_rows(h0.const_data_ptr<T>(), first, last, width, state, stride);
        for (int64_t step = 0; step < layer.time; ++step, std::swap(state, next)) {
          const int64_t t = layer.at_step(step);
          const auto advance = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                   const T* in) SERIATIM_ALWAYS {
            const int64_t at = (first + row) * layer.time + t, here = row * stride + unit;
            if (!layer.real(first + row, t)) {
              store(next + here, load(state + here));
              return store(out + at * width + unit, Vector<T>{}, lanes);
            }
            const Vector<T> r = sigmoid<T>(sums[0] + load(in, lanes));
            const Vector<T> z = sigmoid<T>(sums[1] + load(in + width, lanes));
            const Vector<T> inner = b == nullptr ? sums[2] : sums[2] + load(b + unit, lanes);
            const Vector<T> n = tanh<T>(r * inner + load(in + 2 * width, lanes));
            const Vector<T> value = z * (load(state + here) - n) + n;
            store(next + here, value);
            store(out + at * width + unit, value, lanes);
            if (record != nullptr) {
              T* to = record + (t * layer.batch + first + row) * gru_parts(true) * width + unit;
              store(to, r, lanes);
              store(to + width, z, lanes);
              store(to + 2 * width, n, lanes);
              store(to + 3 * width, inner, lanes);
            }
          };
          weights.apply(state, stride, rows, room, inputs_of(layer, x, first, t), advance);
        }
        give_rows(state, stride, first, last, width, h.mutable_data_ptr<T>());
      });
      return;
    }

    const GateWeights<T, 2> gate_weights(w, width);
    const GateWeights<T, 1> node_weights(w + 2 * width * width, width);
    split_batch<T>(layer, [&](int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> states(rows * stride), resets(rows * stride), updates(rows * stride), room(gate_weights.kRoom);
      T *state = states, *reset = resets, *update = updates;
      take_rows(h0.const_data_ptr<T>(), first, last, width, state, stride);
      for (int64_t step = 0; step < layer.time; ++step) {
        const int64_t t = layer.at_step(step);
        const auto open_gates = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                    const T* in) SERIATIM_ALWAYS {
          if (!layer.real(first + row, t)) return;
          const int64_t here = row * stride + unit;
          const Vector<T> r = sigmoid<T>(sums[0] + load(in, lanes));
          const Vector<T> z = sigmoid<T>(sums[1] + load(in + width, lanes));
          store(reset + here, r * load(state + here));
          store(update + here, z);
          if (record != nullptr) {
            T* to = record + (t * layer.batch + first + row) * gru_parts(false) * width + unit;
            store(to, r, lanes);
            store(to + width, z, lanes);
          }
        };
        gate_weights.apply(state, stride, rows, room, inputs_of(layer, x, first, t), open_gates);
        const auto advance = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                 const T* in) SERIATIM_ALWAYS {
          const int64_t at = (first + row) * layer.time + t, here = row * stride + unit;
          if (!layer.real(first + row, t)) return store(out + at * width + unit, Vector<T>{}, lanes);
          const Vector<T> n = tanh<T>(sums[0] + load(in, lanes));
          const Vector<T> value = load(update + here) * (load(state + here) - n) + n;
          store(state + here, value);
          store(out + at * width + unit, value, lanes);
          if (record != nullptr) {
            store(record + ((t * layer.batch + first + row) * gru_parts(false) + 2) * width + unit, n, lanes);
          }
        };
        node_weights.apply(reset, stride, rows, room, inputs_of(layer, x + 2 * width, first, t), advance);
      }
      give_rows(state, stride, first, last, width, h.mutable_data_ptr<T>());
    });
  });
  return {y, h, kept};
}

// The last result is the gradient of the bias, empty with the reset before the product.
std::tuple<Tensor, Tensor, Tensor, Tensor> gru_backward(const OptionalTensor& dy_, const OptionalTensor& dh_,
                                                        const Tensor& weight_, const Tensor& h0_,
                                                        const OptionalTensor& mask_, const Tensor& y_,
                                                        const Tensor& kept, bool reverse, bool after) {
  const Tensor y = y_.contiguous(), weight = weight_.contiguous(), h0 = h0_.contiguous();
  TORCH_CHECK_VALUE(y.dim() == 3, "y must be (B, T, H), not ", y.sizes());
  Tensor d_projected = new_tensor({y.size(0), y.size(1), 3 * y.size(2)}, y);
  Layer layer = check_layer(d_projected, weight, h0, mask_, 3, reverse);
  check_kept(layer, gru_parts(after), kept, y);
  const OptionalTensor mask = contiguous(mask_), dy = contiguous(dy_), dh = contiguous(dh_);
  layer.mask = data<bool>(mask);
  if (dy) check_tensor(*dy, y.sizes(), y, "the gradient of y");
  if (dh) check_tensor(*dh, h0.sizes(), y, "the gradient of h");
  Tensor d_h0 = at::empty_like(h0), d_weight = at::empty_like(weight), d_bias = at::empty({0}, y.options());
  // The other factor of the node's weight gradient. Before: r h. After: the gradient of h W + b.
  Tensor factor = new_tensor(y.sizes(), y);
  const Previous previous(layer);

  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "gru_backward", [&] {
    using T = scalar_t;
    const int64_t width = layer.width, parts = gru_parts(after);
    const int64_t stride = row_stride<T>(width), d_stride = row_stride<T>(3 * width);
    const T* w = weight.const_data_ptr<T>();
    // With the reset after the product all three gates go back to the state in one product.
    const Packed<T> weights(w, width, 1, (after ? 3 : 2) * width, width);
    const Packed<T> node_weights(w + 2 * width * width, width, 1, after ? 0 : width, width);
    const T *dy_in = data<T>(dy), *record = kept.const_data_ptr<T>(), *out = y.const_data_ptr<T>();
    const T* start = h0.const_data_ptr<T>();
    T *dx = d_projected.mutable_data_ptr<T>(), *aside = factor.mutable_data_ptr<T>();
    split_batch<T>(layer, [&](int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> d_state(rows * stride), d_sums(rows * d_stride), d_reset(after ? 0 : rows * stride);
      take_rows(data<T>(dh), first, last, width, +d_state, stride);
      for (int64_t step = layer.time - 1; step >= 0; --step) {
        const int64_t t = layer.at_step(step);
        const auto state_before = [&](int64_t row) {
          const int64_t before = previous(row, t);
          return before < 0 ? start + row * width : out + (row * layer.time + before) * width;
        };
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t at = (first + row) * layer.time + t;
          T *d_sum = d_sums + row * d_stride, *d_out = dx + at * 3 * width;
          if (!layer.real(first + row, t)) {
            std::fill_n(d_sum, 3 * width, T(0));
            std::fill_n(d_out, 3 * width, T(0));
            std::fill_n(aside + at * width, width, T(0));
            continue;
          }
          const T *from = record + (t * layer.batch + first + row) * parts * width, *state = state_before(first + row);
          each_vector<T>(0, width, [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
            const int64_t here = row * stride + unit;
            send_for_next_row(layer, dy_in, d_out, at, unit);
            const Vector<T> r = load(from + unit, lanes), z = load(from + width + unit, lanes),
                            n = load(from + 2 * width + unit, lanes);
            Vector<T> d = load(d_state + here);
            if (dy_in != nullptr) d += load(dy_in + at * width + unit, lanes);
            const Vector<T> dn = d * (T(1) - z) * (T(1) - n * n);
            const Vector<T> dz = d * (load(state + unit, lanes) - n) * z * (T(1) - z);
            store(d_out + width + unit, dz, lanes);
            store(d_out + 2 * width + unit, dn, lanes);
            store(d_sum + width + unit, dz, lanes);
            store(d_state + here, d * z);
            if (after) {
              const Vector<T> dr = dn * load(from + 3 * width + unit, lanes) * r * (T(1) - r);
              store(d_out + unit, dr, lanes);
              store(d_sum + unit, dr, lanes);
              store(d_sum + 2 * width + unit, dn * r, lanes);
              store(aside + at * width + unit, dn * r, lanes);
            } else {
              store(d_sum + 2 * width + unit, dn, lanes);
              store(d_reset + here, Vector<T>{});
            }
          });
        }
        if (!after) {
          node_weights.accumulate(d_sums + 2 * width, d_stride, rows, d_reset, stride);
          for (int64_t row = 0; row < rows; ++row) {
            if (!layer.real(first + row, t)) continue;
            const int64_t at = (first + row) * layer.time + t;
            const T* from = record + (t * layer.batch + first + row) * parts * width;
            const T* state = state_before(first + row);
            each_vector<T>(0, width, [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
              const int64_t here = row * stride + unit;
              const Vector<T> r = load(from + unit, lanes), d = load(d_reset + here),
                              kept_part = r * load(state + unit, lanes);
              const Vector<T> dr = d * kept_part * (T(1) - r);
              store(d_sums + row * d_stride + unit, dr, lanes);
              store(dx + at * 3 * width + unit, dr, lanes);
              store(aside + at * width + unit, kept_part, lanes);
              store(d_state + here, load(d_state + here) + d * r);
            });
          }
        }
        weights.accumulate(d_sums, d_stride, rows, d_state, stride);
      }
      give_rows<T>(d_state, stride, first, last, width, d_h0.mutable_data_ptr<T>());
    });

    const Tensor d_gates = d_projected.narrow(2, 0, 2 * width);
    d_weight.narrow(0, 0, 2 * width).copy_(weight_gradient<T>(layer, previous, d_gates, y, h0));
    if (after) {
      d_weight.narrow(0, 2 * width, width).copy_(weight_gradient<T>(layer, previous, factor, y, h0));
      d_bias = factor.sum({0, 1});
    } else {
      const int64_t rows = layer.batch * layer.time;
      const Tensor d_node = d_projected.view({rows, 3 * width}).narrow(1, 2 * width, width);
      d_weight.narrow(0, 2 * width, width).copy_(sum_of_outer_products(d_node, factor.view({rows, width})));
    }
  });
  return {d_projected, d_weight, d_h0, d_bias};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def("project(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  library.def("project_backward(Tensor d, Tensor x, Tensor weight, bool inputs) -> (Tensor, Tensor, Tensor)");
  library.def(
      "rnn(Tensor projected, Tensor weight, Tensor h0, Tensor? mask, bool reverse, bool relu)"
      " -> (Tensor y, Tensor h)");
  library.def(
      "rnn_backward(Tensor? dy, Tensor? dh, Tensor weight, Tensor h0, Tensor? mask, Tensor y, bool reverse,"
      " bool relu) -> (Tensor, Tensor, Tensor)");
  library.def(
      "lstm(Tensor projected, Tensor weight, Tensor h0, Tensor c0, Tensor? mask, bool reverse, bool keep)"
      " -> (Tensor y, Tensor h, Tensor c, Tensor kept)");
  library.def(
      "lstm_backward(Tensor? dy, Tensor? dh, Tensor? dc, Tensor weight, Tensor h0, Tensor? mask, Tensor y,"
      " Tensor kept, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "gru(Tensor projected, Tensor weight, Tensor h0, Tensor? bias, Tensor? mask, bool reverse, bool after,"
      " bool keep) -> (Tensor y, Tensor h, Tensor kept)");
  library.def(
      "gru_backward(Tensor? dy, Tensor? dh, Tensor weight, Tensor h0, Tensor? mask, Tensor y, Tensor kept,"
      " bool reverse, bool after) -> (Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) {
  library.impl("project", project);
  library.impl("project_backward", project_backward);
  library.impl("rnn", rnn);
  library.impl("rnn_backward", rnn_backward);
  library.impl("lstm", lstm);
  library.impl("lstm_backward", lstm_backward);
  library.impl("gru", gru);
  library.impl("gru_backward", gru_backward);
}

}  // namespace seriatim
