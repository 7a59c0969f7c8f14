/*
 * caches.c -- README's lines on caches and tokens in a program, which runs a step on the CPU device. Lines "@1" and "@2"
 * stand for what README has before and after its "...".
 */
#include <coda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { sequences = 2, context = 8, kv_heads = 1, head_dim = 64, words = 10 };

#define DIMS(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

enum { ONE = 0x3f80 }; /* of bf16 */
static _Alignas(16) uint16_t q_in[sequences * head_dim], k_in[sequences * head_dim], v_in[sequences * head_dim],
    w_in[words * head_dim], keys_in[sequences * context * head_dim], values_in[sequences * context * head_dim];
static _Alignas(16) int32_t slots_in[sequences], last_in[sequences], positions_in[sequences];

int main(void)
{
    coda_graph *g = coda_graph_new();
    coda_value q = coda_input(g, "q", CODA_BF16, DIMS(sequences, 1, head_dim));
    coda_value k = coda_input(g, "k", CODA_BF16, DIMS(sequences, 1, head_dim));
    coda_value v = coda_input(g, "v", CODA_BF16, DIMS(sequences, 1, head_dim));
    coda_value w = coda_weight(g, "w", CODA_BF16, DIMS(words, head_dim));
    coda_value slots = coda_input(g, "slots", CODA_I32, DIMS(sequences, 1));
    coda_value last = coda_state(g, "last", CODA_I32, DIMS(sequences, 1));
    coda_value positions = coda_state(g, "positions", CODA_I32, DIMS(sequences));
    coda_value lengths = coda_cast(g, coda_add(g, positions, coda_constant(g, CODA_I32, 1)), CODA_I32);
    coda_value values = coda_state(g, "values", CODA_BF16, DIMS(sequences, context, kv_heads * head_dim));
    values = coda_append(g, values, v, slots, NULL);
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    opt.heads = opt.kv_heads = kv_heads;
    opt.causal = 1;
    opt.align = CODA_ALIGN_LENGTH;
@1
    coda_value logits = coda_matmul(g, coda_reshape(g, a, DIMS(sequences, head_dim)), w);
@2
    coda_plan *p;
    coda_compile_options how = CODA_COMPILE_OPTIONS_INIT;
    how.device = CODA_DEVICE_CPU;
    if (coda_compile(&p, g, &how) != CODA_OK) return puts(coda_error()), 1;

    /* At position 0 a sequence sees its own key alone, so attention is v, whose one 1 says the word. */
    for (int b = 0; b < sequences; b++) {
        slots_in[b] = b * context;
        q_in[b * head_dim] = k_in[b * head_dim + 5] = v_in[b * head_dim + 3 + b] = ONE;
        last_in[b] = -1;
    }
    for (int n = 0; n < words; n++) w_in[n * head_dim + n] = ONE;
    void *args[16];
    const coda_binding list[] = {{"q", q_in, sizeof q_in},          {"k", k_in, sizeof k_in},
                                 {"v", v_in, sizeof v_in},          {"w", w_in, sizeof w_in},
                                 {"slots", slots_in, sizeof slots_in}, {"last", last_in, sizeof last_in},
                                 {"keys", keys_in, sizeof keys_in}, {"values", values_in, sizeof values_in},
                                 {"positions", positions_in, sizeof positions_in}};
    if (coda_bind(args, p, list, sizeof list / sizeof *list, NULL) != CODA_OK) return puts(coda_error()), 1;
    void *workspace = aligned_alloc(256, (coda_plan_workspace(p) + 256) / 256 * 256);
    if (coda_run(p, args, NULL, workspace, NULL) != CODA_OK) return puts(coda_error()), 1;
    int bad = 0;
    for (int b = 0; b < sequences; b++)
        bad |= last_in[b] != 3 + b || positions_in[b] != 1 || keys_in[b * context * head_dim + 5] != ONE;
    if (bad) puts("the step has not left what it should");
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
    return bad;
}
