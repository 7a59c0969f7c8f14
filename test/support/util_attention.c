/* util_attention.c -- attention programs for the tests of emission and of the GPU. */
#include "emit.h"
#include "util_attention.h"

#include <math.h>
#include <string.h>

#define BF16 CODA_BF16
#define F16 CODA_F16
#define F32 CODA_F32
#define F8 CODA_F8E4M3

/* A bias of the distance within 20; one that every head has more of. */
static double bias(double s, double position, double key, double head)
{
    return s + 0.125 * (1 + head) * fmax(-20, fmin(20, key - position));
}
static double distance(double s, double position, double key, double head)
{
    (void)head;
    return s - 0.75 * log(1 + fabs(position - key));
}
static double cap(double s, double position, double key, double head)
{
    (void)position, (void)key, (void)head;
    return 2.5 * tanh(s / 2.5);
}
/* Of three keys in turn a head does not see one, but for key 0. */
static double stripes(double s, double position, double key, double head)
{
    (void)position;
    return key > 0 && fmod(key + head, 3) == 1 ? -INFINITY : s;
}

const struct attention_score attention_scores[SCORES] = {
    [SCORE_BIAS] = {{.name = "bias",
                     .inputs = 4,
                     .params = 2,
                     .source = "DEV static float apply(float s, float position, float key, float head,\n"
                               "                       float step, float most)\n"
                               "{\n"
                               "    float at = fmaxf(-most, fminf(most, key - position));\n"
                               "    return fmaf(step * (1.0f + head), at, s);\n"
                               "}\n"},
                    {0.125f, 20},
                    bias},
    [SCORE_DISTANCE] = {{.name = "distance",
                         .inputs = 3,
                         .params = 1,
                         .source = "DEV static float apply(float s, float i, float j, float w)\n"
                                   "{ return fmaf(-w, math::log(1.0f + fabsf(i - j)), s); }"},
                        {0.75f},
                        distance},
    [SCORE_CAP] = {{.name = "softcap"}, {2.5f}, cap},
    [SCORE_STRIPES] = {{.name = "stripes",
                        .inputs = 4,
                        .source = "DEV static float apply(float s, float, float key, float head)\n"
                                  "{\n"
                                  "    const float n = key + head, turn = n - 3.0f * floorf(n / 3.0f);\n"
                                  "    return key > 0.0f && turn == 1.0f ? -math::infinity() : s;\n"
                                  "}\n"},
                       {0},
                       stripes},
};

