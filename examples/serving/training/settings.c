/*
 * settings.c -- the table of options, as a command line and as an object.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "plain.h"
#include "train_settings.h"
#include "usage.h"

enum kind { WHOLE, REAL, TEXT, WORD };

static const struct setting {
    enum kind kind;
    const char *name, *help;
    size_t offset;
    double least, most;
} table[] = {
#define SETTING(kind, field, name, least, most, otherwise, help)                                             \
    {kind, name, help, offsetof(struct settings, field), (double)(least), (double)(most)},
#include "train_settings.def"
#undef SETTING
};
enum { SETTINGS = sizeof table / sizeof *table };

static void *field_of(struct settings *s, const struct setting *t) { return (char *)s + t->offset; }
static const void *value_of(const struct settings *s, const struct setting *t)
{
    return (const char *)s + t->offset;
}

/* ---- The command line ---- */

static bool is_number(const char *text, const struct setting *t, double *out)
{
    char *end;
    *out = plain_number(text, &end);
    return end != text && !*end && *out >= t->least && *out <= t->most;
}

static bool set(struct settings *s, const struct setting *t, const char *value)
{
    double x;
    if (t->kind == TEXT) return *(const char **)field_of(s, t) = value, true;
    if (!is_number(value, t, &x) || (t->kind == WHOLE && x != floor(x))) return false;
    if (t->kind == WHOLE) *(int64_t *)field_of(s, t) = (int64_t)x;
    else *(double *)field_of(s, t) = x;
    return true;
}

static bool refuse(const struct setting *t, const char *value, struct fault *wrong)
{
    if (t->kind == TEXT) return fault_set(wrong, "%s cannot be \"%s\"", t->name, value);
    return fault_set(wrong, "%s cannot be \"%s\": %s from %.10g to %.10g", t->name, value,
                     t->kind == WHOLE ? "a whole number" : "a number", t->least, t->most);
}

static bool option(struct settings *s, char ***at, struct fault *wrong)
{
    const char *name = **at;
    for (int i = 0; i < SETTINGS; i++) {
        const struct setting *t = &table[i];
        if (strcmp(name, t->name)) continue;
        if (t->kind == WORD) return *(bool *)field_of(s, t) = true;
        const char *value = *++*at;
        if (!value) return --*at, fault_set(wrong, "%s needs a value", name);
        return set(s, t, value) || refuse(t, value, wrong);
    }
    return fault_set(wrong, "there is no option %s", name);
}

enum { MOST_TOKENS = (1 << 24) - 1 }; /* whose numbers fp32 has */

/* Words that are one of a few, and options that exclude each other. */
static bool fit_together(const struct settings *s, struct fault *wrong)
{
    if (strcmp(s->optimizer, "adamw") && strcmp(s->optimizer, "muon"))
        return fault_set(wrong, "--optimizer cannot be \"%s\": adamw or muon", s->optimizer);
    if (s->dtype && !settings_dtype(s))
        return fault_set(wrong, "--dtype cannot be \"%s\": f32, f16 or bf16", s->dtype);
    if (s->cpu && s->gpu) return fault_set(wrong, "--cpu and --gpu exclude each other");
    if (s->from && s->tokenizer)
        return fault_set(wrong, "--from %s has its own tokenizer: without --tokenizer", s->from);
    if (s->adapters && !s->from) return fault_set(wrong, "--adapters stand beside a checkpoint: --from");
    if (s->batch * s->tokens > MOST_TOKENS)
        return fault_set(
            wrong, "--batch %lld windows of --tokens %lld are %lld tokens of a run; %d are the most",
            (long long)s->batch, (long long)s->tokens, (long long)(s->batch * s->tokens), MOST_TOKENS);
    if (exp2(round(log2(s->scale))) != s->scale)
        return fault_set(wrong, "--scale %g is no power of two", s->scale);
    if (s->separator && !*s->separator) return fault_set(wrong, "--separator cannot be empty");
    if (s->from) return true;
    if (s->heads % s->kv_heads)
        return fault_set(wrong, "--heads %lld is no multiple of --kv-heads %lld", (long long)s->heads,
                         (long long)s->kv_heads);
    if (s->hidden % (2 * s->heads))
        return fault_set(wrong,
                         "--hidden %lld is no multiple of 2 --heads %lld: a head has an even number "
                         "of columns",
                         (long long)s->hidden, (long long)s->heads);
    return true;
}

static const struct settings otherwise = {
#define SETTING(kind, field, name, least, most, otherwise, help) .field = otherwise,
#include "train_settings.def"
#undef SETTING
};

/* What an option is without it, behind what it means. */
static void print_otherwise(const struct setting *t)
{
    const void *at = value_of(&otherwise, t);
    if (t->kind == WHOLE) printf(" [%lld]", (long long)*(const int64_t *)at);
    if (t->kind == REAL && isfinite(*(const double *)at)) plain_print(stdout, " [%g]", *(const double *)at);
    const char *text = t->kind == TEXT ? *(const char *const *)at : NULL;
    if (text && *text) printf(" [%s]", text);
}

