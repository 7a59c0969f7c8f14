/* closed_text.h -- does a CUDA text, a primitive's or a caller's map's, stand for itself? */
#ifndef CLOSED_TEXT_H
#define CLOSED_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Does it make the compiler read nothing but itself, and files that are `known` (NULL: none)? If not, why is
 * "line 3 has #include, ...". */
bool text_is_closed(const char *text, bool (*known)(const char *name), char *why, size_t size);
/* Is it a name that stands for the clock or for a file's name, or that asks for a file? */
bool text_word_tells(const char *word);

#endif
