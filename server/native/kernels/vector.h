// One register of floats at a time, in GCC's vector types: one source for AVX2 (8 lanes) and AVX-512 (16).
//
// Kernels work on units of four bytes: one float, or a pair of bfloat16. A vector holds the same unit of LANES columns, and
// `multiply_add` adds to LANES float sums: one product a lane for floats, two for pairs. So one kernel serves both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#if defined(__AVX512BF16__)
#define HAS_BF16 1
#endif

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16;
#else
constexpr int LANES = 8;
#endif

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Units __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

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

template <class V>
inline V load_as(const void* from) {
  V vector;
  memcpy(&vector, from, sizeof vector);
  return vector;
}

inline Floats splat(float x) { return Floats{} + x; }

inline float to_float(float x) { return x; }
inline float to_float(Bf16 x) { return bits_as<float>(uint32_t(x.bits) << 16); }

inline Floats load(const float* from) { return load_as<Floats>(from); }
#ifdef __AVX512F__
// GCC 12 converts narrow integers through memory if it is left to its own vector types.
inline Floats load(const Bf16* from) {
  return bits_as<Floats>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_as<__m256i>(from)), 16));
}
inline Floats load(const int8_t* from) {
  return bits_as<Floats>(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_as<__m128i>(from))));
}
#else
inline Floats load(const Bf16* from) {
  return bits_as<Floats>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_as<__m128i>(from)), 16));
}
inline Floats load(const int8_t* from) {
  return bits_as<Floats>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from))));
}
#endif

inline void store(float* to, Floats x) { memcpy(to, &x, sizeof x); }
inline void store(Bf16* to, Floats x) {
#ifdef HAS_BF16
  auto half = _mm512_cvtneps_pbh(bits_as<__m512>(x));
  memcpy(to, &half, sizeof half);
#else
  // Round to nearest, ties to even. What is not a number stays so.
  Units bits = bits_as<Units>(x);
  Units rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  Units nan = bits_as<Units>(x != x);
  Halves half = __builtin_convertvector((rounded & ~nan) | (nan & 0x7fc0), Halves);
  memcpy(to, &half, sizeof half);
#endif
}

// Store the first `count` lanes.
template <class T>
inline void store_some(T* to, Floats x, int count) {
  T whole[LANES];
  store(whole, x);
  memcpy(to, whole, sizeof(T) * count);
}

template <class T>
inline Floats load_some(const T* from, int count) {
  T whole[LANES] = {};
  memcpy(whole, from, sizeof(T) * count);
  return load(whole);
}

inline float largest(Floats x) {
  float most = x[0];
  for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
  return most;
}

inline float total(Floats x) {
  for (int width = LANES / 2; width; width /= 2)
    for (int i = 0; i < width; i++) x[i] += x[i + width];
  return x[0];
}

inline Floats select(Ints mask, Floats yes, Floats no) {
  Units chosen = bits_as<Units>(mask);
  return bits_as<Floats>((bits_as<Units>(yes) & chosen) | (bits_as<Units>(no) & ~chosen));
}

inline Floats maximum(Floats a, Floats b) { return select(a > b, a, b); }

// e^x with a relative error below 2e-7: 2^n times a polynomial on [-ln2/2, ln2/2]. 0 below -87.3, also for -infinity; NaN stays.
inline Floats exponential(Floats x) {
  Ints tiny = x < -87.3f;
  Floats bounded = select(x > 88.0f, splat(88.0f), select(tiny, splat(-87.3f), x));
  Floats shifted = bounded * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to a whole number
  Floats n = shifted - 12582912.0f;
  Floats r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
  Floats p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  Ints power = (__builtin_convertvector(n, Ints) + 127) << 23;
  return select(tiny, Floats{}, p * bits_as<Floats>(power));
}

// The arithmetic of an element type: units of four bytes, LANES sums at a time.
template <class T>
struct Arithmetic;

template <>
struct Arithmetic<float> {
  typedef Floats Vector;
  static constexpr int per_unit = 1;
  static inline Floats multiply_add(Floats sum, const void* unit, Vector columns) {
    float x;
    memcpy(&x, unit, sizeof x);
    return sum + x * columns;
  }
};

#ifdef HAS_BF16
template <>
struct Arithmetic<Bf16> {
  typedef __m512bh Vector;
  static constexpr int per_unit = 2;
  static inline Floats multiply_add(Floats sum, const void* unit, Vector columns) {
    int x;
    memcpy(&x, unit, sizeof x);
    return bits_as<Floats>(_mm512_dpbf16_ps(bits_as<__m512>(sum), bits_as<__m512bh>(_mm512_set1_epi32(x)), columns));
  }
};
#endif

// One vector of weights, stored as W, for the arithmetic of T.
template <class T, class W>
inline typename Arithmetic<T>::Vector widen(const W* from) {
  if constexpr (sizeof(T) == sizeof(W)) {
    return load_as<typename Arithmetic<T>::Vector>(from);
#ifdef HAS_BF16
  } else if constexpr (sizeof(T) == 2) {
    // First the low half of each unit, then the high ones. Bfloat16 holds whole numbers up to 256, so nothing is rounded.
    Units low = bits_as<Units>(load(from)) >> 16, high = bits_as<Units>(load(from + LANES));
    return bits_as<__m512bh>(low | high);
#endif
  } else {
    return load(from);
  }
}

}  // namespace
