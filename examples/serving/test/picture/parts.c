/*
 * parts.c -- noise, steps, PNG and previews, each beside numbers that somebody else has made.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "noise.h"
#include "picture_test.h"
#include "preview.h"

/* ---- Noise ---- */

/* Known answers of Philox4x32-10 (Random123, kat_vectors): of counter and key 0 the words 6627e8d5 e169c58d
 * bc57ac4c 9b00dbd8, which Box and Muller make these numbers of. */
static void test_noise(void)
{
    static const uint32_t word[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static float many[1 << 16];
    float four[4];
    double sum = 0, square = 0;
    noise_fill(0, 0, 4, four);
    for (int i = 0; i < 4; i++) {
        double radius = sqrt(-2 * log((word[i & 2] + 0.5) / 4294967296.0)),
               turn = 2 * M_PI * word[(i & 2) + 1] / 4294967296.0;
        double wanted = radius * (i & 1 ? sin(turn) : cos(turn));
        CHECK(fabs((double)four[i] - wanted) < 1e-6, "noise %d is %g, not %g", i, (double)four[i], wanted);
    }
    noise_fill(1, 3, 1 << 16, many);
    for (int i = 0; i < 1 << 16; i++) sum += (double)many[i], square += (double)many[i] * (double)many[i];
    CHECK(fabs(sum / 65536) < 0.02 && fabs(square / 65536 - 1) < 0.03, "noise has mean %g, square %g",
          sum / 65536, square / 65536);
}

/* ---- Steps: as diffusers 0.42.1 prints them ---- */

static void times_are(const char *config, enum picture_kind kind, int patches, const float *wanted, int n)
{
    struct picture_config c = {.kind = kind};
    struct picture_schedule s;
    struct picture_step step[MOST_STEPS];
    struct fault f = {{0}};
    json_t *o = json_loads(config, 0, NULL);
    bool good =
        picture_schedule_read(&s, &c, o, &f) && picture_schedule_steps(&s, kind, n, patches, step, &f);
    CHECK(good, "%s: %s", config, f.text);
    for (int i = 0; good && i < n; i++)
        CHECK(fabs((double)(step[i].time - wanted[i])) < 1e-3, "%s: time %d is %g, not %g", config, i,
              (double)step[i].time, (double)wanted[i]);
    if (good && s.flow && !s.corrects)
        CHECK(fabs((double)(step[n - 1].t * 1000 + step[n - 1].time)) < 1e-2, "%s: the end is no picture",
              config);
    picture_schedule_free(&s);
    json_decref(o);
}

static void test_times(void)
{
    times_are("{\"_class_name\": \"DDIMScheduler\", \"steps_offset\": 1}", PICTURE_DIT, 64,
              (float[]){751, 501, 251, 1}, 4);
    times_are("{\"_class_name\": \"DDIMScheduler\", \"timestep_spacing\": \"trailing\"}", PICTURE_DIT, 64,
              (float[]){999, 666, 332}, 3);
    times_are("{\"_class_name\": \"DPMSolverMultistepScheduler\"}", PICTURE_PIXART, 64,
              (float[]){999, 666, 333, 0}, 4);
    times_are("{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"shift\": 3.0}", PICTURE_SD3, 1024,
              (float[]){1000, 857.6923, 602.1506, 8.9286}, 4);
    times_are("{\"_class_name\": \"FlowMatchEulerDiscreteScheduler\", \"use_dynamic_shifting\": true}",
              PICTURE_FLUX, 16, (float[]){1000, 863.6179, 703.6709, 513.4742, 283.5501}, 5);
    times_are(
        "{\"_class_name\": \"UniPCMultistepScheduler\", \"flow_shift\": 3.0, \"use_flow_sigmas\": true, "
        "\"prediction_type\": \"flow_prediction\"}",
        PICTURE_WAN, 64, (float[]){999, 923, 818, 667, 429}, 5);
}

/* ---- PNG ---- */

static uint32_t big(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* CRC-32 bit by bit, with the inversions at both ends. */
static uint32_t crc_all(const unsigned char *p, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < 8 * n; i++) {
        uint32_t bit = (crc ^ p[i / 8] >> i % 8) & 1;
        crc = crc >> 1 ^ (bit ? 0xedb88320 : 0);
    }
    return ~crc;
}

/* The rows of a file, with their filters, for free(). */
static unsigned char *stored_rows(const unsigned char *p, size_t bytes, size_t *n)
{
    unsigned char *to = malloc(bytes);
    size_t at = 2; /* behind zlib's header */
    bool last = false;
    for (*n = 0; to && !last && at + 5 < bytes;) {
        size_t size = p[at + 1] | (size_t)p[at + 2] << 8;
        CHECK((size ^ (p[at + 3] | (size_t)p[at + 4] << 8)) == 0xffff, "a block's size is not there twice");
        last = p[at] & 1;
        memcpy(to + *n, p + at + 5, size);
        *n += size, at += 5 + size;
    }
    return to;
}

static unsigned char *read_all(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    unsigned char *p = f ? malloc(1 << 20) : NULL;
    *bytes = p ? fread(p, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    return p;
}

static void test_png(const char *scratch)
{
    enum { WIDE = 300, HIGH = 250 };
    static uint8_t pixel[HIGH * WIDE * 3];
    char path[4096];
    struct fault f = {{0}};
    size_t bytes, n = 0;
    for (size_t i = 0; i < sizeof pixel; i++) pixel[i] = (uint8_t)(i * 7 + i / 1000);
    snprintf(path, sizeof path, "%s/rows.png", scratch);
    CHECK(png_write(path, &(struct image){WIDE, HIGH, 3, pixel}, &f), "%s", f.text);
    unsigned char *p = read_all(path, &bytes), *rows = NULL;
    CHECK(bytes > 60 && !memcmp(p, "\x89PNG\r\n\x1a\n", 8), "no PNG");
    for (size_t at = 8; at + 12 <= bytes; at += 12 + big(p + at)) {
        CHECK(crc_all(p + at + 4, big(p + at) + 4) == big(p + at + 8 + big(p + at)),
              "the CRC of a chunk is wrong");
        if (!memcmp(p + at + 4, "IEND", 4)) CHECK(big(p + at + 8) == 0xae426082, "the CRC of IEND is wrong");
        if (!memcmp(p + at + 4, "IHDR", 4))
            CHECK(big(p + at + 8) == WIDE && big(p + at + 12) == HIGH, "the sides are wrong");
        if (!memcmp(p + at + 4, "IDAT", 4)) rows = stored_rows(p + at + 8, big(p + at), &n);
    }
    CHECK(rows && n == (WIDE * 3 + 1) * HIGH, "%zu bytes of rows", n);
    for (int y = 0; rows && n == (WIDE * 3 + 1) * HIGH && y < HIGH; y++)
        CHECK(!rows[y * (WIDE * 3 + 1)] &&
                  !memcmp(rows + y * (WIDE * 3 + 1) + 1, pixel + y * WIDE * 3, WIDE * 3),
              "row %d is another one", y);
    CHECK(!png_write("/nowhere/rows.png", &(struct image){1, 1, 1, pixel}, &f) &&
              strstr(f.text, "No such file"),
          "%s", f.text);
    free(p);
    free(rows);
}

/* ---- Previews ---- */

static void test_preview(void)
{
    static float latents[4 * 16];
    struct picture p = {.scale = 8,
                        .config = {.channels = 4, .patch = 2},
                        .shape = {.frames = 1, .rows = 2, .columns = 2, .pictures = 1}};
    struct image i;
    struct fault f = {{0}};
    for (int k = 0; k < 16; k++)
        latents[k] = (float)k, latents[16 + k] = (float)(-k); /* one component, and nothing else */
    CHECK(preview_make(&p, latents, NULL, 2, &i, &f), "%s", f.text);
    CHECK(i.width == 8 && i.height == 8 && i.channels == 3, "%d x %d of %d", i.width, i.height, i.channels);
    bool grey = true;
    for (int k = 0; i.pixel && k < 64; k++)
        grey &= i.pixel[3 * k] == i.pixel[3 * k + 1] && i.pixel[3 * k] == i.pixel[3 * k + 2];
    CHECK(grey && i.pixel[0] != i.pixel[3 * 63], "what one component has is not grey");
    free(i.pixel);
    p.scale = 1, p.config.channels = 1;
    for (int k = 0; k < 16; k++) latents[k] = k < 8 ? -3 : k == 8 ? 0 : 1;
    CHECK(preview_make(&p, latents, NULL, 1, &i, &f), "%s", f.text);
    CHECK(i.channels == 1 && i.pixel[0] == 0 && i.pixel[8] == 128 && i.pixel[9] == 255,
          "pixels are not those");
    free(i.pixel);
    p.shape = (struct picture_shape){.frames = 2, .rows = 2, .columns = 1, .pictures = 2}; /* 4 x 2 each */
    for (int k = 0; k < 32; k++) latents[k] = k / 8 % 2 ? 1 : -1; /* frame by frame */
    CHECK(preview_make(&p, latents, NULL, 1, &i, &f), "%s", f.text);
    CHECK(i.width == 4 && i.height == 8, "two videos of two frames are %d x %d", i.width, i.height);
    for (int k = 0; i.pixel && k < 32; k++)
        CHECK(i.pixel[k] == (k % 4 < 2 ? 0 : 255), "pixel %d of two videos is %d", k, i.pixel[k]);
    free(i.pixel);
}

void test_parts(const char *tiny, const char *scratch)
{
    (void)tiny;
    test_noise();
    test_times();
    test_png(scratch);
    test_preview();
}
