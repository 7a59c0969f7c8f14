/*
 * files.c -- files that are not what they should be: each is one line, which names the tensor, the member or
 * the offset.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_test.h"

/* ---- Files ---- */

static void path_in(char path[512], const char *folder, const char *name)
{
    snprintf(path, 512, "%s/%s", folder, name);
}

static void put(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[512];
    path_in(path, folder, name);
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(data, 1, bytes, f) == bytes;
    CHECK(f && !fclose(f) && good, "%s cannot be written", path);
}

static void put_text(const char *folder, const char *name, const char *text)
{
    put(folder, name, text, strlen(text));
}

/* A whole file, for free(), with a 0 behind it. */
static char *take(const char *folder, const char *name, size_t *bytes)
{
    char path[512];
    path_in(path, folder, name);
    FILE *f = fopen(path, "rb");
    char *data = malloc(1 << 20);
    *bytes = f && data ? fread(data, 1, (1 << 20) - 1, f) : 0;
    if (data) data[*bytes] = 0;
    if (f) fclose(f);
    CHECK(*bytes > 0, "%s cannot be read", path);
    return data;
}

/* A header, whose length may be given wrong by `more`, and some bytes of data. */
static void put_tensors(const char *folder, const char *name, const char *header, size_t data, long more)
{
    size_t length = strlen(header);
    uint64_t said = (uint64_t)((long)length + more);
    char *all = calloc(1, 8 + length + data);
    for (int i = 0; i < 8; i++) all[i] = (char)(said >> 8 * i);
    memcpy(all + 8, header, length);
    put(folder, name, all, 8 + length + data);
    free(all);
}

static void refused(const char *what, bool good, const struct fault *f, const char *says)
{
    CHECK(!good, "%s: it is accepted", what);
    CHECK(strstr(f->text, says) && !strchr(f->text, '\n'), "%s: '%s' does not say '%s'", what, f->text, says);
}

/* ---- Headers ---- */

static const struct {
    const char *what, *header;
    size_t data;
    long more;
    const char *says;
} headers[] = {
    {"longer than the file", "{}", 0, 1, "a header of 3 bytes, but 2 follow"},
    {"as long as can be", "{}", 0, -3, "a header of 18446744073709551615 bytes"},
    {"not JSON", "{\"a\":", 0, 0, "the header is no JSON object"},
    {"a list", "[1]", 0, 0, "the header is no JSON object: another value"},
    {"nothing", "", 0, 0, "the header is no JSON object"},
    {"twice the same", "{\"a\":{},\"a\":{}}", 0, 0, "duplicate"},
    {"no object", "{\"a\":3}", 0, 0, "tensor 'a': no object"},
    {"more", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"scale\":2}}", 4, 0,
     "tensor a: it has more than"},
    {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 0, "tensor a: dtype 'none'"},
    {"unknown dtype", "{\"a\":{\"dtype\":\"F7\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 0,
     "tensor a: dtype 'F7'"},
    {"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, 0,
     "tensor a: the shape is no list"},
    {"rank 7", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, 0,
     "tensor a: the shape is no list of at most 6"},
    {"negative", "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, 0,
     "tensor a: dimension 0"},
    {"a fraction", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, 0,
     "tensor a: dimension 0"},
    {"too many elements",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, 0,
     "tensor a: dimension 1"},
    {"one offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, 0,
     "tensor a: data_offsets"},
    {"backwards", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, 0, "offsets 4 to 0"},
    {"cut short", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, 0,
     "tensor a: offsets 0 to 8 are not in the 7 bytes"},
    {"below 0", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, 0, "offsets -8 to 0"},
    {"another size", "{\"a\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[0,4]}}", 4, 0,
     "tensor a: 4 bytes at offset 0, but its shape in F16 takes 6"},
    {"half a byte", "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, 0,
     "tensor a: dimension 0"},
    {"elements of 4 bits", "{\"a\":{\"dtype\":\"F4\",\"shape\":[2,4],\"data_offsets\":[0,8]}}", 8, 0,
     "tensor a: 8 bytes at offset 0, but its shape in F4 takes 4"},
    {"elements of 6 bits", "{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[2,4],\"data_offsets\":[0,8]}}", 8, 0,
     "tensor a: 8 bytes at offset 0, but its shape in F6_E2M3 takes 6"},
    {"overlapping",
     "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
     12, 0, "tensor b at offset 4 overlaps a, which ends at 8"},
    {"a gap",
     "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
     12, 0, "bytes 4 to 8 of the data belong to no tensor"},
    {"more data", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, 0, "bytes 4 to 5"},
};

