/*
 * speak.c -- texts that a checkpoint writes, drawn by the host from its logits.
 */
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"
#include "plain.h"
#include "progress.h"
#include "regular.h"
#include "sample.h"
#include "text.h"
#include "tokenizer.h"
#include "train_aside.h"
#include "train_speak.h"

enum { SAMPLE_TOKENS = 64, STORY_TOKENS = 256 };

struct speaker {
    struct model *m;
    struct tokenizer *tokens;
    float *logits;
    int32_t *ids; /* of a text */
    int most, n;
};

static bool open_speaker(struct speaker *s, const char *model, coda_device device, int most, struct fault *f)
{
    struct model_options o = {.device = device};
    *s = (struct speaker){.most = most};
    s->m = model_open(model, &o, f);
    s->tokens = s->m ? text_tokenizer(model, f) : NULL;
    if (!s->tokens) return false;
    if (s->most > s->m->opt.context) s->most = s->m->opt.context;
    s->logits = malloc(sizeof *s->logits * (size_t)s->m->config.vocabulary);
    s->ids = malloc(sizeof *s->ids * (size_t)s->most);
    return (s->logits && s->ids) || fault_set(f, "out of memory");
}

static void close_speaker(struct speaker *s)
{
    free(s->logits);
    free(s->ids);
    if (s->tokens) tokenizer_close(s->tokens);
    model_close(s->m);
}

static bool draw(struct speaker *s, uint64_t text, uint64_t seed, struct fault *f)
{
    struct sampling how = {.temperature = 1, .top_p = 1, .seed = seed};
    struct logits l = {.value = s->logits, .n = s->m->config.vocabulary, .log_sum = NAN};
    struct sampled drawn;
    if (!model_logits(s->m, s->logits, 1, f) || !sample(&how, &l, text, (uint64_t)s->m->length, &drawn, f))
        return false;
    s->ids[s->n++] = drawn.id;
    return true;
}

/* Text number `text` behind the prompt, until a token ends it. */
static bool write_text(struct speaker *s, const char *prompt, uint64_t text, uint64_t seed, struct fault *f)
{
    int32_t next;
    int n = tokenizer_encode(s->tokens, prompt, strlen(prompt), s->ids, s->most, NULL);
    if (n < 0) return fault_set(f, "'%.40s' cannot be made into tokens", prompt);
    if (n == 0) s->ids[n++] = 0;
    model_rewind(s->m, 0);
    s->m->length = 0;
    for (int at = 0;; n++) {
        s->n = n;
        if (n >= s->most) return true;
        if (!model_decode(s->m, s->ids + at, n - at, &next, f) || !draw(s, text, seed, f)) return false;
        at = n;
        if (config_is_end(&s->m->config, s->ids[n])) return true; /* which is no part of the text */
    }
}

static char *decoded(struct speaker *s)
{
    int bytes = tokenizer_decode(s->tokens, s->ids, s->n, NULL, 0);
    char *text = bytes < 0 ? NULL : malloc((size_t)bytes + 1);
    if (text) tokenizer_decode(s->tokens, s->ids, s->n, text, (size_t)bytes + 1);
    return text;
}

bool speak_sample(const char *folder, const struct settings *s, int64_t step, struct fault *f)
{
    struct speaker speaker;
    char line[1024];
    bool good = open_speaker(&speaker, folder, settings_device(s), SAMPLE_TOKENS, f) &&
                write_text(&speaker, s->prompt, (uint64_t)step, (uint64_t)s->seed, f);
    char *text = good ? decoded(&speaker) : NULL;
    if (good && !text) good = fault_set(f, "out of memory");
    if (text) {
        plain_escape(line, sizeof line, text);
        fprintf(stderr, "train: step %lld writes: %s\n", (long long)step, line);
    }
    free(text);
    close_speaker(&speaker);
    return good;
}

/* ---- Stories ---- */

const char *speak_stories_model(char *room)
{
    static const char *const places[] = {"examples/serving/stories260K/stories260K.gguf",
                                         "stories260K/stories260K.gguf"};
    char self[PATH_MAX];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (regular_there(places[i])) return realpath(places[i], room);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return NULL;
    self[n] = 0;
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/../../%s", dirname(self), places[0]);
    return regular_there(path) ? realpath(path, room) : NULL;
}

static bool write_stories(struct speaker *s, struct aside *a, int count, uint64_t seed,
                          struct progress *working, struct fault *f)
{
    for (int i = 0; i < count; i++) {
        progress_count(working, i, count, "stories");
        if (!write_text(s, "", (uint64_t)i, seed, f)) return false;
        char *text = decoded(s);
        bool good = text ? aside_write(a, text, strlen(text), f) &&
                               aside_write(a, "\n" STORIES_SEPARATOR "\n", strlen(STORIES_SEPARATOR) + 2, f)
                         : fault_set(f, "out of memory");
        free(text);
        if (!good) return false;
    }
    return true;
}

bool speak_stories(const char *model, const char *folder, int count, uint64_t seed, struct fault *f)
{
    struct speaker s;
    struct aside a;
    struct progress working;
    progress_begin(&working, "drawing stories from %s", model);
    bool good =
        open_speaker(&s, model, CODA_DEVICE_CPU, STORY_TOKENS, f) && aside_open(&a, folder, "stories.txt", f);
    if (good) good = aside_close(&a, write_stories(&s, &a, count, seed, &working, f), f);
    progress_end(&working);
    close_speaker(&s);
    return good;
}
