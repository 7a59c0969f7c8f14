/* emit_exchange.c -- exchanges between ranks become a kernel: the struct of constants that
 * exchange/reduce.cuh wants, or what exchange/gather.cuh does, and the entry. Who the rank is, and where the
 * others' memory lies, are arguments, which the launch adds behind the others. */
#include "emit.h"
#include "emit_text.h"
#include "exchange.h"

/* Do pieces of 16 bytes lie whole wherever they are read and written? */
static bool is_whole(const struct exchange_spec *s)
{
    const struct tensor_use *x = &s->use[ALL_REDUCE_X], *y = &s->use[ALL_REDUCE_SUM];
    int64_t part = s->op == OP_REDUCE_SCATTER ? s->extent / s->ranks * s->inner : 0;
    return !((use_start(x) | use_start(y) | dtype_bytes(x->dtype, part)) % 16);
}

static int64_t part_of(const struct exchange_spec *s) { return s->extent / s->ranks * s->inner; }

static void print_kernel(const struct exchange_spec *s, const struct schedule *of, struct kernel *k,
                         struct text *t)
{
    const char *type = emit_dtype(s->use[ALL_REDUCE_X].dtype);
    bool scatters = s->op == OP_REDUCE_SCATTER;
    int from = emit_use(k, &s->use[ALL_REDUCE_X]), to = emit_use(k, &s->use[ALL_REDUCE_SUM]);
    text_printf(t, "// %s of %lld ranks\n#include \"exchange/reduce.cuh\"\n#include \"ptx/control.cuh\"\n",
                op_info[s->op].text, (wide)s->ranks);
    text_append(t, "#include \"tile/block.cuh\"\n\nusing namespace coda;\n\nstruct Args {\n");
    text_printf(t, "    const %s *a%d;\n    %s *a%d;\n    i64 n;\n", type, from, type, to);
    emit_long(k, scatters ? s->outer * part_of(s) : s->extent);
    if (scatters) text_append(t, "    i64 part;\n"), emit_long(k, part_of(s));
    text_printf(t, "    exchange::Company<%lld> company;\n};\n\nstruct Config {\n    typedef %s T;\n",
                (wide)s->ranks, type);
    emit_constant(t, "i32", "ranks", s->ranks);
    emit_constant(t, "i32", "threads", of->threads);
    emit_constant(t, "bool", "vectors", is_whole(s));
    text_append(t, "};\n");
    emit_body(t);
    if (of->early) text_append(t, "    ptx::grid_launch_next();\n");
    if (of->pdl) text_append(t, "    ptx::grid_wait();\n");
    text_printf(t, "    exchange::Reduce<Config>::%s(block, a.a%d, a.a%d, a.n%s, a.company);\n}\n",
                scatters               ? "scatter"
                : of->tile.stages == 2 ? "two_shot"
                                       : "push",
                from, to, scatters ? ", a.part" : "");
    emit_entry(k, &(struct entry){0}, t);
}

/* One text for all launches of a sum whose terms are copied. */
static void print_copies(const struct exchange_spec *s, const struct schedule *of, struct kernel *k,
                         struct text *t)
{
    const char *type = emit_dtype(s->use[ALL_REDUCE_X].dtype);
    int from = emit_use(k, &s->use[ALL_REDUCE_X]), to = emit_use(k, &s->use[ALL_REDUCE_SUM]);
    text_printf(t, "// %s of %lld ranks, by copies\n#include \"exchange/copies.cuh\"\n", op_info[s->op].text,
                (wide)s->ranks);
    text_append(t, "#include \"ptx/control.cuh\"\n#include \"tile/block.cuh\"\n\nusing namespace coda;\n");
    text_printf(t, "\nstruct Args {\n    const %s *a%d;\n    %s *a%d;\n    i64 n;\n", type, from, type, to);
    emit_long(k, exchange_part(s));
    text_printf(t, "    exchange::Company<%lld> company;\n    exchange::Copies copies;\n};\n",
                (wide)s->ranks);
    text_printf(t, "\nstruct Config {\n    typedef %s T;\n", type);
    emit_constant(t, "i32", "ranks", s->ranks);
    emit_constant(t, "i32", "threads", of->threads);
    emit_constant(t, "bool", "vectors", is_whole(s));
    emit_constant(t, "bool", "scatters", s->op == OP_REDUCE_SCATTER);
    text_append(t, "};\n");
    emit_body(t);
    if (of->pdl) text_append(t, "    ptx::grid_wait();\n");
    text_printf(t, "    exchange::Copied<Config>::run(block, a.a%d, a.a%d, a.n, a.company, a.copies);\n}\n",
                from, to);
    emit_entry(k, &(struct entry){0}, t);
}

