/* test_emit_together.c -- what NVRTC makes of launches of several products: nothing spills, and ptxas has
 * nothing to say. */
#include "executable.h"
#include "util_scale.h"
#include "util_streams.h"

#include "tests.h" /* last: Check has a macro named fail */

START_TEST(kernels_of_streams_keep_to_their_registers)
{
    const struct streams_case *c = &streams_cases[_i];
    if (!scale_takes_one_in(3, _i)) return;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    graph *g = streams_graph(c);
    opt.device = CODA_DEVICE_NONE;
    opt.arch = "sm_90a";
    opt.flags = scale_kernels_are_kept() ? 0 : CODA_NO_CACHE;
    ck_assert_msg(g && coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", c->name, coda_error());
    ck_assert_ptr_nonnull(p->plan.together);
    for (int i = 0; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        ck_assert_msg(k->info.spill_bytes == 0, "%s: %s spills %d bytes", c->name, k->info.name,
                      k->info.spill_bytes);
        ck_assert_msg(!k->cubin.warning[0], "%s: %s: %s", c->name, k->info.name, k->cubin.warning);
    }
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(emit_together, TAG("nvrtc"), EACH(kernels_of_streams_keep_to_their_registers, streams_case_count));
