/*
 * main.c -- tokenizer_test DIR [VOCABULARY [SEED ROUNDS]] tests tokenizer by the
 * tokenizers in DIR and what the package `tokenizers` did with them (make_tokenizers.py). VOCABULARY is a
 * folder with the tokenizer of all-MiniLM-L6-v2; where it is not there, that part is left out, and a line
 * says so.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokenizer_test.h"

static int failures, checks;

bool check(bool good, const char *format, ...)
{
    checks++;
    if (good || failures++ > 40) return good;
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    puts("");
    return false;
}

json_t *load(const char *dir, const char *name)
{
    char path[600];
    json_error_t e;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    json_t *v = json_load_file(path, JSON_ALLOW_NUL, &e);
    if (!v) {
        printf("%s, line %d: %s\n", path, e.line, e.text);
        exit(1);
    }
    return v;
}

void store(const char *dir, const char *name, const char *text, size_t n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text, 1, n, f) != n || fclose(f) != 0) {
        printf("%s: %s\n", path, strerror(errno));
        exit(1);
    }
}

static char folder[64] = "";

static void empty_folder(void)
{
    static const char *const names[] = {
        "tokenizer.json", "tokenizer_config.json",   "vocab.json",  "merges.txt",
        "vocab.txt",      "special_tokens_map.json", "config.json", "added_tokens.json"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
}

const char *new_folder(void)
{
    if (*folder) empty_folder();
    else {
        strcpy(folder, "/tmp/tokenizer_test.XXXXXX");
        if (!mkdtemp(folder)) exit(1);
    }
    return folder;
}

int main(int argc, char **argv)
{
    if (argc < 2) return puts("usage: tokenizer_test DIR [VOCABULARY [SEED ROUNDS]]"), 1;
    unsigned seed = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;
    int rounds = argc > 4 ? atoi(argv[4]) : 300;
    check_goldens(argv[1]);
    check_legacy(argv[1]);
    check_settings(argv[1]);
    check_gguf(argv[1]);
    if (argc > 2) check_real(argv[1], argv[2]);
    check_refused(argv[1]);
    check_calls(argv[1]);
    check_limits(argv[1]);
    check_fuzz(argv[1], seed, rounds);
    if (*folder) empty_folder(), rmdir(folder);
    printf("%d passed, %d failed\n", checks - failures, failures);
    return failures != 0;
}