const struct attention_case attention_cases[] = {
    {"full", BF16, 2, 300, 300, 3, 3, 128, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"causal", BF16, 2, 512, 512, 4, 4, 128, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"causal f16", F16, 1, 777, 777, 2, 2, 128, true, 0, false, LAYOUT_ROWS, 8, 0, .align = 0},
    {"packed grouped", BF16, 2, 333, 333, 8, 2, 128, true, 0, false, LAYOUT_PACKED, 0, 0, .align = 0},
    {"heads first", BF16, 2, 257, 129, 3, 1, 128, true, 0, false, LAYOUT_HEADS, 0, 0, .align = 0},
    {"window", BF16, 1, 1000, 1000, 2, 1, 128, true, 200, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"window of 1", F16, 1, 200, 200, 2, 2, 64, true, 1, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"window both ways", BF16, 1, 400, 500, 2, 2, 64, false, 77, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"lengths", BF16, 6, 300, 300, 2, 2, 128, false, 0, true, LAYOUT_ROWS, 0, 0, .align = 0},
    {"lengths causal", F16, 6, 260, 520, 4, 2, 64, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 2},
    {"lengths window", BF16, 6, 260, 260, 2, 2, 96, true, 100, true, LAYOUT_ROWS, 0, 0, .align = 0},
    {"more queries than keys", BF16, 2, 400, 150, 2, 2, 128, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"more keys than queries", BF16, 2, 70, 900, 2, 2, 128, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"one query", BF16, 3, 1, 515, 4, 1, 128, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"one key", BF16, 2, 100, 1, 2, 2, 64, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"head 8", BF16, 1, 150, 150, 3, 3, 8, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"head 40", BF16, 2, 200, 333, 3, 3, 40, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"head 64", BF16, 2, 1030, 1030, 3, 3, 64, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"head 72", BF16, 2, 300, 300, 3, 3, 72, false, 0, false, LAYOUT_PACKED, 0, 0, .align = 0},
    {"head 72 small tiles", F16, 4, 630, 130, 11, 11, 72, false, 0, false, LAYOUT_ROWS, 0, 0, .base = true},
    {"shared tiles", BF16, 2, 520, 1500, 25, 25, 72, false, 0, false, LAYOUT_ROWS, 0, 0, .stepped = true},
    {"shared tiles of 96", BF16, 1, 520, 1920, 48, 48, 96, false, 0, false, LAYOUT_ROWS, 0, 0,
     .stepped = true},
    {"shared tiles f16", F16, 1, 330, 700, 70, 10, 64, false, 0, false, LAYOUT_HEADS, 8, 0, .lse = true},
    {"shared tiles of few keys", BF16, 1, 100, 250, 133, 133, 72, false, 0, false, LAYOUT_ROWS, 0, 0,
     .align = 0},
    {"shared tiles of two", BF16, 1, 200, 900, 70, 35, 128, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"small tiles", BF16, 2, 630, 130, 22, 2, 64, false, 0, false, LAYOUT_HEADS, 8, 0, .align = 0,
     .lse = true},
    {"steps", BF16, 2, 260, 900, 3, 3, 64, false, 0, false, LAYOUT_ROWS, 0, 0, .stepped = true},
    {"steps f16", F16, 1, 260, 900, 3, 3, 96, false, 0, false, LAYOUT_ROWS, 8, 0, .stepped = true},
    {"steps of grouped heads", F16, 1, 330, 650, 4, 2, 80, false, 0, false, LAYOUT_ROWS, 0, 0,
     .stepped = true},
    {"steps of small tiles", BF16, 3, 320, 780, 15, 15, 64, false, 0, false, LAYOUT_ROWS, 0, 0,
     .stepped = true, .base = true},
    {"steps of large scores", F16, 3, 320, 780, 15, 15, 64, false, 0, false, LAYOUT_ROWS, 0, 0,
     .stepped = true},
    {"steps causal", BF16, 1, 400, 700, 2, 2, 72, true, 0, false, LAYOUT_ROWS, 0, 0, .stepped = true},
    {"steps of 128 columns", F16, 1, 260, 700, 2, 2, 128, false, 0, false, LAYOUT_ROWS, 0, 0,
     .stepped = true},
    {"small tiles of two", BF16, 3, 320, 130, 44, 44, 128, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"head 72 lengths", F16, 6, 300, 300, 3, 3, 72, true, 0, true, LAYOUT_HEADS, 0, 0, .align = 0},
    {"head 80", F16, 2, 391, 391, 2, 2, 80, true, 0, false, LAYOUT_ROWS, 16, 0, .align = 0},
    {"head 88", BF16, 2, 300, 391, 4, 2, 88, false, 0, false, LAYOUT_ROWS, 8, 0, .align = 0},
    {"head 112", BF16, 2, 300, 391, 4, 2, 112, true, 0, false, LAYOUT_ROWS, 8, 0, .align = 0},
    {"head 192", BF16, 1, 500, 500, 2, 2, 192, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"head 256", BF16, 1, 600, 600, 2, 1, 256, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"head 256 lengths f16", F16, 6, 300, 300, 1, 1, 256, false, 0, true, LAYOUT_ROWS, 0, 0, .align = 0},
    {"negative scale", BF16, 1, 200, 200, 2, 2, 64, true, 0, false, LAYOUT_ROWS, 0, -0.25f, .align = 0},
    {"large scale", BF16, 1, 200, 200, 2, 2, 64, true, 0, false, LAYOUT_ROWS, 0, 4.0f, .align = 0},
    {"odd pitch", BF16, 2, 130, 130, 3, 3, 64, true, 0, false, LAYOUT_ROWS, 3, 0, .align = 0},
    {"head 5", BF16, 2, 100, 90, 3, 3, 5, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"head 320", F16, 1, 100, 140, 2, 2, 320, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"head 1000", BF16, 1, 50, 70, 1, 1, 1000, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"short", F16, 3, 128, 128, 4, 4, 32, false, 0, false, LAYOUT_PACKED, 0, 0, .align = 0},
    {"short lengths", BF16, 6, 64, 64, 4, 2, 64, false, 0, true, LAYOUT_ROWS, 0, 0, .align = 0},
    {"short of five", F16, 6, 70, 5, 2, 2, 24, false, 0, true, LAYOUT_HEADS, 8, 0, .align = 0},
    {"short causal", BF16, 2, 197, 197, 3, 1, 64, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"short cache", BF16, 6, 33, 256, 4, 2, 48, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 3},
    {"short window", F16, 6, 150, 130, 2, 2, 64, false, 40, true, LAYOUT_ROWS, 0, -0.25f, .align = 3},
    {"short all", BF16, 6, 100, 120, 4, 2, 40, true, 60, true, LAYOUT_ROWS, 0, 0, 3, .softcap = 5,
     .slopes = true, .sinks = true, .lse = true},
    {"short bias", BF16, 6, 120, 128, 4, 2, 64, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 3, .lse = true,
     .bias = BIAS_WHOLE, .bias16 = true},
    {"short bias of keys", F16, 6, 70, 250, 4, 4, 32, false, 0, true, LAYOUT_ROWS, 0, 0, .sinks = true,
     .bias = BIAS_KEYS},
    {"short bias odd", F16, 2, 197, 197, 3, 3, 64, false, 0, false, LAYOUT_ROWS, 0, 0, .bias = BIAS_ODD},
    {"short ranges", F16, 3, 500, 500, 4, 4, 32, false, 0, false, LAYOUT_PACKED, 0, 0, .ranges = true},
    {"short ranges of a block", BF16, 3, 60, 50, 2, 1, 64, false, 0, false, LAYOUT_ROWS, 0, 0,
     .ranges = true},
    {"short ranges lengths", BF16, 6, 150, 400, 4, 2, 48, true, 200, true, LAYOUT_HEADS, 8, 0, 3, .lse = true,
     .sinks = true, .ranges = true},
    {"ranges of any length", F16, 2, 300, 300, 2, 1, 64, true, 0, false, LAYOUT_PACKED, 0, 0, .ranges = true,
     .base = true},
    {"short walk", BF16, 3, 100, 300, 4, 2, 64, true, 90, true, LAYOUT_HEADS, 8, 0, .align = 3, .softcap = 5,
     .sinks = true},
    {"short many", F16, 6, 70, 150, 12, 3, 32, false, 0, true, LAYOUT_ROWS, 0, 0, .lse = true},
    {"short of any length", F16, 3, 128, 128, 4, 4, 32, false, 0, true, LAYOUT_PACKED, 0, 0, .base = true},
    {"one key of any", BF16, 2, 100, 1, 2, 2, 64, true, 0, false, LAYOUT_ROWS, 0, 0, .base = true},
    {"head 8 of any", BF16, 1, 150, 150, 3, 3, 8, true, 30, false, LAYOUT_ROWS, 0, 0, .base = true},
    {"f32", F32, 2, 200, 200, 4, 2, 128, true, 0, false, LAYOUT_ROWS, 1, 0, .align = 0},
    {"f32 lengths window", F32, 6, 150, 190, 2, 2, 72, true, 60, true, LAYOUT_HEADS, 0, 0, .align = 2},
    {"f32 one query", F32, 2, 1, 300, 2, 2, 64, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"f32 head 512", F32, 1, 60, 100, 2, 2, 512, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"cache", BF16, 6, 1, 515, 4, 1, 128, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 3},
    {"cache window", BF16, 6, 70, 515, 4, 2, 128, true, 40, true, LAYOUT_ROWS, 0, 0, .align = 3},
    {"cache both ways", F16, 6, 150, 400, 2, 2, 64, false, 90, true, LAYOUT_HEADS, 8, 0, .align = 3},
    {"cache of a chunk", BF16, 6, 200, 200, 2, 2, 256, true, 0, true, LAYOUT_PACKED, 0, 0, .align = 3},
    {"from the start", BF16, 6, 300, 200, 2, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 1},
    {"from the start window", F16, 6, 300, 200, 2, 1, 96, false, 70, true, LAYOUT_ROWS, 0, 0, .align = 1},
    {"f32 cache", F32, 6, 20, 190, 4, 2, 72, true, 0, true, LAYOUT_ROWS, 3, 0, .align = 3},
    {"f32 cache window", F32, 6, 30, 90, 2, 2, 40, true, 11, true, LAYOUT_HEADS, 0, 0, .align = 3},
    {"split", BF16, 3, 1, 2100, 32, 8, 128, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 3},
    {"split speculation", BF16, 6, 4, 700, 8, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 3},
    {"split sixteen", F16, 6, 16, 515, 2, 2, 64, true, 0, true, LAYOUT_HEADS, 0, 0, .align = 3},
    {"split window", BF16, 6, 3, 1300, 4, 1, 96, true, 300, true, LAYOUT_ROWS, 8, 0, .align = 3},
    {"split both ways", F16, 6, 2, 900, 12, 2, 40, false, 290, true, LAYOUT_ROWS, 0, 0, .align = 1},
    {"split many heads", BF16, 5, 1, 333, 71, 71, 64, false, 0, true, LAYOUT_ROWS, 0, 0, .align = 0},
    {"split head 120", BF16, 6, 2, 450, 4, 1, 120, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 2},
    {"split packed", BF16, 2, 9, 9, 2, 2, 72, true, 0, false, LAYOUT_PACKED, 0, 0, .align = 0},
    {"split negative scale", BF16, 2, 5, 390, 3, 1, 128, false, 0, false, LAYOUT_ROWS, 0, -0.25f, .align = 0},
    {"softcap", BF16, 2, 300, 300, 4, 2, 128, true, 0, false, LAYOUT_ROWS, 0, 0.5f, 0, .softcap = 3},
    {"softcap window", F16, 1, 500, 700, 2, 2, 256, true, 200, false, LAYOUT_ROWS, 0, 0, 0, .softcap = 20},
    {"softcap lengths", F32, 6, 70, 90, 2, 1, 40, true, 0, true, LAYOUT_ROWS, 0, -1, 3, .softcap = 2},
    {"slopes", BF16, 2, 300, 300, 4, 2, 64, true, 0, false, LAYOUT_ROWS, 0, 0, 0, .slopes = true},
    {"slopes both ways", F16, 6, 200, 200, 3, 3, 128, false, 0, true, LAYOUT_ROWS, 0, 0, 1, .slopes = true},
    {"sinks", BF16, 2, 300, 300, 8, 2, 64, true, 128, false, LAYOUT_ROWS, 0, 0, 0, .sinks = true},
    {"sinks lengths", BF16, 6, 100, 200, 4, 2, 192, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .sinks = true},
    {"ahead", BF16, 2, 400, 500, 2, 2, 128, false, 60, false, LAYOUT_ROWS, 0, 0, 0, .ahead = 70},
    {"ahead of a cache", F16, 6, 130, 300, 4, 2, 96, false, 0, true, LAYOUT_HEADS, 0, 0, 3, .ahead = 5},
    {"ranges", BF16, 2, 500, 500, 2, 2, 128, false, 0, false, LAYOUT_ROWS, 0, 0, 0, .ranges = true},
    {"ranges causal", F16, 2, 700, 700, 2, 1, 64, true, 0, false, LAYOUT_PACKED, 0, 0, 0, .ranges = true},
    {"ranges lengths", BF16, 6, 150, 300, 2, 2, 256, true, 90, true, LAYOUT_ROWS, 0, 0, 3, .ranges = true},
    {"ranges of few", BF16, 6, 4, 300, 4, 2, 128, false, 0, true, LAYOUT_ROWS, 0, 0, 0, .ranges = true},
    {"f32 all", F32,          6, 90, 130, 4, 2, 72,   true, 50,
     true,      LAYOUT_HEADS, 0, 0,  3,   0, 5, true, true, .sinks = 1},
    {"all", BF16,         6, 290, 330, 4, 2, 128,  true, 150,
     true,  LAYOUT_HEADS, 8, 0,   3,   0, 5, true, true, .sinks = 1},
    {"split all", BF16,        6, 3, 700, 8, 2, 128, false, 300,
     true,        LAYOUT_ROWS, 0, 0, 3,   2, 4, 0,   true,  .sinks = 1},
    {"split sixteen all", F16, 6, 4, 515, 8, 2, 64,   true,      0, true,
     LAYOUT_ROWS,         0,   0, 3, 0,   9, 0, true, .sinks = 1},
    {"split sinks", BF16, 3, 1, 2100, 32, 4, 64, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .sinks = true},
    {"sums", BF16, 2, 300, 300, 4, 2, 128, true, 0, false, LAYOUT_ROWS, 0, 0, 0, .lse = true},
    {"sums with sinks", F16, 6, 150, 200, 4, 2, 64, true, 60, true, LAYOUT_ROWS, 0, 0, 3, .sinks = true,
     .lse = true},
    {"sums of softcaps", BF16, 2, 100, 100, 2, 2, 256, false, 0, false, LAYOUT_ROWS, 0, -3, 0, .softcap = 5,
     .lse = true},
    {"sums of large scores", BF16, 2, 200, 300, 2, 2, 64, false, 0, false, LAYOUT_ROWS, 0, -40, 0,
     .lse = true},
    {"sums of far keys", BF16, 3, 90, 600, 2, 2, 64, false, 0,       false,
     LAYOUT_ROWS,        0,    0, 1,  0,   0, 1, 1,  1,     .lse = 1},
    {"sums far away", F32, 3, 90, 600, 2, 2, 64, false, 0,       false,
     LAYOUT_ROWS,     0,   0, 1,  0,   0, 1, 1,  1,     .lse = 1},
    {"split sums", BF16, 6, 3, 700, 8, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .lse = true},
    {"f32 sums", F32, 6, 40, 90, 4, 2, 40, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .slopes = true, .lse = true},
    {"parts", BF16, 1, 256, 4300, 2, 1, 128, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 2},
    {"parts sums", F16, 1, 100, 2200, 3, 1, 64, false, 0, false, LAYOUT_ROWS, 0, 0, 0, .sinks = true,
     .lse = true},
    {"parts of a cache", BF16, 6, 150, 1100, 2, 2, 96, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .softcap = 5},
    {"parts of pages", BF16, 5, 130, 2048, 2, 1, 256, true, 900, true, LAYOUT_ROWS, 0, 0, 3, .page = 16},
    {"parts head 192", BF16, 1, 64, 1030, 1, 1, 192, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 1},
    {"pages", BF16, 6, 1, 512, 8, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .page = 16},
    {"pages of 64", F16, 6, 3, 1024, 4, 2, 64, true, 200, true, LAYOUT_ROWS, 8, 0, 3, .page = 64},
    {"pages of 256", BF16, 6, 2, 1024, 4, 1, 96, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .page = 256},
    {"pages and chunks", BF16, 6, 150, 512, 4, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .page = 16},
    {"pages of 8", BF16, 6, 80, 200, 2, 2, 256, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .page = 8},
    {"pages of 4", BF16, 6, 20, 100, 2, 2, 64, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .page = 4},
    {"f32 pages", F32, 6, 30, 96, 4, 2, 40, true, 25, true, LAYOUT_ROWS, 3, 0, 3, .page = 32},
    {"pages of heads", BF16, 6, 1, 512, 8, 2, 128, true, 0, true, LAYOUT_HEADS, 0, 0, 3, .page = 16},
    {"pages of heads f16", F16, 6, 3, 1024, 4, 2, 64, true, 200, true, LAYOUT_HEADS, 8, 0, 3, .page = 256},
    {"chunks of heads", BF16, 6, 150, 512, 4, 2, 96, true, 0, true, LAYOUT_HEADS, 0, 0, 3, .page = 64},
    {"f32 pages of heads", F32, 6, 30, 96, 4, 2, 40, true, 25, true, LAYOUT_HEADS, 3, 0, 3, .page = 4},
    {"fp8", BF16, 3, 1, 2100, 32, 8, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .keys = F8, .scales = 2},
    {"fp8 f16", F16, 6, 4, 700, 8, 2, 64, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .keys = F8},
    {"fp8 sixteen", BF16, 6, 4, 515, 8, 2, 96, true, 100, true, LAYOUT_HEADS, 16, 0, 3, .keys = F8,
     .scales = 1},
    {"fp8 pages", BF16, 6, 1, 1024, 8, 2, 128, true, 0, true, LAYOUT_HEADS, 0, 0, 3, .page = 16, .keys = F8,
     .scales = 2},
    {"fp8 all", F16, 6, 3, 700, 8, 2,    112,        false,       300,        true,       LAYOUT_ROWS,
     0,         0,   3, 2, 4,   0, true, .sinks = 1, .lse = true, .keys = F8, .scales = 1},
    {"fp8 negative scale", BF16, 2, 5, 390, 3, 1, 16, false, 0, false, LAYOUT_ROWS, 0, -0.25f, 0, .keys = F8},
    {"fp8 chunk", BF16, 6, 40, 300, 4, 2, 64, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .keys = F8, .scales = 2},
    {"fp8 odd", F32, 6, 3, 96, 4, 2, 13, true, 0, true, LAYOUT_HEADS, 3, 0, 3, .page = 8, .keys = F8,
     .scales = 1},
    {"scales", BF16, 2, 50, 100, 4, 2, 64, true, 0, false, LAYOUT_ROWS, 0, 0, 0, .lse = true, .scales = 2},
    {"starts", BF16, 5, 300, 400, 4, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .starts = true},
    {"starts head 64", BF16, 7, 270, 300, 3, 3, 64, true, 0, true, LAYOUT_ROWS, 8, 0, 3, .starts = true},
    {"starts window f16", F16, 6, 200, 500, 4, 1, 96, true, 90, true, LAYOUT_HEADS, 0, 0, 3, .starts = true},
    {"starts both ways", BF16, 6, 260, 300, 2, 2, 64, false, 70, true, LAYOUT_ROWS, 0, 0, 1, .starts = true},
    {"starts at the end", BF16, 4, 330, 150, 2, 1, 128, true, 0, false, LAYOUT_ROWS, 0, 0, 2, .starts = true},
    {"starts sums", BF16, 9, 160, 300, 4, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .starts = true,
     .lse = true},
    {"starts head 256", BF16, 5, 150, 200, 2, 1, 256, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .starts = true},
    {"starts head 192", F16, 5, 150, 200, 2, 1, 192, true, 60, true, LAYOUT_ROWS, 0, 0, 3, .starts = true},
    {"starts pages", BF16, 8, 200, 512, 4, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .page = 16,
     .starts = true},
    {"starts pages of heads", BF16, 5, 230, 256, 4, 2, 64, true, 0, true, LAYOUT_HEADS, 0, 0, 3, .page = 64,
     .starts = true},
    {"starts head 256 pages", F16, 4, 140, 256, 1, 1, 256, true, 99, true, LAYOUT_ROWS, 0, 0, 3, .page = 8,
     .lse = true, .starts = true},
    {"starts ranges", BF16, 4, 250, 300, 2, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .ranges = true,
     .starts = true},
    {"starts all", BF16, 6, 290, 330, 4, 2,    128,  true,       150,         true,
     LAYOUT_ROWS,  8,    0, 3,   0,   5, true, true, .sinks = 1, .lse = true, .starts = true},
    {"starts all head 64", F16, 6, 210, 320, 4, 2,    64,   false,      150,         true,
     LAYOUT_ROWS,          0,   0, 3,   9,   5, true, true, .sinks = 1, .lse = true, .page = 32,
     .starts = true},
    {"starts of many", BF16, 70, 120, 64, 2, 2, 64, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .starts = true},
    {"split starts", BF16, 9, 14, 500, 8, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .starts = true},
    {"split starts pages", BF16, 40, 50, 512, 4, 1, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .page = 16,
     .starts = true},
    {"split starts of four", F16, 4, 8, 2100, 16, 1, 64, true, 0, true, LAYOUT_HEADS, 0, 0, 3,
     .starts = true},
    {"split starts of few", BF16, 3, 6, 1100, 3, 3, 96, true, 70, true, LAYOUT_ROWS, 8, 0, 3, .starts = true},
    {"split starts both ways", F16, 7, 12, 300, 6, 2, 64, false, 0, false, LAYOUT_ROWS, 0, 0, 0,
     .starts = true, .lse = true},
    {"split starts from the start", BF16, 6, 12, 300, 4, 2, 40, true, 90, true, LAYOUT_ROWS, 0, 0, 1,
     .starts = true},
    {"split starts all", BF16, 12, 24, 512, 16, 2, 128,  true,       100,         true,
     LAYOUT_HEADS,       0,    0,  3,  0,   9,  0, true, .sinks = 1, .lse = true, .page = 32,
     .starts = true},
    {"f32 starts", F32, 6, 90, 130, 4, 2, 72, true, 50, true, LAYOUT_HEADS, 0, 0, 3, .lse = true,
     .starts = true},
    {"f32 starts pages", F32, 40, 70, 96, 4, 2, 40, true, 25, true, LAYOUT_ROWS, 3, 0, 3, .page = 32,
     .starts = true},
    {"f32 starts ranges", F32, 5, 80, 90, 2, 2, 40, false, 0, false, LAYOUT_ROWS, 0, 0, 0, .ranges = true,
     .slopes = true, .starts = true},
    {"fp8 starts", BF16, 6, 60, 300, 4, 2, 64, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .keys = F8, .scales = 2,
     .starts = true},
    {"fp8 starts pages", F16, 6, 50, 128, 4, 2, 48, true, 0, true, LAYOUT_HEADS, 0, 0, 3, .page = 16,
     .keys = F8, .scales = 1, .starts = true},
    {"score", BF16, 2, 300, 300, 4, 2, 128, true, 0, false, LAYOUT_ROWS, 0, 0, 0, .score = SCORE_BIAS},
    {"score f16", F16, 2, 400, 500, 3, 3, 64, false, 0, false, LAYOUT_ROWS, 0, 0, 1, .score = SCORE_DISTANCE},
    {"score of softcap", BF16, 2, 300, 300, 4, 2, 256, true, 0, false, LAYOUT_ROWS, 0, 0.5f, 0,
     .score = SCORE_CAP},
    {"score stripes", BF16, 2, 300, 400, 4, 2, 64, false, 0, false, LAYOUT_ROWS, 0, 0, 0, .lse = true,
     .score = SCORE_STRIPES},
    {"score all",  BF16, 6, 290, 330, 4, 2,    128,  true,       150,         true,
     LAYOUT_HEADS, 8,    0, 3,   0,   5, true, true, .sinks = 1, .lse = true, .score = SCORE_BIAS},
    {"score ranges", BF16, 2, 500, 500, 2, 2, 192, false, 0, false, LAYOUT_ROWS, 0, 0, 0, .ranges = true,
     .score = SCORE_DISTANCE},
    {"score parts", BF16, 6, 150, 1100, 2, 2, 96, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .score = SCORE_BIAS},
    {"score starts", BF16, 5, 300, 400, 4, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .starts = true,
     .score = SCORE_DISTANCE},
    {"score starts pages", F16, 5, 230, 256, 4, 2, 64, true, 0, true, LAYOUT_HEADS, 0, 0, 3, .page = 64,
     .starts = true, .score = SCORE_BIAS},
    {"split score", BF16, 6, 3, 700, 8, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .score = SCORE_BIAS},
    {"split score stripes", BF16, 3, 1, 2100, 32, 8, 64, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .lse = true,
     .score = SCORE_STRIPES},
    {"split score sixteen", F16, 6, 16, 515, 2, 2, 64, true, 0, true, LAYOUT_HEADS, 0, 0, 3,
     .score = SCORE_DISTANCE},
    {"split score sixteen wide", BF16, 6, 4, 515, 8, 2, 128, true, 200, true, LAYOUT_ROWS, 0, 0, 3, .page = 0,
     .score = SCORE_CAP},
    {"fp8 score", BF16, 6, 4, 515, 8, 2, 96, true, 100, true, LAYOUT_HEADS, 16, 0, 3, .keys = F8, .scales = 1,
     .score = SCORE_BIAS},
    {"f32 score", F32, 6, 90, 130, 4, 2, 72, true, 50, true, LAYOUT_ROWS, 3, 0, 3, .score = SCORE_BIAS},
    {"f32 score stripes", F32, 2, 40, 90, 3, 1, 40, false, 0, false, LAYOUT_ROWS, 0, 0, 0, .lse = true,
     .score = SCORE_STRIPES},
    {"bias", BF16, 2, 300, 300, 4, 2, 128, true, 0, false, LAYOUT_ROWS, 0, 0, .bias = BIAS_WHOLE},
    {"bias of heads", BF16, 2, 300, 300, 4, 4, 64, false, 0, false, LAYOUT_PACKED, 0, 1, .bias = BIAS_HEADS,
     .bias16 = true},
    {"bias of padding", F16, 6, 200, 200, 3, 3, 64, false, 0, false, LAYOUT_ROWS, 0, 0, .bias = BIAS_KEYS},
    {"bias odd", BF16, 2, 150, 333, 4, 2, 96, true, 0, false, LAYOUT_ROWS, 8, 0, .align = 1, .lse = true,
     .bias = BIAS_ODD, .bias16 = true},
    {"bias turned", BF16, 2, 200, 400, 2, 1, 256, false, 0, false, LAYOUT_ROWS, 0, 0, .lse = true,
     .bias = BIAS_TURNED},
    {"bias of rows", F16, 2, 130, 190, 2, 2, 192, false, 0, false, LAYOUT_ROWS, 0, 0, .sinks = true,
     .lse = true, .bias = BIAS_ROWS},
    {"bias head 192", BF16, 2, 300, 300, 2, 2, 192, true, 90, false, LAYOUT_ROWS, 0, 0, .bias = BIAS_WHOLE},
    {"bias head 256", F16, 6, 200, 300, 2, 2, 256, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 3,
     .bias = BIAS_WHOLE, .bias16 = true},
    {"bias all",        BF16, 6, 290, 330, 4, 2,    128,  true,       150,         true,
     LAYOUT_HEADS,      8,    0, 3,   0,   5, true, true, .sinks = 1, .lse = true, .score = SCORE_BIAS,
     .bias = BIAS_WHOLE},
    {"bias ranges", BF16, 2, 500, 500, 2, 2, 256, false, 0, false, LAYOUT_ROWS, 0, 0, 0, .ranges = true,
     .score = SCORE_DISTANCE, .bias = BIAS_HEADS},
    {"bias ranges head 64", F16, 6, 200, 300, 2, 2, 64, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .ranges = true,
     .bias = BIAS_ODD},
    {"bias parts", BF16, 6, 150, 1100, 2, 2, 96, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .lse = true,
     .bias = BIAS_WHOLE},
    {"bias starts", BF16, 5, 300, 400, 4, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .starts = true,
     .bias = BIAS_WHOLE},
    {"bias starts pages", F16, 5, 230, 256, 4, 2, 64, true, 0, true, LAYOUT_HEADS, 0, 0, 3, .page = 64,
     .starts = true, .bias = BIAS_HEADS, .bias16 = true},
    {"bias starts all",
     BF16,
     6,
     210,
     320,
     4,
     2,
     256,
     false,
     150,
     true,
     LAYOUT_ROWS,
     0,
     0,
     3,
     9,
     5,
     true,
     true,
     .sinks = 1,
     .lse = true,
     .page = 32,
     .starts = true,
     .score = SCORE_CAP,
     .bias = BIAS_ODD},
    {"bias pages", BF16, 6, 150, 512, 4, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .page = 16,
     .bias = BIAS_HEADS},
    {"split bias", BF16, 6, 3, 700, 8, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .bias = BIAS_WHOLE},
    {"split bias of padding", BF16, 3, 1, 2100, 32, 8, 128, false, 0, false, LAYOUT_ROWS, 0, 0, .lse = true,
     .bias = BIAS_KEYS},
    {"split bias sixteen", F16, 6, 16, 515, 2, 2, 64, true, 0, true, LAYOUT_HEADS, 0, 0, 3,
     .bias = BIAS_WHOLE, .bias16 = true},
    {"split bias sixteen wide",
     BF16,
     6,
     4,
     515,
     8,
     2,
     128,
     true,
     200,
     true,
     LAYOUT_ROWS,
     0,
     0,
     3,
     .softcap = 5,
     .slopes = true,
     .sinks = true,
     .score = SCORE_BIAS,
     .bias = BIAS_ODD},
    {"split bias pages", BF16, 6, 1, 512, 8, 2, 64, true, 0, true, LAYOUT_HEADS, 0, 0, 3, .page = 16,
     .bias = BIAS_HEADS, .bias16 = true},
    {"split bias turned", BF16, 6, 2, 450, 4, 1, 120, true, 0, true, LAYOUT_ROWS, 0, 0, .align = 2,
     .bias = BIAS_TURNED},
    {"split bias starts", BF16, 9, 14, 500, 8, 2, 128, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .starts = true,
     .bias = BIAS_WHOLE},
    {"split bias starts all",
     BF16,
     12,
     24,
     512,
     16,
     2,
     128,
     true,
     100,
     true,
     LAYOUT_HEADS,
     0,
     0,
     3,
     0,
     9,
     0,
     true,
     .sinks = 1,
     .lse = true,
     .page = 32,
     .starts = true,
     .bias = BIAS_HEADS},
    {"fp8 bias", BF16, 6, 4, 515, 8, 2, 128, true, 100, true, LAYOUT_HEADS, 16, 0, 3, .keys = F8, .scales = 1,
     .bias = BIAS_WHOLE},
    {"fp8 bias f16", F16, 6, 1, 700, 8, 2, 64, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .keys = F8,
     .bias = BIAS_HEADS, .bias16 = true},
    {"fp8 bias starts",
     F16,
     6,
     50,
     128,
     4,
     2,
     128,
     true,
     0,
     true,
     LAYOUT_HEADS,
     0,
     0,
     3,
     .page = 16,
     .keys = F8,
     .scales = 1,
     .starts = true,
     .bias = BIAS_WHOLE},
    {"fp8 bias all",
     BF16,
     6,
     4,
     700,
     8,
     2,
     128,
     true,
     300,
     true,
     LAYOUT_ROWS,
     0,
     0,
     3,
     .softcap = 4,
     .slopes = true,
     .sinks = true,
     .lse = true,
     .keys = F8,
     .scales = 2,
     .score = SCORE_BIAS,
     .bias = BIAS_ODD},
    {"f32 bias", F32, 6, 90, 130, 4, 2, 72, true, 50, true, LAYOUT_ROWS, 3, 0, 3, .lse = true,
     .bias = BIAS_WHOLE},
    {"f32 bias all",
     F32,
     6,
     70,
     130,
     4,
     2,
     72,
     true,
     50,
     true,
     LAYOUT_HEADS,
     0,
     0,
     3,
     0,
     5,
     true,
     true,
     .sinks = 1,
     .score = SCORE_DISTANCE,
     .bias = BIAS_TURNED},
    {"f32 bias starts pages", F32, 40, 70, 96, 4, 2, 40, true, 25, true, LAYOUT_ROWS, 3, 0, 3, .page = 32,
     .starts = true, .bias = BIAS_ODD},
    {"f32 head 32", F32, 5, 300, 300, 12, 12, 32, false, 0, false, LAYOUT_PACKED, 0, 0, .align = 0},
    {"f32 head 32 causal", F32, 5, 270, 270, 8, 4, 32, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .lse = true},
    {"f32 head 64", F32, 3, 290, 290, 12, 4, 64, true, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"f32 head 64 ranges", F32, 2, 280, 310, 8, 8, 64, false, 0, false, LAYOUT_HEADS, 0, 0, 0,
     .ranges = true},
    {"f32 head 80", F32, 6, 260, 140, 6, 6, 80, false, 0, true, LAYOUT_ROWS, 0, 0, .align = 0},
    {"f32 head 96 window", F32, 2, 300, 300, 8, 8, 96, true, 70, false, LAYOUT_HEADS, 0, 0, .align = 0},
    {"f32 head 128", F32, 4, 300, 300, 12, 3, 128, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"f32 head 256 sinks", F32, 2, 200, 200, 8, 8, 256, true, 0, false, LAYOUT_ROWS, 0, 0, 0, .sinks = true},
    {"f32 head 30", F32, 2, 270, 150, 6, 6, 30, true, 0, false, LAYOUT_HEADS, 0, 0, .align = 1},
    {"f32 head 32 starts", F32, 9, 700, 300, 8, 2, 32, true, 0, true, LAYOUT_ROWS, 0, 0, 3, .page = 4,
     .starts = true},
    {"starts of none", BF16, 0, 30, 30, 2, 2, 64, false, 0, false, LAYOUT_ROWS, 0, 0, 0, .starts = true},
    {"no keys", BF16, 2, 30, 0, 2, 2, 64, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"no queries", BF16, 2, 0, 30, 2, 2, 64, false, 0, false, LAYOUT_ROWS, 0, 0, .align = 0},
    {"no batch", BF16, 0, 30, 30, 2, 2, 64, false, 0, true, LAYOUT_ROWS, 0, 0, .align = 0},
};
const int attention_case_count = ARRAY_SIZE(attention_cases);

