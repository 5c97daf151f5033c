// The operands of a linear layer, and how its sums become outputs.
#pragma once

#include "vector.h"

namespace {

struct Linear {
  const void* x;
  const void* w;
  const float* scale;  // or null
  const float* bias;   // or null
  void* y;
  long rows, outputs, inputs;
};

template <class T>
inline void put(const Linear& l, long row, long output, Floats sum) {
  T* to = static_cast<T*>(l.y) + row * l.outputs + output;
  long left = l.outputs - output;
  if (left >= LANES) {
    if (l.scale) sum *= load(l.scale + output);
    if (l.bias) sum += load(l.bias + output);
    store(to, sum);
  } else if (left > 0) {
    if (l.scale) sum *= load_some(l.scale + output, left);
    if (l.bias) sum += load_some(l.bias + output, left);
    store_some(to, sum, left);
  }
}

}  // namespace
