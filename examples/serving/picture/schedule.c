/*
 * schedule.c -- the steps of picture_schedule.h. Betas, their products and times are rounded as diffusers
 * rounds them, so that its pictures are these.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"
#include "picture_schedule.h"

static const char *const classes[] = {"DDIMScheduler",
                                      "DDPMScheduler",
                                      "PNDMScheduler",
                                      "DPMSolverMultistepScheduler",
                                      "FlowMatchEulerDiscreteScheduler",
                                      "UniPCMultistepScheduler",
                                      NULL};
enum {
    DDIM = 1 << 0,
    DDPM = 1 << 1,
    PNDM = 1 << 2,
    SOLVER = 1 << 3,
    FLOW = 1 << 4,
    UNIPC = 1 << 5,
    NOISE = DDIM | DDPM | PNDM | SOLVER,
};

static const struct key keys[] = {
    {"_class_name", KEY_ALL, KEY_READ, NULL, "the class: of DDPM, PNDM and DPMSolver steps are DDIM's"},
    {"_diffusers_version", KEY_ALL, KEY_IGNORED, NULL, "who wrote it"},
    {"num_train_timesteps", KEY_ALL, KEY_READ, NULL, "steps of training"},
    {"beta_start beta_end beta_schedule", NOISE, KEY_READ, NULL,
     "how noise grows: linear, scaled_linear, squaredcos_cap_v2"},
    {"prediction_type timestep_spacing steps_offset", NOISE, KEY_READ, NULL, "what is predicted, and when"},
    {"clip_sample clip_sample_range set_alpha_to_one", NOISE, KEY_READ, NULL,
     "whether the picture that is predicted is clipped; what the last step leaves. Of DDPM and DDIM "
     "clipped where nothing is said"},
    {"trained_betas", NOISE, KEY_IGNORED, "[null]", "betas of one's own"},
    {"rescale_betas_zero_snr thresholding", NOISE, KEY_IGNORED, "[false]",
     "other betas; another way to clip"},
    {"skip_prk_steps", PNDM, KEY_IGNORED, NULL, "of other steps than DDIM's"},
    {"dynamic_thresholding_ratio sample_max_value", NOISE, KEY_IGNORED, NULL,
     "of thresholding, which is refused"},
    {"variance_type solver_order algorithm_type solver_type lower_order_final euler_at_final "
     "final_sigmas_type"
     " lambda_min_clipped flow_shift",
     NOISE, KEY_IGNORED, NULL, "of other steps than DDIM's"},
    {"use_karras_sigmas use_exponential_sigmas use_beta_sigmas use_lu_lambdas use_flow_sigmas", NOISE,
     KEY_IGNORED, "[false, null]", "other times"},
    {"shift use_dynamic_shifting base_shift max_shift base_image_seq_len max_image_seq_len shift_terminal"
     " time_shift_type",
     FLOW, KEY_READ, NULL, "how times are shifted, by a number or by how many patches a picture has"},
    {"flow_shift solver_order", UNIPC, KEY_READ, NULL, "how times are shifted; 1 or 2"},
    {"prediction_type use_flow_sigmas", UNIPC, KEY_READ, NULL, "must be flow_prediction, and true"},
    {"predict_x0 lower_order_final", UNIPC, KEY_IGNORED, "[true]", "other steps"},
    {"solver_type final_sigmas_type", UNIPC, KEY_IGNORED, "[\"bh2\", \"zero\"]", "other steps; other ends"},
    {"disable_corrector solver_p shift_terminal sigma_min sigma_max trained_betas", UNIPC, KEY_IGNORED,
     "[null, []]", "other steps and times"},
    {"use_karras_sigmas use_exponential_sigmas use_beta_sigmas use_dynamic_shifting thresholding"
     " rescale_betas_zero_snr",
     UNIPC, KEY_IGNORED, "[false]", "other times; another way to clip"},
    {"beta_start beta_end beta_schedule timestep_spacing steps_offset time_shift_type"
     " dynamic_thresholding_ratio sample_max_value",
     UNIPC, KEY_IGNORED, NULL, "of other times than those of flow"},
    {"invert_sigmas use_karras_sigmas use_exponential_sigmas use_beta_sigmas stochastic_sampling", FLOW,
     KEY_IGNORED, "[false]", "other times, or noise between them"},
};
const struct key_table schedule_keys = {"scheduler/scheduler_config.json", classes, keys,
                                        sizeof keys / sizeof *keys};

/* The place of a word among some, which end with NULL; -1, and a fault, if it is none of them. */
static int one_of(struct keys *k, const char *name, const char *const *all, int fallback, struct fault *f)
{
    json_t *v = keys_get(k, name);
    const char *word = json_string_value(v);
    if (!v) return fallback;
    for (int i = 0; word && all[i]; i++)
        if (!strcmp(word, all[i])) return i;
    return fault_set(f, "scheduler: %s '%.40s' is not supported", name, word ? word : "?"), -1;
}

