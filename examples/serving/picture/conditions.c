/*
 * conditions.c -- the sizes of a run, and what its plans read: times, classes, texts, noise.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "noise.h"
#include "picture.h"

/* ---- Sizes ---- */

static bool side(int given, int standard, int scale, int patch, const char *what, int *patches,
                 struct fault *f)
{
    int pixels = given ? given : standard, step = scale * patch;
    if (pixels < step || pixels % step || pixels / scale > MOST_PICTURE_SIDE)
        return fault_set(f, "a %s of %d pixels: a multiple of %d up to %d is wanted", what, pixels, step,
                         MOST_PICTURE_SIDE * scale);
    *patches = pixels / step;
    return true;
}

/* Of a decoder that makes several frames of one of latents, the first stands alone. */
static bool choose_frames(struct picture *p, struct fault *f)
{
    int n = p->opt.frames, each = p->time_scale;
    p->shape.frames = 1;
    if (p->config.kind != PICTURE_WAN)
        return n <= 1 || fault_set(f, "%d frames: %s draws pictures", n, p->config.name);
    p->shape.frames = n ? (n - 1) / each + 1 : p->config.frames;
    return (!n || (n - 1) % each == 0) ||
           fault_set(f, "%d frames: 1 and a multiple of %d are wanted", n, each);
}

static bool choose_sides(struct picture *p, struct fault *f)
{
    const struct picture_config *c = &p->config;
    struct picture_shape *s = &p->shape;
    if (!side(p->opt.height, c->sample * p->scale, p->scale, c->patch, "height", &s->rows, f) ||
        !side(p->opt.width, c->sample_wide * p->scale, p->scale, c->patch, "width", &s->columns, f) ||
        !choose_frames(p, f))
        return false;
    if (c->most_side && (s->rows > c->most_side || s->columns > c->most_side || s->frames > c->most_side))
        return fault_set(f, "%d x %d x %d patches; the network knows %d on an axis", s->frames, s->rows,
                         s->columns, c->most_side);
    if (c->positions && (s->rows > c->positions || s->columns > c->positions))
        return fault_set(f, "%d x %d patches, and the network has positions of %d x %d", s->columns, s->rows,
                         c->positions, c->positions);
    return true;
}

static bool choose_classes(struct picture *p, struct fault *f)
{
    const struct picture_config *c = &p->config;
    if (p->opt.pictures < 1 || p->opt.pictures > MOST_PICTURES)
        return fault_set(f, "%d pictures; 1 to %d are possible", p->opt.pictures, MOST_PICTURES);
    for (int i = 0; c->classes && i < p->opt.pictures; i++)
        if (p->opt.classes[i] < 0 || p->opt.classes[i] >= c->classes)
            return fault_set(f, "class %d is none of 0 to %d", p->opt.classes[i], c->classes - 1);
    if (c->classes && (p->opt.text || p->opt.pooled || p->opt.negative || p->opt.negative_pooled))
        return fault_set(f, "%s draws pictures of a class, not of a text", c->name);
    return true;
}

/* The tokens of a text; of random weights as many as are usual. */
static bool choose_text(struct picture *p, struct fault *f)
{
    static const int usual[] = {0, 120, 333, 512, 512};
    const struct picture_config *c = &p->config;
    const char *const files[] = {p->opt.text, p->opt.negative}, *const names[] = {"--text", "--negative"};
    const int64_t dims[] = {1, 0, c->text_columns};
    if (c->classes) return true;
    for (int i = 0; i < 1 + p->shape.guided; i++) {
        if (!files[i] && !p->opt.open.random)
            return fault_set(f, "%s wants %s, the embeddings of %s as .npy", c->name, names[i],
                             i ? "what guidance leads away from, mostly of an empty text" : "a text");
        p->text_length[i] = files[i] ? 0 : usual[c->kind];
        if (files[i]) {
            float *all = picture_array(files[i], dims, 3, &p->text_length[i], f);
            free(all);
            if (!all) return false;
        }
        if (p->text_length[i] > p->shape.text) p->shape.text = p->text_length[i];
    }
    if (p->shape.guided && c->kind != PICTURE_PIXART && p->text_length[0] != p->text_length[1])
        return fault_set(f, "%d tokens of --text and %d of --negative: %s wants as many", p->text_length[0],
                         p->text_length[1], c->name);
    return true;
}

