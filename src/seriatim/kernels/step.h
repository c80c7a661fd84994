// Shared by all generation steps: the state of a batch of rows, the output head, and the choice of tokens.
#pragma once

#include <ATen/Parallel.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "cache.h"
#include "thread_pool.h"

namespace seriatim {

using at::Tensor;

// The state behind some tokens of some rows: of a Transformer where its keys and values stand, of a recurrent network
// its vectors, (rows, width) each.
struct Progress : torch::CustomClassHolder {
  int64_t rows = 0;
  std::shared_ptr<Pages> pages;
  uint64_t version = 0;
  std::vector<Line> lines;
  std::shared_ptr<const Memory> memory;
  std::vector<std::vector<float>> vectors;
};
using ProgressPtr = c10::intrusive_ptr<Progress>;

// How to choose among the scores of one row.
struct Choice {
  double temperature = 0, top_p = 1;  // temperature 0: the likeliest
  int64_t top_k = 0;                  // 0: of all
};

inline Tensor checked(const Tensor& tensor, at::IntArrayRef sizes, const char* name) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == at::kFloat, name, " must be float32, not ", tensor.scalar_type());
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), name, " must be on the CPU, not on ", tensor.device());
  TORCH_CHECK_VALUE(tensor.dim() == static_cast<int64_t>(sizes.size()), name, " has shape ", tensor.sizes(),
                    ", expected ", sizes.size(), " dimensions");
  for (int64_t i = 0; i < tensor.dim(); ++i) {  // −1: any
    TORCH_CHECK_VALUE(sizes[i] < 0 || tensor.size(i) == sizes[i], name, " has shape ", tensor.sizes(), ", expected ",
                      sizes);
  }
  return tensor.contiguous();
}

// Tensors of a network one after the other, each checked as it is taken; empty where there is none.
class Taking {
 public:
  explicit Taking(const std::vector<Tensor>& tensors) : tensors_(tensors) {}
  Tensor next(at::IntArrayRef sizes, const char* name) {
    TORCH_CHECK_VALUE(place_ < tensors_.size(), name, " is missing");
    return checked(tensors_[place_++], sizes, name);
  }
  Tensor optional(at::IntArrayRef sizes, const char* name) {
    TORCH_CHECK_VALUE(place_ < tensors_.size(), name, " is missing");
    if (tensors_[place_].numel() == 0) return ++place_, Tensor();
    return next(sizes, name);
  }
  void end() const { TORCH_CHECK_VALUE(place_ == tensors_.size(), tensors_.size() - place_, " tensors too many"); }

 private:
  const std::vector<Tensor>& tensors_;
  size_t place_ = 0;
};

// The distance between the rows of a working matrix.
inline int64_t spaced(int64_t columns) { return filled_up(columns, kPanel) + 16; }

class Model {
 public:
  virtual ~Model() = default;

  // The state before the first token.
  virtual ProgressPtr fresh(int64_t rows) = 0;
  // The state behind a prompt that was read elsewhere.
  virtual ProgressPtr begin(const std::vector<Tensor>& state, const std::optional<Tensor>& real,
                            const std::vector<Tensor>& memory, const std::optional<Tensor>& mask) = 0;
  // One more token of each row: the scores of what follows are in `scores(row)` then.
  virtual ProgressPtr advance(const Progress& before, const int64_t* tokens) = 0;
  // More positions, where there is a table of them.
  virtual void extend(const Tensor& positions) { TORCH_CHECK_VALUE(false, "there are no positions"); }
  virtual ProgressPtr select(const Progress& before, const int64_t* rows, int64_t count) = 0;

  int64_t vocabulary() const { return vocabulary_; }
  float* scores(int64_t row) const { return scores_ + row * score_stride_; }
  ThreadPool& pool() { return pool_; }

 protected:
  // The threads share each product; but where all that a model has of weights is so little that a product is over before
  // another thread has noticed it, each takes rows of its own through the whole of it.
  static constexpr int64_t kApart = 512 << 10;  // bytes

  // Runs whole(executor, first row, last row) for all rows in one of the two ways.
  template <typename F>
  void run(int64_t rows, int64_t bytes, const F& whole) {
    if (bytes > kApart) return whole(pool_, 0, rows);
    const int64_t groups = std::min<int64_t>(rows, pool_.workers() == 1 ? 1 : 2 * pool_.workers());
    const int64_t enough = std::max<int64_t>(groups, (rows + 15) / 16);
    pool_.each(enough, [&](int64_t group, int worker) {
      Alone alone{worker};
      whole(alone, rows * group / enough, rows * (group + 1) / enough);
    });
  }

  void resize_scores(int64_t rows) {
    if (rows <= score_rows_) return;
    score_stride_ = spaced(vocabulary_);
    scores_ = Lines<float>(rows * score_stride_);
    score_rows_ = rows;
  }

  int64_t vocabulary_ = 0;

 private:
  int64_t score_stride_ = 0, score_rows_ = 0;
  Lines<float> scores_;
  ThreadPool pool_;
};

// ---- from scores to tokens -------------------------------------------------------------------------------------

// log Σ e^s, with `scratch` for as many numbers.
inline float log_sum(const float* scores, int64_t count, float* scratch) {
  const float most = max_of(scores, count);
  return most + std::log(exponentials(scores, scratch, count, most));
}

// The first that is drawn by a uniform number in [0, 1) after temperature, the k likeliest and the share p; as
// decode/sampling.py does it. Scores of what may not be are −∞.
inline int64_t drawn(const float* scores, int64_t count, const Choice& choice, double uniform,
                     std::vector<float>& weights, std::vector<int64_t>& order) {
  weights.resize(count);
  for (int64_t i = 0; i < count; ++i) weights[i] = scores[i] / static_cast<float>(choice.temperature);
  if (choice.top_k > 0 && choice.top_k < count) {
    std::vector<float> sorted(weights);
    std::nth_element(sorted.begin(), sorted.begin() + (choice.top_k - 1), sorted.end(), std::greater<float>());
    const float lowest = sorted[choice.top_k - 1];
    for (float& weight : weights) {
      if (weight < lowest) weight = -INFINITY;
    }
  }
  const float most = max_of(weights.data(), count);
  float sum = 0;
  for (float& weight : weights) sum += weight = weight == -INFINITY ? 0.0f : std::exp(weight - most);
  for (float& weight : weights) weight /= sum;
  if (choice.top_p < 1) {
    order.resize(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return weights[a] > weights[b]; });
    float before = 0;
    for (int64_t place : order) {
      const float own = weights[place];
      if (before >= static_cast<float>(choice.top_p)) weights[place] = 0;
      before += own;
    }
  }
  double total = 0;
  for (float weight : weights) total += weight;
  const double target = uniform * total;
  double passed = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (weights[i] == 0) continue;
    last = i;
    passed += weights[i];
    if (passed > target) return i;
  }
  return last;
}

inline int64_t likeliest(const float* scores, int64_t count) {
  const float most = max_of(scores, count);
  for (int64_t i = 0; i < count; ++i) {
    if (scores[i] == most) return i;
  }
  return 0;
}

}  // namespace seriatim