/* ---- Noise ---- */

/* Nichol and Dhariwal, arXiv 2102.09672. */
static double cosine(double at)
{
    double x = cos((at + 0.008) / 1.008 * M_PI / 2);
    return x * x;
}

static bool make_kept(struct picture_schedule *s, int schedule, double first, double last, struct fault *f)
{
    double kept = 1, n = s->trained;
    if (!(s->kept = calloc((size_t)s->trained, sizeof *s->kept))) return fault_set(f, "out of memory");
    for (int i = 0; i < s->trained; i++) {
        double part = n > 1 ? i / (n - 1) : 0, root = sqrt(first) + (sqrt(last) - sqrt(first)) * part;
        double beta = schedule == 0   ? first + (last - first) * part
                      : schedule == 1 ? (double)((float)root * (float)root)
                                      : fmin(1 - cosine((i + 1) / n) / cosine(i / n), 0.999);
        kept *= (double)(1 - (float)beta);
        s->kept[i] = (float)kept;
    }
    return true;
}

static bool read_noise(struct picture_schedule *s, struct keys *k, struct fault *f)
{
    static const char *const spacings[] = {"leading", "trailing", "linspace", NULL};
    static const char *const predictions[] = {"epsilon", "v_prediction", "sample", NULL};
    static const char *const schedules[] = {"linear", "scaled_linear", "squaredcos_cap_v2", NULL};
    bool clips, solver = !strcmp(s->name, classes[3]), pndm = !strcmp(s->name, classes[2]);
    double first, last, range;
    int schedule = one_of(k, "beta_schedule", schedules, 0, f);
    int spacing = one_of(k, "timestep_spacing", spacings, solver ? SPACING_LINSPACE : SPACING_LEADING, f);
    int predicts = one_of(k, "prediction_type", predictions, 0, f);
    if (schedule < 0 || spacing < 0 || predicts < 0 ||
        !config_number(k, "beta_start", NULL, 0, 1, 0.0001, &first, f) ||
        !config_number(k, "beta_end", NULL, 0, 1, 0.02, &last, f) ||
        !config_int(k, "steps_offset", NULL, 0, s->trained, 0, &s->offset, f) ||
        !config_bool(k, "clip_sample", !solver && !pndm, &clips, f) ||
        !config_number(k, "clip_sample_range", NULL, 1e-3, 1e3, 1, &range, f) ||
        !config_bool(k, "set_alpha_to_one", !pndm, &s->ends_at_one, f))
        return false;
    s->spacing = (unsigned)spacing, s->predicts = (unsigned)predicts;
    s->clip = clips ? (float)range : 0;
    return make_kept(s, schedule, first, last, f);
}

/* ---- Flow ---- */

