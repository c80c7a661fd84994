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
// Saved for each element and block: the inputs of both parts, queries, keys and values, what was attended to, and hidden
// units before the activation, ten times its size; with norms after each part two more. The reference is `Block` in
// nn/transformer.py, and tests hold both equal.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <numeric>
#include <tuple>
#include <vector>

#include "activation.h"
#include "dropout.h"
#include "matrix.h"
#include "panel_attention.h"
#include "panels.h"

namespace seriatim {
namespace {

using at::Tensor;

constexpr int64_t kTileRows = 192;   // rows of a tile; a sequence that is longer is a tile by itself
constexpr int64_t kChunk = kDepth;   // hidden units at once
constexpr size_t kFreeWorkspaces = 4;

// Calls work(item, worker) for all items; a worker takes the next one when it is ready.
template <typename Work>
void each_item(int64_t items, const Work& work) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min<int64_t>(items, at::get_num_threads()), 1, [&](int64_t worker, int64_t end) {
    for (; worker < end; ++worker) {
      for (int64_t item = next++; item < items; item = next++) work(item, worker);
    }
  });
}

// ---- memory ------------------------------------------------------------------------------------------------------

// Workspaces that no pass uses. A new one would have to be mapped and cleared page by page in every step.
class Workspaces {
 public:
  // Bytes with any contents, given back when the tensor is freed.
  Tensor take(int64_t bytes) {
    Lines<char>* lines = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto best = free_.end();
      for (auto each = free_.begin(); each != free_.end(); ++each) {
        if ((*each)->count() >= bytes && (best == free_.end() || (*each)->count() < (*best)->count())) best = each;
      }
      if (best != free_.end()) {
        lines = *best;
        free_.erase(best);
      }
    }
    if (lines == nullptr) lines = new Lines<char>(bytes + bytes / 8);  // the next batch may be a little larger
    return at::from_blob(*lines, {bytes}, [this, lines](void*) { give(lines); }, at::kByte);
  }

 private:
  void give(Lines<char>* lines) {
    const std::lock_guard lock(mutex_);
    free_.push_back(lines);
    if (free_.size() > kFreeWorkspaces) {
      delete free_.front();
      free_.erase(free_.begin());
    }
  }

  std::mutex mutex_;
  std::vector<Lines<char>*> free_;
};

Workspaces& workspaces() {
  static auto* all = new Workspaces;  // never destroyed: a tensor may outlive everything
  return *all;
}

// ---- sizes -------------------------------------------------------------------------------------------------------

struct Sequence {
  int64_t start, rows;    // in the input
  int64_t number;         // of its first row among those that dropout counts
};

// Sequences that a thread takes through all blocks together.
struct Tile {
  std::vector<Sequence> sequences;
  int64_t rows = 0;
};

// Consecutive sequences in tiles of nearly as many rows, as many for each thread.
std::vector<Tile> make_tiles(at::IntArrayRef starts, at::IntArrayRef lengths, at::IntArrayRef numbers,
                             int64_t threads) {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const int64_t sequences = static_cast<int64_t>(lengths.size());
  const int64_t together = std::max<int64_t>(1, kTileRows * sequences / std::max<int64_t>(total, 1));
  const int64_t count = ceil_div(ceil_div(sequences, together), threads) * threads;
  std::vector<Tile> tiles;
  int64_t rows = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    const int64_t middle = rows + lengths[i] / 2;
    if (tiles.empty() || middle * count / total >= static_cast<int64_t>(tiles.size())) tiles.emplace_back();
    tiles.back().sequences.push_back({starts[i], lengths[i], numbers[i]});
    tiles.back().rows += lengths[i];
    rows += lengths[i];
  }
  return tiles;
}

// Parameters of a block, in the order of the operator.
enum Parameter {
  kNorm1Scale, kNorm1Shift, kInputs, kInputsBias, kOutput, kOutputBias,
  kNorm2Scale, kNorm2Shift, kHidden, kHiddenBias, kBack, kBackBias, kParameters
};

struct Settings {
  int64_t heads;
  Activation activation;
  bool pre_norm, causal;
  double eps, dropout;
  std::vector<int64_t> seeds;  // of the two parts of each block
  int64_t threads;
};

template <typename T>
struct Layout {
  static constexpr int W = kColumns<T>;

  std::vector<Tile> tiles;
  Settings settings;
  int64_t layers, D, F, H, head, padded_head;
  int64_t stride;                 // rows of a panel: odd, so that panels fall into different cache sets
  int64_t longest = 0;            // sequence
  int64_t Dp, Ap, Qp, Fp;         // panels of a row, of all heads, of queries, keys and values, of hidden units
  Columns width, heads, inputs, hidden;

