/*
 * unicode_tables.h -- where the package `tokenizers` has the tables of an older Unicode than utf8proc.
 */
#ifndef UNICODE_TABLES_H
#define UNICODE_TABLES_H

#include <stdint.h>

struct range {
    uint32_t first, last;
};
extern const struct range unicode_controls[];        /* all of them */
extern const struct range unicode_new_punctuation[]; /* P*, but not to the package */
extern const struct range unicode_new_accents[];     /* Mn, but not to the package */
extern const struct range unicode_new_marks[];       /* M*, but not to the package */
extern const struct range unicode_new_compositions[];

#endif