static bool read_flow(struct picture_schedule *s, struct keys *k, double shift, struct fault *f)
{
    static const char *const kinds[] = {"exponential", "linear", NULL};
    int kind = one_of(k, "time_shift_type", kinds, 0, f);
    s->flow = true;
    s->linear = kind == 1;
    return kind >= 0 && config_number(k, "shift", NULL, 1e-3, 1e3, shift, &s->shift, f) &&
           config_bool(k, "use_dynamic_shifting", false, &s->dynamic, f) &&
           config_number(k, "base_shift", NULL, -10, 10, 0.5, &s->base_shift, f) &&
           config_number(k, "max_shift", NULL, -10, 10, 1.15, &s->max_shift, f) &&
           config_int(k, "base_image_seq_len", NULL, 1, 1 << 24, 256, &s->base_patches, f) &&
           config_int(k, "max_image_seq_len", NULL, 1, 1 << 24, 4096, &s->max_patches, f) &&
           config_number(k, "shift_terminal", NULL, 0, 0.999, 0, &s->terminal, f) &&
           (!s->dynamic || s->max_patches > s->base_patches ||
            fault_set(f, "scheduler: max_image_seq_len %d is not above base_image_seq_len %d", s->max_patches,
                      s->base_patches));
}

/* Where nothing is said, noise is predicted; `flow`: without a file, of flow. */
static bool read_unipc(struct picture_schedule *s, struct keys *k, bool flow, struct fault *f)
{
    static const char *const predictions[] = {"flow_prediction", NULL};
    bool times;
    s->flow = s->corrects = true;
    int predicts = one_of(k, "prediction_type", predictions, flow ? 0 : 1, f);
    if (predicts < 0 || !config_bool(k, "use_flow_sigmas", flow, &times, f)) return false;
    if (predicts || !times) return fault_set(f, "scheduler: %s is supported of flow alone", s->name);
    return config_number(k, "flow_shift", NULL, 1e-3, 1e3, 1, &s->shift, f) &&
           config_int(k, "solver_order", NULL, 1, 2, 2, &s->order, f);
}

bool picture_schedule_read(struct picture_schedule *s, const struct picture_config *c, const json_t *o,
                           struct fault *f)
{
    struct keys k;
    static const int usual[] = {0, 0, 4, 4, 5};
    json_t *named = json_object_get(o, "_class_name");
    const char *name = o ? json_string_value(named) : classes[usual[c->kind]];
    *s = (struct picture_schedule){.shift = 1};
    if (!name || !key_family(&schedule_keys, name))
        return fault_set(
            f, "scheduler: _class_name '%.60s' is not supported: %s, %s, and those whose noise %s has, are",
            name ? name : "?", classes[4], classes[5], classes[0]);
    strcpy(s->name, name);
    keys_begin(&k, &schedule_keys, name, o, "scheduler");
    keys_get(&k, "_class_name");
    bool good = config_int(&k, "num_train_timesteps", NULL, 1, 100000, 1000, &s->trained, f);
    if (good && !strcmp(name, classes[4])) good = read_flow(s, &k, !o && c->kind == PICTURE_SD3 ? 3 : 1, f);
    else if (good && !strcmp(name, classes[5])) good = read_unipc(s, &k, !o, f);
    else if (good) good = read_noise(s, &k, f);
    return config_done(&k, good, f);
}

void picture_schedule_free(struct picture_schedule *s)
{
    free(s->kept);
    s->kept = NULL;
}

/* ---- The steps ---- */

static int ddim_time(const struct picture_schedule *s, int steps, int i)
{
    int n = s->trained, back = steps - 1 - i;
    switch (s->spacing) {
    case SPACING_LEADING: return back * (n / steps) + s->offset;
    case SPACING_TRAILING: return (int)rint(n - i * ((double)n / steps)) - 1;
    case SPACING_LINSPACE: return steps > 1 ? (int)rint(back * ((double)(n - 1) / (steps - 1))) : 0;
    }
    return 0;
}

