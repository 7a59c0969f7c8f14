/*
 * texts.c -- documents of a file, windows of a corpus, numbers of a schedule.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"
#include "tokenizer.h"
#include "train_schedule.h"
#include "train_source.h"
#include "train_test.h"

/* ---- Numbers ---- */

void test_schedule(const char *tiny, const char *scratch)
{
    const struct schedule s = {.rate = 0.01, .warmup = 10, .steps = 110};
    (void)tiny, (void)scratch;
    const struct {
        int64_t step;
        double rate;
    } wanted[] = {{1, 0.001}, {5, 0.005}, {10, 0.01}, {35, 0.0086819805}, {60, 0.0055}, {110, 0.001}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        double rate = (double)schedule_rates(&s, wanted[i].step).rate;
        CHECK(fabs(rate - wanted[i].rate) <= 1e-7 * 0.01 + 1e-9, "step %lld: rate %.9f, not %.9f",
              (long long)wanted[i].step, rate, wanted[i].rate);
    }
    struct rates r = schedule_rates(&s, 2);
    CHECK(fabs((double)r.unbias_m - 1 / 0.19) < 1e-5 && fabs((double)r.unbias_v - 1 / 0.0975) < 1e-5,
          "corrections of step 2: %.7f, %.7f", (double)r.unbias_m, (double)r.unbias_v);
    double none = (double)schedule_rates(&(struct schedule){.rate = 1, .warmup = 0, .steps = 1}, 1).rate;
    CHECK(fabs(none - 0.1) < 1e-6, "the last step of one without a warm-up: %.7f", none);
}

/* ---- Windows ---- */

/* Each token is an input once, and a target once but where a document begins, whatever the window. */
static void one_epoch(struct windows *w, struct batch *b, int *seen, int64_t *targets)
{
    struct fault f = {{0}};
    int64_t epoch = w->epoch;
    memset(seen, 0, sizeof *seen * (size_t)w->c->count);
    for (*targets = 0; w->epoch == epoch;) {
        CHECK(batch_fill(b, w, &f) && b->filled, "%s", f.text);
        for (int64_t i = 0; i < b->rows * b->tokens; i++) {
            int32_t lo = b->ranges[2 * i], hi = b->ranges[2 * i + 1], at = (int32_t)(i % b->tokens);
            CHECK(hi == at + 1 && lo >= 0 && lo <= at, "token %d sees %d to %d", at, lo, hi);
            if (b->ids[i]) seen[b->ids[i]]++;
            if (b->target[i] != NO_TARGET)
                CHECK(b->target[i] == b->ids[i] + 1 && b->positions[i] == at - lo, "a target of %d is %d",
                      b->ids[i], b->target[i]);
        }
        *targets += b->targets;
    }
}

void test_windows(const char *tiny, const char *scratch)
{
    enum { TOKENS = 203 };
    int32_t id[TOKENS], place[TOKENS];
    int seen[TOKENS];
    struct fault f = {{0}};
    struct batch b, other;
    struct corpus c = {.id = id, .place = place, .count = TOKENS, .learned = TOKENS};
    (void)tiny, (void)scratch;
    for (int i = 0; i < TOKENS; i++) id[i] = i, place[i] = i % 29; /* token 0 is what fills rows, too */
    struct windows w = {.c = &c, .from = 0, .to = TOKENS, .tokens = 16, .seed = 9}, again = w;
    CHECK(batch_open(&b, 3, 16, &f) && batch_open(&other, 3, 16, &f) && windows_begin(&w, 0, 0, &f), "%s",
          f.text);
    int32_t first[2][4];
    for (int e = 0; e < 4; e++) {
        int64_t targets;
        memcpy(first[e & 1], w.order, sizeof first[0]);
        CHECK(!e || memcmp(first[0], first[1], sizeof first[0]), "two epochs have one order");
        one_epoch(&w, &b, seen, &targets);
        for (int i = 1; i < TOKENS; i++) CHECK(seen[i] == 1, "epoch %d has token %d %d times", e, i, seen[i]);
        CHECK(targets == TOKENS - 1 - (TOKENS - 1) / 29, "epoch %d has %lld targets", e, (long long)targets);
    }
    CHECK(batch_fill(&b, &w, &f) && windows_begin(&again, w.epoch, w.next, &f), "%s", f.text);
    for (int i = 0; i < 6; i++) {
        CHECK(batch_fill(&b, &w, &f) && batch_fill(&other, &again, &f), "%s", f.text);
        CHECK(b.filled == other.filled && !memcmp(b.ids, other.ids, 4 * 3 * 16),
              "other windows after a beginning");
    }
    batch_free(&b);
    batch_free(&other);
    windows_free(&w);
    windows_free(&again);
}

