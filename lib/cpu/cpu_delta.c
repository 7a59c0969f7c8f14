/* cpu_delta.c -- the gated delta rule on the CPU device: each head by itself, token by token, in fp32. */
#include "cpu_recurrent.h"
#include "delta.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 256, MOST_GATED = 128 };

struct delta_job {
    const struct cpu *cpu;
    const struct delta_spec *s;
    atomic_bool failed;
};

/* What one head has at hand. */
struct head {
    int64_t index;
    float q[MOST_KEYS], k[MOST_KEYS], factor[MOST_KEYS]; /* of the state's rows */
    float *state, *v, *e, *o;
};

static bool is_there(const struct delta_job *j, int use) { return j->s->use[use].buffer >= 0; }

/* n columns from `column` on of row t of a batch. */
static void read_row(const struct delta_job *j, int use, int64_t batch, int64_t t, int64_t column, int64_t n,
                     float *to)
{
    const struct tensor_use *u = &j->s->use[use];
    int64_t at = u->offset + batch * u->stride[0] + t * u->stride[1] + column;
    cpu_read(to, u->dtype, cpu_buffer(j->cpu, u->buffer), at, 1, n);
}

static float scale_of(const struct delta_spec *s, const float *x)
{
    float sum = s->eps;
    if (!s->norm) return 1;
    for (int64_t i = 0; i < s->keys; i++) sum += x[i] * x[i];
    return 1 / sqrtf(sum);
}

/* Where the other program leaves decay and beta of a token, if there is one. */
static float *prepared(const struct delta_job *j, int use, int64_t batch, int64_t t, int64_t head)
{
    int64_t row = batch * j->s->time + t;
    return (float *)cpu_buffer(j->cpu, j->s->use[use].buffer) + 2 * (row * j->s->heads + head);
}

static float softplus(float x) { return fmaxf(x, 0) + log1pf(expf(-fabsf(x))); }

/* Number `head` of a vector. */
static float number_of(const struct delta_job *j, const struct tensor_use *u, int64_t head)
{
    float x;
    cpu_read(&x, u->dtype, cpu_buffer(j->cpu, u->buffer), u->offset + head, 1, 1);
    return x;
}

/* The decay that a number is the row of, if the rule has gates. */
static float decay_of(const struct delta_job *j, float a, int64_t head)
{
    const struct delta_spec *s = j->s;
    if (!s->gates) return a;
    return softplus(a + number_of(j, &s->bias, head)) * (number_of(j, &s->rate, head) * s->factor);
}

static float beta_of(const struct delta_job *j, int64_t batch, int64_t t, int64_t head)
{
    float beta;
    if (j->s->prepared) return prepared(j, DELTA_DECAY, batch, t, head)[1];
    read_row(j, DELTA_BETA, batch, t, head, 1, &beta);
    return j->s->gates ? 1 / (1 + expf(-beta)) : beta;
}

static void read_token(const struct delta_job *j, int64_t batch, int64_t t, struct head *h)
{
    const struct delta_spec *s = j->s;
    int64_t key_head = h->index / (s->heads / s->key_heads), decays = s->by_row ? s->keys : 1;
    read_row(j, DELTA_Q, batch, t, key_head * s->keys, s->keys, h->q);
    read_row(j, DELTA_K, batch, t, key_head * s->keys, s->keys, h->k);
    read_row(j, DELTA_V, batch, t, h->index * s->values, s->values, h->v);
    if (s->prepared) h->factor[0] = *prepared(j, DELTA_DECAY, batch, t, h->index);
    else read_row(j, DELTA_DECAY, batch, t, h->index * decays, decays, h->factor);
    h->factor[0] = decay_of(j, h->factor[0], h->index);
    float of_q = s->scale * scale_of(s, h->q), of_k = scale_of(s, h->k);
    for (int64_t i = s->keys - 1; i >= 0; i--) {
        h->factor[i] = i && !s->by_row ? h->factor[0] : h->factor[i];
        h->q[i] *= of_q, h->k[i] *= of_k;
    }
    for (int64_t i = 0; i < s->keys; i++) h->factor[i] = expf(h->factor[i]);
}

static void step(const struct delta_job *j, int64_t batch, int64_t t, struct head *h)
{
    const struct delta_spec *s = j->s;
    float beta = beta_of(j, batch, t, h->index);
    read_token(j, batch, t, h);
    memset(h->e, 0, sizeof *h->e * (size_t)s->values);
    memset(h->o, 0, sizeof *h->o * (size_t)s->values);
    for (int64_t i = 0; i < s->keys; i++) {
        float *row = h->state + i * s->values, k = h->k[i], factor = h->factor[i];
        for (int64_t c = 0; c < s->values; c++) row[c] *= factor, h->e[c] += k * row[c];
    }
    for (int64_t c = 0; c < s->values; c++) h->e[c] = beta * (h->v[c] - h->e[c]);
    for (int64_t i = 0; i < s->keys; i++) {
        float *row = h->state + i * s->values, k = h->k[i], q = h->q[i];
        for (int64_t c = 0; c < s->values; c++) row[c] += k * h->e[c], h->o[c] += q * row[c];
    }
}

