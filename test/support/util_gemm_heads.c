/* util_gemm_heads.c -- epilogues of GEMM programs made by hand whose statistics are of heads. */
#include "util_gemm_build.h"

/* Statistics of heads, which p.pairing has; its last turned ones are k, the others q, what is behind
 * them v. */
static void cut_heads(struct gemm_rig *r)
{
    struct program *p = &r->p;
    int64_t head = p->pairing.head_dim, end = p->pairing.heads * head, k = end - MAX(head, 64);
    p->segment = head;
    p->pairing.heads = p->dim[2] / head;
    p->range[0] = (struct column_range){k, end};
    p->range[1] = (struct column_range){0, k};
    p->range[2] = (struct column_range){end, p->dim[2]};
    p->ranges = 3;
}

static int in_range(struct gemm_rig *r, int step, int range)
{
    r->step[step].range = range;
    return step;
}

static int fold(struct gemm_rig *r, const char *name, int x, int range)
{
    struct step s = {
        .kind = STEP_REDUCE, .cls = CLASS_SEGMENT, .prim = prim_find(name), .nin = 1, .in = {x, -1}};
    s.port = -1;
    return in_range(r, add_step(r, s), range);
}

static int map_in(struct gemm_rig *r, const char *name, int a, int b, const float *params, int range)
{
    return in_range(r, map(r, name, a, b, params), range);
}

/* One value for each column of a head, or `all`: of the range. */
static int load_gain(struct gemm_rig *r, int range, bool all)
{
    int64_t segment = r->p.segment, columns = r->p.range[range - 1].end - r->p.range[range - 1].first;
    int port = add_port(r, USE_LOAD, add_buffer(r, CODA_F32, all ? columns : segment, FILL_NORMAL),
                        (int64_t[]){0, 0, 1});
    r->port[port].stride[3] = all ? segment : 0;
    return in_range(r, add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_COL, .port = port}), range);
}

static void store_in(struct gemm_rig *r, int x, coda_dtype t, enum step_class cls, int range)
{
    int64_t each = cls == CLASS_SEGMENT ? r->p.segment : 1;
    int64_t columns = (r->p.range[range - 1].end - r->p.range[range - 1].first) / each;
    int port = tile_port(r, USE_STORE, t, columns, 0);
    r->port[port].stride[2] = cls != CLASS_SEGMENT;
    r->port[port].stride[3] = cls == CLASS_SEGMENT ? 1 : r->p.segment;
    in_range(r, add_step(r, (struct step){.kind = STEP_STORE, .cls = cls, .nin = 1, .in = {x}, .port = port}),
             range);
}

/* Heads of a range, turned as step `first` turns those of another range; -1: they are the first. */
static int turn_on_axes(struct gemm_rig *r, int x, int first, int range)
{
    if (first < 0) return in_range(r, rotate_on_axes(r, x, 3, true), range);
    struct step s = r->step[first];
    s.in[0] = x;
    return in_range(r, add_step(r, s), range);
}

/* QK-norm: rms_norm of each head of q and k, then rope; q, k and v stored apart. */
static void norm_heads(struct gemm_rig *r, int acc, bool axes)
{
    bool pairs = r->p.pair == PAIR_HEADS;
    cut_heads(r);
    int at = pairs && !axes ? load_row(r, CODA_I32, 5000) : -1, turned = -1;
    for (int range = 1; range < 3; range++) {
        int s = map_in(r, "rsqrt_mean", fold(r, "sum_sq", acc, range), -1, (float[]){0x1p-6f, 1e-5f}, range);
        int y = map_in(r, "mul", map_in(r, "mul", acc, s, NULL, range), load_gain(r, range, range == 2), NULL,
                       range);
        if (axes) y = turned = turn_on_axes(r, y, turned, range);
        else if (pairs) y = in_range(r, rotate(r, y, at), range);
        store_in(r, y, r->p.a.dtype, CLASS_TILE, range);
    }
    store_in(r, acc, r->p.a.dtype, CLASS_TILE, 3);
}
void normed_heads(struct gemm_rig *r, int acc) { norm_heads(r, acc, false); }
void normed_heads_on_axes(struct gemm_rig *r, int acc) { norm_heads(r, acc, true); }

/* LayerNorm of each head, whose two statistics are one state; the whole product is stored too. */
void centred_heads(struct gemm_rig *r, int acc)
{
    cut_heads(r);
    int x = map(r, "add", acc, load_column(r, r->p.a.dtype, false), NULL);
    for (int range = 1; range < 3; range++) {
        int mean = fold(r, "mean", x, range), spread = fold(r, "m2", x, range);
        int s = map_in(r, "rsqrt_mean", spread, -1, (float[]){0x1p-6f, 1e-5f}, range);
        store_in(r, map_in(r, "mul", map_in(r, "sub", x, mean, NULL, range), s, NULL, range), r->p.a.dtype,
                 CLASS_TILE, range);
        store_in(r, s, CODA_F32, CLASS_SEGMENT, range);
    }
    store(r, x);
}
/* The largest of each head, of all columns; nothing else. */
void largest_of_heads(struct gemm_rig *r, int acc)
{
    int64_t heads = r->p.dim[2] / r->p.pairing.head_dim;
    r->p.segment = r->p.pairing.head_dim;
    int x = fold(r, "max", acc, 0), port = tile_port(r, USE_STORE, CODA_F32, heads, 0);
    r->port[port].stride[2] = 0, r->port[port].stride[3] = 1;
    add_step(r, (struct step){.kind = STEP_STORE, .cls = CLASS_SEGMENT, .nin = 1, .in = {x}, .port = port});
}

/* Latent vectors: two ranges of columns, of whose rows states are left, and behind them one head that is
 * turned. Ranges end within tiles. */
void latent_vectors(struct gemm_rig *r, int acc)
{
    struct program *p = &r->p;
    int64_t head = p->pairing.head_dim, end = p->dim[2] - head, half = end / head / 2 * head;
    p->segment = head, p->pairing.heads = p->dim[2] / head, p->ranges = 3;
    p->range[0] = (struct column_range){half, end};
    p->range[1] = (struct column_range){0, half};
    p->range[2] = (struct column_range){end, p->dim[2]};
    for (int range = 1; range < 3; range++) {
        reduce(r, range == 1 ? "m2" : "sum_sq", acc, -1), in_range(r, p->steps - 1, range);
        int y = map_in(r, "mul", acc, load_gain(r, range, true), NULL, range);
        if (range == 1) reduce(r, "arg_max", y, -1), in_range(r, p->steps - 1, range);
        store_in(r, y, p->a.dtype, CLASS_TILE, range);
    }
    store_in(r, p->pair == PAIR_HEADS ? in_range(r, rotate(r, acc, -1), 3) : acc, p->a.dtype, CLASS_TILE, 3);
}
