/* shim.h -- the device files of primitives/, compiled for the host, to be called from C tests. */
#ifndef SHIM_H
#define SHIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Both lists end with a NULL name. They are made from the files, not from the table. */
struct shim_map {
    const char *name;
    int floats; /* arguments of apply: operands, then parameters */
    float (*apply)(const float *args);
    float (*narrow)(const float *args); /* NULL: the map has none */
};
extern const struct shim_map shim_maps[];

struct shim_reduce {
    const char *name;
    int state;
    void (*init)(float *state);
    void (*push)(float *state, float x, int col, float key);
    void (*merge)(float *state, const float *other);
    float (*finish)(const float *state);
    /* Folds a row by a block of two warps: thread t pushes the columns t, t + 64, ... and returns its
     * result in out[t]. With `step` the fold is fold_lanes<R, 8, 4>: lanes t, t + 4, ... of each warp. */
    void (*fold)(float out[64], const float *x, int n, float key, int step);
};
extern const struct shim_reduce shim_reduces[];

void shim_rope(float out[2], float a, float b, float position, float high, float low);
/* {cos, sin} at `position`, and 8 further, from those there and at 8. */
void shim_turn(float out[2], float position, float high, float low);
void shim_half_turns(float out[2], float radians);
void shim_turn_below(float out[2], float position, float high, float low);

/* port/: eight elements of a coda_dtype (its number), by ... */
enum shim_way { SHIM_PIECE, SHIM_PAIRS, SHIM_TAIL, SHIM_AT };
void shim_load(int dtype, enum shim_way way, float x[8], const void *p, int64_t stride, int64_t count);
void shim_store(int dtype, enum shim_way way, void *p, const float x[8], int64_t stride, int64_t count);
/* Stores eight sums as partials of row 1 of 2 and finishes them. */
float shim_partials(float room[16], const float x[8]);
/* Mean and M2 of a row of which `tiles` have left states {n, mean, M2}. */
void shim_join_tiles(float out[2], const float *states, int tiles);
/* {lo, hi} of pack2, and back through unpack2. */
uint32_t shim_pack(int dtype, float lo, float hi);
void shim_unpack(int dtype, float out[2], uint32_t packed);

/* tile/weights.cuh: element (row, k) of a packed matrix of so many columns, by the word of its format. Ends
 * with a NULL word. */
struct shim_packed {
    const char *word;
    int64_t columns;
    float (*at)(const uint8_t *packed, int64_t row, int64_t k);
};
extern const struct shim_packed shim_packed[];

/* tile/raster.cuh: how so many blocks walk the tiles of an m x n product. */
struct shim_tile {
    int m, first, width; /* a tile row; columns */
};
struct shim_walk {
    int m, n, bm, bn, tail, tail_bn, band, blocks;
    int tiles;
    void (*tile)(unsigned index, struct shim_tile *out);
};
extern const struct shim_walk shim_walks[];
extern const int shim_walk_count;

/* attention/grad_walk.cuh: tiles of keys and of queries, and how so many blocks walk them. */
struct shim_grad_tiles {
    int rows, streams, bands, band;
};
struct shim_grad_tile {
    bool of_keys;
    int batch, head, row;
};
struct shim_grad_walk {
    int kv_heads, heads, bm;
    bool causal;
    /* The tiles of a block in its order, `most` of them at most; returns how many it has. */
    int (*tiles)(const struct shim_grad_tiles of[2], int blocks, int block, struct shim_grad_tile *out,
                 int most);
};
extern const struct shim_grad_walk shim_grad_walks[];
extern const int shim_grad_walk_count;

#ifdef __cplusplus
}
#endif
#endif
