// A stack of Transformer blocks, forward and backward, as one operator each.
//
// Sequences are grouped into tiles of about as many rows as stay in a core's cache, and a thread takes a tile through all
// blocks without waiting for others; between the products numbers stay near. All matrices are in panels (panels.h), so
// that only the weights are packed, once in a forward pass. With norms before each part, scale and shift of a norm are
// folded into the weights that follow: only normalized rows are saved, and the gradients of scale and shift come from
// those of the weights. The hidden units of the feed-forward network are computed in chunks that stay near. The backward
// pass takes tiles through a block, then all rows through its weight gradients, each by one thread in a fixed order: the
// bits of a result depend on the number of threads only.
//
// The keys and values of cross-attention are given, (B, S, 2·D) for each block. The reference is `Block` in
// nn/transformer.py, and tests hold both equal.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "activation.h"
#include "panel_attention.h"
#include "panels.h"
#include "stack_layout.h"
#include "stack_passes.h"

namespace seriatim {
namespace {

using at::Tensor;

constexpr int64_t kChunk = kDepth;  // hidden units at once

// ---- a tile through a block --------------------------------------------------------------------------------------

template <typename Work>
void with_activation(Activation kind, const Work& work) {
  switch (kind) {
    case Activation::relu: return work(std::integral_constant<Activation, Activation::relu>());
    case Activation::gelu: return work(std::integral_constant<Activation, Activation::gelu>());
    case Activation::gelu_tanh: return work(std::integral_constant<Activation, Activation::gelu_tanh>());
    default: return work(std::integral_constant<Activation, Activation::silu>());
  }
}

// A thread's memory: a tile's residual stream and what a part adds to it, some hidden units, keys and values of a source
// and their gradients, attention.
template <typename T>
struct Worker {
  T *x, *out, *part, *source, *d_source;
  PanelAttention<T> attention;
};

// The workers of all threads, in `memory`.
template <typename T>
std::vector<Worker<T>> make_workers(const Layout<T>& z, bool backward, Tensor& memory) {
  PanelAttention<T> attention(std::max(z.longest, z.longest_source), z.head, backward);
  const int64_t row = z.panels(z.Dp), part = z.panels(std::max(kChunk / kColumns<T>, z.Ap));
  const int64_t source = z.settings.cross ? 2 * z.Ap * z.source_jump() : 0;
  const int64_t each = 2 * row + part + 2 * source + attention.memory(), threads = at::get_num_threads();
  memory = workspaces().take(threads * each * sizeof(T));
  std::vector<Worker<T>> workers;
  for (int64_t id = 0; id < threads; ++id) {
    T* at = reinterpret_cast<T*>(memory.data_ptr()) + id * each;
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    Worker<T> worker{take(row), take(row), take(part), take(source), take(source), attention};
    worker.attention.set_memory(at);
    workers.push_back(worker);
  }
  return workers;
}

// All panels of c (rows, N) (+)= a wᵀ + bias, w packed.
template <typename T>
void multiply_all(const Layout<T>& z, int64_t rows, const T* a, int64_t depth, const T* w, const T* bias, T* c,
                  int64_t panels, bool add = false) {
  constexpr int W = kColumns<T>;
  for (int64_t p = 0; p < panels; ++p) {
    multiply_panel<T>({a, z.jump()}, rows, w + p * depth * W, depth, c + p * z.jump(), bias ? bias + p * W : nullptr,
                      add);
  }
}

// Where head h is in part 0, 1 … of a matrix that has the columns of all heads each, from `row` on.
template <typename T>
typename PanelAttention<T>::Place head_place(const Layout<T>& z, T* matrix, int64_t jump, int64_t row, int64_t part,
                                             int64_t h) {
  return {{matrix + row * kColumns<T>, jump}, part * z.Ap * kColumns<T> + h * z.padded_head};
}

// A part begins: its input is x, normalized if norms are before parts.
template <typename T>
void enter(const Layout<T>& z, int64_t rows, Part part, const T* x, const Saved<T>& save) {
  if (z.settings.pre_norm) {
    normalize(z, rows, x, save.in[part], save.inverse[part]);
  } else {
    for (int64_t p = 0; p < z.Dp; ++p) std::copy_n(x + p * z.jump(), rows * kColumns<T>, save.in[part] + p * z.jump());
  }
}

// A part ends: x + dropout(out), normalized if norms are after parts.
template <typename T>
void leave(const Layout<T>& z, const std::vector<uint32_t>& first, int64_t layer, Part part, const T* out, T* x,
           const PackedBlock<T>& w, const Saved<T>& save) {
  drop(z, first, z.settings.seed(layer, part), out, x, true);
  if (!z.settings.pre_norm) {
    const int64_t rows = static_cast<int64_t>(first.size());
    normalize(z, rows, x, save.normed[part], save.inverse[part]);
    scale_and_shift(z, rows, save.normed[part], w.scale[part], w.shift[part], x);
  }
}

template <typename T>
void block_forward(const Layout<T>& z, const Tile& tile, const std::vector<uint32_t>& first, int64_t layer,
                   const T* source, const PackedBlock<T>& w, const Saved<T>& save, Worker<T>& worker) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  const int64_t rows = tile.rows, jump = z.jump();
  T *x = worker.x, *out = worker.out, *part = worker.part;
  enter(z, rows, kAttention, x, save);
  multiply_all<T>(z, rows, save.in[kAttention], z.D, w.weight[kInputs], w.bias[kInputs], save.inputs, z.Qp);
  int64_t row = 0;
  for (const Sequence& sequence : tile.sequences) {
    for (int64_t h = 0; h < z.H; ++h) {
      const auto place = [&](T* matrix, int64_t part) { return head_place(z, matrix, jump, row, part, h); };
      worker.attention.forward(place(save.inputs, 0), place(save.inputs, 1), place(save.inputs, 2),
                               place(save.attended, 0), sequence.rows, sequence.rows, z.settings.causal,
                               save.sums + h * z.stride + row);
    }
    row += sequence.rows;
  }
  multiply_all<T>(z, rows, save.attended, z.heads.size(), w.weight[kOutput], w.bias[kOutput], out, z.Dp);
  leave(z, first, layer, kAttention, out, x, w, save);

