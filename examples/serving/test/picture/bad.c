/*
 * bad.c -- folders with one thing changed are refused by a line that names it; and files with some bytes
 * changed are refused, or draw.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "picture_test.h"
#include "tensor.h"

static const char *const part[] = {"model_index.json",
                                   "scheduler/scheduler_config.json",
                                   "transformer/config.json",
                                   "transformer/diffusion_pytorch_model.safetensors",
                                   "vae/config.json",
                                   "text.npy",
                                   "pooled.npy",
                                   "negative.npy",
                                   "negative_pooled.npy",
                                   "noise.npy",
                                   "arguments.json"};
enum { PARTS = sizeof part / sizeof *part, MOST_BYTES = 1 << 20 };

/* NULL if there is none. */
static unsigned char *read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    unsigned char *p = f ? malloc(MOST_BYTES) : NULL;
    *bytes = p ? fread(p, 1, MOST_BYTES, f) : 0;
    if (f) fclose(f);
    return p;
}

static void write_file(const char *path, const void *p, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(p, 1, bytes, f) == bytes;
    if (f) good &= !fclose(f);
    CHECK(good, "%s cannot be written", path);
}

void copy_folder(const char *from, const char *to)
{
    char path[4096];
    static const char *const folders[] = {"", "/scheduler", "/transformer", "/vae"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%.3800s%s", to, folders[i]);
        mkdir(path, 0777);
    }
    for (int i = 0; i < PARTS; i++) {
        size_t bytes;
        snprintf(path, sizeof path, "%.3800s/%s", from, part[i]);
        unsigned char *p = read_file(path, &bytes);
        snprintf(path, sizeof path, "%.3800s/%s", to, part[i]);
        if (p) write_file(path, p, bytes);
        else unlink(path);
        free(p);
    }
}

/* ---- One thing changed ---- */

struct change {
    const char *kind, *file, *old, *new; /* `old` NULL: the file is gone; `new` NULL: it ends there */
    const char *says;
};

/* Of text; in tensors the two are of one length. */
static void change(const char *path, const struct change *c)
{
    size_t bytes, n = strlen(c->old);
    unsigned char *p = read_file(path, &bytes), *at = p ? memmem(p, bytes, c->old, n) : NULL;
    CHECK(at, "%s has no %s", path, c->old);
    if (at && c->new) {
        size_t front = (size_t)(at - p), more = strlen(c->new);
        memmove(at + more, at + n, bytes - front - n);
        memcpy(at, c->new, more);
        bytes = bytes - n + more;
    } else if (at) bytes = (size_t)(at - p);
    if (at) write_file(path, p, bytes);
    free(p);
}

static void refused(const char *folder, const struct picture_options *o, const char *what, const char *says)
{
    struct fault f = {{0}};
    struct picture *p = picture_open(folder, o, &f);
    bool good = p && picture_prepare(p, &f) && picture_draw(p, &f);
    CHECK(!good, "%s: it is drawn", what);
    CHECK(good || strstr(f.text, says), "%s: '%s' does not say '%s'", what, f.text, says);
    CHECK(!strchr(f.text, '\n'), "%s: more than a line", what);
    picture_close(p);
}

static void changed(const char *tiny, const char *scratch, const struct change *c)
{
    char from[4096], to[4096], path[8192], what[512];
    struct tiny t;
    snprintf(from, sizeof from, "%s/%s", tiny, c->kind);
    snprintf(to, sizeof to, "%s/changed", scratch);
    copy_folder(from, to);
    if (!tiny_options(&t, tiny, c->kind)) return;
    snprintf(path, sizeof path, "%s/%s", to, c->file);
    if (c->old) change(path, c);
    else unlink(path);
    snprintf(what, sizeof what, "%s, %s: %s", c->kind, c->file, c->old ? c->old : "gone");
    if (t.o.noise) tiny_options(&t, scratch, "changed");
    t.o.width = t.o.height = 0;
    t.o.noise = NULL;
    refused(to, &t.o, what, c->says);
}

