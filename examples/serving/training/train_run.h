/*
 * train_run.h -- a run from its first step, or from where it stopped, to its last.
 */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include <limits.h>

#include "train_corpus.h"
#include "train_engine.h"
#include "train_save.h"
#include "train_source.h"

struct run {
    struct settings settings;
    struct source source;
    struct device device;
    struct corpus corpus;
    struct windows windows, held;
    struct engine engine;
    struct history history;
    struct batch *batches; /* of a step */
    json_t *kept;          /* the settings, as a checkpoint has them */
    char stories[PATH_MAX], stories_model[PATH_MAX], path[3][PATH_MAX];
    struct {
        int64_t targets;
        float rate;
    } launched[DOWNLOADS]; /* steps whose results have not been taken, by their numbers */
    int64_t begun;         /* steps; the history has those that are taken */
    double scale;          /* of the last one's loss; 0: it has none */
    double began;          /* of the steps that no line has told of */
    int64_t told, tokens;
};

/* Whether all is there: files, sizes, memory, plans. */
bool run_open(struct run *r, const struct settings *s, struct fault *f);
/* Prints what the plans of a step need, instead. */
bool run_plans(struct run *r, const struct settings *s, struct fault *f);
bool run_steps(struct run *r, struct fault *f);
/* A checkpoint of it as it is. */
bool run_save(struct run *r, struct fault *f);
void run_close(struct run *r);

#endif