  Layout(std::vector<Tile> tiles, Settings settings, int64_t layers, int64_t D, int64_t F)
      : tiles(std::move(tiles)), settings(std::move(settings)), layers(layers), D(D), F(F), H(this->settings.heads) {
    head = D / H;
    padded_head = ceil_div(head, kLanes<T>) * kLanes<T>;
    int64_t most = 1;
    for (const Tile& tile : this->tiles) {
      most = std::max(most, tile.rows);
      for (const Sequence& sequence : tile.sequences) longest = std::max(longest, sequence.rows);
    }
    stride = most | 1;
    Dp = ceil_div(D, W), Ap = ceil_div(H * padded_head, W), Qp = 3 * Ap, Fp = ceil_div(F, W);
    width = plain_columns(D), hidden = plain_columns(F);
    heads.from.assign(H * padded_head, -1), inputs.from.assign(Qp * W, -1);
    heads.same = head == padded_head;
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t i = 0; i < head; ++i) {
        heads.from[h * padded_head + i] = h * head + i;
        for (int64_t s = 0; s < 3; ++s) inputs.from[s * Ap * W + h * padded_head + i] = s * D + h * head + i;
      }
    }
  }

  int64_t count() const { return static_cast<int64_t>(tiles.size()); }
  int64_t jump() const { return stride * W; }
  // Numbers of a tile in so many panels, with a number per row and head, and of a block's packed weights and vectors.
  int64_t panels(int64_t count) const { return count * jump(); }
  int64_t row_numbers() const { return ceil_div((2 + H) * stride, W) * W; }
  int64_t saved() const {
    return panels((settings.pre_norm ? 2 : 4) * Dp + Qp + Ap + Fp) + row_numbers();
  }
  int64_t packed() const {
    const int64_t forward = Qp * D + Dp * heads.size() + Fp * D + Dp * F;
    const int64_t backward = Dp * inputs.size() + Ap * D + Dp * F + Fp * D;
    return (forward + backward + Qp + Fp + 6 * Dp) * W;
  }
  int64_t workspace() const { return layers * (count() * saved() + packed()); }
};

// What the forward pass of a block saves of a tile.
template <typename T>
struct Saved {
  T *in1, *in2, *inputs, *attended, *hidden;  // inputs of both parts; queries, keys, values; before the activation
  T *normed1, *normed2;                       // what the norms give, without scale and shift
  T *inverse1, *inverse2, *sums;              // 1/σ of the norms, log-sums of attention of each head

  Saved(const Layout<T>& z, T* workspace, int64_t layer, int64_t tile) {
    T* at = workspace + (layer * z.count() + tile) * z.saved();
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    in1 = take(z.panels(z.Dp));
    in2 = take(z.panels(z.Dp));
    inputs = take(z.panels(z.Qp));
    attended = take(z.panels(z.Ap));
    hidden = take(z.panels(z.Fp));
    normed1 = z.settings.pre_norm ? in1 : take(z.panels(z.Dp));
    normed2 = z.settings.pre_norm ? in2 : take(z.panels(z.Dp));
    inverse1 = take(z.stride);
    inverse2 = take(z.stride);
    sums = at;
  }
};

// The weights of a block in the order in which products read them, for the forward and for the backward pass.
template <typename T>
struct Packed {
  T *inputs_bias, *hidden_bias, *output_bias, *back_bias, *scale1, *shift1, *scale2, *shift2;
  T *inputs, *output, *hidden, *back, *inputs_t, *output_t, *hidden_t, *back_t;

  Packed(const Layout<T>& z, T* workspace, int64_t layer) {
    constexpr int W = kColumns<T>;
    T* at = workspace + z.layers * z.count() * z.saved() + layer * z.packed();
    const auto take = [&](int64_t count) { return std::exchange(at, at + count * W); };
    inputs_bias = take(z.Qp);
    hidden_bias = take(z.Fp);
    for (T** vector : {&output_bias, &back_bias, &scale1, &shift1, &scale2, &shift2}) *vector = take(z.Dp);
    inputs = take(z.Qp * z.D);
    output = take(z.Dp * z.heads.size());
    hidden = take(z.Fp * z.D);
    back = take(z.Dp * z.F);
    inputs_t = take(z.Dp * z.inputs.size());
    output_t = take(z.Ap * z.D);
    hidden_t = take(z.Dp * z.F);
    back_t = take(z.Fp * z.D);
  }
};

template <typename T>
using Parameters = std::array<const T*, kParameters>;

// b (+ W β), padded to panels.
template <typename T>
void pack_bias(const T* bias, const T* weight, int64_t depth, const T* shift, const Columns& outputs, int64_t panels,
               T* to) {
  for (int64_t n = 0; n < panels * kColumns<T>; ++n) {
    const int64_t at = outputs[n];
    T sum = at < 0 ? T(0) : bias[at];
    if (at >= 0 && shift != nullptr) {
      Vector<T> dot{};
      int64_t k = 0;
      for (; k + kLanes<T> <= depth; k += kLanes<T>) dot += load(weight + at * depth + k) * load(shift + k);
      sum += sum_lanes<T>(dot);
      for (; k < depth; ++k) sum += weight[at * depth + k] * shift[k];
    }
    to[n] = sum;
  }
}

