/* program_print.c -- what a program is, as text. */
#include "own.h"

#include <stdio.h>

static struct value_text name_of(const struct tensor_names *names, int value)
{
    if (value < 0 || !names) return (struct value_text){"-"};
    const struct node *n = &names->graph->node[value];
    return value_text(names->graph, n->op == OP_UNPACK ? n->in[UNPACK_W] : value); /* what has a name */
}

static void print_place(const struct tensor_names *names, int buffer, struct text *t)
{
    const struct buffer *b = names ? &names->buffer[buffer] : NULL;
    if (!b) text_append(t, "-");
    else if (b->space == SPACE_ARG) text_printf(t, "arg%d", b->arg);
    else
        text_printf(t, "%s+%lld",
                    b->space == SPACE_WORK    ? "ws"
                    : b->space == SPACE_INBOX ? "inbox"
                                              : "prep",
                    (long long)b->offset);
}

static void print_dims(const char *open, const int64_t *dim, int rank, struct text *t)
{
    text_append(t, open);
    for (int d = 0; d < rank; d++) text_printf(t, "%s%lld", d ? "," : "", (long long)dim[d]);
    text_append(t, "]");
}

/* " of q4_k[4096]": its format and columns. */
static void print_packing(const struct packing *p, struct text *t)
{
    struct pack_format f = graph_format_of(p->format);
    if (p->format) text_printf(t, " of %s[%lld]", pack_word(&f).s, (long long)p->columns);
}

static void print_offset(const struct tensor_use *u, struct text *t)
{
    if (u->offset) text_printf(t, "[%lld]", (long long)u->offset);
    if (u->by_rank) text_printf(t, "[%s %lld]", u->ahead ? "other" : "own", (long long)u->by_rank);
}

static void print_port(const struct tensor_names *names, const struct program *q,
                       const struct tensor_use *port, struct text *t)
{
    text_printf(t, "%s ", name_of(names, port->value).s);
    print_place(names, port->buffer, t);
    print_offset(port, t);
    if (port->role == USE_PARTIAL_LOAD || port->role == USE_PARTIAL_STORE) {
        text_printf(t, " %s%s", port->reduce->name, port->axis == REDUCE_COLUMNS ? " of columns" : "");
        if (names) text_printf(t, " x %d", port->blocks);
        return;
    }
    text_printf(t, " %s", dtype_name(port->dtype));
    print_packing(&port->packing, t);
    if (port->role == USE_FREQUENCIES) {
        text_printf(t, " %lld frequencies, stride=%lld", (long long)port->table_rows,
                    (long long)port->table_stride);
        return;
    }
    print_dims(" stride=[", port->stride, q->rank, t);
    if (port->role == USE_GATHER)
        text_printf(t, " gather v%d of %lld rows", port->index, (long long)port->table_rows);
    if (port->role == USE_SCATTER)
        text_printf(t, " row=%lld at v%d of %lld rows", (long long)port->table_stride, port->index,
                    (long long)port->table_rows);
    if (port->page)
        text_printf(t, ", %lld of a page, page=%lld, %lld columns of a head, head=%lld",
                    (long long)port->page, (long long)port->page_stride, (long long)port->head_dim,
                    (long long)port->head_stride);
    if (port->scale) {
        const struct tensor_use *scale = &q->port[port->scale - 1];
        text_printf(t, " over %s ", name_of(names, scale->value).s);
        print_place(names, scale->buffer, t);
        text_printf(t, " %lld scales, stride=%lld", (long long)scale->table_rows,
                    (long long)scale->table_stride);
    }
}

static bool adds(const struct program *q, const struct step *s)
{
    return use_effect(&q->port[s->port]) & EFFECT_ADD;
}

static const char *store_word(const struct program *q, const struct step *s)
{
    return adds(q, s) ? "add" : q->port[s->port].role == USE_SCATTER ? "append" : "store";
}

static const char *class_name(enum step_class cls)
{
    return cls == CLASS_ROW ? "row" : cls == CLASS_COL ? "col" : cls == CLASS_TILE ? "tile" : "seg";
}