static void test_headers(const char *scratch)
{
    char path[512];
    struct fault f = {{0}};
    struct checkpoint c;
    put_text(scratch, "config.json", "{}");
    path_in(path, scratch, "model.safetensors");
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        put_tensors(scratch, "model.safetensors", headers[i].header, headers[i].data, headers[i].more);
        bool good = checkpoint_open(&c, path, &f);
        refused(headers[i].what, good, &f, headers[i].says);
        if (good) checkpoint_close(&c);
    }
    put_text(scratch, "model.safetensors", "1234567");
    refused("seven bytes", checkpoint_open(&c, path, &f), &f, "7 bytes are no safetensors file");
    put_text(scratch, "model.safetensors", "");
    refused("empty", checkpoint_open(&c, path, &f), &f, "the file is empty");
    unlink(path);
    refused("missing", checkpoint_open(&c, scratch, &f), &f, "there is no model.safetensors");
    mkdir(path, 0700);
    refused("a folder", checkpoint_open(&c, scratch, &f), &f, "no regular file");
    rmdir(path);
}

/* ---- Shards ---- */

static void test_shards(const char *scratch)
{
    static const struct {
        const char *what, *index, *says;
    } all[] = {
        {"no map", "{}", "weight_map is missing"},
        {"more than a map", "{\"weight_map\":{},\"odd\":1}", "key 'odd' is not known"},
        {"an index of itself", "{\"weight_map\":{\"a\":\"model.safetensors.index.json\"}}",
         "no name of a shard"},
        {"elsewhere", "{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "tensor a: '../x.safetensors'"},
        {"a number", "{\"weight_map\":{\"a\":1}}", "tensor a: the shard is no text"},
        {"missing", "{\"weight_map\":{\"a\":\"x.safetensors\"}}", "x.safetensors: No such file"},
        {"lacks it", "{\"weight_map\":{\"c\":\"1.safetensors\"}}",
         "tensor c: the index places it in 1.safetensors"},
        {"both have it", "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}",
         "tensor a: two files have it"},
        {"not JSON", "{\"weight_map\":", "index.json: line 1"},
    };
    const char *one = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    struct fault f = {{0}};
    struct checkpoint c;
    char path[512];
    put_tensors(scratch, "1.safetensors", one, 4, 0);
    put_tensors(scratch, "2.safetensors", one, 4, 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        put_text(scratch, "model.safetensors.index.json", all[i].index);
        refused(all[i].what, checkpoint_open(&c, scratch, &f), &f, all[i].says);
    }
    path_in(path, scratch, "loop.safetensors");
    unlink(path);
    CHECK(!symlink("loop.safetensors", path), "%s cannot be linked", path);
    put_text(scratch, "model.safetensors.index.json", "{\"weight_map\":{\"a\":\"loop.safetensors\"}}");
    refused("a link to itself", checkpoint_open(&c, scratch, &f), &f, "Too many levels of symbolic links");
    unlink(path);
    path_in(path, scratch, "model.safetensors.index.json");
    unlink(path);
}

/* ---- Models: the right file with one thing changed ---- */

static char *changed(char *data, size_t *bytes, const struct change *c)
{
    char *at = memmem(data, *bytes, c->old, strlen(c->old));
    size_t old = strlen(c->old), new = strlen(c->new);
    CHECK(at != NULL, "%s: '%s' is not there", c->what, c->old);
    if (!at) return data;
    memmove(at + new, at + old, *bytes - (size_t)(at - data) - old);
    memcpy(at, c->new, new);
    *bytes = *bytes + new - old;
    return data;
}

static void model_refused(const char *scratch, const struct change *c)
{
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU};
    struct model *m = model_open(scratch, &o, &f);
    refused(c->what, m != NULL, &f, c->says);
    model_close(m);
}