  if (z.settings.cross) {
    enter(z, rows, kCross, x, save);
    multiply_all<T>(z, rows, save.in[kCross], z.D, w.weight[kQuery], w.bias[kQuery], save.query, z.Ap);
    row = 0;
    for (const Sequence& sequence : tile.sequences) {
      const T* memory = source + sequence.source_start * 2 * z.D;
      each_source_vector(z, sequence.source_rows, [&](int64_t from, int64_t to, int count) {
        store<T>(worker.source + to, load(memory + from, count));
      });
      for (int64_t h = 0; h < z.H; ++h) {
        const auto place = [&](T* matrix) { return head_place(z, matrix, jump, row, 0, h); };
        worker.attention.forward(place(save.query), head_place(z, worker.source, z.source_jump(), 0, 0, h),
                                 head_place(z, worker.source, z.source_jump(), 0, 1, h), place(save.cross_attended),
                                 sequence.rows, sequence.source_rows, false, save.cross_sums + h * z.stride + row);
      }
      row += sequence.rows;
    }
    multiply_all<T>(z, rows, save.cross_attended, z.heads.size(), w.weight[kCrossOutput], w.bias[kCrossOutput], out,
                    z.Dp);
    leave(z, first, layer, kCross, out, x, w, save);
  }

  enter(z, rows, kFeedForward, x, save);
  with_activation(z.settings.activation, [&](auto kind) {
    for (int64_t unit = 0; unit < z.F; unit += kChunk) {
      const int64_t end = std::min(z.F, unit + kChunk);
      for (int64_t p = unit / W; p < ceil_div(end, W); ++p) {
        T *hidden = save.hidden + p * jump, *active = part + (p - unit / W) * jump;
        multiply_panel<T>({save.in[kFeedForward], jump}, rows, w.weight[kHidden] + p * z.D * W, z.D, hidden,
                          w.bias[kHidden] + p * W, false);
        for (int64_t i = 0; i < rows * W; i += L) store<T>(active + i, activated<T>(load(hidden + i), kind));
      }
      for (int64_t p = 0; p < z.Dp; ++p) {
        multiply_panel<T>({part, jump}, rows, w.weight[kBack] + (p * z.F + unit) * W, end - unit, out + p * jump,
                          unit == 0 ? w.bias[kBack] + p * W : nullptr, unit > 0);
      }
    }
  });
  leave(z, first, layer, kFeedForward, out, x, w, save);
}

// The gradients of one block: of the outputs of its matrices, of the activated hidden units' place their values, and of
// scale and shift of norms after parts.
template <typename T>
struct Slopes {
  T *inputs, *output, *hidden, *active, *back, *query, *cross_output, *norms;
};

// From the gradient d of what a part leaves to that of its output, without what dropout dropped.
template <typename T>
void leave_backward(const Layout<T>& z, const std::vector<uint32_t>& first, int64_t layer, Part part, T* d,
                    const PackedBlock<T>& w, const Saved<T>& saved, T* norms, T* to) {
  if (!z.settings.pre_norm) {
    const int64_t rows = static_cast<int64_t>(first.size()), norm = z.Dp * kColumns<T>;
    scale_backward(z, rows, d, saved.normed[part], w.scale[part], norms + 2 * part * norm,
                   norms + (2 * part + 1) * norm);
    normalize_backward(z, rows, d, saved.normed[part], saved.inverse[part], d, false);
  }
  drop(z, first, z.settings.seed(layer, part), d, to, false);
}

template <typename T>
void block_backward(const Layout<T>& z, const Tile& tile, const std::vector<uint32_t>& first, int64_t layer,
                    const T* source, const PackedBlock<T>& w, const Saved<T>& saved, T* d, T* d_source,
                    const Slopes<T>& slopes, Worker<T>& worker) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  const int64_t rows = tile.rows, jump = z.jump();
  const bool pre = z.settings.pre_norm;
  T *part = worker.part, *into = pre ? worker.out : d;  // where gradients of inputs are written, or added to
  const auto enter_backward = [&](Part part) {
    if (pre) normalize_backward(z, rows, into, saved.normed[part], saved.inverse[part], d, true);
  };