static const struct change changes[] = {
    {"dit", "model_index.json", NULL, NULL, "there is no model_index.json in it; examples/serving/digits"},
    {"dit", "model_index.json", "\"transformer\"", "\"unet\"", "there is no transformer in it"},
    {"dit", "vae/config.json", NULL, NULL, "the index names a vae"},
    {"dit", "vae/config.json", "[1, 1, 1, 1]", "3", "block_out_channels is no list"},
    {"dit", "transformer/config.json", NULL, NULL, "there is no config.json in it"},
    {"dit", "transformer/config.json", "{", "[", "line 2: "},
    {"dit", "transformer/config.json", "\"num_layers\": 2", "\"num_layers\": 0",
     "num_layers is no whole number from 1"},
    {"dit", "transformer/config.json", "\"num_layers\": 2", "\"num_layers\": 3",
     "tensor transformer_blocks.2."},
    {"dit", "transformer/config.json", "\"num_layers\": 2", "\"num_layers\": 1",
     "is not read by DiTTransformer2DModel"},
    {"dit", "transformer/config.json", "\"dropout\"", "\"dropin\"", "key 'dropin' is not known"},
    {"dit", "transformer/config.json", "\"patch_size\": 2", "\"patch_size\": 3",
     "patches of 3 do not divide sample_size 8"},
    {"dit", "transformer/config.json", "\"out_channels\": 8", "\"out_channels\": 3",
     "fewer than in_channels 4"},
    {"dit", "transformer/config.json", "\"sample_size\": 8", "\"sample_size\": 99999",
     "sample_size is no whole number"},
    {"dit", "transformer/config.json", "gelu-approximate", "geglu", "activation_fn 'geglu' is not supported"},
    {"dit", "transformer/config.json", "DiTTransformer2DModel", "UNet2DModel",
     "_class_name 'UNet2DModel' is not supported"},
    {"dit", "transformer/diffusion_pytorch_model.safetensors", NULL, NULL,
     "there is no diffusion_pytorch_model.safetensors"},
    {"dit", "transformer/diffusion_pytorch_model.safetensors", "proj_out_1.bias", NULL,
     "diffusion_pytorch_model"},
    {"dit", "transformer/diffusion_pytorch_model.safetensors", "proj_out_1.bias", "proj_out_9.bias",
     "proj_out_1.bias is missing"},
    {"dit", "transformer/diffusion_pytorch_model.safetensors", "[128,32]", "[32,128]",
     "where the config wants 128 x 32"},
    {"dit", "scheduler/scheduler_config.json", NULL, NULL, "scheduler_config.json: No such file"},
    {"dit", "scheduler/scheduler_config.json", "\"epsilon\"", "\"flow\"",
     "prediction_type 'flow' is not supported"},
    {"dit", "scheduler/scheduler_config.json", "DDIM", "LCM", "_class_name 'LCMScheduler' is not supported"},
    {"dit", "scheduler/scheduler_config.json", "\"thresholding\": false", "\"thresholding\": true",
     "thresholding"},
    {"dit", "scheduler/scheduler_config.json", "\"steps_offset\": 0", "\"steps_offset\": 900",
     "steps_offset 900 is beyond"},
    {"sd3", "scheduler/scheduler_config.json", "\"shift\": 3.0", "\"shift\": 0",
     "shift is no number from 0.001"},
    {"sd3", "transformer/config.json", "\"qk_norm\": null", "\"qk_norm\": \"l2\"",
     "qk_norm 'l2' is not supported"},
    {"sd3", "transformer/config.json", "\"caption_projection_dim\": 32", "\"caption_projection_dim\": 64",
     "streams have 32 columns"},
    {"sd35", "transformer/config.json", "    0\n", "    7\n",
     "dual_attention_layers: entry 0 is no block of 2"},
    {"flux", "transformer/config.json", "    4,", "    6,", "axes_dims_rope add up to 18"},
    {"flux", "text.npy", NULL, NULL, "wants --text"},
    {"flux", "pooled.npy", NULL, NULL, "wants --pooled"},
    {"sd3", "negative.npy", NULL, NULL, "wants --negative"},
    {"sd3", "negative_pooled.npy", NULL, NULL, "wants --negative-pooled"},
    {"sd3", "text.npy", "(1, 7, 24)", "(1, 24, 7)", "is [1, 24, 7], and [1, N, 24] is wanted"},
    {"sd3", "negative.npy", "(1, 7, 24)", "(1, 9, 24)", "is shorter or longer than its shape"},
    {"sd3", "pooled.npy", "<f4", "<i4", "has integers, and floats are wanted"},
    {"pixart", "transformer/config.json", "\"caption_channels\": 24", "\"caption_channels\": 25",
     "and [1, N, 25] is wanted"},
    {"wan", "transformer/config.json", "    1,\n", "    2,\n", "patch_size is not [1, N, N]"},
    {"wan", "transformer/config.json", "\"image_dim\": null", "\"image_dim\": 1280", "image_dim"},
    {"wan", "transformer/config.json", "\"attention_head_dim\": 16", "\"attention_head_dim\": 4",
     "heads of 4 columns"},
    {"wan", "transformer/config.json", "\"rope_max_seq_len\": 32", "\"rope_max_seq_len\": 2",
     "3 x 30 x 52 patches; the network knows 2 on an axis"},
    {"wan", "model_index.json", "\"transformer\": [",
     "\"transformer_2\": [\"diffusers\", \"Two\"], \"transformer\": [", "networks that take turns"},
    {"wan", "vae/config.json", "dim_mult", "dim_more", "dim_mult is no list"},
    {"wan", "scheduler/scheduler_config.json", "\"solver_order\": 2", "\"solver_order\": 3",
     "solver_order is no whole number from 1 to 2"},
    {"wan", "scheduler/scheduler_config.json", "flow_prediction", "epsilon",
     "prediction_type 'epsilon' is not"},
    {"wan", "scheduler/scheduler_config.json", "\"use_flow_sigmas\": true", "\"use_flow_sigmas\": false",
     "UniPCMultistepScheduler is supported of flow alone"},
    {"pixart_sides", "transformer/config.json", "\"cross_attention_dim\": 48", "\"cross_attention_dim\": 49",
     "where texts become 48"},
};

