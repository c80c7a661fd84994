// Shared by recurrent layers: sizes and checks, the products of the inputs, and the gradients of all weights.
//
// The batch is split over threads, and each thread runs its rows through all time steps without waiting for another.
// Products that are not sequential (of the inputs with their weights, and those for the gradients of x and of all weights)
// are computed for several steps at a time, by the thread that needs them and while they are in its caches: for long
// sequences of small vectors, reading and writing them would take longer than computing them.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "gemm.h"

#define SERIATIM_ALWAYS __attribute__((always_inline))

namespace seriatim {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kNearBytes = 512 << 10;      // what of the weights the second-level cache of a core may hold
constexpr int64_t kGroup = 24;                 // rows that go through time together, where the weights are near
constexpr int64_t kTogetherBytes = 192 << 10;  // of the inputs of steps that are made together
constexpr int64_t kTogetherNear = 48;          // rows in one product at least, so that weights are not read too often,
constexpr int64_t kTogetherFar = 192;          // and where they are far

// Sizes, direction and mask of one layer.
struct Sizes {
  int64_t batch, time, inputs, width, gates;
  bool reverse;
  const bool* mask;  // nullptr: every step is real

  int64_t at_step(int64_t step) const { return reverse ? time - 1 - step : step; }
  bool real(int64_t row, int64_t t) const { return mask == nullptr || mask[row * time + t]; }
  int64_t sums() const { return gates * width; }  // numbers that enter the gates of one row
  template <typename T>
  bool near() const {
    return gates * width * width * static_cast<int64_t>(sizeof(T)) <= kNearBytes;
  }
};

// What a layer is given, checked and contiguous. Without weights of the inputs, x is their product already.
struct Given {
  Tensor x, weight, h0;
  OptionalTensor input_weight, input_bias, mask;
  Sizes sizes;
};

inline OptionalTensor contiguous(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(tensor->contiguous()) : std::nullopt;
}

template <typename T>
const T* data(const OptionalTensor& tensor) {
  return tensor ? tensor->const_data_ptr<T>() : nullptr;
}

inline void check_tensor(const Tensor& tensor, at::IntArrayRef sizes, const Tensor& like, const char* name) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), name, " is ", tensor.scalar_type(), ", x is ",
                   like.scalar_type());
  TORCH_CHECK_VALUE(tensor.device() == like.device(), name, " is on ", tensor.device(), ", x on ", like.device());
  TORCH_CHECK_VALUE(tensor.sizes() == sizes, name, " has shape ", tensor.sizes(), ", expected ", sizes);
}

inline Given check_given(const Tensor& x, const OptionalTensor& input_weight, const OptionalTensor& input_bias,
                         const Tensor& weight, const Tensor& h0, const OptionalTensor& mask, int64_t gates,
                         bool reverse) {
  TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble,
                   "x must be float32 or float64, not ", x.scalar_type());
  TORCH_CHECK_VALUE(x.device().is_cpu(), "x must be on the CPU, not on ", x.device());
  TORCH_CHECK_VALUE(x.dim() == 3, "x must be (B, T, D), not ", x.sizes());
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.size(1) > 0, "weight must be (", gates, "*H, H), not ", weight.sizes());
  const Sizes sizes{x.size(0), x.size(1), x.size(2), weight.size(1), gates, reverse, nullptr};
  if (input_weight) {
    check_tensor(*input_weight, {sizes.sums(), sizes.inputs}, x, "input_weight");
    if (input_bias) check_tensor(*input_bias, {sizes.sums()}, x, "input_bias");
  } else {
    TORCH_CHECK_VALUE(!input_bias, "there is a bias of the inputs without weights");
    TORCH_CHECK_VALUE(sizes.inputs == sizes.sums(), "x has ", sizes.inputs, " values a step; for weight ",
                      weight.sizes(), " there must be ", sizes.sums());
  }
  check_tensor(weight, {sizes.sums(), sizes.width}, x, "weight");
  check_tensor(h0, {sizes.batch, sizes.width}, x, "h0");
  if (mask) {
    TORCH_CHECK_TYPE(mask->scalar_type() == at::kBool, "mask must be boolean, not ", mask->scalar_type());
    TORCH_CHECK_VALUE(mask->device().is_cpu(), "mask is on ", mask->device(), ", x on the CPU");
    TORCH_CHECK_VALUE(mask->sizes() == at::IntArrayRef({sizes.batch, sizes.time}), "mask has shape ", mask->sizes(),
                      ", expected ", at::IntArrayRef({sizes.batch, sizes.time}));
  }
  Given given{x.contiguous(),           weight.contiguous(),    h0.contiguous(), contiguous(input_weight),
              contiguous(input_bias), contiguous(mask), sizes};
  given.sizes.mask = data<bool>(given.mask);
  return given;
}