  leave_backward(z, first, layer, kFeedForward, d, w, saved, slopes.norms, slopes.back);
  with_activation(z.settings.activation, [&](auto kind) {
    for (int64_t unit = 0; unit < z.F; unit += kChunk) {
      const int64_t end = std::min(z.F, unit + kChunk);
      for (int64_t p = unit / W; p < ceil_div(end, W); ++p) {
        const T* hidden = saved.hidden + p * jump;
        T *slope = slopes.hidden + p * jump, *active = slopes.active + p * jump;
        multiply_panel<T>({slopes.back, jump}, rows, w.turned[kBack] + p * z.D * W, z.D, slope, nullptr, false);
        for (int64_t i = 0; i < rows * W; i += L) {
          Vector<T> y, steep;
          activated_with_slope<T>(load(hidden + i), kind, y, steep);
          store(active + i, y);
          store<T>(slope + i, load(slope + i) * steep);
        }
      }
      for (int64_t p = 0; p < z.Dp; ++p) {
        multiply_panel<T>({slopes.hidden + unit / W * jump, jump}, rows, w.turned[kHidden] + (p * z.F + unit) * W,
                          end - unit, into + p * jump, nullptr, !pre || unit > 0);
      }
    }
  });
  enter_backward(kFeedForward);

  if (z.settings.cross) {
    leave_backward(z, first, layer, kCross, d, w, saved, slopes.norms, slopes.cross_output);
    multiply_all<T>(z, rows, slopes.cross_output, z.D, w.turned[kCrossOutput], nullptr, part, z.Ap);
    int64_t row = 0;
    for (const Sequence& sequence : tile.sequences) {
      const T* memory = source + sequence.source_start * 2 * z.D;
      T* d_memory = d_source + sequence.source_start * 2 * z.D;
      each_source_vector(z, sequence.source_rows, [&](int64_t from, int64_t to, int count) {
        store<T>(worker.source + to, load(memory + from, count));
      });
      for (int64_t h = 0; h < z.H; ++h) {
        const auto place = [&](T* matrix) { return head_place(z, matrix, jump, row, 0, h); };
        const auto memory_place = [&](T* matrix, int64_t part) {
          return head_place(z, matrix, z.source_jump(), 0, part, h);
        };
        worker.attention.backward(place(saved.query), memory_place(worker.source, 0), memory_place(worker.source, 1),
                                  place(saved.cross_attended), place(part), sequence.rows, sequence.source_rows, false,
                                  saved.cross_sums + h * z.stride + row, place(slopes.query),
                                  memory_place(worker.d_source, 0), memory_place(worker.d_source, 1));
      }
      each_source_vector(z, sequence.source_rows, [&](int64_t to, int64_t from, int count) {
        store<T>(d_memory + to, load(worker.d_source + from), count);
      });
      row += sequence.rows;
    }
    multiply_all<T>(z, rows, slopes.query, z.heads.size(), w.turned[kQuery], nullptr, into, z.Dp, !pre);
    enter_backward(kCross);
  }