template <typename T>
void pack_weights(const Layout<T>& z, const std::vector<Parameters<T>>& parameters, T* workspace) {
  struct Matrix {
    Parameter weight;
    const Columns *outputs, *inputs;
    int64_t stride, output_panels, input_panels;
    int scale;  // the norm that is folded into it, or -1
    T *forward, *backward;
  };
  const int64_t panels = z.Qp + z.Dp + z.Dp + z.Ap + z.Fp + z.Dp + z.Dp + z.Fp;
  each_item(z.layers * (panels + 2), [&](int64_t item, int64_t) {
    const int64_t layer = item / (panels + 2);
    const Parameters<T>& p = parameters[layer];
    const Packed<T> to(z, workspace, layer);
    int64_t i = item % (panels + 2);
    const int first = z.settings.pre_norm ? kNorm1Scale : -1, second = z.settings.pre_norm ? kNorm2Scale : -1;
    for (const Matrix& m : {Matrix{kInputs, &z.inputs, &z.width, z.D, z.Qp, z.Dp, first, to.inputs, to.inputs_t},
                            Matrix{kOutput, &z.width, &z.heads, z.D, z.Dp, z.Ap, -1, to.output, to.output_t},
                            Matrix{kHidden, &z.hidden, &z.width, z.D, z.Fp, z.Dp, second, to.hidden, to.hidden_t},
                            Matrix{kBack, &z.width, &z.hidden, z.F, z.Dp, z.Fp, -1, to.back, to.back_t}}) {
      const T* scale = m.scale < 0 ? nullptr : p[m.scale];
      if (i < m.output_panels) {
        T* panel = m.forward + i * m.inputs->size() * kColumns<T>;
        return pack_outputs(p[m.weight], m.stride, *m.outputs, *m.inputs, scale, i, panel);
      }
      i -= m.output_panels;
      if (i < m.input_panels) {
        T* panel = m.backward + i * m.outputs->size() * kColumns<T>;
        return pack_inputs(p[m.weight], m.stride, *m.outputs, *m.inputs, scale, i, panel);
      }
      i -= m.input_panels;
    }
    const T *none = nullptr, *shift1 = first < 0 ? none : p[kNorm1Shift], *shift2 = first < 0 ? none : p[kNorm2Shift];
    if (i == 0) return pack_bias(p[kInputsBias], p[kInputs], z.D, shift1, z.inputs, z.Qp, to.inputs_bias);
    pack_bias(p[kHiddenBias], p[kHidden], z.D, shift2, z.hidden, z.Fp, to.hidden_bias);
    pack_bias(p[kOutputBias], none, 0, none, z.width, z.Dp, to.output_bias);
    pack_bias(p[kBackBias], none, 0, none, z.width, z.Dp, to.back_bias);
    pack_bias(p[kNorm1Scale], none, 0, none, z.width, z.Dp, to.scale1);
    pack_bias(p[kNorm1Shift], none, 0, none, z.width, z.Dp, to.shift1);
    pack_bias(p[kNorm2Scale], none, 0, none, z.width, z.Dp, to.scale2);
    pack_bias(p[kNorm2Shift], none, 0, none, z.width, z.Dp, to.shift2);
  });
}

// ---- passes between products -------------------------------------------------------------------------------------

// Calls work(offset of a vector, its numbers) for the D numbers of row r of a matrix in panels.
template <typename T, typename Work>
SERIATIM_INLINE void each_vector(int64_t D, int64_t jump, int64_t r, const Work& work) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  for (int64_t k = 0; k < D; k += L) {
    work(k / W * jump + r * W + k % W, static_cast<int>(std::min<int64_t>(L, D - k)));
  }
}

// Rows of x with mean 0 and variance 1.
template <typename T>
void normalize(const Layout<T>& z, int64_t rows, const T* x, T* to, T* inverse) {
  for (int64_t r = 0; r < rows; ++r) {
    Vector<T> sum{}, squares{};
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) { sum += load(x + at, count); });
    const T mean = sum_lanes<T>(sum) / z.D;
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
      Vector<T> away = load(x + at, count) - mean;
      if (count < kLanes<T>) {
        for (int lane = count; lane < kLanes<T>; ++lane) away[lane] = 0;
      }
      squares += away * away;
    });
    const T scale = 1 / std::sqrt(sum_lanes<T>(squares) / z.D + static_cast<T>(z.settings.eps));
    inverse[r] = scale;
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
      store<T>(to + at, (load(x + at, count) - mean) * scale, count);
    });
  }
}

// to (+)= (d − mean d − x̂ mean(d x̂)) / σ, row by row.
template <typename T>
void normalize_backward(const Layout<T>& z, int64_t rows, const T* d, const T* normed, const T* inverse, T* to,
                        bool add) {
  for (int64_t r = 0; r < rows; ++r) {
    Vector<T> sum{}, with{};
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
      const Vector<T> slope = load(d + at, count);
      sum += slope;
      with += slope * load(normed + at, count);
    });
    const T scale = inverse[r], mean = sum_lanes<T>(sum) / z.D * scale, along = sum_lanes<T>(with) / z.D * scale;
    each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
      Vector<T> slope = load(d + at, count) * scale - mean - load(normed + at, count) * along;
      if (add) slope += load(to + at, count);
      store(to + at, slope, count);
    });
  }
}

// Where the numbers of a tile are among those that dropout counts: the first of each row.
std::vector<uint32_t> dropout_rows(const Tile& tile, int64_t D) {
  std::vector<uint32_t> first;
  for (const Sequence& sequence : tile.sequences) {
    for (int64_t r = 0; r < sequence.rows; ++r) first.push_back(static_cast<uint32_t>((sequence.number + r) * D));
  }
  return first;
}

