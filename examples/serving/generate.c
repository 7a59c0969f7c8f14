/*
 * generate.c -- continues a prompt by a decoder's files: LLaMA, Mistral, Qwen, Gemma, Phi-3, GPT-2.
 *
 *     generate [OPTION]... MODEL PROMPT
 *
 *     --cpu, --gpu              where; a GPU if there is one
 *     --dtype f32|f16|bf16      of weights and activations
 *     --context N, --tokens N   of the caches; to write, 128 without it
 *     --chat                    PROMPT is a message to a model that was trained on chats
 *     --ids                     prompt and answer are tokens as numbers
 *     --temperature X           draws tokens; without it each is the likeliest
 *     --top-k N, --top-p X      of the N likeliest alone; of those that make up X
 *     --seed N                  equal seeds draw equal texts
 *     --logprobs                a line for each token: id, log of its probability, text
 *     --burst N                 steps of a CUDA graph, 16 without it; the CPU device takes one at a time
 *     --bandwidth X             of the device's memory in GB/s, which otherwise a copy tells
 *     --times                   from the program's start to the first token, part by part; steps
 *     --plan                    what the plans need, instead of a text; PROMPT may be left out
 *     --bundle FILE             writes all kernels that a text with these options may want, instead of a
 *                               text: no NVRTC is needed then where CODA_BUNDLES names the file
 *     --random                  MODEL is a config.json, or its folder: weights are random by the seed, tokens
 *                               are numbers, no token ends the text; PROMPT is 1 if it is left out
 *     --adapter FOLDER          an adapter of PEFT's, of low rank, beside MODEL
 *     --ranks N                 shares the model out over N GPUs, or threads of the CPU device
 *     --weights FORMAT          of random weights: fp8, int8, a word of coda_pack_format_find, q4_k_m, q5_k_m
 *
 * The prompt goes through at once. Then a step makes a token, over caches of keys and values, until one ends
 * the text, or N tokens, or the end of the context. Tokens are chosen on the device, the likeliest or drawn,
 * and the host only prints them, but for the first one that is drawn; --logprobs without a temperature reads
 * the logits of each step. MODEL is a
 * folder with config.json and model.safetensors, or a file of GGUF.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"
#include "options.h"
#include "page.h"
#include "progress.h"
#include "speed.h"
#include "standard.h"
#include "text.h"
#include "writer.h"

struct answer {
    bool quiet; /* of another rank than the first, which does the same, and says nothing */
    struct model *m;
    struct text *t; /* of all ranks */
    const struct options *o;
    int made;      /* tokens, the prompt's next among them */
    double bytes;  /* that the steps had to read */
    double writes; /* seconds of the steps */
    int steps;
    double first; /* seconds of the first burst, of so many steps */
    int first_steps;
    struct times *times; /* until the first token */
    struct fault *f;
};

static struct progress working;

/* What takes long until it is said that it has ended: it may wait for kernels. */
static void works(bool quiet, const char *what, const char *of)
{
    if (quiet) return;
    progress_begin(&working, "%s %s", what, of);
    progress_kernels(&working, NULL, 0);
}

static void worked(bool quiet)
{
    if (!quiet) progress_end(&working);
}

/* Prints a token; false where the text ends, before it or with it. */
static bool print(struct answer *a, int32_t id, double logprob)
{
    bool ends = config_is_end(&a->m->config, id) || text_ends(a->t, id);
    if (ends && !a->o->open.random) return false;
    if (a->quiet) return ++a->made < a->o->tokens;
    if (a->o->logprobs) printf("%d\t%.6f\t", id, logprob), text_print_quoted(a->t, id), puts("");
    else text_print(a->t, id);
    return ++a->made < a->o->tokens && !ferror(stdout);
}

static void count(struct answer *a, int steps, double began)
{
    int first = a->m->length - steps;
    double took = times_now() - began;
    if (!a->steps) a->first = took, a->first_steps = steps;
    a->writes += took;
    a->steps += steps;
    for (int i = 1; i <= steps; i++) a->bytes += speed_bytes(a->m, first + i);
}

