// The cache of keys and values, and attention over it.
//
// Memory is allocated in pages of several positions, so that nothing is copied to grow. A row writes into a slot of its
// own and reads, position by position, from the slots in which its past was written: when beam search continues two rows
// from one, only these references are copied. Written memory is never overwritten, so that an older state stays valid; if
// it is continued after another state was continued from it, it gets a full copy.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "matrix.h"

namespace seriatim {

constexpr int64_t kPlaces = 64;  // of a page

SERIATIM_INLINE Vector<float> exp_of(Vector<float> x) {
  const Vector<float> limit = splat(Exponential<float>::kLimit);
  x = clamp_below<float>(clamp_above<float>(x, limit), -limit);
  Vector<float> power, rest;
  split_exp<float>(x, power, rest);
  return power * rest + power;
}

SERIATIM_INLINE float sum_of(Vector<float> vector) {
  float sum = 0;
  for (int lane = 0; lane < kWide; ++lane) sum += vector[lane];
  return sum;
}

SERIATIM_INLINE float max_of(const float* values, int64_t count) {
  float best = values[0];
  int64_t i = 0;
  if (count >= kWide) {
    Vector<float> most = load(values);
    for (i = kWide; i + kWide <= count; i += kWide) {
      const Vector<float> some = load(values + i);
      most = some > most ? some : most;
    }
    for (int lane = 0; lane < kWide; ++lane) best = std::max(best, most[lane]);
  }
  for (; i < count; ++i) best = std::max(best, values[i]);
  return best;
}

// values ← e^(values − most); returns their sum.
inline float exponentials(const float* from, float* to, int64_t count, float most) {
  Vector<float> total{};
  int64_t i = 0;
  for (; i + kWide <= count; i += kWide) {
    const Vector<float> e = exp_of(load(from + i) - most);
    store(to + i, e);
    total += e;
  }
  float sum = sum_of(total);
  for (; i < count; ++i) sum += to[i] = std::exp(from[i] - most);
  return sum;
}

// Places one behind the other: key (i, t) stands at keys[i * stride + t], value (t, i) at values[t * width + i].
struct Span {
  const float* keys;
  int64_t stride;
  const float* values;
  int64_t count;
};

// out (size) = Σ_t softmax(q·k_t · scale) v_t over all spans; `width` is the distance between values, a multiple of a
// vector. What lies behind the last key may be read, and is not used. Without a place, out is zero.
inline void attend(const std::vector<Span>& spans, const float* query, int64_t size, int64_t width, float scale,
                   float* scores, float* out) {
  int64_t total = 0;
  for (const Span& span : spans) {
    int64_t t = 0;
    for (; t + 4 * kWide <= span.count; t += 4 * kWide) {
      Vector<float> sum[4] = {};
      const float* key = span.keys + t;
      for (int64_t i = 0; i < size; ++i, key += span.stride) {
        const Vector<float> q = splat(query[i]);
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) sum[v] += q * load(key + v * kWide);
      }
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) store(scores + total + t + v * kWide, sum[v] * scale);
    }
    for (; t < span.count; t += kWide) {
      Vector<float> sum[2] = {};
      const float* key = span.keys + t;
      int64_t i = 0;
      for (; i + 2 <= size; i += 2, key += 2 * span.stride) {
        sum[0] += query[i] * load(key);
        sum[1] += query[i + 1] * load(key + span.stride);
      }
      if (i < size) sum[0] += query[i] * load(key);
      store(scores + total + t, (sum[0] + sum[1]) * scale);  // scores have room for a vector more
    }
    total += span.count;
  }
  std::fill_n(out, width, 0.0f);
  if (total == 0) return;
  const float inverse = 1.0f / exponentials(scores, scores, total, max_of(scores, total));
  for (int64_t column = 0; column < width; column += 2 * kWide) {
    const bool both = column + kWide < width;
    Vector<float> sum[2][2] = {};
    const float* weight = scores;
    for (const Span& span : spans) {
      const float* value = span.values + column;
      int64_t t = 0;
      for (; t + 2 <= span.count; t += 2, value += 2 * width) {
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
          sum[s][0] += weight[t + s] * load(value + s * width);
          if (both) sum[s][1] += weight[t + s] * load(value + s * width + kWide);
        }
      }
      if (t < span.count) {
        sum[0][0] += weight[t] * load(value);
        if (both) sum[0][1] += weight[t] * load(value + kWide);
      }
      weight += span.count;
    }
    store(out + column, (sum[0][0] + sum[1][0]) * inverse);
    if (both) store(out + column + kWide, (sum[0][1] + sum[1][1]) * inverse);
  }
}

// Where the past of a row stands from some place on.
struct Run {
  int64_t from;
  int64_t slot;
};

// One row of a state.
struct Line {
  std::shared_ptr<const std::vector<Run>> runs;  // the last is of its own slot
  int64_t length = 0;                            // places read
  int64_t source = 0;                            // the row of the memory that it looks at
  int64_t slot() const { return runs->back().slot; }
};

