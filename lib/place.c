/* place.c -- give each buffer of the workspace an offset; buffers that never live at once share bytes. */
#include "plan.h"

#include <string.h>

enum { ALIGN = 256 };

static void touch(struct plan *p, int buffer, int program)
{
    if (buffer < 0) return;
    struct buffer *b = &p->buffer[buffer];
    if (b->first < 0) b->first = program;
    b->last = program;
}

static void touch_attention(struct plan *p, const struct attention_spec *a, int program)
{
    touch(p, a->q.buffer, program);
    touch(p, a->k.buffer, program);
    touch(p, a->v.buffer, program);
    touch(p, a->o.buffer, program);
    touch(p, a->lengths, program);
}

static void find_lifetimes(struct plan *p)
{
    for (int i = 0; i < p->programs; i++) {
        struct program *q = &p->program[i];
        for (int j = 0; j < q->ports; j++) touch(p, q->port[j].buffer, i);
        touch(p, q->scratch, i);
        if (q->kind == PROGRAM_ATTENTION) touch_attention(p, &q->attention, i);
        if (q->kind != PROGRAM_GEMM) continue;
        touch(p, q->a.buffer, i);
        touch(p, q->b.buffer, i);
    }
}

static bool overlap(const struct buffer *a, const struct buffer *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset where the buffer meets no placed one that lives at the same time. */
static int64_t lowest_gap(const struct plan *p, int index)
{
    const struct buffer *b = &p->buffer[index];
    int64_t at = 0;
    for (int i = 0; i < index; i++) {
        const struct buffer *o = &p->buffer[i];
        bool meets = o->space == SPACE_WORK && o->first >= 0 && overlap(o, b) && o->offset < at + b->bytes &&
                     at < o->offset + o->bytes;
        if (!meets) continue;
        at = (o->offset + o->bytes + ALIGN - 1) / ALIGN * ALIGN;
        i = -1; /* look again from the start */
    }
    return at;
}

void plan_place(struct plan *p)
{
    int first_run = 0;
    while (first_run < p->programs && p->program[first_run].prepare) first_run++;
    find_lifetimes(p);
    p->workspace = p->prepared = 0;
    for (int i = 0; i < p->buffers; i++) {
        struct buffer *b = &p->buffer[i];
        if (b->first < 0) continue;
        if (b->space == SPACE_PREPARED && b->last < first_run) b->space = SPACE_WORK;
        if (b->space == SPACE_PREPARED) {
            b->offset = p->prepared;
            p->prepared += (b->bytes + ALIGN - 1) / ALIGN * ALIGN;
        } else if (b->space == SPACE_WORK) {
            b->offset = lowest_gap(p, i);
            p->workspace = MAX(p->workspace, (b->offset + b->bytes + ALIGN - 1) / ALIGN * ALIGN);
        }
    }
}