// to (+)= dropout(from), for a matrix of Dp panels.
template <typename T>
void drop(const Layout<T>& z, const std::vector<uint32_t>& first, int64_t seed, const T* from, T* to, bool add) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  const int64_t rows = static_cast<int64_t>(first.size());
  const DropoutMask<T> mask(z.settings.dropout, seed);
  for (int64_t p = 0; p < z.Dp; ++p) {
    const T* source = from + p * z.jump();
    T* target = to + p * z.jump();
    for (int64_t r = 0; r < rows && z.settings.dropout > 0; ++r) {
      const uint32_t place = first[r] + static_cast<uint32_t>(p * W);
      T values[W];
#pragma omp simd
      for (int j = 0; j < W; ++j) values[j] = mask.apply(source[r * W + j], place + j);
      for (int j = 0; j < W; j += L) {
        store<T>(target + r * W + j, add ? load(target + r * W + j) + load(values + j) : load(values + j));
      }
    }
    for (int64_t i = 0; i < rows * W && z.settings.dropout == 0; i += L) {
      store<T>(target + i, add ? load(target + i) + load(source + i) : load(source + i));
    }
  }
}

// x = γ x̂ + β, and a copy of it.
template <typename T>
void scale_and_shift(const Layout<T>& z, int64_t rows, const T* normed, const T* scale, const T* shift, T* x, T* copy) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  for (int64_t k = 0; k < z.Dp * W; k += L) {
    const Vector<T> by = load(scale + k), plus = load(shift + k);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = k / W * z.jump() + r * W + k % W;
      const Vector<T> value = load(normed + at) * by + plus;
      store(x + at, value);
      if (copy != nullptr) store(copy + at, value);
    }
  }
}

// d ← γ d; the sums over rows of d and d x̂, the gradients of β and γ, are those of this tile.
template <typename T>
void scale_backward(const Layout<T>& z, int64_t rows, T* d, const T* normed, const T* scale, T* d_scale, T* d_shift) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  for (int64_t k = 0; k < z.Dp * W; k += L) {
    const Vector<T> by = load(scale + k);
    Vector<T> sum{}, with{};
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = k / W * z.jump() + r * W + k % W;
      const Vector<T> slope = load(d + at);
      sum += slope;
      with += slope * load(normed + at);
      store<T>(d + at, slope * by);
    }
    store(d_shift + k, sum);
    store(d_scale + k, with);
  }
}

// The rows of a tile between the tensor (N, D) and panels, whose padding is zero.
template <typename T>
void to_panels(const Layout<T>& z, const Tile& tile, const T* x, T* to) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  int64_t r = 0;
  for (const Sequence& sequence : tile.sequences) {
    for (int64_t i = 0; i < sequence.rows; ++i, ++r) {
      const T* row = x + (sequence.start + i) * z.D;
      for (int64_t k = 0; k < z.Dp * W; k += L) {
        const int count = static_cast<int>(std::clamp<int64_t>(z.D - k, 0, L));
        store<T>(to + k / W * z.jump() + r * W + k % W, count > 0 ? load(row + k, count) : Vector<T>{});
      }
    }
  }
}

template <typename T>
void from_panels(const Layout<T>& z, const Tile& tile, const T* x, T* to) {
  int64_t r = 0;
  for (const Sequence& sequence : tile.sequences) {
    for (int64_t i = 0; i < sequence.rows; ++i, ++r) {
      T* row = to + (sequence.start + i) * z.D;
      int64_t k = 0;
      each_vector<T>(z.D, z.jump(), r, [&](int64_t at, int count) {
        store<T>(row + k, load(x + at, count), count);
        k += count;
      });
    }
  }
}

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

// A thread's memory: a tile's residual stream and what a part adds to it, some hidden units, attention.
template <typename T>
struct Worker {
  T *x, *out, *part;
  PanelAttention<T> attention;
};

// The workers of all threads, in `memory`.
template <typename T>
std::vector<Worker<T>> make_workers(const Layout<T>& z, bool backward, Tensor& memory) {
  PanelAttention<T> attention(z.longest, z.head, backward);
  const int64_t row = z.panels(z.Dp), part = z.panels(std::max(kChunk / kColumns<T>, z.Ap));
  const int64_t each = 2 * row + part + attention.memory(), threads = at::get_num_threads();
  memory = workspaces().take(threads * each * sizeof(T));
  std::vector<Worker<T>> workers;
  for (int64_t id = 0; id < threads; ++id) {
    T* at = reinterpret_cast<T*>(memory.data_ptr()) + id * each;
    attention.set_memory(at + 2 * row + part);
    workers.push_back({at, at + row, at + 2 * row, attention});
  }
  return workers;
}

// All panels of c (rows, N) = a wᵀ + bias, w packed.
template <typename T>
void multiply_all(const Layout<T>& z, int64_t rows, const T* a, int64_t depth, const T* w, const T* bias, T* c,
                  int64_t panels) {
  constexpr int W = kColumns<T>;
  for (int64_t p = 0; p < panels; ++p) {
    multiply_panel<T>({a, z.jump()}, rows, w + p * depth * W, depth, c + p * z.jump(), bias ? bias + p * W : nullptr,
                      false);
  }
}

// Calls work(place, rows, log-sums) for every head of every sequence of a tile; place(matrix, part) is the head's in
// part 0, 1 … of a matrix with the columns of all heads each.
template <typename T, typename Work>
void each_head(const Layout<T>& z, const Tile& tile, T* sums, const Work& work) {
  constexpr int W = kColumns<T>;
  int64_t row = 0;
  for (const Sequence& sequence : tile.sequences) {
    for (int64_t h = 0; h < z.H; ++h) {
      const auto place = [&](T* matrix, int64_t part) {
        return typename PanelAttention<T>::Place{{matrix + row * W, z.jump()}, part * z.Ap * W + h * z.padded_head};
      };
      work(place, sequence.rows, sums + h * z.stride + row);
    }
    row += sequence.rows;
  }
}

