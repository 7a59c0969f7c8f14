/*
 * explain_fusion.c -- say what each GEMM's epilogue took in, one line for each step that is no longer a
 * kernel.
 *
 * All of these are exact: the same operations on the same values, without the rounding between kernels.
 */
#include "explain.h"
#include "fuse.h"

#include <stdio.h>
#include <string.h>

/* What a map in an epilogue is called, by what it reads beside the accumulator. */
static const char *map_rule(const struct program *q, const struct step *s)
{
    const char *rule = "fuse_map";
    for (int i = 0; i < s->nin; i++) {
        if (s->in[i] == IMMEDIATE) continue;
        const struct step *in = &q->step[s->in[i]];
        if (in->kind == STEP_LANE) return "fuse_gate";
        if (in->cls == CLASS_ROW) rule = "fuse_row_vector";
        else if (in->kind == STEP_LOAD && in->cls == CLASS_COL) rule = "fuse_col_vector";
        else if (in->kind == STEP_LOAD && in->cls == CLASS_TILE) rule = "fuse_residual";
    }
    return rule;
}

static void note_step(const struct plan *p, int program, const struct step *s, struct rewrite_log *log)
{
    const struct program *q = &p->program[program];
    struct value_text value = value_text(p->graph, s->value);
    const char *v = value.s;
    char at[200];
    snprintf(at, sizeof at, "in the epilogue of @%d, the matmul by %s", program,
             value_text(p->graph, q->b.data.value).s);
    bool reads = s->kind == STEP_MAP && s->in[0] != IMMEDIATE;
    bool rounding = reads && q->step[s->in[0]].value == s->value; /* to its own dtype */
    if (s->kind == STEP_MAP && s->cls == CLASS_TILE && !rounding)
        rewrite_note(log, map_rule(q, s), true, "%s = %s is computed %s", v, s->prim->name, at);
    if (s->kind == STEP_CONV1D)
        rewrite_note(log, "fuse_conv1d", true,
                     "%s = conv1d, but for the first rows of each %d, is computed %s", v, EDGE_PERIOD, at);
    if (s->kind == STEP_PAIR)
        rewrite_note(log, "fuse_pairs", true, "%s = %s is computed %s", v, q->pairing.op->name, at);
    const char *each = s->axis == REDUCE_COLUMNS ? "column" : "row";
    if (step_folds_segments(s))
        rewrite_note(log, "fuse_segments", true, "%s = %s of each %lld columns is computed %s", v,
                     s->prim->name, (long long)q->segment, at);
    else if (s->kind == STEP_REDUCE)
        rewrite_note(log, "fuse_statistic", true, "%s = %s leaves one state for each %s and tile %s", v,
                     s->prim->name, each, at);
    if (s->kind == STEP_PARTIAL)
        rewrite_note(log, "finish_in_reader", true, "%s is finished row by row %s", v, at);
}

static void note_side_outputs(const struct plan *p, int program, struct rewrite_log *log)
{
    const struct program *q = &p->program[program];
    int stores = 0;
    for (int i = 0; i < q->steps; i++) {
        if (q->step[i].kind != STEP_STORE || stores++ == 0) continue;
        rewrite_note(log, "side_output", true, "%s is a second output of @%d",
                     value_text(p->graph, q->step[i].value).s, program);
    }
}

void fuse_explain(const struct plan *p, struct rewrite_log *log)
{
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        if (q->kind != PROGRAM_GEMM) continue;
        for (int s = 0; s < q->steps; s++) note_step(p, i, &q->step[s], log);
        note_side_outputs(p, i, log);
    }
}
