/* texts.h -- between texts.c, which has graphs, and texts_made.c, which has programs made by hand. */
#ifndef TEXTS_H
#define TEXTS_H

#include "base.h"

extern struct text said; /* the texts of the group that is being made */
void end_group(const char *format, ...) PRINTF(1, 2);

void all_gemms(void);
void all_rows(void);
void all_attention(void);

#endif
