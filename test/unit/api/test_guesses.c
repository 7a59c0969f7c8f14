/*
 * test_guesses.c -- mistakes that a newcomer makes, and what each line of error has to say. guesses.def lists
 * them: in C below, by name; in the text form there.
 *
 * A line names the node, the line of the text or the argument, the scope if there is one, and both operands
 * with their shapes, or the word that was meant. It is one line, and the library prints nothing.
 */
#include "base.h" /* before check.h, which has a macro called fail */

#include "tests.h" /* last: Check has a macro named fail */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIMS(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

/* ---- Tensors that most guesses have ---- */

static coda_value input(coda_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return coda_input(g, name, CODA_F32, 2, (int64_t[]){rows, columns});
}
static coda_value x16(coda_graph *g) { return input(g, "x", 16, 64); }
static coda_value weight(coda_graph *g, const char *name, int64_t n, int64_t k)
{
    return coda_weight(g, name, CODA_F32, 2, (int64_t[]){n, k});
}

/* Of a guess that comes to a plan; make() frees them. */
static coda_plan *plan;
static void *workspace;

/* y = x w on the CPU device, whose weight is folded where `fold` says so. */
static coda_plan *product(coda_graph *g, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    opt.fold = fold;
    coda_value x = input(g, "x", 4, 8), w = weight(g, "w", 16, 8);
    coda_value gain = coda_weight(g, "gain", CODA_F32, 1, (int64_t[]){8});
    coda_output(g, "y", coda_matmul(g, coda_rms_norm(g, x, gain, 1e-5f), w));
    ck_assert_msg(!coda_compile(&plan, g, &opt), "%s", coda_error());
    return plan;
}

/* What has no graph to ask, as the status of a call. */
typedef coda_status guess(coda_graph *g);

/* ---- Shapes ---- */

static coda_status one_up(coda_graph *g)
{
    coda_value x = x16(g);
    for (int i = 0; i < 24; i++) {
        char name[32];
        sprintf(name, "layers.%d.w", i);
        coda_scope_push(g, "layers.%d", i);
        coda_value w = weight(g, name, 64, 64), up = weight(g, "up", 64, 64);
        x = coda_matmul(g, x, up);
        coda_scope_push(g, "mlp");
        x = coda_add(g, coda_relu(g, coda_matmul(g, x, w)), x);
        coda_scope_pop(g), coda_scope_pop(g);
    }
    return CODA_OK;
}
static coda_status layer_17(coda_graph *g)
{
    coda_value x = x16(g);
    for (int i = 0; i < 24; i++) {
        char name[32];
        sprintf(name, "layers.%d.w", i);
        coda_value w = weight(g, name, i == 17 ? 65 : 64, 64);
        coda_scope_push(g, "layers.%d.mlp", i);
        x = coda_add(g, coda_relu(g, coda_matmul(g, x, w)), x);
        coda_scope_pop(g);
    }
    return CODA_OK;
}
static coda_status jax_weight(coda_graph *g)
{
    coda_scope_push(g, "head");
    coda_matmul(g, x16(g), weight(g, "w", 64, 100));
    return CODA_OK;
}
static coda_status kn_of_linear(coda_graph *g)
{
    return coda_matmul_kn(g, x16(g), weight(g, "w", 100, 64)), 0;
}
static coda_status vector_times_matrix(coda_graph *g)
{
    coda_value v = coda_input(g, "v", CODA_F32, DIMS(64));
    return coda_matmul(g, v, weight(g, "w", 64, 64)), 0;
}
static coda_status batches_differ(coda_graph *g)
{
    coda_value a = coda_input(g, "a", CODA_F32, DIMS(2, 4, 8)),
               b = coda_input(g, "b", CODA_F32, DIMS(3, 4, 8));
    return coda_matmul(g, a, b), 0;
}
static coda_status integers_times(coda_graph *g)
{
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(16, 64));
    return coda_matmul(g, ids, weight(g, "w", 64, 64)), 0;
}
static coda_status residual_width(coda_graph *g)
{
    coda_value x = x16(g);
    return coda_add(g, coda_matmul(g, x, weight(g, "w", 128, 64)), x), 0;
}
static coda_status by_rows(coda_graph *g)
{
    return coda_mul(g, x16(g), coda_input(g, "scale", CODA_F32, DIMS(16))), 0;
}
static coda_status bias_of_rank_2(coda_graph *g)
{
    return coda_bias(g, x16(g), coda_weight(g, "b", CODA_F32, DIMS(1, 64))), 0;
}
static coda_status gain_of_rows(coda_graph *g)
{
    return coda_rms_norm(g, x16(g), coda_weight(g, "g", CODA_F32, DIMS(16)), 1e-6f), 0;
}
static coda_status odd_gate(coda_graph *g) { return coda_swiglu(g, input(g, "x", 16, 65), CODA_STACKED), 0; }
static coda_status concat_heads(coda_graph *g)
{
    coda_value in[] = {x16(g), coda_input(g, "h", CODA_BF16, DIMS(16, 64))};
    return coda_concat(g, 1, in, 2), 0;
}
static coda_status reshape_heads(coda_graph *g)
{
    return coda_reshape(g, x16(g), 3, (int64_t[]){16, 7, 8}), 0;
}
static coda_status two_rests(coda_graph *g) { return coda_reshape(g, x16(g), DIMS(-1, 8, -1)), 0; }
static coda_status slice_to_the_end(coda_graph *g) { return coda_slice(g, x16(g), 1, 0, -1, 1), 0; }
static coda_status axis_2(coda_graph *g) { return coda_slice(g, x16(g), 2, 0, 8, 1), 0; }
static coda_status perm_twice(coda_graph *g) { return coda_transpose(g, x16(g), (int[]){1, 1}), 0; }