/* o is divided by its length, and gated. */
static void gate_row(const struct delta_job *j, int64_t batch, int64_t t, const struct head *h, float *to)
{
    const struct delta_spec *s = j->s;
    float sum = 0, *z = to + s->values, *gain = z + s->values;
    int64_t at = s->z.offset + batch * s->z.stride[0] + t * s->z.stride[1] + h->index * s->values;
    cpu_read(z, s->z.dtype, cpu_buffer(j->cpu, s->z.buffer), at, 1, s->values);
    cpu_read(gain, s->gain.dtype, cpu_buffer(j->cpu, s->gain.buffer), s->gain.offset, 1, s->values);
    for (int64_t c = 0; c < s->values; c++) sum += h->o[c] * h->o[c];
    float by = 1 / sqrtf(sum * s->inv_n + s->norm_eps);
    for (int64_t c = 0; c < s->values; c++) to[c] = h->o[c] * by * gain[c] * (z[c] / (1 + expf(-z[c])));
}

static void write_row(const struct delta_job *j, int64_t batch, int64_t t, const struct head *h)
{
    const struct tensor_use *u = &j->s->use[DELTA_O];
    int64_t at = u->offset + batch * u->stride[0] + t * u->stride[1] + h->index * j->s->values;
    float y[3 * MOST_GATED];
    if (j->s->gated) gate_row(j, batch, t, h, y);
    if (is_there(j, DELTA_O))
        cpu_write(u->dtype, cpu_buffer(j->cpu, u->buffer), at, j->s->gated ? y : h->o, j->s->values);
}

static int64_t row_of_state(const struct tensor_use *u, int64_t b, int64_t head, int64_t row)
{
    return u->offset + b * u->stride[0] + head * u->stride[1] + row * u->stride[2];
}

static void run_sequence(const struct delta_job *j, int64_t b, struct cpu_rows rows, struct head *h)
{
    const struct delta_spec *s = j->s;
    const struct tensor_use *before = &s->use[DELTA_BEFORE], *after = &s->use[DELTA_AFTER];
    bool packed = is_there(j, DELTA_STARTS);
    memset(h->state, 0, sizeof *h->state * (size_t)(s->keys * s->values));
    for (int64_t i = 0; i < s->keys && is_there(j, DELTA_BEFORE); i++)
        cpu_read(h->state + i * s->values, before->dtype, cpu_buffer(j->cpu, before->buffer),
                 row_of_state(before, b, h->index, i), 1, s->values);
    for (int64_t t = packed ? rows.first : 0, n = t + rows.end - rows.first; t < n; t++) {
        step(j, packed ? 0 : b, t, h);
        write_row(j, packed ? 0 : b, t, h);
    }
    for (int64_t i = 0; i < s->keys && is_there(j, DELTA_AFTER); i++)
        cpu_write(after->dtype, cpu_buffer(j->cpu, after->buffer), row_of_state(after, b, h->index, i),
                  h->state + i * s->values, s->values);
}

static void run_head(void *ctx, int64_t index)
{
    struct delta_job *j = ctx;
    const struct delta_spec *s = j->s;
    struct head h = {.index = index, .state = malloc(sizeof(float) * (size_t)((s->keys + 3) * s->values))};
    struct cpu_rows rows = {0, 0};
    if (!h.state) {
        j->failed = true;
        return;
    }
    h.v = h.state + s->keys * s->values, h.e = h.v + s->values, h.o = h.e + s->values;
    for (int64_t b = -1; b <= s->sequences; b++) {
        rows = cpu_sequence(j->cpu, &s->use[DELTA_STARTS], rows, b, s->sequences, s->time);
        bool none = b < 0 || b == s->sequences;
        if (!none) run_sequence(j, b, rows, &h);
        memset(h.o, 0, sizeof *h.o * (size_t)s->values);
        for (int64_t t = rows.first; t < rows.end && none; t++) write_row(j, 0, t, &h);
    }
    free(h.state);
}

coda_status cpu_delta(const struct cpu *c)
{
    struct delta_job j = {.cpu = c, .s = c->p->spec};
    parallel_work(j.s->heads, own_delta.flops(j.s), run_head, &j);
    if (j.failed) return fail(CODA_E_MEMORY, "delta: out of memory for a state");
    return CODA_OK;
}

coda_status cpu_delta_prepare(const struct cpu *c)
{
    const struct delta_spec of = delta_of_prepare(c->p->spec);
    const struct delta_job j = {.cpu = c, .s = &of};
    bool packed = is_there(&j, DELTA_STARTS);
    for (int64_t i = 0; i < (packed ? 1 : of.sequences) * of.time * of.heads; i++) {
        int64_t head = i % of.heads, t = i / of.heads % of.time, batch = i / of.heads / of.time;
        float *to = prepared(&j, DELTA_O, batch, t, head);
        read_row(&j, DELTA_DECAY, batch, t, head, 1, &to[0]);
        read_row(&j, DELTA_BETA, batch, t, head, 1, &to[1]);
    }
    return CODA_OK;
}