/* A class or a pooled text differs from sample to sample; of one text for all pictures there are two at
 * most. */
static void choose_samples(struct picture *p)
{
    struct picture_shape *s = &p->shape;
    s->pictures = p->opt.pictures;
    s->guided = p->config.kind != PICTURE_FLUX && p->opt.guidance > 1;
    s->samples = s->guided ? 2 * s->pictures : s->pictures;
    s->conditions = p->config.kind == PICTURE_DIT  ? s->samples
                    : p->config.pooled_columns > 0 ? 1 + s->guided
                                                   : 1;
}

static bool choose_device(struct picture *p, struct fault *f)
{
    struct model_options *o = &p->m.opt;
    bool there = o->only_plan ? device_plan(&p->m.device, o->device) : device_open(&p->m.device, o->device);
    if (!there) return fault_set(f, "there is no GPU, or no driver");
    coda_dtype stored = o->random ? CODA_BF16 : checkpoint_dtype(&p->m.files);
    if (!o->dtype) o->dtype = !p->m.device.on_gpu ? CODA_F32 : stored == CODA_F32 ? CODA_F16 : stored;
    times_end(&p->m.times, "device");
    return true;
}

bool picture_choose(struct picture *p, struct fault *f)
{
    static const int steps[] = {50, 20, 28, 28, 50};
    static const double guidance[] = {4, 4.5, 7, 3.5, 5};
    if (!p->opt.steps) p->opt.steps = steps[p->config.kind];
    if (p->opt.guidance < 0) p->opt.guidance = guidance[p->config.kind];
    p->shape.steps = p->opt.steps;
    snprintf(p->m.config.family, sizeof p->m.config.family, "%.31s", p->config.name);
    p->m.config.layers = p->config.layers;
    if (!choose_classes(p, f) || !choose_sides(p, f)) return false;
    choose_samples(p);
    struct picture_step *all = calloc(MOST_STEPS, sizeof *all); /* whether there are so many is known now */
    bool good = all ? picture_schedule_steps(&p->schedule, p->config.kind, p->shape.steps,
                                             (int)picture_patches(&p->shape), all, f)
                    : fault_set(f, "out of memory");
    free(all);
    return good && choose_text(p, f) && choose_device(p, f);
}

/* ---- Times ---- */

/* [cos | sin] of a number at falling frequencies: Vaswani et al., arXiv 1706.03762; in fp32, as diffusers. */
static void put_time(float *to, float at, int divisor)
{
    const int half = TIME_COLUMNS / 2;
    for (int i = 0; i < half; i++) {
        float angle = at * expf((float)(-log(10000)) * (float)i / (float)divisor);
        to[i] = (float)cos((double)angle);
        to[half + i] = (float)sin((double)angle);
    }
}

static bool write_steps(struct picture *p, struct fault *f)
{
    size_t wide = p->schedule.corrects ? STEP_NUMBERS : PLAIN_NUMBERS;
    int n = p->shape.steps, divisor = TIME_COLUMNS / 2 - (p->config.kind == PICTURE_DIT);
    struct picture_step *step = calloc((size_t)n, sizeof *step);
    float *times = calloc((size_t)n, sizeof *times * TIME_COLUMNS),
          *numbers = calloc((size_t)n, sizeof *numbers * wide);
    bool good = (step && times && numbers) || fault_set(f, "out of memory");
    good = good &&
           picture_schedule_steps(&p->schedule, p->config.kind, n, (int)picture_patches(&p->shape), step, f);
    for (int i = 0; good && i < n; i++) {
        const float row[PLAIN_NUMBERS] = {
            (float)p->opt.guidance, step[i].p, step[i].q, step[i].r, step[i].s, step[i].t};
        memcpy(numbers + wide * (size_t)i, row, sizeof row);
        if (p->schedule.corrects)
            memcpy(numbers + wide * (size_t)i + PLAIN_NUMBERS, step[i].corrected, sizeof step->corrected),
                memcpy(numbers + wide * (size_t)(i + 1) - 3, step[i].next, sizeof step->next);
        put_time(times + TIME_COLUMNS * i, step[i].time, divisor);
    }
    good = good && picture_write(p, "times", times, sizeof *times * TIME_COLUMNS * (size_t)n, f) &&
           picture_write(p, "numbers", numbers, sizeof *numbers * wide * (size_t)n, f);
    free(step);
    free(times);
    free(numbers);
    return good;
}

