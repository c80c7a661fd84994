// One generation step of a stack of Transformer blocks, as in nn/transformer.py, for one token of each row.
#pragma once

#include "activation.h"
#include "step.h"

namespace seriatim {

struct Norm {
  Tensor weight, bias;
  float epsilon = 0;

  void operator()(const float* x, float* y, int64_t size) const {
    Vector<float> sums{};
    int64_t i = 0;
    float sum = 0, square = 0;
    for (; i + kWide <= size; i += kWide) sums += load(x + i);
    for (; i < size; ++i) sum += x[i];
    const float mean = (sum + sum_of(sums)) / static_cast<float>(size);
    sums = Vector<float>{};
    for (i = 0; i + kWide <= size; i += kWide) {
      const Vector<float> away = load(x + i) - mean;
      sums += away * away;
    }
    for (; i < size; ++i) square += (x[i] - mean) * (x[i] - mean);
    const float factor = 1.0f / std::sqrt((square + sum_of(sums)) / static_cast<float>(size) + epsilon);
    const float *w = weight.const_data_ptr<float>(), *b = bias.const_data_ptr<float>();
    for (i = 0; i + kWide <= size; i += kWide) {
      store(y + i, (load(x + i) - mean) * factor * load(w + i) + load(b + i));
    }
    for (; i < size; ++i) y[i] = (x[i] - mean) * factor * w[i] + b[i];
  }
};

template <typename W>
struct Block {
  Norm attention_norm, cross_norm, feedforward_norm;
  Matrix<W> inputs, output, cross_query, cross_output, hidden, back;
};

template <typename W>
class Transformer : public Model {
 public:
  // sizes: layers, heads, whether the norm stands before each part, whether there is cross-attention, the activation;
  // numbers: epsilon of the norms, what token vectors are multiplied by.
  Transformer(const std::vector<Tensor>& tensors, const std::vector<int64_t>& sizes,
              const std::vector<double>& numbers) {
    TORCH_CHECK_VALUE(sizes.size() == 5 && numbers.size() == 2, "a Transformer has 5 sizes and 2 numbers");
    const int64_t layers = sizes[0];
    heads_ = sizes[1], before_ = sizes[2] != 0, cross_ = sizes[3] != 0;
    TORCH_CHECK_VALUE(layers >= 1 && heads_ >= 1, "there must be layers and heads");
    TORCH_CHECK_VALUE(sizes[4] >= 0 && sizes[4] <= 3, "there is no activation ", sizes[4]);
    activation_ = static_cast<Activation>(sizes[4]);
    const auto epsilon = static_cast<float>(numbers[0]);
    scale_ = static_cast<float>(numbers[1]);
    Taking take(tensors);
    tokens_ = take.next({-1, -1}, "tokens");
    const int64_t D = width_ = tokens_.size(1);
    TORCH_CHECK_VALUE(D >= 1 && D % heads_ == 0, "width ", D, " is not a multiple of heads ", heads_);
    positions_ = take.next({-1, D}, "positions");
    const auto norm = [&](const char* name) { return Norm{take.next({D}, name), take.next({D}, name), epsilon}; };
    const auto product = [&](int64_t columns, int64_t depth, const char* name) {
      const Tensor weight = take.next({columns, depth}, name);
      Matrix<W> matrix({weight}, take.optional({weight.size(0)}, name));
      bytes_ += matrix.bytes();
      return matrix;
    };
    first_ = {take.optional({D}, "the first norm"), take.optional({D}, "the first norm"), epsilon};
    final_ = {take.optional({D}, "the last norm"), take.optional({D}, "the last norm"), epsilon};
    head_ = product(-1, D, "head");
    vocabulary_ = head_.columns();
    for (int64_t layer = 0; layer < layers; ++layer) {
      Block<W>& block = blocks_.emplace_back();
      block.attention_norm = norm("attention_norm");
      block.inputs = product(3 * D, D, "attention.inputs");
      block.output = product(D, D, "attention.output");
      if (cross_) {
        block.cross_norm = norm("cross_norm");
        block.cross_query = product(D, D, "cross.query");
        block.cross_output = product(D, D, "cross.output");
      }
      block.feedforward_norm = norm("feedforward_norm");
      block.hidden = product(-1, D, "feedforward.hidden");
      block.back = product(D, block.hidden.columns(), "feedforward.output");
      hidden_ = std::max(hidden_, block.hidden.columns());
    }
    take.end();
  }

