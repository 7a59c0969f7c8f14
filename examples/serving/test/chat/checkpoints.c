/*
 * checkpoints.c -- the server with tiny checkpoints of each family, on the CPU device: greedy tokens are
 * those of model's decoder, of one text over caches of its own, whatever else runs; texts and chats
 * are those of generate.c, with the folder's tokenizer and its chat template; draws are by the
 * request's seed.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chat_test.h"
#include "quantize_parts.h"

#define TEXT "/v1/completions"
#define CHAT "/v1/chat/completions"

enum { TOKENS = 20, CLIENTS = 16, BODY = 2048, ATTEMPTS = 100 };

static const char tiny[] = "test/model/tiny";
static const char letters_after[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;!?-_()";

/* ---- Tokens: each family, against the decoder ---- */

static struct model *opened(const char *path)
{
    struct model_options o = {.device = CODA_DEVICE_CPU, .context = 96};
    struct fault f = {{0}};
    struct model *m = model_open(path, &o, &f);
    CHECK(m, "%s: %s", path, f.text);
    return m;
}

static bool decoded(struct model *m, const int32_t *prompt, int count, int32_t *to)
{
    struct fault f = {{0}};
    model_rewind(m, 0);
    bool good = model_decode(m, prompt, count, &to[0], &f);
    for (int i = 0; good && i + 1 < TOKENS; i++) good = model_decode(m, &to[i], 1, &to[i + 1], &f);
    CHECK(good, "%s", f.text);
    return good;
}

static void write_prompt(char *body, const int32_t *prompt, int count, const char *more)
{
    int n = snprintf(body, BODY, "{\"prompt\": [");
    for (int i = 0; i < count; i++)
        n += snprintf(body + n, (size_t)(BODY - n), "%s%d", i ? ", " : "", prompt[i]);
    snprintf(body + n, (size_t)(BODY - n),
             "], \"max_tokens\": %d, \"ignore_eos\": true, \"return_token_ids\": true, %s}", TOKENS, more);
}

static void compare_model(const char *program, const char *path, const char *name)
{
    static const int lengths[] = {1, 5, 33};
    char body[BODY];
    struct running s = server_start(program, (const char *const[]){"--ids", "--rows", "16", "--sequences",
                                                                   "4", "--context", "96", path, NULL});
    struct model *m = opened(path);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int32_t prompt[40], want[TOKENS];
        for (int k = 0; k < lengths[i]; k++) prompt[k] = (k * 7 + 3 * (int)i) % 60;
        write_prompt(body, prompt, lengths[i], "\"temperature\": 0");
        struct answer *a = ask(s.port, TEXT, body, false);
        CHECK(a->status == 200 && a->count == TOKENS && a->prompt_tokens == lengths[i],
              "%s: status %d, %d tokens behind %d", name, a->status, a->count, a->prompt_tokens);
        if (a->count == TOKENS && m && decoded(m, prompt, lengths[i], want))
            CHECK(!memcmp(a->ids, want, sizeof want), "%s: other tokens behind %d than the decoder's", name,
                  lengths[i]);
        answer_free(a);
    }
    model_close(m);
    CHECK(server_stop(&s) == 0, "%s: the server did not end well", name);
}

static void compare_family(const char *program, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tiny, name);
    compare_model(program, path, name);
}

/* Products that are packed, and such as have a factor behind them, over pages. */
static void compare_quantised(const char *program)
{
    static const struct {
        const char *from;
        struct shrink how;
    } all[] = {{"llama", {SHRINK_INT4, 0, true}},
               {"qwen2", {SHRINK_FP8, 0, false}},
               {"mamba2", {SHRINK_INT4, 0, false}},
               {"qwen3_5", {SHRINK_FP8, 0, false}}};
    char base[] = "/tmp/chat_test_XXXXXX", from[256], folder[64], command[96];
    if (!mkdtemp(base)) return CHECK(false, "no folder");
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) {
        struct checkpoint c = {0};
        struct fault f = {{0}};
        snprintf(from, sizeof from, "%s/%s", tiny, all[i].from);
        snprintf(folder, sizeof folder, "%s/%d", base, i);
        bool good = checkpoint_open(&c, from, &f) && shrink_folder(&all[i].how, &c, from, folder, NULL, &f);
        CHECK(good, "%s: %s", from, f.text);
        if (good) compare_model(program, folder, all[i].from);
        checkpoint_close(&c);
    }
    snprintf(command, sizeof command, "rm -rf %s", base);
    CHECK(!system(command), "%s", command);
}

/* ---- Many at once, in few pages ---- */

