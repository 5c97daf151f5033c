// The bfloat16 product of linear.h on AMX: sixteen rows and sixteen outputs a tile.
//
// Sixteen units of a panel of weights are one tile as they lie in memory. So are sixteen rows of x. The last rows make smaller
// tiles, so that nothing behind x is read.
#pragma once

#include <algorithm>

#include "product.h"

#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
#define HAS_AMX 1
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

// Whether products of T go to tiles. Then `inputs` must be a multiple of `TILE_INPUTS`.
template <class T>
constexpr bool tiled() {
#ifdef HAS_AMX
  return sizeof(T) == 2;
#else
  return false;
#endif
}

constexpr int TILE_INPUTS = 32;

#ifdef HAS_AMX

// Ask Linux for the tile registers; without this their first use is a fault. Returns whether it agreed.
inline bool claim_tiles() {
  constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

// GCC 12 does not see that the tile instructions read memory. Without this it drops or delays what was stored there.
inline void settle(const void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

struct alignas(64) TileShapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// Sums are tiles 0 to 3, rows of x 4 and 5, panels 6 and 7. Tiles of the upper rows: 0, 1 and 4; of the lower: 2, 3 and 5.
inline void shape_tiles(int upper, int lower) {
  TileShapes shapes;
  const int rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
  for (int i = 0; i < 8; i++) {
    shapes.rows[i] = rows[i];
    shapes.bytes[i] = rows[i] ? 64 : 0;
  }
  settle(&shapes);
  _tile_loadconfig(&shapes);
}

// Outputs of `rows` rows from the sums of P tiles of panels.
template <int P>
inline void put_tiles(const Linear& l, const float (*sums)[16 * LANES], int rows, long row, long output) {
  for (int r = 0; r < rows; r++) {
    Floats one[P];
    for (int p = 0; p < P; p++) one[p] = load(sums[p] + r * LANES);
    put<Bf16, P>(l, row + r, output, one);
  }
}

constexpr long PREFETCH = 8192;  // bytes ahead of the tile that is read; the processor does not see tiles as a stream

inline void fetch_ahead(const char* tile) {
  for (int line = 0; line < 16; line++) _mm_prefetch(tile + PREFETCH + line * 64, _MM_HINT_T0);
}

// Many rows with few inputs are computed in two halves of the inputs: half of two panels stays in the first cache while the rows
// pass, and the sums wait in memory. With more inputs the way of the sums costs more than it saves.
constexpr long BLOCK_ROWS = 128, HALVED_INPUTS = 1024;
typedef float Sums[4][16 * LANES];  // of two tiles of rows with two panels
constexpr size_t TILE_ROOM = BLOCK_ROWS / 32 * sizeof(Sums);

template <int P, bool BOTH>
inline void begin_sums(const Sums& sums, bool first) {
  if (first) {
    _tile_zero(0);
    if constexpr (P == 2) _tile_zero(1);
    if constexpr (BOTH) _tile_zero(2);
    if constexpr (BOTH && P == 2) _tile_zero(3);
    return;
  }
  settle(sums);
  _tile_loadd(0, sums[0], 64);
  if constexpr (P == 2) _tile_loadd(1, sums[1], 64);
  if constexpr (BOTH) _tile_loadd(2, sums[2], 64);
  if constexpr (BOTH && P == 2) _tile_loadd(3, sums[3], 64);
}

// Rows from `row` on, with P panels and the inputs from byte `k` to byte `end` of a row; `upper` and `lower` rows in two tiles.
template <int P, bool BOTH>
inline void multiply_tiles(const Linear& l, const char* w, long row, int upper, int lower, long output, long k, long end,
                           Sums& sums) {
  const long stride = l.inputs * 2, panel = stride * LANES;
  const char* x = static_cast<const char*>(l.x) + row * stride;
  settle(w);
  begin_sums<P, BOTH>(sums, k == 0);
  for (; k < end; k += 64) {
    const char* columns = w + k * LANES;
    _tile_loadd(4, x + k, stride);
    if constexpr (BOTH) _tile_loadd(5, x + 16 * stride + k, stride);
    fetch_ahead(columns);
    _tile_loadd(6, columns, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (BOTH) _tile_dpbf16ps(2, 5, 6);
    if constexpr (P == 2) {
      fetch_ahead(columns + panel);
      _tile_loadd(7, columns + panel, 64);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (BOTH) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums[0], 64);
  if constexpr (P == 2) _tile_stored(1, sums[1], 64);
  if constexpr (BOTH) _tile_stored(2, sums[2], 64);
  if constexpr (BOTH && P == 2) _tile_stored(3, sums[3], 64);
  if (end < stride) return;
  put_tiles<P>(l, sums, upper, row, output);
  if constexpr (BOTH) put_tiles<P>(l, sums + 2, lower, row + 16, output);
}

// At most BLOCK_ROWS rows: two tiles of rows at a time, then what is left.
template <int P>
inline void multiply_block(const Linear& l, const char* w, long row, long rows, long output, Sums* sums) {
  const long stride = l.inputs * 2, half = (stride / 2 + 63) / 64 * 64;
  const long block = rows > 32 && l.inputs <= HALVED_INPUTS ? half : stride;
  for (long k = 0; k < stride; k += block) {
    const long end = std::min(k + block, stride), left = rows % 32, whole = rows - left;
    if (whole) shape_tiles(16, 16);
    for (long r = 0; r < whole; r += 32) multiply_tiles<P, true>(l, w, row + r, 16, 16, output, k, end, sums[r / 32]);
    if (left > 16) {
      shape_tiles(16, left - 16);
      multiply_tiles<P, true>(l, w, row + whole, 16, left - 16, output, k, end, sums[whole / 32]);
    } else if (left) {
      shape_tiles(left, 0);
      multiply_tiles<P, false>(l, w, row + whole, left, 0, output, k, end, sums[whole / 32]);
    }
  }
}

template <int P>
inline void multiply_tiled(const Linear& l, const char* w, long output, char* room) {
  for (long row = 0; row < l.rows; row += BLOCK_ROWS)
    multiply_block<P>(l, w, row, std::min(BLOCK_ROWS, l.rows - row), output, reinterpret_cast<Sums*>(room));
}

#else

constexpr size_t TILE_ROOM = 0;

template <int P>
inline void multiply_tiled(const Linear&, const char*, long, char*) {}

#endif

}  // namespace
