/*
 * families.c -- which graph a model_type has.
 */
#include <string.h>

#include "build.h"

static const struct family families[] = {
    {.name = "llama", .graph = family_llama, .cuts = true},
    {.name = "mistral", .graph = family_llama, .cuts = true},
    {.name = "qwen2", .graph = family_llama, .cuts = true},
    {.name = "qwen3", .graph = family_llama, .cuts = true},
    {.name = "phi3", .graph = family_llama, .cuts = true},
    {.name = "gemma", .graph = family_gemma, .cuts = true},
    {.name = "gemma2", .graph = family_gemma, .cuts = true},
    {.name = "gemma3_text", .graph = family_gemma, .cuts = true},
    {.name = "gemma3_text",
     .graph = family_gemma_encoder,
     .encoder = true,
     .bidirectional = true,
     .cuts = true},
    {.name = "mamba", .graph = family_mamba},
    {.name = "mamba2", .graph = family_mamba},
    {.name = "qwen3_5_text", .graph = family_qwen35},
    {.name = "nemotron_h", .graph = family_nemotron},
    {.name = "granitemoehybrid", .graph = family_granite},
    {.name = "falcon_h1", .graph = family_falcon},
    {.name = "gpt2", .graph = family_gpt2, .cuts = true},
    {.name = "bert", .graph = family_bert, .encoder = true, .cuts = true},
    {.name = "vit", .graph = family_vit, .encoder = true, .images = true, .cuts = true},
    {.name = "siglip_vision_model", .graph = family_siglip, .encoder = true, .images = true, .cuts = true},
};

const struct family *family_find(const struct config *c, struct fault *f)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].name, c->family) && families[i].bidirectional == c->bidirectional)
            return &families[i];
    fault_set(f, "config: family %s%s is not supported", c->family,
              c->bidirectional ? " with attention in both directions" : "");
    return NULL;
}
