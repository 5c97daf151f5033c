// Logits to weights: whole numbers, made by the same operations in the same order as engine/sampling/weights.py makes them, and
// exact sums of them. So the instruction set changes no bit.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "vector.h"

namespace {
namespace sampling {

constexpr int BLOCK = 128;
constexpr int WEIGHT_BITS = 44, SUM_BITS = 62;
constexpr int LOW_BITS = WEIGHT_BITS - 23;  // of a weight; the sum of a block's high parts fits in 31 bits
constexpr float LOWEST = -64;               // a power of two that gives the weight 0
constexpr int FRACTION = 23;                // bits of a float's fraction

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

}  // namespace sampling
}  // namespace
