// What stands between the linear layers of a decoder: norm, rotary embedding, and the write of keys and values.
// Arithmetic is in float; results are rounded once.
#pragma once

#include <cmath>

#include "attention.h"
#include "scratch.h"
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

// Root-mean-square norm of the rows of x [rows, dim] that are this thread's.
template <class T>
void normalize_share(const T* x, const float* weight, float eps, T* to, long rows, long dim, const Share& share) {
  for (long row = share.first(rows); row < share.end(rows); row++) {
    const T* from = x + row * dim;
    scale_by(from, weight, 1 / std::sqrt(mean_square(from, dim) + eps), to + row * dim, dim);
  }
}

template <class T>
void normalize(const T* x, const float* weight, float eps, T* to, long rows, long dim) {
  on_threads(rows * dim > SMALL, 0, [&](const Share& share) { normalize_share(x, weight, eps, to, rows, dim, share); });
}

// One head in place: root-mean-square norm if there is a weight, then the rotary embedding of the first `rotary` dimensions.
// cos and sin are those of its token, [rotary]; dimension i turns with i + rotary / 2.
template <class T>
inline void rotate_head(T* at, const T* cos, const T* sin, const float* weight, float eps, long dim, long rotary) {
  const long half = rotary / 2;
  if (weight) scale_by(at, weight, 1 / std::sqrt(mean_square(at, dim) + eps), at, dim);
  for (long d = 0; d < half; d += LANES) {
    const int count = std::min<long>(LANES, half - d);
    Floats low = load_some(at + d, count), high = load_some(at + half + d, count);
    store_some(at + d, low * load_some(cos + d, count) - high * load_some(sin + d, count), count);
    store_some(at + half + d, high * load_some(cos + half + d, count) + low * load_some(sin + half + d, count), count);
  }
}

// Heads of each token, in place; cos and sin are [tokens, rotary].
template <class T>
void rotate(T* x, const T* cos, const T* sin, const float* weight, float eps, long tokens, long heads, long token_stride,
            long dim, long rotary) {
  on_threads(tokens * heads * dim > SMALL, 0, [&](const Share& share) {
    for (long token = share.first(tokens); token < share.end(tokens); token++)
      for (long head = 0; head < heads; head++)
        rotate_head(x + token * token_stride + head * dim, cos + token * rotary, sin + token * rotary, weight, eps, dim, rotary);
  });
}

struct Writing {
  const void *key, *value;  // [tokens, kv_heads, dim] with strides
  void *keys, *values;      // pages; see attention.h
  float *key_scales, *value_scales;  // of pages of eight bits
  Kept kept;
  const int* slots;         // of each token: page * PAGE + place in the page
  long tokens, kv_heads, key_dim, value_dim;
  long key_token, key_head, value_token, value_head;  // strides in elements
};

// A key's element d of a page of eight bits is that of all lanes side by side.
template <class S, class T>
inline void write_narrow_key(const Writing& w, const T* key, long row, long place) {
  S* keys = static_cast<S*>(w.keys) + row * PAGE * w.key_dim + place / LANES * LANES * w.key_dim + place % LANES;
  w.key_scales[row * PAGE + place] = encode<S>(key, w.key_dim, [&](long d, int count, const S* codes) {
    for (int i = 0; i < count; i++) keys[(d + i) * LANES] = codes[i];
  });
}

template <class S, class T>
inline void write_narrow_value(const Writing& w, const T* value, long row, long place) {
  constexpr long per = Arithmetic<T>::per_unit;
  S* values = static_cast<S*>(w.values) + row * PAGE * w.value_dim + place / per * per * w.value_dim + place % per * LANES;
  w.value_scales[row * PAGE + place] = encode<S>(
      value, w.value_dim, [&](long d, int count, const S* codes) { memcpy(values + d * per, codes, count); });
}

template <class T>
inline void write_key(const Writing& w, long token, long head) {
  constexpr long per = Arithmetic<T>::per_unit;
  const long page = w.slots[token] / PAGE, place = w.slots[token] % PAGE, row = page * w.kv_heads + head;
  const T* key = static_cast<const T*>(w.key) + token * w.key_token + head * w.key_head;
  if (w.kept == Kept::INT8) return write_narrow_key<int8_t>(w, key, row, place);
  if (w.kept == Kept::FP8) return write_narrow_key<Fp8>(w, key, row, place);
  T* keys = static_cast<T*>(w.keys) + row * PAGE * w.key_dim + place / LANES * LANES * w.key_dim + place % LANES * per;
  for (long d = 0; d < w.key_dim; d += per) memcpy(keys + d * LANES, key + d, sizeof(T) * per);
}

// Whether this token is the last that the step writes to its page, and the page's first place is written in the step too. The
// slots of a sequence are next to each other.
inline bool opens_page(const Writing& w, long token) {
  const int slot = w.slots[token], place = slot % PAGE;
  const bool last = token + 1 == w.tokens || w.slots[token + 1] != slot + 1;
  return last && place + 1 < PAGE && place <= token && w.slots[token - place] == slot - place;
}

// What a former owner left in a page may not be a number, and a weight of 0 would not hide that. So the places behind the
// tokens that begin a page are cleared, by the last of them: then tokens can be written in any order.
template <class T>
inline void write_value(const Writing& w, long token, long head) {
  constexpr long per = Arithmetic<T>::per_unit;
  const long page = w.slots[token] / PAGE, place = w.slots[token] % PAGE, row = page * w.kv_heads + head;
  const T* value = static_cast<const T*>(w.value) + token * w.value_token + head * w.value_head;
  if (w.kept != Kept::WHOLE) {
    w.kept == Kept::INT8 ? write_narrow_value<int8_t>(w, value, row, place) : write_narrow_value<Fp8>(w, value, row, place);
    if (opens_page(w, token)) memset(w.value_scales + row * PAGE + place + 1, 0, sizeof(float) * (PAGE - place - 1));
    return;
  }
  T* values = static_cast<T*>(w.values) + row * PAGE * w.value_dim;
  T* unit = values + place / per * per * w.value_dim + place % per;
  for (long d = 0; d < w.value_dim; d++) unit[d * per] = value[d];
  if (!opens_page(w, token)) return;
  for (long rest = place % per + 1; rest < per; rest++)
    for (long d = 0; d < w.value_dim; d++) unit[rest - place % per + d * per] = T{};
  const long full = (place / per + 1) * per;
  memset(values + full * w.value_dim, 0, sizeof(T) * (PAGE - full) * w.value_dim);
}

template <class T>
void write(const Writing& w) {
  on_threads(w.tokens * w.kv_heads * w.key_dim > SMALL, 0, [&](const Share& share) {
    for (long token = share.first(w.tokens); token < share.end(w.tokens); token++)
      for (long head = 0; head < w.kv_heads; head++) write_key<T>(w, token, head), write_value<T>(w, token, head);
  });
}

}  // namespace
