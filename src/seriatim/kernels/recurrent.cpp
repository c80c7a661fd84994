// One recurrent layer in one direction over all time steps, forward and backward: RNN, LSTM and GRU.
//
// Tensors of the interface are batch-first and contiguous. x is (B, T, D), with weights (G·H, D) and a bias of the inputs,
// or without them (B, T, G·H), their product. If a mask is false the state is carried over unchanged and the output is
// zero. `kept` is what the backward pass needs of a forward pass, time-major: (T, B, parts, H), empty if no gradient is
// needed. The backward operators return the gradients of x (empty if not needed), of the weights and the bias of the
// inputs (empty if there are none), of the recurrent weights, and of the states.
//
// layer.h divides the work. The reference of each cell is in recurrent.py, and tests hold both equal.

#include <ATen/Dispatch.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "layer.h"

namespace seriatim {
namespace {

void check_gradients(const Given& given, const Tensor& y, const OptionalTensor& dy, const OptionalTensor& dh,
                     const OptionalTensor& dc = std::nullopt) {
  const Sizes& sizes = given.sizes;
  check_tensor(y, {sizes.batch, sizes.time, sizes.width}, given.x, "y");
  if (dy) check_tensor(*dy, y.sizes(), y, "the gradient of y");
  if (dh) check_tensor(*dh, given.h0.sizes(), y, "the gradient of h");
  if (dc) check_tensor(*dc, given.h0.sizes(), y, "the gradient of c");
}

// ---- RNN: h = φ(x + h W) -----------------------------------------------------------------------------------------

std::tuple<Tensor, Tensor> rnn(const Tensor& x, const OptionalTensor& input_weight, const OptionalTensor& input_bias,
                               const Tensor& weight, const Tensor& h0, const OptionalTensor& mask, bool reverse,
                               bool relu) {
  const Given given = check_given(x, input_weight, input_bias, weight, h0, mask, 1, reverse);
  const Sizes& sizes = given.sizes;
  Tensor y = new_tensor({sizes.batch, sizes.time, sizes.width}, x), h = at::empty_like(given.h0);

  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rnn", [&] {
    using T = scalar_t;
    const int64_t width = sizes.width, stride = row_stride<T>(width);
    const Projection<T> projection(given);
    const GateWeights<T, 1> weights(given.weight.const_data_ptr<T>(), width);
    T* out = y.mutable_data_ptr<T>();
    split_batch<T>(sizes, [&](int, int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> states(2 * rows * stride), room(weights.kRoom);
      T *state = states, *next = states + rows * stride;
      take_rows(given.h0.const_data_ptr<T>(), first, last, width, state, stride);
      projection.each_step(first, rows, [&](int64_t t, const T* inputs, int64_t input_stride) {
        const auto advance = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                 const T* in) SERIATIM_ALWAYS {
          const int64_t at = ((first + row) * sizes.time + t) * width + unit, here = row * stride + unit;
          if (!sizes.real(first + row, t)) {
            store(next + here, load(state + here));
            return store(out + at, Vector<T>{}, lanes);
          }
          const Vector<T> sum = sums[0] + load(in, lanes);
          const Vector<T> value = relu ? (sum < T(0) ? Vector<T>{} : sum) : tanh<T>(sum);
          store(next + here, value);
          store(out + at, value, lanes);
        };
        weights.apply(state, stride, rows, room, inputs, input_stride, advance);
        std::swap(state, next);
      });
      give_rows(state, stride, first, last, width, h.mutable_data_ptr<T>());
    });
  });
  return {y, h};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> rnn_backward(
    const OptionalTensor& dy_, const OptionalTensor& dh_, const Tensor& x, const OptionalTensor& input_weight,
    const Tensor& weight, const Tensor& h0, const OptionalTensor& mask, const Tensor& y_, bool reverse, bool relu,
    bool inputs) {
  const Given given = check_given(x, input_weight, std::nullopt, weight, h0, mask, 1, reverse);
  const Sizes& sizes = given.sizes;
  const Tensor y = y_.contiguous();
  const OptionalTensor dy = contiguous(dy_), dh = contiguous(dh_);
  check_gradients(given, y, dy, dh);
  Tensor d_h0 = at::empty_like(given.h0), d_x, d_input_weight, d_input_bias, d_weight;

  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rnn_backward", [&] {
    using T = scalar_t;
    const int64_t width = sizes.width, stride = row_stride<T>(width);
    const Packed<T> weights(given.weight.const_data_ptr<T>(), width, 1, width, width);
    Gradients<T> gradients(given, y, inputs, Node::same);
    const T *dy_in = data<T>(dy), *out = y.const_data_ptr<T>();
    split_batch<T>(sizes, [&](int thread, int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> d_state(rows * stride);
      take_rows(data<T>(dh), first, last, width, +d_state, stride);
      gradients.each_step(thread, first, rows, [&](const Step<T>& step) {
        for (int64_t row = 0; row < rows; ++row) {
          const bool real = sizes.real(first + row, step.t);
          each_vector<T>(0, width, [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
            const int64_t at = ((first + row) * sizes.time + step.t) * width + unit, here = row * stride + unit;
            Vector<T> d{};
            if (real) {
              const Vector<T> value = load(out + at, lanes);
              d = load(d_state + here);
              if (dy_in != nullptr) d += load(dy_in + at, lanes);
              d = relu ? (value > T(0) ? d : Vector<T>{}) : d * (T(1) - value * value);
              store(d_state + here, Vector<T>{});
            }
            store(step.d + row * step.stride + unit, d, lanes);
          });
        }
        weights.multiply_all(step.d, step.stride, rows, d_state, stride, true);
      });
      give_rows<T>(d_state, stride, first, last, width, d_h0.mutable_data_ptr<T>());
    });
    gradients.finish();
    d_x = gradients.d_x, d_weight = gradients.d_weight;
    d_input_weight = gradients.d_input_weight, d_input_bias = gradients.d_input_bias;
  });
  return {d_x, d_input_weight, d_input_bias, d_weight, d_h0};
}

