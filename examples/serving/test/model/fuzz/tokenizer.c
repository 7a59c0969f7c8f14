/*
 * tokenizer.c -- tokenizer.json files, of up to a megabyte, with steps, regular expressions and added tokens
 * that are drawn, and the committed ones with changes; and texts of up to a megabyte: each is opened, or
 * refused in a line, and each text has ids, or is refused, within its deadline.
 *
 *     tokenizer_fuzz SECONDS [SEED]        in the root of the tree
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "tokenizer.h"

#define FOLDER "test/model/tokenizers"

static const char *const names[] = {"bert_cased", "bert_uncased", "deepseek", "digits",    "flags",   "gemma",
                                    "gpt2",       "llama2",       "llama3",   "metaspace", "mistral", "o200k",
                                    "qwen2",      "roberta",      "smollm",   "tekken"};
enum { NAMES = sizeof names / sizeof *names };
static json_t *files[NAMES];
static char folder[] = "/tmp/tokenizer_fuzz.XXXXXX", path[64];

static const char *any_of(const char *const *words, size_t count)
{
    return words[fuzz_below((uint32_t)count)];
}
#define ANY(words) any_of(words, sizeof words / sizeof *words)

/* ---- Steps ---- */

static void draw_regex(struct bytes *b, int depth)
{
    static const char *const atoms[] = {"a",   "b",      " ",      "\\s",  "\\S",  "\\d",
                                        "\\w", "\\p{L}", "\\p{N}", "[^x]", "[ab]", "[^\\s\\p{L}]",
                                        "'s",  "\\n",    "\\u4e00"};
    static const char *const groups[] = {"(", "(?:", "(?i:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    static const char *const counts[] = {"", "", "*", "+", "?", "*?", "+?", "*+", "{2}", "{1,3}", "{1,500}"};
    for (uint32_t n = 1 + fuzz_below(3); n; n--) {
        bool group = depth > 0 && fuzz_chance(40);
        if (group) bytes_say(b, "%s", ANY(groups)), draw_regex(b, depth - 1), bytes_say(b, ")");
        else bytes_say(b, "%s", ANY(atoms));
        bytes_say(b, "%s%s", ANY(counts), fuzz_chance(25) && n > 1 ? "|" : "");
    }
}

static json_t *draw_text(size_t most)
{
    struct bytes b = {0};
    bytes_text(&b);
    json_t *v = json_stringn(b.data, b.size < most ? b.size : most);
    free(b.data);
    return v ? v : json_string("a");
}

static json_t *draw_pattern(void)
{
    struct bytes b = {0};
    if (fuzz_chance(40)) return json_pack("{s:o}", "String", draw_text(fuzz_chance(95) ? 3 : 100000));
    draw_regex(&b, 1 + (int)fuzz_below(4));
    json_t *v = json_pack("{s:s}", "Regex", b.data);
    free(b.data);
    return v;
}

static json_t *draw_normalizer(void)
{
    static const char *const plain[] = {"NFC",          "NFD",       "NFKC",           "NFKD", "Lowercase",
                                        "StripAccents", "ByteLevel", "BertNormalizer", "Strip"};
    uint32_t how = fuzz_below(4);
    if (how == 0)
        return json_pack("{s:s, s:o, s:o}", "type", "Replace", "pattern", draw_pattern(), "content",
                         draw_text(fuzz_chance(90) ? 4 : 100000));
    if (how == 1)
        return json_pack("{s:s, s:o}", "type", "Prepend", "prepend", draw_text(fuzz_chance(90) ? 4 : 100000));
    return json_pack("{s:s}", "type", ANY(plain));
}

static json_t *draw_cut(void)
{
    static const char *const plain[] = {"ByteLevel",       "BertPreTokenizer", "Whitespace",
                                        "WhitespaceSplit", "Punctuation",      "Digits"};
    static const char *const how[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                      "Contiguous"};
    uint32_t kind = fuzz_below(4);
    if (kind == 0) return json_pack("{s:s, s:s}", "type", "Metaspace", "replacement", "\xe2\x96\x81");
    if (kind == 1) return json_pack("{s:s}", "type", ANY(plain));
    return json_pack("{s:s, s:o, s:s, s:b}", "type", "Split", "pattern", draw_pattern(), "behavior", ANY(how),
                     "invert", fuzz_chance(20));
}

static json_t *draw_decoder(void)
{
    static const char *const plain[] = {"ByteLevel", "ByteFallback", "Fuse"};
    uint32_t kind = fuzz_below(4);
    if (kind == 0)
        return json_pack("{s:s, s:o, s:o}", "type", "Replace", "pattern", draw_pattern(), "content",
                         draw_text(fuzz_chance(90) ? 4 : 100000));
    if (kind == 1)
        return json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", (int)fuzz_below(3),
                         "stop", 1 << 30);
    return json_pack("{s:s}", "type", ANY(plain));
}

static json_t *sequence(const char *list, json_t *(*draw)(void))
{
    json_t *all = json_array();
    for (size_t n = fuzz_size(fuzz_chance(5) ? 256 : 3); n; n--) json_array_append_new(all, draw());
    return json_pack("{s:s, s:o}", "type", "Sequence", list, all);
}

/* ---- Files ---- */

static void draw_added(json_t *file)
{
    json_t *all = json_object_get(file, "added_tokens");
    for (size_t n = fuzz_size(fuzz_chance(5) ? 1000 : 3); n; n--)
        json_array_append_new(
            all, json_pack("{s:i, s:o, s:b, s:b, s:b, s:b, s:b}", "id", 2000 + (int)fuzz_below(3000),
                           "content", draw_text(fuzz_chance(90) ? 6 : 50000), "special", fuzz_chance(50),
                           "normalized", fuzz_chance(50), "lstrip", fuzz_chance(30), "rstrip",
                           fuzz_chance(30), "single_word", fuzz_chance(20)));
}