class Pages {
 public:
  Pages(int64_t layers, int64_t heads, int64_t size)
      : layers_(layers), heads_(heads), size_(size), width_(filled_up(size, kWide)) {}

  // A copy for a state that is not the last.
  std::shared_ptr<Pages> copy() const {
    auto other = std::make_shared<Pages>(layers_, heads_, size_);
    other->written = written;
    for (const auto& slot : slots_) {
      auto& to = other->slots_.emplace_back();
      for (const auto& page : slot) {
        to.emplace_back(page.count());
        std::copy_n(static_cast<float*>(page), page.count(), static_cast<float*>(to.back()));
      }
    }
    return other;
  }

  int64_t width() const { return width_; }
  int64_t add_slot() {
    slots_.emplace_back();
    written.push_back(0);
    return static_cast<int64_t>(slots_.size()) - 1;
  }

  // Room for one more place of a slot.
  void prepare(int64_t slot, int64_t place) {
    while (static_cast<int64_t>(slots_[slot].size()) <= place / kPlaces) {
      slots_[slot].emplace_back(layers_ * heads_ * (size_ + width_) * kPlaces + 2 * kPanel);
    }
    written[slot] = std::max(written[slot], place + 1);
  }

  void write(int64_t slot, int64_t place, int64_t layer, int64_t head, const float* key, int64_t key_step,
             const float* value, int64_t value_step) {
    float* to = page(slot, place, layer, head) + place % kPlaces;
    for (int64_t i = 0; i < size_; ++i) to[i * kPlaces] = key[i * key_step];
    float* row = page(slot, place, layer, head) + size_ * kPlaces + place % kPlaces * width_;
    for (int64_t i = 0; i < size_; ++i) row[i] = value[i * value_step];
  }

  // What a row sees, its newest place included.
  void spans(const Line& line, int64_t layer, int64_t head, std::vector<Span>& found) const {
    found.clear();
    const auto& runs = *line.runs;
    for (size_t i = 0; i < runs.size(); ++i) {
      const int64_t end = i + 1 < runs.size() ? runs[i + 1].from : line.length + 1;
      for (int64_t place = runs[i].from; place < end;) {
        const int64_t last = std::min(end, (place / kPlaces + 1) * kPlaces), within = place % kPlaces;
        const float* first = page(runs[i].slot, place, layer, head);
        found.push_back({first + within, kPlaces, first + size_ * kPlaces + within * width_, last - place});
        place = last;
      }
    }
  }

  std::vector<int64_t> written;  // of each slot, the places that ever were
  uint64_t version = 0;          // of the state that may go on here

 private:
  float* page(int64_t slot, int64_t place, int64_t layer, int64_t head) const {
    return slots_[slot][place / kPlaces] + (layer * heads_ + head) * (size_ + width_) * kPlaces;
  }

  int64_t layers_, heads_, size_, width_;
  std::vector<std::vector<Lines<float>>> slots_;
};

// Keys and values of the sources, of each its real places only.
class Memory {
 public:
  // For every layer (B, S, 2·D), keys and values side by side.
  Memory(const std::vector<at::Tensor>& layers, const bool* mask, int64_t heads)
      : heads_(heads), size_(layers[0].size(2) / 2 / heads), width_(filled_up(size_, kWide)) {
    const int64_t rows = layers[0].size(0), places = layers[0].size(1), across = layers[0].size(2);
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int64_t> real;
      for (int64_t s = 0; s < places; ++s) {
        if (mask == nullptr || mask[row * places + s]) real.push_back(s);
      }
      const int64_t count = static_cast<int64_t>(real.size()), stride = filled_up(count, kWide);
      counts_.push_back(count);
      longest = std::max(longest, count);
      auto& block = blocks_.emplace_back(static_cast<int64_t>(layers.size()) * heads * (size_ * stride + count * width_) +
                                         2 * kPanel);
      float* to = block;
      for (const auto& layer : layers) {
        const float* from = layer.const_data_ptr<float>() + row * places * across;
        for (int64_t head = 0; head < heads; ++head, to += size_ * stride + count * width_) {
          for (int64_t t = 0; t < count; ++t) {
            const float* element = from + real[t] * across + head * size_;
            for (int64_t i = 0; i < size_; ++i) to[i * stride + t] = element[i];
            std::copy_n(element + across / 2, size_, to + size_ * stride + t * width_);
          }
        }
      }
    }
  }

  int64_t rows() const { return static_cast<int64_t>(counts_.size()); }

  void spans(int64_t row, int64_t layer, int64_t head, std::vector<Span>& found) const {
    found.clear();
    const int64_t count = counts_[row], stride = filled_up(count, kWide);
    const float* first = blocks_[row] + (layer * heads_ + head) * (size_ * stride + count * width_);
    if (count > 0) found.push_back({first, stride, first + size_ * stride, count});
  }

  int64_t longest = 0;

 private:
  int64_t heads_, size_, width_;
  std::vector<int64_t> counts_;
  std::vector<Lines<float>> blocks_;
};

}  // namespace seriatim