  leave_backward(z, first, layer, kAttention, d, w, saved, slopes.norms, slopes.output);
  multiply_all<T>(z, rows, slopes.output, z.D, w.turned[kOutput], nullptr, part, z.Ap);
  int64_t row = 0;
  for (const Sequence& sequence : tile.sequences) {
    for (int64_t h = 0; h < z.H; ++h) {
      const auto place = [&](T* matrix, int64_t part) { return head_place(z, matrix, jump, row, part, h); };
      worker.attention.backward(place(saved.inputs, 0), place(saved.inputs, 1), place(saved.inputs, 2),
                                place(saved.attended, 0), place(part, 0), sequence.rows, sequence.rows,
                                z.settings.causal, saved.sums + h * z.stride + row, place(slopes.inputs, 0),
                                place(slopes.inputs, 1), place(slopes.inputs, 2));
    }
    row += sequence.rows;
  }
  for (int64_t k = z.heads.size(); k < z.Ap * W; ++k) {  // padding after the last head
    for (int64_t s = 0; s < 3; ++s) {
      T* column = slopes.inputs + (s * z.Ap + k / W) * jump + k % W;
      for (int64_t r = 0; r < rows; ++r) column[r * W] = 0;
    }
  }
  multiply_all<T>(z, rows, slopes.inputs, z.inputs.size(), w.turned[kInputs], nullptr, into, z.Dp, !pre);
  enter_backward(kAttention);
}

// ---- weight gradients --------------------------------------------------------------------------------------------

// One matrix of weights: the gradients of its outputs and its inputs, of the first tile and the distance to the next,
// its parameters and their gradients.
template <typename T>
struct Gradient {
  MatrixForm form;
  const T* above;
  int64_t above_tile;
  const T* below;
  int64_t below_tile;
  const T *weight, *scale, *shift;  // the norm that is folded into it, or null
  T *d_weight, *d_bias;
  int64_t constant_begin, constant_end;  // outputs whose bias changes nothing: its gradient is 0
};

