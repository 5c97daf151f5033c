// One row of logits, block by block: the largest logit of each, then the weights of those that count.
#pragma once

#include "weights.h"

namespace {
namespace sampling {

// A histogram's bins, by the exponent of a weight and the first bits of its fraction. A bin holds its count in the bits from
// COUNT on, and below them the sum of the last bits of its weights. The weight 0 is in a bin of its own, which nobody reads.
constexpr int BIN_BITS = 7, LAST_BITS = FRACTION - BIN_BITS, COUNT = 40;
constexpr int FIRST_BIN = 127 << BIN_BITS, BINS = FIRST_BIN + ((WEIGHT_BITS + 1) << BIN_BITS);
constexpr int64_t LARGEST_VOCABULARY = 1 << 22;  // a bin counts in 24 bits

struct Member {
  float weight;
  int32_t token;
  bool operator<(const Member& other) const {  // the one that is kept first
    return weight > other.weight || (weight == other.weight && token < other.token);
  }
};

// Hands out memory in parts that begin at cache lines.
struct Parts {
  uintptr_t next;
  template <class T>
  T* take(int64_t count) {
    T* part = reinterpret_cast<T*>(next);
    next += (count * sizeof(T) + 63) / 64 * 64;
    return part;
  }
};

// The weights, and what is known of each block of them, in memory that the caller has.
struct Row {
  int64_t size, blocks;
  int64_t sum = 0, rest = 0;  // of the weights; and the most that blocks which were not weighed can add
  float* weights;             // [blocks * BLOCK], 0 after the last token; only of blocks whose `most` is not 0
  float* peaks;               // each block's largest logit, then the weight of that; [whole registers]
  float* most;                // [blocks] no weight of the block is larger
  int64_t* sums;              // [blocks]
  uint64_t* bins;             // [BINS]
  float* ordered;             // [blocks]
  Member* members;            // [size]
  int64_t count = 0;          // of members

  Row(void* memory, int64_t size) : size(size), blocks((size + BLOCK - 1) / BLOCK) { bytes = lay(uintptr_t(memory)); }

  // Of the memory that a row takes.
  static size_t needs(int64_t size) { return Row(nullptr, size).bytes; }

  const float* block(int64_t b) const { return weights + b * BLOCK; }
  int64_t peak_count() const { return (blocks + LANES - 1) / LANES * LANES; }

 private:
  size_t bytes;

  size_t lay(uintptr_t memory) {
    Parts parts{memory};
    weights = parts.take<float>(blocks * BLOCK);
    peaks = parts.take<float>(peak_count());
    most = parts.take<float>(blocks);
    sums = parts.take<int64_t>(blocks);
    bins = parts.take<uint64_t>(BINS);
    ordered = parts.take<float>(blocks);
    members = parts.take<Member>(size);
    return parts.next - memory;
  }
};

// Calls `use(block, logits of the block)`; a last block that is shorter ends with -infinity.
template <class T, class Use>
inline void each_block(const T* logits, int64_t size, Use&& use) {
  const int64_t full = size / BLOCK, rest = size % BLOCK;
  for (int64_t b = 0; b < full; b++) use(b, logits + b * BLOCK);
  if (!rest) return;
  T last[BLOCK];
  const uint32_t infinity = 0xff800000;
  for (int i = 0; i < BLOCK; i++) memcpy(&last[i], (const char*)&infinity + 4 - sizeof(T), sizeof(T));
  memcpy(last, logits + full * BLOCK, rest * sizeof(T));
  use(full, last);
}

struct Best {
  float logit = -__builtin_inff();
  int64_t block = 0;
  bool number = true;
};

template <class T>
Best highest(Row& row, const T* logits) {
  Best best;
  Ints odd = {};
  std::fill(row.peaks + row.blocks, row.peaks + row.peak_count(), best.logit);
  each_block(logits, row.size, [&](int64_t b, const T* from) {
    Floats most = load(from);
    odd |= most != most;
    for (int i = LANES; i < BLOCK; i += LANES) {
      Floats x = load(from + i);
      odd |= x != x;
      most = maximum(x, most);
    }
    const float found = row.peaks[b] = largest(most);
    if (found > best.logit) best.logit = found, best.block = b;
  });
  best.number = !mask_of(odd) && __builtin_isfinite(best.logit);
  return best;
}

inline void weigh_peaks(Row& row, const Scale& scale) {
  for (int64_t i = 0; i < row.peak_count(); i += LANES) store(row.peaks + i, scale(load(row.peaks + i)));
}

// The blocks that can hold a weight of `floor` or more. SUMS: their sums too, which a histogram gives as well.
template <bool SUMS, class T>
void weigh(Row& row, const T* logits, const Scale& scale, float floor) {
  row.sum = row.rest = 0;
  each_block(logits, row.size, [&](int64_t b, const T* from) {
    const float most = row.peaks[b] * 1.00001f + 1;  // the polynomial is not monotonic in the last bits
    row.most[b] = 0;
    if (most < floor) {
      row.rest += BLOCK * int64_t(most + 1);
      return;
    }
    float* to = row.weights + b * BLOCK;
    Sum sum;
    for (int i = 0; i < BLOCK; i += LANES) {
      Floats weights = scale(load(from + i));
      store(to + i, weights);
      if (SUMS) sum.add(weights);
    }
    row.most[b] = most;
    if (SUMS) row.sum += row.sums[b] = sum.value();
  });
}

}  // namespace sampling
}  // namespace
