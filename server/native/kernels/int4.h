// Weights of four bits: whole numbers with a scale and a zero for each group of inputs of an output.
//
// A panel is [K / 2][LANES] bytes, each with the numbers of two inputs of one output: the first in the low bits. Scales and zeros
// are [K / group][LANES] floats; a weight is (number - zero) * scale, rounded to the arithmetic's type. With few rows weights are widened in
// registers, with many once into scratch memory: the same values, so that a row's result does not depend on the others.
#pragma once

#include "product.h"

namespace {

constexpr float MIDDLE = 8;  // the zero, if a layer has no zeros

inline Ints bytes(const uint8_t* from) {
#ifdef __AVX512F__
  return bits_as<Ints>(_mm512_cvtepu8_epi32(load_as<__m128i>(from)));
#else
  return bits_as<Ints>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#endif
}

// The weights of two inputs, in the units of T.
template <class T>
struct Two {
  static constexpr int count = 2 / Arithmetic<T>::per_unit;
  typename Arithmetic<T>::Vector units[count];
};

template <class T>
inline Two<T> widen_two(const uint8_t* from, Floats scale, Floats zero) {
  const Ints both = bytes(from);
  const Floats first = (__builtin_convertvector(both & 15, Floats) - zero) * scale;
  const Floats second = (__builtin_convertvector(both >> 4, Floats) - zero) * scale;
  Two<T> two;
  if constexpr (sizeof(T) == 4) {
    two.units[0] = first;
    two.units[1] = second;
#ifdef HAS_BF16
  } else {
    Bf16 low[LANES], high[LANES];
    store(low, first);
    store(high, second);
    two.units[0] = bits_as<__m512bh>(bits_as<Units>(load(low)) >> 16 | bits_as<Units>(load(high)));
#endif
  }
  return two;
}

// P panels next to each other, and where the scales and zeros of each begin.
struct Four {
  const uint8_t* w;
  const float *scale, *zero;  // zero: or null
  long inputs, group;

  Four(const Linear& l, long panel) {
    const Weights& all = l.weights;
    inputs = l.inputs;
    group = all.group;
    const long scales = panel * LANES * (inputs / group);
    w = static_cast<const uint8_t*>(all.w) + panel * LANES * inputs / 2;
    scale = all.scale + scales;
    zero = all.zero ? all.zero + scales : nullptr;
  }
  const uint8_t* at(int p, long k) const { return w + (p * inputs + k) * LANES / 2; }
  Floats scales(int p, long k) const { return load(scale + (p * inputs + k) / group * LANES); }
  Floats zeros(int p, long k) const { return zero ? load(zero + (p * inputs + k) / group * LANES) : splat(MIDDLE); }
};

template <class T, int R, int P>
inline void multiply_four(const Linear& l, const Four& four, long row, long output) {
  constexpr int per = Arithmetic<T>::per_unit;
  const T* x = static_cast<const T*>(l.x) + row * l.inputs;
  Floats sums[R][P] = {};
  for (long begin = 0; begin < l.inputs; begin += four.group) {
    Floats scale[P], zero[P];
    for (int p = 0; p < P; p++) scale[p] = four.scales(p, begin), zero[p] = four.zeros(p, begin);
    for (long k = begin; k < begin + four.group; k += 2) {
      Two<T> columns[P];
      for (int p = 0; p < P; p++) columns[p] = widen_two<T>(four.at(p, k), scale[p], zero[p]);
#pragma GCC unroll 2
      for (int u = 0; u < Two<T>::count; u++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
#pragma GCC unroll 2
          for (int p = 0; p < P; p++)
            sums[r][p] = Arithmetic<T>::multiply_add(sums[r][p], x + r * l.inputs + k + u * per, columns[p].units[u]);
    }
  }
  for (int r = 0; r < R; r++) put<T, P>(l, row + r, output, sums[r]);
}

constexpr int FEW_FOUR = 4;  // rows up to which widening in registers beats scratch memory

template <class T, int P, int R = FEW_FOUR>
inline void multiply_few(const Linear& l, const Four& four, long output) {
  if (l.rows == R)
    multiply_four<T, R, P>(l, four, 0, output);
  else if constexpr (R > 1)
    multiply_few<T, P, R - 1>(l, four, output);
}

// P panels, as if they were stored as T.
template <class T, int P>
inline void widen_four(T* to, const Four& four) {
  for (int p = 0; p < P; p++)
    for (long begin = 0; begin < four.inputs; begin += four.group) {
      const Floats scale = four.scales(p, begin), zero = four.zeros(p, begin);
      for (long k = begin; k < begin + four.group; k += 2, to += 2 * LANES) {
        const Two<T> two = widen_two<T>(four.at(p, k), scale, zero);
        memcpy(to, two.units, sizeof two.units);
      }
    }
}

}  // namespace