/* ---- Attention, rope, embedding, loss ---- */

static coda_status torch_heads(coda_graph *g)
{
    coda_value q = coda_input(g, "q", CODA_BF16, DIMS(2, 4, 8, 16));
    return coda_attention(g, q, q, q, CODA_NONE, NULL), 0;
}
static coda_status heads_7(coda_graph *g)
{
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    coda_value q = coda_input(g, "q", CODA_BF16, DIMS(2, 8, 64));
    opt.heads = 7;
    return coda_attention(g, q, q, q, CODA_NONE, &opt), 0;
}
static coda_status kv_heads_left_out(coda_graph *g)
{
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    coda_value q = coda_input(g, "q", CODA_BF16, DIMS(2, 8, 64)),
               k = coda_input(g, "k", CODA_BF16, DIMS(2, 8, 16));
    opt.heads = 4;
    coda_scope_push(g, "layers.0.attn");
    return coda_attention(g, q, k, k, CODA_NONE, &opt), 0;
}
static coda_status mask_as_lengths(coda_graph *g)
{
    coda_value q = coda_input(g, "q", CODA_F32, DIMS(8, 64)),
               mask = coda_input(g, "mask", CODA_F32, DIMS(8, 8));
    return coda_attention(g, q, q, q, mask, NULL), 0;
}
static coda_status float_positions(coda_graph *g)
{
    return coda_rope(g, x16(g), coda_input(g, "pos", CODA_F32, DIMS(16)), NULL), 0;
}
static coda_status ids_before_table(coda_graph *g)
{
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(16));
    return coda_embedding(g, ids, weight(g, "table", 100, 64)), 0;
}
static coda_status conv_of_torch(coda_graph *g)
{
    coda_value w = coda_weight(g, "conv", CODA_F32, DIMS(64, 1, 4));
    return coda_conv1d(g, x16(g), w, CODA_NONE, CODA_NONE, CODA_NONE, NULL), 0;
}
static coda_status scan_of_heads(coda_graph *g)
{
    coda_value a = coda_weight(g, "a", CODA_F32, DIMS(8)), b = input(g, "b", 16, 16);
    return coda_scan(g, x16(g), input(g, "dt", 16, 64), a, b, b, CODA_NONE, CODA_NONE, NULL, NULL), 0;
}
static coda_status sums_by_columns(coda_graph *g)
{
    return coda_row_sums(g, x16(g), coda_input(g, "ids", CODA_I32, DIMS(64)), 100), 0;
}
static coda_status one_hot(coda_graph *g)
{
    return coda_cross_entropy(g, x16(g), input(g, "hot", 16, 64), NULL), 0;
}
static coda_status zero_options(coda_graph *g)
{
    coda_rope_options opt = CODA_ROPE_OPTIONS_INIT;
    opt.size = 12345;
    return coda_rope(g, x16(g), CODA_NONE, &opt), 0;
}
static coda_status append_to_input(coda_graph *g)
{
    coda_value cache = input(g, "cache", 128, 64), at = coda_input(g, "at", CODA_I32, DIMS(16));
    return coda_append(g, cache, x16(g), at, NULL), 0;
}
static coda_status read_after_write(coda_graph *g)
{
    coda_value s = coda_state(g, "s", CODA_F32, DIMS(16, 64));
    coda_assign(g, s, x16(g));
    return coda_relu(g, s), 0;
}

/* ---- Names, numbers, graphs ---- */

