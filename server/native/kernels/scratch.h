// Memory of a thread, aligned to a cache line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace {

// It grows, and is kept between calls; each T has its own.
template <class T>
inline T* scratch(size_t count) {
  static thread_local std::unique_ptr<char[]> memory;
  static thread_local size_t size = 0;
  if (size < count * sizeof(T) + 64) {
    size = count * sizeof(T) + 64;
    memory.reset(new char[size]);
  }
  auto address = reinterpret_cast<uintptr_t>(memory.get());
  return reinterpret_cast<T*>((address + 63) / 64 * 64);
}

}  // namespace