/* A help is "WHAT  MEANING", or of an option that stands for itself MEANING. */
static void print_usage(void)
{
    puts("usage: train [OPTION]... [TEXT]\n"
         "Trains a LLaMA on a file of text, or without one a small LLaMA on stories that\n"
         "examples/serving/stories260K tells. What it writes is a checkpoint that generate reads.\n"
         "In brackets is what stands without an option.");
    for (int i = 0; i < SETTINGS; i++) {
        const struct setting *t = &table[i];
        const char *meaning = t->kind == WORD ? t->help : strstr(t->help, "  ") + 2;
        int what = t->kind == WORD ? 0 : (int)(meaning - t->help) - 2;
        char head[40];
        snprintf(head, sizeof head, "%s %.*s", t->name, what, t->help);
        printf("  %-24s %s", head, meaning);
        print_otherwise(t);
        puts("");
    }
}

/* Beside --resume nothing but where it runs. */
static bool resumed_alone(const struct settings *s, struct fault *wrong)
{
    struct settings bare = otherwise;
    bare.resume = s->resume, bare.cpu = s->cpu, bare.gpu = s->gpu;
    json_t *given = settings_object(s), *wanted = settings_object(&bare);
    bool same = json_equal(given, wanted) && !s->text && !s->plan;
    json_decref(given);
    json_decref(wanted);
    return same ||
           fault_set(wrong, "--resume takes all from %s: no option beside it but --cpu and --gpu", s->resume);
}

enum settings_read settings_read(struct settings *s, char **argv, struct fault *wrong)
{
    *s = otherwise;
    *wrong = (struct fault){{0}};
    for (char **at = argv + 1; *argv && *at; at++)
        if (usage_word(*at)) return print_usage(), SETTINGS_HELP;
    for (char **at = argv + 1; *argv && *at; at++) {
        if ((*at)[0] == '-' && (*at)[1] == '-') {
            if (!option(s, &at, wrong)) return SETTINGS_WRONG;
        } else if (s->text) {
            return fault_set(wrong, "\"%s\" is one argument too many", *at), SETTINGS_WRONG;
        } else s->text = *at;
    }
    if (!fit_together(s, wrong)) return SETTINGS_WRONG;
    return !s->resume || resumed_alone(s, wrong) ? SETTINGS_GOOD : SETTINGS_WRONG;
}

void settings_free(struct settings *s) { json_decref(s->kept); }

/* ---- As an object ---- */

/* Where it runs, and from where it goes on, are not the run's. */
static bool is_kept(const struct setting *t)
{
    return t->kind != WORD && t->offset != offsetof(struct settings, resume) &&
           t->offset != offsetof(struct settings, out);
}

json_t *settings_object(const struct settings *s)
{
    json_t *o = json_object();
    for (int i = 0; i < SETTINGS; i++) {
        const struct setting *t = &table[i];
        const void *at = value_of(s, t);
        if (!is_kept(t)) continue;
        if (t->kind == WHOLE) json_object_set_new(o, t->name, json_integer(*(const int64_t *)at));
        else if (t->kind == REAL && isfinite(*(const double *)at))
            json_object_set_new(o, t->name, json_real(*(const double *)at));
        else if (t->kind == TEXT && *(const char *const *)at)
            json_object_set_new(o, t->name, json_string(*(const char *const *)at));
    }
    if (s->text) json_object_set_new(o, "text", json_string(s->text));
    return o;
}

static bool restore(struct settings *s, const struct setting *t, const json_t *v, struct fault *f)
{
    void *to = field_of(s, t);
    if (t->kind == TEXT && json_is_string(v)) return *(const char **)to = json_string_value(v), true;
    double x = json_number_value(v);
    if (json_is_number(v) && t->kind != TEXT && x >= t->least && x <= t->most) {
        if (t->kind == WHOLE) *(int64_t *)to = (int64_t)x;
        else *(double *)to = x;
        return true;
    }
    return fault_set(f, "%s: a value that it cannot have", t->name);
}

bool settings_restore(struct settings *s, json_t *object, struct fault *f)
{
    s->kept = json_incref(object);
    s->text = json_string_value(json_object_get(object, "text"));
    s->out = s->resume;
    for (int i = 0; i < SETTINGS; i++) {
        const json_t *v = is_kept(&table[i]) ? json_object_get(object, table[i].name) : NULL;
        if (v && !restore(s, &table[i], v, f)) return false;
    }
    return fit_together(s, f);
}

coda_device settings_device(const struct settings *s)
{
    return s->cpu ? CODA_DEVICE_CPU : s->gpu ? CODA_DEVICE_GPU : CODA_DEVICE_NONE;
}

coda_dtype settings_dtype(const struct settings *s)
{
    coda_dtype is;
    return options_dtype(s->dtype, &is) ? is : 0;
}