/* x_0 = p x + q m, noise = e x + g m; x' = r x_0 + d noise. */
static struct picture_step ddim_step(const struct picture_schedule *s, int time, int next)
{
    double a = (double)s->kept[time], b = sqrt(1 - a), root = sqrt(a);
    double kept = next >= 0 ? (double)s->kept[next] : s->ends_at_one ? 1 : (double)s->kept[0];
    double r = sqrt(kept), d = sqrt(1 - kept), p, q, e, g;
    if (s->predicts == PREDICTS_EPSILON) p = 1 / root, q = -b / root, e = 0, g = 1;
    else if (s->predicts == PREDICTS_V) p = root, q = -b, e = b, g = root;
    else p = 0, q = 1, e = 1 / b, g = -root / b;
    if (s->clip > 0)
        return (struct picture_step){.time = (float)time,
                                     .p = (float)p,
                                     .q = (float)q,
                                     .r = (float)r,
                                     .s = (float)(d * e),
                                     .t = (float)(d * g)};
    return (struct picture_step){
        .time = (float)time, .s = (float)(r * p + d * e), .t = (float)(r * q + d * g)};
}

static bool ddim_steps(const struct picture_schedule *s, int steps, struct picture_step *out, struct fault *f)
{
    if (steps > s->trained) return fault_set(f, "%d steps, and training had %d", steps, s->trained);
    for (int i = 0; i < steps; i++) {
        int time = ddim_time(s, steps, i);
        if (time >= s->trained)
            return fault_set(f, "scheduler: steps_offset %d is beyond %d steps of training", s->offset,
                             s->trained);
        out[i] = ddim_step(s, time, time - s->trained / steps);
    }
    return true;
}

/* FLUX's pipeline makes its times of fp32, the others' of fp64. */
static double rounded(enum picture_kind kind, double x)
{
    return kind == PICTURE_FLUX ? (double)(float)x : x;
}

/* `factor` times the odds of noise. */
static double shifted(const struct picture_schedule *s, enum picture_kind kind, double sigma, int patches)
{
    if (!s->dynamic) {
        double divisor = rounded(kind, 1 + rounded(kind, (s->shift - 1) * sigma));
        return rounded(kind, rounded(kind, s->shift * sigma) / divisor);
    }
    double slope = (s->max_shift - s->base_shift) / (s->max_patches - s->base_patches);
    double mu = s->base_shift + slope * (patches - s->base_patches);
    double factor = rounded(kind, s->linear ? mu : exp(mu));
    return rounded(kind, factor / rounded(kind, factor + rounded(kind, rounded(kind, 1 / sigma) - 1)));
}

/* How much noise there is at the beginning of step i. */
static double flow_sigma(const struct picture_schedule *s, enum picture_kind kind, int steps, int patches,
                         int i)
{
    double last = 1.0 / s->trained; /* of diffusers' range; FLUX's pipeline ends at a whole step instead */
    if (kind == PICTURE_FLUX) last = 1.0 / steps;
    else if (!s->dynamic) last = s->shift * last / (1 + (s->shift - 1) * last);
    double sigma = steps > 1 ? 1 + (last - 1) * i / (steps - 1) : 1;
    return shifted(s, kind, rounded(kind, sigma), patches);
}

static void flow_steps(const struct picture_schedule *s, enum picture_kind kind, int steps, int patches,
                       struct picture_step *out)
{
    double end = 1 - flow_sigma(s, kind, steps, patches, steps - 1);
    double stretch = s->terminal > 0 ? end / (1 - s->terminal) : 1;
    for (int i = 0; i < steps; i++) {
        float sigma = (float)(1 - (1 - flow_sigma(s, kind, steps, patches, i)) / stretch), next = 0;
        if (i + 1 < steps) next = (float)(1 - (1 - flow_sigma(s, kind, steps, patches, i + 1)) / stretch);
        out[i] = (struct picture_step){.time = sigma * (float)s->trained, .s = 1, .t = next - sigma};
    }
}

