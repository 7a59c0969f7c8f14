/* api_group.c -- the calls of coda_group.h: ranks, and what they exchange. */
#include "api.h"
#include "executable.h"
#include "ranks.h"

enum { TIMEOUT_MS = 30000 };

/* Milliseconds, 0 is forever. */
static coda_status read_timeout(const char *call, const coda_group_options *opt, int *out)
{
    coda_group_options own;
    coda_status status = SIZED_READ(call, coda_group_options, &own, opt);
    if (status) return status;
    if (own.timeout_ms < -1)
        return fail(CODA_E_INVALID, "%s: timeout_ms is %d; must be -1 or more", call, own.timeout_ms);
    *out = own.timeout_ms < 0 ? 0 : own.timeout_ms ? own.timeout_ms : TIMEOUT_MS;
    return CODA_OK;
}

CODA_API coda_status coda_group_local(coda_group **out, int ranks, const coda_group_options *opt)
{
    int timeout_ms = 0;
    if (!out) return fail(CODA_E_INVALID, "group_local: out is NULL");
    if (ranks < 1 || ranks > RANKS_MOST)
        return fail(CODA_E_INVALID, "group_local: ranks is %d; must be 1..%d", ranks, RANKS_MOST);
    for (int r = 0; r < ranks; r++) out[r] = NULL;
    coda_status status = read_timeout("group_local", opt, &timeout_ms);
    return status ? status : ranks_new(out, ranks, timeout_ms);
}

CODA_API coda_status coda_group_nccl(coda_group **out, void *comm, const coda_group_options *opt)
{
    int timeout_ms = 0;
    if (!out) return fail(CODA_E_INVALID, "group_nccl: out is NULL");
    *out = NULL;
    if (!comm) return fail(CODA_E_INVALID, "group_nccl: comm is NULL; must be an ncclComm_t");
    coda_status status = read_timeout("group_nccl", opt, &timeout_ms);
    return status ? status : carrier_adopt(out, comm, timeout_ms);
}

CODA_API int coda_group_rank(const coda_group *g) { return g ? ranks_rank(g) : -1; }

CODA_API coda_status coda_group_status(const coda_group *g)
{
    return g ? ranks_status(g) : fail(CODA_E_INVALID, "group_status: group is NULL");
}

CODA_API void coda_group_abort(coda_group *g)
{
    if (g) ranks_give_up(g, "coda_group_abort");
}

CODA_API void coda_group_free(coda_group *g) { ranks_free(g); }

CODA_API coda_value coda_group_input(coda_graph *g, const char *name, int ranks)
{
    if (!build_ready(g, "group")) return CODA_NONE;
    struct node n = {.op = OP_GROUP, .name = name, .attr.group.ranks = ranks, .origin = -1};
    return build_value(graph_append(g, &n));
}

static coda_value exchange(coda_graph *g, struct node n, coda_value x, coda_value group)
{
    if (!build_ready(g, op_info[n.op].text)) return CODA_NONE;
    int before = graph_last_exchange(g, (int)group.id - 1);
    return build_node(g, op_info[n.op].text, n, OPERANDS(x, group, build_value(before)));
}

CODA_API coda_value coda_all_reduce(coda_graph *g, coda_value x, coda_value group)
{
    return exchange(g, (struct node){.op = OP_ALL_REDUCE}, x, group);
}

CODA_API coda_value coda_reduce_scatter(coda_graph *g, coda_value x, int axis, coda_value group)
{
    return exchange(g, (struct node){.op = OP_REDUCE_SCATTER, .attr.reduce_scatter.axis = axis}, x, group);
}

CODA_API coda_value coda_all_gather(coda_graph *g, coda_value x, int axis, coda_value group)
{
    return exchange(g, (struct node){.op = OP_ALL_GATHER, .attr.all_gather.axis = axis}, x, group);
}
