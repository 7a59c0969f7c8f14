/*
 * test_pack_files.c -- small files as users have them, written by AutoGPTQ, AutoAWQ, compressed-tensors and
 * llama.cpp's quantiser, or laid out as their pages say: what coda_unpack gives is, bit for bit, what a
 * decoder in numpy gives, which was held against these packages; its floats are here by their SHA-256.
 * test/golden/quant has the files.
 */
#include "base.h"
#include "sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* ---- A file ---- */

struct file {
    char *bytes;
    size_t size;
};

static struct file load(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "test/golden/quant/%s", name);
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "there is no %s", path);
    struct file o = {.bytes = calloc(1, 1 << 16)};
    o.size = fread(o.bytes, 1, (1 << 16) - 1, f);
    fclose(f);
    return o;
}

/* A tensor of a safetensors file: its bytes; NULL if it has none of that name. */
static const void *tensor(const struct file *f, const char *name, int64_t *bytes)
{
    char key[80];
    uint64_t header;
    long long from = 0, to = 0;
    memcpy(&header, f->bytes, 8);
    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *at = strstr(f->bytes + 8, key);
    *bytes = 0;
    if (!at) return NULL;
    ck_assert_int_eq(sscanf(strstr(at, "\"data_offsets\":["), "\"data_offsets\":[%lld,%lld]", &from, &to), 2);
    ck_assert_uint_le(8 + header + (uint64_t)to, f->size);
    *bytes = to - from;
    return f->bytes + 8 + header + from;
}

/* ---- Packed, unpacked ---- */

/* `value` in the file's order of columns. Each range of rows is packed by itself, as threads would. */
static void pack_and_unpack(const coda_pack_format *f, coda_pack_source *s, float *value)
{
    int64_t bytes = coda_packed_bytes(f, s->rows, s->columns);
    char *packed = malloc((size_t)bytes);
    int32_t *order = malloc((size_t)s->columns * sizeof *order);
    float *row = malloc((size_t)s->columns * sizeof *row);
    memset(packed, 0xa5, (size_t)bytes);
    int moved = coda_pack_order(f, s, order);
    ck_assert_msg(moved >= 0, "%s", coda_error());
    if (moved) s->column_order = order;
    for (int64_t first = 0, n; first < s->rows; first += n) {
        n = MIN(first ? 32 : 16, s->rows - first);
        char *out = packed + (first ? coda_packed_bytes(f, first, s->columns) : 0);
        ck_assert_msg(coda_pack(f, s, first, n, out) == CODA_OK, "%s", coda_error());
    }
    for (int64_t r = 0; r < s->rows; r++) {
        ck_assert_int_eq(coda_unpack(f, packed, s->rows, s->columns, r, 0, s->columns, row), CODA_OK);
        for (int64_t k = 0; k < s->columns; k++) value[r * s->columns + order[k]] = row[k];
    }
    free(row);
    free(order);
    free(packed);
}

