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
 *     --burst N                 steps of a CUDA graph, 16 without it
 *     --bandwidth X             of the device's memory in GB/s, which otherwise a copy tells
 *     --plan                    what the plans need, instead of a text; PROMPT may be left out
 *
 * The prompt goes through at once. Then a step makes a token, over caches of keys and values, until one ends
 * the text, or N tokens, or the end of the context. The likeliest tokens are chosen on the device, and the
 * host only prints them; to draw, it reads the logits of each step, or of the top_k likeliest. MODEL is a
 * folder with config.json and model.safetensors, or a file of GGUF.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model.h"
#include "options.h"
#include "page.h"
#include "speed.h"
#include "text.h"
#include "writer.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct answer {
    struct model *m;
    struct text *t;
    const struct options *o;
    int made;      /* tokens, the prompt's next among them */
    double bytes;  /* that the steps had to read */
    double writes; /* seconds of the steps */
    int steps;
    struct fault *f;
};

/* Prints a token; false where the text ends, before it or with it. */
static bool print(struct answer *a, int32_t id, double logprob)
{
    if (config_is_end(&a->m->config, id) || text_ends(a->t, id)) return false;
    if (a->o->logprobs) printf("%d\t%.6f\t", id, logprob), text_print_quoted(a->t, id), puts("");
    else text_print(a->t, id);
    return ++a->made < a->o->tokens;
}

static void count(struct answer *a, int steps, double began)
{
    int first = a->m->length - steps;
    a->writes += seconds() - began;
    a->steps += steps;
    for (int i = 1; i <= steps; i++) a->bytes += speed_bytes(a->m, first + i);
}

/* ---- The likeliest tokens, by the device ---- */

static bool write_bursts(struct answer *a, struct writer *w, int32_t next)
{
    int32_t *text = malloc(sizeof *text * (size_t)a->o->burst);
    bool good = text || fault_set(a->f, "out of memory"), more = good && print(a, next, 0);
    while (more && a->m->length < a->m->opt.context) {
        int left = a->m->opt.context - a->m->length, wanted = a->o->tokens - a->made;
        int n = a->o->burst < left ? a->o->burst : left;
        double began = seconds();
        n = n < wanted ? n : wanted;
        if (!(good = writer_write(w, next, n, text, a->f))) break;
        count(a, n, began);
        next = text[n - 1];
        for (int i = 0; more && i < n; i++) more = print(a, text[i], 0);
    }
    free(text);
    return good;
}

/* ---- Drawn by the host ---- */

/* The last row's logits, or those of the likeliest. `values` has room for a row of them. */
static bool read_logits(struct answer *a, float *values, int32_t *ids, struct logits *l)
{
    float log_sum = NAN;
    int top = a->m->opt.top, wide = a->m->config.vocabulary;
    *l = (struct logits){.value = values, .id = top ? ids : NULL, .n = top ? top : wide, .log_sum = NAN};
    if (!top) return model_logits(a->m, values, 1, a->f);
    bool good = model_top(a->m, values, ids, &log_sum, a->f);
    l->log_sum = log_sum;
    return good;
}

static bool draw_all(struct answer *a)
{
    float *values = malloc(sizeof *values * (size_t)a->m->config.vocabulary);
    int32_t ids[MOST_TOP], best;
    struct sampled s;
    struct logits l;
    bool good = values || fault_set(a->f, "out of memory");
    while (good && (good = read_logits(a, values, ids, &l) &&
                           sample(&a->o->sampling, &l, 0, (uint64_t)a->m->length, &s, a->f))) {
        if (!print(a, s.id, s.logprob) || a->m->length == a->m->opt.context) break;
        double began = seconds();
        if (!(good = model_decode(a->m, &s.id, 1, &best, a->f))) break;
        count(a, 1, began);
    }
    free(values);
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
}

static bool drawn(const struct options *o) { return o->sampling.temperature > 0 || o->logprobs; }

static bool generate(struct answer *a, const int32_t *prompt, int n)
{
    int32_t next;
    struct writer *w = drawn(a->o) ? NULL : writer_open(a->m, a->o->burst, a->f);
    if (!w && !drawn(a->o)) return false;
    double began = seconds();
    bool good = model_decode(a->m, prompt, n, &next, a->f);
    double took = seconds() - began;
    good = good && (w ? write_bursts(a, w, next) : draw_all(a));
    if (!a->o->logprobs) text_print_end(a->t);
    if (good) report(a, n, took);
    writer_close(w);
    return good;
}

static bool print_plans(struct model *m, struct fault *f)
{
    struct writer *w = writer_open(m, 1, f);
    if (!w) return false;
    page_print(stdout, "plan of a prompt", m->plan);
    page_print(stdout, "plan of a step, which shares the weights and caches", writer_plan(w));
    writer_close(w);
    return true;
}

int main(int argc, char **argv)
{
    struct options o = {
        .usage = "usage: generate [--cpu | --gpu] [--dtype f32|f16|bf16] [--context N] [--tokens N]\n"
                 "                [--ids | --chat] [--temperature X] [--top-k N] [--top-p X] [--seed N]\n"
                 "                [--logprobs] [--burst N] [--bandwidth X] [--plan] MODEL PROMPT",
        .tokens = 128};
    struct fault f = {{0}};
    struct text *t = NULL;
    int32_t *prompt = NULL;
    int n = 0;
    if (!options_read(&o, argc, argv) || !(o.prompt || o.plan)) return fprintf(stderr, "%s\n", o.usage), 2;
    o.open.only_plan = o.plan;
    if (o.sampling.temperature > 0 && o.sampling.top_k <= MOST_TOP) o.open.top = o.sampling.top_k;
    struct model *m = model_open(o.model, &o.open, &f);
    bool good = m && (o.ids || o.plan || (t = text_open(o.model, m->files.config, &f)) != NULL);
    if (good) fprintf(stderr, "generate: %s on %s\n", m->config.family, device_name(&m->device));
    struct answer a = {.m = m, .t = t, .o = &o, .f = &f};
    if (good && o.plan) good = print_plans(m, &f);
    else if (good)
        good = (n = (o.chat ? text_message : text_tokens)(t, o.prompt, &prompt, &f)) >= 0 &&
               generate(&a, prompt, n);
    free(prompt);
    if (!good) fprintf(stderr, "generate: %s\n", f.text);
    text_close(t);
    model_close(m);
    return !good;
}
