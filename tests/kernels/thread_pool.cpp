// Jobs of a thread pool read what the caller wrote before and write what it reads afterwards, without any lock of their
// own. Built with ThreadSanitizer, every access that the pool does not order is an error.

#include "../../src/seriatim/kernels/thread_pool.h"

#include <cstdio>
#include <thread>
#include <vector>

int main() {
  for (int round = 0; round < 20; ++round) {
    seriatim::ThreadPool pool;
    std::vector<long> given(64), found(64);
    for (int job = 0; job < 300; ++job) {
      pool.resize(1 + (round + job / 100) % 4);  // more and fewer threads than before
      const int count = job % 65;
      for (int item = 0; item < count; ++item) given[item] = job + item;
      pool.each(count, [&](int64_t item, int worker) {
        if (worker < 0 || worker >= pool.workers()) std::abort();
        found[item] = 3 * given[item];
      });
      for (int item = 0; item < count; ++item) {
        if (found[item] != 3 * (job + item)) return std::puts("wrong result"), 1;
      }
      if (job % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the threads fall asleep
    }
  }
  std::puts("passed");
}
