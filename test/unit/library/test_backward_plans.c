/*
 * test_backward_plans.c -- what is planned of backward passes as coda_grad makes them: layers and blocks of
 * LLaMA, GPT-2 and BERT, forward and backward in one plan, and each in its own as coda_split cuts them.
 * Launches, and bytes that a run moves, are at most those in the table. A LLaMA layer's backward has to move
 * 3920, 8350 or 19130 MB: each operand of a program read, each result written once.
 */
#include "graph.h" /* before check.h, which has a macro called fail */

#include "check_plan.h"
#include "util_grad_blocks.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

/* A LLaMA layer without its attention: x1 = x + y W0', x2 = x1 + swiglu(rms_norm(x1) W1') W2',
 * rope(rms_norm(x2) W3'), of D columns and F hidden ones. */
#define LLAMA_LAYER(D, D3, F, F2, HEADS)                                                                     \
    "%x = input bf16[16384," D "]\n%y = input bf16[16384," D "]\n%w0 = weight bf16[" D "," D "]\n"           \
    "%w1 = weight bf16[" F2 "," D "]\n%w2 = weight bf16[" D "," F "]\n%w3 = weight bf16[" D3 "," D "]\n"     \
    "%g0 = weight bf16[" D "]\n%g1 = weight bf16[" D "]\n%p0 = matmul %y, %w0\n%x1 = add %p0, %x\n"          \
    "%n1 = rms_norm %x1, %g0 {eps=1e-5}\n%z = matmul %n1, %w1\n"                                             \
    "%g = slice %z {axis=1, start=0, stop=" F ", step=1}\n"                                                  \
    "%u = slice %z {axis=1, start=" F ", stop=" F2 ", step=1}\n%a = swiglu %g, %u\n%p2 = matmul %a, %w2\n"   \
    "%x2 = add %p2, %x1\n%n2 = rms_norm %x2, %g1 {eps=1e-5}\n%z3 = matmul %n2, %w3\n"                        \
    "%qkv = rope %z3 {base=10000, head_dim=128, heads=" HEADS ", half=1}\noutput %x2 = %x2\n"                \
    "output %qkv = %qkv\n"

/* GPT-2's, which normalizes ahead of products, and BERT's, which does behind them. */
#define ENCODER_LEAVES                                                                                       \
    "%x = input bf16[16384,1024]\n%y = input bf16[16384,1024]\n%wo = weight bf16[1024,1024]\n"               \
    "%bo = weight bf16[1024]\n%wf = weight bf16[1024,4096]\n%bf = weight bf16[4096]\n"                       \
    "%wp = weight bf16[4096,1024]\n%bp = weight bf16[1024]\n%wq = weight bf16[1024,3072]\n"                  \
    "%bq = weight bf16[3072]\n%g1 = weight bf16[1024]\n%b1 = weight bf16[1024]\n%g2 = weight bf16[1024]\n"   \
    "%b2 = weight bf16[1024]\n%c0 = matmul %y, %wo {kn=1}\n%o = add %c0, %bo\n%h = add %o, %x\n"
static const char gpt2_layer[] =
    ENCODER_LEAVES "%n = layer_norm %h, %g1, %b1 {eps=1e-5}\n%c1 = matmul %n, %wf {kn=1}\n%f = add %c1, %bf\n"
                   "%a = gelu_tanh %f\n%c2 = matmul %a, %wp {kn=1}\n%p = add %c2, %bp\n%s = add %p, %h\n"
                   "%m = layer_norm %s, %g2, %b2 {eps=1e-5}\n%c3 = matmul %m, %wq {kn=1}\n%q = add %c3, %bq\n"
                   "output %s = %s\noutput %q = %q\n";
static const char bert_layer[] =
    ENCODER_LEAVES "%n = layer_norm %h, %g1, %b1 {eps=1e-5}\n%c1 = matmul %n, %wf {kn=1}\n%f = add %c1, %bf\n"
                   "%a = gelu_erf %f\n%c2 = matmul %a, %wp {kn=1}\n%p = add %c2, %bp\n%s = add %p, %n\n"
                   "%m = layer_norm %s, %g2, %b2 {eps=1e-5}\n%c3 = matmul %m, %wq {kn=1}\n%q = add %c3, %bq\n"
                   "output %m = %m\noutput %q = %q\n";

enum { BOTH, FORWARD, BACKWARD, PLANS };
static const struct {
    struct grad_block block;
    struct {
        int launches;
        double megabytes;
    } most[PLANS];
} passes[] = {
    {{"LLaMA's layer, D 2048", NULL, LLAMA_LAYER("2048", "6144", "5632", "11264", "32"), 0},
     {{14, 5590}, {6, 1655}, {10, 3930}}},
    {{"LLaMA's layer, D 4096", NULL, LLAMA_LAYER("4096", "12288", "11008", "22016", "64"), 0},
     {{14, 11860}, {6, 3475}, {10, 8380}}},
    {{"LLaMA's layer, D 8192", NULL, LLAMA_LAYER("8192", "24576", "22016", "44032", "128"), 0},
     {{14, 26960}, {6, 7755}, {10, 19180}}},
    {{"GPT-2's layer", NULL, gpt2_layer, 0}, {{18, 2655}, {6, 906}, {12, 1755}}},
    {{"BERT's layer", NULL, bert_layer, 0}, {{18, 2655}, {6, 906}, {12, 1755}}},
    {{"LLaMA's block", "examples/graphs/llama.coda", NULL, 0}, {{18, 3140}, {7, 872}, {12, 2265}}},
    {{"GPT-2's block", "examples/graphs/gpt2.coda", NULL, 0}, {{21, 199}, {7, 62}, {14, 137.5}}},
    {{"BERT's block", "examples/graphs/bert.coda", NULL, 0}, {{20, 1172}, {7, 394}, {14, 793}}},
};

/* Outputs ahead of the gradients. */
static int outputs_of(const graph *g)
{
    int n = 0;
    while (n < g->outputs && strncmp(g->output[n].name, "g_", 2) != 0) n++;
    return n;
}

START_TEST(backward_passes_are_few_launches)
{
    static const char *const name[PLANS] = {"both", "forward", "backward"};
    graph *g = grad_block_graph(&passes[_i].block), *part[2];
    coda_split_options keep = CODA_SPLIT_OPTIONS_INIT;
    ck_assert_msg(g != NULL, "%s", coda_error());
    keep.keep = CODA_KEEP_MORE;
    ck_assert_msg(coda_split(g, outputs_of(g), &keep, &part[0], &part[1]) == CODA_OK, "%s", coda_error());
    const graph *plan[PLANS] = {g, part[0], part[1]};
    for (int i = 0; i < PLANS; i++) {
        coda_plan_stats s = plan_stats_of(plan[i], NULL);
        bool good = s.launches <= passes[_i].most[i].launches &&
                    (double)s.bytes <= 1e6 * passes[_i].most[i].megabytes;
        ck_assert_msg(good, "%s, %s: %d launches, %.1f MB", passes[_i].block.name, name[i], s.launches,
                      (double)s.bytes / 1e6);
    }
    graph_free(g), graph_free(part[0]), graph_free(part[1]);
}
END_TEST

TESTS(backward_plans, EACH(backward_passes_are_few_launches, ARRAY_SIZE(passes)));
