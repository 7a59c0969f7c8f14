/*
 * quant_file.h -- writes checkpoints of a small LLaMA or Qwen 2 whose products are quantised, as the packages
 * that people use lay them out, and the same model in fp32: each weight as the format's formula has it.
 */
#ifndef QUANT_FILE_H
#define QUANT_FILE_H

#include "model_test.h"

/* A matrix in numbers, before they are laid out. */
struct drawn {
    int rows, columns, group, groups;
    int *q;      /* [rows][columns]: integers, or codes of floats */
    int *z;      /* [rows][groups] */
    float *s;    /* [rows][groups], exact in the type that they are written in */
    int32_t *of; /* [columns]: the group of each */
    float factor;
    float *w; /* [rows][columns]: all that multiplied out, in fp32 as the formula rounds it */
};

/* A file while it is made. */
struct made {
    json_t *header;
    unsigned char *data;
    size_t bytes, room;
};

/* A format. */
struct quant_kind {
    const char *name;
    const char *config; /* quantization_config */
    int bits, group;    /* 0: a whole row */
    bool floating, zeros, ordered;
    int scales; /* as CODA_BF16 and so on; 0: e8m0, -1: e4m3 */
    int shared; /* rows that have one scale; 0: all */
    void (*lay)(struct made *t, const char *name, const struct drawn *d, const struct quant_kind *k);
    const char *said; /* NULL: the config is what the file says; else what it says instead, "" for nothing */
};

extern const struct quant_kind quant_kinds[];
extern const int quant_kind_count;

void made_add(struct made *t, const char *name, const char *type, int rank, const int64_t *dims,
              const void *data, size_t bytes);
void made_write(struct made *t, const char *folder, const char *name);

struct drawn drawn_new(const struct quant_kind *k, int rows, int columns, uint64_t *seed);
void drawn_free(struct drawn *d);

/* Writes folder/quantised and folder/plain. */
void quant_write(const struct quant_kind *k, const char *folder, const char *family, uint64_t seed);

/* Of folder/plain writes folder/adapter, pairs of low rank, and folder/merged: W + s B A. */
void adapter_write(const char *folder, double alpha, bool by_root, uint64_t seed);

/* A GGUF file. */
struct quant_gguf {
    const char *name, *family;
    const char *types; /* of its tensors */
};
extern const struct quant_gguf quant_ggufs[];
extern const int quant_gguf_count;

/* Files of other writers. */
void quant_golden(void);
/* Files that are refused. */
void quant_bad(const char *scratch);

/* Writes folder/quantised.gguf and folder/plain.gguf. */
void quant_write_gguf(const struct quant_gguf *k, const char *folder, uint64_t seed);

#endif
