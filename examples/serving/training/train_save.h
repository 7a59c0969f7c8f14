/*
 * train_save.h -- checkpoints of a run: what generate reads, and what the run goes on with.
 *
 * model.safetensors has the weights. training.safetensors has all that a run needs to go on to the same bits:
 * the fp32 weights, the optimiser's states, losses so far, settings, and the place in the text. Each is there
 * as a whole: one is written aside and renamed behind the other, and only training.safetensors is gone on
 * with.
 */
#ifndef TRAIN_SAVE_H
#define TRAIN_SAVE_H

#include "train_parameters.h"

#define TRAINING_FILE "training.safetensors"

/* What was seen of a run, step by step. */
struct history {
    float *loss, *norm; /* of each step */
    float *rate;
    int64_t steps, room;
    struct judged {
        int64_t step;
        float loss;
    } * judged; /* of the text that is held out */
    int64_t judgements;
    int64_t judged_room;
};
bool history_add(struct history *h, float loss, float norm, float rate, struct fault *f);
bool history_judge(struct history *h, int64_t step, float loss, struct fault *f);
void history_free(struct history *h);

/* Where a run is, and of what. */
struct place {
    int64_t epoch, next; /* in the text's windows */
    uint64_t digest;     /* of the text's tokens */
};

/* training.safetensors. */
bool save_training(const char *folder, const struct parameters *p, const struct history *h,
                   const struct place *at, const json_t *settings, struct fault *f);
/* model.safetensors, in `dtype`, as transformers has it, with adapters added to what they stand beside. */
bool save_model(const char *folder, const struct parameters *p, const struct config *c, coda_dtype dtype,
                struct fault *f);

/* The settings of a run that a folder has, a new reference, before there is memory for it; NULL: a fault. */
json_t *saved_settings(const char *folder, struct fault *f);
bool saved_there(const char *folder);
/* All else of it. */
bool saved_restore(const char *folder, struct parameters *p, struct history *h, struct place *at,
                   struct fault *f);

#endif
