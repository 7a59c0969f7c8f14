/*
 * picture_schedule.h -- the numbers of each step, by scheduler/scheduler_config.json: DDIM (Song et al.,
 * arXiv 2010.02502, without noise), Euler's steps of flow matching, or UniPC's of them (Zhao et al., arXiv
 * 2302.04867), of order 2, whose steps a corrector follows.
 *
 * A step makes of latents x and the network's result m
 *     x' = r clip(p x + q m) + s x + t m,
 * or where nothing is clipped x' = s x + t m. With a corrector c = p x + q m is clean, and of what the last
 * step began with, x, c, and c of the two steps before a step makes y, by `corrected`; of y, c, and c of the
 * step before x', by `next`.
 */
#ifndef PICTURE_SCHEDULE_H
#define PICTURE_SCHEDULE_H

#include "picture_config.h"

enum { MOST_STEPS = 1000 };

struct picture_step {
    float time; /* which the network is told */
    float p, q, r, s, t;
    float corrected[5], next[3];
};
/* A row of what a step reads: guidance and the numbers above, less the time. */
enum { PLAIN_NUMBERS = 6, STEP_NUMBERS = PLAIN_NUMBERS + 8 };

struct picture_schedule {
    char name[48];       /* the class that the file names */
    bool flow, corrects; /* corrects: of flow, too */
    int order;           /* of it: 1 or 2 */
    int trained;         /* steps of training */
    float clip;          /* 0: nothing is clipped */
    enum { SPACING_LEADING, SPACING_TRAILING, SPACING_LINSPACE } spacing;
    enum { PREDICTS_EPSILON, PREDICTS_V, PREDICTS_SAMPLE } predicts;
    int offset;       /* of leading steps */
    bool ends_at_one; /* the last step leaves no noise */
    float *kept;      /* products of 1 - beta, of each step of training */
    /* Of flow matching: how times are shifted, by a number or by how many patches there are. */
    double shift, base_shift, max_shift, terminal;
    bool dynamic, linear;
    int base_patches, max_patches;
};

/* `o`: NULL: what diffusers takes where nothing is said, of flow matching for SD3 and FLUX. */
bool picture_schedule_read(struct picture_schedule *s, const struct picture_config *c, const json_t *o,
                           struct fault *f);
void picture_schedule_free(struct picture_schedule *s);

/* So many steps of a picture of so many patches. */
bool picture_schedule_steps(const struct picture_schedule *s, enum picture_kind kind, int steps, int patches,
                            struct picture_step *out, struct fault *f);

#endif
