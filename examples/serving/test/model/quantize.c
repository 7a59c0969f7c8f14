/*
 * quantize.c -- what quantize writes: each number is near the one that it stands for, no farther than by
 * rounding to the nearest, and the model that reads it computes almost the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "packing.h"
#include "quant_file.h"
#include "quantize_parts.h"
#include "tensor.h"

static const struct {
    const char *name;
    struct shrink how;
    double matrix, logits; /* bars of relative errors */
} all[] = {{"fp8", {SHRINK_FP8, 0, false}, 0.03, 0.06},
           {"fp8 by blocks", {SHRINK_FP8_BLOCK, 0, false}, 0.03, 0.06},
           {"int4 of 16", {SHRINK_INT4, 16, false}, 0.10, 0.25},
           {"int4 of 32", {SHRINK_INT4, 32, false}, 0.10, 0.25},
           {"int4 of 64 with zero points", {SHRINK_INT4, 64, true}, 0.10, 0.25},
           {"int4 of rows", {SHRINK_INT4, 0, false}, 0.15, 0.35}};

/* Row n of a matrix in the layout of the file that was written. */
static bool read_row(const struct stored_matrix *m, const char *packed, int64_t n, float *row)
{
    if (m->layout != STORED_SCALED)
        return coda_unpack(&m->format, packed, m->rows, m->columns, n, 0, m->columns, row) == CODA_OK;
    for (int64_t k = 0; k < m->columns; k++)
        row[k] = (float)double_of_f8(m->codes->data[n * m->columns + k]) * stored_number(m->scales, n);
    return true;
}

/* The sum of squares that rounding to steps of the largest number over 7 loses, with groups of so many; over
 * 7.5 with groups of 16, as compressed-tensors has it: over 7 the largest number is exact, and of 16 it has
 * a large share. */
static double plain_loss(const float *x, int64_t n, int64_t group)
{
    double lost = 0;
    float steps = group == 16 ? 7.5F : 7;
    for (int64_t g = 0; g < n; g += group) {
        float most = 0;
        for (int64_t i = g; i < g + group; i++) most = fmaxf(most, fabsf(x[i]));
        for (int64_t i = g; i < g + group && most > 0; i++) {
            double q = fmin((double)rintf(x[i] / (most / steps)), 7);
            double d = (double)x[i] - q * (double)most / (double)steps;
            lost += d * d;
        }
    }
    return lost;
}

static void check_matrix(size_t at, const struct stored_matrix *m, const struct stored_tensor *want)
{
    size_t bytes =
        m->layout == STORED_SCALED ? 0 : (size_t)coda_packed_bytes(&m->format, m->rows, m->columns);
    struct weight w = {.kind = WEIGHT_PACKED, .matrix = {*m}, .parts = 1, .name = want->name, .bytes = bytes};
    struct device d;
    struct fault f = {{0}};
    char *packed = malloc(bytes + 1);
    float *row = malloc((size_t)m->columns * sizeof *row), *x = malloc((size_t)m->columns * sizeof *x);
    double lost = 0, size = 0, plain = 0;
    int64_t group = m->group ? m->group : m->columns;
    device_open(&d, CODA_DEVICE_CPU);
    bool good = !bytes || weight_load(&w, &d, packed, &f);
    CHECK(good, "%s: %s", all[at].name, f.text);
    for (int64_t n = 0; good && n < m->rows; n++) {
        good = read_row(m, packed, n, row);
        for (int64_t k = 0; k < m->columns; k++) {
            x[k] = stored_number(want, n * m->columns + k);
            lost += ((double)row[k] - x[k]) * ((double)row[k] - x[k]);
            size += (double)x[k] * x[k];
        }
        if (all[at].how.format == SHRINK_INT4) plain += plain_loss(x, m->columns, group);
    }
    CHECK(good && sqrt(lost / size) <= all[at].matrix, "%s: %s is off by %.3e", all[at].name, want->name,
          sqrt(lost / size));
    CHECK(all[at].how.format != SHRINK_INT4 || lost <= plain, "%s: %s loses %.3e, plain rounding %.3e",
          all[at].name, want->name, lost, plain);
    free(packed);
    free(row);
    free(x);
}

