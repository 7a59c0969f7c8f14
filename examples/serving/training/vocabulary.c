/*
 * vocabulary.c -- the files of a tokenizer beside the weights: of bytes, copies of another checkpoint's, or
 * what a GGUF file has, as tokenizer.json.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gguf.h"
#include "regular.h"
#include "tokenizer_json.h"
#include "train_aside.h"
#include "train_source.h"

/* ---- Bytes ---- */

/* What byte-level BPE calls a byte: printable ones of Latin-1 stay, others follow from U+0100 on (GPT-2). */
static uint32_t letter_of(int byte)
{
    int other = 0;
    for (int b = 0; b < BYTES; b++) {
        bool stays = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (b == byte) return stays ? (uint32_t)b : 256 + (uint32_t)other;
        other += !stays;
    }
    return 0;
}

static void put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) to[0] = (char)c, to[1] = 0;
    else to[0] = (char)(0xc0 | c >> 6), to[1] = (char)(0x80 | (c & 63)), to[2] = 0;
}

#define END_TEXT "<|endoftext|>"

static json_t *byte_words(void)
{
    json_t *words = json_object();
    json_object_set_new(words, END_TEXT, json_integer(BYTES_END));
    for (int b = 0; b < BYTES; b++) {
        char letter[4];
        put_utf8(letter, letter_of(b));
        if (b != BYTES_END) json_object_set_new(words, letter, json_integer(b));
    }
    return words;
}

bool vocabulary_write_bytes(const char *folder, struct fault *f)
{
    json_t *end = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", BYTES_END, "content", END_TEXT,
                            "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
    json_t *post = json_pack(
        "{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, s:i}}], "
        "s:{s:{s:s, s:[i], s:[s]}}}",
        "type", "TemplateProcessing", "single", "SpecialToken", "id", END_TEXT, "type_id", 0, "Sequence",
        "id", "A", "type_id", 0, "pair", "SpecialToken", "id", END_TEXT, "type_id", 0, "Sequence", "id", "A",
        "type_id", 0, "Sequence", "id", "B", "type_id", 0, "special_tokens", END_TEXT, "id", END_TEXT, "ids",
        BYTES_END, "tokens", END_TEXT);
    json_t *file = json_pack(
        "{s:s, s:[o], s:n, s:{s:s, s:b, s:b, s:b}, s:o, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:o, s:[]}}",
        "version", "1.0", "added_tokens", end, "normalizer", "pre_tokenizer", "type", "ByteLevel",
        "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1, "post_processor", post, "decoder", "type",
        "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 1, "model", "type", "BPE",
        "vocab", byte_words(), "merges");
    json_t *config = json_pack("{s:s, s:s, s:s}", "tokenizer_class", "PreTrainedTokenizerFast", "bos_token",
                               END_TEXT, "eos_token", END_TEXT);
    bool good = aside_json(folder, "tokenizer.json", file, f) &&
                aside_json(folder, "tokenizer_config.json", config, f);
    json_decref(file);
    json_decref(config);
    return good;
}

/* ---- Copies ---- */

static bool copy(const char *from, const char *folder, const char *name, struct fault *f)
{
    char path[PATH_MAX], why[128];
    int64_t bytes;
    if (snprintf(path, sizeof path, "%s/%s", from, name) >= PATH_MAX || !regular_there(path)) return true;
    int fd = regular_open(path, REGULAR_JSON, &bytes, why, sizeof why);
    if (fd < 0) return fault_set(f, "%s: %s", path, why);
    void *data = bytes ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (data == MAP_FAILED) return fault_set(f, "%s: %s", path, strerror(errno));
    bool good = aside_bytes(folder, name, data ? data : "", (size_t)bytes, f);
    if (data) munmap(data, (size_t)bytes);
    return good;
}

static bool copy_files(const char *from, const char *folder, struct fault *f)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "added_tokens.json",
                                        "generation_config.json",
                                        "chat_template.jinja"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!copy(from, folder, names[i], f)) return false;
    return true;
}

/* ---- GGUF ---- */

/* A pair of tokens that are one, by its score: where tokenizer.json lists merges, the first is the first. */
struct joined {
    const char *word;
    size_t left; /* bytes of the first of both */
    double score;
    json_int_t ids[2];
};

static int by_score(const void *a, const void *b)
{
    const struct joined *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    for (int i = 0; i < 2; i++)
        if (x->ids[i] != y->ids[i]) return x->ids[i] < y->ids[i] ? -1 : 1;
    return 0;
}