static const struct {
    const char *file, *format, *codes, *scales, *zeros, *g_idx;
    coda_pack_kind kind;
    int block_rows, type; /* of scales in the file, if another */
    int matrices, rows, columns;
    const char *digest; /* of the fp32 values of all */
} files[] = {
    {"awq_gemm", "int4_g64_f16_zeros", "l.qweight", "l.scales", "l.qzeros", NULL, CODA_PACK_AWQ, 0, 0, 1, 32,
     256, "0b4118c160041071726bb878550311f90455b7fa42eb6a2a76598146317e2327"},
    {"ct_act-order", "int4_g64_bf16", "l.weight_packed", "l.weight_scale", NULL, "l.weight_g_idx",
     CODA_PACK_COMPRESSED_TENSORS, 0, 0, 1, 32, 256,
     "eddc7bab22af60f4003caf5082ae468801fc707582cf57f637201cd9599201ac"},
    {"ct_int8", "int8_g128_bf16", "l.weight_packed", "l.weight_scale", NULL, NULL,
     CODA_PACK_COMPRESSED_TENSORS, 0, 0, 1, 32, 256,
     "1c996e5ff238b8affa27151cc4fa0caa6e219fb380c642bf1f935bcc6072521e"},
    {"ct_int8_zeros", "int8_g125_bf16_zeros", "l.weight_packed", "l.weight_scale", "l.weight_zero_point",
     NULL, CODA_PACK_COMPRESSED_TENSORS, 0, 0, 1, 30, 250,
     "056ef5e7caf80377a8d0f9a99e04880f060872b0e4b2b3694e28f17860dbeab6"},
    {"ct_odd_sizes", "int4_row_bf16_zeros", "l.weight_packed", "l.weight_scale", "l.weight_zero_point", NULL,
     CODA_PACK_COMPRESSED_TENSORS, 0, 0, 1, 13, 100,
     "bee6d380423342d4b76ad71ab0c71684bdf45290e61dae47d2f8cdef5b4e48f7"},
    {"ct_symmetric", "int4_g64_bf16", "l.weight_packed", "l.weight_scale", NULL, NULL,
     CODA_PACK_COMPRESSED_TENSORS, 0, 0, 1, 32, 256,
     "225d24e2abd5d7d07f9d43c235452735ef01e381ff164988637e0be3fd49939b"},
    {"ct_zeros", "int4_g64_bf16_zeros", "l.weight_packed", "l.weight_scale", "l.weight_zero_point", NULL,
     CODA_PACK_COMPRESSED_TENSORS, 0, 0, 1, 40, 320,
     "0fec2547072eceeb0d0c3a119fd1d0d1272f3bac79b584336fec487750c7a5dd"},
    {"fp8_block", "fp8_block", "l.weight", "l.weight_scale_inv", NULL, NULL, CODA_PACK_CODES, 128, 0, 1, 136,
     152, "6bbd8966c38c6a4ec7fa70153b71bb017ed7e8fcd3f1a55c709857d339f497c9"},
    {"fp8_block_bf16", "e4m3_g128_bf16", "l.weight", "l.weight_scale_inv", NULL, NULL, CODA_PACK_CODES, 128,
     0, 1, 136, 152, "6bbd8966c38c6a4ec7fa70153b71bb017ed7e8fcd3f1a55c709857d339f497c9"},
    {"fp8_block_bf16", "fp8_block", "l.weight", "l.weight_scale_inv", NULL, NULL, CODA_PACK_CODES, 128,
     CODA_SCALES_BF16, 1, 136, 152, "6bbd8966c38c6a4ec7fa70153b71bb017ed7e8fcd3f1a55c709857d339f497c9"},
    {"fp8_channel", "e4m3_row_f32", "l.weight", "l.weight_scale", NULL, NULL, CODA_PACK_CODES, 0, 0, 1, 136,
     152, "48f77221e65a12dbf37da3926bd2d7ce7e327be860ccbae8c7acffbea8ee4085"},
    {"fp8_tensor", "e4m3_row_f32", "l.weight", "l.weight_scale", NULL, NULL, CODA_PACK_CODES, 136, 0, 1, 136,
     152, "597e443cfc7c3906ec9143ac495ed468d9d367ff70c341795d6af10d6f62b668"},
    {"gptq_act-order", "int4_g64_f16_zeros", "l.qweight", "l.scales", "l.qzeros", "l.g_idx", CODA_PACK_GPTQ,
     0, 0, 1, 32, 256, "f8cd52bec93c6fbf244dd34c248d22328485ef7a0c94d0f1d58db1718746250f"},
    {"gptq_symmetric", "int4_g64_f16", "l.qweight", "l.scales", "l.qzeros", "l.g_idx", CODA_PACK_GPTQ, 0, 0,
     1, 32, 256, "8e81064022ad5ae404e00a9e7b5e2aceff0c3c432e7b14f2fa7fb70245bbdbef"},
    {"gptq_symmetric", "int4_g64_f32_zeros", "l.qweight", "l.scales", "l.qzeros", "l.g_idx", CODA_PACK_GPTQ,
     0, CODA_SCALES_F16, 1, 32, 256, "8e81064022ad5ae404e00a9e7b5e2aceff0c3c432e7b14f2fa7fb70245bbdbef"},
    {"gptq_zeros", "int4_g64_f16_zeros", "l.qweight", "l.scales", "l.qzeros", "l.g_idx", CODA_PACK_GPTQ, 0, 0,
     1, 32, 256, "69c6d095d287efc02fb12e8715b5f5c29de8138bd2083552694ac76171924e09"},
    {"int8_channel", "int8_row_f32", "l.weight", "l.weight_scale", NULL, NULL, CODA_PACK_CODES, 0, 0, 1, 16,
     256, "3d6b3b2fbf67c486eb9b70cd6f95e49a280a0b0307f40bdd672c344eee0a6035"},
    {"mxfp4_experts", "mxfp4", "e.gate_up_proj_blocks", "e.gate_up_proj_scales", NULL, NULL,
     CODA_PACK_NIBBLES, 0, 0, 3, 16, 128, "e507de0de374bdcefcb4209909ac67654037952fcb953bca9b2bb5c70a1da152"},
};

