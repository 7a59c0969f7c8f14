/*
 * tokenizer_json.h -- reading the files, for this folder alone.
 */
#ifndef TOKENIZER_JSON_H
#define TOKENIZER_JSON_H

#include <jansson.h>

#include "tokenizer_parts.h"

/* An object, what it is called in complaints, and where these go. */
struct reader {
    const json_t *object;
    const char *what;
    struct complaint *complaint;
};

/* Complains unless r's object has no other members than these, which are separated by blanks. */
bool read_only(const struct reader *r, const char *members);
/* A member's value; `otherwise`, or nothing, where it is absent or null. Complains if it is of another
 * type. */
bool read_flag(const struct reader *r, const char *member, bool otherwise);
int read_int(const struct reader *r, const char *member, int otherwise);
void read_text(const struct reader *r, const char *member, struct text *to);
void read_pattern(const struct reader *r, const char *member, struct pattern *to);
/* The place of a member's string among names, which end with NULL; 0 where it is absent. */
int read_choice(const struct reader *r, const char *member, const char *const *names);
extern const char *const behavior_names[];
/* What a Metaspace puts for spaces, and when it puts one in front: of pre-tokenizers and of decoders. */
#define METASPACE_MEMBERS "replacement prepend_scheme split add_prefix_space str_rep"
void metaspace_read(const struct reader *r, struct step *st);

/* A kind of step: its name, its members but for `type`, what reads them, and a step before they are read. */
struct kind {
    const char *type, *members;
    void (*read)(const struct reader *r, struct step *st); /* or NULL */
    struct step step;
};
/* A step, a Sequence of steps (in the member `list`), or null. */
bool steps_read(const json_t *v, const char *what, const char *list, const struct kind *kinds,
                struct steps *out, struct complaint *c);
void steps_free(struct steps *s);
extern const struct kind normalizer_kinds[], cut_kinds[], decoder_kinds[];

/* model.c: the member `model`. One type is of no file's, but of file_of_scores alone. */
#define SCORED_MODEL "coda:SentencePiece"
bool model_read(struct tokenizer *t, const json_t *v, struct complaint *c);
/* scores.c: the merges of a vocabulary, whose tokens have scores by their ids. */
bool merges_of_scores(struct tokenizer *t, const json_t *words, const json_t *scores, struct complaint *c);
/* post.c: the member `post_processor`, as ids before and after the text's. */
bool post_read(struct tokenizer *t, const json_t *v, struct complaint *c);
/* The same by add_bos_token and add_eos_token of tokenizer_config.json, which some classes of `transformers`
 * put in its place, and so do GGUF's files (AROUND_BY_CONFIG); others do not read them. */
#define AROUND_BY_CONFIG "coda:around"
bool post_by_config(struct tokenizer *t, const json_t *config, struct complaint *c);
bool class_is(const json_t *config, const char *name); /* name, or nameFast */
/* json.c: all that a tokenizer.json has. */
bool tokenizer_read(struct tokenizer *t, const json_t *file, struct complaint *c);

/* settings.c: what tokenizer_config.json, special_tokens_map.json and added_tokens.json, each of which may be
 * NULL, change in a tokenizer.json, and whether all that they say is known. `words` is the file that has the
 * words. */
bool settings_apply(json_t *file, const char *words, const json_t *config, const json_t *map,
                    const json_t *older, struct complaint *c);

/* files.c: a folder's file, NULL if it is not there or (with a complaint) is no JSON object. */
json_t *file_json(const char *dir, const char *name, struct complaint *c);
/* What a tokenizer.json would be, from the files that other tokenizers write; which of them has the words. */
json_t *file_legacy(const char *dir, const json_t *config, const char **name, struct complaint *c);
/* The same of its parts: words and their ids, merges, and a tokenizer_config.json. */
#define CLASS_LLAMA3 "coda:LLaMA3" /* classes of GGUF files alone */
#define CLASS_TEKKEN "coda:Tekken"
#define CLASS_DIGITS "coda:Digits"
json_t *file_of_words(const json_t *config, json_t *words, struct complaint *c);
json_t *file_of_merges(const json_t *config, json_t *words, json_t *merges, struct complaint *c);
json_t *file_of_scores(const json_t *config, json_t *words, json_t *scores);
/* The same of a GGUF file's metadata; and a tokenizer_config.json, a new reference. */
json_t *file_of_gguf(const json_t *metadata, json_t **config, struct complaint *c);

#endif