// ---- LSTM: c = f c + i g,  h = o tanh c; gates in the order i, f, g, o -------------------------------------------

// kept: i, f, g, o and the cell before the step.
constexpr int64_t kLstmParts = 5;

std::tuple<Tensor, Tensor, Tensor, Tensor> lstm(const Tensor& x, const OptionalTensor& input_weight,
                                                const OptionalTensor& input_bias, const Tensor& weight,
                                                const Tensor& h0, const Tensor& c0_, const OptionalTensor& mask,
                                                bool reverse, bool keep) {
  const Given given = check_given(x, input_weight, input_bias, weight, h0, mask, 4, reverse);
  const Sizes& sizes = given.sizes;
  check_tensor(c0_, h0.sizes(), x, "c0");
  const Tensor c0 = c0_.contiguous();
  Tensor y = new_tensor({sizes.batch, sizes.time, sizes.width}, x);
  Tensor h = at::empty_like(given.h0), c = at::empty_like(c0), kept = new_kept(sizes, kLstmParts, keep, x);

  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "lstm", [&] {
    using T = scalar_t;
    const int64_t width = sizes.width, stride = row_stride<T>(width);
    const Projection<T> projection(given);
    const GateWeights<T, 4> weights(given.weight.const_data_ptr<T>(), width);
    T *out = y.mutable_data_ptr<T>(), *record = keep ? kept.mutable_data_ptr<T>() : nullptr;
    split_batch<T>(sizes, [&](int, int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> states(2 * rows * stride), cells(rows * stride), room(weights.kRoom);
      T *state = states, *next = states + rows * stride, *cell = cells;
      take_rows(given.h0.const_data_ptr<T>(), first, last, width, state, stride);
      take_rows(c0.const_data_ptr<T>(), first, last, width, cell, stride);
      projection.each_step(first, rows, [&](int64_t t, const T* inputs, int64_t input_stride) {
        const auto advance = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                 const T* in) SERIATIM_ALWAYS {
          const int64_t at = (first + row) * sizes.time + t, here = row * stride + unit;
          if (!sizes.real(first + row, t)) {
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
            T* to = record + (t * sizes.batch + first + row) * kLstmParts * width + unit;
            store(to, i, lanes);
            store(to + width, f, lanes);
            store(to + 2 * width, g, lanes);
            store(to + 3 * width, o, lanes);
            store(to + 4 * width, before, lanes);
          }
        };
        weights.apply(state, stride, rows, room, inputs, input_stride, advance);
        std::swap(state, next);
      });
      give_rows(state, stride, first, last, width, h.mutable_data_ptr<T>());
      give_rows(cell, stride, first, last, width, c.mutable_data_ptr<T>());
    });
  });
  return {y, h, c, kept};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> lstm_backward(
    const OptionalTensor& dy_, const OptionalTensor& dh_, const OptionalTensor& dc_, const Tensor& x,
    const OptionalTensor& input_weight, const Tensor& weight, const Tensor& h0, const OptionalTensor& mask,
    const Tensor& y_, const Tensor& kept, bool reverse, bool inputs) {
  const Given given = check_given(x, input_weight, std::nullopt, weight, h0, mask, 4, reverse);
  const Sizes& sizes = given.sizes;
  const Tensor y = y_.contiguous();
  const OptionalTensor dy = contiguous(dy_), dh = contiguous(dh_), dc = contiguous(dc_);
  check_gradients(given, y, dy, dh, dc);
  check_kept(sizes, kLstmParts, kept, y);
  Tensor d_h0 = at::empty_like(given.h0), d_c0 = at::empty_like(given.h0);
  Tensor d_x, d_input_weight, d_input_bias, d_weight;

  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "lstm_backward", [&] {
    using T = scalar_t;
    const int64_t width = sizes.width, stride = row_stride<T>(width);
    const Packed<T> weights(given.weight.const_data_ptr<T>(), width, 1, 4 * width, width);
    Gradients<T> gradients(given, y, inputs, Node::same);
    const T *dy_in = data<T>(dy), *record = kept.const_data_ptr<T>();
    split_batch<T>(sizes, [&](int thread, int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> d_state(rows * stride), d_cell(rows * stride);
      take_rows(data<T>(dh), first, last, width, +d_state, stride);
      take_rows(data<T>(dc), first, last, width, +d_cell, stride);
      gradients.each_step(thread, first, rows, [&](const Step<T>& step) {
        for (int64_t row = 0; row < rows; ++row) {
          T* d_sum = step.d + row * step.stride;
          if (!sizes.real(first + row, step.t)) {
            std::fill_n(d_sum, 4 * width, T(0));
            continue;
          }
          const T* from = record + (step.t * sizes.batch + first + row) * kLstmParts * width;
          const T* dy_row = dy_in == nullptr ? nullptr : dy_in + ((first + row) * sizes.time + step.t) * width;
          each_vector<T>(0, width, [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
            const int64_t here = row * stride + unit;
            const Vector<T> i = load(from + unit, lanes), f = load(from + width + unit, lanes),
                            g = load(from + 2 * width + unit, lanes);
            const Vector<T> o = load(from + 3 * width + unit, lanes), before = load(from + 4 * width + unit, lanes);
            const Vector<T> squashed = tanh<T>(f * before + i * g);
            Vector<T> d = load(d_state + here);
            if (dy_row != nullptr) d += load(dy_row + unit, lanes);
            const Vector<T> dc = load(d_cell + here) + d * o * (T(1) - squashed * squashed);
            store(d_sum + unit, dc * g * i * (T(1) - i), lanes);
            store(d_sum + width + unit, dc * before * f * (T(1) - f), lanes);
            store(d_sum + 2 * width + unit, dc * i * (T(1) - g * g), lanes);
            store(d_sum + 3 * width + unit, d * squashed * o * (T(1) - o), lanes);
            store(d_cell + here, dc * f);
            store(d_state + here, Vector<T>{});
          });
        }
        weights.multiply_all(step.d, step.stride, rows, d_state, stride, true);
      });
      give_rows<T>(d_state, stride, first, last, width, d_h0.mutable_data_ptr<T>());
      give_rows<T>(d_cell, stride, first, last, width, d_c0.mutable_data_ptr<T>());
    });
    gradients.finish();
    d_x = gradients.d_x, d_weight = gradients.d_weight;
    d_input_weight = gradients.d_input_weight, d_input_bias = gradients.d_input_bias;
  });
  return {d_x, d_input_weight, d_input_bias, d_weight, d_h0, d_c0};
}