static void print_map(const struct step *s, struct text *t)
{
    text_append(t, s->prim->name);
    for (int i = 0; i < s->nin; i++)
        if (s->in[i] >= 0) text_printf(t, "%s v%d", i ? "," : "", s->in[i]);
        else if (s->kind == STEP_MAP) text_printf(t, "%s %a", i ? "," : "", (double)s->immediate[i]);
    if (s->prim->kind != PRIM_MAP || !s->prim->params) return;
    text_append(t, " {");
    for (int i = 0; i < s->prim->params; i++)
        text_printf(t, "%s%s=%a", i ? " " : "", s->prim->param_name[i] ? s->prim->param_name[i] : "p",
                    (double)s->param[i]);
    text_append(t, "}");
}

static void print_conv1d(const struct tensor_names *names, const struct program *q, const struct step *s,
                         struct text *t)
{
    text_printf(t, "conv1d v%d by", s->in[READS_X]);
    for (int i = READS_TAPS; i < s->nin; i++) text_printf(t, " v%d", s->in[i]);
    if (s->in[READS_BIAS] >= 0) text_printf(t, " bias v%d", s->in[READS_BIAS]);
    text_append(t, " -> edges ");
    print_port(names, q, &q->port[s->port], t);
}

static void print_step(const struct tensor_names *names, const struct program *q, int index, struct text *t)
{
    const struct step *s = &q->step[index];
    if (step_has_value(q, s)) text_printf(t, "   v%d = %-4s ", index, class_name(s->cls));
    else text_append(t, "   ");
    switch (s->kind) {
    case STEP_ACC: text_append(t, "acc"); break;
    case STEP_LOAD:
        text_append(t, "load ");
        print_port(names, q, &q->port[s->port], t);
        break;
    case STEP_SCALAR:
        text_printf(t, "scalar %s ", name_of(names, q->port[s->port].value).s);
        print_place(names, q->port[s->port].buffer, t);
        text_printf(t, " %s", dtype_name(q->port[s->port].dtype));
        break;
    case STEP_PARTIAL:
        text_append(t, "finish ");
        print_port(names, q, &q->port[s->port], t);
        break;
    case STEP_COLUMN: text_append(t, "column"); break;
    case STEP_MAP: print_map(s, t); break;
    case STEP_LANE: text_printf(t, "%s v%d", s->lane ? "up" : "gate", s->in[0]); break;
    case STEP_PAIR:
        pair_print(q, s, t);
        if (s->port >= 0) text_append(t, " by "), print_port(names, q, &q->port[s->port], t);
        break;
    case STEP_REDUCE:
        print_map(s, t);
        if (s->axis == REDUCE_COLUMNS) text_append(t, " over rows");
        if (step_folds_segments(s)) text_printf(t, " {segment=%lld}", (long long)q->segment);
        if (s->port >= 0) text_append(t, " -> "), print_port(names, q, &q->port[s->port], t);
        break;
    case STEP_CONV1D: print_conv1d(names, q, s, t); break;
    case STEP_STORE:
        text_printf(t, "%s v%d%s ", store_word(q, s), s->in[0], adds(q, s) ? " to" : "");
        print_port(names, q, &q->port[s->port], t);
        break;
    }
    if (s->range || s->store_columns.end)
        text_printf(t, " in [%lld,%lld)", (long long)step_columns(q, s).first,
                    (long long)step_columns(q, s).end);
    text_append(t, "\n");
}

/* What no step moves; its strides have names. */
static void print_operand(const struct tensor_names *names, const char *label, const struct tensor_use *o,
                          const char *const stride_name[3], struct text *t)
{
    text_printf(t, "   %s = %s ", label, name_of(names, o->value).s);
    print_place(names, o->buffer, t);
    print_offset(o, t);
    text_printf(t, " %s", dtype_name(o->dtype));
    print_packing(&o->packing, t);
    for (int d = 0; d < 3; d++) text_printf(t, " %s=%lld", stride_name[d], (long long)o->stride[d]);
    text_append(t, "\n");
}

/* By blocks of rows and of k. */
static void print_scales(const struct tensor_names *names, const char *label, const struct program *q,
                         const struct operand *o, struct text *t)
{
    static const char *const stride_name[] = {"batch", "block", "k_block"};
    if (o->scale) print_operand(names, label, &q->port[o->scale - 1], stride_name, t);
}

