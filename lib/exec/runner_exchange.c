/* runner_exchange.c -- exchanges between ranks on GPUs: NCCL's calls on the run's stream, behind what it has.
 * Those of the CPU device are programs of its own runner. */
#include "own.h"
#include "runner.h"

static bool takes(const struct coda_plan *p, int index)
{
    const struct program *q = &p->plan.program[index];
    return q->own == &own_exchange;
}

/* NCCL chooses by sizes in which order it adds: of two ranks there is one order only. */
static coda_status check_order(const struct coda_plan *p, int index, const struct exchange_spec *s)
{
    if (!p->options.invariant || s->ranks == 2 || s->op == OP_ALL_GATHER) return CODA_OK;
    return fail(
        CODA_E_UNSUPPORTED,
        "@%d %s: NCCL adds %lld ranks in an order that depends on sizes, which CODA_BATCH_INVARIANT rules "
        "out",
        index, op_info[s->op].text, (long long)s->ranks);
}

static coda_status load(struct coda_plan *p, int index)
{
    const struct exchange_spec *s = p->plan.program[index].spec;
    char line[JIT_ERROR_SIZE];
    coda_status status = check_order(p, index, s);
    if (status || jit_nccl_info(line, sizeof line)) return status;
    return fail(CODA_E_DEVICE, "@%d %s of %lld ranks: %s", index, op_info[s->op].text, (long long)s->ranks,
                line);
}

/* A run of elements is a call; a sum on every rank is one run. */
static struct jit_exchange exchange_of(const struct exchange_spec *s)
{
    struct jit_exchange x = {.kind = JIT_ALL_REDUCE, .dtype = s->use[ALL_REDUCE_X].dtype, .runs = s->outer};
    x.elements = s->extent * s->inner;
    if (s->op == OP_REDUCE_SCATTER) x.kind = JIT_REDUCE_SCATTER, x.elements /= s->ranks;
    if (s->op == OP_ALL_GATHER) x.kind = JIT_ALL_GATHER;
    x.bytes = dtype_bytes(x.dtype, x.elements);
    return x;
}

static coda_status run(const struct call *c, int index)
{
    const struct exchange_spec *s = c->p->plan.program[index].spec;
    const char *name = op_info[s->op].text;
    const struct jit_exchange x = exchange_of(s);
    char err[JIT_ERROR_SIZE] = "";
    coda_group *g = (coda_group *)(void *)call_address(c, s->use[ALL_REDUCE_GROUP].buffer, 0);
    struct jit_comm *comm;
    coda_status status = ranks_check(g, name, s->ranks);
    if (!status) status = carrier_of(c, g, name, &comm);
    if (status || !x.elements || !x.runs) return status;
    status = jit_comm_run(comm, &x, call_tensor(c, &s->use[ALL_REDUCE_X]),
                          call_tensor(c, &s->use[ALL_REDUCE_SUM]), c->stream, err);
    if (!status) return CODA_OK;
    coda_status ended = ranks_begin(g, name); /* by another rank, whose reason says more */
    return ended ? ended : fail(status, "@%d %s: %s", index, name, err);
}

const struct runner runner_exchange = {.name = "exchange", .takes = takes, .load = load, .run = run};
