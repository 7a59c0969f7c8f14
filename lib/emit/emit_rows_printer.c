/* emit_rows_printer.c -- lines of a rows kernel, and words that several of its files print. */
#include "emit_rows.h"

static void put(struct emitter *e, const char *format, va_list args, const char *end)
{
    for (int i = 0; i < e->depth; i++) text_append(e->t, "    ");
    text_vprintf(e->t, format, args);
    text_append(e->t, end);
    text_append(e->t, "\n");
}

void rows_line(struct emitter *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(e, format, args, "");
    va_end(args);
}

void rows_open(struct emitter *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(e, format, args, " {");
    va_end(args);
    e->depth++;
}

void rows_close(struct emitter *e)
{
    e->depth--;
    rows_line(e, "}");
}

/* Domains of less than 2^31 pieces are divided in 32 bits. */
const char *rows_index_type(const struct emitter *e)
{
    int64_t most = e->w->rows * MAX(e->w->pieces, 1);
    return most < (int64_t)1 << 31 ? "u32" : "i64";
}

int64_t rows_stride(const struct emitter *e, int port) { return e->w->stride[port][e->w->rank - 1]; }

struct word rows_load(const struct emitter *e, int i)
{
    return e->w->kept[i] ? emit_word("x%d[i]", i) : emit_word("x%d", i);
}