template <typename T>
void block_forward(const Layout<T>& z, const Tile& tile, const std::vector<uint32_t>& first, int64_t layer,
                   const Packed<T>& w, const Saved<T>& save, Worker<T>& worker) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  const int64_t rows = tile.rows, jump = z.jump();
  const bool pre = z.settings.pre_norm;
  T *x = worker.x, *out = worker.out, *part = worker.part;
  if (pre) {
    normalize(z, rows, x, save.in1, save.inverse1);
  } else if (layer == 0) {
    std::copy_n(x, z.panels(z.Dp), save.in1);
  }
  multiply_all<T>(z, rows, save.in1, z.D, w.inputs, w.inputs_bias, save.inputs, z.Qp);
  each_head(z, tile, save.sums, [&](const auto& place, int64_t count, T* sums) {
    worker.attention.forward(place(save.inputs, 0), place(save.inputs, 1), place(save.inputs, 2),
                             place(save.attended, 0), count, count, z.settings.causal, sums);
  });
  multiply_all<T>(z, rows, save.attended, z.heads.size(), w.output, w.output_bias, out, z.Dp);
  drop(z, first, z.settings.seeds[2 * layer], out, x, true);
  if (pre) {
    normalize(z, rows, x, save.in2, save.inverse2);
  } else {
    normalize(z, rows, x, save.normed1, save.inverse1);
    scale_and_shift(z, rows, save.normed1, w.scale1, w.shift1, x, save.in2);
  }
  with_activation(z.settings.activation, [&](auto kind) {
    for (int64_t unit = 0; unit < z.F; unit += kChunk) {
      const int64_t end = std::min(z.F, unit + kChunk);
      for (int64_t p = unit / W; p < ceil_div(end, W); ++p) {
        T *hidden = save.hidden + p * jump, *active = part + (p - unit / W) * jump;
        multiply_panel<T>({save.in2, jump}, rows, w.hidden + p * z.D * W, z.D, hidden, w.hidden_bias + p * W, false);
        for (int64_t i = 0; i < rows * W; i += L) store<T>(active + i, activated<T>(load(hidden + i), kind));
      }
      for (int64_t p = 0; p < z.Dp; ++p) {
        multiply_panel<T>({part, jump}, rows, w.back + (p * z.F + unit) * W, end - unit, out + p * jump,
                          unit == 0 ? w.back_bias + p * W : nullptr, unit > 0);
      }
    }
  });
  drop(z, first, z.settings.seeds[2 * layer + 1], out, x, true);
  if (!pre) normalize(z, rows, x, save.normed2, save.inverse2);
}

// The gradients of a tile in one block, for its weights.
template <typename T>
struct Slopes {
  T *back, *hidden, *active, *output, *inputs, *norms;
};

template <typename T>
void block_backward(const Layout<T>& z, const Tile& tile, const std::vector<uint32_t>& first, int64_t layer,
                    const Packed<T>& w, const Saved<T>& saved, T* d, const Slopes<T>& slopes, Worker<T>& worker) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  const int64_t rows = tile.rows, jump = z.jump(), norm = z.Dp * W;
  const bool pre = z.settings.pre_norm;
  T *into = worker.out, *part = worker.part;
  if (!pre) {
    scale_backward(z, rows, d, saved.normed2, w.scale2, slopes.norms + 2 * norm, slopes.norms + 3 * norm);
    normalize_backward(z, rows, d, saved.normed2, saved.inverse2, d, false);
  }
  drop(z, first, z.settings.seeds[2 * layer + 1], d, slopes.back, false);
  with_activation(z.settings.activation, [&](auto kind) {
    for (int64_t unit = 0; unit < z.F; unit += kChunk) {
      const int64_t end = std::min(z.F, unit + kChunk);
      for (int64_t p = unit / W; p < ceil_div(end, W); ++p) {
        const T* hidden = saved.hidden + p * jump;
        T *slope = slopes.hidden + p * jump, *active = slopes.active + p * jump;
        multiply_panel<T>({slopes.back, jump}, rows, w.back_t + p * z.D * W, z.D, slope, nullptr, false);
        for (int64_t i = 0; i < rows * W; i += L) {
          Vector<T> y, steep;
          activated_with_slope<T>(load(hidden + i), kind, y, steep);
          store(active + i, y);
          store<T>(slope + i, load(slope + i) * steep);
        }
      }
      for (int64_t p = 0; p < z.Dp; ++p) {
        multiply_panel<T>({slopes.hidden + unit / W * jump, jump}, rows, w.hidden_t + (p * z.F + unit) * W, end - unit,
                          (pre ? into : d) + p * jump, nullptr, !pre || unit > 0);
      }
    }
  });
  if (pre) {
    normalize_backward(z, rows, into, saved.normed2, saved.inverse2, d, true);
  } else {
    scale_backward(z, rows, d, saved.normed1, w.scale1, slopes.norms, slopes.norms + norm);
    normalize_backward(z, rows, d, saved.normed1, saved.inverse1, d, false);
  }
  drop(z, first, z.settings.seeds[2 * layer], d, slopes.output, false);
  multiply_all<T>(z, rows, slopes.output, z.D, w.output_t, nullptr, part, z.Ap);
  each_head(z, tile, saved.sums, [&](const auto& place, int64_t count, const T* sums) {
    worker.attention.backward(place(saved.inputs, 0), place(saved.inputs, 1), place(saved.inputs, 2),
                              place(saved.attended, 0), place(part, 0), count, count, z.settings.causal, sums,
                              place(slopes.inputs, 0), place(slopes.inputs, 1), place(slopes.inputs, 2));
  });
  for (int64_t k = z.heads.size(); k < z.Ap * W; ++k) {  // padding after the last head
    for (int64_t s = 0; s < 3; ++s) {
      T* column = slopes.inputs + (s * z.Ap + k / W) * jump + k % W;
      for (int64_t r = 0; r < rows; ++r) column[r * W] = 0;
    }
  }
  for (int64_t p = 0; p < z.Dp; ++p) {
    multiply_panel<T>({slopes.inputs, jump}, rows, w.inputs_t + p * z.inputs.size() * W, z.inputs.size(),
                      (pre ? into : d) + p * jump, nullptr, !pre);
  }
  if (pre) normalize_backward(z, rows, into, saved.normed1, saved.inverse1, d, true);
}

