/*
 * template.h -- chat templates: programs in the part of Jinja that checkpoints' chat_template use.
 *
 * Text is rendered as Hugging Face's transformers has Jinja do it: trim_blocks and lstrip_blocks, one
 * newline at the end left out, `break` and `continue`, `raise_exception`, `strftime_now`, `tojson` with ", "
 * and ": ". Names that are not there are undefined, which prints nothing. What is not known (include,
 * import, extends, a filter, a method) is an error when it is reached, or parsed. A template is not trusted:
 * steps, depth, memory and output are limited, and nothing outside is changed or read but the variables and
 * the clock.
 *
 *     {% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% endfor %}
 */
#ifndef TEMPLATE_H
#define TEMPLATE_H

#include <jansson.h>
#include <stddef.h>

#include "deadline.h"
#include "fault.h"

enum {
    TEMPLATE_SOURCE = 1 << 18,  /* bytes of a template, at most */
    TEMPLATE_OUTPUT = 16 << 20, /* bytes that one writes */
    TEMPLATE_MEMORY = 64 << 20, /* bytes of values that it makes on the way */
    TEMPLATE_STEPS = 4000000,   /* expressions, statements, items and 64 bytes of text that it goes through */
    TEMPLATE_DEPTH = 100,       /* of nested expressions, statements, calls and values */
    TEMPLATE_SECONDS = 5        /* for a deadline, where nobody says another */
};

struct template;

/* The text is copied. NULL, and a fault that names the line, if it is not understood. */
struct template *template_parse(const char *source, size_t bytes, struct fault *f);
void template_free(struct template *t);

/* The text by these variables, an object: its bytes, and in *text, for free(), the text with a NUL behind it.
 * Or an enum refused, which is negative, with *text NULL and a fault that names the template's line:
 * REFUSED_INPUT if the program fails or goes beyond a limit, REFUSED_LATE or REFUSED_CANCELLED by the
 * deadline, which may be NULL, REFUSED_MEMORY. A template is not changed: threads may share it. */
int template_render(const struct template *t, const json_t *variables, const struct deadline *deadline,
                    char **text, struct fault *f);

#endif