// The gradients of outputs [begin, end) in panels. `norm` gets their part of those of the scale and the shift.
template <typename T>
void weight_gradient(const Layout<T>& z, const Gradient<T>& m, int64_t begin, int64_t end, Lines<T>& memory, T* norm) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  const int64_t each = m.form.input_panels * W * W, count = end - begin;
  if (memory.count() < count * (each + W)) memory = Lines<T>(count * (each + W));
  T *c = memory, *sums = c + count * each;
  for (int64_t t = 0; t < z.count(); ++t) {
    add_weight_gradient<T>({m.above + t * m.above_tile, z.jump()}, begin, end, {m.below + t * m.below_tile, z.jump()},
                           m.form.input_panels, z.tiles[t].rows, c, sums, t > 0);
  }
  for (int64_t i = 0; i < count * W; ++i) {
    const int64_t n = (*m.form.outputs)[begin * W + i];
    if (n < 0) continue;
    const T d_bias = n >= m.constant_begin && n < m.constant_end ? T(0) : sums[i];
    m.d_bias[n] = d_bias;
    T* to = m.d_weight + n * m.form.stride;
    const T *row = c + i / W * each + i % W * W, *weight = m.weight + n * m.form.stride;  // its panels are W² apart
    const int64_t whole = m.form.inputs->same ? m.form.stride / L * L : 0;
    for (int64_t k = 0; k < whole; k += L) {
      const Vector<T> slope = load(row + k / W * W * W + k % W);
      if (m.scale == nullptr) {
        store(to + k, slope);
      } else {
        const Vector<T> at = load(weight + k);
        store<T>(to + k, slope * load(m.scale + k) + d_bias * load(m.shift + k));
        store<T>(norm + k, load(norm + k) + slope * at);
        store<T>(norm + m.form.stride + k, load(norm + m.form.stride + k) + d_bias * at);
      }
    }
    for (int64_t k = whole; k < m.form.inputs->size(); ++k) {
      const int64_t at = (*m.form.inputs)[k];
      if (at < 0) continue;
      const T slope = row[k / W * W * W + k % W];
      if (m.scale == nullptr) {
        to[at] = slope;
      } else {
        to[at] = slope * m.scale[at] + d_bias * m.shift[at];
        norm[at] += slope * weight[at];
        norm[m.form.stride + at] += d_bias * weight[at];
      }
    }
  }
}

// ---- the stack ---------------------------------------------------------------------------------------------------

template <typename T>
std::vector<Parameters<const T>> pointers(const Layout<T>& z, at::TensorList parameters) {
  const size_t each = z.settings.cross ? kParameters : kPlainParameters;
  std::vector<Parameters<const T>> all(z.layers);
  for (size_t i = 0; i < parameters.size(); ++i) all[i / each][i % each] = parameters[i].const_data_ptr<T>();
  return all;
}

template <typename T>
void forward_of(const Layout<T>& z, const Tensor& x, at::TensorList memory, at::TensorList parameters, T* workspace,
                const Tensor& y) {
  pack_weights(z, pointers(z, parameters), workspace);
  Tensor worker_memory;
  std::vector<Worker<T>> workers = make_workers(z, false, worker_memory);
  each_item(z.count(), [&](int64_t t, int64_t id) {
    Worker<T>& worker = workers[id];
    const Tile& tile = z.tiles[t];
    const std::vector<uint32_t> first = dropout_rows(tile, z.D);
    to_panels(z, tile, x.const_data_ptr<T>(), worker.x);
    for (int64_t layer = 0; layer < z.layers; ++layer) {
      const T* source = z.settings.cross ? memory[layer].const_data_ptr<T>() : nullptr;
      block_forward(z, tile, first, layer, source, PackedBlock<T>(z, workspace, layer),
                    Saved<T>(z, workspace, layer, t), worker);
    }
    from_panels(z, tile, worker.x, y.data_ptr<T>());
  });
}

