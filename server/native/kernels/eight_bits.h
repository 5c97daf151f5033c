// Keys and values in eight bits: whole numbers or floats (e4m3), with one scale for each token and head.
//
// The pages of eight bits lie as those of T, but in each unit all lanes' first elements come before the second ones, as in the panels of int8
// weights. A token's scale does not depend on other tokens, so that a page holds the same bytes however a prompt was cut.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "vector.h"

namespace {

struct Fp8 {
  uint8_t bits;
};

enum class Kept : long {
  WHOLE,  // as T
  INT8,
  FP8,
};

template <class S>
constexpr bool narrow() {
  return std::is_same_v<S, int8_t> || std::is_same_v<S, Fp8>;
}

inline Ints eight_bits(const void* from) {
#ifdef __AVX512F__
  return bits_as<Ints>(_mm512_cvtepu8_epi32(load_as<__m128i>(from)));
#else
  return bits_as<Ints>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(from))));
#endif
}

// e4m3: sign, four bits of exponent with bias 7, three of fraction. What it does not hold (0x7f) is never stored.
inline Floats load(const Fp8* from) {
  const Ints code = eight_bits(from), size = code & 0x7f;
  // Below 2^-6 the fraction counts alone: it is read as that of 2^-6, which is then taken away.
  const Ints small = size < 8;
  const Ints exponent = small & (1 << 23);
  const Floats found = bits_as<Floats>((size << 20) + (120 << 23) + exponent);
  const Floats rest = bits_as<Floats>(small & bits_as<Ints>(splat(1.0f / 64)));
  return bits_as<Floats>(bits_as<Ints>(found - rest) | (code & 0x80) << 24);
}

template <class S>
constexpr float LARGEST = 0;
template <>
constexpr float LARGEST<int8_t> = 127;
template <>
constexpr float LARGEST<Fp8> = 448;

constexpr float WHOLE_FLOATS = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to a whole number, ties to even

// Codes of numbers up to LARGEST, one byte each.
inline void store_codes(int8_t* to, Floats x) {
  const Ints codes = bits_as<Ints>(x + WHOLE_FLOATS) - bits_as<Ints>(splat(WHOLE_FLOATS));
  for (int i = 0; i < LANES; i++) to[i] = int8_t(codes[i]);
}

inline void store_codes(Fp8* to, Floats x) {
  const Ints bits = bits_as<Ints>(x), size = bits & 0x7fffffff;
  const Ints large = ((size + 0x7ffff + ((size >> 20) & 1)) >> 20) - (120 << 3);
  const Floats steps = bits_as<Floats>(size) * 512.0f;  // below 2^-6 the steps are of 2^-9
  const Ints small = bits_as<Ints>(steps + WHOLE_FLOATS) - bits_as<Ints>(splat(WHOLE_FLOATS));
  const Ints is_small = size < bits_as<int>(1.0f / 64);
  Ints codes = (small & is_small) | (large & ~is_small);
  const Ints beyond = codes > 0x7e;
  codes = (beyond & 0x7e) | (codes & ~beyond);
  codes |= (bits >> 24) & 0x80;
  for (int i = 0; i < LANES; i++) to[i].bits = uint8_t(codes[i]);
}

template <class T>
inline float largest_size(const T* x, long dim) {
  Floats most = {};
  long d = 0;
  auto add = [&](Floats some) {
    const Floats size = bits_as<Floats>(bits_as<Ints>(some) & 0x7fffffff);
    most = select((size > most) | (size != size), size, most);  // what is not a number stays
  };
  for (; d + LANES <= dim; d += LANES) add(load(x + d));
  if (d < dim) add(load_some(x + d, dim - d));
  float found = 0;
  for (int i = 0; i < LANES; i++) {
    if (std::isnan(most[i])) return most[i];
    found = std::max(found, most[i]);
  }
  return found;
}

// Calls put(d, count, codes) for LANES elements at a time of x[dim], and returns their scale.
template <class S, class T, class Put>
inline float encode(const T* x, long dim, Put put) {
  const float most = largest_size(x, dim), scale = most / LARGEST<S>;
  const float factor = most > 0 && std::isfinite(most) ? LARGEST<S> / most : 0;
  for (long d = 0; d < dim; d += LANES) {
    const int count = dim - d < LANES ? int(dim - d) : LANES;
    S codes[LANES];
    store_codes(codes, (count == LANES ? load(x + d) : load_some(x + d, count)) * factor);
    put(d, count, codes);
  }
  return scale;
}

}  // namespace