// ---- GRU: h = z h + (1 − z) n; gates in the order r, z, n --------------------------------------------------------
// Reset before the product: n = tanh(x + (r h) W).  After: n = tanh(x + r (h W + b)).

// kept: r, z, n and, with the reset after the product, what r is multiplied with.
constexpr int64_t gru_parts(bool after) { return after ? 4 : 3; }

std::tuple<Tensor, Tensor, Tensor> gru(const Tensor& x, const OptionalTensor& input_weight,
                                       const OptionalTensor& input_bias, const Tensor& weight, const Tensor& h0,
                                       const OptionalTensor& bias_, const OptionalTensor& mask, bool reverse,
                                       bool after, bool keep) {
  const Given given = check_given(x, input_weight, input_bias, weight, h0, mask, 3, reverse);
  const Sizes& sizes = given.sizes;
  if (bias_) check_tensor(*bias_, {sizes.width}, x, "bias");
  TORCH_CHECK_VALUE(after || !bias_, "a bias inside the reset exists only with the reset after the product");
  const OptionalTensor bias = contiguous(bias_);
  Tensor y = new_tensor({sizes.batch, sizes.time, sizes.width}, x), h = at::empty_like(given.h0);
  Tensor kept = new_kept(sizes, gru_parts(after), keep, x);

  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gru", [&] {
    using T = scalar_t;
    const int64_t width = sizes.width, stride = row_stride<T>(width);
    const T *b = data<T>(bias), *w = given.weight.const_data_ptr<T>();
    T *out = y.mutable_data_ptr<T>(), *record = keep ? kept.mutable_data_ptr<T>() : nullptr;
    const Projection<T> projection(given);

    if (after) {
      const GateWeights<T, 3> weights(w, width);
      split_batch<T>(sizes, [&](int, int64_t first, int64_t last) {
        const int64_t rows = last - first;
        Buffer<T> states(2 * rows * stride), room(weights.kRoom);
        T *state = states, *next = states + rows * stride;
        take_rows(given.h0.const_data_ptr<T>(), first, last, width, state, stride);
        projection.each_step(first, rows, [&](int64_t t, const T* inputs, int64_t input_stride) {
          const auto advance = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                   const T* in) SERIATIM_ALWAYS {
            const int64_t at = (first + row) * sizes.time + t, here = row * stride + unit;
            if (!sizes.real(first + row, t)) {
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
              T* to = record + (t * sizes.batch + first + row) * gru_parts(true) * width + unit;
              store(to, r, lanes);
              store(to + width, z, lanes);
              store(to + 2 * width, n, lanes);
              store(to + 3 * width, inner, lanes);
            }
          };
          weights.apply(state, stride, rows, room, inputs, input_stride, advance);
          std::swap(state, next);
        });
        give_rows(state, stride, first, last, width, h.mutable_data_ptr<T>());
      });
      return;
    }

    const GateWeights<T, 2> gate_weights(w, width);
    const GateWeights<T, 1> node_weights(w + 2 * width * width, width);
    split_batch<T>(sizes, [&](int, int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> states(rows * stride), resets(rows * stride), updates(rows * stride), room(gate_weights.kRoom);
      T *state = states, *reset = resets, *update = updates;
      take_rows(given.h0.const_data_ptr<T>(), first, last, width, state, stride);
      projection.each_step(first, rows, [&](int64_t t, const T* inputs, int64_t input_stride) {
        const auto open_gates = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                    const T* in) SERIATIM_ALWAYS {
          if (!sizes.real(first + row, t)) return;
          const int64_t here = row * stride + unit;
          const Vector<T> r = sigmoid<T>(sums[0] + load(in, lanes));
          const Vector<T> z = sigmoid<T>(sums[1] + load(in + width, lanes));
          store(reset + here, r * load(state + here));
          store(update + here, z);
          if (record != nullptr) {
            T* to = record + (t * sizes.batch + first + row) * gru_parts(false) * width + unit;
            store(to, r, lanes);
            store(to + width, z, lanes);
          }
        };
        gate_weights.apply(state, stride, rows, room, inputs, input_stride, open_gates);
        const auto advance = [&](int64_t row, int64_t unit, int lanes, const Vector<T>* sums,
                                 const T* in) SERIATIM_ALWAYS {
          const int64_t at = (first + row) * sizes.time + t, here = row * stride + unit;
          if (!sizes.real(first + row, t)) return store(out + at * width + unit, Vector<T>{}, lanes);
          const Vector<T> n = tanh<T>(sums[0] + load(in, lanes));
          const Vector<T> value = load(update + here) * (load(state + here) - n) + n;
          store(state + here, value);
          store(out + at * width + unit, value, lanes);
          if (record != nullptr) {
            store(record + ((t * sizes.batch + first + row) * gru_parts(false) + 2) * width + unit, n, lanes);
          }
        };
        node_weights.apply(reset, stride, rows, room, inputs + 2 * width, input_stride, advance);
      });
      give_rows(state, stride, first, last, width, h.mutable_data_ptr<T>());
    });
  });
  return {y, h, kept};
}

