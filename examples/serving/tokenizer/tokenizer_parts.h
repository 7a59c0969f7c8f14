/*
 * tokenizer_parts.h -- what a tokenizer is made of, for this folder alone.
 *
 *   text --added tokens--> stretches --normalizers--> text --added tokens--> stretches
 *        --pre-tokenizers--> words --model--> ids --post-processor--> ids
 */
#ifndef TOKENIZER_PARTS_H
#define TOKENIZER_PARTS_H

#include "plain.h"
#include "tokenizer.h"
#include "unicode.h"

/* One line that says what is wrong: the first one counts. */
struct complaint {
    char *text;
    size_t size;
    bool made;
};
__attribute__((format(printf, 2, 3))) bool complain(struct complaint *c, const char *format, ...); /* false */

/* ---- work.c: what an encoding, or a decoding, may cost ---- */

struct work {
    const struct deadline *deadline;
    int64_t left;   /* steps, a few nanoseconds each */
    size_t unasked; /* steps since the deadline was asked */
    size_t most;    /* bytes that a text may become */
    int why;        /* enum refused: no step may be made any more; 0: not yet */
    bool raw;       /* a decoding leaves bytes that are no text as they are, without U+FFFD */
};
/* How many there are at least: for a text, and for the text of some tokens. */
enum { STEPS_LEAST = 1 << 22, STEPS_OF_TOKENS = 1 << 17 };
struct work work_begin(const struct deadline *deadline, size_t bytes); /* of the text */
/* false: there are no more steps, the deadline has passed, or it failed before. */
bool work_do(struct work *w, size_t steps);
bool work_fail(struct work *w, int why); /* the first one counts; false */

/* Ids that grow, like struct text. */
struct ids {
    int32_t *list;
    size_t count, room;
    bool failed;
};
void ids_add(struct ids *ids, int32_t id);

/* ---- vocab.c: strings and their ids ---- */

struct word {
    size_t at; /* in the bytes of its vocabulary */
    uint32_t size;
    int32_t id;
};
struct vocab {
    struct text bytes;
    struct word *words;
    size_t count, room;
    uint32_t *table; /* a word's index + 1, or 0; a power of two of them */
    size_t slots;
    size_t longest; /* bytes of a string */
};
enum { ID_LIMIT = 1 << 22 }; /* ids above are a damaged file */

bool vocab_add(struct vocab *v, const char *s, size_t n,
               int32_t id); /* the last id of a string counts; false: no memory */
int32_t vocab_find(const struct vocab *v, const char *s, size_t n); /* -1: no such string */
void vocab_free(struct vocab *v);

/* ---- pattern.c: what a text is searched for ---- */

/* A stretch of a text, and whether it is what was looked for. */
struct span {
    size_t from, to;
    bool match;
};
struct spans {
    struct span *list;
    size_t count, room;
    bool failed; /* no memory, or the work has ended */
};
void spans_add(struct spans *s, size_t from, size_t to, bool match);
void spans_free(struct spans *s);

struct pattern {
    char *literal; /* or NULL */
    size_t size;
    void *regex; /* of PCRE2 */
};
/* `text` in the syntax of Oniguruma, of which what means the same in PCRE2 is understood. */
bool pattern_regex(struct pattern *p, const char *text, size_t n, struct complaint *c);
bool pattern_literal(struct pattern *p, const char *text, size_t n, struct complaint *c);
/* All of s, match by match, with what is between. */
void pattern_spans(const struct pattern *p, const char *s, size_t n, struct work *w, struct spans *out);
void pattern_free(struct pattern *p);

/* ---- Steps: normalizers, pre-tokenizers, decoders ---- */

struct pieces;
/* Which characters a step makes: its own, none, or GPT-2's alphabet of bytes, of all there are. */
enum makes { MAKES_OTHERS, MAKES_NONE, MAKES_BYTES };
struct step {
    /* One of them is set. Normalizers add what becomes of s; pre-tokenizers add words, of which the first
     * one is the text's first one if `first` is set; decoders change a list of pieces of text. */
    void (*normalize)(const struct step *st, const char *s, size_t n, struct work *w, struct text *out);
    void (*cut)(const struct step *st, const char *s, size_t n, bool first, struct pieces *out);
    void (*decode)(const struct step *st, const struct pieces *in, struct pieces *out);