static int64_t row_columns(const struct attention_case *c, int64_t heads)
{
    if (c->layout == LAYOUT_PACKED) heads = c->heads + 2 * c->kv_heads;
    return heads * c->head_dim + c->pad;
}

/* Of so many sequences, or pages. */
static struct tensor_use view(const struct attention_case *c, int buffer, int64_t time, int64_t heads)
{
    struct tensor_use v = {.buffer = buffer, .dtype = c->dtype, .value = -1};
    if (c->keys && (buffer == ATTENTION_K || buffer == ATTENTION_V)) v.dtype = c->keys;
    if (c->layout == LAYOUT_HEADS) {
        v.time = c->head_dim + c->pad;
        v.head = time * v.time;
        v.batch = heads * v.head;
    } else {
        v.head = c->head_dim;
        v.time = row_columns(c, heads);
        v.batch = time * v.time;
    }
    return v;
}

static struct tensor_use beside(bool there, int buffer, const int64_t *stride)
{
    struct tensor_use u = {.role = USE_BESIDE, .buffer = there ? buffer : -1, .steady = true};
    bool whole = buffer == ATTENTION_LENGTHS || buffer == ATTENTION_RANGES || buffer == ATTENTION_TABLE ||
                 buffer == ATTENTION_STARTS;
    u.dtype = whole ? CODA_I32 : CODA_F32;
    for (int i = 0; i < 3; i++) u.stride[i] = stride[i];
    return u;
}