static coda_pack_format format_of(const char *word)
{
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    ck_assert_msg(coda_pack_format_find(word, &f) == CODA_OK, "%s", coda_error());
    return f;
}

static void check_digest(const char *what, const float *value, size_t n, const char *want)
{
    char hex[SHA256_HEX];
    sha256_hex(hex, value, n * sizeof *value);
    ck_assert_msg(strcmp(hex, want) == 0, "%s: other values: %.9g, %.9g, %.9g, ..", what, value[0], value[1],
                  value[2]);
}

START_TEST(file_is_as_expected)
{
    char name[80];
    snprintf(name, sizeof name, "%s.safetensors", files[_i].file);
    struct file f = load(name);
    coda_pack_format format = format_of(files[_i].format);
    coda_pack_source s = CODA_PACK_SOURCE_INIT;
    int64_t all, scales, zeros = 0, g_idx, rows = files[_i].rows, columns = files[_i].columns;
    const char *codes = tensor(&f, files[_i].codes, &all), *scale = tensor(&f, files[_i].scales, &scales);
    s.kind = files[_i].kind;
    s.block_rows = files[_i].block_rows;
    s.scale_type = (coda_pack_scales)files[_i].type;
    s.rows = rows;
    s.columns = columns;
    if (files[_i].zeros) s.zeros = tensor(&f, files[_i].zeros, &zeros);
    s.zeros_bytes = zeros;
    if (files[_i].g_idx) s.g_idx = tensor(&f, files[_i].g_idx, &g_idx);
    s.codes_bytes = all / files[_i].matrices;
    s.scales_bytes = scales / files[_i].matrices;
    float *value = malloc((size_t)(files[_i].matrices * rows * columns) * sizeof *value);
    for (int i = 0; i < files[_i].matrices; i++) {
        s.codes = codes + i * s.codes_bytes;
        s.scales = scale + i * s.scales_bytes;
        pack_and_unpack(&format, &s, value + i * rows * columns);
    }
    check_digest(files[_i].file, value, (size_t)(files[_i].matrices * rows * columns), files[_i].digest);
    free(value);
    free(f.bytes);
}
END_TEST

