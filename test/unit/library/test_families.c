/*
 * test_families.c -- random models of whole families on the CPU device, fused and with each fold, against
 * fp64 and against the same plan unfused: what is finite unfused is finite, and no row is further from fp64
 * than rounding explains. Streams are of order 1e-30 to 1e30, with rows of zeros, and what is masked holds
 * NaN, infinity and huge values. $CODA_FAMILIES: how many, instead of the short share of every test run.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_family.h"
#include "util_family_run.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { CHUNKS = 8, EACH = 12 };

static int each(void)
{
    const char *given = getenv("CODA_FAMILIES");
    return given ? MAX(atoi(given) / CHUNKS, 1) : scaled(EACH);
}

static void check_families(enum known_family known, int chunk)
{
    uint64_t seed = random_seed() + (uint64_t)chunk * 1000003;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    for (int i = 0; i < each(); i++) {
        struct family f;
        char why[512];
        family_make_known(&f, known, seed + (uint64_t)i, 0);
        ck_assert_msg(family_good(&f, &opt, why, sizeof why), "family %llu: %s\n%s",
                      (unsigned long long)(seed + (uint64_t)i), why, f.name);
        coda_graph_free(f.g);
    }
}

START_TEST(families) { check_families(FAMILY_DRAWN, _i); }
END_TEST

START_TEST(known_families) { check_families((enum known_family)_i, CHUNKS + _i); }
END_TEST

TESTS(families, SECONDS(7200), EACH(families, CHUNKS),
      RANGE(known_families, FAMILY_DRAWN + 1, KNOWN_FAMILIES));
