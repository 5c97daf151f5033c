// All decoder layers of a step in one parallel region: norm, attention and gated feed-forward, each added to the hidden states.
//
// Threads share each stage, and wait for each other between two of them.
#pragma once

#include "attention.h"
#include "glue.h"
#include "linear.h"

namespace {

// What a layer computes with. Python packs it: engine/attention/in_place.py has the same fields in the same order.
struct Layer {
  const float* input_norm;
  Weights qkv;
  const float *query_norm, *key_norm;  // of each head, or null
  Weights out;
  const float* post_norm;
  Weights gate_up, down;  // panels of gate and up take turns
  long window;            // 0: none
  double input_eps, query_eps, key_eps, post_eps, scale, softcap;
};
static_assert(sizeof(Layer) == 35 * 8, "as Python packs it");

struct Pages {
  void *keys, *values;
  float *key_scales, *value_scales;  // of pages of eight bits
};

// The layers of a model, and one step. All layers have the same shapes.
struct Run {
  const Layer* layers;
  const Pages* pages;  // of each layer
  long count, hidden, heads, kv_heads, dim, width;  // width: between the feed-forward's layers
  void* x;                  // [tokens, hidden]: the hidden states, in place
  const void *cos, *sin;    // [tokens, rotary]
  const int *rows, *tables, *slots;  // see attention.h and glue.h
  long sequences, tokens, rotary;
  Kept kept;

  long qkv() const { return (heads + 2 * kv_heads) * dim; }
};

// What lies between the stages, for all tokens.
template <class T>
struct Between {
  T *normed, *qkv, *attended, *gated;

  static size_t bytes(const Run& r) {
    return whole_lines(sizeof(T) * r.tokens * (r.hidden + r.qkv() + r.heads * r.dim + r.width)) + 4 * 64;
  }
  Between(const Run& r, char* room) {
    T** const to[] = {&normed, &qkv, &attended, &gated};
    const long widths[] = {r.hidden, r.qkv(), r.heads * r.dim, r.width};
    for (int i = 0; i < 4; i++) {
      *to[i] = reinterpret_cast<T*>(room);
      room += whole_lines(sizeof(T) * r.tokens * widths[i]);
    }
  }
};

template <class T>
Attention attention_of(const Run& r, long n, const Between<T>& between) {
  const Layer& layer = r.layers[n];
  Attention a;
  a.query = between.qkv;
  a.out = between.attended;
  a.keys = r.pages[n].keys;
  a.values = r.pages[n].values;
  a.key_scales = r.pages[n].key_scales;
  a.value_scales = r.pages[n].value_scales;
  a.kept = r.kept;
  a.sinks = nullptr;
  a.rows = r.rows;
  a.tables = r.tables;
  a.sequences = r.sequences;
  a.heads = r.heads;
  a.kv_heads = r.kv_heads;
  a.key_dim = a.value_dim = r.dim;
  a.query_token = r.qkv();
  a.query_head = r.dim;
  a.window = layer.window;
  a.scale = layer.scale;
  a.softcap = layer.softcap;
  return a;
}

template <class T>
Writing writing_of(const Run& r, long n, const Between<T>& between) {
  Writing w;
  w.key = between.qkv + r.heads * r.dim;
  w.value = between.qkv + (r.heads + r.kv_heads) * r.dim;
  w.keys = r.pages[n].keys;
  w.values = r.pages[n].values;
  w.key_scales = r.pages[n].key_scales;
  w.value_scales = r.pages[n].value_scales;
  w.kept = r.kept;
  w.slots = r.slots;
  w.tokens = r.tokens;
  w.kv_heads = r.kv_heads;
  w.key_dim = w.value_dim = r.dim;
  w.key_token = w.value_token = r.qkv();
  w.key_head = w.value_head = r.dim;
  return w;
}

// Rotates this thread's heads of queries and keys, and writes its keys and values to their pages.
template <class T>
void place_share(const Run& r, long n, const Between<T>& between, const Share& share) {
  const Layer& layer = r.layers[n];
  const Writing writing = writing_of<T>(r, n, between);
  const long each = r.heads + 2 * r.kv_heads;
  for (long i = share.first(r.tokens * each); i < share.end(r.tokens * each); i++) {
    const long token = i / each, head = i % each, key = head - r.heads, value = key - r.kv_heads;
    if (value >= 0) {
      write_value<T>(writing, token, value);
      continue;
    }
    const T *cos = static_cast<const T*>(r.cos) + token * r.rotary, *sin = static_cast<const T*>(r.sin) + token * r.rotary;
    T* at = between.qkv + token * r.qkv() + head * r.dim;
    const bool is_key = key >= 0;
    rotate_head(at, cos, sin, is_key ? layer.key_norm : layer.query_norm, float(is_key ? layer.key_eps : layer.query_eps), r.dim,
                r.rotary);
    if (is_key) write_key<T>(writing, token, key);
  }
}

template <class T>
void multiply_stage(const Run& r, const Weights& weights, const void* x, void* y, long outputs, long inputs, Ending ending,
                    const Share& share) {
  multiply_share<T>({weights, x, y, r.tokens, outputs, inputs, ending}, share);
#pragma omp barrier
}

template <class T>
void normalize_stage(const Run& r, const float* weight, double eps, T* to, const Share& share) {
  normalize_share(static_cast<const T*>(r.x), weight, float(eps), to, r.tokens, r.hidden, share);
#pragma omp barrier
}

template <class T>
void compute_layer(const Run& r, long n, const Between<T>& between, const std::vector<Task>& tasks, const Share& share) {
  const Layer& layer = r.layers[n];
  normalize_stage(r, layer.input_norm, layer.input_eps, between.normed, share);
  multiply_stage<T>(r, layer.qkv, between.normed, between.qkv, r.qkv(), r.hidden, Ending::PLAIN, share);
  place_share<T>(r, n, between, share);
#pragma omp barrier
  attend_share<T>(attention_of<T>(r, n, between), tasks, share);
  multiply_stage<T>(r, layer.out, between.attended, r.x, r.hidden, r.heads * r.dim, Ending::ADDED, share);
  normalize_stage(r, layer.post_norm, layer.post_eps, between.normed, share);
  multiply_stage<T>(r, layer.gate_up, between.normed, between.gated, 2 * r.width, r.hidden, Ending::GATED, share);
  multiply_stage<T>(r, layer.down, between.gated, r.x, r.hidden, r.width, Ending::ADDED, share);
}

// Scratch memory that each thread needs: that of its greediest stage.
template <class T>
size_t layer_room(const Run& r, const Attention& a) {
  size_t most = attention_room(a);
  for (long n = 0; n < r.count; n++) {
    const Layer& layer = r.layers[n];
    for (const Weights* from_hidden : {&layer.qkv, &layer.gate_up}) most = std::max(most, linear_room<T>(*from_hidden, r.hidden));
    most = std::max(most, linear_room<T>(layer.out, r.heads * r.dim));
    most = std::max(most, linear_room<T>(layer.down, r.width));
  }
  return most;
}

template <class T>
void compute_layers(const Run& r) {
  static thread_local Arena arena;
  const Between<T> between(r, arena.take(Between<T>::bytes(r)));
  const Attention first = attention_of<T>(r, 0, between);
  const std::vector<Task> tasks = tasks_of(first);
  on_threads(true, layer_room<T>(r, first), [&](const Share& share) {
    for (long n = 0; n < r.count; n++) compute_layer<T>(r, n, between, tasks, share);
  });
}

}  // namespace
