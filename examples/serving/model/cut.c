/*
 * cut.c -- which rows and columns of a stored tensor are a rank's, and how they get into memory.
 */
#include <stdlib.h>
#include <string.h>

#include "cut.h"
#include "tensor.h"

enum { CHUNK = 1 << 18 }; /* elements that are copied at once, or a row if that has more */

/* ---- The config ---- */

static bool share(int *value, int ranks, const char *what, struct fault *f)
{
    if (*value % ranks) return fault_set(f, "%d ranks do not divide %d %s", ranks, *value, what);
    *value /= ranks;
    return true;
}

bool config_cut(struct config *c, int rank, int ranks, struct fault *f)
{
    c->rank = rank, c->ranks = ranks;
    c->all_heads = c->heads, c->all_kv_heads = c->kv_heads, c->all_inner = c->inner;
    if (ranks <= 1) return true;
    if (c->quant.method != QUANT_NONE || c->quant.drawn[0])
        return fault_set(f, "weights that are quantised are not shared out over ranks");
    if (c->kv_heads < ranks && ranks % c->kv_heads)
        return fault_set(f, "%d heads of keys do not divide %d ranks", c->kv_heads, ranks);
    if (c->kv_heads < ranks) c->kv_heads = 1;
    else if (!share(&c->kv_heads, ranks, "heads of keys", f)) return false;
    return share(&c->heads, ranks, "heads", f) && share(&c->inner, ranks, "hidden columns of a layer", f);
}

/* ---- Which part is cut how ---- */

enum cut build_cut(const struct build *b, const char *name)
{
    static const struct {
        const char *name;
        enum cut cut;
    } all[] = {
        {"self_attn.q_proj", CUT_OUTPUTS},
        {"self_attn.k_proj", CUT_KEYS},
        {"self_attn.v_proj", CUT_KEYS},
        {"self_attn.qkv_proj", CUT_QKV},
        {"self_attn.o_proj", CUT_INPUTS},
        {"mlp.gate_proj", CUT_OUTPUTS},
        {"mlp.up_proj", CUT_OUTPUTS},
        {"mlp.gate_up_proj", CUT_PAIR},
        {"mlp.down_proj", CUT_INPUTS},
        {"attn.c_attn", CUT_QKV},
        {"attn.c_proj", CUT_INPUTS},
        {"mlp.c_fc", CUT_OUTPUTS},
        {"mlp.c_proj", CUT_INPUTS},
        {"attention.self.query", CUT_OUTPUTS},
        {"attention.self.key", CUT_OUTPUTS},
        {"attention.self.value", CUT_OUTPUTS},
        {"attention.output.dense", CUT_INPUTS},
        {"attention.attention.query", CUT_OUTPUTS},
        {"attention.attention.key", CUT_OUTPUTS},
        {"attention.attention.value", CUT_OUTPUTS},
        {"intermediate.dense", CUT_OUTPUTS},
        {"output.dense", CUT_INPUTS},
        {"self_attn.out_proj", CUT_INPUTS},
        {"mlp.fc1", CUT_OUTPUTS},
        {"mlp.fc2", CUT_INPUTS},
    };
    if (b->c->ranks <= 1) return CUT_NONE;
    if (b->cuts_head) return CUT_OUTPUTS;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].cut;
    return CUT_NONE;
}

/* Some of a tensor's outputs, `all` of them from `from` on, of which there are so many equal pieces. */
struct section {
    int64_t from, all;
    int pieces;
};

/* How many there are. */
static int sections_of(const struct config *c, enum cut cut, int64_t outputs, struct section *s)
{
    int64_t q = (int64_t)c->all_heads * c->head_dim, k = (int64_t)c->all_kv_heads * c->head_dim,
            i = c->all_inner;
    int keys = c->all_kv_heads < c->ranks ? c->all_kv_heads : c->ranks;
    switch (cut) {
    case CUT_OUTPUTS: s[0] = (struct section){0, outputs * c->ranks, c->ranks}; return 1;
    case CUT_KEYS: s[0] = (struct section){0, outputs * keys, keys}; return 1;
    case CUT_QKV:
        s[0] = (struct section){0, q, c->ranks};
        s[1] = (struct section){q, k, keys}, s[2] = (struct section){q + k, k, keys};
        return 3;
    case CUT_PAIR: s[0] = (struct section){0, i, c->ranks}, s[1] = (struct section){i, i, c->ranks}; return 2;
    case CUT_NONE:
    case CUT_INPUTS: break;
    }
    return s[0] = (struct section){0, outputs, 1}, 1;
}

void build_uncut(const struct build *b, enum cut cut, int64_t *outputs, int64_t *inputs)
{
    struct section s[MOST_PARTS];
    int n = sections_of(b->c, cut, *outputs, s);
    *outputs = s[n - 1].from + s[n - 1].all;
    if (cut == CUT_INPUTS) *inputs *= b->c->ranks;
}

/* Of W [outputs, inputs], or a vector; how many there are. */
static int slabs_of(const struct config *c, enum cut cut, int64_t outputs, int64_t inputs, struct slab *slab)
{
    struct section s[MOST_PARTS];
    int n = sections_of(c, cut, outputs, s);
    int64_t first = cut == CUT_INPUTS ? c->rank * inputs : 0;
    for (int i = 0; i < n; i++) {
        int64_t rows = s[i].all / s[i].pieces;
        int64_t from = s[i].from + (int64_t)c->rank * s[i].pieces / c->ranks * rows;
        slab[i] = (struct slab){from, rows, inputs ? first : 0, inputs ? inputs : 1};
    }
    return n;
}

