/* api_plan.c -- a plan: how it is made, its runs, its end, and what may be asked of it and of the machine. */
#include "api.h"
#include "executable.h"
#include "kept.h"
#include "near.h"
#include "pipeline.h"
#include "shapes.h"
#include "sized.h"

#include <string.h>

/* ---- Compile ---- */

static coda_status read_options(struct coda_compile_options *out, const coda_compile_options *opt)
{
    coda_status status = SIZED_READ("compile", coda_compile_options, out, opt);
    if (status) return status;
    if ((int)out->device < 0 || out->device > CODA_DEVICE_NONE)
        return fail(CODA_E_INVALID, "compile: device %d is none of 0..%d", (int)out->device,
                    CODA_DEVICE_NONE);
    if ((int)out->fold < 0 || out->fold > CODA_FOLD_IN_PLACE)
        return fail(CODA_E_INVALID, "compile: fold %d is none of 0..%d", (int)out->fold, CODA_FOLD_IN_PLACE);
    if (out->flags >= 2 * CODA_STEADY)
        return fail(CODA_E_INVALID, "compile: flags 0x%x has unknown bits", out->flags);
    if (out->flags & CODA_CUBLASLT && out->flags & CODA_BATCH_INVARIANT)
        return fail(CODA_E_INVALID,
                    "compile: flags 0x%x have CODA_BATCH_INVARIANT and CODA_CUBLASLT, which "
                    "takes other kernels for other numbers of rows",
                    out->flags);
    if ((int)out->policy < 0 || out->policy > CODA_POLICY_NEVER)
        return fail(CODA_E_INVALID, "compile: policy %d is none of 0..%d", (int)out->policy,
                    CODA_POLICY_NEVER);
    if (out->shapes < 0) return fail(CODA_E_INVALID, "compile: shapes is %d; must be >= 0", out->shapes);
    if (out->flags & CODA_MAX_AUTOTUNE) out->flags |= CODA_AUTOTUNE;
    if (out->flags & CODA_AUTOTUNE && out->device != CODA_DEVICE_GPU)
        return fail(CODA_E_INVALID, "compile: CODA_AUTOTUNE on device %d, which is no GPU", (int)out->device);
    return CODA_OK;
}

CODA_API coda_status coda_compile(coda_plan **out, const coda_graph *g, const coda_compile_options *opt)
{
    coda_compile_options own;
    if (!out) return fail(CODA_E_INVALID, "compile: out is NULL");
    *out = NULL;
    if (!g) return fail(CODA_E_INVALID, "compile: graph is NULL");
    coda_status status = coda_graph_status(g);
    if (!status && !g->outputs && !state_is_written(g))
        status = fail(
            CODA_E_INVALID,
            "compile: a graph of %d nodes has no output, and writes no state; coda_output names a result",
            g->nodes);
    if (!status) status = read_options(&own, opt);
    if (status) return status;
    double began = jit_milliseconds();
    status = graph_is_bound(g) ? compile_graph(out, g, &own, NULL) : shapes_compile(out, g, &own);
    if (!status) jit_tell(CODA_EVENT_PLAN, "", "", jit_milliseconds() - began);
    if (status != CODA_E_DEVICE || own.flags & CODA_AUTOTUNE) return status;
    return fail(status, "%s; without a GPU, options have CODA_DEVICE_CPU", fail_message());
}

/* ---- Runs ---- */

CODA_API coda_status coda_run(const coda_plan *p, void *const *args, void *prepared, void *workspace,
                              coda_stream stream)
{
    if (!p) return fail(CODA_E_INVALID, "run: plan is NULL");
    if (p->shapes) return symbols_refuse("run", "plan", shapes_graph(p->shapes)->dims, "coda_run_shaped");
    return executable_run(p, args, prepared, workspace, stream, NULL);
}

CODA_API coda_status coda_prepare(const coda_plan *p, void *const *args, void *prepared, void *workspace,
                                  coda_stream stream)
{
    if (!p) return fail(CODA_E_INVALID, "prepare: plan is NULL");
    return executable_prepare(p, args, prepared, workspace, stream);
}

CODA_API coda_status coda_prepare_adopt(const coda_plan *p, void *const *args, void *prepared)
{
    if (!p) return fail(CODA_E_INVALID, "prepare_adopt: plan is NULL");
    return executable_adopt(p, args, prepared);
}

CODA_API void coda_prepare_forget(const void *first, size_t bytes) { kept_forget(first, bytes); }

CODA_API void coda_plan_free(coda_plan *p)
{
    if (!p || warming_frees(p)) return;
    shapes_free(p->shapes);
    executable_free(p);
}

/* ---- Questions ---- */

CODA_API size_t coda_plan_workspace(const coda_plan *p) { return p ? (size_t)p->plan.workspace : 0; }
CODA_API size_t coda_plan_prepared(const coda_plan *p) { return p ? (size_t)p->plan.prepared : 0; }
CODA_API uint64_t coda_plan_prepared_id(const coda_plan *p) { return p ? p->plan.prepared_id : 0; }
CODA_API int coda_plan_args(const coda_plan *p) { return p ? p->args : 0; }
CODA_API int coda_plan_kernels(const coda_plan *p) { return p ? p->kernels : 0; }

CODA_API coda_status coda_plan_arg(const coda_plan *p, int index, coda_arg_info *out)
{
    if (!p || !out) return fail(CODA_E_INVALID, "plan_arg: %s is NULL", p ? "out" : "plan");
    if (index < 0 || index >= p->args)
        return fail(CODA_E_INVALID, "plan_arg: %d is none of 0..%d", index, p->args - 1);
    if (SIZED_CHECK("plan_arg", coda_arg_info, out)) return CODA_E_INVALID;
    SIZED_WRITE(coda_arg_info, out, &p->arg[index]);
    return CODA_OK;
}

