/* emit_scan.c -- a selective scan becomes a kernel: the struct of constants that one of recurrent/scan_*.cuh
 * wants, what the launch passes, and the entry. */
#include <inttypes.h>

#include "emit.h"
#include "emit_text.h"
#include "scan.h"

/* Fields of ScanSteps::Tensors, in its order; those with strides have them in the same order behind. */
static const struct {
    int use;
    const char *type, *strides; /* of Config; NULL: float, none */
} tensors[] = {{SCAN_X, "T", "of_x"},       {SCAN_DT, "D", "of_dt"},    {SCAN_A, NULL, NULL},
               {SCAN_B, "T", "of_b"},       {SCAN_C, "T", "of_c"},      {SCAN_STATE, "S", NULL},
               {SCAN_STARTS, "I", NULL},    {SCAN_DT_BIAS, NULL, NULL}, {SCAN_SKIP, NULL, NULL},
               {SCAN_GATE, "T", "of_gate"}, {SCAN_Y, "T", "of_y"},      {SCAN_AFTER, "A", NULL}};

static const struct {
    const char *name;
    int use;
} flags[] = {{"bias", SCAN_DT_BIAS}, {"skip", SCAN_SKIP},   {"gate", SCAN_GATE}, {"packed", SCAN_STARTS},
             {"state", SCAN_STATE},  {"after", SCAN_AFTER}, {"y", SCAN_Y}};

static void emit_types(const struct scan_spec *s, struct text *t)
{
    static const struct {
        char name;
        int use;
        coda_dtype otherwise;
    } of[] = {{'T', SCAN_X, CODA_F32},
              {'D', SCAN_DT, CODA_F32},
              {'S', SCAN_STATE, CODA_F32},
              {'A', SCAN_AFTER, CODA_F32},
              {'I', SCAN_STARTS, CODA_I32}};
    for (int i = 0; i < ARRAY_SIZE(of); i++)
        text_printf(t, "    typedef %s %c;\n",
                    emit_dtype(scan_has(s, of[i].use) ? s->use[of[i].use].dtype : of[i].otherwise),
                    of[i].name);
}

/* Do a lane's states lie at a multiple of their bytes, or of 16? Behind the last lane's there are none. */
static bool moves_by_pieces(const struct scan_spec *s, int own, int lanes)
{
    static const int use[] = {SCAN_STATE, SCAN_AFTER};
    bool good = (int64_t)own * lanes == s->states;
    for (int i = 0; i < ARRAY_SIZE(use); i++)
        good = good && (!scan_has(s, use[i]) || s->use[use[i]].offset % own == 0);
    return good;
}

static void emit_sizes(const struct scan_spec *s, const struct schedule *of, struct text *t)
{
    text_append(t, "struct Config {\n");
    emit_types(s, t);
    emit_constant(t, "i32", "heads", s->heads);
    emit_constant(t, "i32", "head_dim", s->head_dim);
    emit_constant(t, "i32", "groups", s->groups);
    emit_constant(t, "i32", "states", s->states);
    emit_constant(t, "i32", "threads", of->threads);
    emit_constant(t, "bool", "each", s->each);
    emit_constant(t, "bool", "softplus", s->softplus);
    for (int i = 0; i < ARRAY_SIZE(flags); i++)
        emit_constant(t, "bool", flags[i].name, scan_has(s, flags[i].use));
    emit_constant(t, "i64", "starts_stride", s->use[SCAN_STARTS].stride[0]);
}

/* States of a column that a lane of steps has. */
static int own_of(const struct scan_spec *s, const struct schedule *of)
{
    int own = 1;
    while ((int64_t)own * of->tile.groups < s->states) own *= 2;
    return own;
}

/* Has a kernel of tiles tensor maps? */
static bool scan_has_maps(const struct scan_spec *s, const struct schedule *of)
{
    return s->each && !of->tile.groups && of->tile.bn;
}

