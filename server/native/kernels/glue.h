// What stands between the linear layers of a decoder: norm, rotary embedding, gated activation, and the write of keys and values.
// Arithmetic is in float; results are rounded once.
#pragma once

#include <cmath>

#include "attention.h"
#include "vector.h"

namespace {

constexpr long SMALL = 1 << 13;  // elements up to which a second thread costs more than it saves

template <class T>
inline float mean_square(const T* x, long dim) {
  Floats sum = {};
  long d = 0;
  for (; d + LANES <= dim; d += LANES) sum += load(x + d) * load(x + d);
  float rest = 0;
  for (; d < dim; d++) rest += to_float(x[d]) * to_float(x[d]);
  return (total(sum) + rest) / dim;
}

// to[d] = x[d] * scale * weight[d]
template <class T>
inline void scale_by(const T* x, const float* weight, float scale, T* to, long dim) {
  long d = 0;
  for (; d + LANES <= dim; d += LANES) store(to + d, load(x + d) * scale * load(weight + d));
  if (d < dim) store_some(to + d, load_some(x + d, dim - d) * scale * load_some(weight + d, dim - d), dim - d);
}

// Root-mean-square norm of each row of x [rows, dim].
template <class T>
void normalize(const T* x, const float* weight, float eps, T* to, long rows, long dim) {
#pragma omp parallel for schedule(static) if (rows * dim > SMALL)
  for (long row = 0; row < rows; row++) {
    const T* from = x + row * dim;
    scale_by(from, weight, 1 / std::sqrt(mean_square(from, dim) + eps), to + row * dim, dim);
  }
}

// to [rows, dim] = silu(gate) * up, of x [rows, gate and up, dim].
template <class T>
void gate(const T* x, T* to, long rows, long dim) {
#pragma omp parallel for schedule(static) if (rows * dim > SMALL)
  for (long row = 0; row < rows; row++) {
    const T *gates = x + row * 2 * dim, *ups = gates + dim;
    for (long d = 0; d < dim; d += LANES) {
      Floats g = load(gates + d);
      store(to + row * dim + d, g / (1.0f + exponential(-g)) * load(ups + d));
    }
  }
}

// Heads of each token, in place: root-mean-square norm if there is a weight, then the rotary embedding of the first `rotary`
// dimensions. cos and sin are [tokens, rotary]; dimension i turns with i + rotary / 2.
template <class T>
void rotate(T* x, const T* cos, const T* sin, const float* weight, float eps, long tokens, long heads, long token_stride,
            long dim, long rotary) {
#pragma omp parallel for schedule(static) if (tokens * heads * dim > SMALL)
  for (long token = 0; token < tokens; token++) {
    const T *c = cos + token * rotary, *s = sin + token * rotary;
    const long half = rotary / 2;
    for (long head = 0; head < heads; head++) {
      T* at = x + token * token_stride + head * dim;
      if (weight) scale_by(at, weight, 1 / std::sqrt(mean_square(at, dim) + eps), at, dim);
      for (long d = 0; d < half; d += LANES) {
        const int count = std::min<long>(LANES, half - d);
        Floats low = load_some(at + d, count), high = load_some(at + half + d, count);
        store_some(at + d, low * load_some(c + d, count) - high * load_some(s + d, count), count);
        store_some(at + half + d, high * load_some(c + half + d, count) + low * load_some(s + half + d, count), count);
      }
    }
  }
}

struct Writing {
  const void *key, *value;  // [tokens, kv_heads, dim] with strides
  void *keys, *values;      // pages; see attention.h
  const int* slots;         // of each token: page * PAGE + place in the page
  long tokens, kv_heads, key_dim, value_dim;
  long key_token, key_head, value_token, value_head;  // strides in elements
};

// A page's values are cleared when its first place is written: what a former owner left may not be a number, and a weight of 0
// would not hide that.
template <class T>
inline void write_token(const Writing& w, long token, long head) {
  constexpr long per = Arithmetic<T>::per_unit;
  const long page = w.slots[token] / PAGE, place = w.slots[token] % PAGE, row = page * w.kv_heads + head;
  const T* key = static_cast<const T*>(w.key) + token * w.key_token + head * w.key_head;
  const T* value = static_cast<const T*>(w.value) + token * w.value_token + head * w.value_head;
  T* keys = static_cast<T*>(w.keys) + row * PAGE * w.key_dim + place / LANES * LANES * w.key_dim + place % LANES * per;
  T* values = static_cast<T*>(w.values) + row * PAGE * w.value_dim;
  for (long d = 0; d < w.key_dim; d += per) memcpy(keys + d * LANES, key + d, sizeof(T) * per);
  if (place == 0) memset(values, 0, sizeof(T) * PAGE * w.value_dim);
  values += place / per * per * w.value_dim + place % per;
  for (long d = 0; d < w.value_dim; d++) values[d * per] = value[d];
}

template <class T>
void write(const Writing& w) {
#pragma omp parallel for schedule(static) if (w.tokens * w.kv_heads * w.key_dim > SMALL)
  for (long head = 0; head < w.kv_heads; head++)
    for (long token = 0; token < w.tokens; token++) write_token<T>(w, token, head);
}

}  // namespace