static struct tensor_use bias_use(const struct attention_case *c)
{
    struct tensor_use u = beside(c->bias, ATTENTION_BIAS, (int64_t[]){0, 0, 0});
    int64_t batch = !c->starts, tq = c->tq, tk = c->tk, heads = c->heads;
    int64_t stride[BIASES][4] = {
        [BIAS_WHOLE] = {heads * tq * tk, tq * tk, tk, 1},
        [BIAS_HEADS] = {0, tq * (tk + 2), tk + 2, 1},
        [BIAS_KEYS] = {tk, 0, 0, 1},
        [BIAS_ROWS] = {0, tq, 1, 0},
        [BIAS_ODD] = {heads * tq * (tk + 1), tq * (tk + 1), tk + 1, 1},
        [BIAS_TURNED] = {0, tq * tk, 1, tq},
    };
    for (int i = 0; i < 4; i++) u.stride[i] = stride[c->bias][i] * (i || batch);
    if (c->bias16) u.dtype = c->dtype;
    u.offset = c->bias == BIAS_ODD;
    return u;
}

int64_t attention_case_slots(const struct attention_case *c)
{
    return c->page ? (c->batch * (c->tk / c->page) + 3) * c->page : c->tk;
}

void attention_case_spec(const struct attention_case *c, struct attention_spec *out)
{
    *out = (struct attention_spec){
        .batch = c->batch,
        .tq = c->tq,
        .tk = c->tk,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .window = c->window,
        .causal = c->causal,
        .align = (coda_attention_align)c->align,
        .ahead = c->ahead,
        .softcap = c->softcap,
        .use[ATTENTION_LENGTHS] = beside(c->lengths, ATTENTION_LENGTHS, (int64_t[]){1, 0, 0}),
        .use[ATTENTION_RANGES] =
            beside(c->ranges, ATTENTION_RANGES, (int64_t[]){c->starts ? 0 : 2 * c->tq, 2, 1}),
        .use[ATTENTION_SLOPES] = beside(c->slopes, ATTENTION_SLOPES, (int64_t[]){1, 0, 0}),
        .use[ATTENTION_SINKS] = beside(c->sinks, ATTENTION_SINKS, (int64_t[]){1, 0, 0}),
        .use[ATTENTION_TABLE] =
            beside(c->page, ATTENTION_TABLE, (int64_t[]){c->page ? c->tk / c->page : 0, 1, 0}),
        .use[ATTENTION_LSE] = beside(c->lse, ATTENTION_LSE, (int64_t[]){c->heads * c->tq, c->tq, 1}),
        .use[ATTENTION_K_SCALE] = beside(c->scales, ATTENTION_K_SCALE, (int64_t[]){c->scales - 1, 0, 0}),
        .use[ATTENTION_V_SCALE] = beside(c->scales, ATTENTION_V_SCALE, (int64_t[]){c->scales - 1, 0, 0}),
        .use[ATTENTION_STARTS] = beside(c->starts, ATTENTION_STARTS, (int64_t[]){1, 0, 0}),
        .use[ATTENTION_BIAS] = bias_use(c),
        .page = c->page,
        .slots = attention_case_slots(c)};
    if (c->score) {
        const struct attention_score *score = &attention_scores[c->score];
        out->score = score->map.source ? &score->map : prim_find(score->map.name);
        memcpy(out->score_param, score->param, sizeof out->score_param);
    }
    out->scale = c->scale != 0 ? c->scale : (float)(1 / sqrt((double)c->head_dim));
    out->use[ATTENTION_Q] = view(c, ATTENTION_Q, c->tq, c->heads);
    out->use[ATTENTION_K] = view(c, ATTENTION_K, attention_lot(out), c->kv_heads);
    out->use[ATTENTION_V] = view(c, ATTENTION_V, attention_lot(out), c->kv_heads);
    out->use[ATTENTION_O] = view(c, ATTENTION_O, c->tq, c->heads);
    out->use[ATTENTION_O].role = out->use[ATTENTION_LSE].role = USE_RESULT;
    out->use[ATTENTION_K].steady = out->use[ATTENTION_V].steady = out->use[ATTENTION_LENGTHS].steady =
        c->layout != LAYOUT_PACKED;
    if (c->layout == LAYOUT_PACKED) {
        out->use[ATTENTION_K].buffer = out->use[ATTENTION_V].buffer = ATTENTION_Q;
        out->use[ATTENTION_K].offset = c->heads * c->head_dim;
        out->use[ATTENTION_V].offset = (c->heads + c->kv_heads) * c->head_dim;
    }
}