void change_each(const char *from, const char *scratch, const char *file, const struct change *all, int n)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    size_t bytes;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++) {
            char *data = take(from, files[k], &bytes);
            if (!strcmp(files[k], file)) changed(data, &bytes, &all[i]);
            put(scratch, files[k], data, bytes);
            free(data);
        }
        model_refused(scratch, &all[i]);
    }
}

static void test_models(const char *tiny, const char *scratch)
{
    static const struct change tensors[] = {
        {"no norm", "model.norm.weight", "model.nerm.weight", "tensor model.norm.weight is missing"},
        {"no head", "lm_head.weight", "lm_haed.weight", "tensor lm_head.weight is missing"},
        {"another shape", "[48,32]", "[32,48]", "32 x 48, where the config wants 48 x 32"},
        {"integers", "F32", "I32", "I32 is not supported"},
    };
    static const struct change configs[] = {
        {"no layers", "num_hidden_layers", "num_hidden_leyers", "num_hidden_layers is missing"},
        {"more layers", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "tensor model.layers.2."},
        {"layers without end", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 4000000000",
         "num_hidden_layers is no"},
        {"no width", "\"hidden_size\": 32", "\"hidden_size\": 0", "hidden_size is no whole number"},
        {"half a head", "\"num_attention_heads\": 4", "\"num_attention_heads\": 3",
         "3 heads are no multiple"},
        {"text", "\"vocab_size\": 80", "\"vocab_size\": \"80\"", "vocab_size is no whole number"},
        {"another vocabulary", "\"vocab_size\": 80", "\"vocab_size\": 81",
         "80 x 32, where the config wants 81 x 32"},
        {"a family", "\"llama\"", "\"lama\"", "family lama is not supported"},
        {"an activation", "\"silu\"", "\"sulu\"", "activation 'sulu'"},
        {"a rope", "\"rope_type\": \"default\"", "\"rope_type\": \"odd\"", "RoPE of type 'odd'"},
        {"an epsilon", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": -1", "rms_norm_eps is no number"},
        {"quantised", "\"hidden_act\"", "\"quantization_config\": {}, \"hidden_act\"", "quant_method 'none'"},
        {"both directions", "\"hidden_act\"", "\"use_bidirectional_attention\": true, \"hidden_act\"",
         "family llama with attention in both directions is not supported"},
        {"no object", "{", "[{", "config.json"},
    };
    char llama[512];
    path_in(llama, tiny, "llama");
    change_each(llama, scratch, "model.safetensors", tensors, (int)(sizeof tensors / sizeof *tensors));
    change_each(llama, scratch, "config.json", configs, (int)(sizeof configs / sizeof *configs));
}

/* Decoders within larger models. */
static void test_towers(const char *tiny, const char *scratch)
{
    static const struct change gemma[] = {
        {"no tower", "\"text_config\"", "\"next_config\"", "text_config is missing"},
        {"a tower quantised from outside", "\"mm_tokens_per_image\"", "\"quantization_config\"",
         "quant_method 'none'"},
        {"no width", "\"hidden_size\": 32", "\"hidden_size\": 0", "hidden_size is no whole number"},
    };
    static const struct change mistral[] = {
        {"no head", "language_model.lm_head.weight", "language_model.lm_haed.weight",
         "tensor lm_head.weight is missing"},
        {"no norm", "language_model.model.norm.weight", "language_model.model.nerm.weight",
         "tensor language_model.model.norm.weight is missing"},
    };
    char folder[512];
    path_in(folder, tiny, "gemma3_whole");
    change_each(folder, scratch, "config.json", gemma, (int)(sizeof gemma / sizeof *gemma));
    path_in(folder, tiny, "mistral3");
    change_each(folder, scratch, "model.safetensors", mistral, (int)(sizeof mistral / sizeof *mistral));
}

