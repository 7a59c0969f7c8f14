/*
 * gpu_early.c -- attention that reads a cache before the product ahead of it has appended to it, but for the
 * rows that this appends, wherever they are: against fp64. Slots are drawn from all of the cache, so they
 * lie in other sequences' keys, in pages that several share, and in none. On the emulator early loads see
 * nothing of what the product writes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "executable.h"
#include "gpu_case.h"
#include "own.h"
#include "schedule.h"
#include "util_device.h"
#include "util_run.h"
#include "util_scale.h"

int gpu_early(void);

enum { SEEDS = 12, FEW_SEEDS = 2 };

static const struct {
    const char *name, *text;
} cases[] = {
    {"one behind the other",
     "%x = input bf16[2,1,256]\n%w = weight bf16[1024,256]\n%keys = state bf16[2,700,256]\n"
     "%values = state bf16[2,700,256]\n%slots = input i32[2,1]\n%lengths = input i32[2]\n"
     "%qkv = matmul %x, %w\n%q = slice %qkv {axis=2,stop=512,step=1}\n"
     "%k = slice %qkv {axis=2,start=512,stop=768,step=1}\n%v = slice %qkv "
     "{axis=2,start=768,stop=1024,step=1}\n"
     "%keys1 = append %keys, %k, %slots\n%values1 = append %values, %v, %slots\n"
     "%a = attention %q, %keys1, %values1, %lengths {heads=4,kv_heads=2,causal=1,align=3}\noutput %y = %a\n"},
    {"pages", "%x = input bf16[3,1,256]\n%w = weight bf16[768,256]\n%keys = state bf16[640,128]\n"
              "%values = state bf16[640,128]\n%slots = input i64[3,1]\n%lengths = input i32[3]\n%table = "
              "input i32[3,24]\n"
              "%qkv = matmul %x, %w\n%q = slice %qkv {axis=2,stop=512,step=1}\n"
              "%k = slice %qkv {axis=2,start=512,stop=640,step=1}\n%v = slice %qkv "
              "{axis=2,start=640,stop=768,step=1}\n"
              "%keys1 = append %keys, %k, %slots\n%values1 = append %values, %v, %slots\n"
              "%a = attention %q, %keys1, %values1, %lengths, _, _, _, %table "
              "{heads=8,kv_heads=2,causal=1,align=3,page=16}\noutput %y = %a\n"},
    {"several tokens",
     "%x = input bf16[2,3,256]\n%w = weight bf16[512,256]\n%keys = state bf16[900,128]\n"
     "%values = state bf16[900,128]\n%slots = input i32[2,3]\n%lengths = input i32[2]\n"
     "%qkv = matmul %x, %w\n%q = slice %qkv {axis=2,stop=256,step=1}\n"
     "%k = slice %qkv {axis=2,start=256,stop=384,step=1}\n%v = slice %qkv "
     "{axis=2,start=384,stop=512,step=1}\n"
     "%keys1 = append %keys, %k, %slots\n%values1 = append %values, %v, %slots\n"
     "%ks = reshape %keys1 {rank=3,d0=2,d1=450,d2=128}\n%vs = reshape %values1 {rank=3,d0=2,d1=450,d2=128}\n"
     "%a = attention %q, %ks, %vs, %lengths {heads=2,kv_heads=1,causal=1,align=3}\noutput %y = %a\n"},
    {"heads in pages",
     "%x = input bf16[2,1,256]\n%w = weight bf16[768,256]\n%keys = state bf16[20,2,32,64]\n"
     "%values = state bf16[20,2,32,64]\n%slots = input i32[2,1]\n%lengths = input i32[2]\n%table = input "
     "i32[2,16]\n"
     "%qkv = matmul %x, %w\n%q = slice %qkv {axis=2,stop=512,step=1}\n"
     "%k = slice %qkv {axis=2,start=512,stop=640,step=1}\n%v = slice %qkv "
     "{axis=2,start=640,stop=768,step=1}\n"
     "%keys1 = append %keys, %k, %slots {layout=1}\n%values1 = append %values, %v, %slots {layout=1}\n"
     "%a = attention %q, %keys1, %values1, %lengths, _, _, _, %table "
     "{heads=8,kv_heads=2,causal=1,align=3,page=32,layout=1}\noutput %y = %a\n"},
    {"fp8",
     "%x = input bf16[2,1,256]\n%w = weight bf16[1024,256]\n%keys = state f8e4m3[2,900,256]\n"
     "%values = state f8e4m3[2,900,256]\n%slots = input i32[2,1]\n%lengths = input i32[2]\n"
     "%qkv = matmul %x, %w\n%q = slice %qkv {axis=2,stop=512,step=1}\n"
     "%k = slice %qkv {axis=2,start=512,stop=768,step=1}\n%v = slice %qkv "
     "{axis=2,start=768,stop=1024,step=1}\n"
     "%keys1 = append %keys, %k, %slots\n%values1 = append %values, %v, %slots\n"
     "%a = attention %q, %keys1, %values1, %lengths {heads=4,kv_heads=2,causal=1,align=3}\noutput %y = %a\n"},
};

/* Is there an attention that begins early, though the run writes its keys? */
static bool is_early(const graph *g)
{
    coda_plan *p = NULL;
    bool early = false;
    if (coda_compile(&p, g, NULL) != CODA_OK) return false;
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        const struct attention_spec *a = q->own == &own_attention ? q->spec : NULL;
        early = early || (a && a->appends && p->plan.schedule[i].reads_early && p->program[i].launch.pdl);
    }
    coda_plan_free(p);
    return early;
}

static int check(int i, const graph *g, uint64_t seed)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void **want = run_reference(g, seed);
    double error = want ? run_on_gpu(g, seed, &opt, want) : -1;
    bool good = error >= 0 && error <= 0.01;
    random_args_free(g, want);
    return gpu_case(good, "early", "%s, seed %llu: error %.2e %s", cases[i].name, (unsigned long long)seed,
                    error, good ? "" : coda_error());
}

int gpu_early(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    setenv("CODA_STALE", "1", 1);
    setenv("CODA_EMULATOR_SMS", "132", 1); /* of few, clusters walk */
    if (!device_open(&device, err)) return gpu_case(false, "early", "%s", err);
    for (int i = 0; i < ARRAY_SIZE(cases); i++) {
        graph *g = graph_parse(cases[i].text);
        if (!g || !is_early(g)) failed += gpu_case(false, "early", "%s: %s", cases[i].name, coda_error());
        for (int s = 0; g && s < (scale_is_thinned() ? FEW_SEEDS : SEEDS); s++)
            failed += check(i, g, random_seed() + (uint64_t)s);
        graph_free(g);
    }
    unsetenv("CODA_EMULATOR_SMS");
    unsetenv("CODA_STALE");
    return failed;
}