// `gradients` are those of x, of the memory of each block, and of all parameters.
template <typename T>
void backward_of(const Layout<T>& z, const Tensor& dy, at::TensorList memory, at::TensorList parameters, T* workspace,
                 const std::vector<Tensor>& gradients) {
  const auto all = pointers(z, parameters);
  const size_t each = z.settings.cross ? kParameters : kPlainParameters;
  const int64_t norm = z.Dp * kColumns<T>, norms = 2 * z.parts() * norm, cross = z.settings.cross ? 1 : 0;
  const int64_t row = z.panels(z.Dp), heads = z.panels(z.Ap), inputs = z.panels(z.Qp), hidden = z.panels(z.Fp);
  const int64_t numbers = 3 * row + inputs + 2 * hidden + norms + cross * (heads + row);
  const Tensor room = workspaces().take(z.count() * numbers * sizeof(T));
  T* at = reinterpret_cast<T*>(room.data_ptr());
  const auto take = [&](int64_t count) { return std::exchange(at, at + z.count() * count); };
  T* d = take(row);
  const Slopes<T> slopes{take(inputs),        take(row),         take(hidden), take(hidden), take(row),
                         take(cross * heads), take(cross * row), take(norms)};
  Tensor worker_memory;
  std::vector<Worker<T>> workers = make_workers(z, true, worker_memory);
  std::vector<Lines<T>> sums(at::get_num_threads());
  for (int64_t layer = z.layers - 1; layer >= 0; --layer) {
    each_item(z.count(), [&](int64_t t, int64_t id) {
      const Tile& tile = z.tiles[t];
      T* own = d + t * row;
      if (layer == z.layers - 1) to_panels(z, tile, dy.const_data_ptr<T>(), own);
      const Slopes<T> here{slopes.inputs + t * inputs,        slopes.output + t * row,
                           slopes.hidden + t * hidden,        slopes.active + t * hidden,
                           slopes.back + t * row,             slopes.query + t * cross * heads,
                           slopes.cross_output + t * cross * row, slopes.norms + t * norms};
      block_backward<T>(z, tile, dropout_rows(tile, z.D), layer,
                        cross ? memory[layer].const_data_ptr<T>() : nullptr, PackedBlock<T>(z, workspace, layer),
                        Saved<T>(z, workspace, layer, t), own,
                        cross ? gradients[1 + layer].data_ptr<T>() : nullptr, here, workers[id]);
      if (layer == 0) from_panels(z, tile, own, gradients[0].data_ptr<T>());
    });

    const Parameters<const T>& p = all[layer];
    Parameters<T> g{};
    for (size_t i = 0; i < each; ++i) g[i] = gradients[1 + memory.size() + layer * each + i].data_ptr<T>();
    const Saved<T> saved(z, workspace, layer, 0);
    struct Sides {
      const T* above;
      int64_t above_tile;
      const T* below;
      int64_t below_tile;
    };
    const std::array<Sides, kMatrices> sides = {{{slopes.inputs, inputs, saved.in[kAttention], z.saved()},
                                                 {slopes.output, row, saved.attended, z.saved()},
                                                 {slopes.hidden, hidden, saved.in[kFeedForward], z.saved()},
                                                 {slopes.back, row, slopes.active, hidden},
                                                 {slopes.query, heads, saved.in[kCross], z.saved()},
                                                 {slopes.cross_output, row, saved.cross_attended, z.saved()}}};
    struct Item {
      Gradient<T> gradient;
      int64_t begin, end;
    };
    std::vector<Item> items;
    for (const MatrixIndex index : {kBack, kHidden, kInputs, kOutput, kQuery, kCrossOutput}) {  // large ones first
      if (index >= static_cast<int>(z.matrices.size())) continue;
      const MatrixForm& form = z.matrices[index];
      const auto [above, above_tile, below, below_tile] = sides[index];
      const int at = kMatrixParameters[index], scale = form.norm < 0 ? 0 : kNormParameters[form.norm];
      const bool keys = index == kInputs;  // the bias of the keys changes nothing
      const Gradient<T> gradient{form,  above,     above_tile, below, below_tile, p[at], form.norm < 0 ? nullptr : p[scale],
                                 form.norm < 0 ? nullptr : p[scale + 1], g[at], g[at + 1], keys ? z.D : 0,
                                 keys ? 2 * z.D : 0};
      const int64_t together = std::clamp<int64_t>(form.output_panels / 4, 1, kTogether);
      for (int64_t begin = 0; begin < form.output_panels; begin += together) {
        items.push_back({gradient, begin, std::min(form.output_panels, begin + together)});
      }
    }
    std::vector<T> folded(items.size() * 2 * z.D);
    each_item(items.size(), [&](int64_t i, int64_t id) {
      weight_gradient(z, items[i].gradient, items[i].begin, items[i].end, sums[id], folded.data() + i * 2 * z.D);
    });
    for (int part = 0; part < z.parts(); ++part) {
      for (int shift = 0; shift < 2; ++shift) {
        T* to = g[kNormParameters[part] + shift];
        std::fill_n(to, z.D, T(0));
        for (size_t i = 0; z.settings.pre_norm && i < items.size(); ++i) {
          if (items[i].gradient.form.norm != part) continue;
          for (int64_t k = 0; k < z.D; ++k) to[k] += folded[(2 * i + shift) * z.D + k];
        }
        for (int64_t t = 0; !z.settings.pre_norm && t < z.count(); ++t) {
          const T* from = slopes.norms + t * norms + (2 * part + shift) * norm;
          for (int64_t k = 0; k < z.D; ++k) to[k] += from[k];
        }
      }
    }
  }
}

