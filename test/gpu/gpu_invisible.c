/* gpu_invisible.c -- what a row does not read never changes it: the cases of util_invisible.c on the GPU. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu_case.h"
#include "util_device.h"
#include "util_invisible.h"
#include "util_scale.h"

int gpu_invisible(void);

static bool run(const graph *g, const coda_plan *p, void **args)
{
    struct run_buffers b;
    bool ok = run_upload(&b, g, p, args, true) && run_prepare(&b, p) && run_plan(&b, p);
    run_release(&b);
    return ok;
}

/* Elements that differ, or -1 with the message set. */
static int64_t difference(const struct invisible_case *c, const graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.flags = flags;
    if (coda_compile(&p, g, &opt) != CODA_OK) return -1;
    void **clean = invisible_args(c, g, false, false), **poisoned = invisible_args(c, g, true, false);
    bool ran = run(g, p, clean) && run(g, p, poisoned);
    int64_t wrong = ran ? invisible_difference(c, g, clean, poisoned, false) : -1;
    random_args_free(g, clean);
    random_args_free(g, poisoned);
    coda_plan_free(p);
    return wrong;
}

int gpu_invisible(void)
{
    static const coda_dtype dtypes[] = {CODA_BF16, CODA_F32, CODA_F16};
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&device, err)) return gpu_case(false, "invisible", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    int failed = 0, most = few ? 2 : 6;
    for (int i = 0; i < invisible_case_count; i++)
        for (int way = 0; way < most; way++) {
            if (few && !scale_takes_one_in(3, i + way)) continue;
            const struct invisible_case *c = &invisible_cases[i];
            graph *g = invisible_graph(c, dtypes[way % 3]);
            int64_t wrong = g ? difference(c, g, way < 3 ? 0 : CODA_NO_FUSION) : -1;
            failed += gpu_case(wrong == 0, "invisible", "%s, %s%s: %lld elements differ %s", c->name,
                               dtype_name(dtypes[way % 3]), way < 3 ? "" : ", unfused", (long long)wrong,
                               wrong < 0 ? coda_error() : "");
            graph_free(g);
        }
    return failed;
}
