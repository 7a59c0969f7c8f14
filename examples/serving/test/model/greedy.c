/*
 * greedy.c -- texts of greedy tokens from the caches: what the fp64 evaluator makes of the whole text at once
 * says which token must stand at each place.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model_test.h"
#include "tensor.h"
#include "writer.h"

enum { PROMPT = 5, LONG = 512, BRIEF = 6, CONTEXT_END = 32, BURST = 16, GPT2_LONG = 251, STORIES_LONG = 507 };
static const int32_t any_prompt[PROMPT] = {1, 17, 4, 33, 9};

/* Weights that were trained, beside those of decoder[], which are random. */
static const char stories[] = "stories260K/stories260K.gguf";
static const int32_t once_upon_a_time[PROMPT] = {1, 403, 407, 261, 378};

static const char *name_of(int i) { return i < decoders ? decoder[i] : stories; }
static const int32_t *prompt_of(const char *name) { return name == stories ? once_upon_a_time : any_prompt; }

static const struct place {
    coda_device device;
    coda_dtype dtype;
    const char *text;
    int digits; /* of dtype's significands, in bits */
} on_cpu = {CODA_DEVICE_CPU, CODA_F32, "f32 on the CPU device", 24},
  on_gpu[] = {{CODA_DEVICE_GPU, CODA_F16, "f16 on the GPU", 11},
              {CODA_DEVICE_GPU, CODA_F32, "f32 on the GPU", 24},
              {CODA_DEVICE_GPU, CODA_BF16, "bf16 on the GPU", 8}};

/* Caches hold what no token may notice. */
static struct model *opened(const char *tiny, const char *name, const struct place *p, int rows, int context)
{
    char path[512];
    struct fault f = {{0}};
    struct model_options o = {.device = p->device, .dtype = p->dtype, .every_row = true, .rows = rows};
    if (name == stories) snprintf(path, sizeof path, "%s", name);
    else snprintf(path, sizeof path, "%s/%s", tiny, name);
    o.context = context;
    struct model *m = model_open(path, &o, &f);
    CHECK(m != NULL, "%s, %s: %s", name, p->text, f.text);
    if (m && !m->device.on_gpu && m->bytes[CODA_ARG_STATE])
        memset(m->memory[CODA_ARG_STATE], 0xff, m->bytes[CODA_ARG_STATE]);
    return m;
}

/* ---- The whole text in fp64 ---- */

/* Host memory for an argument of the evaluator: the text, the model's own weights, caches. */
static void *argument(struct model *m, const coda_arg_info *info, const int32_t *text, int n)
{
    if (info->kind == CODA_ARG_OUTPUT) return host_scratch((size_t)element_count(info) * sizeof(double));
    void *p = host_scratch(info->bytes);
    if (!p || info->kind == CODA_ARG_STATE) return memset(p, 0, info->bytes);
    if (info->kind == CODA_ARG_WEIGHT) {
        int i = coda_plan_find(m->plan, info->name);
        CHECK(i >= 0 && device_read(&m->device, p, m->args[i], info->bytes), "%s: no weight", info->name);
        return p;
    }
    if (!strcmp(info->name, "lengths")) *(int32_t *)p = n;
    else if (!strcmp(info->name, "starts")) ((int32_t *)p)[0] = 0, ((int32_t *)p)[1] = n;
    else
        for (int i = 0; i < n; i++) ((int32_t *)p)[i] = strcmp(info->name, "ids") ? i : text[i];
    return p;
}

/* Logits behind each of the text's n tokens: [n, vocabulary]. NULL, and a failed check. */
static double *evaluated(struct model *m, const int32_t *text, int n)
{
    struct weights weights = {0};
    struct fault f = {{0}};
    coda_arg_info info = CODA_ARG_INFO_INIT;
    coda_graph *any = decoder_graph(m, &weights, &f), *g = NULL;
    bool good = any && coda_graph_bind(&g, any, (int64_t[]){n}, 1) == CODA_OK;
    int count = good ? coda_graph_args(g) : 0, logits = -1;
    void **args = calloc((size_t)count + 1, sizeof *args);
    for (int i = 0; i < count; i++) {
        coda_graph_arg(g, i, &info);
        args[i] = argument(m, &info, text, n);
        if (!strcmp(info.name, "logits")) logits = i;
    }
    good = good && logits >= 0 && coda_evaluate(g, args) == CODA_OK;
    CHECK(good, "%s: %s %s", m->config.family, f.text, coda_error());
    double *all = good ? args[logits] : NULL;
    for (int i = 0; i < count; i++)
        if (args[i] != all) free(args[i]);
    free(args);
    coda_graph_free(g);
    coda_graph_free(any);
    weights_free(&weights);
    return all;
}

