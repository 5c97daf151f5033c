// Attention of queries over paged keys and values, which are read in place.
//
// A page of one head holds PAGE tokens. Keys lie as [PAGE / LANES][key_dim / per_unit][LANES][per_unit]: a vector holds one unit
// of LANES keys, so a score needs no sum across lanes. Values lie as [PAGE / per_unit][value_dim][per_unit]: a unit holds one
// dimension of per_unit tokens. eight_bits.h has pages of eight bits. Sequences, heads and blocks of queries are computed side by side.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "eight_bits.h"
#include "scratch.h"
#include "vector.h"

namespace {

constexpr int PAGE = 16;
constexpr int GROUP = 8;  // pages whose scores are in memory at one time
constexpr int KEYS = GROUP * PAGE;
#ifdef __AVX512F__
constexpr int QUERIES = 8;
#else
constexpr int QUERIES = 4;
#endif

struct Attention {
  const void* query;  // [tokens, heads, key_dim] with strides
  void* out;          // [tokens, heads, value_dim]
  const void* keys;   // [pages, kv_heads, PAGE * key_dim]
  const void* values; // [pages, kv_heads, PAGE * value_dim]
  const float *key_scales, *value_scales;  // of pages of eight bits, [pages, kv_heads, PAGE]
  Kept kept;
  const float* sinks; // [heads], or null
  const int* rows;    // of each sequence: first flat row, tokens, position of the first token, start in tables
  const int* tables;
  long sequences, heads, kv_heads, key_dim, value_dim;
  long query_token, query_head;  // strides in elements
  long window;                   // 0: none
  float scale, softcap;          // softcap 0: none
};

// Up to QUERIES queries of one sequence that share a head of keys: (token, head within the group), token by token.
struct Task {
  int sequence, kv_head, first, count;
};

// What a thread needs for one task.
template <class T>
struct Work {
  const Attention& a;
  float* sums;  // [QUERIES, value_dim]
  T* queries;   // [QUERIES, key_dim]
  const int* table;
  int kv_head, count;
  int token[QUERIES], head[QUERIES], position[QUERIES];
  float most[QUERIES], total[QUERIES], correction[QUERIES];
  alignas(64) float scores[QUERIES][KEYS];
  alignas(64) T weights[QUERIES][KEYS];

