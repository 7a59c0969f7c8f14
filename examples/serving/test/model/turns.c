/*
 * turns.c -- which chat template a checkpoint has: files in their order, a GGUF file's, and for those that
 * have none the words that belong to the tokenizer's special tokens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_test.h"
#include "turns.h"

static const char chat[] =
    "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"},"
    " {\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"v\"}]";

static struct tokenizer *tokens_of(const char *tiny, const char *name, char folder[512])
{
    char err[400] = "";
    snprintf(folder, 512, "%s/../tokenizers/%s", tiny, name);
    struct tokenizer *t = tokenizer_open(folder, err, sizeof err);
    CHECK(t, "%s: %s", name, err);
    return t;
}

/* The prompt of the chat is `want`, by a template of the checkpoint's own or not. */
static void expect(const char *model, const json_t *config, struct tokenizer *t, const char *want, bool own)
{
    struct fault f = {{0}};
    json_t *messages = json_loads(chat, 0, NULL);
    struct turns *turns = turns_open(model, config, t, &f);
    char *text = NULL;
    if (turns) turns_prompt(turns, messages, NULL, NULL, &text, &f);
    CHECK(text && !strcmp(text, want) && turns_own(turns) == own, "%s: '%s', not '%s'; %s", model,
          text ? text : "", want, f.text);
    free(text);
    turns_close(turns);
    json_decref(messages);
}

/* ---- Without a template ---- */

static void known(const char *tiny, const char *name, const char *end, const char *want)
{
    char folder[512];
    struct tokenizer *t = tokens_of(tiny, name, folder);
    if (!t) return;
    expect(folder, NULL, t, want, false);
    int wanted = end ? tokenizer_special(t, end) : -1;
    CHECK(turns_end(t) == wanted && (!end || wanted >= 0), "%s: answers end by %d, not %d", name,
          turns_end(t), wanted);
    tokenizer_close(t);
}

static void all_known(const char *tiny)
{
    known(
        tiny, "qwen2", "<|im_end|>",
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
        "<|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n");
    known(tiny, "llama3", "<|eot_id|>",
          "<|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|><|start_header_id|>user<|end_header_id|>"
          "\n\nu"
          "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\na<|eot_id|>"
          "<|start_header_id|>user<|end_header_id|>\n\nv<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n");
    known(
        tiny, "gemma", "<end_of_turn>",
        "<start_of_turn>user\ns<end_of_turn>\n<start_of_turn>user\nu<end_of_turn>\n"
        "<start_of_turn>model\na<end_of_turn>\n<start_of_turn>user\nv<end_of_turn>\n<start_of_turn>model\n");
    known(tiny, "mistral", NULL, "[INST] s[/INST][INST] u[/INST] a</s>[INST] v[/INST]");
    char folder[512];
    struct fault f = {{0}};
    struct tokenizer *t = tokens_of(tiny, "llama2", folder);
    struct turns *none = t ? turns_open(folder, NULL, t, &f) : NULL;
    CHECK(!none && strstr(f.text, "no special tokens of a chat"), "a chat of llama2: '%s'", f.text);
    turns_close(none);
    if (t) tokenizer_close(t);
}

/* ---- Files ---- */

static void put(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, bytes, f) == bytes, "cannot write %s", path);
    if (f) fclose(f);
}

static void put_text(const char *folder, const char *name, const char *text)
{
    put(folder, name, text, strlen(text));
}

/* What comes first is what is put last. */
static void files(const char *tiny, const char *scratch)
{
    static const char *const names[] = {"chat_template.json", "tokenizer_config.json", "chat_template.jinja"};
    char from[512], folder[512], path[1024];
    struct fault f = {{0}};
    struct tokenizer *t = tokens_of(tiny, "qwen2", from);
    json_t *config = json_pack("{s:s}", "chat_template", "G{{ messages | length }}");
    snprintf(folder, sizeof folder, "%s/turns", scratch);
    mkdir(folder, 0755);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    expect(folder, config, t, "G4", true);
    put_text(folder, names[0], "{\"chat_template\": \"J{{ messages[1].content }}{{ bos_token }}\"}");
    expect(folder, config, t, "Ju", true);
    put_text(folder, names[1],
             "{\"bos_token\": {\"content\": \"<B>\"}, \"eos_token\": \"<E>\", \"chat_template\": ["
             "{\"name\": \"tool_use\", \"template\": \"T\"}, {\"name\": \"default\", "
             "\"template\": \"{{ bos_token }}D{{ eos_token }}{{ tools is none }}\"}]}");
    expect(folder, config, t, "<B>D<E>True", true);
    put_text(folder, names[2],
             "{% for m in messages %}\n{{ m.role[0] }}\n{% endfor %}\n{{ add_generation_prompt }}\n");
    expect(folder, config, t, "s\nu\na\nu\nTrue", true);
    put_text(folder, names[2], "\n{% if %}");
    CHECK(!turns_open(folder, config, t, &f) && strstr(f.text, "chat template: line 2"), "'%s'", f.text);
    json_decref(config);
    if (t) tokenizer_close(t);
}

/* The tiny file with a template more: 64 bytes behind its header, so that all stays aligned. */
static void gguf(const char *tiny, const char *scratch)
{
    static const char extra[65] =
        "\x17\0\0\0\0\0\0\0tokenizer.chat_template\x08\0\0\0\x15\0\0\0\0\0\0\0G{{messages[0].role}}";
    enum { HEADER = 24, VALUES = 16 };
    char path[512], from[512];
    struct fault f = {{0}};
    struct checkpoint c;
    struct mapped_file map = {0};
    struct tokenizer *t = tokens_of(tiny, "llama2", from);
    snprintf(path, sizeof path, "%s/llama3/model.gguf", tiny);
    c = (struct checkpoint){0};
    if (!checkpoint_map(&c, path, &map, &f)) return CHECK(false, "%s", f.text);
    char *data = malloc(map.bytes + 64);
    memcpy(data, map.data, HEADER);
    memcpy(data + HEADER, extra, 64);
    memcpy(data + HEADER + 64, map.data + HEADER, map.bytes - HEADER);
    data[VALUES]++;
    snprintf(path, sizeof path, "%s/turns_gguf", scratch);
    mkdir(path, 0755);
    put(path, "model.gguf", data, map.bytes + 64);
    checkpoint_close(&c);
    free(data);
    strcat(path, "/model.gguf");
    bool good = checkpoint_open(&c, path, &f);
    CHECK(good, "%s", f.text);
    if (good) expect(path, c.config, t, "Gsystem", true), checkpoint_close(&c);
    if (t) tokenizer_close(t);
}

void test_turns(const char *tiny, const char *scratch)
{
    all_known(tiny);
    files(tiny, scratch);
    gguf(tiny, scratch);
}
