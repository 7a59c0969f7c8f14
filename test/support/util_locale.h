/* util_locale.h -- locales in which numbers and letters are not those of C; a machine may lack some. */
#ifndef UTIL_LOCALE_H
#define UTIL_LOCALE_H

/* Decimal commas; a dotless i; a point of more bytes than one. */
static const char *const test_locale_names[] = {"C",           "de_DE.UTF-8", "tr_TR.UTF-8", "de_DE",
                                                "fr_FR.UTF-8", "ps_AF.UTF-8", "fa_IR.UTF-8"};

static inline int test_locales(void) { return sizeof test_locale_names / sizeof *test_locale_names; }
static inline const char *test_locale(int i) { return test_locale_names[i]; }

#endif
