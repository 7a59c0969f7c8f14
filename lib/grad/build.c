/* build.c -- the nodes that rules append: each is an operation of its own, in the scope of the node whose
 * derivative it is. */
#include "rules.h"

#include <string.h>

bool grad_same_dims(const struct type *a, const struct type *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank);
}

int grad_no_memory(struct grad *w)
{
    graph_poison(w->g, CODA_E_MEMORY, "grad: out of memory for %d nodes", w->nodes);
    return -1;
}

int make_append(struct grad *w, struct node n, const int *in, int nin)
{
    int own[CODA_MAX_RANK + PRIM_MAX_INPUTS];
    int *copy = nin <= ARRAY_SIZE(own) ? own : ARENA_NEW(&w->arena, int, nin);
    if (!copy) return grad_no_memory(w);
    if (w->g->status != CODA_OK) return -1;
    memcpy(copy, in, sizeof *in * (size_t)nin);
    n.in = copy;
    n.nin = nin;
    n.scope = w->scope;
    if (!n.origin) n.origin = -1; /* a new one, but for further results of a call that is there */
    return graph_append(w->g, &n);
}

int make_prim(struct grad *w, const struct prim *prim, const int *in, int nin, const float *params)
{
    struct node n = {.op = prim->kind == PRIM_MAP ? OP_MAP : OP_REDUCE, .prim = prim};
    if (params) memcpy(n.attr.map.param, params, sizeof *params * (size_t)prim->params);
    return make_append(w, n, in, nin);
}

int make_map(struct grad *w, const char *map, const int *in, int nin)
{
    return make_prim(w, prim_find(map), in, nin, NULL);
}

int make_mul(struct grad *w, int a, int b) { return make_map(w, "mul", VALUES(a, b)); }
int make_add(struct grad *w, int a, int b) { return make_map(w, "add", VALUES(a, b)); }
int make_sub(struct grad *w, int a, int b) { return make_map(w, "sub", VALUES(a, b)); }

int make_scale(struct grad *w, int x, double alpha)
{
    float params[PRIM_MAX_PARAMS] = {(float)alpha};
    return params[0] == 1 ? x : make_prim(w, prim_find("scale"), &x, 1, params);
}

int make_where(struct grad *w, int condition, int a, int b)
{
    return make_map(w, "where", VALUES(condition, a, b));
}

int make_cast(struct grad *w, int x, coda_dtype to)
{
    if (x < 0 || grad_type(w, x)->dtype == to) return x;
    return make_append(w, (struct node){.op = OP_CAST, .attr.cast.to = to}, &x, 1);
}

int make_zero(struct grad *w, int like)
{
    return like < 0 ? -1 : graph_constant(w->g, grad_type(w, like)->dtype, 0);
}

int make_iota(struct grad *w, int64_t n)
{
    return make_append(w, (struct node){.op = OP_IOTA, .attr.iota.n = n}, (int[]){-1}, 0);
}

int make_reduce(struct grad *w, const char *reduction, int x, int key, bool columns)
{
    struct node n = {.op = OP_REDUCE, .prim = prim_find(reduction), .attr.reduce.columns = columns};
    return make_append(w, n, (int[]){x, key}, key < 0 ? 1 : 2);
}

int make_reshape(struct grad *w, int x, const struct type *like)
{
    struct node n = {.op = OP_RESHAPE};
    if (x < 0 || grad_same_dims(grad_type(w, x), like)) return x;
    n.attr.reshape.rank = like->rank;
    memcpy(n.attr.reshape.dim, like->dim, sizeof *like->dim * (size_t)like->rank);
    return make_append(w, n, &x, 1);
}

int make_matrix(struct grad *w, int x)
{
    if (x < 0) return -1;
    const struct type *t = grad_type(w, x);
    struct type matrix = {.rank = 2, .dim = {type_rows(t), type_columns(t)}};
    return make_reshape(w, x, &matrix);
}

int make_turned(struct grad *w, int x)
{
    struct node n = {.op = OP_TRANSPOSE};
    if (x < 0) return -1;
    int rank = grad_type(w, x)->rank;
    for (int i = 0; i < rank; i++) n.attr.transpose.perm[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    return make_append(w, n, &x, 1);
}

int make_slice(struct grad *w, int x, int axis, int64_t start, int64_t stop, int64_t step)
{
    return make_append(w, (struct node){.op = OP_SLICE, .attr.slice = {axis, start, stop, step}}, &x, 1);
}

int make_concat(struct grad *w, const int *in, int nin, int axis, bool interleave)
{
    if (nin == 1) return in[0];
    return make_append(w, (struct node){.op = OP_CONCAT, .attr.concat = {axis, interleave}}, in, nin);
}
