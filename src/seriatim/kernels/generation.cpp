// Generation: a whole network, from tokens to the scores of the next ones, in one call per token, or per many tokens.
//
// Weights are packed once. A state is returned by `from_state`, `prefill`, `step`, `select` and `generate`, and may be
// continued at any time. Everything is checked before the threads start, and one call at a time uses the network.

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <limits>
#include <mutex>
#include <tuple>

#include "blocks.h"
#include "cells.h"

namespace seriatim {
namespace {

template <typename W>
std::unique_ptr<Model> model_of(const std::string& kind, const std::vector<Tensor>& tensors,
                                const std::vector<int64_t>& sizes, const std::vector<double>& numbers) {
  if (kind == "transformer") return std::make_unique<Transformer<W>>(tensors, sizes, numbers);
  TORCH_CHECK_VALUE(kind == "recurrent", "there is no native step for ", kind);
  return std::make_unique<Stack<W>>(tensors, sizes);
}

Tensor whole_numbers(const Tensor& tensor, int64_t count, int64_t most, const char* name) {
  TORCH_CHECK_TYPE(tensor.scalar_type() == at::kLong, name, " must be int64, not ", tensor.scalar_type());
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), name, " must be on the CPU, not on ", tensor.device());
  TORCH_CHECK_VALUE(tensor.dim() == 1 && (count < 0 || tensor.size(0) == count), name, " has shape ", tensor.sizes(),
                    ", expected one for each of ", count, " rows");
  Tensor numbers = tensor.contiguous();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    const int64_t value = numbers.const_data_ptr<int64_t>()[i];
    TORCH_CHECK_INDEX(value >= 0 && value < most, name, " has ", value, ", there are ", most);
  }
  return numbers;
}

class Generator : public torch::CustomClassHolder {
 public:
  Generator(std::string kind, std::vector<Tensor> tensors, std::vector<int64_t> sizes, std::vector<double> numbers,
            bool bytes)
      : model_(bytes ? model_of<int8_t>(kind, tensors, sizes, numbers)
                     : model_of<float>(kind, tensors, sizes, numbers)) {}

  ProgressPtr from_state(std::vector<Tensor> state, std::optional<Tensor> real, std::vector<Tensor> memory,
                    std::optional<Tensor> mask) {
    return model_->begin(state, real, memory, mask);
  }