/* ---- By the host ---- */

/* By the last row's logits, for which `values` has room. */
static bool choose(struct answer *a, float *values, struct sampled *s)
{
    struct logits l = {.value = values, .n = a->m->config.vocabulary, .log_sum = NAN};
    return model_logits(a->m, values, 1, a->f) &&
           sample(&a->o->sampling, &l, 0, (uint64_t)a->m->length, s, a->f);
}

static bool choose_all(struct answer *a, float *values)
{
    struct sampled s;
    int32_t best;
    bool good;
    while ((good = choose(a, values, &s))) {
        if (!print(a, s.id, s.logprob) || a->m->length == a->m->opt.context) break;
        double began = times_now();
        if (!(good = model_decode(a->m, &s.id, 1, &best, a->f))) break;
        count(a, 1, began);
    }
    return good;
}

/* ---- By the device ---- */

/* Room for tokens, and for what is known of them. */
struct burst {
    int32_t *text;
    float *logprobs;
};

/* The CPU device has no graph of several steps, and may take long for one: each token is printed at once. */
static int burst_of(const struct answer *a) { return a->m->device.on_gpu ? a->o->burst : 1; }

static bool write_on(struct answer *a, struct writer *w, int32_t next, const struct burst *b)
{
    bool good = true, more = true;
    while (more && a->m->length < a->m->opt.context) {
        int left = a->m->opt.context - a->m->length, wanted = a->o->tokens - a->made;
        int n = burst_of(a) < left ? burst_of(a) : left;
        double began = times_now();
        n = n < wanted ? n : wanted;
        if (!(good = writer_write(w, next, n, b->text, b->logprobs, a->f))) break;
        count(a, n, began);
        next = b->text[n - 1];
        for (int i = 0; more && i < n; i++) more = print(a, b->text[i], (double)b->logprobs[i]);
    }
    return good;
}

static bool write_bursts(struct answer *a, const struct sampled *first)
{
    works(a->quiet, "planning", "the steps");
    struct writer *w = writer_open(a->m, burst_of(a), &a->o->sampling, a->f);
    worked(a->quiet);
    size_t n = (size_t)burst_of(a);
    struct burst b = {calloc(n, sizeof *b.text), calloc(n, sizeof *b.logprobs)};
    bool good = w && ((b.text && b.logprobs) || fault_set(a->f, "out of memory"));
    if (good && print(a, first->id, first->logprob)) good = write_on(a, w, first->id, &b);
    free(b.text);
    free(b.logprobs);
    writer_close(w);
    return good;
}

/* ---- The whole ---- */

static void report(const struct answer *a, int prompt, double took)
{
    double bandwidth = a->o->bandwidth > 0 ? a->o->bandwidth : speed_copy(&a->m->device);
    double rate = a->writes > 0 ? a->bytes / a->writes : 0;
    fprintf(stderr, "generate: the prompt's %d tokens in %.3f s, then %d steps in %.3f s", prompt, took,
            a->steps, a->writes);
    if (rate > 0)
        fprintf(stderr, ", %.1f tokens/s: %.4g MB each, %.4g GB/s", a->steps / a->writes,
                a->bytes / a->steps / 1e6, rate / 1e9);
    if (rate > 0 && bandwidth > 0)
        fprintf(stderr, ", %.1f %% of the %.4g GB/s %s", 100 * rate / bandwidth, bandwidth / 1e9,
                a->o->bandwidth > 0 ? "given" : "of a copy");
    fputs("\n", stderr);
    if (a->o->times && a->steps > a->first_steps)
        fprintf(stderr, "generate: the first %d steps took %.2f ms each, the others %.2f\n", a->first_steps,
                1e3 * a->first / a->first_steps, 1e3 * (a->writes - a->first) / (a->steps - a->first_steps));
}