// A new tensor. For large ones the system is asked for large pages: with small ones, the first touch of each would take
// longer than the work on it.
inline Tensor new_tensor(at::IntArrayRef sizes, const Tensor& like) {
  Tensor tensor = at::empty(sizes, like.options());
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kPage = 1 << 21;
  const uintptr_t start = round_up(reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr()), kPage);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr()) + tensor.nbytes()) / kPage * kPage;
  if (start < end) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#endif
  return tensor;
}

inline Tensor new_kept(const Sizes& sizes, int64_t parts, bool keep, const Tensor& like) {
  if (!keep) return at::empty({0}, like.options());
  if (sizes.mask != nullptr) return at::zeros({sizes.time, sizes.batch, parts, sizes.width}, like.options());
  return new_tensor({sizes.time, sizes.batch, parts, sizes.width}, like);
}

inline void check_kept(const Sizes& sizes, int64_t parts, const Tensor& kept, const Tensor& like) {
  check_tensor(kept, {sizes.time, sizes.batch, parts, sizes.width}, like, "kept");
  TORCH_CHECK_VALUE(kept.is_contiguous(), "kept must be contiguous");
}

// Runs f(thread, first row, last row) for all rows, on several threads where there is work for more than one. A thread
// takes its rows through time in groups: few enough that what a step touches stays near, but all at once where the
// weights must come from far away at every step.
template <typename T, typename F>
void split_batch(const Sizes& sizes, const F& f) {
  const int64_t products = sizes.gates * sizes.width * sizes.width;
  const int64_t most = sizes.near<T>() ? kGroup : sizes.batch;
  const int64_t grain =
      std::max<int64_t>(1, (1 << 17) / (sizes.time * (products + 32 * sizes.gates * sizes.width) + 1));
  at::parallel_for(0, sizes.batch, grain, [&](int64_t first, int64_t last) {
    const int64_t rows = last - first, groups = (rows + most - 1) / most;
    for (int64_t i = 0; i < groups; ++i) {
      f(at::get_thread_num(), first + rows * i / groups, first + rows * (i + 1) / groups);
    }
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

// The recurrent weights of some gates, each packed for products h W_gᵀ.
template <typename T, int Gates>
class GateWeights {
 public:
  GateWeights(const T* weight, int64_t width) : width_(width) {
    for (int g = 0; g < Gates; ++g) gates_.emplace_back(weight + g * width * width, 1, width, width, width);
  }

  // For every row and vector of units, f(row, unit, lanes, sums, in): the products of all gates, and where the inputs
  // of the first of them stand. Products and the work of the gates alternate panel by panel, so that sums go into the
  // gates while they are in the nearest cache.
  template <typename F>
  SERIATIM_INLINE void apply(const T* h, int64_t stride, int64_t rows, T* room, const T* inputs, int64_t input_stride,
                             const F& f) const {
    constexpr int kPanel = Packed<T>::kPanel;
    for (int64_t start = 0; start < rows; start += kRoomRows) {
      const int64_t count = std::min<int64_t>(kRoomRows, rows - start);
      for (int64_t p = 0; p < gates_[0].panels(); ++p) {
        for (int g = 0; g < Gates; ++g) {
          gates_[g].multiply(p, h + start * stride, stride, count, room + g * kRoomRows * kPanel, kPanel, false);
        }
        for (int64_t i = 0; i < count; ++i) {
          const T* row_inputs = inputs + (start + i) * input_stride;
          each_vector<T>(p * kPanel, std::min(width_, (p + 1) * kPanel), [&](int64_t unit, int lanes) SERIATIM_ALWAYS {
            Vector<T> sums[Gates];
            for (int g = 0; g < Gates; ++g) sums[g] = load(room + (g * kRoomRows + i) * kPanel + unit - p * kPanel);
            f(start + i, unit, lanes, sums, row_inputs + unit);
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

// The number of steps that are computed together, for a number of rows.
template <typename T>
int64_t steps_together(const Sizes& sizes, int64_t rows) {
  const int64_t least = ((sizes.near<T>() ? kTogetherNear : kTogetherFar) + rows - 1) / rows;
  const int64_t fit = kTogetherBytes / (rows * sizes.sums() * static_cast<int64_t>(sizeof(T)));
  return std::clamp<int64_t>(std::max(least, fit), 1, std::max<int64_t>(1, sizes.time));
}

// Calls f(s, row, t) for the rows of `count` steps from `begin` on; the row of step s stands at s · rows + row.
template <typename F>
void each_row(const Sizes& sizes, int64_t rows, int64_t begin, int64_t count, const F& f) {
  for (int64_t s = 0; s < count; ++s) {
    for (int64_t row = 0; row < rows; ++row) f(s * rows + row, row, sizes.at_step(begin + s));
  }
}

// ---- forward: what enters the gates from the inputs ---------------------------------------------------------------

template <typename T>
class Projection {
 public:
  explicit Projection(const Given& given) : given_(given) {
    const Sizes& sizes = given.sizes;
    if (given.input_weight) {
      weights_.emplace(data<T>(given.input_weight), 1, sizes.inputs, sizes.inputs, sizes.sums());
    }
  }

  // Calls f(t, inputs, stride) for each step in its turn: the rows of its inputs, ready to enter the gates.
  template <typename F>
  void each_step(int64_t first, int64_t rows, const F& f) const {
    const Sizes& sizes = given_.sizes;
    const int64_t together = steps_together<T>(sizes, rows), stride = row_stride<T>(sizes.sums());
    const int64_t x_stride = row_stride<T>(sizes.inputs);
    Buffer<T> inputs(together * rows * stride), gathered(weights_ ? together * rows * x_stride : 0);
    const T *x = given_.x.const_data_ptr<T>(), *bias = data<T>(given_.input_bias);
    for (int64_t begin = 0; begin < sizes.time; begin += together) {
      const int64_t count = std::min(together, sizes.time - begin);
      each_row(sizes, rows, begin, count, [&](int64_t at, int64_t row, int64_t t) {
        const T* from = x + ((first + row) * sizes.time + t) * sizes.inputs;
        std::copy_n(from, sizes.inputs, weights_ ? gathered + at * x_stride : inputs + at * stride);
        if (bias != nullptr) std::copy_n(bias, sizes.sums(), inputs + at * stride);
      });
      if (weights_) weights_->multiply_all(gathered, x_stride, count * rows, inputs, stride, bias != nullptr);
      for (int64_t s = 0; s < count; ++s) f(sizes.at_step(begin + s), inputs + s * rows * stride, stride);
    }
  }

 private:
  const Given& given_;
  std::optional<Packed<T>> weights_;
};

// ---- backward: the gradients of x and of all weights --------------------------------------------------------------

// The step whose state entered step t of a row: −1 where that was h0. Only asked for at real steps.
class Previous {
 public:
  explicit Previous(const Sizes& sizes) : sizes_(sizes) {
    if (sizes.mask == nullptr) return;
    steps_.resize(sizes.batch * sizes.time);
    for (int64_t row = 0; row < sizes.batch; ++row) {
      int64_t last = -1;
      for (int64_t step = 0; step < sizes.time; ++step) {
        const int64_t t = sizes.at_step(step);
        steps_[row * sizes.time + t] = static_cast<int32_t>(last);
        if (sizes.real(row, t)) last = t;
      }
    }
  }

  int64_t operator()(int64_t row, int64_t t) const {
    if (!steps_.empty()) return steps_[row * sizes_.time + t];
    const int64_t before = sizes_.reverse ? t + 1 : t - 1;
    return before == sizes_.time ? -1 : before;
  }

 private:
  Sizes sizes_;
  std::vector<int32_t> steps_;
};

// One step of some rows in the backward pass: gradients of the sums that enter the gates (rows of `stride`), the states
// before it, and numbers that a cell keeps for itself (rows of `state_stride`).
template <typename T>
struct Step {
  int64_t t;
  T* d;
  int64_t stride;
  const T* before;
  T* own;
  int64_t state_stride;
};

// Which factors make the gradient of the recurrent weights of the last gate.
enum class Node {
  same,    // as of all other gates: the gradients of its sums, and the states before
  before,  // the gradients of its sums, and the cell's own numbers in the place of the states
  after,   // the cell's own numbers, which are then also the gradients of a bias, and the states before
};

template <typename T>
class Gradients {
 public:
  Gradients(const Given& given, const Tensor& y, bool inputs, Node node)
      : given_(given), y_(y), node_(node), previous_(given.sizes), threads_(at::get_num_threads()) {
    const Sizes& sizes = given.sizes;
    d_x = inputs ? new_tensor({sizes.batch, sizes.time, sizes.inputs}, y) : at::empty({0}, y.options());
    if (given.input_weight && inputs) {
      weights_.emplace(data<T>(given.input_weight), sizes.inputs, 1, sizes.sums(), sizes.inputs);
    }
  }

  // Calls f(step) from the last to the first, and from what it leaves in d adds up the gradients.
  template <typename F>
  void each_step(int thread, int64_t first, int64_t rows, const F& f) {
    const Sizes& sizes = given_.sizes;
    const int64_t together = steps_together<T>(sizes, rows), depth = together * rows;
    const int64_t stride = row_stride<T>(sizes.sums()), h_stride = row_stride<T>(sizes.width);
    const int64_t x_stride = row_stride<T>(sizes.inputs), width = sizes.width;
    Buffer<T> d(depth * stride), before(depth * h_stride), own(node_ == Node::same ? 0 : depth * h_stride);
    Buffer<T> x(given_.input_weight ? depth * x_stride : 0);
    Factors factors(sizes, node_, depth);
    if (threads_[thread] == nullptr) threads_[thread] = std::make_unique<Sums>(sizes, given_.input_weight, node_);
    Sums& sums = *threads_[thread];
    const T *states = y_.const_data_ptr<T>(), *start = given_.h0.const_data_ptr<T>();
    for (int64_t end = sizes.time; end > 0;) {
      const int64_t begin = std::max<int64_t>(0, end - together), count = end - begin;
      each_row(sizes, rows, begin, count, [&](int64_t at, int64_t row, int64_t t) {
        if (!sizes.real(first + row, t)) return void(std::fill_n(before + at * h_stride, width, T(0)));
        const int64_t last = previous_(first + row, t);
        const T* from = last < 0 ? start + (first + row) * width : states + ((first + row) * sizes.time + last) * width;
        std::copy_n(from, width, before + at * h_stride);
      });
      for (int64_t s = count - 1; s >= 0; --s) {
        const int64_t at = s * rows;
        T* mine = node_ == Node::same ? nullptr : own + at * h_stride;
        f(Step<T>{sizes.at_step(begin + s), d + at * stride, stride, before + at * h_stride, mine, h_stride});
      }
      add_weights(sums, d, stride, before, own, h_stride, count * rows, factors);
      add_inputs(sums, first, rows, begin, count, d, stride, x, x_stride, factors);
      end = begin;
    }
  }

  // The gradients of the weights and bias of the inputs, of the recurrent weights, and of the bias within a reset.
  void finish() {
    const Sizes& sizes = given_.sizes;
    const auto options = y_.options();
    const bool projected = given_.input_weight.has_value();
    d_weight = total({sizes.sums(), sizes.width}, [](const Sums& sums) -> const T* { return sums.weight; });
    d_input_weight = at::empty({0}, options), d_input_bias = at::empty({0}, options), d_bias = at::empty({0}, options);
    if (projected) {
      d_input_weight =
          total({sizes.sums(), sizes.inputs}, [](const Sums& sums) -> const T* { return sums.input_weight; });
      d_input_bias = total({1, sizes.sums()}, [](const Sums& sums) -> const T* { return sums.input_bias; }).squeeze(0);
    }
    if (node_ == Node::after) {
      d_bias = total({1, sizes.width}, [](const Sums& sums) -> const T* { return sums.bias; }).squeeze(0);
    }
  }

  Tensor d_x, d_input_weight, d_input_bias, d_weight, d_bias;

 private:
  // What one thread has added up, in rows with space for whole vectors.
  struct Sums {
    Buffer<T> input_weight, input_bias, weight, bias;
    Sums(const Sizes& sizes, const OptionalTensor& projected, Node node)
        : input_weight(projected ? sizes.sums() * row_stride<T>(sizes.inputs) : 0),
          input_bias(projected ? row_stride<T>(sizes.sums()) : 0),
          weight(sizes.sums() * row_stride<T>(sizes.width)),
          bias(node == Node::after ? row_stride<T>(sizes.width) : 0) {}
  };

  // The factors of products that give gradients, in the order of product.h: the gradients of the sums, those of the last
  // gate apart unless its gradient is made as all others are; of the cell's own numbers; and what they are multiplied with.
  struct Factors {
    int64_t others, last;
    Buffer<T> other_gates, last_gate, own, panels;
    Factors(const Sizes& sizes, Node node, int64_t depth)
        : others(sizes.sums() - (node == Node::same ? 0 : sizes.width)),
          last(sizes.sums() - others),
          other_gates(depth * others + kBlockRows),
          last_gate(depth * last + kBlockRows),
          own(node == Node::after ? depth * sizes.width + kBlockRows : 0),
          panels(depth * round_up(std::max(sizes.width, sizes.inputs), kLanes<T>)) {}
  };

  void add_weights(Sums& sums, const T* d, int64_t stride, const T* before, const T* own, int64_t h_stride,
                   int64_t depth, const Factors& by) const {
    const int64_t width = given_.sizes.width;
    to_blocks<T>(d, stride, by.others, depth, by.other_gates);
    to_blocks<T>(d + by.others, stride, by.last, depth, by.last_gate);
    const auto add = [&](const T* blocks, int64_t columns, T* to) {
      add_outer_products<T>(blocks, columns, by.panels, width, depth, to, h_stride);
    };
    T* to_last = sums.weight + by.others * h_stride;
    to_panels<T>(before, h_stride, width, depth, by.panels);
    add(by.other_gates, by.others, sums.weight);
    if (node_ == Node::before) {
      to_panels<T>(own, h_stride, width, depth, by.panels);
      add(by.last_gate, width, to_last);
    }
    if (node_ == Node::after) {
      to_blocks<T>(own, h_stride, width, depth, by.own);
      add(by.own, width, to_last);
      add_rows(own, h_stride, width, depth, sums.bias);
    }
  }

  // Behind `add_weights`, which has put the gradients of the sums into blocks.
  void add_inputs(Sums& sums, int64_t first, int64_t rows, int64_t begin, int64_t count, const T* d, int64_t stride,
                  T* x, int64_t x_stride, const Factors& by) const {
    const Sizes& sizes = given_.sizes;
    const auto place = [&](int64_t row, int64_t t) { return ((first + row) * sizes.time + t) * sizes.inputs; };
    T* to = d_x.numel() > 0 ? d_x.mutable_data_ptr<T>() : nullptr;
    if (!given_.input_weight) {
      each_row(sizes, rows, begin, count, [&](int64_t at, int64_t row, int64_t t) {
        if (to != nullptr) std::copy_n(d + at * stride, sizes.inputs, to + place(row, t));
      });
      return;
    }
    const T* from = given_.x.const_data_ptr<T>();
    each_row(sizes, rows, begin, count, [&](int64_t at, int64_t row, int64_t t) {
      if (sizes.real(first + row, t)) {
        std::copy_n(from + place(row, t), sizes.inputs, x + at * x_stride);
      } else {  // whatever stands there: a gradient of zero would not make zero of a NaN
        std::fill_n(x + at * x_stride, sizes.inputs, T(0));
      }
    });
    const int64_t depth = count * rows;
    to_panels<T>(x, x_stride, sizes.inputs, depth, by.panels);
    add_outer_products<T>(by.other_gates, by.others, by.panels, sizes.inputs, depth, sums.input_weight, x_stride);
    add_outer_products<T>(by.last_gate, by.last, by.panels, sizes.inputs, depth,
                          sums.input_weight + by.others * x_stride, x_stride);
    add_rows(d, stride, sizes.sums(), depth, sums.input_bias);
    if (to == nullptr) return;
    weights_->multiply_all(d, stride, depth, x, x_stride, false);
    each_row(sizes, rows, begin, count, [&](int64_t at, int64_t row, int64_t t) {
      std::copy_n(x + at * x_stride, sizes.inputs, to + place(row, t));
    });
  }

  static void add_rows(const T* from, int64_t stride, int64_t columns, int64_t rows, T* to) {
    each_vector<T>(0, columns, [&](int64_t column, int) {  // what lies behind the last column is read and never used
      Vector<T> sum = load(to + column);
      for (int64_t row = 0; row < rows; ++row) sum += load(from + row * stride + column);
      store(to + column, sum);
    });
  }

  // Added up in the order of the threads, so that the sum is the same each time.
  template <typename F>
  Tensor total(at::IntArrayRef shape, const F& part) const {
    Tensor sum = at::zeros(shape, y_.options());
    T* to = sum.mutable_data_ptr<T>();
    const int64_t columns = shape[1], stride = row_stride<T>(columns);
    at::parallel_for(0, shape[0], std::max<int64_t>(1, (1 << 15) / (columns + 1)), [&](int64_t row, int64_t end) {
      for (; row < end; ++row) {
        for (const auto& sums : threads_) {
          if (sums == nullptr) continue;
          const T* from = part(*sums) + row * stride;
          for (int64_t column = 0; column < columns; ++column) to[row * columns + column] += from[column];
        }
      }
    });
    return sum;
  }

  const Given& given_;
  Tensor y_;
  Node node_;
  Previous previous_;
  std::vector<std::unique_ptr<Sums>> threads_;
  std::optional<Packed<T>> weights_;
};

}  // namespace seriatim
