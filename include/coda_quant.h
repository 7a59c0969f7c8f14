/*
 * coda_quant.h -- weights of 4 to 8 bits a number with scales, packed for products. A part of coda.h, which
 * includes it: programs include coda.h alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CODA_QUANT_H
#define CODA_QUANT_H

#include "coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
 * Packed weights
 *
 * A packed matrix is W [.., N, K], K the inner dimension of y = x W^T, as bytes of host or device memory.
 * Each weight is a code of few bits. Codes of `group` neighbours along K in one row share a scale s, and
 * perhaps a zero point z or a minimum m:
 *
 *     w = (q - z) s     or     w = q s + m
 *
 * in fp32, rounded once. Rows lie in records of 16, so that a GPU reads its operands with wide loads. The
 * bytes are those of the files' formats but for what fills N up to 16 rows and K up to a step. Their order
 * is that of one version of the library: what another one packed has to be packed anew.
 * Matrices of a batch follow one another.
 * ---------------------------------------------------------------------------------------------- */

typedef enum coda_pack_codes {
    CODA_CODES_INT4 = 1, /* q is -8 .. 7, or with a zero point or a minimum 0 .. 15 */
    CODA_CODES_INT5 = 2, /* -16 .. 15, or 0 .. 31 with a minimum */
    CODA_CODES_INT6 = 3, /* -32 .. 31 */
    CODA_CODES_INT8 = 4, /* -128 .. 127, also with a zero point, which is of that range, too */
    CODA_CODES_E2M1 = 5, /* OCP FP4: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives */
    CODA_CODES_E4M3 = 6, /* CODA_F8E4M3 */
    CODA_CODES_E5M2 = 7  /* CODA_F8E5M2 */
} coda_pack_codes;

typedef enum coda_pack_scales {
    CODA_SCALES_F32 = 1,
    CODA_SCALES_BF16 = 2,
    CODA_SCALES_F16 = 3,
    CODA_SCALES_E8M0 = 4,   /* OCP's scale of MX formats: 2^(byte - 127) */
    CODA_SCALES_E4M3 = 5,   /* CODA_F8E4M3, as NVFP4 has them */
    CODA_SCALES_F16_U6 = 6, /* Q4_K, Q5_K of GGUF: 6 bits a group times an f16 of 256 k; minima alike */
    CODA_SCALES_F16_I8 = 7  /* Q6_K: 8 bits a group, signed, times an f16 of 256 k */
} coda_pack_scales;

typedef enum coda_pack_zeros {
    CODA_ZEROS_NONE = 0,
    CODA_ZEROS_POINTS = 1, /* a zero point z of 8 bits a group: int4 and int8 */
    CODA_ZEROS_MINIMUM = 2 /* a minimum m a group, of the scales' type: int4 and int5 */
} coda_pack_zeros;

/* All fields but zeros are needed. group: 0 for the whole row, or 8 and more; the last one of a row may be
 * short. Matrix units multiply 16 columns of one scale at a time: groups of 16, 32, 64 and multiples of 128
 * lie one behind the other. Others take as many bytes as the next larger one of these, and their products,
 * decoded element by element, more time. */
typedef struct coda_pack_format {
    size_t size;
    coda_pack_codes codes;
    coda_pack_scales scales;
    coda_pack_zeros zeros;
    int32_t group;
} coda_pack_format;
#define CODA_PACK_FORMAT_INIT \
    {sizeof(coda_pack_format), (coda_pack_codes)0, (coda_pack_scales)0, (coda_pack_zeros)0, 0}

/* Fills *out by a word: one of the table's,
 *
 *     q4_0 q4_1 q5_0 q5_1 q8_0 q4_k q5_k q6_k    of GGUF
 *     mxfp4 nvfp4    e2m1 of 32 with e8m0, of 16 with e4m3; a factor of the tensor is a coda_mul outside
 *     fp8_block      e4m3 of 128 with f32: blocks of 128 x 128, their scales repeated for each row
 *
 * or the format spelt out: int4_g128_f16, int4_g64_bf16_zeros, int8_row_f32, int4_g32_f16_min.
 * CODA_E_INVALID: another word, with the nearest that is known, or a format that is refused. */
CODA_API coda_status coda_pack_format_find(const char *word, coda_pack_format *out);

/* The word that coda_pack_format_find reads, at most size - 1 characters of it. Its length; negative, a
 * coda_status, for a format that is refused. */
CODA_API int64_t coda_pack_format_print(const coda_pack_format *format, char *buf, size_t size);

/* Bytes of a packed matrix of rows x columns, a multiple of 16. Negative, a coda_status: a format that is
 * refused, rows or columns below 1 or so many that the bytes are no int64. */