/* The ways to cut a token in two tokens. */
static size_t cut_word(const json_t *words, const char *word, double score, struct joined *to)
{
    size_t n = strlen(word), found = 0;
    for (size_t i = 1; i < n; i++) {
        char left[256];
        if (((unsigned char)word[i] & 0xc0) == 0x80 || i >= sizeof left) continue;
        snprintf(left, sizeof left, "%.*s", (int)i, word);
        const json_t *a = json_object_get(words, left), *b = json_object_get(words, word + i);
        if (!a || !b) continue;
        if (to) to[found] = (struct joined){word, i, score, {json_integer_value(a), json_integer_value(b)}};
        found++;
    }
    return found;
}

static size_t cut_all(json_t *words, const json_t *scores, struct joined *to)
{
    const char *word;
    json_t *id;
    size_t n = 0;
    json_object_foreach(words, word, id)
    {
        double score = json_number_value(json_array_get(scores, (size_t)json_integer_value(id)));
        n += cut_word(words, word, score, to ? to + n : NULL);
    }
    return n;
}

static json_t *merges_of(json_t *words, const json_t *scores)
{
    size_t n = cut_all(words, scores, NULL);
    struct joined *all = calloc(n + 1, sizeof *all);
    json_t *list = all ? json_array() : NULL;
    if (list) cut_all(words, scores, all);
    if (list) qsort(all, n, sizeof *all, by_score);
    for (size_t i = 0; list && i < n; i++)
        json_array_append_new(list, json_pack("[s%s]", all[i].word, all[i].left, all[i].word + all[i].left));
    free(all);
    return list;
}

/* A model by scores as BPE by merges, whose files have no scores. */
static bool rank(json_t *file, struct fault *f)
{
    json_t *model = json_object_get(file, "model"), *words = json_object_get(model, "vocab");
    if (strcmp(json_string_value(json_object_get(model, "type")), SCORED_MODEL)) return true;
    json_t *merges = merges_of(words, json_object_get(model, "scores"));
    if (!merges) return fault_set(f, "out of memory for the merges of a tokenizer");
    json_object_set_new(model, "type", json_string("BPE"));
    json_object_set_new(model, "merges", merges);
    json_object_set_new(model, "fuse_unk", json_true());
    json_object_set_new(model, "byte_fallback", json_boolean(json_object_get(words, "<0x00>") != NULL));
    json_object_del(model, "scores");
    return true;
}

/* What the package `tokenizers` wants each token to say. */
static void complete(json_t *added)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
    json_t *token;
    size_t i;
    json_array_foreach(added, i, token)
    {
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
            if (!json_object_get(token, flags[k])) json_object_set_new(token, flags[k], json_false());
    }
}

static bool write_gguf(const char *model, const json_t *metadata, const char *folder, struct fault *f)
{
    char what[256] = "";
    struct complaint c = {what, sizeof what, false};
    json_t *config = NULL, *file = file_of_gguf(metadata, &config, &c);
    bool good = file && !c.made;
    if (!good) fault_set(f, "%s: its tokenizer cannot be written: %s", model, c.made ? what : "no memory");
    if (good && config) {
        json_object_del(config, AROUND_BY_CONFIG);
        json_object_del(config, "added_tokens_decoder");
    }
    if (good) complete(json_object_get(file, "added_tokens"));
    good = good && rank(file, f) && aside_json(folder, "tokenizer.json", file, f) &&
           (!config || aside_json(folder, "tokenizer_config.json", config, f));
    json_decref(file);
    json_decref(config);
    return good;
}

bool vocabulary_copy(const char *model, const char *folder, struct fault *f)
{
    char from[PATH_MAX], beside[PATH_MAX];
    if (!checkpoint_folder(model, from, sizeof from) ||
        snprintf(beside, sizeof beside, "%s/tokenizer.json", from) >= PATH_MAX)
        return fault_set(f, "%s: the path is too long", model);
    if (!checkpoint_is_gguf(model) || regular_there(beside)) return copy_files(from, folder, f);
    struct checkpoint file = {0};
    struct mapped_file map;
    json_t *metadata = checkpoint_map(&file, model, &map, f) ? gguf_metadata(model, &map, f) : NULL;
    bool good = metadata && write_gguf(model, metadata, folder, f);
    json_decref(metadata);
    checkpoint_close(&file);
    return good;
}