static coda_status name_twice(coda_graph *g)
{
    for (int i = 0; i < 2; i++) {
        coda_scope_push(g, "layers.%d", i);
        weight(g, "w", 64 + i, 64);
        coda_scope_pop(g);
    }
    return CODA_OK;
}
static coda_status no_name(coda_graph *g) { return input(g, NULL, 2, 2), 0; }
static coda_status hyphen(coda_graph *g) { return input(g, "my-input", 2, 2), 0; }
static coda_status output_is_input(coda_graph *g) { return coda_output(g, "x", coda_relu(g, x16(g))), 0; }
static coda_status batch_of_minus_1(coda_graph *g) { return input(g, "x", -1, 64), 0; }
static coda_status no_value(coda_graph *g)
{
    coda_value forgotten = CODA_NONE;
    return coda_matmul(g, x16(g), forgotten), 0;
}
static coda_status other_graph(coda_graph *g)
{
    coda_graph *other = coda_graph_new();
    coda_value v = x16(other);
    for (int i = 0; i < 5; i++) v = coda_relu(other, v);
    coda_add(g, x16(g), v);
    coda_graph_free(other);
    return CODA_OK;
}
static coda_status no_graph(coda_graph *g)
{
    (void)g;
    return coda_relu(NULL, (coda_value){1}).id ? CODA_OK : CODA_E_INVALID;
}
static coda_status apply_swish(coda_graph *g)
{
    return coda_apply(g, "swish", (coda_value[]){x16(g)}, 1, NULL), 0;
}
static coda_status apply_softmax(coda_graph *g)
{
    return coda_apply(g, "F.softmax", (coda_value[]){x16(g)}, 1, NULL), 0;
}
static coda_status apply_one_of_two(coda_graph *g)
{
    return coda_apply(g, "mul", (coda_value[]){x16(g)}, 1, NULL), 0;
}
static coda_status reduce_avg(coda_graph *g) { return coda_reduce(g, "avg", x16(g), CODA_NONE), 0; }
static coda_status two_symbols(coda_graph *g)
{
    coda_dim t = coda_symbol(g, "T", 1, 64, 1), s = coda_symbol(g, "S", 1, 64, 1);
    return coda_add(g, input(g, "a", t, 8), input(g, "b", s, 8)), 0;
}
static coda_status symbolic_columns(coda_graph *g)
{
    coda_dim t = coda_symbol(g, "T", 1, 64, 1);
    return coda_softmax(g, input(g, "scores", 8, t)), 0;
}
static coda_status top_100(coda_graph *g)
{
    coda_value best;
    return coda_top_k(g, input(g, "logits", 2, 1000), 100, &best, NULL), 0;
}

/* ---- Plans and runs ---- */

static void *workspace_of(const coda_plan *p)
{
    size_t bytes = coda_plan_workspace(p);
    return workspace = bytes ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
}

static _Alignas(256) char memory[5][4096];

