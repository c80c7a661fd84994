// One generation step of stacked recurrent layers: tokens, cells, scores. The cells are those of recurrent.py.
#pragma once

#include "step.h"

namespace seriatim {

enum class CellKind : int64_t { tanh, relu, lstm, gru, gru_after };

template <typename W>
struct Layer {
  int64_t inputs = 0, width = 0;
  Matrix<W> gates;             // all of them; for a GRU the two gates
  Matrix<W> candidate, inner;  // of a GRU: from [x; r ⊙ h], or from x and from h
};

template <typename W>
class Stack : public Model {
 public:
  // sizes: layers, the kind of cell.
  Stack(const std::vector<Tensor>& tensors, const std::vector<int64_t>& sizes) {
    TORCH_CHECK_VALUE(sizes.size() == 2 && sizes[0] >= 1, "a recurrent network has layers and a kind of cell");
    TORCH_CHECK_VALUE(sizes[1] >= 0 && sizes[1] <= 4, "there is no cell ", sizes[1]);
    kind_ = static_cast<CellKind>(sizes[1]);
    const int64_t gates = kind_ == CellKind::lstm ? 4 : gru() ? 3 : 1;
    Taking take(tensors);
    tokens_ = take.next({-1, -1}, "tokens");
    const Tensor head = take.next({-1, -1}, "head");
    const Tensor head_bias = take.optional({head.size(0)}, "head");
    vocabulary_ = head.size(0);
    int64_t inputs = tokens_.size(1);
    for (int64_t index = 0; index < sizes[0]; ++index) {
      const Tensor weight = take.next({-1, inputs}, "input");
      const Tensor bias = take.next({weight.size(0)}, "input");
      const int64_t H = weight.size(0) / gates;
      TORCH_CHECK_VALUE(H >= 1 && H * gates == weight.size(0), "input has ", weight.size(0), " rows for ", gates,
                        " gates");
      const Tensor recurrent = take.next({gates * H, H}, "recurrent");
      const Tensor inner = take.optional({H}, "bias");
      if (index == 0 && tokens_.size(0) * gates * H <= kTable) {  // of each token what it adds to the gates, once
        tokens_ = at::addmm(bias, tokens_, weight.t()).contiguous();
        ready_ = true;
      }
      layers_.push_back(packed(index == 0 && ready_, weight, bias, recurrent, inner));
      inputs = H;
    }
    take.end();
    TORCH_CHECK_VALUE(head.size(1) == inputs, "head has shape ", head.sizes(), " for a width of ", inputs);
    head_ = Matrix<W>({head}, head_bias);
    bytes_ += head_.bytes();
    for (const auto& layer : layers_) {
      widest_ = std::max({widest_, layer.width, layer.inputs});
      bytes_ += layer.gates.bytes() + layer.candidate.bytes() + layer.inner.bytes();
    }
  }

  ProgressPtr fresh(int64_t rows) override {
    auto after = c10::make_intrusive<Progress>();
    after->rows = rows;
    for (const auto& layer : layers_) {
      for (int part = 0; part < (kind_ == CellKind::lstm ? 2 : 1); ++part) {
        after->vectors.emplace_back(rows * layer.width, 0.0f);
      }
    }
    return after;
  }

  ProgressPtr begin(const std::vector<Tensor>& state, const std::optional<Tensor>& real,
                    const std::vector<Tensor>& memory, const std::optional<Tensor>& mask) override {
    TORCH_CHECK_VALUE(!real && !mask && memory.empty(), "a recurrent network has no places");
    const size_t parts = kind_ == CellKind::lstm ? 2 : 1;
    TORCH_CHECK_VALUE(state.size() == parts * layers_.size(), "a state of ", state.size(), " tensors for ",
                      parts * layers_.size());
    auto after = c10::make_intrusive<Progress>();
    TORCH_CHECK_VALUE(state[0].dim() == 2, "a state must be (B, width), not ", state[0].sizes());
    after->rows = state[0].size(0);
    for (size_t i = 0; i < state.size(); ++i) {
      const Tensor part = checked(state[i], {after->rows, layers_[i / parts].width}, "state");
      after->vectors.emplace_back(part.const_data_ptr<float>(), part.const_data_ptr<float>() + part.numel());
    }
    return after;
  }