// Checks everything that memory is read or written by.
template <typename T>
Layout<T> make_layout(const Tensor& x, at::TensorList memory, at::TensorList parameters, at::IntArrayRef starts,
                      at::IntArrayRef lengths, at::IntArrayRef numbers, at::IntArrayRef source_lengths,
                      Settings settings) {
  settings.cross = !memory.empty();
  TORCH_CHECK(x.dim() == 2, "expected (N,D), not ", x.sizes());
  const int64_t D = x.size(1), each = settings.cross ? kParameters : kPlainParameters;
  const int64_t layers = static_cast<int64_t>(parameters.size()) / each;
  TORCH_CHECK(layers > 0 && static_cast<int64_t>(parameters.size()) == layers * each, "expected ", each,
              " tensors a block");
  TORCH_CHECK(settings.heads >= 1 && D % settings.heads == 0, settings.heads, " heads do not divide a width of ", D);
  TORCH_CHECK(settings.dropout >= 0 && settings.dropout < 1, "a share of ", settings.dropout, " cannot be dropped");
  TORCH_CHECK(static_cast<int64_t>(settings.seeds.size()) == (settings.cross ? 3 : 2) * layers,
              "expected a seed for each part of each block");
  const int64_t kind = static_cast<int64_t>(settings.activation);
  TORCH_CHECK(kind >= 0 && kind <= static_cast<int64_t>(Activation::silu), "activation ", kind, " is not known");
  TORCH_CHECK(settings.threads >= 1, settings.threads, " threads");
  const int64_t F = parameters[kMatrixParameters[kHidden] + 1].numel();
  const std::array<std::vector<int64_t>, kParameters> shapes = {
      {{D}, {D}, {3 * D, D}, {3 * D}, {D, D}, {D}, {D}, {D}, {F, D}, {F}, {D, F}, {D},
       {D}, {D}, {D, D}, {D}, {D, D}, {D}}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    const at::IntArrayRef shape(shapes[i % each]);
    TORCH_CHECK(p.sizes() == shape && p.is_contiguous(), "parameter ", i, " has shape ", p.sizes(), ", expected ",
                shape, ", contiguous");
    TORCH_CHECK(p.scalar_type() == x.scalar_type(), "parameter ", i, " is of another type than x");
  }
  TORCH_CHECK(starts.size() == lengths.size() && starts.size() == numbers.size(), "sequences do not fit each other");
  TORCH_CHECK(source_lengths.size() == (settings.cross ? starts.size() : 0), "sources do not fit the sequences");
  TORCH_CHECK(!settings.cross || static_cast<int64_t>(memory.size()) == layers, "expected a memory for each block");
  for (const Tensor& m : memory) {
    TORCH_CHECK(m.dim() == 3 && m.size(0) == static_cast<int64_t>(starts.size()) && m.size(2) == 2 * D &&
                    m.size(1) == memory[0].size(1) && m.is_contiguous() && m.scalar_type() == x.scalar_type(),
                "a memory has shape ", m.sizes(), ", expected (B,S,2*D), contiguous and of the type of x");
  }
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < starts.size(); ++i) {
    TORCH_CHECK(lengths[i] >= 0 && starts[i] >= 0 && starts[i] + lengths[i] <= x.size(0), "sequence ", i,
                " is not within the rows");
    const int64_t longest = settings.cross ? memory[0].size(1) : 0, source = settings.cross ? source_lengths[i] : 0;
    TORCH_CHECK(!settings.cross || (source >= 1 && source <= longest), "source ", i, " has ", source, " elements of ",
                longest);
    sequences.push_back({starts[i], lengths[i], numbers[i], static_cast<int64_t>(i) * longest, source});
  }
  return Layout<T>(sequences, std::move(settings), layers, D, F);
}