/* Every second one draws. */
static void write_crowd(char (*body)[BODY])
{
    for (int i = 0; i < CLIENTS; i++) {
        int32_t prompt[64];
        int count = 1 + i * 11 % 50;
        char how[128];
        for (int k = 0; k < count; k++) prompt[k] = (k * (i + 3) + i) % 60;
        snprintf(how, sizeof how, "\"temperature\": %g, \"top_p\": 0.9, \"top_k\": %d, \"seed\": %d",
                 i % 2 ? 1.5 : 0, i % 4 == 1 ? 5 : 0, i);
        write_prompt(body[i], prompt, count, how);
    }
}

/* All have asked before the server sees the first of them. */
static void ask_together(const struct running *s, char (*body)[BODY], struct answer *const *alone,
                         const char *name)
{
    int fd[CLIENTS];
    kill(s->pid, SIGSTOP);
    for (int i = 0; i < CLIENTS; i++) fd[i] = ask_begin(s->port, TEXT, body[i]);
    kill(s->pid, SIGCONT);
    for (int i = 0; i < CLIENTS; i++) {
        struct answer *a = ask_end(fd[i], false);
        CHECK(a->count == TOKENS && answers_equal(alone[i], a),
              "%s: client %d: status %d, other tokens than alone", name, i, a->status);
        answer_free(a);
    }
}

static void compare_crowd(const char *program, const char *name)
{
    static char body[CLIENTS][BODY];
    static const char *const pools[] = {"64", "8"};
    struct answer *alone[CLIENTS];
    char path[256], preempted[96];
    snprintf(path, sizeof path, "%s/%s", tiny, name);
    snprintf(preempted, sizeof preempted, "coda_num_preemptions_total{model_name=\"%s\"}", name);
    write_crowd(body);
    for (int pool = 0; pool < 2; pool++) {
        struct running s = server_start(program, (const char *const[]){"--ids", "--rows", "24", "--sequences",
                                                                       "8", "--context", "96", "--pages",
                                                                       pools[pool], path, NULL});
        for (int i = 0; i < CLIENTS && !pool; i++) alone[i] = ask(s.port, TEXT, body[i], false);
        double preemptions = 0;
        for (int i = 0; i < (pool ? ATTEMPTS : 1) && !preemptions; i++) {
            ask_together(&s, body, alone, name);
            preemptions = metric(s.port, preempted);
        }
        CHECK((preemptions > 0) == (pool > 0), "%s, %s pages: %g preemptions", name, pools[pool],
              preemptions);
        CHECK(server_stop(&s) == 0, "%s: the server did not end well", name);
    }
    for (int i = 0; i < CLIENTS; i++) answer_free(alone[i]);
}

/* ---- Words: a tokenizer of letters, and a chat template, beside llama ---- */

void put_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0, "cannot write %s", path);
    if (f) fclose(f);
}

static void put_tokenizer(const char *folder)
{
    static const char *const names[] = {"<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"};
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    fputs("{\"version\":\"1.0\",\"added_tokens\":[", f);
    for (int i = 0; i < 5; i++)
        fprintf(f,
                "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"normalized\":false,\"single_word\":false,"
                "\"lstrip\":false,\"rstrip\":false}",
                i ? "," : "", i, names[i]);
    fputs("],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":{\"type\":"
          "\"Fuse\"},"
          "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"merges\":[],\"vocab\":{",
          f);
    for (int i = 0; i < 5; i++) fprintf(f, "\"%s\":%d,", names[i], i);
    fputs("\"\\n\":5", f);
    for (int i = 0; letters_after[i]; i++) fprintf(f, ",\"%c\":%d", letters_after[i], i + 6);
    fputs("}}}", f);
    fclose(f);
    put_file(folder, "tokenizer.json", text);
    free(text);
}

void copy_file(const char *from, const char *folder, const char *name)
{
    char path[512], data[4096];
    size_t n;
    snprintf(path, sizeof path, "%s/%s", from, name);
    FILE *in = fopen(path, "r");
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "w");
    CHECK(in && out, "cannot copy %s/%s", from, name);
    while (in && out && (n = fread(data, 1, sizeof data, in))) fwrite(data, 1, n, out);
    if (in) fclose(in);
    if (out) fclose(out);
}

