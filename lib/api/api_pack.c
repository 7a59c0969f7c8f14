/* api_pack.c -- the calls of coda_quant.h on the host: every argument is checked here. */
#include "api.h"
#include "pack.h"

#include <string.h>

coda_status read_pack_format(const coda_pack_format *given, struct pack_format *out)
{
    coda_pack_format f;
    if (!given) return fail(CODA_E_INVALID, "the packed format is NULL");
    coda_status s = SIZED_READ("packed format", coda_pack_format, &f, given);
    if (s != CODA_OK) return s;
    *out = (struct pack_format){f.codes, f.scales, f.zeros, f.group};
    return pack_check(out);
}

/* There are bytes of that many. */
static coda_status check_matrix(const struct pack_format *f, int64_t rows, int64_t columns)
{
    if (rows < 1 || columns < 1)
        return fail(CODA_E_INVALID, "packed weight: %lld x %lld; must be at least 1 x 1", (long long)rows,
                    (long long)columns);
    if (pack_bytes(f, rows, columns) < INT64_MAX) return CODA_OK;
    return fail(CODA_E_INVALID, "packed weight: %lld x %lld of %s are more than 2^63 bytes", (long long)rows,
                (long long)columns, pack_word(f).s);
}

coda_status coda_pack_format_find(const char *word, coda_pack_format *out)
{
    struct pack_format f;
    if (!word || !out) return fail(CODA_E_INVALID, "pack_format_find: %s is NULL", word ? "out" : "word");
    coda_status s = SIZED_CHECK("pack_format_find: out", coda_pack_format, out);
    if (s == CODA_OK) s = pack_find(word, &f);
    if (s != CODA_OK) return s;
    coda_pack_format own = CODA_PACK_FORMAT_INIT;
    own.codes = f.codes;
    own.scales = f.scales;
    own.zeros = f.zeros;
    own.group = f.group;
    SIZED_WRITE(coda_pack_format, out, &own);
    return CODA_OK;
}

int64_t coda_pack_format_print(const coda_pack_format *format, char *buf, size_t size)
{
    struct pack_format f;
    coda_status s = read_pack_format(format, &f);
    if (s != CODA_OK) return s;
    if (!buf && size) return fail(CODA_E_INVALID, "pack_format_print: buf is NULL, and size is %zu", size);
    struct pack_word w = pack_word(&f);
    if (size) format_line(buf, size, "%s", w.s);
    return (int64_t)strlen(w.s);
}

int64_t coda_packed_bytes(const coda_pack_format *format, int64_t rows, int64_t columns)
{
    struct pack_format f;
    coda_status s = read_pack_format(format, &f);
    if (s == CODA_OK) s = check_matrix(&f, rows, columns);
    return s == CODA_OK ? pack_bytes(&f, rows, columns) : s;
}

coda_status coda_unpack(const coda_pack_format *format, const void *packed, int64_t rows, int64_t columns,
                        int64_t row, int64_t k0, int64_t n, float *out)
{
    struct pack_format f;
    coda_status s = read_pack_format(format, &f);
    if (s == CODA_OK) s = check_matrix(&f, rows, columns);
    if (s != CODA_OK) return s;
    if (!packed || !out) return fail(CODA_E_INVALID, "unpack: %s is NULL", packed ? "out" : "packed");
    if (row < 0 || row >= rows)
        return fail(CODA_E_INVALID, "unpack: row is %lld of %lld", (long long)row, (long long)rows);
    if (k0 < 0 || n < 0 || k0 > columns || n > columns - k0)
        return fail(CODA_E_INVALID, "unpack: %lld elements from %lld on of %lld columns", (long long)n,
                    (long long)k0, (long long)columns);
    pack_decode(&f, packed, rows, columns, row, k0, n, out);
    return CODA_OK;
}

static coda_status read_source(const char *call, const coda_pack_source *given, coda_pack_source *out)
{
    if (!given) return fail(CODA_E_INVALID, "%s: source is NULL", call);
    return SIZED_READ(call, coda_pack_source, out, given);
}

coda_status coda_pack(const coda_pack_format *format, const coda_pack_source *source, int64_t first_row,
                      int64_t rows, void *out)
{
    struct pack_format f;
    coda_pack_source s;
    coda_status status = read_pack_format(format, &f);
    if (status == CODA_OK) status = read_source("pack", source, &s);
    if (status != CODA_OK) return status;
    if (!out) return fail(CODA_E_INVALID, "pack: out is NULL");
    return pack_rows(&f, &s, first_row, rows, out);
}

int coda_pack_order(const coda_pack_format *format, const coda_pack_source *source, int32_t *order)
{
    struct pack_format f;
    coda_pack_source s;
    coda_status status = read_pack_format(format, &f);
    if (status == CODA_OK) status = read_source("pack_order", source, &s);
    if (status != CODA_OK) return status;
    if (!order) return fail(CODA_E_INVALID, "pack_order: order is NULL");
    return pack_order(&f, &s, order);
}

coda_status coda_quantize_weight(const coda_pack_format *format, coda_dtype t, const void *weight,
                                 int64_t rows, int64_t columns, const coda_quantized *out)
{
    struct pack_format f;
    coda_quantized o;
    coda_status status = read_pack_format(format, &f);
    if (status != CODA_OK) return status;
    if (!weight || !out)
        return fail(CODA_E_INVALID, "quantize_weight: %s is NULL", weight ? "out" : "weight");
    status = SIZED_READ("quantize_weight", coda_quantized, &o, out);
    if (status != CODA_OK) return status;
    bool blocks = o.kind == CODA_PACK_GGUF; /* which have scales and minima in them */
    if (!o.codes || (!o.scales && !blocks))
        return fail(CODA_E_INVALID, "quantize_weight: %s of out is NULL", o.codes ? "scales" : "codes");
    if (!o.zeros != (f.zeros != CODA_ZEROS_POINTS))
        return fail(CODA_E_INVALID, "quantize_weight: zeros of out is %sNULL, and the format is %s",
                    o.zeros ? "not " : "", pack_word(&f).s);
    return pack_quantize(&f, t, weight, rows, columns, &o);
}