/* Up to the last one that there is. */
static int64_t bias_elements(const struct attention_spec *s)
{
    int64_t extent[] = {attention_batches(s), s->heads, s->tq, s->tk}, last = s->use[ATTENTION_BIAS].offset;
    for (int i = 0; i < 4; i++) {
        if (extent[i] == 0) return 0;
        last += (extent[i] - 1) * s->use[ATTENTION_BIAS].stride[i];
    }
    return last + 1;
}

int64_t attention_case_elements(const struct attention_case *c, int buffer)
{
    struct attention_spec s;
    attention_case_spec(c, &s);
    bool packed = c->layout == LAYOUT_PACKED;
    int64_t batches = attention_batches(&s);
    switch (buffer) {
    case ATTENTION_Q: return batches * s.use[ATTENTION_Q].batch;
    case ATTENTION_K: return packed ? 0 : attention_lots(&s) * s.use[ATTENTION_K].batch;
    case ATTENTION_V: return packed ? 0 : attention_lots(&s) * s.use[ATTENTION_V].batch;
    case ATTENTION_O: return batches * s.use[ATTENTION_O].batch;
    case ATTENTION_LENGTHS: return c->lengths ? c->batch : 0;
    case ATTENTION_RANGES: return c->ranges ? 2 * batches * c->tq : 0;
    case ATTENTION_SLOPES: return c->slopes ? c->heads : 0;
    case ATTENTION_LSE: return c->lse ? batches * c->heads * c->tq : 0;
    case ATTENTION_TABLE: return c->page ? c->batch * (c->tk / c->page) : 0;
    case ATTENTION_STARTS: return c->starts ? c->batch + 1 : 0;
    case ATTENTION_BIAS: return c->bias ? bias_elements(&s) : 0;
    case ATTENTION_SINKS: return c->sinks ? c->heads : 0;
    case ATTENTION_K_SCALE:
    case ATTENTION_V_SCALE: return c->scales == 2 ? c->kv_heads : c->scales;
    }
    return 0;
}