void put_letters(const char *folder)
{
    char from[256];
    snprintf(from, sizeof from, "%s/llama", tiny);
    mkdir(folder, 0755);
    copy_file(from, folder, "config.json");
    copy_file(from, folder, "model.safetensors");
    put_tokenizer(folder);
    put_file(folder, "tokenizer_config.json",
             "{\"bos_token\": \"<s>\", \"chat_template\": \"{{ bos_token }}{%- for m in messages %}"
             "{{- '[' + m.role | upper + '] ' + m.content | trim }}{% endfor %}"
             "{% if m is undefined and loud is defined %}{{ '!' * loud }}{% endif %}\"}");
}

/* What generate prints, without the newline at the end. */
static char *generated(const char *program, const char *options, const char *folder, const char *prompt)
{
    char command[2048], *text = calloc(1, 4096);
    const char *slash = strrchr(program, '/');
    snprintf(command, sizeof command, "%.*s/generate --cpu %s %s '%s' 2>/dev/null", (int)(slash - program),
             program, options, folder, prompt);
    FILE *f = popen(command, "r");
    size_t n = f ? fread(text, 1, 4095, f) : 0;
    CHECK(f && !pclose(f) && n, "%s", command);
    if (n) text[n - 1] = 0;
    return text;
}

static struct answer *checked(int port, const char *path, const char *body, const char *want,
                              const char *what)
{
    char streamed[BODY];
    snprintf(streamed, sizeof streamed,
             "{\"stream\": true, \"stream_options\": {\"include_usage\": true}, %s", body + 1);
    struct answer *a = ask(port, path, body, false), *b = ask(port, path, streamed, true);
    CHECK(a->status == 200 && a->text && !strcmp(a->text, want), "%s: status %d, '%s', not '%s'", what,
          a->status, a->text ? a->text : "", want);
    CHECK(a->text && b->text && !strcmp(a->text, b->text) && b->completion_tokens == a->completion_tokens,
          "%s: as a stream '%s'", what, b->text ? b->text : "");
    answer_free(b);
    return a;
}

static void compare_words(const char *program, int port, const char *folder)
{
    char *want = generated(program, "--tokens 12", folder, "a fox");
    answer_free(checked(port, TEXT, "{\"prompt\": \"a fox\", \"max_tokens\": 12, \"temperature\": 0}", want,
                        "a text"));
    free(want);
    want = generated(program, "--tokens 12 --temperature 1.3 --top-p 0.95 --seed 9", folder, "a fox");
    answer_free(checked(port, TEXT,
                        "{\"prompt\": \"a fox\", \"max_tokens\": 12, \"temperature\": 1.3, \"top_p\": 0.95, "
                        "\"seed\": 9}",
                        want, "a draw"));
    free(want);
    want = generated(program, "--tokens 12 --temperature 1.3 --top-k 4 --seed 9", folder, "a fox");
    answer_free(checked(port, TEXT,
                        "{\"prompt\": \"a fox\", \"max_tokens\": 12, \"temperature\": 1.3, \"top_k\": 4, "
                        "\"seed\": 9}",
                        want, "a draw of 4"));
    free(want);
    want = generated(program, "--tokens 12 --chat", folder, "a fox");
    struct answer *a = checked(port, CHAT,
                               "{\"messages\": [{\"role\": \"user\", \"content\": \" a fox\\n\"}], "
                               "\"max_tokens\": 12, \"temperature\": 0}",
                               want, "a chat");
    CHECK(a->prompt_tokens == 1 + 7 + 5, "a chat: %d tokens by its template", a->prompt_tokens);
    answer_free(a);
    free(want);
    want = generated(program, "--tokens 12", folder, "<s>[USER] a fox!!!");
    answer_free(checked(port, CHAT,
                        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
                        "\"a fox\"}]}], \"max_tokens\": 12, \"temperature\": 0, "
                        "\"chat_template_kwargs\": {\"loud\": 3}}",
                        want, "a chat with more variables"));
    free(want);
}

/* ---- Probabilities ---- */

static json_t *asked(int port, const char *path, const char *body)
{
    struct reply r = http(port, "POST", path, body);
    json_t *v = json_loadb(r.body, r.bytes, 0, NULL);
    CHECK(r.status == 200 && v, "%s: status %d: %s", path, r.status, r.body);
    reply_free(&r);
    return v;
}

