/*
 * plain.c -- what is no plain file, in place of each file of a checkpoint: one line, and nobody waits.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "model_test.h"
#include "text.h"
#include "tokenizer.h"
#include "turns.h"

static const char *folder; /* of a checkpoint that has all of them */

static const char *path_of(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(path_of(name), "wb");
    CHECK(f && fputs(text, f) >= 0 && !fclose(f), "%s cannot be written", name);
}

static void copy(const char *from, const char *to)
{
    size_t n;
    static char data[1 << 20];
    FILE *f = fopen(from, "rb");
    n = f ? fread(data, 1, sizeof data, f) : 0;
    if (f) fclose(f);
    f = fopen(path_of(to), "wb");
    CHECK(n && f && fwrite(data, 1, n, f) == n && !fclose(f), "%s cannot be copied", from);
}

/* ---- Who reads ---- */

static bool opens_model(struct fault *f)
{
    struct model_options o = {.device = CODA_DEVICE_CPU, .rows = 16};
    struct model *m = model_open(folder, &o, f);
    model_close(m);
    return m != NULL;
}

static bool opens_gguf(struct fault *f)
{
    struct model_options o = {.device = CODA_DEVICE_CPU, .rows = 16};
    struct model *m = model_open(path_of("model.gguf"), &o, f);
    model_close(m);
    return m != NULL;
}

static bool opens_chat(struct fault *f)
{
    struct tokenizer *t = text_tokenizer(folder, f);
    struct turns *turns = t ? turns_open(folder, NULL, t, f) : NULL;
    bool good = turns != NULL;
    turns_close(turns);
    if (t) tokenizer_close(t);
    return good;
}

static bool opens_words(struct fault *f)
{
    struct tokenizer *t = text_tokenizer(folder, f);
    if (t) tokenizer_close(t);
    return t != NULL;
}

static const struct {
    const char *name;
    bool (*opens)(struct fault *f);
    const char *without; /* files that would be read before it */
} files[] = {{"config.json", opens_model, ""},
             {"generation_config.json", opens_model, ""},
             {"model.safetensors", opens_model, ""},
             {"model.safetensors.index.json", opens_model, ""},
             {"adapter_config.json", opens_model, ""},
             {"modules.json", opens_model, ""},
             {"1_Pooling/config.json", opens_model, ""},
             {"2_Dense/model.safetensors", opens_model, ""},
             {"sentence_bert_config.json", opens_model, ""},
             {"config_sentence_transformers.json", opens_model, ""},
             {"tokenizer_config.json", opens_model, ""},
             {"model.gguf", opens_gguf, ""},
             {"tokenizer.json", opens_words, ""},
             {"tokenizer_config.json", opens_words, ""},
             {"special_tokens_map.json", opens_words, ""},
             {"added_tokens.json", opens_words, ""},
             {"vocab.json", opens_words, "tokenizer.json"},
             {"merges.txt", opens_words, "tokenizer.json"},
             {"vocab.txt", opens_words, "tokenizer.json vocab.json"},
             {"chat_template.jinja", opens_chat, ""},
             {"chat_template.json", opens_chat, "chat_template.jinja"}};

/* ---- What is there instead ---- */

static bool make_fifo(const char *path) { return !mkfifo(path, 0600); }
static bool make_zero(const char *path) { return !symlink("/dev/zero", path); }
static bool make_null(const char *path) { return !symlink("/dev/null", path); }
static bool make_folder(const char *path) { return !mkdir(path, 0700); }
static bool make_dangling(const char *path) { return !symlink("nothing", path); }
static bool make_loop(const char *path)
{
    const char *name = strrchr(path, '/');
    return !symlink(name + 1, path);
}

static bool make_huge(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    bool good = fd >= 0 && !ftruncate(fd, (off_t)1 << 40);
    if (fd >= 0) close(fd);
    return good;
}

