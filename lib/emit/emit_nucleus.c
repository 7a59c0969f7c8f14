/* emit_nucleus.c -- the least element of each row that top-k, top-p and min-p keep becomes a kernel: the
 * struct of constants that tile/nucleus.cuh wants, and the entry. */
#include <inttypes.h>

#include "emit.h"
#include "emit_text.h"

static bool fits(int64_t n) { return n >= 0 && n < (int64_t)1 << 31; }

/* A number of each row, or of all, or the one that says that there is no such limit. */
static void print_number(struct kernel *k, const struct tensor_use *u, const char *name, const char *absent,
                         struct text *args, struct text *config)
{
    text_printf(config, "    DEV static float %s(const Args &a, i64 row) { return ", name);
    if (u->buffer < 0) {
        text_printf(config, "%s; }\n", absent);
        return;
    }
    int pointer = emit_use(k, u);
    text_printf(args, "    const %s *a%d;\n", emit_dtype(u->dtype), pointer);
    text_printf(config, "load(a.a%d + row * %" PRId64 "); }\n", pointer, u->stride[0]);
}

static void print_config(const struct nucleus_spec *s, const struct schedule *of, struct kernel *k,
                         struct text *args, struct text *t)
{
    text_printf(t, "\nstruct Config {\n    typedef %s T;\n", emit_dtype(s->use[NUCLEUS_X].dtype));
    text_printf(t, "    static constexpr i64 stride = %" PRId64 ";\n", s->use[NUCLEUS_X].stride[1]);
    text_printf(t, "    static constexpr u32 columns = %" PRId64 ";\n", s->columns);
    text_printf(t, "    static constexpr i32 threads = %d;\n", of->threads);
    print_number(k, &s->use[NUCLEUS_TEMPERATURE], "temperature", "1.0f", args, t);
    print_number(k, &s->use[NUCLEUS_TOP_K], "k", "0.0f", args, t);
    print_number(k, &s->use[NUCLEUS_TOP_P], "p", "1.0f", args, t);
    print_number(k, &s->use[NUCLEUS_MIN_P], "min_p", "0.0f", args, t);
    text_printf(t, "    DEV static i64 pitch(const Args &) { return %" PRId64 "; }\n};\n",
                s->use[NUCLEUS_X].stride[0]);
}

static void print_kernel(const struct program *p, const struct schedule *of, struct kernel *k, struct text *t)
{
    const struct nucleus_spec *s = p->spec;
    struct text args = {0}, config = {0};
    struct word rows = emit_word("%" PRId64, s->rows);
    emit_use(k, &s->use[NUCLEUS_X]);
    int least = emit_use(k, &s->use[NUCLEUS_LEAST]);
    text_printf(&args, "    const %s *a0;\n    f32 *a%d;\n", emit_dtype(s->use[NUCLEUS_X].dtype), least);
    print_config(s, of, k, &args, &config);
    if (fits(s->rows)) {
        emit_number(k, s->rows);
        text_append(&args, "    i32 rows;\n");
        rows = emit_word("a.rows");
    }
    text_printf(t, "// the least of rows of %" PRId64 " that top-k, top-p and min-p keep, a block for each\n",
                s->columns);
    text_append(t, "#include \"ptx/control.cuh\"\n#include \"tile/nucleus.cuh\"\n\nusing namespace coda;\n");
    text_printf(t, "\nstruct Args {\n%s};\n%s", text_str(&args), text_str(&config));
    text_append(t, "\nusing Shared = Nucleus<Config>::Shared;\n");
    emit_body(t);
    if (of->pdl) text_append(t, "    ptx::grid_wait();\n");
    if (of->grid) text_printf(t, "    Nucleus<Config>::run(block, a, a.a0, a.a%d, %s);\n", least, rows.s);
    text_append(t, "}\n");
    emit_entry(k, &(struct entry){.declares = true}, t);
    t->failed = t->failed || args.failed || config.failed;
    text_free(&args);
    text_free(&config);
}

coda_status emit_nucleus(struct plan *plan, const struct program *p, const struct schedule *s,
                         struct kernel *k)
{
    struct text t = {0};
    k->symbol = emit_symbol(plan, p, "coda_nucleus");
    if (k->symbol) print_kernel(p, s, k, &t);
    k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return failed ? fail(CODA_E_MEMORY, "nucleus: no memory for the kernel's text") : CODA_OK;
}