/* ---- Documents ---- */

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *to = fopen(path, "wb");
    CHECK(to && fwrite(text, 1, n, to) == n && !fclose(to), "%s cannot be written", path);
}

static void documents(const char *scratch, const char *text, size_t n, const char *separator,
                      const char *wanted)
{
    char path[512], got[256] = "";
    struct corpus c;
    struct fault f = {{0}};
    const struct corpus_format how = {
        .separator = separator, .begins = 0, .ends = 0, .vocabulary = 256, .held = 0};
    snprintf(path, sizeof path, "%s/documents.txt", scratch);
    write_file(path, text, n);
    bool good = corpus_read(&c, path, &how, &f);
    for (int64_t i = 0; good && i < c.count; i++) {
        char one[2] = {(char)(c.id[i] ? c.id[i] : '|'), 0};
        if (!c.place[i] && i) strcat(got, " ");
        strcat(got, one);
    }
    CHECK(good && !strcmp(got, wanted), "'%s', not '%s' %s", got, wanted, f.text);
    corpus_free(&c);
}

void test_documents(const char *tiny, const char *scratch)
{
    (void)tiny;
    documents(scratch, "abc\ndef", 7, NULL, "|abc\ndef|");
    documents(scratch, "abc\0de\0\0f", 9, NULL, "|abc| |de| |f|");
    documents(scratch, "abc\n==\nde\n==\n", 13, "==", "|abc| |de|");
    documents(scratch, "==abc====de==", 13, "==", "|abc| |de|");
    documents(scratch, "ab\0c==d", 7, "==", "|ab| |c| |d|");
    struct corpus c;
    struct fault f;
    char path[512];
    snprintf(path, sizeof path, "%s/documents.txt", scratch);
    write_file(path, "", 0);
    const struct corpus_format how = {.begins = -1, .ends = -1, .vocabulary = 256};
    CHECK(!corpus_read(&c, path, &how, &f) && strstr(f.text, "nothing to learn"), "an empty file: %s",
          f.text);
    corpus_free(&c);
    write_file(path, "a\xffz", 3);
    const struct corpus_format few = {.begins = -1, .ends = -1, .vocabulary = 200};
    CHECK(!corpus_read(&c, path, &few, &f) && strstr(f.text, "token 255 is not in the vocabulary of 200"),
          "%s", f.text);
    corpus_free(&c);
}

/* ---- Tokenizers that are written ---- */

static void compare(struct tokenizer *a, struct tokenizer *b, const char *text, const char *what)
{
    int32_t x[512], y[512];
    int n = tokenizer_encode(a, text, strlen(text), x, 512, NULL);
    int m = tokenizer_encode(b, text, strlen(text), y, 512, NULL);
    CHECK(n > 0 && n == m && !memcmp(x, y, sizeof *x * (size_t)n), "%s: '%s' has %d tokens, not %d", what,
          text, m, n);
}

/* What is written of a GGUF file makes the same ids; a tokenizer of bytes makes bytes. */
void test_vocabulary(const char *tiny, const char *scratch)
{
    static const char model[] = "stories260K/stories260K.gguf";
    static const char *const texts[] = {"Once upon a time, there was a girl.", "  two  blanks\nand a line",
                                        "", "caf\xc3\xa9 \xe2\x82\xac 12.5", "zzzqqq XYZ!?"};
    char why[256];
    struct fault f = {{0}};
    (void)tiny;
    CHECK(vocabulary_copy(model, scratch, &f), "%s", f.text);
    struct tokenizer *written = tokenizer_open(scratch, why, sizeof why);
    CHECK(written != NULL, "%s", why);
    struct tokenizer *own = text_tokenizer(model, &f);
    for (size_t i = 0; own && written && i < sizeof texts / sizeof *texts; i++)
        compare(own, written, texts[i], "GGUF's");
    if (own) tokenizer_close(own);
    if (written) tokenizer_close(written);

    int32_t ids[64];
    CHECK(vocabulary_write_bytes(scratch, &f), "%s", f.text);
    struct tokenizer *bytes = tokenizer_open(scratch, why, sizeof why);
    CHECK(bytes != NULL, "%s", why);
    if (!bytes) return;
    const char text[] = "a \xc3\xa9\n\x7f!";
    int n = tokenizer_encode(bytes, text, sizeof text - 1, ids, 64, NULL);
    CHECK(n == (int)sizeof text && ids[0] == BYTES_END, "%d tokens of %zu bytes", n, sizeof text - 1);
    for (int i = 1; i < n; i++) CHECK(ids[i] == (unsigned char)text[i - 1], "byte %d is token %d", i, ids[i]);
    CHECK(tokenizer_special(bytes, "eos") == BYTES_END, "no end");
    tokenizer_close(bytes);
}