  ProgressPtr advance(const Progress& before, const int64_t* tokens) override {
    auto after = c10::make_intrusive<Progress>(before);
    if (before.rows > rows_) {
      rows_ = before.rows;
      stride_ = spaced(2 * widest_), wide_ = spaced(4 * widest_);
      given_ = Lines<float>(rows_ * stride_), sums_ = Lines<float>(rows_ * wide_), more_ = Lines<float>(rows_ * wide_);
    }
    resize_scores(before.rows);
    run(before.rows, bytes_, [&](auto& executor, int64_t first, int64_t last) {
      forward(executor, *after, tokens, first, last);
    });
    return after;
  }

  ProgressPtr select(const Progress& before, const int64_t* rows, int64_t count) override {
    auto after = c10::make_intrusive<Progress>();
    after->rows = count;
    for (const auto& part : before.vectors) {
      const int64_t width = static_cast<int64_t>(part.size()) / std::max<int64_t>(before.rows, 1);
      auto& to = after->vectors.emplace_back(count * width);
      for (int64_t i = 0; i < count; ++i) std::copy_n(part.data() + rows[i] * width, width, to.data() + i * width);
    }
    return after;
  }

 private:
  static constexpr int64_t kTable = 4 << 20;  // numbers of a table with what each token adds to the gates

  bool gru() const { return kind_ == CellKind::gru || kind_ == CellKind::gru_after; }

  // Without the product of the inputs where a table has it already. Inputs and state are one product, and as bytes
  // share one scale for each output, also where they are computed apart.
  Layer<W> packed(bool table, const Tensor& weight, const Tensor& bias, const Tensor& recurrent,
                  const Tensor& inner) const {
    Layer<W> layer;
    const int64_t H = layer.width = recurrent.size(1);
    layer.inputs = weight.size(1);
    using Parts = std::vector<Tensor>;
    const auto both = [&](int64_t from, int64_t count) {
      const auto rows = [&](const Tensor& tensor) { return tensor.narrow(0, from, count).contiguous(); };
      const Parts all{rows(weight), rows(recurrent)};
      return Matrix<W>(table ? Parts{all[1]} : all, table ? Tensor() : rows(bias), all);
    };
    if (!gru()) {
      layer.gates = both(0, recurrent.size(0));
      return layer;
    }
    layer.gates = both(0, 2 * H);
    if (kind_ == CellKind::gru) {
      layer.candidate = both(2 * H, H);
    } else {
      const auto rows = [&](const Tensor& tensor) { return tensor.narrow(0, 2 * H, H).contiguous(); };
      const Parts all{rows(weight), rows(recurrent)};
      layer.candidate = Matrix<W>({all[0]}, rows(bias), all);
      layer.inner = Matrix<W>({all[1]}, inner, all);
    }
    return layer;
  }

  template <typename E>
  void forward(E& pool, Progress& at, const int64_t* tokens, int64_t first, int64_t last) {
    const int64_t rows = last - first;
    float *given = given_ + first * stride_, *sums = sums_ + first * wide_, *more = more_ + first * wide_;
    const float* below = nullptr;  // the outputs of the layer below, for all rows
    for (size_t index = 0; index < layers_.size(); ++index) {
      const Layer<W>& layer = layers_[index];
      const int64_t H = layer.width;
      const bool table = index == 0 && ready_;
      const int64_t D = table ? 0 : layer.inputs;
      float* h = at.vectors[kind_ == CellKind::lstm ? 2 * index : index].data() + first * H;
      for (int64_t row = 0; row < rows; ++row) {  // [x; h]
        const float* x = below != nullptr ? below + row * D : tokens_.const_data_ptr<float>() + tokens[first + row] * D;
        float* to = std::copy_n(x, D, given + row * stride_);
        std::copy_n(h + row * H, H, to);
      }
      const auto into = [&](float* to) {
        return [=, this](int64_t row, int64_t column, Vector<float> left, Vector<float> right) {
          store(to + row * wide_ + column, left);
          store(to + row * wide_ + column + kWide, right);
        };
      };
      layer.gates.multiply(pool, given, stride_, rows, into(sums));
      if (table) {
        const int64_t columns = layer.gates.columns();
        for (int64_t row = 0; row < rows; ++row) {
          const float* add = tokens_.const_data_ptr<float>() + tokens[first + row] * tokens_.size(1);
          for (int64_t i = 0; i < columns; ++i) sums[row * wide_ + i] += add[i];
        }
      }
      if (kind_ == CellKind::lstm) {
        float* c = at.vectors[2 * index + 1].data() + first * H;
        for (int64_t row = 0; row < rows; ++row) lstm(sums + row * wide_, h + row * H, c + row * H, H);
      } else if (!gru()) {
        for (int64_t row = 0; row < rows; ++row) plain(sums + row * wide_, h + row * H, H);
      } else {
        gru_step(pool, layer, rows, table, tokens + first, given, sums, more, h, into(more));
      }
      below = h;
    }
    const int64_t H = layers_.back().width;
    head_.multiply(pool, below, H, rows, [&](int64_t row, int64_t column, Vector<float> left, Vector<float> right) {
      store(scores(first + row) + column, left);
      store(scores(first + row) + column + kWide, right);
    });
  }