/* ---- UniPC, of clean latents, by B(h) = e^-h - 1 ---- */

/* Half the logarithm of how much there is of the picture and of noise. */
static double half_odds(const float *sigma, int i)
{
    return log(1 - (double)sigma[i]) - log((double)sigma[i]);
}

/* Between two times: what is left of the latents, and what there comes of a clean picture. */
struct stride {
    double left, picture, h;
};

static struct stride stride(const float *sigma, int from)
{
    double a = 1 - (double)sigma[from + 1], h = half_odds(sigma, from + 1) - half_odds(sigma, from);
    return (struct stride){(double)sigma[from + 1] / (double)sigma[from], -a * expm1(-h), h};
}

static int order_at(const struct picture_schedule *s, int steps, int i)
{
    int most = i + 1 < steps - i ? i + 1 : steps - i; /* one step back at the beginning, and at the end */
    return most < s->order ? most : s->order;
}

/* What there is at step i, corrected by what the network makes of it. */
static void correct(const float *sigma, int order, int i, float *to)
{
    struct stride r = stride(sigma, i - 1);
    double hh = -r.h, phi = expm1(hh) / hh - 1, b[2] = {phi / expm1(hh)}, older = 0, now = 0.5, ratio = 1;
    if (order == 2) {
        b[1] = (phi / hh - 0.5) * 2 / expm1(hh);
        ratio = (half_odds(sigma, i - 2) - half_odds(sigma, i - 1)) / r.h;
        older = (b[0] - b[1]) / (1 - ratio), now = b[0] - older;
    }
    to[0] = (float)r.left, to[1] = 0;
    to[2] = (float)(r.picture * now);
    to[3] = (float)(r.picture * (1 - now - older / ratio));
    to[4] = (float)(r.picture * older / ratio);
}

static void predict(const float *sigma, int order, int i, float *to)
{
    struct stride r = stride(sigma, i);
    double older = order < 2 ? 0 : 0.5 * r.h / (half_odds(sigma, i - 1) - half_odds(sigma, i));
    to[0] = (float)r.left, to[1] = (float)(r.picture * (1 - older)), to[2] = (float)(r.picture * older);
}

static bool unipc_steps(const struct picture_schedule *s, int steps, struct picture_step *out,
                        struct fault *f)
{
    float *sigma = calloc((size_t)steps + 1, sizeof *sigma); /* the last one is 0 */
    if (!sigma) return fault_set(f, "out of memory");
    for (int i = 0; i < steps; i++) {
        double at = 1 + (1.0 / s->trained - 1) * i / steps,
               shifted = s->shift * at / (1 + (s->shift - 1) * at);
        if (i == 0 && fabs(shifted - 1) < 1e-6) shifted -= 1e-6; /* where the odds would not be finite */
        sigma[i] = (float)shifted;
        out[i] = (struct picture_step){
            .time = (float)floor(shifted * s->trained), .p = 1, .q = -sigma[i], .corrected = {0, 1}};
    }
    for (int i = 0; i < steps; i++) {
        if (i > 0) correct(sigma, order_at(s, steps, i - 1), i, out[i].corrected);
        predict(sigma, order_at(s, steps, i), i, out[i].next);
    }
    free(sigma);
    return true;
}

bool picture_schedule_steps(const struct picture_schedule *s, enum picture_kind kind, int steps, int patches,
                            struct picture_step *out, struct fault *f)
{
    if (steps < 1 || steps > MOST_STEPS)
        return fault_set(f, "%d steps; 1 to %d are possible", steps, MOST_STEPS);
    if (!s->flow) return ddim_steps(s, steps, out, f);
    if (s->corrects) return unipc_steps(s, steps, out, f);
    flow_steps(s, kind, steps, patches, out);
    return true;
}