/* The tensor's factor is multiplied outside: ModelOpt's as it is, of compressed-tensors' the reciprocal. */
START_TEST(nvfp4_has_a_factor)
{
    static const char want[] = "6e07497bab62fd6b8b9f284bf60354f91b1356f2030de2902547ea3f9ee08fee";
    struct file f = load(_i ? "nvfp4_compressed_tensors.safetensors" : "nvfp4_modelopt.safetensors");
    coda_pack_format format = format_of("nvfp4");
    coda_pack_source s = CODA_PACK_SOURCE_INIT;
    float value[16 * 128], factor;
    int64_t bytes;
    s.kind = CODA_PACK_NIBBLES;
    s.rows = 16;
    s.columns = 128;
    s.codes = tensor(&f, _i ? "l.weight_packed" : "l.weight", &s.codes_bytes);
    s.scales = tensor(&f, "l.weight_scale", &s.scales_bytes);
    memcpy(&factor, tensor(&f, _i ? "l.weight_global_scale" : "l.weight_scale_2", &bytes), 4);
    pack_and_unpack(&format, &s, value);
    for (int i = 0; i < ARRAY_SIZE(value); i++) value[i] *= _i ? 1 / factor : factor;
    check_digest("nvfp4", value, ARRAY_SIZE(value), want);
    free(f.bytes);
}
END_TEST

/* Tensors [4, 512] of types.gguf, each at its place in the file. */
static const struct {
    const char *format;
    int at, bytes;
    const char *digest;
} types[] = {
    {"q4_0", 736, 4 * 16 * 18, "77758ebc1bf540993aec4176a8a31da6ccdf88b4e2d2cc3daeee946b5658ba0f"},
    {"q4_1", 1888, 4 * 16 * 20, "df414b0006a271a9180d666a02c58334fc7eb6acf383813f5f369094ad383eed"},
    {"q5_0", 3168, 4 * 16 * 22, "35a9789b64113c0ff0af65b11c12875840be259b9fe48031688ff19b4f766190"},
    {"q5_1", 4576, 4 * 16 * 24, "be9b45088c783a7f3684f78c8437d608f31910637db19c98317bc2a89f44fccf"},
    {"q8_0", 6112, 4 * 16 * 34, "35db548eff7405bcb8f1c9ed643fb43d5dcc2f5456cd4ebfde7f5f84f2f0972e"},
    {"q4_k", 8288, 4 * 2 * 144, "4cd5ef3ce358b88885d69206296a3ff25716ebeba96acfcdf1ed71957c4b892a"},
    {"q5_k", 9440, 4 * 2 * 176, "756730b81aafb2fb965bc446d816231e3796cc9fad8cc34c30e74918120ba29e"},
    {"q6_k", 10848, 4 * 2 * 210, "c78083365138e4897caf60d604b487fbdc58292787ebc327291328f1df008d4b"},
    {"mxfp4", 16352, 4 * 16 * 17, "9c84e77b93b3680f7b57da0a0c8f149c7c672edef785efdeea1c00e5db71aed4"},
    {"nvfp4", 17440, 4 * 8 * 36, "51a62c064e5b85da5d8969d504e0caf7da7b23e5946fcccb7dea04132ab6dc19"},
};

START_TEST(gguf_type_is_as_expected)
{
    struct file f = load("types.gguf");
    coda_pack_format format = format_of(types[_i].format);
    coda_pack_source s = CODA_PACK_SOURCE_INIT;
    float value[4 * 512];
    ck_assert_uint_le((size_t)(types[_i].at + types[_i].bytes), f.size);
    s.kind = CODA_PACK_GGUF;
    s.rows = 4;
    s.columns = 512;
    s.codes = f.bytes + types[_i].at;
    s.codes_bytes = types[_i].bytes;
    pack_and_unpack(&format, &s, value);
    check_digest(types[_i].format, value, ARRAY_SIZE(value), types[_i].digest);
    free(f.bytes);
}
END_TEST

TESTS(pack_files, EACH(file_is_as_expected, ARRAY_SIZE(files)), EACH(nvfp4_has_a_factor, 2),
      EACH(gguf_type_is_as_expected, ARRAY_SIZE(types)));
