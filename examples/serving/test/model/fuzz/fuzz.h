/*
 * fuzz.h -- what the fuzzers of templates and tokenizers share: NAME SECONDS [SEED] runs cases one after
 * another, each by a seed of its own, in a thread with a stack as small as a server's may be. A case that
 * has no end, or that a sanitizer or a signal ends, leaves the line "NAME: seed N", which as SEED begins
 * with it.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FUZZ_TEXT = 1000000 }; /* bytes of an input, at most */

#if defined __SANITIZE_ADDRESS__
enum { FUZZ_STACK = 4 << 20 }; /* frames of the sanitizer are larger */
#else
enum { FUZZ_STACK = 256 << 10 };
#endif

/* Of the case that runs. */
uint64_t fuzz_next(void);
uint32_t fuzz_below(uint32_t n); /* 0 .. n - 1; 0 of 0 */
bool fuzz_chance(int percent);
size_t fuzz_size(size_t most); /* of each order of magnitude as often */

/* Bytes that grow up to FUZZ_TEXT, and are left out beyond. */
struct bytes {
    char *data;
    size_t size;
};
void bytes_add(struct bytes *b, const char *data, size_t n);
void bytes_say(struct bytes *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A byte becomes another, a stretch is left out, comes again many times, or one of `words` comes in. */
void bytes_change(struct bytes *b, const char *const *words, size_t count);
/* A text up to FUZZ_TEXT: pieces again and again, characters of all kinds, or bytes that are none. */
void bytes_text(struct bytes *b);

/* Ends the program with the seed if it does not hold. */
void fuzz_holds(bool holds, const char *what);
/* How much later than `seconds` a case ended counts for the last line. */
void fuzz_took(double seconds, double limit);
void fuzz_worked(void); /* something came of a case */
double fuzz_now(void);

int fuzz_main(int argc, char **argv, void (*one)(void));

#endif
