/*
 * known.h -- between the files of test_known.
 */
#ifndef KNOWN_H
#define KNOWN_H

#include "model_test.h"

enum { KNOWN_BASES = 22 };
/* A tiny checkpoint of each family. */
extern const struct known_base {
    const char *folder, *family;
} known_bases[KNOWN_BASES];

void known_tensors(const char *tiny, const char *scratch);
/* model/keys.md says what the tables say; with CODA_BLESS it is written. */
void known_page(void);

#endif
