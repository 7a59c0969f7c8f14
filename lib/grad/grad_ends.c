/*
 * grad_ends.c -- operations at which a path begins or ends, and those that have no derivative.
 *
 * What chooses among numbers by comparing them, a row's threshold or a sampled column, is constant but for
 * jumps: a path ends there. What a run writes to a state is no function that one run differentiates.
 */
#include "rules.h"

/* Leaves and numbers have no operands: no rule is asked. */
#define BEGINS(name)                                                                                         \
    void grad_##name(struct grad *w, int v, int dy) { (void)w, (void)v, (void)dy; }
BEGINS(input)
BEGINS(weight)
BEGINS(unpack)
BEGINS(scalar)
BEGINS(group)
BEGINS(state)
BEGINS(constant)
BEGINS(iota)

void grad_nucleus(struct grad *w, int v, int dy) { (void)w, (void)v, (void)dy; }

static void refuse(struct grad *w, int v, int first, const char *why)
{
    const struct node *n = grad_node(w, v);
    for (int k = 0, i = first; k < n->nin; k++, i = (i + 1) % n->nin)
        if (grad_wants(w, n, i)) {
            grad_refuse(w, v, i, "%s", why);
            return;
        }
}

/* fp8 and the scales of its blocks come of rounding. */
void grad_scaled_matmul(struct grad *w, int v, int dy)
{
    (void)dy;
    refuse(w, v, SCALED_MATMUL_X, "multiplies fp8 by scales of blocks; it has no derivative");
}

/* Their transposes are sums over rows behind, which no operation computes yet. */
void grad_conv1d(struct grad *w, int v, int dy)
{
    (void)dy;
    refuse(w, v, CONV1D_X, "carries rows along a sequence; it has no derivative");
}

/* Backwards it is a scan from the last token on, whose states are those of the way there. */
void grad_scan(struct grad *w, int v, int dy)
{
    (void)dy;
    refuse(w, v, SCAN_X, "walks its tokens in order; it has no derivative");
}

void grad_delta(struct grad *w, int v, int dy)
{
    (void)dy;
    refuse(w, v, DELTA_Q, "carries a state along a sequence; it has no derivative");
}

/* The value that it writes is the way that a caller means, before the state that it writes to. */
#define WRITES(name)                                                                                         \
    void grad_##name(struct grad *w, int v, int dy)                                                          \
    {                                                                                                        \
        (void)dy;                                                                                            \
        refuse(w, v, VERSION_VALUE, "writes to a state; what is read of it then has no derivative");         \
    }
WRITES(append)
WRITES(assign)
