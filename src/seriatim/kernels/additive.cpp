// Scores of additive attention, Σ_h w_h tanh(q_h + k_h), without storing the tanh of all pairs of query and key: the
// backward pass recomputes it, and adds the gradients of the keys to those of other steps.

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "simd.h"

namespace seriatim {
namespace {

using at::Tensor;

void check(const Tensor& query, const Tensor& key, const Tensor& weight) {
  TORCH_CHECK(query.dim() == 3 && key.dim() == 3 && weight.dim() == 1, "query (B,T,H), key (B,S,H), weight (H)");
  TORCH_CHECK(query.size(0) == key.size(0), "as many queries as keys: ", query.size(0), " and ", key.size(0), " rows");
  TORCH_CHECK(query.size(2) == key.size(2) && query.size(2) == weight.size(0), "sizes differ: ", query.size(2), ", ",
              key.size(2), ", ", weight.size(0));
  TORCH_CHECK(query.scalar_type() == key.scalar_type() && query.scalar_type() == weight.scalar_type(),
              "query, key and weight must be of one type");
}

template <typename T>
T total(Vector<T> vector) {
  T sum = 0;
  for (int lane = 0; lane < kLanes<T>; ++lane) sum += vector[lane];
  return sum;
}

template <typename T>
T score(const T* query, const T* key, const T* weight, int64_t size) {
  Vector<T> sum{};
  for (int64_t h = 0; h < size; h += kLanes<T>) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes<T>, size - h));
    sum += load(weight + h, count) * tanh<T>(load(query + h, count) + load(key + h, count));
  }
  return total<T>(sum);
}

template <typename T>
void score_backward(T gradient, const T* query, const T* key, const T* weight, int64_t size, T* of_query, T* of_key,
                    T* of_weight) {
  for (int64_t h = 0; h < size; h += kLanes<T>) {
    const int count = static_cast<int>(std::min<int64_t>(kLanes<T>, size - h));
    const Vector<T> y = tanh<T>(load(query + h, count) + load(key + h, count));
    const Vector<T> inner = gradient * load(weight + h, count) * (T(1) - y * y);
    store(of_query + h, load(of_query + h, count) + inner, count);
    store(of_key + h, load(of_key + h, count) + inner, count);
    store(of_weight + h, load(of_weight + h, count) + gradient * y, count);
  }
}

int64_t grain(int64_t steps, int64_t places, int64_t size) {
  return std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, steps * places * size));
}

Tensor additive_scores(const Tensor& query, const Tensor& key, const Tensor& weight) {
  check(query, key, weight);
  const Tensor q = query.contiguous(), k = key.contiguous(), w = weight.contiguous();
  const int64_t steps = q.size(1), places = k.size(1), size = q.size(2);
  Tensor scores = at::empty({q.size(0), steps, places}, q.options());
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "additive_scores", [&] {
    const auto *of_q = q.const_data_ptr<scalar_t>(), *of_k = k.const_data_ptr<scalar_t>();
    const auto* of_w = w.const_data_ptr<scalar_t>();
    auto* to = scores.data_ptr<scalar_t>();
    at::parallel_for(0, q.size(0), grain(steps, places, size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t t = 0; t < steps; ++t) {
          for (int64_t s = 0; s < places; ++s) {
            to[(row * steps + t) * places + s] = score<scalar_t>(of_q + (row * steps + t) * size,
                                                                 of_k + (row * places + s) * size, of_w, size);
          }
        }
      }
    });
  });
  return scores;
}

// Adds the gradient of the keys to `of_key`; gives those of the queries, and of the weight for each row (B,H).
std::tuple<Tensor, Tensor> additive_scores_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                                    const Tensor& weight, Tensor of_key) {
  check(query, key, weight);
  TORCH_CHECK(of_key.is_contiguous() && of_key.sizes() == key.sizes() && of_key.scalar_type() == key.scalar_type(),
              "the gradient of the keys must be like the keys, and contiguous");
  TORCH_CHECK(gradient.dim() == 3 && gradient.size(0) == query.size(0) && gradient.size(1) == query.size(1) &&
                  gradient.size(2) == key.size(1) && gradient.scalar_type() == query.scalar_type(),
              "a gradient for each query and key");
  const Tensor g = gradient.contiguous(), q = query.contiguous(), k = key.contiguous(), w = weight.contiguous();
  const int64_t steps = q.size(1), places = k.size(1), size = q.size(2);
  Tensor of_query = at::zeros_like(q), of_weight = at::zeros({q.size(0), size}, q.options());
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "additive_scores_backward", [&] {
    const auto *of_g = g.const_data_ptr<scalar_t>(), *of_q = q.const_data_ptr<scalar_t>();
    const auto *of_k = k.const_data_ptr<scalar_t>(), *of_w = w.const_data_ptr<scalar_t>();
    auto *to_q = of_query.data_ptr<scalar_t>(), *to_k = of_key.data_ptr<scalar_t>();
    auto* to_w = of_weight.data_ptr<scalar_t>();
    at::parallel_for(0, q.size(0), grain(steps, places, size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t t = 0; t < steps; ++t) {
          const int64_t asks = (row * steps + t) * size;
          for (int64_t s = 0; s < places; ++s) {
            const int64_t place = (row * places + s) * size;
            score_backward<scalar_t>(of_g[(row * steps + t) * places + s], of_q + asks, of_k + place, of_w, size,
                                     to_q + asks, to_k + place, to_w + row * size);
          }
        }
      }
    });
  });
  return {of_query, of_weight};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(seriatim, library) {
  library.def("additive_scores(Tensor query, Tensor key, Tensor weight) -> Tensor");
  library.def(
      "additive_scores_backward(Tensor gradient, Tensor query, Tensor key, Tensor weight, Tensor(a!) of_key) -> "
      "(Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(seriatim, CPU, library) {
  library.impl("additive_scores", additive_scores);
  library.impl("additive_scores_backward", additive_scores_backward);
}

}  // namespace seriatim