// ---- weight gradients --------------------------------------------------------------------------------------------

// The gradient of one matrix of weights and its bias.
template <typename T>
struct Gradient {
  const T* above;                     // gradients of its outputs, of the first tile
  int64_t above_tile, above_panels;   // numbers of a tile, panels
  const T* below;                     // its inputs
  int64_t below_tile, below_panels;
  const Columns *outputs, *inputs;
  int64_t stride;
  const T *weight, *scale, *shift;    // the norm that is folded into it, or null
  T *d_weight, *d_bias;
  int64_t constant_begin, constant_end;  // outputs whose bias changes nothing: its gradient is 0
};

// The gradients of outputs [begin, end) in panels. `norm` gets their part of those of the scale and the shift.
template <typename T>
void weight_gradient(const Layout<T>& z, const Gradient<T>& m, int64_t begin, int64_t end, Lines<T>& memory, T* norm) {
  constexpr int L = kLanes<T>, W = kColumns<T>;
  const int64_t each = m.below_panels * W * W, count = end - begin;
  if (memory.count() < count * (each + W)) memory = Lines<T>(count * (each + W));
  T *c = memory, *sums = c + count * each;
  for (int64_t t = 0; t < z.count(); ++t) {
    add_weight_gradient<T>({m.above + t * m.above_tile, z.jump()}, begin, end, {m.below + t * m.below_tile, z.jump()},
                           m.below_panels, z.tiles[t].rows, c, sums, t > 0);
  }
  for (int64_t i = 0; i < count * W; ++i) {
    const int64_t n = (*m.outputs)[begin * W + i];
    if (n < 0) continue;
    const T d_bias = n >= m.constant_begin && n < m.constant_end ? T(0) : sums[i];
    m.d_bias[n] = d_bias;
    T* to = m.d_weight + n * m.stride;
    const T *row = c + i / W * each + i % W * W, *weight = m.weight + n * m.stride;  // its panels are W² apart
    const int64_t whole = m.inputs->same ? m.stride / L * L : 0;
    for (int64_t k = 0; k < whole; k += L) {
      const Vector<T> slope = load(row + k / W * W * W + k % W);
      if (m.scale == nullptr) {
        store(to + k, slope);
      } else {
        const Vector<T> at = load(weight + k);
        store<T>(to + k, slope * load(m.scale + k) + d_bias * load(m.shift + k));
        store<T>(norm + k, load(norm + k) + slope * at);
        store<T>(norm + m.stride + k, load(norm + m.stride + k) + d_bias * at);
      }
    }
    for (int64_t k = whole; k < m.inputs->size(); ++k) {
      const int64_t at = (*m.inputs)[k];
      if (at < 0) continue;
      const T slope = row[k / W * W * W + k % W];
      if (m.scale == nullptr) {
        to[at] = slope;
      } else {
        to[at] = slope * m.scale[at] + d_bias * m.shift[at];
        norm[at] += slope * weight[at];
        norm[m.stride + at] += d_bias * weight[at];
      }
    }
  }
}

// ---- the stack ---------------------------------------------------------------------------------------------------

template <typename T>
std::vector<Parameters<T>> pointers(at::TensorList parameters) {
  std::vector<Parameters<T>> all(parameters.size() / kParameters);
  for (size_t i = 0; i < parameters.size(); ++i) {
    all[i / kParameters][i % kParameters] = parameters[i].const_data_ptr<T>();
  }
  return all;
}

template <typename T>
void forward_of(const Layout<T>& z, const Tensor& x, at::TensorList parameters, T* workspace, const Tensor& y) {
  pack_weights(z, pointers<T>(parameters), workspace);
  Tensor memory;
  std::vector<Worker<T>> workers = make_workers(z, false, memory);
  each_item(z.count(), [&](int64_t t, int64_t id) {
    Worker<T>& worker = workers[id];
    const Tile& tile = z.tiles[t];
    const std::vector<uint32_t> first = dropout_rows(tile, z.D);
    to_panels(z, tile, x.const_data_ptr<T>(), worker.x);
    for (int64_t layer = 0; layer < z.layers; ++layer) {
      const Packed<T> w(z, workspace, layer);
      const Saved<T> save(z, workspace, layer, t);
      block_forward(z, tile, first, layer, w, save, worker);
      if (!z.settings.pre_norm) {
        T* next = layer + 1 < z.layers ? Saved<T>(z, workspace, layer + 1, t).in1 : nullptr;
        scale_and_shift(z, tile.rows, save.normed2, w.scale2, w.shift2, worker.x, next);
      }
    }
    from_panels(z, tile, worker.x, y.data_ptr<T>());
  });
}