CODA_API int64_t coda_packed_bytes(const coda_pack_format *format, int64_t rows, int64_t columns);

/* Elements k0 .. k0 + n - 1 of a row of a packed matrix, exactly as the format's formula has them, as fp32.
 * For tests and for looking at a file: products read packed weights as they are. CODA_E_INVALID: a range
 * outside the matrix, a NULL, a format that is refused. Host memory; any number of threads. */
CODA_API coda_status coda_unpack(const coda_pack_format *format, const void *packed, int64_t rows,
                                 int64_t columns, int64_t row, int64_t k0, int64_t n, float *out);

/* ---- Files: how the tensors of a weight lie in them ---- */

/* N = rows, K = columns, g = the format's group, G = ceil(K / g), or 1 for the whole row. */
typedef enum coda_pack_kind {
    /* A byte a code [N, K]; scales [ceil N/block_rows, G], zeros [N, G] in bytes or minima as scales.
     * Integers are q as the format's formula has it; int8 codes and zero points are signed. So lie fp8, int8,
     * and with block_rows 128 fp8 in blocks of 128 x 128; a tensor's one scale: block_rows N, group 0. */
    CODA_PACK_CODES = 1,
    /* Two codes a byte, the first in the lower half [N, K/2]; scales [N, G]: MXFP4 of gpt-oss, NVFP4. */
    CODA_PACK_NIBBLES = 2,
    /* compressed-tensors, pack-quantized, 4 and 8 bits: weight_packed [N, ceil K bits/32] of 32 bits, stored
     * q + 2^(bits - 1); weight_scale [N, G]; weight_zero_point [ceil N bits/32, G], packed along N; g_idx. */
    CODA_PACK_COMPRESSED_TENSORS = 3,
    /* AutoGPTQ, GPTQModel, 4 and 8 bits: qweight [K bits/32, N], qzeros [G, N bits/32], scales [G, N], g_idx.
     * Their first version keeps zero points less 1, modulo 2^bits; see checkpoint_format. */
    CODA_PACK_GPTQ = 4,
    CODA_PACK_GPTQ_V2 = 5,
    /* AutoAWQ, gemm: qweight [K, N/8], qzeros [G, N/8] in the order 0 2 4 6 1 3 5 7; scales [G, N]. */
    CODA_PACK_AWQ = 6,
    /* Rows of GGUF's blocks; the format says of which type: q4_0 .. q6_k, mxfp4, nvfp4. No scales. */
    CODA_PACK_GGUF = 7
} coda_pack_kind;

/* A matrix in host memory, as a file has it. bytes: of the whole tensor beside it, which must be as many as
 * its shape has. What a kind does not have is NULL and 0. */
typedef struct coda_pack_source {
    size_t size;
    coda_pack_kind kind;
    int32_t block_rows;          /* rows that share a scale, of CODA_PACK_CODES. 0 (INIT): 1 */
    coda_pack_scales scale_type; /* in the file. 0 (INIT): the format's; another is taken if the format's is
                                  * f32 and it is bf16 or f16 */
    int64_t rows, columns;
    const void *codes;
    int64_t codes_bytes;
    const void *scales;
    int64_t scales_bytes;
    const void *zeros; /* with a format without zero points: they are all the middle, or it fails */
    int64_t zeros_bytes;
    const int32_t *g_idx; /* [K]: the group of each k (act-order); NULL: k / g */
    /* [K]: place i of a packed row is column column_order[i] of the file. See coda_pack_order. */
    const int32_t *column_order;
    /* [N]: row i of the packed matrix is row row_order[i] of the file; NULL: it is row i. */
    const int32_t *row_order;
} coda_pack_source;
#define CODA_PACK_SOURCE_INIT                                                                                \
    {sizeof(coda_pack_source), (coda_pack_kind)0, 0, (coda_pack_scales)0, 0, 0, NULL, 0, NULL, 0, NULL, 0,   \
     NULL, NULL, NULL}

/* Packs rows first_row .. first_row + rows - 1 of the source's matrix, exactly: no code and no scale changes.
 * first_row is a multiple of 16, and so is rows but at the matrix's end. out gets coda_packed_bytes(format,
 * rows, columns) bytes, those of these rows in the packed matrix. Host memory, any alignment; any number of
 * threads may pack ranges of one matrix at a time. A stack [.., N, K], as files of experts have, is packed
 * matrix by matrix; where N is a multiple of 16, as one of all rows.
 * CODA_E_INVALID, with the row, the column or the group and the number found there: tensors of other sizes
 * than shape and format say; a kind that has no such format; groups that do not divide the columns where
 * the kind has only whole ones; codes or scales that are inf or NaN; a g_idx or an order that is no such.
 * out is then undefined. A factor of the whole tensor, as weight_scale_2 and the reciprocal of
 * weight_global_scale of NVFP4 are, is a coda_mul behind the product. */