  // f on vectors of the numbers at i, for all i < H.
  template <typename F>
  static SERIATIM_INLINE void along(int64_t H, const F& f) {
    int64_t i = 0;
    for (; i + kWide <= H; i += kWide) f(i, kWide);
    if (i < H) f(i, static_cast<int>(H - i));
  }

  static void lstm(const float* sums, float* h, float* c, int64_t H) {
    along(H, [&](int64_t i, int count) {
      const auto gate = [&](int g) { return load(sums + g * H + i, count); };
      const Vector<float> kept = sigmoid<float>(gate(1)) * load(c + i, count) +
                                 sigmoid<float>(gate(0)) * tanh<float>(gate(2));
      store(c + i, kept, count);
      store(h + i, sigmoid<float>(gate(3)) * tanh<float>(kept), count);
    });
  }

  void plain(const float* sums, float* h, int64_t H) const {
    along(H, [&](int64_t i, int count) {
      const Vector<float> sum = load(sums + i, count);
      store(h + i, kind_ == CellKind::relu ? (sum > 0.0f ? sum : Vector<float>{}) : tanh<float>(sum), count);
    });
  }

  template <typename E, typename F>
  void gru_step(E& pool, const Layer<W>& layer, int64_t rows, bool table, const int64_t* tokens, float* given,
                float* sums, float* more, float* h, const F& into) const {
    const int64_t H = layer.width, D = table ? 0 : layer.inputs;
    const bool after = kind_ == CellKind::gru_after;
    for (int64_t row = 0; row < rows; ++row) {
      float *r = sums + row * wide_, *z = r + H, *reset = given + row * stride_ + D;
      along(H, [&](int64_t i, int count) {
        const Vector<float> gate = sigmoid<float>(load(r + i, count));
        store(r + i, gate, count);
        if (!after) store(reset + i, gate * load(reset + i, count), count);
      });
      along(H, [&](int64_t i, int count) { store(z + i, sigmoid<float>(load(z + i, count)), count); });
    }
    if (!after) {
      layer.candidate.multiply(pool, given, stride_, rows, into);
    } else {
      layer.inner.multiply(pool, h, H, rows, into);
      for (int64_t row = 0; row < rows; ++row) {
        float *r = sums + row * wide_, *to = more + row * wide_;
        along(H, [&](int64_t i, int count) { store(to + i, load(to + i, count) * load(r + i, count), count); });
      }
      if (!table) {
        layer.candidate.multiply(pool, given, stride_, rows,
                                 [&](int64_t row, int64_t column, Vector<float> left, Vector<float> right) {
                                   float* to = more + row * wide_ + column;
                                   store(to, load(to) + left);
                                   store(to + kWide, load(to + kWide) + right);
                                 });
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      const float *z = sums + row * wide_ + H, *inner = more + row * wide_;
      const float* add = table ? tokens_.const_data_ptr<float>() + tokens[row] * tokens_.size(1) + 2 * H : nullptr;
      along(H, [&](int64_t i, int count) {
        Vector<float> sum = load(inner + i, count);
        if (add != nullptr) sum += load(add + i, count);
        const Vector<float> keep = load(z + i, count), old = load(h + row * H + i, count);
        store(h + row * H + i, keep * old + (1.0f - keep) * tanh<float>(sum), count);
      });
    }
  }

  CellKind kind_;
  bool ready_ = false;  // whether `tokens_` holds what each token adds to the gates of the first layer
  int64_t widest_ = 0, bytes_ = 0;
  Tensor tokens_;
  Matrix<W> head_;
  std::vector<Layer<W>> layers_;
  int64_t rows_ = 0, stride_ = 0, wide_ = 0;
  Lines<float> given_, sums_, more_;
};

}  // namespace seriatim
