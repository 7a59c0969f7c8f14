/*
 * train_settings.h -- what train is asked for: by its command line, or by a checkpoint that it goes on with.
 */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "coda.h"
#include "fault.h"

#define SETTING_WHOLE int64_t
#define SETTING_REAL double
#define SETTING_TEXT const char *
#define SETTING_WORD bool

struct settings {
#define SETTING(kind, field, ...) SETTING_##kind field;
#include "train_settings.def"
#undef SETTING
    const char *text; /* the file; NULL: stories that are drawn */
    json_t *kept;     /* whose strings these are, or NULL */
};

enum settings_read { SETTINGS_GOOD, SETTINGS_HELP, SETTINGS_WRONG };
enum settings_read settings_read(struct settings *s, char **argv, struct fault *wrong);
void settings_free(struct settings *s);

/* As an object, of which settings_restore makes the same settings, but for where it runs. */
json_t *settings_object(const struct settings *s);
/* Takes all from an object, which it keeps. */
bool settings_restore(struct settings *s, json_t *object, struct fault *f);

coda_device settings_device(const struct settings *s);
/* 0: none was asked for. */
coda_dtype settings_dtype(const struct settings *s);

#endif