CODA_API coda_status coda_pack(const coda_pack_format *format, const coda_pack_source *source,
                               int64_t first_row, int64_t rows, void *out);

/* act-order: sorts k by group into order [K], which goes into column_order; columns of a group stay in order.
 * x's columns are gathered by it: y = x[.., order] W^T. Returns 1; 0 if the columns are in order already, or
 * without a g_idx or with -1 in all of it: then order is 0, 1, 2, .. and need not be used. Negative, a
 * coda_status: a group out of range, or one that has not as many columns as the format's group. */
CODA_API int coda_pack_order(const coda_pack_format *format, const coda_pack_source *source, int32_t *order);

/* ---- From weights of 16 or 32 bits ---- */

/* Where coda_quantize_weight writes, as coda_pack_source has it: of CODA_PACK_CODES, or for int4 and int8 of
 * CODA_PACK_COMPRESSED_TENSORS, which is what files of compressed-tensors hold (quantization_config's format
 * float-quantized or int-quantized, and pack-quantized); of CODA_PACK_GGUF, the rows' blocks; or for mxfp4 of
 * CODA_PACK_NIBBLES. */
typedef struct coda_quantized {
    size_t size;
    coda_pack_kind kind;
    int32_t block_rows; /* rows that share a scale, of CODA_PACK_CODES. 0 (INIT): 1 */
    void *codes, *scales; /* of CODA_PACK_GGUF scales is not used */
    void *zeros;          /* with zero points, else NULL */
    int search;           /* 1: the scale that loses least; see below. INIT: 0 */
} coda_quantized;
#define CODA_QUANTIZED_INIT {sizeof(coda_quantized), (coda_pack_kind)0, 0, NULL, NULL, NULL, 0}

/* Rounds weight [rows, columns], CODA_F32, CODA_BF16 or CODA_F16, to the nearest codes of a format: int4,
 * int8, e4m3 or e5m2, its scales f32, bf16 or f16, int4 and int8 with zero points or without. In fp64, s
 * rounded to the scales' type before it is used, x of one group:
 *
 *     integers of b bits      s = max |x| / (2^(b-1) - 1/2)                  q = round(x / s)
 *     with a zero point       s = (max(x, 0) - min(x, 0)) / (2^b - 1)        q = round(x / s + z)
 *                             z = round(-min(x, 0) / s)
 *     floats                  s = max |x| / 448, of e5m2 / 57344             q = round(x / s)
 *
 * to even where it is halfway, and to the least or largest code beyond it. Where s would be 0 it is 1, and
 * all q mean 0. These are the formulas of compressed-tensors' min-max observer. With `search` min and max are
 * multiplied by 1, 0.95, .. 0.65, whichever leaves the least sum of squares of x - w.
 *
 * As CODA_PACK_GGUF: q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k and mxfp4, in whole blocks of 32 or 256
 * columns. The largest of a group has the code that is farthest from 0, or with a minimum m the least and the
 * largest the first and the last code. K-quants divide the groups' s, and their -m, by d so that the largest
 * of 256 weights has the last number, and round codes to d a q - dmin b. mxfp4: s = 2^(floor(log2(max |x|)) -
 * 2) (OCP Microscaling Formats 1.0), also as CODA_PACK_NIBBLES. With `search` s and m are fitted to the codes
 * by least squares, and d to the groups' scales with weights of sum q^2: 0.3 us a weight.
 *
 * The same weight has the same bytes on every machine. Host memory; any number of threads, each with ranges
 * of rows of its own: multiples of block_rows, and of 32 / b with zero points packed along N, but at the end.
 * CODA_E_INVALID: a weight that is inf or NaN, with its place; a scale that its type has not; a format or a
 * kind that is none of these; columns that the groups of CODA_PACK_COMPRESSED_TENSORS, or blocks, do not
 * divide. */
CODA_API coda_status coda_quantize_weight(const coda_pack_format *format, coda_dtype t, const void *weight,
                                          int64_t rows, int64_t columns, const coda_quantized *out);

/* ------------------------------------------------------------------------------------------------
 * In a graph
 * ---------------------------------------------------------------------------------------------- */