  void extend(const Tensor& positions) override { positions_ = checked(positions, {-1, width_}, "positions"); }

  ProgressPtr fresh(int64_t rows) override {
    const Tensor nothing = at::empty({rows, 2 * heads_, 0, width_ / heads_}, at::kFloat);
    return begin(std::vector<Tensor>(blocks_.size(), nothing), {}, {}, {});
  }

  ProgressPtr begin(const std::vector<Tensor>& state, const std::optional<Tensor>& real,
                    const std::vector<Tensor>& memory, const std::optional<Tensor>& mask) override {
    const auto layers = static_cast<int64_t>(blocks_.size());
    TORCH_CHECK_VALUE(static_cast<int64_t>(state.size()) == layers, "a state of ", state.size(), " layers for ", layers);
    auto after = c10::make_intrusive<Progress>();
    const int64_t size = width_ / heads_, rows = state[0].size(0);
    std::vector<Tensor> read;
    for (const auto& layer : state) {
      TORCH_CHECK_VALUE(layer.dim() == 4, "keys and values must be (B, 2*heads, S, d), not ", layer.sizes());
      read.push_back(checked(layer, {rows, 2 * heads_, state[0].size(2), size}, "keys and values"));
    }
    const int64_t places = state[0].size(2);
    Tensor seen = places > 0 ? mask_of(real, rows, places, "the mask of the places") : Tensor();
    remember(*after, memory, mask, rows);
    after->rows = rows;
    after->pages = std::make_shared<Pages>(layers, heads_, size);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t slot = after->pages->add_slot();
      Line& line = after->lines.emplace_back();
      line.runs = std::make_shared<const std::vector<Run>>(std::vector<Run>{{0, slot}});
      line.source = row;
      for (int64_t place = 0; place < places; ++place) {
        if (seen.defined() && !seen.const_data_ptr<bool>()[row * places + place]) continue;
        after->pages->prepare(slot, line.length);
        for (int64_t layer = 0; layer < layers; ++layer) {
          for (int64_t head = 0; head < heads_; ++head) {
            const float* key = read[layer].const_data_ptr<float>() + ((row * 2 * heads_ + head) * places + place) * size;
            after->pages->write(slot, line.length, layer, head, key, 1, key + heads_ * places * size, 1);
          }
        }
        ++line.length;
      }
    }
    return after;
  }

  ProgressPtr advance(const Progress& before, const int64_t* tokens) override {
    auto after = c10::make_intrusive<Progress>(before);
    const int64_t rows = before.rows;
    int64_t longest = before.memory ? before.memory->longest : 0;
    for (int64_t row = 0; row < rows; ++row) {
      TORCH_CHECK_VALUE(before.lines[row].length < positions_.size(0), "there are positions for ", positions_.size(0),
                        " tokens, and row ", row, " has them already");
      longest = std::max(longest, before.lines[row].length + 1);
    }
    if (after->pages->version != after->version) after->pages = after->pages->copy();
    Pages& pages = *after->pages;
    after->version = ++pages.version;
    for (const Line& line : after->lines) pages.prepare(line.slot(), line.length);
    resize(rows, longest);
    run(rows, bytes_, [&](auto& executor, int64_t first, int64_t last) {
      forward(executor, *after, tokens, first, last);
    });
    for (Line& line : after->lines) ++line.length;
    return after;
  }

