// One token per row of logits: temperature, top_k, top_p and a draw, or the largest logit.
//
// The same tokens as engine/sampling/ gives with torch, bit for bit: weights are integers made by the same operations in the
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
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <vector>
#include <immintrin.h>

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

struct Bf16 {
  uint16_t bits;
};

template <class To, class From>
inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

inline Floats load(const float* from) {
  Floats vector;
  memcpy(&vector, from, sizeof vector);
  return vector;
}

inline Floats load(const Bf16* from) {
#ifdef __AVX512F__
  return bits_as<Floats>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from)), 16));
#else
  return bits_as<Floats>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)from)), 16));
#endif
}

inline float to_float(float x) { return x; }
inline float to_float(Bf16 x) { return bits_as<float>(uint32_t(x.bits) << 16); }

#ifdef __AVX512F__
typedef __m512 Register;
inline Floats maximum(Floats a, Floats b) { return bits_as<Floats>(_mm512_max_ps(bits_as<Register>(a), bits_as<Register>(b))); }
inline Ints truncated(Floats x) { return bits_as<Ints>(_mm512_cvttps_epi32(bits_as<Register>(x))); }
inline Floats whole(Floats x) {
  return bits_as<Floats>(_mm512_roundscale_ps(bits_as<Register>(x), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
}
inline uint32_t mask_of(Ints x) { return _mm512_movepi32_mask(bits_as<__m512i>(x)); }
inline int32_t total(Ints x) { return _mm512_reduce_add_epi32(bits_as<__m512i>(x)); }
inline float largest(Floats x) { return _mm512_reduce_max_ps(bits_as<Register>(x)); }
#else
typedef __m256 Register;
inline Floats maximum(Floats a, Floats b) { return bits_as<Floats>(_mm256_max_ps(bits_as<Register>(a), bits_as<Register>(b))); }
inline Ints truncated(Floats x) { return bits_as<Ints>(_mm256_cvttps_epi32(bits_as<Register>(x))); }
inline Floats whole(Floats x) {
  return bits_as<Floats>(_mm256_round_ps(bits_as<Register>(x), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
}
inline uint32_t mask_of(Ints x) { return _mm256_movemask_ps(bits_as<Register>(x)); }
inline int32_t total(Ints x) {
  int32_t sum = 0;
  for (int i = 0; i < LANES; i++) sum += x[i];
  return sum;
}
inline float largest(Floats x) {
  float most = x[0];
  for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
  return most;
}
#endif

// A product that is not fused with the addition after it, whatever the compiler's flags.
inline Floats rounded(Floats x) {
  asm("" : "+v"(x));
  return x;
}

constexpr int BLOCK = 128;
constexpr int64_t LARGEST_VOCABULARY = 1 << 22;  // a bin counts in 24 bits
constexpr int WEIGHT_BITS = 44, SUM_BITS = 62;
constexpr int LOW_BITS = WEIGHT_BITS - 23;  // of a weight; the sum of a block's high parts fits in 31 bits
constexpr float LOWEST = -64;               // a power of two that gives the weight 0
constexpr int FRACTION = 23;                // bits of a float's fraction
constexpr float LEAST_OF_TOP_P = 1 << 20;   // top_p tries without blocks whose weights are all less

// The weights, and what is known of each block of them. Kept from row to row for its memory.
struct Row {
  int64_t size = 0, blocks = 0;
  int64_t sum = 0, rest = 0;   // of the weights; and the most that blocks which were not weighed can add
  std::vector<float> weights;  // [blocks * BLOCK], 0 after the last token; only of blocks whose `most` is not 0
  std::vector<float> peaks;    // each block's largest logit, then the weight of that
  std::vector<float> most;     // no weight of the block is larger
  std::vector<int64_t> sums;
  std::vector<uint64_t> bins;
  std::vector<float> ordered;
  struct Member {
    float weight;
    int32_t token;
    bool operator<(const Member& other) const {  // the one that is kept first
      return weight > other.weight || (weight == other.weight && token < other.token);
    }
  };
  std::vector<Member> members;

  const float* block(int64_t b) const { return weights.data() + b * BLOCK; }

  void resize(int64_t vocabulary) {
    size = vocabulary;
    blocks = (vocabulary + BLOCK - 1) / BLOCK;
    weights.resize(blocks * BLOCK);
    peaks.assign((blocks + LANES - 1) / LANES * LANES, -__builtin_inff());
    most.resize(blocks);
    sums.resize(blocks);
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

// 2^power * 2^shift without its fraction, for power in [LOWEST, 0]. `magic` is 1.5 * 2^23 + shift.
inline Floats weight_of(Floats power, float magic) {
  Floats shifted = power + magic;  // rounds to a whole number
  Floats r = power - (shifted - magic);
  Floats p = Floats{} + 0.001326472f;
  p = rounded(p * r) + 0.009671513f;
  p = rounded(p * r) + 0.055507336f;
  p = rounded(p * r) + 0.24022242f;
  p = rounded(p * r) + 0.693147f;
  p = rounded(p * r) + 1.0f;
  return whole(bits_as<Floats>(bits_as<Ints>(p) + (bits_as<Ints>(shifted) << FRACTION)));
}

// An exact sum of a block: the high and the low bits of each weight apart, as integers of 32 bits.
struct Sum {
  Ints high = {}, low = {};
  void add(Floats weights) {
    Ints part = truncated(weights * (1.0f / (1 << LOW_BITS)));
    high += part;
    low += truncated(weights - __builtin_convertvector(part, Floats) * float(1 << LOW_BITS));
  }
  int64_t value() const { return (int64_t(total(high)) << LOW_BITS) + total(low); }
};

// How logits become weights.
struct Scale {
  float highest, factor, magic;
  Scale(float highest, double temperature, int64_t size) : highest(highest) {
    // A smaller temperature is 0 in float.
    factor = float(1.4426950408889634 / (temperature < __FLT_MIN__ ? __FLT_MIN__ : temperature));
    const int bits = SUM_BITS - (64 - __builtin_clzll(size));
    magic = 12582912.0f + float(bits < WEIGHT_BITS ? bits : WEIGHT_BITS);
  }
  Floats operator()(Floats logits) const {
    return weight_of(maximum((logits - highest) * factor, Floats{} + LOWEST), magic);
  }
};

void weigh_peaks(Row& row, const Scale& scale) {
  for (size_t i = 0; i < row.peaks.size(); i += LANES) {
    Floats weights = scale(load(&row.peaks[i]));
    memcpy(&row.peaks[i], &weights, sizeof weights);
  }
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
    float* to = row.weights.data() + b * BLOCK;
    Sum sum;
    for (int i = 0; i < BLOCK; i += LANES) {
      Floats weights = scale(load(from + i));
      memcpy(to + i, &weights, sizeof weights);
      if (SUMS) sum.add(weights);
    }
    row.most[b] = most;
    if (SUMS) row.sum += row.sums[b] = sum.value();
  });
}

// Weights above `weight` are kept, and those equal to it up to `token`. `sum`: of all that are kept.
struct Cut {
  float weight = 0;
  int64_t token = 0;
  int64_t sum = 0;
};

// A histogram by the exponent and the first bits of the fraction. A bin holds its count in the bits from COUNT on, and below
// them the sum of the last bits of its weights. The weight 0 is in a bin of its own, which nobody reads.
constexpr int BIN_BITS = 7, LAST_BITS = FRACTION - BIN_BITS, COUNT = 40;
constexpr int FIRST_BIN = 127 << BIN_BITS, BINS = FIRST_BIN + ((WEIGHT_BITS + 1) << BIN_BITS);

inline float bin_begin(int bin) { return bits_as<float>(bin << LAST_BITS); }
inline int64_t bin_count(uint64_t bin) { return bin >> COUNT; }
inline int64_t bin_sum(uint64_t bin, int place) {
  const int64_t first = ((1 << BIN_BITS) + place % (1 << BIN_BITS)) << LAST_BITS;
  const int64_t fractions = bin_count(bin) * first + (bin & ((uint64_t(1) << COUNT) - 1));
  const int exponent = ((place - FIRST_BIN) >> BIN_BITS) - FRACTION;
  return exponent < 0 ? fractions >> -exponent : fractions << exponent;
}

// Counts all tokens of the groups of LANES in which one has a weight of `bound` or more.
void count_bins(Row& row, float bound) {
  row.bins.resize(BINS);
  uint64_t* bins = row.bins.data();
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
void collect(Row& row, int bin) {
  row.members.clear();
  const float begin = bin_begin(bin), end = bin_begin(bin + 1);
  for (int64_t b = 0; b < row.blocks; b++) {
    if (row.most[b] < begin) continue;
    for (int i = 0; i < BLOCK; i += LANES) {
      Floats weights = load(row.block(b) + i);
      for (uint32_t found = mask_of((weights >= begin) & (weights < end)); found; found &= found - 1) {
        const int64_t token = b * BLOCK + i + __builtin_ctz(found);
        row.members.push_back({row.weights[token], int32_t(token)});
      }
    }
  }
}

// A weight that all tokens of the top_k reach: as many blocks have a token that reaches it. 0 if it is not known.
float floor_of(Row& row, int64_t top_k) {
  if (top_k > row.blocks) return 0;
  row.ordered.assign(row.peaks.begin(), row.peaks.begin() + row.blocks);
  auto place = row.ordered.begin() + top_k - 1;
  std::nth_element(row.ordered.begin(), place, row.ordered.end(), std::greater<float>());
  return *place;
}

// Of members [first, last), the last one that has less than `goal` before it; `before` is the sum of those above `first`.
Cut reach(Row::Member* first, Row::Member* last, int64_t before, double goal) {
  while (last - first > 1) {
    Row::Member* middle = first + (last - first) / 2;
    std::nth_element(first, middle, last);
    int64_t sum = before;
    for (Row::Member* m = first; m < middle; m++) sum += int64_t(m->weight);
    if (double(sum) >= goal)
      last = middle;
    else
      first = middle, before = sum;
  }
  return {first->weight, first->token, before + int64_t(first->weight)};
}

// The `top_k` largest weights. Returns the bin of the last one, whose members are those that are kept; 0 if all are kept.
int keep_k(Row& row, int64_t top_k, Cut& cut) {
  int bin = BINS - 1;
  int64_t count = 0, above = 0;
  for (; bin >= FIRST_BIN && count + bin_count(row.bins[bin]) < top_k; bin--) {
    count += bin_count(row.bins[bin]);
    above += bin_sum(row.bins[bin], bin);
  }
  cut = {1, row.size, above};
  if (bin < FIRST_BIN) return 0;
  collect(row, bin);
  const auto first = row.members.begin(), end = first + (top_k - count);
  std::nth_element(first, end - 1, row.members.end());
  row.members.resize(top_k - count);
  for (const auto& member : row.members) above += int64_t(member.weight);
  cut = {row.members.back().weight, row.members.back().token, above};
  return bin;
}

// The fewest weights that reach `top_p` of `sum`, at least one, of those that `keep_k` kept, if `lowest` is its bin. Returns
// whether `rest` more in the sum, in weights below `floor`, would change nothing.
bool keep_p(Row& row, double top_p, int64_t sum, int64_t rest, int lowest, float floor, Cut& cut) {
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
  Row::Member* members = row.members.data();
  cut = reach(members, members + row.members.size(), before, goal);
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

// The first token in the vocabulary at which the sum of what is kept exceeds `target`.
int64_t draw(const Row& row, const Cut& cut, int64_t target) {
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
      memcpy(kept + i, &weights, sizeof weights);
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

int64_t draw(const Row& row, int64_t target) {
  int64_t b = 0;
  while (row.sums[b] <= target) target -= row.sums[b++];
  for (int i = 0;; i++)
    if ((target -= int64_t(row.block(b)[i])) < 0) return b * BLOCK + i;
}

template <class T>
int64_t sample_row(Row& row, const T* logits, int64_t size, double temperature, double top_p, int64_t top_k, double noise) {
  row.resize(size);
  const Best best = highest(row, logits);
  if (!best.number) return -1;
  if (temperature == 0) {
    int64_t token = best.block * BLOCK;
    while (to_float(logits[token]) != best.logit) token++;
    return token;
  }
  const Scale scale(best.logit, temperature, size);
  weigh_peaks(row, scale);
  if (top_k <= 0 || top_k > size) top_k = size;
  const bool cuts = top_p < 1 || top_k < size;
  Cut cut;
  if (cuts) {
    cut = cut_of(row, logits, scale, top_p, top_k);
  } else {
    weigh<true>(row, logits, scale, 0);
    cut.sum = row.sum;
  }
  int64_t target = int64_t(noise * double(cut.sum));
  if (target >= cut.sum) target = cut.sum - 1;  // a product may be rounded up
  return cuts ? draw(row, cut, target) : draw(row, target);
}

template <class T>
void sample_rows(const T* logits, int64_t rows, int64_t stride, int64_t size, const double* temperature, const double* top_p,
                 const int64_t* top_k, const double* noise, int64_t* tokens) {
  static thread_local Row row;
  for (int64_t r = 0; r < rows; r++)
    tokens[r] = sample_row(row, logits + r * stride, size, temperature[r], top_p[r], top_k[r], noise[r]);
}

}  // namespace

// `logits` [rows, size], float (type 0) or bfloat16 (type 1), `stride` elements from row to row. `temperature` 0 is greedy,
// `top_k` 0 is off, `noise` is in [0, 1). Writes a token for each row; -1 for a row that holds a NaN, or whose largest logit is
// not finite. Returns 0; -1 if the vocabulary is larger than it can take; -2 without memory. Threads may call it, each with rows
// of its own.
extern "C" int sample_tokens(const void* logits, int type, int64_t rows, int64_t stride, int64_t size, const double* temperature,
                             const double* top_p, const int64_t* top_k, const double* noise, int64_t* tokens) {
  if (size < 1 || size > LARGEST_VOCABULARY) return -1;
  try {
    if (type)
      sample_rows(static_cast<const Bf16*>(logits), rows, stride, size, temperature, top_p, top_k, noise, tokens);
    else
      sample_rows(static_cast<const float*>(logits), rows, stride, size, temperature, top_p, top_k, noise, tokens);
  } catch (const std::bad_alloc&) {
    return -2;
  }
  return 0;
}
