// Which tokens may be drawn: top_k and top_p, without a sort of the vocabulary.
#pragma once

#include <functional>

#include "row.h"

namespace {
namespace sampling {

constexpr float LEAST_OF_TOP_P = 1 << 20;  // top_p tries without blocks whose weights are all less

// Weights above `weight` are kept, and those equal to it up to `token`. `sum`: of all that are kept.
struct Cut {
  float weight = 0;
  int64_t token = 0;
  int64_t sum = 0;
};

inline float bin_begin(int bin) { return bits_as<float>(bin << LAST_BITS); }
inline int64_t bin_count(uint64_t bin) { return bin >> COUNT; }
inline int64_t bin_sum(uint64_t bin, int place) {
  const int64_t first = ((1 << BIN_BITS) + place % (1 << BIN_BITS)) << LAST_BITS;
  const int64_t fractions = bin_count(bin) * first + (bin & ((uint64_t(1) << COUNT) - 1));
  const int exponent = ((place - FIRST_BIN) >> BIN_BITS) - FRACTION;
  return exponent < 0 ? fractions >> -exponent : fractions << exponent;
}

// Counts all tokens of the groups of LANES in which one has a weight of `bound` or more.
inline void count_bins(Row& row, float bound) {
  uint64_t* bins = row.bins;
  std::fill(bins + FIRST_BIN, bins + BINS, 0);
  for (int64_t b = 0; b < row.blocks; b++) {
    if (row.most[b] < bound) continue;
    for (int i = 0; i < BLOCK; i += LANES) {
      const float* weights = row.block(b) + i;
      if (!mask_of(load(weights) >= bound)) continue;
      for (int lane = 0; lane < LANES; lane++) {
        typedef uint16_t __attribute__((may_alias)) Half;
        const Half* halves = reinterpret_cast<const Half*>(weights + lane);
        bins[halves[1]] += (uint64_t(1) << COUNT) + halves[0];
      }
    }
  }
}

// The tokens of one bin, in no order.
inline void collect(Row& row, int bin) {
  row.count = 0;
  const float begin = bin_begin(bin), end = bin_begin(bin + 1);
  for (int64_t b = 0; b < row.blocks; b++) {
    if (row.most[b] < begin) continue;
    for (int i = 0; i < BLOCK; i += LANES) {
      Floats weights = load(row.block(b) + i);
      for (uint32_t found = mask_of((weights >= begin) & (weights < end)); found; found &= found - 1) {
        const int64_t token = b * BLOCK + i + __builtin_ctz(found);
        row.members[row.count++] = {row.weights[token], int32_t(token)};
      }
    }
  }
}

// A weight that all tokens of the top_k reach: as many blocks have a token that reaches it. 0 if it is not known.
inline float floor_of(Row& row, int64_t top_k) {
  if (top_k > row.blocks) return 0;
  std::copy(row.peaks, row.peaks + row.blocks, row.ordered);
  float* place = row.ordered + top_k - 1;
  std::nth_element(row.ordered, place, row.ordered + row.blocks, std::greater<float>());
  return *place;
}

// Of members [first, last), the last one that has less than `goal` before it; `before` is the sum of those above `first`.
inline Cut reach(Member* first, Member* last, int64_t before, double goal) {
  while (last - first > 1) {
    Member* middle = first + (last - first) / 2;
    std::nth_element(first, middle, last);
    int64_t sum = before;
    for (Member* m = first; m < middle; m++) sum += int64_t(m->weight);
    if (double(sum) >= goal)
      last = middle;
    else
      first = middle, before = sum;
  }
  return {first->weight, first->token, before + int64_t(first->weight)};
}

// The `top_k` largest weights. Returns the bin of the last one, whose members are those that are kept; 0 if all are kept.
inline int keep_k(Row& row, int64_t top_k, Cut& cut) {
  int bin = BINS - 1;
  int64_t count = 0, above = 0;
  for (; bin >= FIRST_BIN && count + bin_count(row.bins[bin]) < top_k; bin--) {
    count += bin_count(row.bins[bin]);
    above += bin_sum(row.bins[bin], bin);
  }
  cut = {1, row.size, above};
  if (bin < FIRST_BIN) return 0;
  collect(row, bin);
  Member* last = row.members + (top_k - count - 1);
  std::nth_element(row.members, last, row.members + row.count);
  row.count = top_k - count;
  for (const Member* member = row.members; member <= last; member++) above += int64_t(member->weight);
  cut = {last->weight, last->token, above};
  return bin;
}

// The fewest weights that reach `top_p` of `sum`, at least one, of those that `keep_k` kept, if `lowest` is its bin. Returns
// whether `rest` more in the sum, in weights below `floor`, would change nothing.
inline bool keep_p(Row& row, double top_p, int64_t sum, int64_t rest, int lowest, float floor, Cut& cut) {
  const double goal = top_p * double(sum + rest);
  int64_t before = 0;
  int bin = BINS - 1;
  for (; bin > lowest && bin >= FIRST_BIN; bin--) {
    const int64_t next = before + bin_sum(row.bins[bin], bin);
    if (double(next) >= goal) break;
    before = next;
  }
  if (bin < FIRST_BIN) return false;
  if (bin != lowest) collect(row, bin);
  cut = reach(row.members, row.members + row.count, before, goal);
  return rest == 0 || (cut.weight >= floor && double(cut.sum - int64_t(cut.weight)) < top_p * double(sum));
}

// Weighs what it needs of the row, and says where top_k and top_p cut it.
template <class T>
Cut cut_of(Row& row, const T* logits, const Scale& scale, double top_p, int64_t top_k) {
  Cut cut;
  if (top_k < row.size) {
    const float floor = floor_of(row, top_k);
    weigh<false>(row, logits, scale, floor);
    count_bins(row, floor < 1 ? 1 : floor);
    const int lowest = keep_k(row, top_k, cut);
    if (top_p < 1) keep_p(row, top_p, cut.sum, 0, lowest, 0, cut);
    return cut;
  }
  for (float floor : {LEAST_OF_TOP_P, 0.0f}) {
    weigh<false>(row, logits, scale, floor);
    count_bins(row, 1);
    for (int bin = FIRST_BIN; bin < BINS; bin++)
      if (row.bins[bin]) row.sum += bin_sum(row.bins[bin], bin);
    if (keep_p(row, top_p, row.sum, row.rest, 0, floor, cut)) break;
  }
  return cut;
}

}  // namespace sampling
}  // namespace