/* The kernel, and what it calls the sizes of a block. */
struct scan_kernel {
    const char *file, *name, *columns, *tokens;
};
static struct scan_kernel kernel_of(const struct scan_spec *s, const struct schedule *of)
{
    if (of->tile.groups && of->tile.stages)
        return (struct scan_kernel){"scan_token", "ScanToken", "columns", "tokens"};
    if (of->tile.groups) return (struct scan_kernel){"scan_steps", "ScanSteps", "columns", "tokens"};
    if (s->each) return (struct scan_kernel){"scan_tiles", "ScanTiles", "columns", "tile"};
    if (of->tile.stages > 2)
        return (struct scan_kernel){"scan_chunks_sm90", "ScanChunksSm90", "slice", "chunk"};
    return (struct scan_kernel){"scan_chunks", "ScanChunks", "slice", "chunk"};
}

static void emit_steps(const struct scan_spec *s, const struct schedule *of, struct text *t)
{
    int lanes = of->tile.groups, own = own_of(s, of);
    emit_constant(t, "i32", "lanes", lanes);
    emit_constant(t, "i32", "own", own);
    emit_constant(t, "i32", "rows", of->tile.bn);
    emit_constant(t, "i32", "tokens", of->tile.bk);
    emit_constant(t, "bool", "pieces", moves_by_pieces(s, own, lanes));
    if (of->tile.stages) {
        emit_constant(t, "bool", "early", s->early);
        emit_constant(t, "bool", "waits", of->pdl);
        emit_constant(t, "i32", "rank", s->rank);
        emit_constant(t, "i64", "weights_row", s->rank ? s->weights.stride[0] : 0);
    }
    text_printf(t, "};\ntypedef %s<Config> Kernel;\nusing Shared = Kernel::Shared;\n\n",
                kernel_of(s, of).name);
}

/* Constants and entry of a kernel whose shared memory is dynamic. */
static void emit_dynamic(const struct scan_kernel *kernel, const struct schedule *of, struct text *t)
{
    emit_constant(t, "i32", kernel->columns, of->tile.bm);
    emit_constant(t, "i32", kernel->tokens, of->tile.bk);
    text_printf(t, "};\ntypedef %s<Config> Kernel;\nstatic_assert(Kernel::shared_bytes == %d);\n\n",
                kernel->name, of->shared_bytes);
}

/* One of ScanMaps; of what there is not, x's. */
static void emit_tile_map(const struct scan_spec *s, const struct schedule *of, struct kernel *k, int use)
{
    bool grouped = use == SCAN_B || use == SCAN_C;
    const struct tensor_use *u = &s->use[scan_has(s, use) ? use : SCAN_X];
    const int64_t columns = grouped ? s->groups * s->states : scan_columns(s), apart = of->tile.bn;
    struct map_spec *m = &k->map[k->maps++];
    *m = (struct map_spec){
        .buffer = u->buffer,
        .offset = u->offset,
        .by_rank = dtype_bytes(u->dtype, u->by_rank),
        .ahead = u->ahead,
        .dtype = u->dtype,
        .rank = 4,
        .dim = {columns, s->tokens / apart, apart, MAX(s->batch, 1)},
        .stride = {1, apart * u->time, u->time, u->batch},
        .l2_promotion = 128,
        .box = {grouped ? (int)s->states : of->tile.bm, of->tile.bk / of->tile.bn, of->tile.bn, 1}};
    if (m->dim[3] == 1) m->stride[3] = m->stride[1] * m->dim[1];
}
static void emit_tile_maps(const struct scan_spec *s, const struct schedule *of, struct kernel *k,
                           struct text *t)
{
    static const int use[] = {SCAN_X, SCAN_DT, SCAN_B, SCAN_C, SCAN_GATE, SCAN_Y};
    for (int i = 0; i < ARRAY_SIZE(use); i++) emit_tile_map(s, of, k, use[i]);
    text_append(t, "    ScanMaps maps;\n");
}

