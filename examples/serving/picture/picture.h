/*
 * picture.h -- a folder as diffusers writes it, as two plans with their memory: one that runs once, and a
 * step, whose latents and whose number are states, so that on a GPU all steps replay one captured graph.
 */
#ifndef PICTURE_H
#define PICTURE_H

#include "model.h"
#include "picture_build.h"
#include "picture_schedule.h"

enum { MOST_PICTURES = 64 };

struct picture_options {
    struct model_options open; /* device, dtype, random, seed, progress, adapter and only_plan */
    int width, height;         /* pixels; 0: as the network was trained */
    int frames;                /* of a video; 0: as is usual */
    int steps;                 /* 0: as many as is usual for the kind */
    double guidance;           /* below 0: as is usual for the kind; up to 1: none */
    int classes[MOST_PICTURES];
    int pictures; /* of the classes, or of one text */
    bool tune;    /* tiles are measured, and what they took is kept in the cache: CODA_AUTOTUNE */
    /* .npy files of a text's embeddings and their pooled ones; of what guidance leads away from; of latents
     * to begin with, in place of those by the seed. NULL: there are none. */
    const char *text, *pooled, *negative, *negative_pooled, *noise;
};

/* Memory that the plans share, by its name. */
struct shared {
    char name[48];
    size_t bytes;
    void *data;
};
enum { MOST_SHARED = 2 * MOST_LAYERS + 24 };

struct picture {
    struct model m;             /* its files, options, device, times, and the weights with their memory */
    struct picture_options opt; /* without zeros */
    struct picture_config config;
    struct picture_schedule schedule;
    struct picture_shape shape;
    const struct picture_graphs *graphs;
    int scale, time_scale; /* pixels of a latent's side; frames for each of latents but the first */
    int64_t table_columns; /* known once the first graph is there */
    int text_length[2];    /* tokens of the text, and of what guidance leads away from */
    struct made *made;
    struct shared shared[MOST_SHARED];
    int shared_count;
    coda_plan *first, *step;
    void **first_args, **step_args, *first_workspace, *step_workspace;
    coda_stream stream;
    gpu_graph graph;
    gpu_replay replay;
};

/* NULL, and the fault, if it cannot be had. */
struct picture *picture_open(const char *path, const struct picture_options *opt, struct fault *f);
void picture_close(struct picture *p);

/* Runs the plan that comes first, and captures a step. */
bool picture_prepare(struct picture *p, struct fault *f);
/* All steps, from noise on. */
bool picture_draw(struct picture *p, struct fault *f);

/* [pictures, channels, height, width]; of a video [pictures, channels, frames, height, width]. */
int64_t picture_numbers(const struct picture *p); /* of one picture */
int picture_rank(const struct picture *p);
void picture_dims(const struct picture *p, int64_t dims[5]);
bool picture_latents(struct picture *p, float *to, struct fault *f);

/* ---- Between the files ---- */

/* Reads the folder, or with `random` the config.json of a transformer alone. */
bool picture_read(struct picture *p, const char *path, struct fault *f);
/* The sizes of a run, by the config and the options. */
bool picture_choose(struct picture *p, struct fault *f);
coda_graph *picture_first_graph(struct picture *p, struct fault *f);
coda_graph *picture_step_graph(struct picture *p, struct fault *f);
/* Writes all inputs of both plans but latents. */
bool picture_inputs(struct picture *p, struct fault *f);
/* Latents of all pictures at the beginning. */
bool picture_noise(struct picture *p, float *to, struct fault *f);
/* Between [channels, frames, height, width] and [patches, numbers]. */
void picture_to_patches(const struct picture *p, const float *from, float *to);
void picture_of_patches(const struct picture *p, const float *from, float *to);
/* Copies to the memory of this name; true if no plan has it. */
bool picture_write(struct picture *p, const char *name, const void *from, size_t bytes, struct fault *f);

/* The floats of an .npy file of these dims, of which leading ones that are 1 may be absent, for free(). Where
 * *tokens is not NULL, and 0, the last but one of the dims may be any number up to MOST_TOKENS, which is
 * written there. */
enum { MOST_TOKENS = 4096 };
float *picture_array(const char *path, const int64_t *dims, int rank, int *tokens, struct fault *f);

#endif
