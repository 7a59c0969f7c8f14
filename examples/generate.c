/*
 * generate.c -- continues a prompt by a decoder's files: LLaMA, Mistral, Qwen, Gemma, Phi-3, GPT-2.
 *
 *     generate [--cpu | --gpu] [--dtype f32|f16|bf16] [--context N] [--tokens N] [--ids] MODEL PROMPT
 *
 * The likeliest token each time, until one that ends the text, N tokens, or the end of the context. The
 * prompt goes through at once, then a token at a time, by one plan, over caches of keys and values. MODEL is
 * a folder with config.json and model.safetensors, or a file of GGUF. With --ids prompt and answer are
 * tokens as numbers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model.h"
#include "options.h"
#include "text.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool ends(const struct model *m, int32_t id)
{
    for (int i = 0; i < m->config.end_count; i++)
        if (m->config.ends[i] == id) return true;
    return false;
}

static bool generate(struct model *m, struct text *t, const int32_t *prompt, int n, int tokens,
                     struct fault *f)
{
    int32_t next;
    int made = 0;
    double began = seconds(), first;
    if (!model_decode(m, prompt, n, &next, f)) return false;
    for (first = seconds(); !ends(m, next); made++) {
        text_print(t, next);
        if (made + 1 == tokens || m->length == m->opt.context) break;
        if (!model_decode(m, &next, 1, &next, f)) return false;
    }
    double took = seconds() - first;
    text_print_end(t);
    fprintf(stderr, "generate: the prompt's %d tokens in %.3f s, then %d in %.3f s, %.1f tokens/s\n", n,
            first - began, made, took, made / (took > 0 ? took : 1));
    return true;
}

int main(int argc, char **argv)
{
    struct options o = {
        .usage = "usage: generate [--cpu | --gpu] [--dtype f32|f16|bf16] [--context N] [--tokens N] "
                 "[--ids] MODEL PROMPT",
        .tokens = 128};
    struct fault f = {{0}};
    struct text *t = NULL;
    int32_t *prompt = NULL;
    int n = 0;
    if (!options_read(&o, argc, argv) || !o.prompt) return fprintf(stderr, "%s\n", o.usage), 2;
    struct model *m = model_open(o.model, &o.open, &f);
    bool good = m && (o.ids || (t = text_open(o.model, &f)) != NULL);
    if (good) fprintf(stderr, "generate: %s on %s\n", m->config.family, device_name(&m->device));
    good =
        good && (n = text_tokens(t, o.prompt, &prompt, &f)) >= 0 && generate(m, t, prompt, n, o.tokens, &f);
    if (n >= 0) free(prompt);
    if (!good) fprintf(stderr, "generate: %s\n", f.text);
    text_close(t);
    model_close(m);
    return !good;
}
