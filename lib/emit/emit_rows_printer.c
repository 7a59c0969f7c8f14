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

/* " * 8", or nothing for 1. */
struct word rows_times(int64_t n) { return n == 1 ? emit_word("%s", "") : emit_word(" * %lld", (wide)n); }

/* How many elements of a row a thread may have under way. Of packed ones that are decoded one by one each has
 * an address and a scale of its own. */
static int most_unrolled(const struct emitter *e)
{
    for (int q = 0; q < e->p->ports; q++)
        if (use_is_packed(&e->p->port[q]) && !e->w->packed[q]) return 16;
    return 64;
}

void rows_open_walk(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    const char *type = w->columns + (int64_t)w->team * w->width < INT32_MAX ? "int" : "i64";
    bool whole = w->items * w->team == w->pieces, unroll = w->items * w->width <= most_unrolled(e);
    rows_line(e, unroll ? "#pragma unroll" : "#pragma unroll 2");
    rows_open(e, "for (%s i = 0; i < %lld; i++)", type, (wide)w->items);
    struct word at = w->team > 1 ? emit_word("(i * %d + lane)", w->team) : emit_word("i");
    rows_line(e, "const %s c = %s%s;", type, at.s, rows_times(w->width).s);
    if (!whole) rows_line(e, "if (c >= %lld) continue;", (wide)w->columns);
}