bool build_cut_part(struct build *b, struct weight *w, enum cut cut, const char *name, int64_t outputs,
                    int64_t inputs, bool turned)
{
    struct slab slab[MOST_PARTS];
    int n = slabs_of(b->c, cut, outputs, inputs, slab);
    int64_t all = outputs, in = inputs;
    build_uncut(b, cut, &all, &in);
    const struct stored_tensor *t = turned ? build_tensor(b, name, in, all) : build_tensor(b, name, all, in);
    if (!t) return false;
    if (w->parts + n > MOST_PARTS)
        return fault_set(b->fault, "tensor %s: it is cut into too many parts", name);
    for (int i = 0; i < n; i++) {
        const struct slab u = slab[i];
        w->slab[w->parts] = turned ? (struct slab){u.column, u.columns, u.row, u.rows} : u;
        w->part[w->parts++] = t;
    }
    w->beside = turned;
    return true;
}

bool build_cut_matrix(struct build *b, enum cut cut, const char *name, struct stored_matrix *m)
{
    if (m->layout == STORED_PLAIN) return true;
    if (m->layout != STORED_GGUF)
        return fault_set(b->fault, "%.120s is quantised, and only GGUF's blocks are shared out over ranks",
                         name);
    m->slabs = slabs_of(b->c, cut, m->rows, m->columns, m->slab);
    return m->columns % m->codes->block == 0 ||
           fault_set(b->fault, "%.120s: a rank's %lld columns are no whole blocks of %d", name,
                     (long long)m->columns, m->codes->block);
}

/* ---- The graph ---- */

static coda_value group(struct build *b)
{
    if (!b->group.id) b->group = coda_group_input(b->g, "ranks", b->c->ranks);
    return b->group;
}

coda_value build_summed(struct build *b, coda_value y, enum cut cut)
{
    return cut == CUT_INPUTS ? coda_all_reduce(b->g, y, group(b)) : y;
}

coda_value build_gathered(struct build *b, coda_value y) { return coda_all_gather(b->g, y, -1, group(b)); }

/* ---- Loading ---- */

/* One row of a slab, in the weight's dtype. */
static void copy_row(const struct weight *w, int part, int64_t row, char *to)
{
    const struct stored_tensor *t = w->part[part];
    const struct slab *s = &w->slab[part];
    int64_t pitch = w->columns ? stored_elements(t) / t->dims[t->rank > 2 ? t->rank - 2 : 0] : 1;
    int64_t from = (s->row + row) * pitch + s->column;
    if (t->dtype == w->dtype && w->plus == 0)
        memcpy(to, t->data + (size_t)from * dtype_bytes(t->dtype),
               (size_t)s->columns * dtype_bytes(t->dtype));
    else
        for (int64_t i = 0; i < s->columns; i++)
            element_set(w->dtype, to, i, (double)(stored_number(t, from + i) + w->plus));
}

/* Rows [first, last) of parts that lie side by side, or of one. */
static int64_t copy_rows(const struct weight *w, int part, int parts, int64_t first, int64_t last, char *to)
{
    char *at = to;
    for (int64_t row = first; row < last; row++)
        for (int i = part; i < part + parts; i++) {
            copy_row(w, i, row, at);
            at += (size_t)w->slab[i].columns * dtype_bytes(w->dtype);
        }
    return at - to;
}

static bool load_some(const struct weight *w, int part, int parts, struct device *d, char **to,
                      struct fault *f)
{
    int64_t columns = 0, rows = w->slab[part].rows;
    for (int i = part; i < part + parts; i++) columns += w->slab[i].columns;
    int64_t some = columns < CHUNK ? CHUNK / columns : 1;
    char *chunk = malloc((size_t)(some * columns) * dtype_bytes(w->dtype));
    bool good = chunk || fault_set(f, "%s: out of memory", w->name);
    for (int64_t at = 0; good && at < rows; at += some) {
        int64_t bytes = copy_rows(w, part, parts, at, at + some < rows ? at + some : rows, chunk);
        good = device_write(d, *to, chunk, (size_t)bytes) ||
               fault_set(f, "%s: it cannot be copied to the device", w->name);
        *to += bytes;
    }
    free(chunk);
    return good;
}

bool matrix_gather(const struct stored_matrix *m, struct stored_tensor *to, struct fault *f)
{
    const struct stored_tensor *from = m->codes;
    size_t block = (size_t)from->block_bytes, pitch = (size_t)(from->dims[1] / from->block) * block;
    size_t row = (size_t)(m->columns / from->block) * block;
    unsigned char *data = malloc((size_t)m->rows * row), *at = data;
    if (!data) return fault_set(f, "%s: out of memory", from->name);
    for (int i = 0; i < m->slabs; i++)
        for (int64_t k = 0; k < m->slab[i].rows; k++, at += row)
            memcpy(at,
                   from->data + (size_t)(m->slab[i].row + k) * pitch +
                       (size_t)(m->slab[i].column / from->block) * block,
                   row);
    *to = *from;
    to->data = data, to->bytes = (size_t)m->rows * row;
    to->dims[0] = m->rows, to->dims[1] = m->columns;
    return true;
}

bool weight_load_cut(const struct weight *w, struct device *d, char *to, struct fault *f)
{
    if (w->beside) return load_some(w, 0, w->parts, d, &to, f);
    for (int i = 0; i < w->parts; i++)
        if (!load_some(w, i, 1, d, &to, f)) return false;
    return true;
}
