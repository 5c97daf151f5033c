// One token per row of logits: temperature, top_k, top_p and a draw, or the largest logit.
//
// The same tokens as engine/sampling/in_torch.py gives, bit for bit: weights are integers made by the same operations in the
// same order (multiply and add, never fused), and all that follows is integer sums and comparisons. So the instruction set,
// the number of rows and the number of threads change nothing.
//
// A row takes these passes, in the second-level cache after the first, and no sort of the vocabulary:
//   1. the largest logit of each block of BLOCK tokens; the largest of all
//   2. the weights and the sum of each block. With top_k or top_p only those of blocks that may hold a token that is kept:
//      of the others a bound of their sum is known, and where that does not suffice, they are weighed after all
//   3. with top_k or top_p: which token is the last one kept. A histogram by the first bits of the weight says in which bin
//      it is; the tokens of that bin are partitioned
//   4. the draw: the sums of blocks until they exceed the target, then one block token by token
#pragma once

#include <memory>
#include <new>
#include <omp.h>

#include "kept.h"

namespace {
namespace sampling {

constexpr int64_t NOT_A_NUMBER = -1;
constexpr int64_t SMALL_BATCH = 1 << 15;  // logits up to which a second thread costs more than it saves

// The first token in the vocabulary at which the sum of what is kept exceeds `target`.
inline int64_t draw(const Row& row, const Cut& cut, int64_t target) {
  const int64_t last = cut.token / BLOCK;
  const float above = bits_as<float>(bits_as<int32_t>(cut.weight) + 1);
  for (int64_t b = 0; b < row.blocks; b++) {
    if (row.most[b] < cut.weight) continue;
    const float least = b < last ? cut.weight : above;
    alignas(64) float kept[BLOCK];
    Sum sum;
    for (int i = 0; i < BLOCK; i += LANES) {
      Floats weights = load(row.block(b) + i);
      weights = bits_as<Floats>(bits_as<Ints>(weights) & (weights >= least));
      store(kept + i, weights);
      sum.add(weights);
    }
    int64_t here = sum.value();
    if (b == last)
      for (int64_t i = 0; i <= cut.token % BLOCK; i++)
        if (row.block(b)[i] == cut.weight) kept[i] = cut.weight, here += int64_t(cut.weight);
    if (here <= target) {
      target -= here;
      continue;
    }
    for (int i = 0;; i++)
      if ((target -= int64_t(kept[i])) < 0) return b * BLOCK + i;
  }
  return row.size - 1;  // not reached: the target is less than the sum
}

inline int64_t draw(const Row& row, int64_t target) {
  int64_t b = 0;
  while (row.sums[b] <= target) target -= row.sums[b++];
  for (int i = 0;; i++)
    if ((target -= int64_t(row.block(b)[i])) < 0) return b * BLOCK + i;
}

// Of one row. `top_k` 0 is off.
struct Params {
  double temperature, top_p;
  int64_t top_k;
  double noise;
};

template <class T>
int64_t sample_row(Row& row, const T* logits, Params params) {
  const Best best = highest(row, logits);
  if (!best.number) return NOT_A_NUMBER;
  if (params.temperature == 0) {
    int64_t token = best.block * BLOCK;
    while (to_float(logits[token]) != best.logit) token++;
    return token;
  }
  const Scale scale(best.logit, params.temperature, row.size);
  weigh_peaks(row, scale);
  const int64_t top_k = params.top_k > 0 ? std::min(params.top_k, row.size) : row.size;
  const bool cuts = params.top_p < 1 || top_k < row.size;
  Cut cut;
  if (cuts) {
    cut = cut_of(row, logits, scale, params.top_p, top_k);
  } else {
    weigh<true>(row, logits, scale, 0);
    cut.sum = row.sum;
  }
  int64_t target = int64_t(params.noise * double(cut.sum));
  if (target >= cut.sum) target = cut.sum - 1;  // a product may be rounded up
  return cuts ? draw(row, cut, target) : draw(row, target);
}

// `logits` [rows, size], `stride` elements from row to row. `temperature` 0 is greedy, `top_k` 0 is off, `noise` is in [0, 1).
// `tokens` gets one for each row; NOT_A_NUMBER for a row that holds a NaN, or whose largest logit is not finite.
struct Batch {
  const void* logits;
  int64_t rows, stride, size;
  const double *temperature, *top_p;
  const int64_t* top_k;
  const double* noise;
  int64_t* tokens;
};

// Memory of the calling thread, kept between calls; null if there is not enough.
inline char* memory_of(size_t bytes) {
  static thread_local std::unique_ptr<char[]> memory;
  static thread_local size_t held = 0;
  if (held < bytes) {
    held = 0;
    memory.reset(new (std::nothrow) char[bytes]);
    if (memory) held = bytes;
  }
  return memory.get();
}

// False, and nothing done, without memory. All of it is taken before the threads start: what one of them throws ends the process.
template <class T>
bool sample(const Batch& batch) {
  const size_t bytes = Row::needs(batch.size), line = 64;
  char* memory = memory_of(bytes * omp_get_max_threads() + line);
  if (!memory) return false;
  memory += -uintptr_t(memory) % line;
#pragma omp parallel for schedule(dynamic) if (batch.rows > 1 && batch.rows * batch.size > SMALL_BATCH)
  for (int64_t r = 0; r < batch.rows; r++) {
    Row row(memory + bytes * omp_get_thread_num(), batch.size);
    const Params params{batch.temperature[r], batch.top_p[r], batch.top_k[r], batch.noise[r]};
    batch.tokens[r] = sample_row(row, static_cast<const T*>(batch.logits) + r * batch.stride, params);
  }
  return true;
}

}  // namespace sampling
}  // namespace