static void check_file(size_t at, const char *folder, const struct checkpoint *plain)
{
    struct checkpoint c = {0};
    struct config *config = calloc(1, sizeof *config);
    struct fault f = {{0}};
    bool good = checkpoint_open(&c, folder, &f) && config_read(config, c.config, &f);
    CHECK(good, "%s: %s", all[at].name, f.text);
    for (int i = 0; good && i < plain->count; i++) {
        const struct stored_tensor *t = &plain->tensor[i], *same = checkpoint_find(&c, t->name);
        struct stored_matrix m = {0};
        char stem[160];
        if (t->rank != 2 || !strstr(t->name, "_proj.")) {
            CHECK(same && same->bytes == t->bytes && !memcmp(same->data, t->data, t->bytes),
                  "%s: %s is another one", all[at].name, t->name);
            continue;
        }
        snprintf(stem, sizeof stem, "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
        bool found =
            stored_find(&config->quant, &c, stem, t->dims[0], t->dims[1], &m, &f) && packing_format(&m, &f);
        CHECK(found, "%s: %s", all[at].name, f.text);
        if (found) check_matrix(at, &m, t);
    }
    checkpoint_close(&c);
    free(config);
}

/* Logits behind a few tokens. */
static float *logits_of(const char *folder, int *n)
{
    static const int32_t ids[] = {3, 60, 1, 17, 42, 9};
    struct model_options o = {.device = CODA_DEVICE_CPU, .context = 32};
    struct fault f = {{0}};
    int32_t next;
    struct model *m = model_open(folder, &o, &f);
    float *logits = m ? malloc((size_t)m->config.vocabulary * sizeof *logits) : NULL;
    CHECK(m && model_decode(m, ids, 6, &next, &f) && model_logits(m, logits, 1, &f), "%s", f.text);
    *n = m ? m->config.vocabulary : 0;
    model_close(m);
    return logits;
}

static void remove_all(const char *folder)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(!system(command), "%s", command);
}

/* A folder that is there, be it the model's own, is refused, and its files stay as they are. */
static void check_untouched(const char *plain, const struct checkpoint *from, const char *folder)
{
    static const char *const names[] = {"model.safetensors", "config.json"};
    char path[600];
    struct stat before[2], after;
    struct fault f = {{0}};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        CHECK(!stat(path, &before[i]), "%s is not there", path);
    }
    CHECK(!shrink_folder(&all[0].how, from, plain, folder, NULL, &f) &&
              strstr(f.text, " is there already: quantize writes a new folder"),
          "%s: '%s'", folder, f.text);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        CHECK(!stat(path, &after) && after.st_ino == before[i].st_ino && after.st_size == before[i].st_size &&
                  after.st_mtim.tv_sec == before[i].st_mtim.tv_sec &&
                  after.st_mtim.tv_nsec == before[i].st_mtim.tv_nsec,
              "%s was written", path);
    }
}

/* A number that is not finite ends it while it writes: no folder is left in the way of the next try. */
static void check_unfinished(const struct checkpoint *from, const char *scratch)
{
    char folder[512];
    struct checkpoint odd = *from;
    struct fault f = {{0}};
    snprintf(folder, sizeof folder, "%s/unfinished", scratch);
    remove_all(folder);
    odd.tensor = malloc((size_t)from->count * sizeof *odd.tensor);
    memcpy(odd.tensor, from->tensor, (size_t)from->count * sizeof *odd.tensor);
    for (int i = 0; i < odd.count; i++) {
        struct stored_tensor *t = &odd.tensor[i];
        if (t->rank != 2 || !strstr(t->name, "down_proj.")) continue;
        unsigned char *data = malloc(t->bytes);
        t->data = memset(data, 0xff, t->bytes); /* NaN of each type */
        CHECK(!shrink_folder(&all[0].how, &odd, scratch, folder, NULL, &f) && strstr(f.text, t->name),
              "'%s' does not say %s", f.text, t->name);
        CHECK(access(folder, F_OK), "%s is there", folder);
        free(data);
        break;
    }
    free(odd.tensor);
}

void test_quantize(const char *tiny, const char *scratch)
{
    char plain[512], folder[512];
    struct checkpoint from = {0};
    struct fault f = {{0}};
    int n;
    (void)tiny;
    quant_write(&quant_kinds[0], scratch, "qwen2", 3);
    snprintf(plain, sizeof plain, "%s/plain", scratch);
    snprintf(folder, sizeof folder, "%s/shrunk", scratch);
    CHECK(checkpoint_open(&from, plain, &f), "%s", f.text);
    float *want = logits_of(plain, &n);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        remove_all(folder);
        CHECK(shrink_folder(&all[i].how, &from, plain, folder, NULL, &f), "%s: %s", all[i].name, f.text);
        check_file(i, folder, &from);
        float *logits = logits_of(folder, &n);
        double e = logits && want ? relative_error(logits, want, n) : 1;
        CHECK(e <= all[i].logits, "%s: logits are off by %.3e", all[i].name, e);
        free(logits);
    }
    struct shrink odd = {SHRINK_INT4, 96, false};
    CHECK(!shrink_folder(&odd, &from, plain, folder, NULL, &f) &&
              strstr(f.text, "groups of 96 do not divide"),
          "%s", f.text);
    check_untouched(plain, &from, plain);
    check_untouched(plain, &from, folder);
    check_unfinished(&from, scratch);
    free(want);
    checkpoint_close(&from);
}