// The last result is the gradient of the bias within the reset, empty with the reset before the product.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> gru_backward(
    const OptionalTensor& dy_, const OptionalTensor& dh_, const Tensor& x, const OptionalTensor& input_weight,
    const Tensor& weight, const Tensor& h0, const OptionalTensor& mask, const Tensor& y_, const Tensor& kept,
    bool reverse, bool after, bool inputs) {
  const Given given = check_given(x, input_weight, std::nullopt, weight, h0, mask, 3, reverse);
  const Sizes& sizes = given.sizes;
  const Tensor y = y_.contiguous();
  const OptionalTensor dy = contiguous(dy_), dh = contiguous(dh_);
  check_gradients(given, y, dy, dh);
  check_kept(sizes, gru_parts(after), kept, y);
  Tensor d_h0 = at::empty_like(given.h0), d_x, d_input_weight, d_input_bias, d_weight, d_bias;

  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gru_backward", [&] {
    using T = scalar_t;
    const int64_t width = sizes.width, parts = gru_parts(after), stride = row_stride<T>(width);
    const T *w = given.weight.const_data_ptr<T>(), *dy_in = data<T>(dy), *record = kept.const_data_ptr<T>();
    const Packed<T> gate_weights(w, width, 1, 2 * width, width);
    const Packed<T> node_weights(w + 2 * width * width, width, 1, width, width);
    // The cell's own numbers. Before: r h. After: the gradient of h W + b.
    Gradients<T> gradients(given, y, inputs, after ? Node::after : Node::before);
    split_batch<T>(sizes, [&](int thread, int64_t first, int64_t last) {
      const int64_t rows = last - first;
      Buffer<T> d_state(rows * stride), d_reset(after ? 0 : rows * stride);
      take_rows(data<T>(dh), first, last, width, +d_state, stride);
      gradients.each_step(thread, first, rows, [&](const Step<T>& step) {
        const auto kept_of = [&](int64_t row) { return record + (step.t * sizes.batch + first + row) * parts * width; };
        for (int64_t row = 0; row < rows; ++row) {
          T *d_sum = step.d + row * step.stride, *own = step.own + row * step.state_stride;
          if (!sizes.real(first + row, step.t)) {
            std::fill_n(d_sum, 3 * width, T(0));
            std::fill_n(own, width, T(0));
            continue;
          }
          const T *from = kept_of(row), *state = step.before + row * step.state_stride;
          const T* dy_row = dy_in == nullptr ? nullptr : dy_in + ((first + row) * sizes.time + step.t) * width;
          each_vector<T>(0, width, [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
            const int64_t here = row * stride + unit;
            const Vector<T> r = load(from + unit, lanes), z = load(from + width + unit, lanes),
                            n = load(from + 2 * width + unit, lanes), before = load(state + unit, lanes);
            Vector<T> d = load(d_state + here);
            if (dy_row != nullptr) d += load(dy_row + unit, lanes);
            const Vector<T> dn = d * (T(1) - z) * (T(1) - n * n);
            store(d_sum + width + unit, d * (before - n) * z * (T(1) - z), lanes);
            store(d_sum + 2 * width + unit, dn, lanes);
            store(d_state + here, d * z);
            if (after) {
              store(d_sum + unit, dn * load(from + 3 * width + unit, lanes) * r * (T(1) - r), lanes);
              store(own + unit, dn * r, lanes);
            } else {
              store(own + unit, r * before, lanes);
            }
          });
        }
        if (after) {
          node_weights.multiply_all(step.own, step.state_stride, rows, d_state, stride, true);
        } else {
          node_weights.multiply_all(step.d + 2 * width, step.stride, rows, d_reset, stride, false);
          for (int64_t row = 0; row < rows; ++row) {
            if (!sizes.real(first + row, step.t)) continue;
            const T *from = kept_of(row), *own = step.own + row * step.state_stride;
            each_vector<T>(0, width, [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
              const int64_t here = row * stride + unit;
              const Vector<T> r = load(from + unit, lanes), d = load(d_reset + here);
              store(step.d + row * step.stride + unit, d * load(own + unit, lanes) * (T(1) - r), lanes);
              store(d_state + here, load(d_state + here) + d * r);
            });
          }
        }
        gate_weights.multiply_all(step.d, step.stride, rows, d_state, stride, true);
      });
      give_rows<T>(d_state, stride, first, last, width, d_h0.mutable_data_ptr<T>());
    });
    gradients.finish();
    d_x = gradients.d_x, d_weight = gradients.d_weight, d_bias = gradients.d_bias;
    d_input_weight = gradients.d_input_weight, d_input_bias = gradients.d_input_bias;
  });
  return {d_x, d_input_weight, d_input_bias, d_weight, d_h0, d_bias};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def(
      "rnn(Tensor x, Tensor? input_weight, Tensor? input_bias, Tensor weight, Tensor h0, Tensor? mask, bool reverse,"
      " bool relu) -> (Tensor y, Tensor h)");
  library.def(
      "rnn_backward(Tensor? dy, Tensor? dh, Tensor x, Tensor? input_weight, Tensor weight, Tensor h0, Tensor? mask,"
      " Tensor y, bool reverse, bool relu, bool inputs) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "lstm(Tensor x, Tensor? input_weight, Tensor? input_bias, Tensor weight, Tensor h0, Tensor c0, Tensor? mask,"
      " bool reverse, bool keep) -> (Tensor y, Tensor h, Tensor c, Tensor kept)");
  library.def(
      "lstm_backward(Tensor? dy, Tensor? dh, Tensor? dc, Tensor x, Tensor? input_weight, Tensor weight, Tensor h0,"
      " Tensor? mask, Tensor y, Tensor kept, bool reverse, bool inputs)"
      " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "gru(Tensor x, Tensor? input_weight, Tensor? input_bias, Tensor weight, Tensor h0, Tensor? bias, Tensor? mask,"
      " bool reverse, bool after, bool keep) -> (Tensor y, Tensor h, Tensor kept)");
  library.def(
      "gru_backward(Tensor? dy, Tensor? dh, Tensor x, Tensor? input_weight, Tensor weight, Tensor h0, Tensor? mask,"
      " Tensor y, Tensor kept, bool reverse, bool after, bool inputs)"
      " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) {
  library.impl("rnn", rnn);
  library.impl("rnn_backward", rnn_backward);
  library.impl("lstm", lstm);
  library.impl("lstm_backward", lstm_backward);
  library.impl("gru", gru);
  library.impl("gru_backward", gru_backward);
}

}  // namespace seriatim
