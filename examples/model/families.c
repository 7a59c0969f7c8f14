/*
 * families.c -- which graph a model_type has.
 */
#include <string.h>

#include "build.h"

static const struct family families[] = {
    {"bert", family_bert, true},    {"llama", family_llama, false},  {"mistral", family_llama, false},
    {"qwen2", family_llama, false}, {"qwen3", family_llama, false},  {"phi3", family_llama, false},
    {"gemma", family_gemma, false}, {"gemma2", family_gemma, false}, {"gemma3_text", family_gemma, false},
    {"gpt2", family_gpt2, false},
};

const struct family *family_find(const char *name, struct fault *f)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].name, name)) return &families[i];
    fault_set(f, "config: family %s is not supported", name);
    return NULL;
}