static void test_encoders(const char *tiny, const char *scratch)
{
    static const struct change vit[] = {
        {"no side", "\"image_size\": 24", "\"image_size\": 0", "image_size is no whole number"},
        {"a side without end", "\"image_size\": 24", "\"image_size\": 1000000",
         "image_size is no whole number"},
        {"a large patch", "\"patch_size\": 8", "\"patch_size\": 25", "patches of 25 in images of 24"},
        {"more patches", "\"image_size\": 24", "\"image_size\": 32",
         "tensor embeddings.position_embeddings: rank 3 and 10 x 32, where the config wants 17 x 32"},
        {"other channels", "\"num_channels\": 3", "\"num_channels\": 1", "where the config wants 32 x 64"},
        {"no token", "embeddings.cls_token", "embeddings.cls_tiken", "embeddings.cls_token is missing"},
    };
    static const struct change siglip[] = {
        {"no head", "\"vision_use_head\": true", "\"vision_use_head\": false", "without a head"},
        {"no tower", "\"vision_config\"", "\"version_config\"", "vision_config is missing"},
    };
    static const struct change gemma[] = {{"a window of one", "\"sliding_window\": 8",
                                           "\"sliding_window\": 1",
                                           "a sliding_window of 1 in both directions"}};
    char folder[512];
    path_in(folder, tiny, "vit");
    change_each(folder, scratch, "config.json", vit, 5);
    change_each(folder, scratch, "model.safetensors", vit + 5, 1);
    path_in(folder, tiny, "gemma3_encoder");
    change_each(folder, scratch, "config.json", gemma, 1);
    path_in(folder, tiny, "siglip");
    change_each(folder, scratch, "config.json", siglip, (int)(sizeof siglip / sizeof *siglip));
}

/* ---- GGUF: bytes behind a name are others ---- */

static void test_gguf(const char *tiny, const char *scratch)
{
    static const struct {
        const char *what, *name;
        int behind; /* bytes from the name's end to those that change */
        const char *bytes;
        int count;
        const char *says;
    } all[] = {
        {"no GGUF", "GGUF", -4, "GGML", 4, "no GGUF file"},
        {"another version", "GGUF", 0, "\x09", 1, "GGUF of another version"},
        {"tensors without end", "GGUF", 4, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8, "offset"},
        {"metadata without end", "GGUF", 12, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, "offset"},
        {"an architecture", "general.architecture", 12, "koala", 5, "architecture koala is not supported"},
        {"a type of metadata", "general.architecture", 0, "\x0d", 1, "metadata of a type that is not known"},
        {"a long text", "general.architecture", 10, "\x01", 1, "the file ends too early"},
        {"no blocks", "blk.0.attn_q.weight", 20, "\x0c", 1,
         "tensor blk.0.attn_q.weight: rows of 32 elements are no blocks of 256, as Q4_K has them"},
        {"quantised", "blk.0.attn_q.weight", 20, "\x14", 1,
         "self_attn.q_proj.weight: IQ4_NL is not supported"},
        {"of integers", "blk.0.attn_q.weight", 20, "\x19", 1,
         "self_attn.q_proj.weight: I16 is not supported"},
        {"more bytes", "blk.0.attn_q.weight", 20, "\x1b", 1, "overlap"},
        {"an unknown type", "blk.0.attn_q.weight", 20, "\xf0", 1,
         "tensor blk.0.attn_q.weight: type 240 is not known"},
        {"rank 9", "blk.0.attn_q.weight", 0, "\x09", 1, "a tensor of too many dimensions"},
        {"a dimension", "blk.0.attn_q.weight", 9, "\xff", 1, "are not in the"},
        {"dimensions", "blk.0.attn_q.weight", 4, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8, "out of range"},
        {"an offset", "blk.0.attn_q.weight", 29, "\x7f", 1, "are not in the"},
        {"an odd offset", "blk.0.attn_q.weight", 24, "\x01", 1, "are not in the"},
        {"another name", "blk.0.attn_q.weight", -8, "r", 1,
         "tensor model.layers.0.self_attn.q_proj.weight is missing"},
        {"overlapping", "blk.0.attn_q.weight", 24, "\0\0\0\0\0\0\0\0", 8, "overlap"},
    };
    static const struct {
        const char *what;
        size_t bytes;
    } cuts[] = {{"two bytes", 2}, {"a magic word", 4}, {"half a header", 20}, {"half the metadata", 300}};
    char llama[512], path[512];
    size_t bytes;
    struct fault f = {{0}};
    struct checkpoint c;
    path_in(llama, tiny, "llama3");
    path_in(path, scratch, "model.gguf");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct model_options o = {.device = CODA_DEVICE_CPU};
        char *data = take(llama, "model.gguf", &bytes),
             *at = memmem(data, bytes, all[i].name, strlen(all[i].name));
        CHECK(at != NULL, "%s: %s is not there", all[i].what, all[i].name);
        if (at) memcpy(at + (long)strlen(all[i].name) + all[i].behind, all[i].bytes, (size_t)all[i].count);
        put(scratch, "model.gguf", data, bytes);
        struct model *m = model_open(path, &o, &f);
        refused(all[i].what, m != NULL, &f, all[i].says);
        model_close(m);
        free(data);
    }
    char *data = take(llama, "model.gguf", &bytes);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        put(scratch, "model.gguf", data, cuts[i].bytes);
        refused(cuts[i].what, checkpoint_open(&c, path, &f), &f,
                cuts[i].bytes < 4 ? "no GGUF file" : "ends too early");
    }
    put(scratch, "model.gguf", data, bytes - 1);
    refused("a byte less", checkpoint_open(&c, path, &f), &f, "are not in the");
    free(data);
}