/* ---- Conditions ---- */

/* Which row of a step's each sample has. */
static bool write_samples(struct picture *p, struct fault *f)
{
    const struct picture_shape *s = &p->shape;
    int32_t condition[2 * MOST_PICTURES], classes[2 * MOST_PICTURES], lengths[2 * MOST_PICTURES];
    size_t rows = s->conditions > 1 ? (size_t)s->samples : 1, n = (size_t)s->samples;
    for (int i = 0; i < s->samples; i++) {
        bool away = i >= s->pictures;
        condition[i] = s->conditions == s->samples ? i : away;
        classes[i] = away ? p->config.classes : p->opt.classes[i % s->pictures];
        lengths[i] = p->text_length[away];
    }
    return picture_write(p, "condition", condition, sizeof *condition * rows, f) &&
           picture_write(p, "classes", classes, sizeof *classes * (size_t)s->conditions, f) &&
           picture_write(p, "lengths", lengths, sizeof *lengths * n, f);
}

static bool write_sides(struct picture *p, struct fault *f)
{
    float all[3 * TIME_COLUMNS];
    const double high = p->shape.rows * p->config.patch * p->scale,
                 wide = p->shape.columns * p->config.patch * p->scale;
    const double sides[] = {high, wide, high / wide};
    for (int i = 0; i < 3; i++) put_time(all + TIME_COLUMNS * i, (float)sides[i], TIME_COLUMNS / 2);
    if (!picture_write(p, "sides", all, sizeof all, f)) return false;
    put_time(all, (float)p->opt.guidance * 1000, TIME_COLUMNS / 2);
    return picture_write(p, "strength", all, sizeof *all * TIME_COLUMNS, f);
}

/* Text j's array, or of random weights normal numbers. */
static float *array(struct picture *p, const char *path, const int64_t *dims, int rank, uint32_t j,
                    struct fault *f)
{
    int64_t count = 1;
    if (path) return picture_array(path, dims, rank, NULL, f);
    for (int i = 0; i < rank; i++) count *= dims[i];
    float *to = malloc(sizeof *to * (size_t)count);
    if (!to) return fault_set(f, "out of memory"), NULL;
    noise_fill(p->opt.open.seed, UINT32_MAX - j, count, to);
    return to;
}

static bool write_text(struct picture *p, struct fault *f)
{
    const struct picture_shape *s = &p->shape;
    const char *const files[] = {p->opt.text, p->opt.negative};
    size_t wide = (size_t)p->config.text_columns, one = (size_t)s->text * wide;
    float *all = calloc((size_t)s->samples * one, sizeof *all);
    bool good = all || fault_set(f, "out of memory");
    for (int j = 0; good && j < 1 + s->guided; j++) {
        const int64_t dims[] = {1, p->text_length[j], p->config.text_columns};
        float *text = array(p, files[j], dims, 3, (uint32_t)j, f);
        good = text != NULL;
        for (int i = 0; good && i < s->pictures; i++)
            memcpy(all + (size_t)(j * s->pictures + i) * one, text,
                   (size_t)p->text_length[j] * wide * sizeof *text);
        free(text);
    }
    good = good && picture_write(p, "text", all, (size_t)s->samples * one * sizeof *all, f);
    free(all);
    return good;
}

