/*
 * tokenizer.h -- text to a checkpoint's tokens, and back.
 *
 * A checkpoint's folder has tokenizer.json (Hugging Face's format), or vocab.json and merges.txt
 * (byte-level BPE of GPT-2, RoBERTa and Qwen2), or vocab.txt (WordPiece of BERT). What such a file asks
 * for and is not known here is an error that names it: ids are the ones of the package `tokenizers`, or
 * there are none. Its settings `truncation` and `padding` are left to the caller.
 *
 * tokenizer_config.json says which tokens begin, end and fill a text, and, for the classes of LLaMA and
 * Gemma, whether encoding puts them there.
 *
 * A tokenizer is not changed by use: threads may share it.
 */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deadline.h"

struct tokenizer;

/* NULL, and one line that says why, when a file is missing or is not understood. */
struct tokenizer *tokenizer_open(const char *dir, char *err, size_t n);
/* The tokenizer of a GGUF file's metadata, an object with all its lists: WordPiece, SentencePiece's BPE
 * as LLaMA 2, Mistral, Gemma and Phi-3 have it, or byte-level BPE as GPT-2, Qwen 2 and LLaMA 3 do.
 * `name` is the file's, for messages. */
struct tokenizer *tokenizer_open_gguf(const json_t *metadata, const char *name, char *err, size_t n);
void tokenizer_close(struct tokenizer *t);

/* What an encoding may cost; NULL is without limits. */
struct encode_limits {
    const struct deadline *deadline; /* may be NULL */
    int64_t tokens;                  /* ids of a text; 0: any number */
};

/*
 * The number of ids that there are, of which at most `most` are stored; or an enum refused, all of which are
 * negative: REFUSED_INPUT, the text is no UTF-8, or a regular expression gives up; REFUSED_LONG, there are
 * more ids than the limits allow (of a text that is far too long, without reading it); REFUSED_LATE,
 * REFUSED_CANCELLED, REFUSED_MEMORY. tokenizer_encode adds the tokens that the file's post-processor puts
 * around a text, such as [CLS] and [SEP]; tokenizer_encode_bare does not: a chat's template has its own.
 * Special tokens that are written out in the text become their ids in both.
 */
int tokenizer_encode(struct tokenizer *t, const char *text, size_t len, int32_t *ids, int most,
                     const struct encode_limits *limits);
int tokenizer_encode_bare(struct tokenizer *t, const char *text, size_t len, int32_t *ids, int most,
                          const struct encode_limits *limits);

/*
 * The number of bytes that there are, of which at most size - 1 are stored, and a NUL behind them;
 * negative when there is no memory. The text is UTF-8: bytes that are none become U+FFFD. Ids without a
 * token are left out. tokenizer_decode leaves special tokens out as well, tokenizer_decode_all writes
 * them.
 */
int tokenizer_decode(struct tokenizer *t, const int32_t *ids, int n, char *out, size_t size);
int tokenizer_decode_all(struct tokenizer *t, const int32_t *ids, int n, char *out, size_t size);

/*
 * The text of one token as it is inside of a text, counted and stored likewise, special tokens by their
 * names: with the space before it that the beginning of a text has not.
 */
int tokenizer_piece(struct tokenizer *t, int32_t id, char *out, size_t size);
/* Its bytes: the same, but where it is a part of a character, which need not be UTF-8. */
int tokenizer_bytes(struct tokenizer *t, int32_t id, char *out, size_t size);

/*
 * The id of a token by its part ("bos", "eos", "pad", "unk", "cls", "sep", "mask", by
 * tokenizer_config.json or config.json), else by its text ("<|im_end|>"); -1 if there is none.
 */
int tokenizer_special(struct tokenizer *t, const char *name);

/* One more than the greatest id. */
int tokenizer_size(struct tokenizer *t);

/*
 * A decoder of tokens that come one by one: what a call stores is the text that is sure, so that the
 * pieces joined are the text of all ids. Bytes inside of a character wait for those that end it. Results
 * are those of tokenizer_decode; `out` must have room for the piece, which is as long as the token, or a
 * few tokens that waited.
 */
struct tokenizer_stream;
struct tokenizer_stream *tokenizer_stream_open(struct tokenizer *t);
/* The text of what comes goes on after that of these tokens, as an answer after its prompt. Of an opened
 * stream, before all others. false: no memory. */
bool tokenizer_stream_after(struct tokenizer_stream *s, const int32_t *ids, int n);
int tokenizer_stream_next(struct tokenizer_stream *s, int32_t id, char *out, size_t size);
int tokenizer_stream_end(struct tokenizer_stream *s, char *out, size_t size); /* what still waits */
void tokenizer_stream_close(struct tokenizer_stream *s);

#endif