/* What a command line may ask for. */
static void test_options(const char *tiny)
{
    struct tiny t;
    if (!tiny_options(&t, tiny, "dit")) return;
    struct picture_options o = t.o;
    o.classes[0] = 10;
    refused(t.folder, &o, "class 10", "class 10 is none of 0 to 9");
    o = t.o, o.steps = -3;
    refused(t.folder, &o, "-3 steps", "-3 steps; 1 to 1000 are possible");
    o = t.o, o.width = 60;
    refused(t.folder, &o, "60 pixels", "a width of 60 pixels: a multiple of 16");
    o = t.o, o.pictures = 65;
    refused(t.folder, &o, "65 pictures", "65 pictures; 1 to 64 are possible");
    o = t.o, o.text = t.o.noise;
    refused(t.folder, &o, "a text of a class", "draws pictures of a class, not of a text");
    o = t.o, o.height = 32;
    refused(t.folder, &o, "noise of other sides", "is [1, 4, 8, 8], and [1, 4, 4, 8] is wanted");
    o = t.o, o.frames = 5;
    refused(t.folder, &o, "a picture's frames", "5 frames: DiTTransformer2DModel draws pictures");
    if (!tiny_options(&t, tiny, "wan")) return;
    o = t.o, o.frames = 8;
    refused(t.folder, &o, "8 frames", "8 frames: 1 and a multiple of 4 are wanted");
    if (!tiny_options(&t, tiny, "sd3")) return;
    o = t.o, o.width = 208, o.noise = NULL;
    refused(t.folder, &o, "13 patches", "13 x 4 patches, and the network has positions of 12 x 12");
}

void test_bad(const char *tiny, const char *scratch)
{
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) changed(tiny, scratch, &changes[i]);
    test_options(tiny);
}

/* ---- Some bytes changed ---- */

static int below(uint64_t *seed, size_t n) { return (int)(uniform(seed) * (double)n); }

/* A byte, or a number of the first bytes, where headers are, or an end. */
static void mutate(unsigned char *p, size_t *bytes, uint64_t *seed)
{
    static const char digits[] = "0123456789-.e\"[]{},: \n";
    size_t reach = *bytes < 4096 ? *bytes : 4096, at = (size_t)below(seed, reach);
    switch (below(seed, 8)) {
    case 0: *bytes = at; break;
    case 1: p[at] = (unsigned char)below(seed, 256); break;
    default:
        while (at + 1 < reach && (p[at] < '0' || p[at] > '9')) at++;
        p[at] = (unsigned char)digits[below(seed, sizeof digits - 1)];
    }
}

void test_fuzz(const char *tiny, const char *scratch)
{
    uint64_t seed = getenv("CODA_SEED") ? strtoull(getenv("CODA_SEED"), NULL, 10) : 1;
    int drawn = 0, times = getenv("CODA_FULL") ? 3000 : 120;
    char from[4096], to[4096], path[8192];
    printf("picture_test: CODA_SEED=%llu\n", (unsigned long long)seed);
    snprintf(to, sizeof to, "%s/fuzz", scratch);
    for (int i = 0; i < times; i++) {
        struct tiny t;
        struct fault f = {{0}};
        size_t bytes;
        snprintf(from, sizeof from, "%s/%s", tiny, tiny_kind[below(&seed, TINY_KINDS)]);
        copy_folder(from, to);
        snprintf(path, sizeof path, "%s/%s", to, part[below(&seed, PARTS - 1)]);
        unsigned char *p = read_file(path, &bytes);
        for (int k = 1 + below(&seed, 3); p && bytes && k; k--) mutate(p, &bytes, &seed);
        if (p) write_file(path, p, bytes);
        free(p);
        if (!tiny_options(&t, scratch, "fuzz")) return;
        t.o.steps = 1;
        if (!t.o.frames) t.o.width = t.o.height = 0; /* a video as usual takes long */
        struct picture *picture = picture_open(to, &t.o, &f);
        bool good = picture && picture_prepare(picture, &f) && picture_draw(picture, &f);
        CHECK(good || (*f.text && !strchr(f.text, '\n')), "%s: no line says why", path);
        drawn += good;
        picture_close(picture);
    }
    CHECK(drawn > 0 && drawn < times, "%d of %d files that were changed draw", drawn, times);
}
