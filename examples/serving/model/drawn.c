/*
 * drawn.c -- how weights lie that no checkpoint has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant.h"

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

/* "q4_k_m", "q5_k_m". */
static bool is_mixture(const char *word) { return !strcmp(word, "q4_k_m") || !strcmp(word, "q5_k_m"); }
static bool is_gguf(const char *word) { return word[0] == 'q' && word[1] >= '0' && word[1] <= '9'; }
static bool is_scaled(const char *word) { return !strcmp(word, "fp8") || !strcmp(word, "int8"); }

bool stored_draws(const char *word)
{
    coda_pack_format p = CODA_PACK_FORMAT_INIT;
    if (strlen(word) >= sizeof((struct quant_config *)NULL)->drawn) return false;
    return is_scaled(word) || is_mixture(word) || coda_pack_format_find(word, &p) == CODA_OK;
}

/* The layer in "model.layers.12.mlp.up_proj"; -1: none. */
static int layer_of(const char *name)
{
    const char *at = strpbrk(name, "0123456789");
    return at && at > name && at[-1] == '.' ? atoi(at) : -1;
}

/* llama.cpp's rule: the first and the last eighth of the layers, and each third one between them. */
static bool has_more_bits(int layer, int layers)
{
    int eighth = layers / 8;
    return layer < eighth || layer >= 7 * eighth || (layer - eighth) % 3 == 2;
}

/* Of a file that is named by the mixture. */
static const char *of_mixture(const char *word, const char *name, int layers)
{
    bool more = strstr(name, "v_proj") || strstr(name, "down_proj");
    if (strstr(name, "lm_head") || (more && has_more_bits(layer_of(name), layers))) return "q6_k";
    return begins(word, "q4") ? "q4_k" : "q5_k";
}

/* As llama.cpp has it: columns that are no blocks of 256 have a format in blocks of 32, or stay as they are:
 * NULL. */
static const char *of_blocks(const char *one, int64_t columns)
{
    if (columns % 256 == 0) return one;
    if (columns % 32) return NULL;
    return !strcmp(one, "q6_k") ? "q8_0" : !strcmp(one, "q5_k") ? "q5_1" : "q5_0";
}

/* Words of a config's rule. */
static void of_rule(const struct quant_rule *r, char *word, size_t size)
{
    const char *number = r->floating ? "e2m1" : r->bits == 4 ? "int4" : "int8";
    if (r->block_rows && r->block_columns == 128) snprintf(word, size, "fp8_block");
    else if (r->bits == 8 && !r->group) snprintf(word, size, r->floating ? "fp8" : "int8");
    else if (r->floating) snprintf(word, size, r->group == 16 ? "nvfp4" : "mxfp4");
    else if (r->group) snprintf(word, size, "%s_g%d_bf16", number, r->group);
    else snprintf(word, size, "%s_row_bf16", number);
}

bool stored_draw(const struct quant_config *q, const char *name, int layers, struct stored_matrix *m,
                 struct fault *f)
{
    char word[sizeof q->drawn];
    bool outside = layer_of(name) < 0;
    snprintf(word, sizeof word, "%s", q->drawn);
    if (!*word && q->rules) of_rule(&q->rule[0], word, sizeof word);
    if (!*word || (outside && !is_gguf(word))) return true;
    const char *one = is_mixture(word) ? of_blocks(of_mixture(word, name, layers), m->columns) : word;
    if (!one) return true;
    m->layout = STORED_SCALED;
    m->dtype = strcmp(word, "int8") ? CODA_F8E4M3 : CODA_I8;
    if (is_scaled(word)) return true;
    m->layout = STORED_GGUF;
    m->format = (coda_pack_format)CODA_PACK_FORMAT_INIT;
    return coda_pack_format_find(one, &m->format) == CODA_OK || fault_set(f, "%s: %s", name, coda_error());
}