static bool write_pooled(struct picture *p, struct fault *f)
{
    const char *const files[] = {p->opt.pooled, p->opt.negative_pooled};
    const char *const names[] = {"--pooled", "--negative-pooled"};
    size_t wide = (size_t)p->config.pooled_columns;
    float *all = calloc(2 * wide, sizeof *all);
    bool good = all || fault_set(f, "out of memory");
    for (int j = 0; good && j < 1 + p->shape.guided; j++) {
        const int64_t dims[] = {1, p->config.pooled_columns};
        if (!files[j] && !p->opt.open.random)
            good = fault_set(f, "%s wants %s, a vector as .npy", p->config.name, names[j]);
        float *one = good ? array(p, files[j], dims, 2, 2 + (uint32_t)j, f) : NULL;
        good = one != NULL;
        if (good) memcpy(all + (size_t)j * wide, one, wide * sizeof *one);
        free(one);
    }
    good = good && picture_write(p, "pooled", all, (size_t)p->shape.conditions * wide * sizeof *all, f);
    free(all);
    return good;
}

/* ---- RoPE ---- */

static bool write_positions(struct picture *p, struct fault *f)
{
    const struct picture_shape *s = &p->shape;
    const struct picture_config *c = &p->config;
    size_t n = (size_t)picture_patches(s), text = c->kind == PICTURE_FLUX ? (size_t)s->text : 0, k = 0;
    int32_t *at = calloc((text + n) * 3, sizeof *at);
    float *frequency = calloc((size_t)c->head_dim, sizeof *frequency);
    bool good = (at && frequency) || fault_set(f, "out of memory");
    for (size_t i = 0; good && i < n; i++) {
        at[3 * (text + i)] = (int32_t)(i / (size_t)s->columns / (size_t)s->rows);
        at[3 * (text + i) + 1] = (int32_t)(i / (size_t)s->columns % (size_t)s->rows);
        at[3 * (text + i) + 2] = (int32_t)(i % (size_t)s->columns);
    }
    for (int a = 0; good && a < 3; a++)
        for (int i = 0; i < c->axes[a] / 2; i++) frequency[k++] = (float)pow(10000, -2.0 * i / c->axes[a]);
    good = good && picture_write(p, "positions", at, (text + n) * 3 * sizeof *at, f) &&
           picture_write(p, "frequencies", frequency, k * sizeof *frequency, f);
    free(at);
    free(frequency);
    return good;
}

bool picture_inputs(struct picture *p, struct fault *f)
{
    return write_steps(p, f) && write_samples(p, f) && write_sides(p, f) &&
           (p->config.classes || write_text(p, f)) && (!p->config.pooled_columns || write_pooled(p, f)) &&
           (!p->config.axes[1] || write_positions(p, f));
}

/* ---- Latents ---- */

bool picture_noise(struct picture *p, float *to, struct fault *f)
{
    int64_t dims[5], n = picture_numbers(p);
    if (!p->opt.noise) {
        for (int i = 0; i < p->shape.pictures; i++) noise_fill(p->opt.open.seed, (uint32_t)i, n, to + i * n);
        return true;
    }
    picture_dims(p, dims);
    float *given = picture_array(p->opt.noise, dims, picture_rank(p), NULL, f);
    if (given) memcpy(to, given, sizeof *to * (size_t)(n * p->shape.pictures));
    free(given);
    return given != NULL;
}

/* Where number i of [channels, frames, height, width] is in [patches, numbers]: FLUX's have a channel's
 * pixels together. */
static int64_t place(const struct picture *p, int64_t i)
{
    int64_t patch = p->config.patch, channels = p->config.channels, columns = p->shape.columns,
            wide = columns * patch;
    int64_t high = p->shape.rows * patch, frames = p->shape.frames;
    int64_t x = i % wide, y = i / wide % high, t = i / wide / high % frames, c = i / wide / high / frames;
    int64_t inside = y % patch * patch + x % patch;
    int64_t number = p->config.kind == PICTURE_FLUX ? c * patch * patch + inside : inside * channels + c;
    return ((t * p->shape.rows + y / patch) * columns + x / patch) * patch * patch * channels + number;
}

void picture_to_patches(const struct picture *p, const float *from, float *to)
{
    for (int64_t i = 0, n = picture_numbers(p); i < n; i++) to[place(p, i)] = from[i];
}

void picture_of_patches(const struct picture *p, const float *from, float *to)
{
    for (int64_t i = 0, n = picture_numbers(p); i < n; i++) to[i] = from[place(p, i)];
}