template <typename T>
void backward_of(const Layout<T>& z, const Tensor& dy, at::TensorList parameters, T* workspace, const Tensor& dx,
                 const std::vector<Tensor>& gradients) {
  constexpr int W = kColumns<T>;
  const auto all = pointers<T>(parameters);
  const int64_t norm = z.Dp * W;
  const int64_t row = z.panels(z.Dp), inputs = z.panels(z.Qp), hidden = z.panels(z.Fp);
  const Tensor memory = workspaces().take((z.count() * (3 * row + inputs + 2 * hidden + 4 * norm)) * sizeof(T));
  T* at = reinterpret_cast<T*>(memory.data_ptr());
  const auto take = [&](int64_t count) { return std::exchange(at, at + z.count() * count); };
  T* d = take(row);
  const Slopes<T> slopes{take(row), take(hidden), take(hidden), take(row), take(inputs), take(4 * norm)};
  Tensor worker_memory;
  std::vector<Worker<T>> workers = make_workers(z, true, worker_memory);
  std::vector<Lines<T>> sums(at::get_num_threads());
  for (int64_t layer = z.layers - 1; layer >= 0; --layer) {
    const Packed<T> w(z, workspace, layer);
    each_item(z.count(), [&](int64_t t, int64_t id) {
      const Tile& tile = z.tiles[t];
      T* own = d + t * row;
      if (layer == z.layers - 1) to_panels(z, tile, dy.const_data_ptr<T>(), own);
      const Slopes<T> here{slopes.back + t * row,   slopes.hidden + t * hidden, slopes.active + t * hidden,
                           slopes.output + t * row, slopes.inputs + t * inputs, slopes.norms + t * 4 * norm};
      block_backward(z, tile, dropout_rows(tile, z.D), layer, w, Saved<T>(z, workspace, layer, t), own, here,
                     workers[id]);
      if (layer == 0) from_panels(z, tile, own, dx.data_ptr<T>());
    });
    const Parameters<T>& p = all[layer];
    std::array<T*, kParameters> g;
    for (int i = 0; i < kParameters; ++i) g[i] = gradients[1 + layer * kParameters + i].data_ptr<T>();
    const Saved<T> saved(z, workspace, layer, 0);
    const bool pre = z.settings.pre_norm;
    const auto folded = [&](Parameter index) { return pre ? p[index] : nullptr; };
    const std::array<Gradient<T>, 4> matrices = {{
        {slopes.back, row, z.Dp, slopes.active, hidden, z.Fp, &z.width, &z.hidden, z.F, p[kBack], nullptr, nullptr,
         g[kBack], g[kBackBias], 0, 0},
        {slopes.hidden, hidden, z.Fp, saved.in2, z.saved(), z.Dp, &z.hidden, &z.width, z.D, p[kHidden],
         folded(kNorm2Scale), folded(kNorm2Shift), g[kHidden], g[kHiddenBias], 0, 0},
        {slopes.inputs, inputs, z.Qp, saved.in1, z.saved(), z.Dp, &z.inputs, &z.width, z.D, p[kInputs],
         folded(kNorm1Scale), folded(kNorm1Shift), g[kInputs], g[kInputsBias], z.D, 2 * z.D},
        {slopes.output, row, z.Dp, saved.attended, z.saved(), z.Ap, &z.width, &z.heads, z.D, p[kOutput], nullptr,
         nullptr, g[kOutput], g[kOutputBias], 0, 0},
    }};
    struct Item {
      int64_t matrix, begin, end;
    };
    std::vector<Item> items;
    for (int64_t m = 0; m < 4; ++m) {
      const int64_t panels = matrices[m].above_panels, together = std::clamp<int64_t>(panels / 4, 1, kTogether);
      for (int64_t begin = 0; begin < panels; begin += together) {
        items.push_back({m, begin, std::min(panels, begin + together)});
      }
    }
    std::vector<T> norms(items.size() * 2 * z.D);
    each_item(items.size(), [&](int64_t i, int64_t id) {
      const Item& item = items[i];
      weight_gradient(z, matrices[item.matrix], item.begin, item.end, sums[id], norms.data() + i * 2 * z.D);
    });
    for (const Parameter index : {kNorm1Scale, kNorm1Shift, kNorm2Scale, kNorm2Shift}) {
      T* to = g[index];
      std::fill_n(to, z.D, T(0));
      const int64_t shift = index == kNorm1Shift || index == kNorm2Shift;
      const int64_t matrix = index == kNorm1Scale || index == kNorm1Shift ? 2 : 1;
      for (size_t i = 0; pre && i < items.size(); ++i) {
        if (items[i].matrix != matrix) continue;
        for (int64_t k = 0; k < z.D; ++k) to[k] += norms[(2 * i + shift) * z.D + k];
      }
      for (int64_t t = 0; !pre && t < z.count(); ++t) {
        const T* from = slopes.norms + (4 * t + (matrix == 2 ? 0 : 2) + shift) * norm;
        for (int64_t k = 0; k < z.D; ++k) to[k] += from[k];
      }
    }
  }
}

