// The threads of a parallel region, and the memory that each works in.
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace {

// Memory of one use, aligned to a cache line. It grows, and is kept between calls. Throws std::bad_alloc: so it is taken before
// a region begins, because an exception inside of one ends the process.
struct Arena {
  std::unique_ptr<char[]> memory;
  size_t size = 0;

  char* take(size_t bytes) {
    if (size < bytes + 64) {
      memory.reset();
      size = 0;
      memory.reset(new char[bytes + 64]);
      size = bytes + 64;
    }
    return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) / 64 * 64);
  }
};

inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

// One thread of a region: its part of the work, and its scratch memory.
struct Share {
  int thread, threads;
  char* room;

  long first(long count) const { return count * thread / threads; }
  long end(long count) const { return count * (thread + 1) / threads; }
};

// Run work(share) on every thread, or on this one if more are not worth it; each has `bytes` of scratch memory.
template <class Work>
void on_threads(bool worth, size_t bytes, Work work) {
  static thread_local Arena arena;
  const int threads = worth ? omp_get_max_threads() : 1;
  const size_t room = whole_lines(bytes);
  char* rooms = arena.take(room * threads);
#pragma omp parallel num_threads(threads)
  work(Share{omp_get_thread_num(), omp_get_num_threads(), rooms + room * omp_get_thread_num()});
}

}  // namespace