static void draw_model(json_t *model)
{
    json_t *vocab = json_object_get(model, "vocab"), *word = draw_text(fuzz_chance(80) ? 20 : 100000);
    json_object_set_new(vocab, json_string_value(word), json_integer(fuzz_below(5000)));
    json_decref(word);
    if (json_object_get(model, "max_input_chars_per_word"))
        json_object_set_new(model, "max_input_chars_per_word",
                            json_integer(fuzz_chance(50) ? 1 << 30 : fuzz_below(300)));
    if (!json_object_get(model, "merges")) return;
    json_object_set_new(model, "fuse_unk", json_boolean(fuzz_chance(50)));
    json_object_set_new(model, "byte_fallback", json_boolean(fuzz_chance(50)));
    json_object_set_new(model, "ignore_merges", json_boolean(fuzz_chance(50)));
    if (fuzz_chance(20)) json_object_set_new(model, "unk_token", json_null());
}

static void draw_file(struct bytes *b)
{
    static const char *const words[] = {"\"",      "{",        "}",     "[",   "]",   ",",
                                        ":",       "null",     "true",  "-1",  "1e9", "\\u0000",
                                        "\\ud800", "Sequence", "Split", "\xff"};
    json_t *file = json_deep_copy(files[fuzz_below(NAMES)]);
    if (fuzz_chance(40)) json_object_set_new(file, "normalizer", sequence("normalizers", draw_normalizer));
    if (fuzz_chance(40)) json_object_set_new(file, "pre_tokenizer", sequence("pretokenizers", draw_cut));
    if (fuzz_chance(40)) json_object_set_new(file, "decoder", sequence("decoders", draw_decoder));
    if (fuzz_chance(30)) draw_added(file);
    if (fuzz_chance(40)) draw_model(json_object_get(file, "model"));
    char *text = json_dumps(file, JSON_COMPACT);
    bytes_add(b, text, text ? strlen(text) : 0);
    if (fuzz_chance(25))
        for (uint32_t n = 1 + fuzz_below(3); n; n--) bytes_change(b, words, sizeof words / sizeof *words);
    free(text);
    json_decref(file);
}

static struct tokenizer *opened(void)
{
    struct bytes b = {0};
    char err[400] = "";
    draw_file(&b);
    FILE *f = fopen(path, "w");
    fuzz_holds(f && fwrite(b.data, 1, b.size, f) == b.size && !fclose(f), "no file");
    struct tokenizer *t = tokenizer_open(folder, err, sizeof err);
    fuzz_holds(t || (*err && !strchr(err, '\n')), "neither a tokenizer nor a line");
    free(b.data);
    return t;
}

/* ---- Use ---- */

static void use_ids(struct tokenizer *t, int32_t *ids, int n)
{
    char out[4096];
    struct tokenizer_stream *s = tokenizer_stream_open(t);
    for (int i = 0; i < 20; i++) ids[n++] = (int32_t)fuzz_below((uint32_t)tokenizer_size(t) + 3) - 1;
    tokenizer_decode(t, ids, n, out, sizeof out);
    tokenizer_decode_all(t, ids, n < 1000 ? n : 1000, out, sizeof out);
    for (int i = n > 30 ? n - 30 : 0; i < n; i++) {
        tokenizer_stream_next(s, ids[i], out, sizeof out);
        tokenizer_piece(t, ids[i], out, sizeof out);
        tokenizer_bytes(t, ids[i], out, sizeof out);
    }
    tokenizer_stream_end(s, out, sizeof out);
    tokenizer_stream_close(s);
}

static void use(struct tokenizer *t)
{
    enum { MOST = 100000 };
    struct bytes text = {0};
    int32_t *ids = malloc((MOST + 64) * sizeof *ids);
    bytes_text(&text);
    double limit = fuzz_chance(80) ? 5 : 0.01 * (1 + fuzz_below(50)), begin = fuzz_now();
    struct deadline deadline = deadline_in(limit, NULL);
    const struct encode_limits limits = {&deadline, fuzz_chance(50) ? 0 : (int64_t)fuzz_size(FUZZ_TEXT)};
    int n = (fuzz_chance(50) ? tokenizer_encode : tokenizer_encode_bare)(t, text.data, text.size, ids, MOST,
                                                                         &limits);
    fuzz_took(fuzz_now() - begin, limit);
    fuzz_holds(n >= REFUSED_MEMORY && (n < 0 || !limits.tokens || n <= limits.tokens),
               "ids beyond the limit");
    for (int i = 0; i < n && i < MOST; i++)
        fuzz_holds(ids[i] >= 0 && ids[i] < tokenizer_size(t), "an id that there is not");
    if (n >= 0) fuzz_worked();
    begin = fuzz_now();
    use_ids(t, ids, n < 0 ? 0 : n < 20000 ? n : 20000);
    fuzz_took(fuzz_now() - begin, limit);
    free(ids);
    free(text.data);
}

static void one_case(void)
{
    struct tokenizer *t = opened();
    for (int k = 0; t && k < 2; k++) use(t);
    tokenizer_close(t);
}

int main(int argc, char **argv)
{
    for (int i = 0; i < NAMES; i++) {
        char from[200];
        snprintf(from, sizeof from, FOLDER "/%s/tokenizer.json", names[i]);
        if (!(files[i] = json_load_file(from, 0, NULL))) return fprintf(stderr, "there is no %s\n", from), 2;
    }
    if (!mkdtemp(folder)) return 2;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    int status = fuzz_main(argc, argv, one_case);
    unlink(path);
    rmdir(folder);
    for (int i = 0; i < NAMES; i++) json_decref(files[i]);
    return status;
}
