/* util_gemm_f8.h -- products of fp8 by fp8, a part of util_gemm.c: what scales of rows and columns make of
 * them, in bf16, fp32 and fp8; odd sizes, batches, shared K and tiles. */
#ifndef UTIL_GEMM_F8_H
#define UTIL_GEMM_F8_H

static int scaled_twice(struct gemm_rig *r, int acc)
{
    int y = map(r, "mul", acc, load_row(r, CODA_F32, 0), NULL);
    return map(r, "mul", y, load_column(r, CODA_F32, false), NULL);
}
static void w8a8(struct gemm_rig *r, int acc) { store_padded(r, scaled_twice(r, acc), CODA_BF16, 0); }
static void w8a8_residual(struct gemm_rig *r, int acc)
{
    int y = map(r, "add", scaled_twice(r, acc), load_tile(r, CODA_BF16, false), NULL);
    store_padded(r, y, CODA_BF16, 0);
    reduce(r, "sum_sq", y, -1);
}
static void w8a8_gated(struct gemm_rig *r, int acc)
{
    int x = scaled_twice(r, acc);
    store_padded(r, map(r, "swiglu", lane(r, x, 0), lane(r, x, 1), NULL), CODA_BF16, 0);
}
static void to_f8(struct gemm_rig *r, int acc) { store_padded(r, acc, CODA_F8E4M3, 0); }
/* Positive terms, of which sums that were not added up in fp32 every 128 k would lose a tenth. */
static void long_sums(struct gemm_rig *r, int acc)
{
    r->fill[r->p.a.data.buffer] = r->fill[r->p.b.data.buffer] = FILL_POSITIVE;
    store_padded(r, acc, CODA_F32, 0);
}

/* Scales of blocks of rows x 128, a few floats of padding behind each row of them. */
static void block_scales(struct gemm_rig *r, struct operand *o, int64_t rows, int block)
{
    int64_t high = CEIL_DIV(rows, block), pitch = CEIL_DIV(r->p.k, 128) + 3;
    int buffer = gemm_add_buffer(r, CODA_F32, r->p.dim[0] * high * pitch, FILL_NORMAL);
    r->port[r->p.ports] = (struct tensor_use){.role = USE_OPERAND,
                                              .dtype = CODA_F32,
                                              .buffer = buffer,
                                              .batch = high * pitch,
                                              .row = pitch,
                                              .k = 1,
                                              .value = -1};
    o->scale = ++r->p.ports;
    o->scale_rows = block;
    o->scale_k = 128;
}
/* Other main loops have the case with operands of fp32, and without scales. */
static void blocks(struct gemm_rig *r)
{
    if (!dtype_is_f8(r->p.a.dtype)) return;
    block_scales(r, &r->p.a, r->p.dim[1], 1);
    block_scales(r, &r->p.b, r->p.dim[2], 128);
}
static void blocks_f32(struct gemm_rig *r, int acc)
{
    blocks(r);
    store_padded(r, acc, CODA_F32, 0);
}
static void blocks_gated(struct gemm_rig *r, int acc)
{
    blocks(r);
    store_padded(r, map(r, "swiglu", lane(r, acc, 0), lane(r, acc, 1), NULL), CODA_BF16, 0);
}