bool attention_fits_sm90(const struct attention_spec *a, const struct target *target)
{
    struct attention_spec spec = *a;
    struct schedule s = {0};
    struct program p = {.kind = PROGRAM_OWN, .own = &own_attention, .spec = &spec};
    schedule_attention(&s, &p, &(struct plan_options){.target = *target});
    return !s.attention->fallback;
}

coda_status attention_emit(struct attention_rig *r, const struct attention_case *c, bool sm90)
{
    *r = (struct attention_rig){.p = {.kind = PROGRAM_OWN, .own = &own_attention, .spec = &r->attention}};
    attention_case_spec(c, &r->attention);
    r->plan.target = attention_target;
    if (!sm90) r->plan.target.features = 0;
    schedule_attention(&r->s, &r->p, &(struct plan_options){.target = r->plan.target, .base = c->base});
    r->attention.shares = r->s.parts_bytes > 0;
    r->attention.parts = (struct tensor_use){.role = USE_SCRATCH, .buffer = ATTENTION_USES};
    bool empty = attention_is_empty(&r->attention);
    if (empty && sm90) r->s.attention = &attention_wgmma;
    if (sm90 && r->s.attention->fallback)
        return fail(CODA_E_UNSUPPORTED,
                    "attention: head_dim %lld and these strides do not fit the Hopper kernel",
                    (long long)r->attention.head_dim);
    return program_emit(&r->plan, &r->p, &r->s, &r->plan.target, &r->k);
}