    struct pattern pattern;
    struct text string; /* what is put in, a prefix, a suffix */
    int how;            /* of Split and Punctuation: enum behavior; of a Metaspace: enum prepend */
    int start, stop;    /* of Strip */
    int reach;          /* bytes of which it makes one, at most; 0: any number, or none is left */
    enum makes makes;
    bool flag[4]; /* in the order in which the step's comment names them */
};
struct steps {
    struct step *list;
    int count;
};
enum behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum prepend { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

/* Stretches of one text that follow each other. */
struct piece {
    size_t at, size;
    bool first;
};
struct pieces {
    struct text text;
    struct piece *list;
    size_t count, room;
    bool failed;
    struct work *work; /* that making them is a part of */
};
struct pieces pieces_begin(struct work *w); /* none yet; of as many bytes as a text may become */
void pieces_add(struct pieces *p, const char *s, size_t n, bool first);
void pieces_free(struct pieces *p);

/* ---- The model ---- */

struct merge {
    uint64_t pair; /* the two ids */
    uint32_t rank; /* ~0: an empty slot */
    int32_t id;    /* that they become */
};
struct bpe {
    struct merge *table;
    size_t slots;               /* a power of two */
    struct text prefix, suffix; /* of characters that do not begin a word, and that end it */
    int32_t unk;                /* -1: a character that is not known leaves nothing */
    int32_t bytes[256];         /* of byte fallback, -1: none */
    bool byte_fallback, fuse_unk, ignore_merges;
};
struct wordpiece {
    struct text prefix;
    int32_t unk;
    size_t most; /* characters of a word */
};
enum model_kind { MODEL_BPE, MODEL_WORDPIECE };

/* What an encoding uses again for each word. */
struct scratch {
    void *memory;
    size_t size;
};
void *scratch_get(struct scratch *s, size_t size); /* NULL: no memory */

/* ---- added.c: tokens that the text is searched for before all else ---- */

struct added {
    struct text content;
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
};
struct trie_node {
    int32_t child, sibling; /* 0: none */
    int32_t token;          /* index of an added token that ends here, or -1 */
    unsigned char byte;
};
struct trie {
    struct trie_node *nodes;
    size_t count, room;
};
bool trie_add(struct trie *t, const char *s, size_t n, int32_t token);
/* A span for each token (match: its index in *which, beside the span) and for each stretch between. */
struct tokenizer;
void added_spans(const struct tokenizer *t, const struct trie *trie, const char *s, size_t n, struct work *w,
                 struct spans *out, struct ids *which);

struct tokenizer {
    struct vocab vocab; /* of the model */
    enum model_kind model;
    struct bpe bpe;
    struct wordpiece wordpiece;

    struct added *added;
    size_t added_count;
    struct vocab added_names;
    struct trie raw, normalized; /* looked for before, and after, the text is normalized */

    struct steps normalizers, cuts, decoders;
    struct ids before, after; /* what the post-processor puts around a text */

    const char **names; /* of ids, not terminated, NULL: none */
    uint32_t *name_sizes;
    bool *special;
    bool drops;         /* a text may have words of which no id comes */
    size_t reach;       /* bytes of a text that one id may stand for, at most; 0: any number */
    int32_t size;       /* one more than the greatest id */
    struct vocab parts; /* "bos", "eos" ... */
};

/* bpe.c, wordpiece.c: false when there is no memory, or the work has ended. */
bool bpe_word(const struct tokenizer *t, const char *s, size_t n, struct scratch *scratch, struct work *w,
              struct ids *out);
bool wordpiece_word(const struct tokenizer *t, const char *s, size_t n, struct work *w, struct ids *out);
/* `table` for `merges` pairs; and one merge of two tokens, by their strings. A pair's last merge counts. */
bool bpe_merges(struct bpe *b, size_t merges);
void bpe_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id);

/* reach.c: t->drops and t->reach of a tokenizer that is read. */
void tokenizer_reach(struct tokenizer *t);

/* tokenizer.c: what becomes of s before it is cut; the text of ids; and a text to who asked for it. */
void tokenizer_normalize(const struct tokenizer *t, const char *s, size_t n, struct work *w,
                         struct text *out);
enum saying { SAY_TEXT, SAY_SPECIALS /* special tokens, too */, SAY_BYTES /* and what is no text */ };
bool tokenizer_text(const struct tokenizer *t, const int32_t *ids, size_t n, enum saying how,
                    struct text *out);
int tokenizer_hand_out(const struct text *t, char *out, size_t size);

#endif