/* clang-format off */
#define E4 CODA_F8E4M3
#define E5 CODA_F8E5M2
#define F8_CASES \
    {"f8", 1, 300, 384, 512, E4, E4, 0, 0, 0, w8a8, 0, {0}, F8(128, 128, 2, 1, 1, 1)}, \
    {"f8 widest", 1, 150, 392, 400, E5, E4, 0, 0, 0, w8a8, 0, {0}, F8(128, 192, 2, 1, 1, 1)}, \
    {"f8 odd", 1, 77, 201, 144, E4, E4, 0, 0, 16, plain_f32, 0, {0}, F8(128, 64, 2, 1, 1, 1)}, \
    {"f8 short", 1, 3, 5, 16, E4, E5, 0, 0, 0, plain_f32, 0, {0}, F8(64, 32, 1, 1, 1, 1)}, \
    {"f8 batch", 3, 70, 136, 176, E5, E5, 0, 0, 0, plain_f32, 0, {0}, F8(128, 160, 2, 1, 1, 1)}, \
    {"f8 residual", 1, 300, 520, 256, E4, E4, 0, 0, 0, w8a8_residual, 0, {0}, F8(128, 160, 2, 1, 1, 1)}, \
    {"f8 many tiles", 1, 1500, 1104, 144, E4, E4, 0, 0, 0, w8a8, 0, {0}, F8(128, 96, 2, 1, 1, 1)}, \
    {"f8 gated", 1, 200, 528, 272, E4, E4, 0, 0, 0, w8a8_gated, PAIR_GLU_STACKED, {0}, \
     F8(128, 128, 2, 1, 1, 1)}, \
    {"f8 to f8", 1, 130, 272, 128, E4, E4, 0, 0, 0, to_f8, 0, {0}, F8(128, 128, 2, 1, 1, 1)}, \
    {"f8 few", 1, 33, 328, 640, E4, E5, 0, 0, 0, w8a8, 0, {0}, F8(64, 128, 1, 1, 1, 1)}, \
    {"f8 split", 1, 17, 200, 1040, E5, E4, 0, 0, 0, w8a8, 0, {0}, F8(64, 64, 1, 4, 1, 1)}, \
    {"f8 shared b", 1, 400, 400, 272, E4, E4, 0, 0, 0, w8a8, 0, {0}, F8(128, 192, 2, 1, 2, 1)}, \
    {"f8 shared a", 1, 300, 600, 272, E5, E5, 0, 0, 0, w8a8_residual, 0, {0}, \
     F8(128, 128, 2, 1, 1, 2)}, \
    {"f8 long sums", 1, 70, 72, 4096, E4, E4, 0, 0, 0, long_sums, 0, {0}, F8(128, 64, 2, 1, 1, 1)}, \
    {"f8 rounds", 1, 520, 328, 656, E4, E4, 0, 0, 0, w8a8, 0, {0}, F8(128, 128, 2, 1, 1, 1)}, \
    {"f8 high", 1, 600, 392, 656, E4, E5, 0, 0, 0, w8a8_residual, 0, {0}, F8(256, 128, 2, 1, 1, 1)}, \
    {"f8 high, shared", 1, 600, 392, 400, E4, E4, 0, 0, 0, w8a8, 0, {0}, F8(256, 96, 2, 1, 1, 2)}, \
    {"f8 chosen", 1, 1000, 768, 1024, E4, E4, 0, 0, 0, w8a8, 0, {0}, {0}}, \
    {"f8 blocks", 1, 300, 384, 512, E4, E4, 0, 0, 0, blocks_f32, 0, {0}, F8(128, 128, 2, 1, 1, 1)}, \
    {"f8 blocks widest", 1, 150, 392, 400, E4, E4, 0, 0, 0, blocks_f32, 0, {0}, F8(128, 192, 2, 1, 1, 1)}, \
    {"f8 blocks odd", 1, 77, 201, 144, E4, E5, 0, 0, 16, blocks_f32, 0, {0}, F8(128, 96, 2, 1, 1, 1)}, \
    {"f8 blocks short", 1, 3, 5, 16, E4, E4, 0, 0, 0, blocks_f32, 0, {0}, F8(64, 32, 1, 1, 1, 1)}, \
    {"f8 blocks batch", 3, 70, 136, 176, E5, E4, 0, 0, 0, blocks_f32, 0, {0}, F8(128, 64, 2, 1, 1, 1)}, \
    {"f8 blocks gated", 1, 200, 528, 272, E4, E4, 0, 0, 0, blocks_gated, PAIR_GLU_STACKED, {0}, \
     F8(128, 64, 2, 1, 1, 1)}, \
    {"f8 blocks interleaved", 1, 200, 528, 272, E4, E4, 0, 0, 0, blocks_gated, PAIR_GLU_INTERLEAVED, {0}, \
     F8(128, 128, 2, 1, 1, 1)}, \
    {"f8 blocks split", 1, 17, 200, 1040, E4, E4, 0, 0, 0, blocks_f32, 0, {0}, F8(64, 64, 1, 4, 1, 1)}, \
    {"f8 blocks shared b", 1, 400, 400, 272, E4, E4, 0, 0, 0, blocks_f32, 0, {0}, F8(128, 192, 2, 1, 2, 1)}, \
    {"f8 blocks rounds", 1, 520, 328, 656, E4, E4, 0, 0, 0, blocks_f32, 0, {0}, F8(128, 128, 2, 1, 1, 1)}, \
    {"f8 blocks high", 1, 600, 392, 656, E4, E4, 0, 0, 0, blocks_f32, 0, {0}, F8(256, 128, 2, 1, 1, 1)}, \
    {"f8 blocks chosen", 1, 1000, 768, 1024, E4, E4, 0, 0, 0, blocks_f32, 0, {0}, {0}},
/* clang-format on */

#endif