std::tuple<Tensor, Tensor> block_stack(const Tensor& x, at::TensorList memory, at::TensorList parameters,
                                       at::IntArrayRef starts, at::IntArrayRef lengths, at::IntArrayRef numbers,
                                       at::IntArrayRef source_lengths, int64_t heads, int64_t activation,
                                       bool pre_norm, bool causal, double eps, double dropout, at::IntArrayRef seeds,
                                       int64_t threads) {
  const Tensor from = x.contiguous();
  Tensor y = at::zeros(x.sizes(), x.options()), workspace;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "block_stack", [&] {
    const auto layout = make_layout<scalar_t>(
        x, memory, parameters, starts, lengths, numbers, source_lengths,
        {heads, static_cast<Activation>(activation), pre_norm, causal, false, eps, dropout, seeds.vec(), threads});
    workspace = workspaces().take(layout.workspace() * sizeof(scalar_t));
    forward_of<scalar_t>(layout, from, memory, parameters, reinterpret_cast<scalar_t*>(workspace.data_ptr()), y);
  });
  return {y, workspace};
}

// The gradients of x, of the memory of each block, and of all parameters. `threads` is as in the forward pass: the tiles
// depend on it.
std::vector<Tensor> block_stack_backward(const Tensor& dy, const Tensor& workspace, at::TensorList memory,
                                         at::TensorList parameters, at::IntArrayRef starts, at::IntArrayRef lengths,
                                         at::IntArrayRef numbers, at::IntArrayRef source_lengths, int64_t heads,
                                         int64_t activation, bool pre_norm, bool causal, double eps, double dropout,
                                         at::IntArrayRef seeds, int64_t threads) {
  const Tensor above = dy.contiguous();
  std::vector<Tensor> gradients = {at::zeros(dy.sizes(), dy.options())};
  for (const Tensor& m : memory) gradients.push_back(at::zeros(m.sizes(), m.options()));
  for (const Tensor& parameter : parameters) gradients.push_back(at::empty(parameter.sizes(), parameter.options()));
  AT_DISPATCH_FLOATING_TYPES(dy.scalar_type(), "block_stack_backward", [&] {
    const auto layout = make_layout<scalar_t>(
        dy, memory, parameters, starts, lengths, numbers, source_lengths,
        {heads, static_cast<Activation>(activation), pre_norm, causal, false, eps, dropout, seeds.vec(), threads});
    TORCH_CHECK(workspace.numel() == layout.workspace() * static_cast<int64_t>(sizeof(scalar_t)),
                "the workspace is not that of this forward pass");
    backward_of<scalar_t>(layout, above, memory, parameters, reinterpret_cast<scalar_t*>(workspace.data_ptr()),
                          gradients);
  });
  return gradients;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def(
      "block_stack(Tensor x, Tensor[] memory, Tensor[] parameters, int[] starts, int[] lengths, int[] numbers, "
      "int[] source_lengths, int heads, int activation, bool pre_norm, bool causal, float eps, float dropout, "
      "int[] seeds, int threads) -> (Tensor y, Tensor saved)");
  library.def(
      "block_stack_backward(Tensor dy, Tensor saved, Tensor[] memory, Tensor[] parameters, int[] starts, "
      "int[] lengths, int[] numbers, int[] source_lengths, int heads, int activation, bool pre_norm, bool causal, "
      "float eps, float dropout, int[] seeds, int threads) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) {
  library.impl("block_stack", block_stack);
  library.impl("block_stack_backward", block_stack_backward);
}

}  // namespace seriatim