/* A packed weight [.., N, K] of `rank` dims, each at least 1. Its argument, `name`, is bytes (CODA_U8,
 * coda_arg_info.bytes of them): the matrices of the leading dimensions, each coda_packed_bytes(format, N, K)
 * long, one behind the other. The value is what they mean; t, CODA_BF16, CODA_F16 or CODA_F32, its dtype.
 *
 * coda_matmul and coda_matmul_kn read it as w, and coda_embedding as its table, themselves or views of it:
 * whole matrices, ranges of rows or columns, transposes. Kernels decode what they multiply; nothing stores
 * the weights as t, in a run or in coda_prepare, and no constant folds into them. Products take the values
 * exactly, whatever t is; rows of an embedding are rounded to t. coda_compile refuses any other use, with the
 * names of both. coda_grad has the gradients of what is multiplied, not the weight's own. CODA_E_INVALID, of
 * the graph: a format that is refused, dims that do not fit.
 *
 * A factor of rows, or of all, may be a coda_mul before the product, too: coda_mul(g, w, s), s [N, 1] or [1].
 * It comes behind it. So it does for a plain weight of 8 bits, whose numbers coda_mul takes.
 *
 * Columns in the order of coda_pack_order, a leaf CODA_I32 [K], are rows of the transposed x: a launch more,
 *
 *     x = coda_transpose(g, coda_embedding(g, coda_transpose(g, x, swap), order), swap); */
CODA_API coda_value coda_weight_packed(coda_graph *g, const char *name, const coda_pack_format *format,
                                       int rank, const int64_t *dims, coda_dtype t);

/* ------------------------------------------------------------------------------------------------
 * Products in fp8
 *
 * coda_matmul of x and w that both are CODA_F8E4M3 or CODA_F8E5M2 (one may be the one, and one the other)
 * has exact products, fp32 sums and an fp32 result, which coda_mul scales and coda_cast rounds:
 *
 *     q = coda_quantize_rows(g, x, CODA_F8E4M3, 0, &s);
 *     y = coda_cast(g, coda_mul(g, coda_mul(g, coda_matmul(g, q, w), s), w_scale), CODA_BF16);
 *
 * with w_scale [N], or one number. Nothing becomes fp8 unless the caller says so. On Hopper wgmma multiplies
 * operands whose rows of K begin at multiples of 16 bytes; its own sums keep some 14 bits, so that those of
 * 128 k are added up in fp32. Other layouts, and other GPUs, have fp32 multiply-adds: right, and slow.
 * ---------------------------------------------------------------------------------------------- */

/* x [.., K] of f32, bf16 or f16 as fp8 t with a scale for each row, which *scale gets as fp32 [.., 1]:
 *
 *     scale = max |x| / largest      largest: 448 of e4m3, 57344 of e5m2
 *     q     = x / max(scale, 2^-120), rounded to nearest, ties to even
 *
 * columns: 0, or those that have a scale of their own, which divide K: *scale is then [.., K / columns].
 * coda_scaled_matmul applies those of 128.
 * A row of zeros has scale 0 and zeros. One that holds NaN has scale NaN, and q is NaN throughout; with an
 * infinity the scale is infinite and q NaN in its places, 0 elsewhere. Rows below 2^-111 lose bits.
 * It is what coda_abs, coda_row_max, coda_div, coda_maximum and coda_cast make: a program that has x at hand
 * writes q beside it. A fixed scale needs none of it: coda_cast(g, coda_scale(g, x, 1 / s), t). */
CODA_API coda_value coda_quantize_rows(coda_graph *g, coda_value x, coda_dtype t, int64_t columns,
                                       coda_value *scale);

/* The product of x and the transpose of w, both of them fp8 with scales of blocks, as DeepSeek-V3 and
 * Qwen3-FP8 multiply (weight_block_size [128, 128]):
 *
 *     y[m, n] = sum over k of  x[m, k] x_scale[m, k / 128]  w[n, k] w_scale[n / 128, k / 128]
 *
 * x [.., M, K], x_scale fp32 [.., M, ceil(K / 128)], as coda_quantize_rows makes them by 128 columns;
 * w [N, K] or [.., N, K], w_scale fp32 [.., ceil(N / 128), ceil(K / 128)], as the files have them
 * (weight_scale_inv is what to multiply by); y fp32 [.., M, N]. Last blocks may be short. The leading
 * dimensions are as coda_matmul has them. N and K are numbers.
 *
 *     q = coda_quantize_rows(g, x, CODA_F8E4M3, 128, &s);
 *     y = coda_cast(g, coda_scaled_matmul(g, q, s, w, w_scale), CODA_BF16);
 *
 * On Hopper the sums of each 128 k are multiplied by both scales in fp32 as they are added up, in the time
 * of a product without scales. coda_grad has no derivative of it. */
CODA_API coda_value coda_scaled_matmul(coda_graph *g, coda_value x, coda_value x_scale, coda_value w,
                                       coda_value w_scale);

#ifdef __cplusplus
}
#endif

#endif
