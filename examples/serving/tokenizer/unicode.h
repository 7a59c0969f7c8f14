/*
 * unicode.h -- UTF-8, the properties of characters, and normal forms, by utf8proc.
 */
#ifndef UNICODE_H
#define UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that grow. After an allocation failed, or where it would have more bytes than `most`, nothing is
 * added any more: ask `failed` once, at the end. */
struct text {
    char *data;
    size_t size, room;
    bool failed;
    size_t most; /* 0: any number */
};

void text_add(struct text *t, const char *bytes, size_t n);
void text_char(struct text *t, uint32_t c);
void text_free(struct text *t);

/* The bytes of the character that s begins with, 0 if it begins with none; n > 0 bytes are there. */
int unicode_get(const char *s, size_t n, uint32_t *c);
bool unicode_valid(const char *s, size_t n);
/* Adds s with U+FFFD for each longest start of a character that does not go on as one. */
void unicode_add_lossy(struct text *t, const char *s, size_t n);

bool unicode_space(uint32_t c);       /* White_Space */
bool unicode_control(uint32_t c);     /* Cc, Cf, Co, but tab and line ends */
bool unicode_punctuation(uint32_t c); /* P*, and ASCII's symbols */
bool unicode_digit(uint32_t c);       /* N* */
bool unicode_word(uint32_t c);        /* \w: Alphabetic, M*, Nd, Pc */
bool unicode_accent(uint32_t c);      /* Mn */
bool unicode_mark(uint32_t c);        /* M* */
bool unicode_chinese(uint32_t c);     /* the blocks of ideographs that BERT takes apart */

/* Adds the lower case of a character: two of them for a capital I with a dot. */
void unicode_lower(struct text *t, uint32_t c);
void unicode_upper(struct text *t, uint32_t c);

enum unicode_form { UNICODE_NFD, UNICODE_NFC, UNICODE_NFKD, UNICODE_NFKC };
void unicode_normal(struct text *t, const char *s, size_t n, enum unicode_form form);

/* GPT-2's alphabet: a character that can be seen for each byte. */
uint32_t unicode_of_byte(unsigned char byte);
int unicode_byte_of(uint32_t c); /* -1: of none */

#endif
