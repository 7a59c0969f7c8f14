/* texts_made.c -- texts.c, of programs made by hand: GEMMs in many tiles, rows, attention. */
#include "texts.h"

#include "emit.h"
#include "schedule.h"
#include "tile.h"
#include "util_attention.h"
#include "util_gemm.h"
#include "util_rows.h"

static void say_kernel(const struct kernel *k, const char *name)
{
    const struct launch_spec *l = &k->launch;
    text_printf(&said, "==== %s: %s, %lld blocks of %d, cluster %d%s%s, %d bytes shared\n", name,
                k->symbol ? k->symbol : "", (long long)l->grid, l->threads, l->cluster,
                l->persistent ? ", persistent" : "", l->early ? ", early" : "", l->shared_bytes);
    if (k->text) text_append(&said, k->text);
    for (int i = 0; i < k->maps; i++) {
        const struct map_spec *m = &k->map[i];
        text_printf(&said, "map %d +%lld swizzle %d:", m->buffer, (long long)m->offset, m->swizzle);
        for (int d = 0; d < m->rank; d++)
            text_printf(&said, " %lld*%lld/%d", (long long)m->dim[d], (long long)m->stride[d], m->box[d]);
        text_append(&said, "\n");
    }
    for (int i = 0; i < k->pointers; i++)
        text_printf(&said, "pointer %d +%lld\n", k->pointer[i].buffer, (long long)k->pointer[i].bytes);
}

/* By price, and in the n-th of all its tiles. */
static void say_gemm(const struct gemm_case *c, enum gemm_loop loop, int tiles)
{
    struct gemm_rig r;
    struct gemm_case other = *c;
    for (int i = 0; i <= tiles; i++) {
        if (i) other.tile = gemm_any_tile(c, (uint64_t)i * 7 - 7);
        if (gemm_emit(&other, loop, i % 2 ? 3 : gemm_target.sms, &r))
            text_printf(&said, "error: %s\n", coda_error());
        program_print(NULL, &r.p, &said);
        tile_print(&r.s.tile, &said);
        say_kernel(&r.k, c->name);
        gemm_free(&r);
    }
}

/* All that tuning would try, in its order. */
static void say_candidates(const struct gemm_case *c)
{
    enum { MOST = 64 };
    struct gemm_rig r;
    struct tile all[MOST];
    if (gemm_emit(c, GEMM_HOPPER, gemm_target.sms, &r)) return;
    for (int class = 0; class < TILE_CLASSES; class ++) {
        int n = tile_candidates(&r.p, &gemm_target, class, all, MOST);
        for (int i = 0; i < n; i++) tile_print(&all[i], &said), text_append(&said, "\n");
    }
    gemm_free(&r);
}

void all_gemms(void)
{
    for (int i = 0; i < gemm_case_count; i++) {
        say_gemm(&gemm_cases[i], GEMM_HOPPER, 3);
        say_gemm(&gemm_cases[i], GEMM_SIMT, 0);
        say_candidates(&gemm_cases[i]);
        if (i % 8 == 7 || i + 1 == gemm_case_count) end_group("gemm to %d %s", i, gemm_cases[i].name);
    }
    for (int i = 0; i < gemm_case_count; i++) {
        say_gemm(&gemm_cases[i], GEMM_MMA, 0);
        if (i % 32 == 31 || i + 1 == gemm_case_count) end_group("mma to %d %s", i, gemm_cases[i].name);
    }
}

void all_rows(void)
{
    for (int i = 0; i < rows_case_count; i++) {
        struct rig r;
        rows_cases[i].build(&r);
        if (rig_emit(&r, &rows_target)) text_printf(&said, "error: %s\n", coda_error());
        program_print(NULL, &r.p, &said);
        say_kernel(&r.k, rows_cases[i].name);
        rig_free(&r);
    }
    end_group("rows");
}

void all_attention(void)
{
    for (int sm90 = 0; sm90 < 2; sm90++) {
        for (int i = 0; i < attention_case_count; i++) {
            const struct attention_case *c = &attention_cases[i];
            struct attention_rig r;
            if (attention_emit(&r, c, sm90)) text_printf(&said, "error: %s\n", coda_error());
            else say_kernel(&r.k, c->name);
            arena_free(&r.plan.arena);
        }
        end_group("attention %s", sm90 ? "sm90" : "simt");
    }
}