static bool make_unreadable(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static bool make_socket(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) return false;
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a);
    if (fd >= 0) close(fd);
    return good;
}

static const struct {
    const char *what;
    bool (*make)(const char *path);
} kinds[] = {{"a FIFO", make_fifo},
             {"an endless device", make_zero},
             {"an empty device", make_null},
             {"a folder", make_folder},
             {"a link to nothing", make_dangling},
             {"a link to itself", make_loop},
             {"a terabyte", make_huge},
             {"a socket", make_socket},
             {"a secret", make_unreadable}};

static bool word_of(const char *words, const char *name)
{
    const char *at = strstr(words, name);
    size_t n = strlen(name);
    return at && (at == words || at[-1] == ' ') && (!at[n] || at[n] == ' ');
}

static void hide(const char *words, bool back)
{
    char from[640], to[640];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!word_of(words, files[i].name)) continue;
        snprintf(from, sizeof from, "%s/%s", folder, files[i].name);
        snprintf(to, sizeof to, "%s/hidden.%zu", folder, i);
        if (back) rename(to, from);
        else rename(from, to);
    }
}

static void try_kind(size_t i, size_t kind)
{
    char path[640], aside[640];
    struct fault f = {{0}};
    const char *name = strrchr(files[i].name, '/');
    name = name ? name + 1 : files[i].name;
    snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
    snprintf(aside, sizeof aside, "%s/aside", folder);
    rename(path, aside);
    if (kinds[kind].make(path)) {
        bool good = files[i].opens(&f);
        CHECK(!good && strstr(f.text, name) && !strchr(f.text, '\n'), "%s as %s: '%s'", files[i].name,
              kinds[kind].what, f.text);
        remove(path);
    }
    rename(aside, path);
}

/* What a run left that was ended: to write to a FIFO would take for ever. */
static void clear(void)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) remove(path_of(files[i].name));
    remove(path_of("2_Dense/config.json"));
    remove(path_of("aside"));
}

/* Each is there, and a model, a tokenizer and a chat can be had of them. */
static void prepare(const char *tiny)
{
    char from[600];
    mkdir(folder, 0700);
    mkdir(path_of("1_Pooling"), 0700);
    mkdir(path_of("2_Dense"), 0700);
    clear();
    static const char *const copies[] = {"config.json", "model.safetensors", "1_Pooling/config.json",
                                         "2_Dense/config.json", "2_Dense/model.safetensors"};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        snprintf(from, sizeof from, "%s/gemma3_encoder/%s", tiny, copies[i]);
        copy(from, copies[i]);
    }
    snprintf(from, sizeof from, "%s/../tokenizers/gpt2/tokenizer.json", tiny);
    copy(from, "tokenizer.json");
    put("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2, \"<|endoftext|>\": 3}");
    put("merges.txt", "#version: 0.2\na b\n");
    put("modules.json",
        "[{\"path\": \"\", \"type\": \"a.Transformer\"}, {\"path\": \"1_Pooling\", \"type\": \"a.Pooling\"},"
        " {\"path\": \"2_Dense\", \"type\": \"a.Dense\"}]");
    put("chat_template.jinja", "{{ messages[0].content }}");
    struct fault f = {{0}};
    CHECK(opens_model(&f), "%s", f.text);
    CHECK(opens_chat(&f), "%s", f.text);
    hide("tokenizer.json", false);
    CHECK(opens_words(&f), "%s", f.text);
    hide("tokenizer.json", true);
}

void test_plain(const char *tiny, const char *scratch)
{
    char there[512];
    snprintf(there, sizeof there, "%s/plain", scratch);
    folder = there;
    alarm(300); /* who waits for ever is ended */
    prepare(tiny);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        hide(files[i].without, false);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (geteuid() || kinds[k].make != make_unreadable) try_kind(i, k);
        hide(files[i].without, true);
    }
    alarm(0);
    struct fault f = {{0}};
    CHECK(opens_model(&f), "%s", f.text);
}
