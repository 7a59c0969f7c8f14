/*
 * checkpoint.h -- the tensors of a model's files, by name, where they lie: files are mapped, nothing is
 * copied.
 *
 * A file is not trusted: every offset, size and name is checked before it is used. But a file that another
 * process cuts short while it is mapped ends the program (SIGBUS), as with any mapped file.
 */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include <jansson.h>
#include <stddef.h>

#include "coda.h"
#include "fault.h"

struct stored_tensor {
    char *name;
    char *stored;     /* as the file calls it, or NULL: by `name` */
    bool used;        /* a graph, or what is made for it, has asked for it */
    char type[16];    /* as the file calls it */
    coda_dtype dtype; /* CODA_F32, CODA_F16, CODA_BF16; 0: a type that no plain weight has */
    int rank;
    int64_t dims[CODA_MAX_RANK]; /* outermost first */
    int block, block_bytes;      /* elements that lie together, and their bytes: 1 of most types */
    const unsigned char *data;   /* little endian; maybe not aligned */
    size_t bytes;
};

struct mapped_file {
    const unsigned char *data;
    size_t bytes;
};

struct checkpoint {
    struct stored_tensor *tensor; /* sorted by name once the checkpoint is open */
    int count, room;
    struct mapped_file *file;
    int files;
    json_t *config;       /* of config.json, or made of a GGUF file's metadata in the same words */
    json_t *generation;   /* of generation_config.json, or NULL */
    bool adapted;         /* there are tensors of an adapter, adapter.NAME: adapter.h */
    double adapter_alpha; /* lora_alpha */
    bool adapter_by_root; /* use_rslora */
};

/* `path` is a folder with config.json and model.safetensors, or model.safetensors.index.json and its shards,
 * or it is a file whose name ends in .gguf or .safetensors (then config.json lies beside it). */
bool checkpoint_open(struct checkpoint *c, const char *path, struct fault *f);
/* The same of a folder with config.json whose tensors are in `name`.safetensors, or its shards. */
bool checkpoint_open_named(struct checkpoint *c, const char *folder, const char *name, struct fault *f);
void checkpoint_close(struct checkpoint *c);

bool checkpoint_is_gguf(const char *path); /* by its name */

/* Of tensors and files. */
bool name_ends(const char *name, const char *end);

/* config.json alone, by its path or that of its folder: a checkpoint without tensors. */
bool checkpoint_open_config(struct checkpoint *c, const char *path, struct fault *f);

/* The dtype of the largest tensor of numbers, F32 if there is none; where that is F32 beside GGUF's quantised
 * types, BF16. */
coda_dtype checkpoint_dtype(const struct checkpoint *c);

/* The folder of a checkpoint's other files: `path` itself, or the one that its file is in. */
bool checkpoint_folder(const char *path, char *folder, size_t size);

/* Elements of a tensor. */
int64_t stored_elements(const struct stored_tensor *t);
/* Sets t->bytes by its dimensions, rank, block and block_bytes. -1; else the first dimension that is out of
 * range, or the last one where elements do not fill a block. */
int stored_measure(struct stored_tensor *t);

/* NULL if there is none. */
const struct stored_tensor *checkpoint_find(const struct checkpoint *c, const char *name);
/* The same for one who uses its numbers: build_done refuses those that nobody has used. */
const struct stored_tensor *checkpoint_use(const struct checkpoint *c, const char *name);

/* ---- For those who read files ---- */

/* Maps a whole file, which stays until the checkpoint is closed; false for one that is empty or no file. */
bool checkpoint_map(struct checkpoint *c, const char *path, struct mapped_file *out, struct fault *f);

/* A file of JSON in at most 64 MB; an object. */
json_t *checkpoint_json(const char *path, struct fault *f);
json_t *checkpoint_object(const char *path, struct fault *f);

/* Adds the tensors of model.safetensors in the folder `part` of the model's, as modules.PART.NAME; then they
 * want to be sorted. */
bool checkpoint_add_part(struct checkpoint *c, const char *folder, const char *part, struct fault *f);

/* Adds a tensor; its name is copied, and so is what the file calls it, if that is another one. */
bool checkpoint_add(struct checkpoint *c, const struct stored_tensor *t, const char *name, const char *stored,
                    struct fault *f);

/* Puts tensors in order, so that they can be found; false if a name comes twice. */
bool checkpoint_sort(struct checkpoint *c, struct fault *f);

/* Adds the tensors of one file. `file` is its name in messages. */
bool safetensors_read(struct checkpoint *c, const char *file, const struct mapped_file *map, struct fault *f);
/* The same, of the other parts of a file that is split, too; and sets c->config. `file` is the path. */
bool gguf_read(struct checkpoint *c, const char *file, const struct mapped_file *map, struct fault *f);

#endif
