/*
 * gguf_file.h -- writes GGUF files of a golden's tensors, for tests of what a key or a tensor does.
 */
#ifndef GGUF_FILE_H
#define GGUF_FILE_H

#include "model_test.h"

enum { GGUF_BYTES = 1 << 18, GGUF_TENSORS = 64 };

struct gguf_file {
    char keys[1 << 16];
    size_t key_bytes;
    unsigned long long values;
    char architecture[32];
    struct {
        char name[64];
        const struct stored_tensor *from;
        unsigned type; /* ggml's number; 0: F32 */
    } tensor[GGUF_TENSORS];
    int tensors;
};

void gguf_file_begin(struct gguf_file *g, const char *architecture);
/* Keys by a list "TYPE NAME VALUE, TYPE NAME VALUE": u is uint32, f float32, b bool, s a text. Names are
 * behind the architecture's, but where they begin with general., tokenizer., split. or =. */
void gguf_file_keys(struct gguf_file *g, const char *list);
void gguf_file_tensor(struct gguf_file *g, const char *name, const struct stored_tensor *from);
/* Those from tensor `at` on, `n` of them. */
void gguf_file_write(const struct gguf_file *g, const char *path, int at, int n);

/* Sizes of a golden's family, but for keys whose names are in `without`; its tensors, but for biases and
 * factors of RoPE, of which those are added that have one of the words of `with` in their names. */
void gguf_file_family(struct gguf_file *g, const struct checkpoint *golden, const char *family,
                      const char *without, const char *with);

#endif
