// A thread pool for the parts of one generation step.
//
// A step is a chain of small products with a barrier after each. With fixed shares, a thread that the system has just
// descheduled would delay all others. Here the items of a job are taken one by one by any thread, and the caller can
// finish the job alone. It waits only for items that another thread has started: spinning for a short time, then asleep,
// so that the system may run the other thread on its core. If that takes long, the other cores are busy with other work,
// and the caller works alone for a while.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace seriatim {

inline void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class ThreadPool {
 public:
  ThreadPool() = default;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  ~ThreadPool() {
    stop_.store(true);
    signal_.fetch_add(1);
    signal_.notify_all();
    for (auto& thread : threads_) {
      if (owner_ == getpid()) {
        thread.join();
      } else {
        thread.detach();  // after a fork there are no threads behind these
      }
    }
  }

  // How many threads take part from now on, the caller among them.
  void resize(int64_t workers) {
    workers_ = static_cast<int>(workers < 1 ? 1 : workers);
    if (!threads_.empty() && owner_ != getpid()) return;
    owner_ = getpid();
    allowed_.store(workers_ - 1);
    while (static_cast<int>(threads_.size()) < workers_ - 1) {
      threads_.emplace_back([this, index = static_cast<int>(threads_.size())] { help(index); });
    }
  }

  int workers() const { return workers_; }

  // f(item, worker) for all items, in any order; returns when all are done.
  template <typename F>
  void each(int64_t count, const F& f) {
    if (count <= 1 || workers_ == 1 || (late_ != Clock::time_point() && Clock::now() - late_ < kAlone)) {
      for (int64_t item = 0; item < count; ++item) f(item, 0);
      return;
    }
    context_ = &f;
    call_ = [](const void* context, int64_t item, int worker) { (*static_cast<const F*>(context))(item, worker); };
    done_.store(0);
    ticket_.store(static_cast<uint64_t>(count) << 32);
    if (sleeping_.load() > 0) {
      signal_.fetch_add(1);
      signal_.notify_all();
    }
    take_all(0);
    for (int turn = 0; turn < kSpin && done_.load(std::memory_order_acquire) < count; ++turn) pause_briefly();
    if (done_.load(std::memory_order_acquire) == count) return;
    const Clock::time_point before = Clock::now();
    waiting_.store(true);
    for (int done = done_.load(); done < count; done = done_.load()) done_.wait(done);
    waiting_.store(false, std::memory_order_relaxed);
    if (const auto now = Clock::now(); now - before > kPatience) late_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kSpin = 4000;                          // about 100 µs
  static constexpr std::chrono::microseconds kPatience{500};  // a thread that is waited for longer has lost its core
  static constexpr std::chrono::milliseconds kAlone{50};      // for so long nothing is given to others then

  static bool open(uint64_t ticket) { return (ticket & 0xffffffffu) < (ticket >> 32); }

  // The upper half of the ticket is the number of items, the lower half the next one. Whoever draws a valid number
  // holds up the job until it says how many it has done, so what belongs to the job cannot change meanwhile.
  bool take_all(int worker) {
    int mine = 0;
    while (open(ticket_.load(std::memory_order_relaxed))) {
      const uint64_t drawn = ticket_.fetch_add(1, std::memory_order_acq_rel);
      if (!open(drawn)) break;
      call_(context_, static_cast<int64_t>(drawn & 0xffffffffu), worker);
      ++mine;
    }
    if (mine == 0) return false;
    done_.fetch_add(mine);
    if (waiting_.load()) done_.notify_one();
    return true;
  }

  void help(int index) {
    int turn = 0;
    while (!stop_.load(std::memory_order_relaxed)) {
      if (index < allowed_.load(std::memory_order_relaxed) && take_all(index + 1)) {
        turn = 0;
      } else if (turn++ < kSpin) {
        pause_briefly();
      } else {
        const uint32_t before = signal_.load();
        sleeping_.fetch_add(1);
        if (!open(ticket_.load()) && !stop_.load()) signal_.wait(before);
        sleeping_.fetch_sub(1);
        turn = 0;
      }
    }
  }

  int workers_ = 1;
  pid_t owner_ = 0;
  Clock::time_point late_{};  // when others were last waited for too long
  std::vector<std::thread> threads_;
  const void* context_ = nullptr;
  void (*call_)(const void*, int64_t, int) = nullptr;
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<uint32_t> signal_{0};
  std::atomic<int> sleeping_{0}, allowed_{0};
  std::atomic<bool> stop_{false}, waiting_{false};
};

// The same by one thread alone.
struct Alone {
  static int workers() { return 1; }
  int worker = 0;
  template <typename F>
  void each(int64_t count, const F& f) {
    for (int64_t item = 0; item < count; ++item) f(item, worker);
  }
};

}  // namespace seriatim