static void print_part(const struct tensor_names *names, const struct program *q, int i,
                       const char *const stride_name[3], struct text *t)
{
    char label[32];
    snprintf(label, sizeof label, "from column %lld", (long long)q->part[i].first);
    print_operand(names, label, &q->port[q->part[i].port], stride_name, t);
}

static void print_own_use(const struct tensor_names *names, const struct program *q,
                          const struct tensor_use *u, struct text *t)
{
    const struct own_kind *own = q->own;
    const char *name = NULL;
    for (int i = 0; i < ARRAY_SIZE(own->extra_name) && own->extra; i++)
        if (u == own->extra(q->spec, i)) name = own->extra_name[i];
    const struct op_info *op = &op_info[own->op];
    ptrdiff_t use = u - (const struct tensor_use *)q->spec;
    if (!name && use < op->named + op->results) name = own->use_name[use];
    if (!name) return;
    if (own->stride_name[0]) {
        print_operand(names, name, u, own->stride_name, t);
        return;
    }
    text_printf(t, "   %s ", name);
    print_port(names, q, u, t);
    text_append(t, "\n");
}

static void print_gemm(const struct program *q, struct text *t)
{
    text_printf(t, "gemm batch=%lld m=%lld n=%lld k=%lld", (long long)q->dim[0], (long long)q->dim[1],
                (long long)q->dim[2], (long long)q->k);
    if (q->sample) text_printf(t, " sample=%lld", (long long)q->sample);
    if (q->invariant) text_append(t, " invariant");
    switch (q->pair) {
    case PAIR_NONE: break;
    case PAIR_GLU_INTERLEAVED: text_append(t, " glu_interleaved"); break;
    case PAIR_GLU_STACKED: text_append(t, " glu_stacked"); break;
    case PAIR_HEADS: text_printf(t, " %s", q->pairing.op->name); break;
    }
}

void program_print_head(const struct program *q, struct text *t)
{
    if (q->kind == PROGRAM_GEMM) print_gemm(q, t);
    else if (q->own) q->own->print(q->spec, t);
    else print_dims("rows [", q->dim, q->rank, t);
}

enum { MOST_SHOWN = 4 };

/* Scopes of one graph are equal where their pointers are. */
static bool add_scope(const char **shown, int *count, const struct tensor_names *names, int value)
{
    const char *scope = value >= 0 && value < names->graph->nodes ? names->graph->node[value].scope : NULL;
    if (!scope) return true;
    for (int i = 0; i < *count; i++)
        if (shown[i] == scope) return true;
    if (*count == MOST_SHOWN) return false;
    shown[(*count)++] = scope;
    return true;
}

static bool computes(const struct step *s)
{
    return s->kind == STEP_MAP || s->kind == STEP_PAIR || s->kind == STEP_REDUCE || s->kind == STEP_CONV1D;
}

void program_print_scopes(const struct tensor_names *names, const struct program *q, struct text *t)
{
    const char *shown[MOST_SHOWN];
    int count = 0;
    bool all = true;
    if (!names->graph) return;
    add_scope(shown, &count, names, q->root);
    for (int i = 0; i < q->steps; i++)
        if (computes(&q->step[i]) && !add_scope(shown, &count, names, q->step[i].value)) all = false;
    for (int i = 0; i < count; i++) text_printf(t, "%s%s", i ? ", " : " in ", shown[i]);
    if (!all) text_append(t, ", ...");
}

void program_print_body(const struct tensor_names *names, const struct program *q, struct text *t)
{
    static const char *const of_product[] = {"batch", "row", "k"};
    if (q->kind == PROGRAM_GEMM) {
        print_operand(names, "a", &q->a.data, of_product, t);
        print_operand(names, "b", &q->b.data, of_product, t);
        for (int i = 0; i < q->parts; i++) print_part(names, q, i, of_product, t);
        print_scales(names, "a_scale", q, &q->a, t);
        print_scales(names, "b_scale", q, &q->b, t);
    }
    const struct tensor_use *u = NULL;
    for (int i = 0; q->own && i < q->own->shown && (u = own_use(q->own, q->spec, i)); i++)
        print_own_use(names, q, u, t);
    for (int i = 0; i < q->steps; i++) print_step(names, q, i, t);
}
