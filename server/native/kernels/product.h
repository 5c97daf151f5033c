// The operands of a linear layer, and how its sums become outputs.
#pragma once

#include "vector.h"

namespace {

struct Weights {
  const void* w;       // panels; see linear.h and int4.h
  const float* scale;  // of each output, or null; of four bits: of each group
  const float* bias;   // or null
  const float* zero;   // of four bits: of each group, or null
  long bits;           // of one weight
  long group;          // of four bits: inputs of a group
};

enum class Ending : long {
  PLAIN,  // y = sums
  GATED,  // panels of gates and of what they gate take turns: y[M, N / 2] = silu(gate) * other
  ADDED,  // y += sums
};

struct Linear {
  Weights weights;
  const void* x;
  void* y;
  long rows, outputs, inputs;
  Ending ending;
};

// The sums of LANES outputs from `output` on, with scale and bias.
inline Floats scaled(const Linear& l, long output, Floats sum) {
  const Weights& w = l.weights;
  const long left = l.outputs - output;
  if (left >= LANES) {
    if (w.scale) sum *= load(w.scale + output);
    if (w.bias) sum += load(w.bias + output);
  } else {
    if (w.scale) sum *= load_some(w.scale + output, left);
    if (w.bias) sum += load_some(w.bias + output, left);
  }
  return sum;
}

inline Floats silu(Floats x) { return x / (1.0f + exponential(-x)); }

// Sums of P panels of one row.
template <class T, int P>
inline void put(const Linear& l, long row, long output, const Floats* sums) {
  T* y = static_cast<T*>(l.y);
  if constexpr (P == 2) {
    if (l.ending == Ending::GATED)
      return store(y + (row * l.outputs + output) / 2, silu(scaled(l, output, sums[0])) * scaled(l, output + LANES, sums[1]));
  }
  for (int p = 0; p < P; p++) {
    const long at = output + p * LANES, left = l.outputs - at;
    if (left <= 0) return;
    T* to = y + row * l.outputs + at;
    Floats sum = scaled(l, at, sums[p]);
    if (left >= LANES)
      store(to, l.ending == Ending::ADDED ? load(to) + sum : sum);
    else
      store_some(to, l.ending == Ending::ADDED ? load_some(to, left) + sum : sum, left);
  }
}

}  // namespace