  // Nothing is copied: a row goes on in the slot of its parent or, if another has taken that, in one that nobody goes
  // on with and in which nothing stands where it is going to write.
  ProgressPtr select(const Progress& before, const int64_t* rows, int64_t count) override {
    auto after = c10::make_intrusive<Progress>(before);
    if (after->pages->version != after->version) {
      after->pages = after->pages->copy();
      after->version = after->pages->version;
    }
    Pages& pages = *after->pages;
    after->version = ++pages.version;
    std::vector<bool> taken(pages.written.size());
    after->rows = count;
    after->lines.assign(count, Line());
    std::vector<int64_t> late;
    for (int64_t i = 0; i < count; ++i) {
      const Line& parent = before.lines[rows[i]];
      after->lines[i] = parent;
      if (taken[parent.slot()]) {
        late.push_back(i);
      } else {
        taken[parent.slot()] = true;
      }
    }
    for (int64_t i : late) {
      Line& line = after->lines[i];
      int64_t slot = -1;  // the fullest that serves: emptier ones may serve others
      for (size_t s = 0; s < taken.size(); ++s) {
        if (taken[s] || pages.written[s] > line.length) continue;
        if (slot < 0 || pages.written[s] > pages.written[slot]) slot = static_cast<int64_t>(s);
      }
      if (slot < 0) {
        slot = pages.add_slot();
      } else {
        taken[slot] = true;
      }
      auto runs = *line.runs;
      if (runs.back().from == line.length) runs.pop_back();
      runs.push_back({line.length, slot});
      line.runs = std::make_shared<const std::vector<Run>>(std::move(runs));
    }
    return after;
  }

 private:
  static Tensor mask_of(const std::optional<Tensor>& mask, int64_t rows, int64_t places, const char* name) {
    if (!mask) return Tensor();
    TORCH_CHECK_TYPE(mask->scalar_type() == at::kBool, name, " must be boolean, not ", mask->scalar_type());
    TORCH_CHECK_VALUE(mask->device().is_cpu(), name, " must be on the CPU");
    TORCH_CHECK_VALUE(mask->sizes() == at::IntArrayRef({rows, places}), name, " has shape ", mask->sizes(),
                      ", expected ", at::IntArrayRef({rows, places}));
    return mask->contiguous();
  }

  void remember(Progress& after, const std::vector<Tensor>& memory, const std::optional<Tensor>& mask, int64_t rows) {
    TORCH_CHECK_VALUE(memory.size() == (cross_ ? blocks_.size() : 0), "a memory of ", memory.size(), " layers for ",
                      cross_ ? blocks_.size() : 0);
    if (!cross_) return;
    std::vector<Tensor> read;
    for (const auto& layer : memory) {
      TORCH_CHECK_VALUE(layer.dim() == 3, "memory must be (B, S, 2*width), not ", layer.sizes());
      read.push_back(checked(layer, {rows, memory[0].size(1), 2 * width_}, "memory"));
    }
    const Tensor seen = mask_of(mask, rows, memory[0].size(1), "the mask of the memory");
    after.memory = std::make_shared<const Memory>(read, seen.defined() ? seen.const_data_ptr<bool>() : nullptr, heads_);
  }

  void resize(int64_t rows, int64_t longest) {
    resize_scores(rows);
    const int64_t workers = pool().workers();
    if (rows > rows_) {
      stride_ = spaced(width_), inner_ = spaced(std::max(3 * width_, hidden_));
      x_ = Lines<float>(rows * stride_), y_ = Lines<float>(rows * stride_), inside_ = Lines<float>(rows * inner_);
      rows_ = rows;
    }
    if (workers > static_cast<int64_t>(spans_.size()) || longest > longest_) {
      longest_ = std::max(longest_, 2 * longest);
      one_ = filled_up(longest_ + filled_up(width_ / heads_, kWide) + 6 * kPanel, 16);
      spans_.resize(std::max<size_t>(workers, spans_.size()));
      scratch_ = Lines<float>(static_cast<int64_t>(spans_.size()) * one_);
    }
  }