template <typename T>
Layout<T> make_layout(const Tensor& x, at::TensorList parameters, at::IntArrayRef starts, at::IntArrayRef lengths,
                      at::IntArrayRef numbers, Settings settings) {
  TORCH_CHECK(x.dim() == 2, "expected (N,D), not ", x.sizes());
  const int64_t D = x.size(1), layers = static_cast<int64_t>(parameters.size()) / kParameters;
  TORCH_CHECK(layers > 0 && parameters.size() % kParameters == 0, "expected ", int{kParameters}, " tensors a block");
  TORCH_CHECK(settings.heads >= 1 && D % settings.heads == 0, settings.heads, " heads do not divide a width of ", D);
  TORCH_CHECK(settings.dropout >= 0 && settings.dropout < 1, "a share of ", settings.dropout, " cannot be dropped");
  TORCH_CHECK(static_cast<int64_t>(settings.seeds.size()) == 2 * layers, "expected two seeds a block");
  const int64_t kind = static_cast<int64_t>(settings.activation);
  TORCH_CHECK(kind >= 0 && kind <= static_cast<int64_t>(Activation::silu), "activation ", kind, " is not known");
  const int64_t F = parameters[kHiddenBias].numel();
  const std::array<std::vector<int64_t>, kParameters> shapes = {
      {{D}, {D}, {3 * D, D}, {3 * D}, {D, D}, {D}, {D}, {D}, {F, D}, {F}, {D, F}, {D}}};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    TORCH_CHECK(p.sizes() == at::IntArrayRef(shapes[i % kParameters]) && p.is_contiguous(), "parameter ", i,
                " has shape ", p.sizes(), ", expected ", at::IntArrayRef(shapes[i % kParameters]), ", contiguous");
    TORCH_CHECK(p.scalar_type() == x.scalar_type(), "parameter ", i, " is of another type than x");
  }
  TORCH_CHECK(settings.threads >= 1, settings.threads, " threads");
  TORCH_CHECK(starts.size() == lengths.size() && starts.size() == numbers.size(), "sequences do not fit each other");
  for (size_t i = 0; i < starts.size(); ++i) {
    TORCH_CHECK(lengths[i] >= 0 && starts[i] >= 0 && starts[i] + lengths[i] <= x.size(0), "sequence ", i,
                " is not within the rows");
  }
  return Layout<T>(make_tiles(starts, lengths, numbers, settings.threads), settings, layers, D, F);
}

std::tuple<Tensor, Tensor> block_stack(const Tensor& x, at::TensorList parameters, at::IntArrayRef starts,
                                       at::IntArrayRef lengths, at::IntArrayRef numbers, int64_t heads,
                                       int64_t activation, bool pre_norm, bool causal, double eps, double dropout,
                                       at::IntArrayRef seeds, int64_t threads) {
  const Tensor from = x.contiguous();
  Tensor y = at::zeros(x.sizes(), x.options()), workspace;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "block_stack", [&] {
    const auto layout = make_layout<scalar_t>(
        x, parameters, starts, lengths, numbers,
        {heads, static_cast<Activation>(activation), pre_norm, causal, eps, dropout, seeds.vec(), threads});
    workspace = workspaces().take(layout.workspace() * sizeof(scalar_t));
    forward_of<scalar_t>(layout, from, parameters, reinterpret_cast<scalar_t*>(workspace.data_ptr()), y);
  });
  return {y, workspace};
}

// The gradients of x and of all parameters. `threads` is as in the forward pass: the tiles depend on it.
std::vector<Tensor> block_stack_backward(const Tensor& dy, const Tensor& workspace, at::TensorList parameters,
                                         at::IntArrayRef starts, at::IntArrayRef lengths, at::IntArrayRef numbers,
                                         int64_t heads, int64_t activation, bool pre_norm, bool causal, double eps,
                                         double dropout, at::IntArrayRef seeds, int64_t threads) {
  const Tensor above = dy.contiguous();
  std::vector<Tensor> gradients = {at::zeros(dy.sizes(), dy.options())};
  for (const Tensor& parameter : parameters) gradients.push_back(at::empty(parameter.sizes(), parameter.options()));
  AT_DISPATCH_FLOATING_TYPES(dy.scalar_type(), "block_stack_backward", [&] {
    const auto layout = make_layout<scalar_t>(
        dy, parameters, starts, lengths, numbers,
        {heads, static_cast<Activation>(activation), pre_norm, causal, eps, dropout, seeds.vec(), threads});
    TORCH_CHECK(workspace.numel() == layout.workspace() * static_cast<int64_t>(sizeof(scalar_t)),
                "the workspace is not that of this forward pass");
    backward_of<scalar_t>(layout, above, parameters, reinterpret_cast<scalar_t*>(workspace.data_ptr()), gradients[0],
                          gradients);
  });
  return gradients;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def(
      "block_stack(Tensor x, Tensor[] parameters, int[] starts, int[] lengths, int[] numbers, int heads, "
      "int activation, bool pre_norm, bool causal, float eps, float dropout, int[] seeds, int threads) -> (Tensor y, Tensor saved)");
  library.def(
      "block_stack_backward(Tensor dy, Tensor saved, Tensor[] parameters, int[] starts, int[] lengths, int[] numbers, "
      "int heads, int activation, bool pre_norm, bool causal, float eps, float dropout, int[] seeds, int threads) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) {
  library.impl("block_stack", block_stack);
  library.impl("block_stack_backward", block_stack_backward);
}

}  // namespace seriatim