  T* query(int r) { return queries + r * a.key_dim; }
  float* sum(int r) { return sums + r * a.value_dim; }
  // A page of this head: its place among all.
  long page(int n) const { return long(table[n]) * a.kv_heads + kv_head; }
};

// Scores of R queries with P sets of LANES keys.
template <class T, class S, int R, int P>
inline void score(Work<T>& w, const S* const* keys, const float* const* scales, const int* places) {
  constexpr int per = Arithmetic<T>::per_unit;
  Floats sums[R][P] = {};
  for (long d = 0; d < w.a.key_dim; d += per) {
    typename Arithmetic<T>::Vector columns[P];
    for (int p = 0; p < P; p++) columns[p] = widen<T>(keys[p] + d * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) sums[r][p] = Arithmetic<T>::multiply_add(sums[r][p], w.query(r) + d, columns[p]);
  }
  for (int r = 0; r < R; r++)
    for (int p = 0; p < P; p++) {
      Floats scores = sums[r][p] * w.a.scale;
      if constexpr (narrow<S>()) scores *= load(scales[p]);
      store(w.scores[r] + places[p], scores);
    }
}

template <class T, class S, int R>
inline void score_pages(Work<T>& w, int first, int pages) {
  constexpr int at_once = R <= 2 ? 4 : R <= 4 ? 2 : 1;
  constexpr int sets = PAGE / LANES;
  const S* keys[at_once];
  const float* scales[at_once] = {};
  int places[at_once];
  int held = 0;
  for (int page = 0; page < pages; page++) {
    const long at = w.page(first + page) * PAGE;
    const S* start = static_cast<const S*>(w.a.keys) + at * w.a.key_dim;
    for (int set = 0; set < sets; set++) {
      if constexpr (narrow<S>()) scales[held] = w.a.key_scales + at + set * LANES;
      keys[held] = start + set * LANES * w.a.key_dim;
      places[held++] = page * PAGE + set * LANES;
      if (held == at_once) score<T, S, R, at_once>(w, keys, scales, places), held = 0;
    }
  }
  for (int i = 0; i < held; i++) score<T, S, R, 1>(w, keys + i, scales + i, places + i);
}

inline Floats bounded(Floats scores, float softcap) {
  // tanh(x) = 1 - 2 / (e^2x + 1)
  return softcap * (1.0f - 2.0f / (exponential(scores * (2.0f / softcap)) + 1.0f));
}

// Scores to weights of the keys from position `start` on; keeps the highest score and the sum of weights of each query. What is stored
// has the scales of the values in it.
template <class T, class S>
inline void weigh(Work<T>& w, int r, int start, int count) {
  float* scores = w.scores[r];
  const int end = w.position[r], begin = w.a.window ? end - int(w.a.window) + 1 : 0;
  Floats high = splat(-INFINITY);
  for (int i = 0; i < count; i += LANES) {
    Floats s = load(scores + i);
    if (w.a.softcap != 0) s = bounded(s, w.a.softcap);
    if (start + i + LANES - 1 > end || start + i < begin) {
      Ints place = {};
      for (int lane = 0; lane < LANES; lane++) place[lane] = start + i + lane;
      s = select((place <= end) & (place >= begin), s, splat(-INFINITY));
    }
    store(scores + i, s);
    high = maximum(s, high);  // what is not a number is not greater, and stays in its weight
  }
  const float most = std::max(w.most[r], largest(high));
  w.correction[r] = 1;
  Floats sum = {};
  if (most > -INFINITY) {
    w.correction[r] = exponential(splat(w.most[r] - most))[0];
    for (int i = 0; i < count; i += LANES) {
      Floats weight = exponential(load(scores + i) - most);
      sum += weight;
      if constexpr (narrow<S>()) weight *= load(w.a.value_scales + w.page((start + i) / PAGE) * PAGE + (start + i) % PAGE);
      store(w.weights[r] + i, weight);
    }
  } else {
    for (int i = 0; i < count; i += LANES) store(w.weights[r] + i, Floats{});
  }
  w.most[r] = most;
  w.total[r] = w.total[r] * w.correction[r] + total(sum);
}

// Add the values of `pages` pages to V vectors of dimensions of R queries.
template <class T, class S, int R, int V>
inline void blend(Work<T>& w, int r0, long d, int first, int pages) {
  constexpr int per = Arithmetic<T>::per_unit;
  Floats sums[R][V];
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) sums[r][v] = load(w.sum(r0 + r) + d + v * LANES) * w.correction[r0 + r];
  for (int page = 0; page < pages; page++) {
    const S* values = static_cast<const S*>(w.a.values) + w.page(first + page) * PAGE * w.a.value_dim + d * per;
    for (int i = 0; i < PAGE; i += per) {
      typename Arithmetic<T>::Vector rows[V];
      for (int v = 0; v < V; v++) rows[v] = widen<T>(values + i * w.a.value_dim + v * LANES * per);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++)
          sums[r][v] = Arithmetic<T>::multiply_add(sums[r][v], w.weights[r0 + r] + page * PAGE + i, rows[v]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int v = 0; v < V; v++) store(w.sum(r0 + r) + d + v * LANES, sums[r][v]);
}

template <class T, class S, int R>
inline void blend_all(Work<T>& w, int r0, int first, int pages) {
  constexpr int V = 4;
  long d = 0;
  for (; d + V * LANES <= w.a.value_dim; d += V * LANES) blend<T, S, R, V>(w, r0, d, first, pages);
  for (; d < w.a.value_dim; d += LANES) blend<T, S, R, 1>(w, r0, d, first, pages);
}

template <class T, class S>
inline void blend_queries(Work<T>& w, int first, int pages) {
  int r = 0;
  for (; r + 4 <= w.count; r += 4) blend_all<T, S, 4>(w, r, first, pages);
  if (w.count - r == 3) blend_all<T, S, 3>(w, r, first, pages);
  if (w.count - r == 2) blend_all<T, S, 2>(w, r, first, pages);
  if (w.count - r == 1) blend_all<T, S, 1>(w, r, first, pages);
}

template <class T, class S, int R = QUERIES>
inline void score_queries(Work<T>& w, int first, int pages) {
  if (w.count == R)
    score_pages<T, S, R>(w, first, pages);
  else if constexpr (R > 1)
    score_queries<T, S, R - 1>(w, first, pages);
}

template <class T>
inline void begin(Work<T>& w, const Task& task) {
  const int* row = w.a.rows + 4 * task.sequence;
  const int group = w.a.heads / w.a.kv_heads;
  w.table = w.a.tables + row[3];
  w.kv_head = task.kv_head;
  w.count = task.count;
  for (int r = 0; r < task.count; r++) {
    const int token = (task.first + r) / group;
    w.token[r] = row[0] + token;
    w.head[r] = task.kv_head * group + (task.first + r) % group;
    w.position[r] = row[2] + token;
    const T* query = static_cast<const T*>(w.a.query) + w.token[r] * w.a.query_token + w.head[r] * w.a.query_head;
    memcpy(w.query(r), query, w.a.key_dim * sizeof(T));
    w.most[r] = w.a.sinks ? w.a.sinks[w.head[r]] : -INFINITY;
    w.total[r] = w.a.sinks ? 1 : 0;
    for (long d = 0; d < w.a.value_dim; d++) w.sum(r)[d] = 0;
  }
}

template <class T>
inline void finish(Work<T>& w) {
  for (int r = 0; r < w.count; r++) {
    T* to = static_cast<T*>(w.a.out) + (w.token[r] * w.a.heads + w.head[r]) * w.a.value_dim;
    const float share = 1 / w.total[r];
    for (long d = 0; d < w.a.value_dim; d += LANES) store(to + d, load(w.sum(r) + d) * share);
  }
}

template <class T, class S>
inline void attend_task(Work<T>& w, const Task& task) {
  begin(w, task);
  const int last = w.position[w.count - 1] / PAGE;
  const int earliest = w.a.window ? std::max(w.position[0] - int(w.a.window) + 1, 0) / PAGE : 0;
  for (int page = earliest; page <= last; page += GROUP) {
    const int pages = std::min(GROUP, last + 1 - page);
    score_queries<T, S>(w, page, pages);
    for (int r = 0; r < w.count; r++) weigh<T, S>(w, r, page * PAGE, pages * PAGE);
    blend_queries<T, S>(w, page, pages);
  }
  finish(w);
}

inline std::vector<Task> tasks_of(const Attention& a) {
  std::vector<Task> tasks;
  const int group = a.heads / a.kv_heads;
  for (int s = 0; s < a.sequences; s++)
    for (int kv_head = 0; kv_head < a.kv_heads; kv_head++)
      for (int first = 0, queries = a.rows[4 * s + 1] * group; first < queries; first += QUERIES)
        tasks.push_back({s, kv_head, first, std::min(QUERIES, queries - first)});
  return tasks;
}

// Scratch memory that each thread needs.
inline size_t attention_room(const Attention& a) { return sizeof(float) * QUERIES * (a.value_dim + a.key_dim); }

// This thread's part of the tasks; all threads of the region call it, and it returns when all are done.
template <class T, class S>
void attend_share_of(const Attention& a, const std::vector<Task>& tasks, const Share& share) {
  float* sums = reinterpret_cast<float*>(share.room);
  Work<T> work{a, sums, reinterpret_cast<T*>(sums + QUERIES * a.value_dim)};
#pragma omp for schedule(dynamic, 2)
  for (size_t i = 0; i < tasks.size(); i++) attend_task<T, S>(work, tasks[i]);
}

template <class T>
void attend_share(const Attention& a, const std::vector<Task>& tasks, const Share& share) {
  if (a.kept == Kept::INT8)
    attend_share_of<T, int8_t>(a, tasks, share);
  else if (a.kept == Kept::FP8)
    attend_share_of<T, Fp8>(a, tasks, share);
  else
    attend_share_of<T, T>(a, tasks, share);
}

template <class T>
void attend(const Attention& a) {
  const std::vector<Task> tasks = tasks_of(a);
  on_threads(true, attention_room(a), [&](const Share& share) { attend_share<T>(a, tasks, share); });
}

}  // namespace