  template <typename E>
  void forward(E& pool, const Progress& at, const int64_t* tokens, int64_t first, int64_t last) {
    const int64_t D = width_, rows = last - first;
    float *x = x_ + first * stride_, *y = y_ + first * stride_, *inside = inside_ + first * inner_;
    for (int64_t row = 0; row < rows; ++row) {
      const float* token = tokens_.const_data_ptr<float>() + tokens[first + row] * D;
      const float* place = positions_.const_data_ptr<float>() + at.lines[first + row].length * D;
      for (int64_t i = 0; i < D; ++i) x[row * stride_ + i] = token[i] * scale_ + place[i];
    }
    const auto norm = [&](const Norm& by, const float* from, float* to) {
      for (int64_t row = 0; row < rows; ++row) by(from + row * stride_, to + row * stride_, D);
    };
    const auto into = [&](float* to, int64_t stride) {
      return [=](int64_t row, int64_t column, Vector<float> left, Vector<float> right) {
        store(to + row * stride + column, left);
        store(to + row * stride + column + kWide, right);
      };
    };
    const auto added = [&](int64_t row, int64_t column, Vector<float> left, Vector<float> right) {
      float* to = x + row * stride_ + column;
      store(to, load(to) + left);
      store(to + kWide, load(to + kWide) + right);
    };
    const auto opened = [&](const Norm& by) { return before_ ? norm(by, x, y), y : x; };
    const auto closed = [&](const Norm& by) {
      if (!before_) norm(by, x, x);
    };
    if (first_.weight.defined()) norm(first_, x, x);
    for (size_t layer = 0; layer < blocks_.size(); ++layer) {
      const Block<W>& block = blocks_[layer];
      block.inputs.multiply(pool, opened(block.attention_norm), stride_, rows, into(inside, inner_));
      heads(pool, rows, [&](int64_t row, int64_t head, int worker) {
        const Line& line = at.lines[first + row];
        const int64_t size = D / heads_;
        const float* query = inside + row * inner_ + head * size;
        at.pages->write(line.slot(), line.length, layer, head, query + D, 1, query + 2 * D, 1);
        at.pages->spans(line, layer, head, spans_[worker]);
        gather(query, y + row * stride_ + head * size, worker);
      }, at.lines[first].length);
      block.output.multiply(pool, y, stride_, rows, added);
      closed(block.attention_norm);
      if (cross_) {
        block.cross_query.multiply(pool, opened(block.cross_norm), stride_, rows, into(inside, inner_));
        heads(pool, rows, [&](int64_t row, int64_t head, int worker) {
          const int64_t size = D / heads_;
          at.memory->spans(at.lines[first + row].source, layer, head, spans_[worker]);
          gather(inside + row * inner_ + head * size, y + row * stride_ + head * size, worker);
        }, at.memory->longest);
        block.cross_output.multiply(pool, y, stride_, rows, added);
        closed(block.cross_norm);
      }
      const auto bent = [&](int64_t row, int64_t column, Vector<float> left, Vector<float> right) {
        float* to = inside + row * inner_ + column;
        store(to, activated<float>(left, activation_));
        store(to + kWide, activated<float>(right, activation_));
      };
      block.hidden.multiply(pool, opened(block.feedforward_norm), stride_, rows, bent);
      block.back.multiply(pool, inside, inner_, rows, added);
      closed(block.feedforward_norm);
    }
    const float* top = x;
    if (final_.weight.defined()) norm(final_, x, y), top = y;
    head_.multiply(pool, top, stride_, rows,
                   [&](int64_t row, int64_t column, Vector<float> left, Vector<float> right) {
                     store(scores(first + row) + column, left);
                     store(scores(first + row) + column + kWide, right);
                   });
  }

  // Attention of all heads of all rows; by one thread where it is little.
  template <typename E, typename F>
  void heads(E& pool, int64_t rows, const F& f, int64_t places) {
    if (rows * width_ * places < (1 << 16)) {
      for (int64_t i = 0; i < rows * heads_; ++i) f(i / heads_, i % heads_, worker_of(pool));
    } else {
      pool.each(rows * heads_, [&](int64_t i, int worker) { f(i / heads_, i % heads_, worker); });
    }
  }

  static int worker_of(const ThreadPool&) { return 0; }
  static int worker_of(const Alone& alone) { return alone.worker; }

  void gather(const float* query, float* to, int worker) {
    const int64_t size = width_ / heads_, width = filled_up(size, kWide);
    float* out = scratch_ + worker * one_;
    attend(spans_[worker], query, size, width, 1.0f / std::sqrt(static_cast<float>(size)), out + width, out);
    std::copy_n(out, size, to);
  }

  int64_t width_, heads_, hidden_ = 0, bytes_ = 0;
  bool before_, cross_;
  Activation activation_;
  float scale_;
  Tensor tokens_, positions_;
  Norm first_, final_;  // of the inputs and of the outputs
  Matrix<W> head_;
  std::vector<Block<W>> blocks_;
  int64_t rows_ = 0, stride_ = 0, inner_ = 0, longest_ = 0, one_ = 0;
  Lines<float> x_, y_, inside_, scratch_;
  std::vector<std::vector<Span>> spans_;
};

}  // namespace seriatim