static coda_status no_output(coda_graph *g)
{
    coda_plan *p;
    coda_relu(g, x16(g));
    return coda_compile(&p, g, NULL);
}
static coda_status no_gpu(coda_graph *g)
{
    coda_plan *p;
    setenv("CODA_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    coda_output(g, "y", coda_relu(g, x16(g)));
    return coda_compile(&p, g, NULL) == CODA_E_DEVICE ? CODA_E_INVALID : CODA_OK;
}
static coda_status no_reference(coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_map_def def = CODA_MAP_DEF_INIT;
    opt.device = CODA_DEVICE_CPU;
    def.name = "cube", def.source = "DEV static float apply(float x) { return x * x * x; }";
    coda_define_map(g, &def);
    coda_output(g, "y", coda_apply(g, "cube", (coda_value[]){x16(g)}, 1, NULL));
    ck_assert_msg(!coda_compile(&plan, g, &opt), "%s", coda_error());
    void *args[] = {memory[0], memory[1]};
    return coda_run(plan, args, NULL, workspace_of(plan), NULL) == CODA_E_UNSUPPORTED ? CODA_E_INVALID
                                                                                      : CODA_OK;
}
static coda_status compile_after_mistake(coda_graph *g)
{
    coda_plan *p;
    coda_scope_push(g, "block.3");
    coda_value y = coda_matmul(g, x16(g), weight(g, "w", 64, 32));
    coda_output(g, "y", coda_relu(g, y));
    return coda_compile(&p, g, NULL);
}
static coda_status before_prepare(coda_graph *g)
{
    coda_plan *p = product(g, CODA_FOLD_COPY);
    void *args[] = {memory[0], memory[1], memory[2], memory[3]};
    return coda_run(p, args, NULL, workspace_of(p), NULL);
}
static coda_status never_prepared(coda_graph *g)
{
    coda_plan *p = product(g, CODA_FOLD_COPY);
    void *args[] = {memory[0], memory[1], memory[2], memory[3]};
    ck_assert_uint_le(coda_plan_prepared(p), sizeof memory[4]);
    return coda_run(p, args, memory[4], workspace_of(p), NULL);
}
static coda_status misaligned(coda_graph *g)
{
    coda_plan *p = product(g, CODA_FOLD_NONE);
    void *args[] = {memory[0], memory[1] + 2, memory[2], memory[3]};
    return coda_run(p, args, NULL, workspace_of(p), NULL);
}
static coda_status one_for_two(coda_graph *g)
{
    coda_plan *p = product(g, CODA_FOLD_NONE);
    void *args[] = {memory[0], memory[1], memory[2], memory[0]};
    return coda_run(p, args, NULL, workspace_of(p), NULL);
}
static coda_status bind_weights(coda_graph *g)
{
    void *args[4];
    char byte;
    coda_binding list[] = {{"x", &byte, 0}, {"weight", &byte, 0}, {"gian", &byte, 0}, {"y", &byte, 0}};
    list[1].name = "w";
    return coda_bind(args, product(g, CODA_FOLD_NONE), list, 4, NULL);
}
static coda_status bind_three_of_four(coda_graph *g)
{
    void *args[4];
    char byte;
    coda_binding list[] = {{"x", &byte, 0}, {"w", &byte, 0}, {"y", &byte, 0}};
    return coda_bind(args, product(g, CODA_FOLD_NONE), list, 3, NULL);
}
static coda_status bind_short(coda_graph *g)
{
    void *args[4];
    char byte;
    coda_binding list[] = {{"x", &byte, 4 * 8 * 4}, {"w", &byte, 16 * 8 * 2}};
    return coda_bind(args, product(g, CODA_FOLD_NONE), list, 2, NULL);
}
static coda_status find_output(coda_graph *g)
{
    return coda_plan_find(product(g, CODA_FOLD_NONE), "gains") < 0 ? CODA_E_INVALID : CODA_OK;
}
static coda_status run_with_symbols(coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    coda_dim t = coda_symbol(g, "T", 1, 64, 1);
    coda_output(g, "y", coda_relu(g, input(g, "x", t, 8)));
    ck_assert_msg(!coda_compile(&plan, g, &opt), "%s", coda_error());
    return coda_run(plan, (void *[]){NULL, NULL}, NULL, NULL, NULL);
}

/* ---- The list ---- */

enum { MOST_FRAGMENTS = 6 };

static const struct {
    const char *title;
    guess *call;      /* in C, or ... */
    const char *text; /* ... a graph's text */
    const char *fragment[MOST_FRAGMENTS + 1];
} guesses[] = {
#define CALL(name, title, ...) {title, name, NULL, {__VA_ARGS__}},
#define TEXT(text, title, ...) {title, NULL, text, {__VA_ARGS__}},
#include "guesses.def"
#undef TEXT
#undef CALL
};

static coda_status make(int i)
{
    coda_graph *g = NULL;
    if (guesses[i].text) return coda_graph_parse(&g, guesses[i].text);
    g = coda_graph_new();
    coda_status s = guesses[i].call(g);
    if (s == CODA_OK) s = coda_graph_status(g);
    coda_plan_free(plan);
    coda_graph_free(g);
    free(workspace);
    plan = NULL, workspace = NULL;
    return s;
}

/* What is written to standard output and error meanwhile goes to the file. */
static coda_status make_watched(int i, FILE *file)
{
    int own[] = {dup(1), dup(2)};
    fflush(NULL);
    dup2(fileno(file), 1), dup2(fileno(file), 2);
    coda_status s = make(i);
    fflush(NULL);
    for (int k = 0; k < 2; k++) dup2(own[k], k + 1), close(own[k]);
    return s;
}

START_TEST(is_answered)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    coda_status s = make_watched(_i, file);
    const char *line = coda_error();
    ck_assert_msg(s == CODA_E_INVALID, "%s: status %d, %s", guesses[_i].title, (int)s, line);
    ck_assert_msg(guesses[_i].fragment[0] != NULL, "%s: nothing is expected", guesses[_i].title);
    for (int k = 0; guesses[_i].fragment[k]; k++)
        ck_assert_msg(strstr(line, guesses[_i].fragment[k]), "%s: `%s` is not in: %s", guesses[_i].title,
                      guesses[_i].fragment[k], line);
    ck_assert_msg(!strchr(line, '\n') && strlen(line) < 600, "%s: %s", guesses[_i].title, line);
    ck_assert_msg(lseek(fileno(file), 0, SEEK_END) == 0, "%s: the library printed", guesses[_i].title);
    fclose(file);
    if (getenv("CODA_TEST_VERBOSE")) printf("%-40s %s\n", guesses[_i].title, line);
}
END_TEST

START_TEST(are_enough) { ck_assert_int_ge(ARRAY_SIZE(guesses), 50); }
END_TEST

TESTS(guesses, EACH(is_answered, ARRAY_SIZE(guesses)), ONE(are_enough));
