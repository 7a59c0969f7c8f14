/* fuzz_quant.h -- a part of fuzz_api.c: the calls of coda_quant.h. */
/* A number from 1 to `most`. */
static int64_t few(int64_t most)
{
    int64_t n = number();
    return MAX(1, MIN(n, most));
}

static coda_pack_format pack_format(void)
{
    static const char *const words[] = {"q4_k", "q6_k", "mxfp4", "int4_g64_bf16_zeros", "int8_row_f16"};
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_pack_format_find(words[below(ARRAY_SIZE(words))], &f);
    if (chance(70)) return f;
    f.codes = (coda_pack_codes)below(9);
    f.scales = (coda_pack_scales)below(9);
    f.zeros = (coda_pack_zeros)below(4);
    f.group = (int32_t)(chance(50) ? number() : 16 << below(5));
    return f;
}

static int call_coda_pack_format_find(void)
{
    static const char *const words[] = {"q4_k", "int4_g128_f16", "int4_g128_e8m0", "int4_g",
                                        "e2m1_row_f32_zeros"};
    coda_pack_format f = {0};
    return coda_pack_format_find(chance(80) ? words[below(ARRAY_SIZE(words))] : name(), BOXED(f));
}

static int call_coda_pack_format_print(void)
{
    coda_pack_format f = pack_format();
    char buf[64];
    return sign(coda_pack_format_print(BOXED(f), chance(90) ? buf : NULL, (size_t)below(65)));
}

static int call_coda_weight_packed(void)
{
    coda_pack_format f = pack_format();
    coda_graph *g = graph_any();
    return built(g, coda_weight_packed(g, name(), BOXED(f), rank(), numbers(), dtype()));
}

static int call_coda_packed_bytes(void)
{
    coda_pack_format f = pack_format();
    return sign(coda_packed_bytes(BOXED(f), number(), number()));
}

static int call_coda_unpack(void)
{
    coda_pack_format f = pack_format();
    int64_t rows = number(), columns = number(), bytes = coda_packed_bytes(&f, rows, columns), n = number();
    if (bytes > ROOM) return SILENT;
    void *packed = keep(calloc(1, (size_t)MAX(bytes, 1)));
    float *out = keep(calloc((size_t)MAX(MIN(n, columns), 1), sizeof *out));
    return coda_unpack(BOXED(f), chance(95) ? packed : NULL, rows, columns, number(), number(), n,
                       chance(95) ? out : NULL);
}

/* Sizes that mostly fit one of the kinds; fuzz_pack goes deeper. */
static coda_pack_source pack_source(const coda_pack_format *f)
{
    coda_pack_source s = CODA_PACK_SOURCE_INIT;
    int64_t rows = few(64), columns = few(512);
    s.kind = (coda_pack_kind)(chance(70) ? CODA_PACK_CODES : below(9));
    s.rows = chance(95) ? rows : number();
    s.columns = chance(95) ? columns : number();
    s.block_rows = (int32_t)(chance(90) ? 0 : number());
    s.scale_type = (coda_pack_scales)(chance(90) ? 0 : below(9));
    s.codes_bytes = chance(95) ? rows * columns : number();
    s.codes = keep(calloc(1, (size_t)MAX(MIN(s.codes_bytes, ROOM), rows * columns)));
    s.scales_bytes = chance(90) ? rows * (f->group ? CEIL_DIV(columns, f->group) : 1) * 2 : number();
    s.scales = keep(calloc(4, (size_t)(rows * columns)));
    s.g_idx = chance(90) ? NULL : keep(calloc(4, (size_t)MAX(columns, MIN(s.columns, ROOM))));
    return s;
}

static int call_coda_pack(void)
{
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_pack_format_find(chance(80) ? "int8_g32_f16" : "int4_row_bf16", &f);
    coda_pack_source s = pack_source(&f);
    int64_t bytes = coda_packed_bytes(&f, s.rows, s.columns);
    if (bytes > ROOM || s.codes_bytes > ROOM || s.scales_bytes > ROOM) return SILENT;
    void *out = keep(calloc(1, (size_t)MAX(bytes, 1)));
    return coda_pack(BOXED(f), BOXED(s), chance(90) ? 0 : number(), chance(90) ? s.rows : number(),
                     chance(95) ? out : NULL);
}

static int call_coda_pack_order(void)
{
    coda_pack_format f = pack_format();
    coda_pack_source s = pack_source(&f);
    if (s.columns > ROOM) return SILENT;
    int32_t *order = keep(calloc(4, (size_t)MAX(s.columns, 1)));
    return sign(coda_pack_order(BOXED(f), BOXED(s), chance(95) ? order : NULL));
}

static int call_coda_quantize_weight(void)
{
    static const char *const words[] = {"e4m3_row_f32", "int4_g32_bf16", "int4_g64_f16_zeros",
                                        "int8_row_f32", "q4_0",          "q5_1",
                                        "q8_0",         "q4_k",          "q5_k",
                                        "q6_k",         "mxfp4"};
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    int word = (int)below(ARRAY_SIZE(words));
    if (chance(80)) coda_pack_format_find(words[word], &f);
    else f = pack_format();
    int64_t rows = few(40), columns = few(40) * (chance(50) ? chance(50) ? 256 : 32 : 1);
    int64_t room = (rows + 8) * (columns + 8) * 4;
    float *weight = keep(calloc(4, (size_t)(rows * columns)));
    for (int64_t i = 0; i < rows * columns; i++)
        weight[i] = (float)(chance(99) ? random_normal(&w.r) : real());
    coda_quantized out = {
        .kind = (coda_pack_kind)(word > 3     ? chance(80) ? CODA_PACK_GGUF : CODA_PACK_NIBBLES
                                 : chance(45) ? CODA_PACK_CODES
                                 : chance(80) ? CODA_PACK_COMPRESSED_TENSORS
                                              : below(9)),
        .block_rows = (int32_t)(chance(70) ? 0 : number()),
        .codes = chance(97) ? keep(calloc(1, (size_t)room)) : NULL,
        .scales = chance(97) ? keep(calloc(1, (size_t)room)) : NULL,
        .search = chance(20),
        .zeros = (f.zeros == CODA_ZEROS_POINTS) == chance(97) ? keep(calloc(1, (size_t)room)) : NULL};
    bool whole = chance(95);
    return coda_quantize_weight(BOXED(f), chance(60) ? CODA_F32 : dtype(), chance(97) ? weight : NULL,
                                whole ? rows : -number(), whole ? columns : -number(), BOXED(out));
}