/* ---- Calls ---- */

static void test_calls(const char *tiny)
{
    char path[512];
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU, .context = 8};
    int32_t ids[16] = {1}, next;
    float numbers[80];
    path_in(path, tiny, "llama");
    struct model *m = model_open(path, &o, &f);
    CHECK(m != NULL, "%s", f.text);
    if (!m) return;
    refused("no tokens", model_decode(m, ids, 0, &next, &f), &f, "0 tokens");
    refused("too many", model_decode(m, ids, 9, &next, &f), &f, "do not fit into a context of 8");
    ids[1] = 80;
    refused("no token", model_decode(m, ids, 2, &next, &f), &f, "token 80 is not in the vocabulary of 80");
    CHECK(model_decode(m, ids, 1, &next, &f), "%s", f.text);
    refused("rows", model_logits(m, numbers, 2, &f), &f, "logits of 2 rows");
    refused("a vector", model_embed(m, &(const int32_t *){ids}, (int[]){1}, 1, POOLING_MEAN, numbers, &f), &f,
            "makes no vectors");
    refused("an image", model_see(m, numbers, 1, numbers, &f), &f, "sees no images");
    model_close(m);
    path_in(path, tiny, "vit");
    m = model_open(path, &o, &f);
    refused("a sentence",
            m && model_embed(m, &(const int32_t *){ids}, (int[]){1}, 1, POOLING_MEAN, numbers, &f), &f,
            "vectors of images, not of text");
    refused("a text", m && model_decode(m, ids, 1, &next, &f), &f, "makes no text");
    model_close(m);
    o.context = 4096;
    path_in(path, tiny, "llama");
    refused("a long context", (m = model_open(path, &o, &f)) != NULL, &f, "the model was made for 1024");
    model_close(m);
}

static void test_names(void)
{
    static const struct {
        const char *name, *end;
        bool ends;
    } names[] = {{"a.gguf", ".gguf", true},   {".gguf", ".gguf", true}, {"gguf", ".gguf", false},
                 {"a.gguf/", ".gguf", false}, {"", "", true},           {"a.ggufs", ".gguf", false}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(name_ends(names[i].name, names[i].end) == names[i].ends, "'%s', '%s'", names[i].name,
              names[i].end);
}

void test_files(const char *tiny, const char *scratch)
{
    test_names();
    test_headers(scratch);
    test_shards(scratch);
    test_models(tiny, scratch);
    test_towers(tiny, scratch);
    test_encoders(tiny, scratch);
    test_gguf(tiny, scratch);
    test_calls(tiny);
}
