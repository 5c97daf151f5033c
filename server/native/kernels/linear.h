// y[M, N] = x[M, K] w[N, K]^T * scale[N] + bias[N], with weights in panels of LANES outputs.
//
// A panel is [K / per_unit][LANES][per_unit]: each vector of it holds one unit of its outputs. Weights are stored as T, or
// smaller: bfloat16 for float arithmetic, int8 for both, in panels of [K / per_unit][per_unit][LANES], or four bits as in int4.h. With few rows they are widened in registers. With many, a panel is
// widened once into scratch memory, which all rows then read.
#pragma once

#include <type_traits>

#include "int4.h"
#include "product.h"
#include "scratch.h"
#include "tiles.h"

namespace {

#ifdef __AVX512F__
constexpr int ROWS = 12;
#else
constexpr int ROWS = 6;
#endif
constexpr int PANELS = 2;  // ROWS * PANELS sums stay in registers

// R rows against P panels, each `stride` weights after the one before.
template <class T, class W, int R, int P>
inline void multiply(const Linear& l, const W* w, long stride, long row, long output) {
  constexpr int per = Arithmetic<T>::per_unit;
  const T* x = static_cast<const T*>(l.x) + row * l.inputs;
  Floats sums[R][P] = {};
  for (long k = 0; k < l.inputs; k += per) {
    typename Arithmetic<T>::Vector columns[P];
    for (int p = 0; p < P; p++) columns[p] = widen<T>(w + p * stride + k * LANES);
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
      for (int p = 0; p < P; p++)
        sums[r][p] = Arithmetic<T>::multiply_add(sums[r][p], x + r * l.inputs + k, columns[p]);
  }
  for (int r = 0; r < R; r++) put<T, P>(l, row + r, output, sums[r]);
}

// All rows in tiles that are as equal as can be.
template <class T, class W, int P, int R = ROWS>
inline void multiply_tile(int rows, const Linear& l, const W* w, long stride, long row, long output) {
  if (rows == R)
    multiply<T, W, R, P>(l, w, stride, row, output);
  else if constexpr (R > 1)
    multiply_tile<T, W, P, R - 1>(rows, l, w, stride, row, output);
}

template <class T, class W, int P>
inline void multiply_rows(const Linear& l, const W* w, long stride, long output) {
  long tiles = (l.rows + ROWS - 1) / ROWS, base = l.rows / tiles, more = l.rows % tiles, row = 0;
  for (long tile = 0; tile < tiles; tile++) {
    int count = base + (tile < more);
    multiply_tile<T, W, P>(count, l, w, stride, row, output);
    row += count;
  }
}

template <class T, class W>
inline void widen_into(T* to, const W* from, long count) {
  constexpr int step = LANES * Arithmetic<T>::per_unit;
  for (long i = 0; i < count; i += step) {
    auto vector = widen<T>(from + i);
    memcpy(to + i, &vector, sizeof vector);
  }
}

constexpr long FEW = 2;  // rows up to which widening in registers beats tiles

// P panels that are stored as T.
template <class T, int P>
inline void multiply_wide(const Linear& l, const T* w, long output, char* room) {
  if constexpr (tiled<T>())
    multiply_tiled<P>(l, reinterpret_cast<const char*>(w), output, room);
  else
    multiply_rows<T, T, P>(l, w, LANES * l.inputs, output);
}

template <class T, class W, int P>
inline void multiply_group(const Linear& l, long panel, char* room) {
  const long size = LANES * l.inputs, output = panel * LANES;
  const W* w = static_cast<const W*>(l.weights.w) + panel * size;
  constexpr bool narrow = sizeof(W) < sizeof(T);
  if (narrow && l.rows <= (tiled<T>() ? FEW : ROWS)) return multiply_rows<T, W, P>(l, w, size, output);
  if constexpr (narrow) {
    T* widened = reinterpret_cast<T*>(room + TILE_ROOM);
    widen_into(widened, w, P * size);
    multiply_wide<T, P>(l, widened, output, room);
  } else {
    multiply_wide<T, P>(l, w, output, room);
  }
}

struct FourBits {};

template <class T, int P>
inline void multiply_group_of_four(const Linear& l, long panel, char* room) {
  const Four four(l, panel);
  Linear scaled = l;
  scaled.weights.scale = nullptr;  // it is in the weights
  if (l.rows <= (tiled<T>() ? FEW : FEW_FOUR)) return multiply_few<T, P>(scaled, four, panel * LANES);
  T* widened = reinterpret_cast<T*>(room + TILE_ROOM);
  widen_four<T, P>(widened, four);
  multiply_wide<T, P>(scaled, widened, panel * LANES, room);
}

template <class T, class W, int P>
inline void multiply_some(const Linear& l, long panel, char* room) {
  if constexpr (std::is_same_v<W, FourBits>)
    multiply_group_of_four<T, P>(l, panel, room);
  else
    multiply_group<T, W, P>(l, panel, room);
}

template <class T, class W>
void multiply_panels(const Linear& l, const Share& share) {
  const long panels = (l.outputs + LANES - 1) / LANES, groups = (panels + PANELS - 1) / PANELS;
  for (long g = share.first(groups); g < share.end(groups); g++) {
    if (g * PANELS + PANELS <= panels)
      multiply_some<T, W, PANELS>(l, g * PANELS, share.room);
    else
      multiply_some<T, W, 1>(l, g * PANELS, share.room);
  }
}

// Scratch memory that each thread needs.
template <class T>
inline size_t linear_room(const Weights& weights, long inputs) {
  return TILE_ROOM + (weights.bits < long(8 * sizeof(T)) ? PANELS * LANES * inputs * sizeof(T) : 0);
}

// This thread's part of a linear layer.
template <class T>
void multiply_share(const Linear& l, const Share& share) {
  if (l.weights.bits == 4)
    multiply_panels<T, FourBits>(l, share);
  else if (l.weights.bits == 8)
    multiply_panels<T, int8_t>(l, share);
  else if (l.weights.bits == 16)
    multiply_panels<T, Bf16>(l, share);
  else if constexpr (sizeof(T) == 4)
    multiply_panels<T, float>(l, share);
}

template <class T>
void multiply_all(const Linear& l) {
  on_threads(true, linear_room<T>(l.weights, l.inputs), [&](const Share& share) { multiply_share<T>(l, share); });
}

}  // namespace