/* The best of a row, if it is more than 4 units in the last place of a number of so many digits ahead of the
 * next one; else -1: a rounding may decide. */
static int decided(const double *row, int n, int digits)
{
    int best = 0;
    double next = -INFINITY;
    for (int i = 1; i < n; i++) {
        bool better = row[i] > row[best];
        next = fmax(next, better ? row[best] : row[i]);
        best = better ? i : best;
    }
    double unit = ldexp(1, ilogb(row[best]) + 1 - digits);
    return row[best] - next > 4 * unit ? best : -1;
}

/* ---- From the caches ---- */

/* `tokens` of them behind the prompt, in bursts of steps. */
static bool write_text(struct model *m, const int32_t *prompt, int32_t *text, int tokens, struct fault *f)
{
    struct writer *w = writer_open(m, BURST, NULL, f);
    bool good = w && model_decode(m, prompt, PROMPT, &text[PROMPT], f);
    memcpy(text, prompt, sizeof *prompt * PROMPT);
    for (int at = PROMPT + 1, n; good && at < PROMPT + tokens; at += n) {
        n = PROMPT + tokens - at < BURST ? PROMPT + tokens - at : BURST;
        good = writer_write(w, text[at - 1], n, &text[at], NULL, f);
    }
    writer_close(w);
    return good;
}

static int best_of(const float *row, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++) at = row[i] > row[at] ? i : at;
    return at;
}

/* The same from the prefix, computed anew. */
static bool recompute(struct model *m, const int32_t *text, int n, int32_t *best, struct fault *f)
{
    int wide = m->config.vocabulary, rows = m->opt.rows;
    float *logits = malloc(sizeof *logits * (size_t)rows * (size_t)wide);
    bool good = logits != NULL;
    int32_t next;
    model_rewind(m, 0);
    for (int at = 0, some; good && at < n; at += some) {
        some = n - at < rows ? n - at : rows;
        good = model_decode(m, text + at, some, &next, f) && model_logits(m, logits, some, f);
        for (int i = 0; good && i < some; i++) best[at + i] = best_of(logits + (int64_t)i * wide, wide);
    }
    free(logits);
    return good;
}

static void cached(const char *tiny, const char *name, const struct place *p, int tokens)
{
    int n = PROMPT + tokens, wide, clear = 0;
    struct fault f = {{0}};
    struct model *m = opened(tiny, name, p, n, n);
    int32_t *text = calloc((size_t)n + 1, sizeof *text), *again = calloc((size_t)n + 1, sizeof *again);
    bool ran = m && write_text(m, prompt_of(name), text, tokens, &f) && recompute(m, text, n - 1, again, &f);
    CHECK(ran, "%s, %s: %s", name, p->text, f.text);
    double *logits = ran ? evaluated(m, text, n - 1) : NULL;
    wide = m ? m->config.vocabulary : 0;
    for (int at = PROMPT; logits && at < n; at++) {
        int must = decided(logits + (int64_t)(at - 1) * wide, wide, p->digits);
        clear += must >= 0;
        CHECK(must < 0 || text[at] == must, "%s, %s: token %d is %d from the caches, %d in fp64", name,
              p->text, at, text[at], must);
        CHECK(must < 0 || again[at - 1] == must, "%s, %s: token %d is %d from its prefix, %d in fp64", name,
              p->text, at, again[at - 1], must);
    }
    CHECK(!logits || 2 * clear > tokens, "%s, %s: %d tokens of %d are clear", name, p->text, clear, tokens);
    free(logits);
    free(text);
    free(again);
    model_close(m);
}

/* ---- Steps ---- */

/* The text is the prompt: states cannot go back to it, they have to come to it again. */
static bool prompted(struct model *m, int32_t *next, struct fault *f)
{
    if (m->length > PROMPT && model_rewind(m, PROMPT)) return true;
    model_rewind(m, 0);
    return model_decode(m, any_prompt, PROMPT, next, f);
}

/* Behind the prompt: `token`, and what model_decode writes up to the end of the context. */
static bool decoded(struct model *m, int32_t token, int32_t *text, struct fault *f)
{
    bool ran = true;
    text[0] = token;
    for (int i = 0; ran && m->length < CONTEXT_END; i++) ran = model_decode(m, &text[i], 1, &text[i + 1], f);
    return ran;
}

/* Tokens of steps that keep their token and position in states, in bursts, singly, and up to the end of the
 * context, are those of model_decode; and those of another text that begins where the first one did. */
