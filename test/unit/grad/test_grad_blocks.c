/* test_grad_blocks.c -- gradients of all leaves of blocks of models, on the CPU device: fused they are no
 * farther from fp64 than one operation after the other. */
#include "util_grad_blocks.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests.h" /* last: Check has a macro named fail */

START_TEST(blocks_have_their_gradients)
{
    char why[512];
    bool good = grad_block_good(&grad_blocks[_i], 7, false, why, sizeof why);
    if (getenv("CODA_TEST_VERBOSE")) fprintf(stderr, "%s: %s\n", grad_blocks[_i].name, why);
    ck_assert_msg(good, "%s: %s", grad_blocks[_i].name, why);
}
END_TEST

TESTS(grad_blocks, SECONDS(120), SOME(blocks_have_their_gradients, grad_block_count));
