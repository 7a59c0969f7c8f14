/* test_emit_packed.c -- what NVRTC makes of kernels that decode packed weights: nothing spills but what is
 * said below, and ptxas has nothing to say. */
#include "executable.h"
#include "util_packed.h"
#include "util_random.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

/* most: bytes that may spill */
static void compile(const char *word, const struct packed_sizes *s, int reader, const char *arch, int most)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_plan *p;
    ck_assert(!coda_pack_format_find(word, &f));
    graph *g = packed_graph(&f, reader, s, false);
    opt.device = CODA_DEVICE_NONE;
    opt.arch = arch;
    opt.flags = scale_kernels_are_kept() ? 0 : CODA_NO_CACHE;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s, %s: %s", word, arch, coda_error());
    for (int i = 0; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        ck_assert_msg(k->info.spill_bytes <= most, "%s, %s, %s, %d x %d x %d of %s: %s spills %d bytes", word,
                      arch, packed_readers[reader].name, (int)s->m, (int)s->n, (int)s->k,
                      dtype_name(s->dtype), k->info.name, k->info.spill_bytes);
        ck_assert_msg(!k->cubin.warning[0], "%s, %s: %s: %s", word, arch, k->info.name, k->cubin.warning);
    }
    coda_plan_free(p);
    graph_free(g);
}

/* Of each format, one way to read it by each dtype, now for one architecture, now for another. */
enum { SHARE = 6, PRODUCT = 0 /* of packed_readers */ };
START_TEST(kernels_keep_to_their_registers)
{
    static const coda_dtype dtypes[] = {CODA_BF16, CODA_F16, CODA_F32};
    static const char *const archs[] = {"sm_80", "sm_90a"};
    for (int i = 0; i < ARRAY_SIZE(dtypes) * ARRAY_SIZE(archs); i++) {
        int reader = (_i + i) % packed_reader_count;
        if (!scale_takes_one_in(SHARE, _i + i)) continue;
        compile(packed_formats[_i], &(struct packed_sizes){200, 256, 512, 0, dtypes[i % 3]}, reader,
                archs[i / 3], 0);
    }
}
END_TEST

/* Kernels of a model's sizes: for a few rows, where how many tiles a block streams decides the registers, and
 * for many, where sums do; of experts, too. Beside 128 rows' partial sums, four numbers of a gated tile spill
 * while it is multiplied. */
START_TEST(kernels_of_models_do)
{
    static const struct packed_sizes sizes[] = {
        {8, 4096, 4096, 0, CODA_BF16},     {16, 4096, 14336, 0, CODA_F16},  {1, 22016, 4096, 0, CODA_F16},
        {16, 22016, 4096, 0, CODA_BF16},   {64, 22016, 4096, 0, CODA_BF16}, {300, 11008, 4096, 0, CODA_F16},
        {2048, 4096, 11008, 0, CODA_BF16}, {8, 2880, 2880, 32, CODA_BF16},  {200, 5760, 2880, 32, CODA_BF16},
        {96, 22016, 4096, 0, CODA_BF16}};
    static const int spilled[ARRAY_SIZE(sizes)] = {[5] = 16};
    int taken = (int)((random_seed() + (uint64_t)_i) % ARRAY_SIZE(sizes));
    for (int i = 0; i < ARRAY_SIZE(sizes); i++) {
        int reader = sizes[i].batch ? PRODUCT : (_i + i) % packed_reader_count;
        if (scale_is_full() || (i == taken && scale_takes_one_in(SHARE, _i)))
            compile(packed_formats[_i], &sizes[i], reader, "sm_90a", spilled[i]);
    }
}
END_TEST

TESTS(emit_packed, CASE("nvrtc"), TAG("nvrtc"), SECONDS(120),
      EACH(kernels_keep_to_their_registers, packed_format_count),
      EACH(kernels_of_models_do, packed_format_count));