  ProgressPtr select(ProgressPtr before, Tensor rows) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const Tensor chosen = whole_numbers(rows, -1, before->rows, "rows");
    return model_->select(*before, chosen.const_data_ptr<int64_t>(), chosen.numel());
  }

  void extend_positions(Tensor positions) {
    const std::lock_guard<std::mutex> guard(mutex_);
    model_->extend(positions);
  }

  // Log-probabilities (N, V) of what follows one more token of each row, and the state behind it.
  std::tuple<Tensor, ProgressPtr> step(Tensor tokens, ProgressPtr before) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const int64_t rows = before->rows, V = model_->vocabulary();
    const Tensor given = whole_numbers(tokens, rows, V, "tokens");
    model_->pool().resize(at::get_num_threads());
    if (rows == 0) return {at::empty({rows, V}, at::kFloat), before};
    ProgressPtr after = model_->advance(*before, given.const_data_ptr<int64_t>());
    return {log_probs(rows), after};
  }

  // The same behind the first tokens (N, T) of rows, one after the other.
  std::tuple<Tensor, ProgressPtr> prefill(Tensor tokens) {
    const std::lock_guard<std::mutex> guard(mutex_);
    TORCH_CHECK_VALUE(tokens.dim() == 2 && tokens.numel() > 0, "tokens has shape ", tokens.sizes(),
                      ", expected rows of tokens");
    const int64_t rows = tokens.size(0);
    const Tensor given = whole_numbers(tokens.t().flatten(), tokens.numel(), model_->vocabulary(), "tokens");
    model_->pool().resize(at::get_num_threads());
    ProgressPtr at = model_->fresh(rows);
    for (int64_t i = 0; i < given.numel(); i += rows) at = model_->advance(*at, given.const_data_ptr<int64_t>() + i);
    return {log_probs(rows), at};
  }

  // Up to `steps` tokens of each row: each is chosen behind the one before it, the first behind `tokens`. A row ends
  // behind `end` or with its `limits`-th token. Gives the tokens (N, steps), −1 where there is none, their
  // log-probabilities, and the state of the rows that go on, behind all but the last of them. `banned` tokens are never chosen, `end` not among
  // the first `least`. With uniform numbers (N, steps) tokens are drawn, else they are the likeliest.
  std::tuple<Tensor, Tensor, ProgressPtr> generate(Tensor tokens, ProgressPtr before, int64_t steps, Tensor limits,
                                             int64_t end, int64_t least, std::vector<int64_t> banned,
                                             std::optional<Tensor> uniforms, double temperature, int64_t top_k,
                                             double top_p) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const int64_t rows = before->rows, V = model_->vocabulary();
    const Tensor given = whole_numbers(tokens, rows, V, "tokens");
    const Tensor most = whole_numbers(limits, rows, std::numeric_limits<int64_t>::max(), "limits");
    TORCH_CHECK_VALUE(steps >= 1, "there must be steps, not ", steps);
    for (int64_t token : banned) TORCH_CHECK_INDEX(token >= 0 && token < V, "there is no token ", token);
    Tensor numbers;
    if (uniforms) {
      TORCH_CHECK_TYPE(uniforms->scalar_type() == at::kDouble, "uniforms must be float64");
      TORCH_CHECK_VALUE(uniforms->device().is_cpu() && uniforms->sizes() == at::IntArrayRef({rows, steps}),
                        "uniforms has shape ", uniforms->sizes(), ", expected ", at::IntArrayRef({rows, steps}));
      TORCH_CHECK_VALUE(temperature > 0, "draws need a temperature above 0");
      numbers = uniforms->contiguous();
    }
    const Choice choice{temperature, top_p, top_k};
    model_->pool().resize(at::get_num_threads());
    Tensor found = at::full({rows, steps}, -1, at::kLong), gains = at::zeros({rows, steps}, at::kDouble);
    std::vector<int64_t> alive(rows), next(given.const_data_ptr<int64_t>(), given.const_data_ptr<int64_t>() + rows);
    std::iota(alive.begin(), alive.end(), 0);
    ProgressPtr at = before;
    for (int64_t place = 0; place < steps && !alive.empty(); ++place) {
      at = model_->advance(*at, next.data());
      over_rows(static_cast<int64_t>(alive.size()), [&](int64_t index) {
        const int64_t row = alive[index];
        float* scores = model_->scores(index);
        thread_local std::vector<float> scratch, weights;
        thread_local std::vector<int64_t> order;
        scratch.resize(V);
        const float sum = log_sum(scores, V, scratch.data());
        for (int64_t token : banned) scores[token] = -INFINITY;
        if (end >= 0 && place < least) scores[end] = -INFINITY;
        const int64_t token = uniforms ? drawn(scores, V, choice, numbers.const_data_ptr<double>()[row * steps + place],
                                               weights, order)
                                       : likeliest(scores, V);
        if (scores[token] == -INFINITY) return;  // nothing may follow
        found.data_ptr<int64_t>()[row * steps + place] = token;
        gains.data_ptr<double>()[row * steps + place] = scores[token] - sum;
      });
      std::vector<int64_t> stay, still;
      next.clear();
      for (size_t index = 0; index < alive.size(); ++index) {
        const int64_t row = alive[index], token = found.const_data_ptr<int64_t>()[row * steps + place];
        if (token < 0 || token == end || place + 1 >= most.const_data_ptr<int64_t>()[row]) continue;
        stay.push_back(static_cast<int64_t>(index));
        still.push_back(row);
        next.push_back(token);
      }
      if (stay.size() < alive.size()) at = model_->select(*at, stay.data(), static_cast<int64_t>(stay.size()));
      alive = std::move(still);
    }
    return {found, gains, at};
  }

 private:
  // Of what follows, by the last step.
  Tensor log_probs(int64_t rows) {
    const int64_t V = model_->vocabulary();
    Tensor found = at::empty({rows, V}, at::kFloat);
    over_rows(rows, [&](int64_t row) {
      float* to = found.data_ptr<float>() + row * V;
      const float sum = log_sum(model_->scores(row), V, to);
      for (int64_t i = 0; i < V; ++i) to[i] = model_->scores(row)[i] - sum;
    });
    return found;
  }

  template <typename F>
  void over_rows(int64_t rows, const F& f) {
    model_->pool().each(rows, [&](int64_t row, int) { f(row); });
  }

  std::unique_ptr<Model> model_;
  std::mutex mutex_;
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.class_<Progress>("Progress");
  library.class_<Generator>("Generator")
      .def(torch::init<std::string, std::vector<Tensor>, std::vector<int64_t>, std::vector<double>, bool>())
      .def("from_state", &Generator::from_state)
      .def("extend_positions", &Generator::extend_positions)
      .def("prefill", &Generator::prefill)
      .def("select", &Generator::select)
      .def("step", &Generator::step)
      .def("generate", &Generator::generate);
}

}  // namespace seriatim