/* Pointers, then strides; and the call's arguments in the order of Tensors. */
static void emit_args(const struct scan_spec *s, const struct schedule *of, struct kernel *k, struct text *t,
                      struct text *call)
{
    int pointer[ARRAY_SIZE(tensors)], weights;
    for (int i = 0; i < ARRAY_SIZE(tensors); i++)
        pointer[i] = scan_has(s, tensors[i].use) ? emit_use(k, &s->use[tensors[i].use]) : -1;
    weights = s->rank ? emit_use(k, &s->weights) : -1;
    bool maps = scan_has_maps(s, of);
    text_append(t, "struct Args {\n");
    if (maps) emit_tile_maps(s, of, k, t);
    text_printf(t, "    void *pointer[%d];\n", k->pointers);
    for (int i = 0; i < ARRAY_SIZE(tensors); i++) {
        struct word type = emit_word(tensors[i].type ? "Config::%s" : "float", tensors[i].type);
        const char *constant = i < ARRAY_SIZE(tensors) - 2 ? "const " : "";
        if (pointer[i] < 0) text_append(call, "nullptr, ");
        else text_printf(call, "static_cast<%s%s *>(a.pointer[%d]), ", constant, type.s, pointer[i]);
    }
    for (int i = 0; i < ARRAY_SIZE(tensors); i++) {
        if (!tensors[i].strides) continue;
        emit_long(k, s->use[tensors[i].use].batch);
        emit_long(k, s->use[tensors[i].use].time);
        text_printf(t, "    ScanStrides %s;\n", tensors[i].strides);
        text_printf(call, "a.%s, ", tensors[i].strides);
    }
    text_append(call, "a.sequences, a.rows");
    if (maps) text_append(call, ", nullptr, &a.maps");
    if (weights >= 0) text_printf(call, ", static_cast<const Config::T *>(a.pointer[%d])", weights);
    emit_count(k, s->batch);
    emit_count(k, s->tokens);
    text_append(t, "    i32 sequences, rows;\n};\n");
}

static void print_kernel(const struct scan_spec *s, const struct schedule *of, struct kernel *k,
                         struct text *t)
{
    struct text call = {0};
    text_printf(t, "// scan: %" PRId64 " heads of %" PRId64 " columns, %" PRId64 " states of each\n",
                s->heads, s->head_dim, s->states);
    const struct scan_kernel kernel = kernel_of(s, of);
    bool steps = of->tile.groups;
    text_printf(t,
                "#include \"ptx/control.cuh\"\n#include \"recurrent/%s.cuh\"\n#include \"tile/block.cuh\"\n",
                kernel.file);
    text_append(t, "\nusing namespace coda;\n\n");
    emit_sizes(s, of, t);
    if (steps) emit_steps(s, of, t);
    else {
        if (s->each) emit_constant(t, "bool", "maps", scan_has_maps(s, of));
        emit_dynamic(&kernel, of, t);
    }
    emit_args(s, of, k, t, &call);
    emit_body(t);
    if (of->early) text_append(t, "    ptx::grid_launch_next();\n");
    if (of->pdl && !(steps && of->tile.stages && of->grid)) text_append(t, "    ptx::grid_wait();\n");
    if (of->grid) text_printf(t, "    Kernel::run(block, {%s});\n", text_str(&call));
    text_append(t, "}\n");
    /* ptxas keeps the steps' registers few, and of states that come one by one it then spills some. */
    bool few = steps && moves_by_pieces(s, own_of(s, of), of->tile.groups);
    emit_entry(k, &(struct entry){.residents = few ? NULL : "1", .declares = steps}, t);
    t->failed = t->failed || call.failed;
    text_free(&call);
}

coda_status emit_scan(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k)
{
    struct text t = {0};
    k->symbol = emit_symbol(plan, p, "coda_scan");
    if (k->symbol) print_kernel(p->spec, s, k, &t);
    k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return failed ? fail(CODA_E_MEMORY, "scan: no memory for the kernel's text") : CODA_OK;
}