coda_status refuse_argument(const char *call, const coda_plan *p, const char *name)
{
    struct near n = {.word = name};
    for (int i = 0; i < p->args; i++) near_try(&n, p->arg[i].name);
    return fail(CODA_E_INVALID, "%s: none of the plan's %d arguments is called \"%.80s\"; %s%s%s", call,
                p->args, name, n.best ? "do you mean " : "coda_plan_arg has their names",
                n.best ? n.best : "", n.best ? "?" : "");
}

CODA_API int coda_plan_find(const coda_plan *p, const char *name)
{
    if (!p || !name) return fail(CODA_E_INVALID, "plan_find: %s is NULL", p ? "name" : "plan");
    for (int i = 0; i < p->args; i++)
        if (!strcmp(p->arg[i].name, name)) return i;
    return refuse_argument("plan_find", p, name);
}

CODA_API coda_status coda_plan_kernel(const coda_plan *p, int index, coda_kernel_info *out)
{
    if (!p || !out) return fail(CODA_E_INVALID, "plan_kernel: %s is NULL", p ? "out" : "plan");
    if (index < 0 || index >= p->kernels)
        return fail(CODA_E_INVALID, "plan_kernel: %d is none of 0..%d", index, p->kernels - 1);
    if (SIZED_CHECK("plan_kernel", coda_kernel_info, out)) return CODA_E_INVALID;
    SIZED_WRITE(coda_kernel_info, out, &p->kernel[index].info);
    return CODA_OK;
}

CODA_API coda_status coda_plan_stats_get(const coda_plan *p, coda_plan_stats *out)
{
    if (!p || !out) return fail(CODA_E_INVALID, "plan_stats: %s is NULL", p ? "out" : "plan");
    if (SIZED_CHECK("plan_stats", coda_plan_stats, out)) return CODA_E_INVALID;
    SIZED_WRITE(coda_plan_stats, out, &p->stats);
    return CODA_OK;
}

static int64_t print_shapes(const coda_plan *p, char *buf, size_t size)
{
    struct text t = {0};
    coda_status status = p->shapes ? shapes_print(p, &t) : CODA_OK;
    int64_t n = status ? (int64_t)status : text_emit(&t, buf, size);
    text_free(&t);
    return n;
}

/* What is made when it is asked for. */
static int64_t print_made(coda_status (*make)(const coda_plan *p, struct text *t), const coda_plan *p,
                          char *buf, size_t size)
{
    struct text t = {0};
    coda_status status = make(p, &t);
    int64_t n = status ? (int64_t)status : text_emit(&t, buf, size);
    text_free(&t);
    return n;
}

CODA_API int64_t coda_plan_print(const coda_plan *p, coda_text what, char *buf, size_t size)
{
    if (!p || (!buf && size)) return fail(CODA_E_INVALID, "plan_print: %s is NULL", p ? "buf" : "plan");
    if ((int)what < 0 || what > CODA_TEXT_STAGES)
        return fail(CODA_E_INVALID, "plan_print: text %d is none of 0..%d", (int)what, CODA_TEXT_STAGES);
    if (what == CODA_TEXT_REASONS) return print_made(plan_reasons, p, buf, size);
    if (what == CODA_TEXT_STAGES) return print_made(plan_stages, p, buf, size);
    if (what == CODA_TEXT_SHAPES) return print_shapes(p, buf, size);
    struct text t = {.str = p->text[what], .length = strlen(p->text[what])};
    return text_emit(&t, buf, size);
}

/* A line, whose paths are shown whatever is in them. */
__attribute__((format(printf, 2, 3))) static void say(struct text *t, const char *format, ...)
{
    char line[4096] = "", shown[4096];
    va_list args;
    va_start(args, format);
    format_print(line, sizeof line, format, args);
    va_end(args);
    escape(shown, sizeof shown, line);
    text_printf(t, "%s\n", shown);
}

CODA_API int64_t coda_info_print(char *buf, size_t size)
{
    struct text t = {0};
    struct jit_device dev;
    char line[JIT_ERROR_SIZE] = "";
    if (!buf && size) return fail(CODA_E_INVALID, "info_print: buf is NULL");
    say(&t, "library: coda %s", coda_version());
    say(&t, "cpu: %s, %d threads", vectors_name(), parallel_threads());
    jit_driver_info(line, sizeof line);
    say(&t, "driver: %s", line);
    if (jit_device_open(&dev, line)) say(&t, "device: none: %s", line);
    else
        say(&t, "device: %s, %s, %d SMs, %.1f GiB", dev.name, dev.arch, dev.sms,
            (double)dev.memory / (1 << 30));
    jit_nvrtc_info(line, sizeof line);
    say(&t, "nvrtc: %s", line);
    jit_cublaslt_info(line, sizeof line);
    say(&t, "cublaslt: %s", line);
    jit_nccl_info(line, sizeof line);
    say(&t, "nccl: %s", line);
    jit_cache_info(line, sizeof line);
    say(&t, "cache: %s", line);
    const char *why = NULL, *folder = debug_dump(&why);
    if (folder) say(&t, "dump: %s%s%s", folder, why ? " is not used: it " : "", why ? why : "");
    if (jit_trace_problem()) say(&t, "trace: %s", jit_trace_problem());
    int64_t n = text_emit(&t, buf, size);
    text_free(&t);
    return n;
}