static void written(const char *tiny, const char *name)
{
    int32_t slow[CONTEXT_END + 1], fast[CONTEXT_END + 1], next;
    struct fault f = {{0}};
    struct model *m = opened(tiny, name, &on_cpu, 16, CONTEXT_END);
    struct writer *w = m ? writer_open(m, 4, NULL, &f) : NULL;
    CHECK(w != NULL, "%s: %s", name, f.text);
    for (int round = 0; w && round < 2; round++) {
        int first = 6 + round;
        bool ran = prompted(m, &next, &f) &&
                   decoded(m, (next + 29 * round) % m->config.vocabulary, slow, &f) && prompted(m, &next, &f);
        ran = ran && writer_write(w, slow[0], first, fast + 1, NULL, &f) &&
              writer_write(w, fast[first], CONTEXT_END - PROMPT - first, fast + 1 + first, NULL, &f);
        CHECK(ran && m->length == CONTEXT_END, "%s: %s", name, f.text);
        for (int i = 1; ran && i <= CONTEXT_END - PROMPT; i++)
            CHECK(fast[i] == slow[i], "%s: text %d, token %d is %d by steps of states, %d step by step", name,
                  round, i, fast[i], slow[i]);
        CHECK(!writer_write(w, 1, 1, fast, NULL, &f), "%s: a token beyond the context", name);
    }
    writer_close(w);
    model_close(m);
}

/* As many as the checkpoint has positions for. */
static int longest(const char *name)
{
    if (name == stories) return STORIES_LONG;
    return strcmp(name, "gpt2") ? LONG : GPT2_LONG;
}

void test_greedy(const char *tiny, const char *scratch)
{
    (void)scratch;
    for (int i = 0; i < decoders; i++) written(tiny, decoder[i]);
    for (int i = 0; i <= decoders; i++) cached(tiny, name_of(i), &on_cpu, longest(name_of(i)));
}

struct apart {
    const char *name;
    const struct place *place;
    pid_t process;
};

/* In a process of its own, so that several compile their kernels at once. */
static void start(struct apart *a, const char *tiny, int tokens)
{
    fflush(NULL);
    a->process = fork();
    if (a->process) return;
    failures = 0;
    cached(tiny, a->name, a->place, tokens);
    exit(failures != 0);
}

static void join(const struct apart *a)
{
    int status = -1;
    bool ended = a->process > 0 && waitpid(a->process, &status, 0) == a->process;
    CHECK(ended && status == 0, "%s, %s: the process ended with %d", a->name, a->place->text, status);
}

/* Of families whose layers others have, too, a short test leaves these out; of the others it draws half. */
static bool is_wanted(const char *name, int most)
{
    for (int i = 0; i <= decoders && most == BRIEF; i++)
        if (!strcmp(name_of(i), name) && !is_drawn(2, i)) return false;
    static const char *const repeated[] = {"gemma3_whole", "qwen3_5_whole", "granite4", "falcon_h1_norm"};
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++)
        if (most == BRIEF && !strcmp(repeated[i], name)) return false;
    return true;
}

/* Each family in each of the first `dtypes` of on_gpu, as many at once as there are processors; as many
 * tokens as a family can, but no more than `most`. */
static void families_on_gpu(const char *tiny, int dtypes, int most)
{
    int cases = (decoders + 1) * dtypes, wide = (int)sysconf(_SC_NPROCESSORS_ONLN);
    struct apart *all = calloc((size_t)cases, sizeof *all);
    wide = wide < 1 ? 1 : wide;
    CHECK(all != NULL, "no memory for %d cases", cases);
    if (!all) return;
    for (int i = 0; i < cases + wide; i++) {
        if (i >= wide && is_wanted(all[i - wide].name, most)) join(&all[i - wide]);
        if (i >= cases) continue;
        all[i] = (struct apart){.name = name_of(i / dtypes), .place = &on_gpu[i % dtypes]};
        int longer = longest(all[i].name);
        if (is_wanted(all[i].name, most)) start(&all[i], tiny, longer < most ? longer : most);
    }
    free(all);
}

/* On the GPU that there is. Nobody asks for them but by name: all dtypes, and whole texts; and what the SM in
 * software has the time for. */
void test_greedy_gpu(const char *tiny, const char *scratch)
{
    (void)scratch;
    families_on_gpu(tiny, sizeof on_gpu / sizeof *on_gpu, LONG);
}

void test_brief_gpu(const char *tiny, const char *scratch)
{
    (void)scratch;
    families_on_gpu(tiny, 1, BRIEF);
}