/* Of tokens that are not drawn the host has the logprobs. */
static bool write_answer(struct answer *a, int32_t likeliest)
{
    bool drawn = a->o->sampling.temperature > 0;
    struct sampled first = {.id = likeliest};
    if (!drawn && !a->o->logprobs) return write_bursts(a, &first);
    float *values = malloc(sizeof *values * (size_t)a->m->config.vocabulary);
    bool good = values || fault_set(a->f, "out of memory");
    if (good) good = drawn ? choose(a, values, &first) && write_bursts(a, &first) : choose_all(a, values);
    free(values);
    return good;
}

static bool generate(struct answer *a, const int32_t *prompt, int n)
{
    int32_t next;
    double began = times_now();
    works(a->quiet, "reading", "the prompt");
    bool read = model_decode(a->m, prompt, n, &next, a->f);
    worked(a->quiet);
    if (!read || a->quiet) return read && write_answer(a, next);
    double took = times_now() - began;
    times_end(a->times, "prompt");
    if (a->o->times) times_print(stderr, "generate: the first token", a->times);
    bool good = write_answer(a, next);
    if (!a->o->logprobs) text_print_end(a->t);
    if (good) report(a, n, took);
    return good;
}

enum { WAYS = 3 };

/* The steps of every way to choose a token. */
static bool open_ways(struct model *m, struct writer **w, struct fault *f)
{
    const struct sampling how[WAYS] = {
        {.top_p = 1}, {.temperature = 1, .top_p = 1}, {.temperature = 1, .top_p = 0.5}};
    for (int i = 0; i < WAYS; i++)
        if (!(w[i] = writer_open(m, 1, &how[i], f))) return false;
    return true;
}

static bool write_bundle(struct model *m, const char *path, struct fault *f)
{
    struct writer *w[WAYS] = {NULL};
    const coda_plan *plans[1 + WAYS] = {m->plan};
    coda_export_options o = CODA_EXPORT_OPTIONS_INIT;
    coda_bundle_report r = CODA_BUNDLE_REPORT_INIT;
    works(false, "kernels for", path);
    bool good = open_ways(m, w, f);
    for (int i = 0; good && i < WAYS; i++) plans[1 + i] = writer_plan(w[i]);
    o.plans = plans;
    o.plan_count = 1 + WAYS;
    good = good && (coda_cache_export(NULL, path, &o, &r) == CODA_OK || fault_set(f, "%s", coda_error()));
    progress_end(&working);
    if (good)
        fprintf(stderr, "generate: %lld kernels, %lld bytes in %s\n", (long long)r.entries,
                (long long)r.bytes, path);
    for (int i = 0; i < WAYS; i++) writer_close(w[i]);
    return good;
}

static bool print_plans(struct model *m, const struct options *o, struct times *times, struct fault *f)
{
    struct writer *w = writer_open(m, 1, &o->sampling, f);
    if (!w) return false;
    times_end(times, "step");
    if (o->times) times_print(stderr, "generate: the plans", times);
    page_print(stdout, "plan of a prompt", m->plan, &m->weights);
    page_print(stdout, "plan of a step, which shares the weights and caches", writer_plan(w), &m->weights);
    writer_close(w);
    return true;
}

/* What the first rank tells the others. */
struct prompt {
    struct text *text; /* which nobody changes but the first; or NULL */
    const int32_t *ids;
    int count;
};

/* What another rank than the first does: all of it, without a word. */
static bool follow(struct rank *one, void *context, struct fault *f)
{
    struct options o = *(const struct options *)context;
    o.open.group = one->group;
    o.open.progress = NULL;
    struct model *m = model_open(o.model, &o.open, f);
    const struct prompt *p = m ? ranks_hear(one, f) : NULL;
    struct answer a = {.quiet = true, .m = m, .o = &o, .f = f};
    if (p) a.t = p->text;
    bool good = p && generate(&a, p->ids, p->count);
    model_close(m);
    return good;
}

/* The options of each rank; its group of the first one's. NULL, and no fault: there is one rank. */
static struct ranks *begin(struct options *o, struct options *each, struct fault *f)
{
    if (o->open.ranks <= 1 || o->open.only_plan) return NULL;
    o->open.device = ranks_device(o->open.device);
    *each = *o;
    return ranks_begin(o->open.ranks, follow, each, &o->open.group, f);
}

