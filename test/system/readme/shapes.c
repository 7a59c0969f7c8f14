/*
 * shapes.c -- README's lines on shapes in a program, which runs 37 of up to 4096 tokens on the CPU device. Lines "@1" and
 * "@2" stand for what README has before and after its "...".
 */
#include <coda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, D = 4096, ONE = 0x3f80 }; /* 1 of bf16 */

int main(void)
{
    coda_graph *g = coda_graph_new();
@1
    coda_output(g, "y", coda_rms_norm(g, x, CODA_NONE, 0.0f));
    coda_plan *p = NULL;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    uint16_t *rows = aligned_alloc(256, 2 * ROWS * D), *out = aligned_alloc(256, 2 * (ROWS + 1) * D);
    void *args[] = {rows, out}, *prepared = NULL, *workspace = NULL;
    coda_stream stream = NULL;
    for (int i = 0; i < ROWS * D; i++) rows[i] = (uint16_t)(ONE + 0x80); /* 2 */
    memset(out, 0xff, 2 * (ROWS + 1) * D);
@2
    if (!p || coda_plan_workspace(p)) return puts(p ? "it wants scratch" : coda_error()), 1;
    int bad = 0;
    for (int i = 0; i < ROWS * D; i++) bad |= out[i] != ONE;         /* each row is 1 once it is normalised */
    for (int i = ROWS * D; i < (ROWS + 1) * D; i++) bad |= out[i] != 0xffff; /* of which there are 37 */
    if (bad) puts("37 rows are not what they should be");
    free(rows);
    free(out);
    coda_plan_free(p);
    coda_graph_free(g);
    return bad;
}