/* Of a greedy answer each token is the likeliest, and lines of generate have the same numbers. */
static void compare_logprobs(const char *program, int port, const char *folder)
{
    char *lines = generated(program, "--tokens 3 --logprobs", folder, "a fox");
    json_t *v =
        asked(port, TEXT, "{\"prompt\": \"a fox\", \"max_tokens\": 3, \"temperature\": 0, \"logprobs\": 2}");
    json_t *l = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs"), *top;
    const char *line = lines, *name;
    for (size_t i = 0; i < 3; i++) {
        double want = NAN, got = json_number_value(json_array_get(json_object_get(l, "token_logprobs"), i)),
               most = -1e9;
        sscanf(line, "%*d %lf", &want);
        CHECK(fabs(want - got) < 1e-4, "token %zu: logprob %g, by generate %g", i, got, want);
        json_object_foreach(json_array_get(json_object_get(l, "top_logprobs"), i), name, top) most =
            fmax(most, json_number_value(top));
        CHECK(json_object_size(json_array_get(json_object_get(l, "top_logprobs"), i)) == 2 && most == got,
              "token %zu: the likeliest has %g, the token %g", i, most, got);
        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : "";
    }
    json_decref(v);
    free(lines);
    v = asked(
        port, CHAT,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_tokens\": 2, \"temperature\": 0, "
        "\"logprobs\": true, \"top_logprobs\": 3}");
    l = json_object_get(json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs"),
                        "content");
    CHECK(json_array_size(l) == 2, "logprobs of %zu tokens of 2", json_array_size(l));
    json_t *one = json_array_get(l, 0), *first = json_array_get(json_object_get(one, "top_logprobs"), 0);
    CHECK(json_array_size(json_object_get(one, "top_logprobs")) == 3 &&
              json_equal(json_object_get(one, "token"), json_object_get(first, "token")) &&
              json_equal(json_object_get(one, "logprob"), json_object_get(first, "logprob")),
          "the first token is not the first of the likeliest");
    json_decref(v);
}

/* A token that ends texts by generation_config.json: the answer stops there, and does not have it. */
static void compare_end(const char *program, const char *folder)
{
    char text[64], *plain = generated(program, "--tokens 12", folder, "a fox");
    const char *at = strchr(letters_after, plain[4]);
    CHECK(at, "'%s' has no letter to stop at", plain);
    snprintf(text, sizeof text, "{\"eos_token_id\": [2, %d]}", at ? (int)(at - letters_after) + 6 : 2);
    put_file(folder, "generation_config.json", text);
    struct running s = server_start(program, (const char *const[]){"--context", "96", folder, NULL});
    char *want = generated(program, "--tokens 12", folder, "a fox");
    struct answer *a = checked(
        s.port, TEXT, "{\"prompt\": \"a fox\", \"max_tokens\": 12, \"temperature\": 0}", want, "an end");
    CHECK(strlen(want) < 5 && !strcmp(a->reason, "stop") && a->completion_tokens == (int)strlen(want) + 1,
          "'%s' of '%s': %s, %d tokens", want, plain, a->reason, a->completion_tokens);
    answer_free(a);
    CHECK(server_stop(&s) == 0, "the server did not end well");
    free(want);
    free(plain);
}

void test_words(const char *program)
{
    char base[] = "/tmp/chat_test_XXXXXX", folder[64], command[96];
    if (!mkdtemp(base)) return CHECK(false, "no folder");
    snprintf(folder, sizeof folder, "%s/letters", base);
    put_letters(folder);
    struct running s = server_start(program, (const char *const[]){"--context", "96", folder, NULL});
    compare_words(program, s.port, folder);
    compare_logprobs(program, s.port, folder);
    struct reply r = http(s.port, "POST", CHAT,
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                          "\"chat_template_kwargs\": {\"loud\": \"x\"}}");
    CHECK(r.status == 400 && strstr(r.body, "chat template: line 1"), "a template that fails: %d: %s",
          r.status, r.body);
    reply_free(&r);
    r = http(s.port, "GET", "/v1/models", NULL);
    CHECK(strstr(r.body, "\"id\":\"letters\""), "the model's name: %s", r.body);
    reply_free(&r);
    CHECK(server_stop(&s) == 0, "the server did not end well");
    compare_end(program, folder);
    snprintf(command, sizeof command, "rm -rf %s", base);
    CHECK(!system(command), "%s", command);
}

void test_checkpoints(const char *program)
{
    static const char *const names[] = {
        "llama",    "llama3", "mistral",           "qwen2", "qwen3",  "phi3",    "gemma",      "gemma2",
        "gemma3",   "gpt2",   "llama3/model.gguf", "mamba", "mamba2", "qwen3_5", "nemotron_h", "granite4",
        "falcon_h1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) compare_family(program, names[i]);
    compare_quantised(program);
    compare_crowd(program, "gemma3");
    compare_crowd(program, "qwen3_5");
    if (getenv("CODA_FULL")) compare_crowd(program, "qwen3"), compare_crowd(program, "mamba2");
}
