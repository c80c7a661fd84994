// Sizes and memory of a stack of Transformer blocks (stack.cpp): tiles of sequences, what a forward pass saves, packed
// weights.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "activation.h"
#include "matrix.h"
#include "panels.h"

namespace seriatim {

constexpr int64_t kTileRows = 192;  // rows of a tile; a sequence that is longer is a tile by itself
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

// Workspaces that no pass uses. A new one would have to be mapped and cleared page by page in every step.
class Workspaces {
 public:
  // Bytes with any contents, given back when the tensor is freed.
  at::Tensor take(int64_t bytes) {
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

inline Workspaces& workspaces() {
  static auto* all = new Workspaces;  // never destroyed: a tensor may outlive everything
  return *all;
}

// ---- sequences ---------------------------------------------------------------------------------------------------

struct Sequence {
  int64_t start, rows;                // in the input
  int64_t number;                     // of its first row among those that dropout counts
  int64_t source_start, source_rows;  // in the memory that cross-attention reads
};

// Sequences that a thread takes through all blocks together.
struct Tile {
  std::vector<Sequence> sequences;
  int64_t rows = 0;
};

// Consecutive sequences in tiles of nearly as many rows, as many for each thread.
inline std::vector<Tile> make_tiles(const std::vector<Sequence>& sequences, int64_t threads) {
  int64_t total = 0;
  for (const Sequence& sequence : sequences) total += sequence.rows;
  const int64_t given = static_cast<int64_t>(sequences.size());
  const int64_t together = std::max<int64_t>(1, kTileRows * given / std::max<int64_t>(total, 1));
  const int64_t count = ceil_div(ceil_div(given, together), threads) * threads;
  std::vector<Tile> tiles;
  int64_t rows = 0;
  for (const Sequence& sequence : sequences) {
    if (sequence.rows == 0) continue;
    const int64_t middle = rows + sequence.rows / 2;
    if (tiles.empty() || middle * count / total >= static_cast<int64_t>(tiles.size())) tiles.emplace_back();
    tiles.back().sequences.push_back(sequence);
    tiles.back().rows += sequence.rows;
    rows += sequence.rows;
  }
  return tiles;
}

// ---- blocks ------------------------------------------------------------------------------------------------------

// The parts of a block and its matrices; those of cross-attention, if it has any, are last. Every part has two
// parameters for its norm, scale and shift, and every matrix two, weight and bias.
enum Part { kAttention, kFeedForward, kCross, kParts };
enum MatrixIndex { kInputs, kOutput, kHidden, kBack, kQuery, kCrossOutput, kMatrices };
constexpr int kParameters = 2 * (int{kParts} + int{kMatrices});
constexpr int kPlainParameters = 12;  // without cross-attention
constexpr std::array<int, kParts> kNormParameters = {0, 6, 12};
constexpr std::array<int, kMatrices> kMatrixParameters = {2, 4, 8, 10, 14, 16};

template <typename T>
using Parameters = std::array<T*, kParameters>;

struct Settings {
  int64_t heads;
  Activation activation;
  bool pre_norm, causal, cross;
  double eps, dropout;
  std::vector<int64_t> seeds;  // of the parts of each block, in the order in which they are computed
  int64_t threads;

  int64_t seed(int64_t layer, Part part) const {
    const int64_t parts = cross ? 3 : 2, place = part == kAttention ? 0 : part == kCross ? 1 : parts - 1;
    return seeds[layer * parts + place];
  }
};

// A matrix of weights between two matrices of activations.
struct MatrixForm {
  const Columns *outputs, *inputs;
  int64_t stride, output_panels, input_panels;
  int norm;  // the part whose norm is folded into it, or -1
};

template <typename T>
struct Layout {
  static constexpr int W = kColumns<T>;

  std::vector<Tile> tiles;
  Settings settings;
  int64_t layers, D, F, H, head, padded_head;
  int64_t stride;                             // rows of a panel: odd, so that panels fall into different cache sets
  int64_t longest = 0, longest_source = 0;    // sequences
  int64_t Dp, Ap, Qp, Fp;                     // panels of a row, of all heads, of queries, keys, values, of hidden units
  Columns width, heads, inputs, hidden;
  std::vector<MatrixForm> matrices;

  Layout(const std::vector<Sequence>& sequences, Settings given, int64_t layers, int64_t D, int64_t F)
      : tiles(make_tiles(sequences, given.threads)), settings(std::move(given)), layers(layers), D(D), F(F) {
    H = settings.heads;
    head = D / H;
    padded_head = ceil_div(head, kLanes<T>) * kLanes<T>;
    int64_t most = 1;
    for (const Tile& tile : tiles) {
      most = std::max(most, tile.rows);
      for (const Sequence& sequence : tile.sequences) {
        longest = std::max(longest, sequence.rows);
        longest_source = std::max(longest_source, sequence.source_rows);
      }
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
    const auto folded = [&](int part) { return settings.pre_norm ? part : -1; };
    matrices = {{&inputs, &width, D, Qp, Dp, folded(kAttention)},
                {&width, &heads, D, Dp, Ap, -1},
                {&hidden, &width, D, Fp, Dp, folded(kFeedForward)},
                {&width, &hidden, F, Dp, Fp, -1}};
    if (settings.cross) {
      matrices.push_back({&heads, &width, D, Ap, Dp, folded(kCross)});
      matrices.push_back({&width, &heads, D, Dp, Ap, -1});
    }
  }
  Layout(const Layout&) = delete;  // the forms of matrices point into it

  int parts() const { return settings.cross ? 3 : 2; }
  int64_t count() const { return static_cast<int64_t>(tiles.size()); }
  int64_t jump() const { return stride * W; }
  int64_t source_jump() const { return (longest_source | 1) * W; }
  int64_t panels(int64_t count) const { return count * jump(); }  // numbers of a tile of `count` panels
  // What is saved of a tile in a block: the inputs of the parts and, with norms after them, what the norms give; queries,
  // keys and values, what was attended to, hidden units; 1/σ of the norms and log-sums of attention for each row.
  int64_t saved() const {
    const int64_t rows = parts() * Dp * (settings.pre_norm ? 1 : 2) + Qp + Ap + Fp + (settings.cross ? 2 * Ap : 0);
    return panels(rows) + ceil_div((parts() + (settings.cross ? 2 : 1) * H) * stride, W) * W;
  }
  int64_t packed() const {
    int64_t rows = 2 * parts() * Dp;
    for (const MatrixForm& m : matrices) {
      rows += m.output_panels * (1 + m.inputs->size()) + m.input_panels * m.outputs->size();
    }
    return rows * W;
  }
  int64_t workspace() const { return layers * (count() * saved() + packed()); }
};

// What the forward pass of a block saves of a tile.
template <typename T>
struct Saved {
  std::array<T*, kParts> in, normed, inverse;  // of each part: its input, the normalized rows, 1/σ
  T *inputs, *attended, *hidden;               // queries, keys, values; before the activation
  T *query = nullptr, *cross_attended = nullptr;
  T *sums, *cross_sums;  // log-sums of attention for each head and row

  Saved(const Layout<T>& z, T* workspace, int64_t layer, int64_t tile) {
    T* at = workspace + (layer * z.count() + tile) * z.saved();
    const auto take = [&](int64_t count) { return std::exchange(at, at + count); };
    for (int part = 0; part < z.parts(); ++part) {
      in[part] = take(z.panels(z.Dp));
      normed[part] = z.settings.pre_norm ? in[part] : take(z.panels(z.Dp));
    }
    inputs = take(z.panels(z.Qp));
    attended = take(z.panels(z.Ap));
    hidden = take(z.panels(z.Fp));
    if (z.settings.cross) {
      query = take(z.panels(z.Ap));
      cross_attended = take(z.panels(z.Ap));
    }
    for (int part = 0; part < z.parts(); ++part) inverse[part] = take(z.stride);
    sums = take(z.H * z.stride);
    cross_sums = at;
  }
};

// The weights of a block in the order in which products read them: for the forward pass, transposed for the backward
// pass, and vectors filled up to panels.
template <typename T>
struct PackedBlock {
  std::array<T*, kMatrices> weight, turned, bias;
  std::array<T*, kParts> scale, shift;

  PackedBlock(const Layout<T>& z, T* workspace, int64_t layer) {
    T* at = workspace + z.layers * z.count() * z.saved() + layer * z.packed();
    const auto take = [&](int64_t rows) { return std::exchange(at, at + rows * kColumns<T>); };
    for (int part = 0; part < z.parts(); ++part) {
      scale[part] = take(z.Dp);
      shift[part] = take(z.Dp);
    }
    for (size_t i = 0; i < z.matrices.size(); ++i) {
      const MatrixForm& m = z.matrices[i];
      bias[i] = take(m.output_panels);
      weight[i] = take(m.output_panels * m.inputs->size());
      turned[i] = take(m.input_panels * m.outputs->size());
    }
  }
};

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

// Packs the weights of all blocks; scale and shift of a norm are folded into the matrix that follows it.
template <typename T>
void pack_weights(const Layout<T>& z, const std::vector<Parameters<const T>>& parameters, T* workspace) {
  int64_t items = z.parts();
  for (const MatrixForm& m : z.matrices) items += m.output_panels + m.input_panels + 1;
  each_item(z.layers * items, [&](int64_t item, int64_t) {
    const Parameters<const T>& p = parameters[item / items];
    const PackedBlock<T> to(z, workspace, item / items);
    int64_t i = item % items;
    if (i < z.parts()) {
      const int at = kNormParameters[i];
      pack_bias<T>(p[at], nullptr, 0, nullptr, z.width, z.Dp, to.scale[i]);
      return pack_bias<T>(p[at + 1], nullptr, 0, nullptr, z.width, z.Dp, to.shift[i]);
    }
    i -= z.parts();
    for (size_t index = 0; index < z.matrices.size(); ++index) {
      const MatrixForm& m = z.matrices[index];
      const T *weight = p[kMatrixParameters[index]], *bias = p[kMatrixParameters[index] + 1];
      const T* scale = m.norm < 0 ? nullptr : p[kNormParameters[m.norm]];
      const T* shift = m.norm < 0 ? nullptr : p[kNormParameters[m.norm] + 1];
      if (i < m.output_panels) {
        T* panel = to.weight[index] + i * m.inputs->size() * kColumns<T>;
        return pack_outputs(weight, m.stride, *m.outputs, *m.inputs, scale, i, panel);
      }
      i -= m.output_panels;
      if (i < m.input_panels) {
        T* panel = to.turned[index] + i * m.outputs->size() * kColumns<T>;
        return pack_inputs(weight, m.stride, *m.outputs, *m.inputs, scale, i, panel);
      }
      i -= m.input_panels;
      if (i-- == 0) return pack_bias(bias, weight, m.stride, shift, *m.outputs, m.output_panels, to.bias[index]);
    }
  });
}

}  // namespace seriatim