int main(int argc, char **argv)
{
    struct options o = {
        .usage =
            "usage: generate [OPTION]... MODEL PROMPT\n"
            "MODEL is a folder with config.json and model.safetensors, or a GGUF file. "
            "examples/serving/stories260K/stories260K.gguf\n"
            "is one of 1 MB.\n"
            "  --cpu, --gpu              where; a GPU if there is one\n"
            "  --dtype f32|f16|bf16      of weights and activations; on a GPU the files', or f16 for f32\n"
            "  --context N               tokens of the caches\n"
            "  --tokens N                to write; 128\n"
            "  --chat                    PROMPT is a message to a model that was trained on chats\n"
            "  --ids                     prompt and answer are tokens as numbers\n"
            "  --temperature X           draws tokens; without it each is the likeliest\n"
            "  --top-k N, --top-p X      of the N likeliest alone; of those that make up X\n"
            "  --seed N                  equal seeds draw equal texts\n"
            "  --logprobs                a line for each token: id, log of its probability, text\n"
            "  --burst N                 steps of a CUDA graph; 16\n"
            "  --bandwidth X             of the device's memory in GB/s; what a copy tells\n"
            "  --times                   from the program's start to the first token, part by part; steps\n"
            "  --plan                    what the plans need, instead of a text\n"
            "  --bundle FILE             writes all kernels that such a text may want, instead of a text\n"
            "  --adapter FOLDER          an adapter of low rank, as PEFT writes it, beside MODEL\n"
            "  --ranks N                 shares the model out over N GPUs, or threads of the CPU device\n"
            "  --random                  MODEL is a config.json, or its folder: its weights are random\n"
            "  --weights FORMAT          of the random ones: fp8, int8, q4_k_m, int4_g128_bf16 and so on",
        .tokens = 128};
    struct options each;
    struct fault f = {{0}};
    struct times times;
    struct text *t = NULL;
    int32_t *prompt = NULL;
    int n = 0;
    standard_open();
    times_start(&times);
    if (options_read(&o, argc, argv) && !(o.prompt || o.plan || o.bundle || o.open.random))
        fault_set(&o.wrong, "there is no PROMPT");
    if (*o.wrong.text) return fprintf(stderr, "generate: %s; see generate --help\n", o.wrong.text), 2;
    if (!o.model) return 0;
    o.open.only_plan = o.plan || o.bundle;
    works(false, "loading", o.model);
    o.open.progress = &working;
    struct ranks *others = begin(&o, &each, &f);
    bool good = others || !*f.text;
    struct model *m = good ? model_open(o.model, &o.open, &f) : NULL;
    progress_end(&working);
    if (m) times_add(&times, &m->times);
    good = m && (o.ids || o.open.only_plan || (t = text_open(o.model, m->files.config, &f)) != NULL);
    if (good) fprintf(stderr, "generate: %s on %s\n", m->config.family, device_name(&m->device));
    struct answer a = {.m = m, .t = t, .o = &o, .times = &times, .f = &f};
    times_end(&times, "tokenizer");
    if (good && o.plan) good = print_plans(m, &o, &times, &f);
    if (good && o.bundle) good = write_bundle(m, o.bundle, &f);
    if (good && !o.open.only_plan)
        good = (n = (o.chat ? text_message : text_tokens)(t, o.prompt ? o.prompt : "1", &prompt, &f)) >= 0 &&
               (o.chat || text_after(t, prompt, n, &f));
    struct prompt told = {t, prompt, n};
    if (good && others) ranks_tell(others, &told);
    if (good && !o.open.only_plan) good = generate(&a, prompt, n);
    good = ranks_end(others, good && standard_written(&f), &f);
    free(prompt);
    if (!good) fprintf(stderr, "generate: %s\n", f.text);
    text_close(t);
    model_close(m);
    coda_group_free(o.open.group);
    return !good;
}