/* What moves is no kernel's affair: the ranks meet. Products' blocks leave 32 registers a thread. */
static void print_meetings(const struct exchange_spec *s, struct kernel *k, struct text *t)
{
    enum { REGISTERS = 32 };
    text_printf(t, "// meetings of %lld ranks\n#include \"exchange/copies.cuh\"\n", (wide)s->ranks);
    text_append(t, "#include \"ptx/control.cuh\"\n#include \"tile/block.cuh\"\n\nusing namespace coda;\n");
    text_printf(t, "\nstruct Args {\n    exchange::Company<%lld> company;\n", (wide)s->ranks);
    text_append(t, "    exchange::Copies copies;\n};\n");
    emit_body(t);
    text_printf(t, "    exchange::Meetings<%lld>::run(a.company, a.copies);\n}\n", (wide)s->ranks);
    k->launch.guest = true;
    emit_entry(k, &(struct entry){.registers = REGISTERS}, t);
}

static void print_gather(const struct exchange_spec *s, const struct schedule *of, struct kernel *k,
                         struct text *t)
{
    int from = emit_use(k, &s->use[ALL_REDUCE_X]), to = emit_use(k, &s->use[ALL_REDUCE_SUM]);
    int64_t run = dtype_bytes(s->use[ALL_REDUCE_X].dtype, s->extent * s->inner) / 4;
    text_printf(t, "// all_gather of %lld ranks\n#include \"exchange/gather.cuh\"\n", (wide)s->ranks);
    text_append(t, "#include \"ptx/control.cuh\"\n#include \"tile/block.cuh\"\n\nusing namespace coda;\n");
    text_printf(t, "\nstruct Args {\n    const u32 *a%d;\n    u32 *a%d;\n    i64 n, run;\n", from, to);
    emit_long(k, s->outer * run);
    emit_long(k, run);
    text_printf(t, "    exchange::Company<%lld> company;\n};\n", (wide)s->ranks);
    emit_body(t);
    if (of->early) text_append(t, "    ptx::grid_launch_next();\n");
    if (of->pdl) text_append(t, "    ptx::grid_wait();\n");
    text_printf(t, "    exchange::Gather<%lld, %d>::run(block, a.a%d, a.a%d, a.n, a.run, a.company);\n}\n",
                (wide)s->ranks, of->threads, from, to);
    emit_entry(k, &(struct entry){0}, t);
}

coda_status emit_exchange(struct plan *plan, const struct program *p, const struct schedule *s,
                          struct kernel *k)
{
    const struct exchange_spec *of = p->spec;
    struct text t = {0};
    if (!s->tile.stages) return fail(CODA_E_UNSUPPORTED, "%s: it is no kernel", op_info[of->op].text);
    k->symbol = emit_symbol(plan, p,
                            of->moves                     ? "coda_meet"
                            : of->op == OP_REDUCE_SCATTER ? "coda_reduce_scatter"
                            : of->op == OP_ALL_GATHER     ? "coda_all_gather"
                                                          : "coda_all_reduce");
    if (k->symbol && of->moves) print_meetings(of, k, &t);
    else if (k->symbol && s->tile.stages == EXCHANGE_BY_COPIES) print_copies(of, s, k, &t);
    else if (k->symbol && of->op == OP_ALL_GATHER) print_gather(of, s, k, &t);
    else if (k->symbol) print_kernel(of, s, k, &t);
    k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return failed ? fail(CODA_E_MEMORY, "%s: no memory for the kernel's text", op_info[of->op].text)
                  : CODA_OK;
}
