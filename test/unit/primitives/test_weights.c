/* test_weights.c -- tile/weights.cuh on the host against lib/pack: every code of every format with scales of
 * all bytes, bit for bit. */
#include "base.h" /* before check.h, which has a macro `fail` */

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pack.h"
#include "shim/shim.h"
#include "util_random.h"

enum { ROWS = 35 };

/* Which codes have been met. */
static void note(const struct pack_format *f, const uint8_t *packed, int64_t columns, bool *met)
{
    struct pack_record p = pack_record(f);
    int64_t records = pack_records(f, columns);
    for (int64_t i = 0; i < 2 * records * PACK_ROWS; i++) {
        uint8_t q[PACK_STEP_MOST];
        pack_get_codes(&p, f->codes, packed + i / PACK_ROWS * p.bytes, (int)(i % PACK_ROWS), q);
        for (int k = 0; k < p.step; k++) met[q[k]] = true;
    }
}

static void check(const struct shim_packed *s, const struct pack_format *f, const uint8_t *packed)
{
    float row[512];
    for (int64_t r = 0; r < ROWS; r++) {
        pack_decode(f, packed, ROWS, s->columns, r, 0, s->columns, row);
        for (int64_t k = 0; k < s->columns; k++) {
            float x = s->at(packed, r, k);
            bool same = !memcmp(&x, &row[k], sizeof x) || (isnan(x) && isnan(row[k]));
            ck_assert_msg(same, "%s [%d, %lld], row %lld, k %lld: %a, not %a", s->word, ROWS,
                          (long long)s->columns, (long long)r, (long long)k, (double)x, (double)row[k]);
        }
    }
}

START_TEST(every_byte_as_on_the_host)
{
    struct random random = {random_seed()};
    int formats = 0;
    for (const struct shim_packed *s = shim_packed; s->word; s++, formats++) {
        struct pack_format f;
        bool met[256] = {false};
        int codes = 0;
        ck_assert_msg(!pack_find(s->word, &f), "%s", fail_message());
        int64_t bytes = pack_bytes(&f, ROWS, s->columns);
        uint8_t *packed = malloc((size_t)bytes);
        for (int i = 0; i < 4; i++) {
            for (int64_t b = 0; b < bytes; b++) packed[b] = (uint8_t)random_next(&random);
            check(s, &f, packed);
            note(&f, packed, s->columns, met);
        }
        for (int q = 0; q < 256; q++) codes += met[q];
        ck_assert_int_eq(codes, 1 << pack_record(&f).bits);
        free(packed);
    }
    ck_assert_int_ge(formats, 40);
}
END_TEST

TESTS(weights, SECONDS(30), ONE(every_byte_as_on_the_host));
