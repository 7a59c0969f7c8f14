/*
 * run.c -- opens all that a run needs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "page.h"
#include "regular.h"
#include "standard.h"
#include "train_run.h"
#include "train_speak.h"

enum { STORIES = 400 };

/* ---- The folder ---- */

static bool is_same(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool make_folder(const struct settings *s, struct fault *f)
{
    if (s->from && is_same(s->from, s->out))
        return fault_set(f, "--out %s is the checkpoint of --from, which would be written over", s->out);
    if (saved_there(s->out))
        return fault_set(f, "%s has a run already: --resume %s goes on with it", s->out, s->out);
    if (mkdir(s->out, 0777) && errno != EEXIST)
        return fault_set(f, "%s cannot be made: %s", s->out, strerror(errno));
    return true;
}

/* A path that is the same from another folder. */
static bool whole_path(const char **path, char *room, struct fault *f)
{
    if (!*path) return true;
    const char *given = *path;
    *path = realpath(given, room);
    return *path || fault_set(f, "%s: %s", given, strerror(errno));
}

/* Without a text it is stories, with the tokens that they are drawn in. */
static bool draw_stories(struct run *r, struct fault *f)
{
    struct settings *s = &r->settings;
    const char *model = speak_stories_model(r->stories_model);
    if (!model)
        return fault_set(f, "there is no TEXT, and no examples/serving/stories260K/stories260K.gguf to draw "
                            "stories from");
    if (!speak_stories(model, s->out, STORIES, (uint64_t)s->seed, f)) return false;
    snprintf(r->stories, sizeof r->stories, "%s/stories.txt", s->out);
    s->separator = STORIES_SEPARATOR;
    s->text = r->stories;
    if (!s->from && !s->tokenizer) s->tokenizer = model;
    return true;
}

static bool begin(struct run *r, struct fault *f)
{
    struct settings *s = &r->settings;
    if (!make_folder(s, f)) return false;
    return (s->text || draw_stories(r, f)) && whole_path(&s->text, r->path[0], f) &&
           whole_path(&s->from, r->path[1], f) && whole_path(&s->tokenizer, r->path[2], f);
}

static bool go_on(struct run *r, struct fault *f)
{
    const char *folder = r->settings.resume;
    json_t *o = saved_settings(folder, f);
    bool good = o && settings_restore(&r->settings, o, f);
    json_decref(o);
    return good;
}

/* ---- Parts ---- */

static bool open_corpus(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    const struct corpus_format how = {.separator = s->separator,
                                      .tokenizer = r->source.tokenizer,
                                      .begins = r->source.begins,
                                      .ends = r->source.ends,
                                      .vocabulary = r->source.config.vocabulary,
                                      .held = s->held};
    if (!corpus_read(&r->corpus, s->text, &how, f)) return false;
    const struct corpus *c = &r->corpus;
    r->windows =
        (struct windows){.c = c, .from = 0, .to = c->learned, .tokens = s->tokens, .seed = (uint64_t)s->seed};
    r->held = (struct windows){
        .c = c, .from = c->learned, .to = c->count, .tokens = s->tokens, .as_they_lie = true};
    if (c->learned < 2)
        return fault_set(f, "%s: %lld tokens are left to learn from, beside %lld held out", s->text,
                         (long long)c->learned, (long long)(c->count - c->learned));
    fprintf(stderr, "train: %lld tokens of %lld documents, %lld of them held out\n", (long long)c->count,
            (long long)c->documents, (long long)(c->count - c->learned));
    return windows_begin(&r->windows, 0, 0, f);
}

static bool open_batches(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    r->batches = calloc((size_t)s->accumulate, sizeof *r->batches);
    if (!r->batches) return fault_set(f, "out of memory");
    for (int64_t i = 0; i < s->accumulate; i++)
        if (!batch_open(&r->batches[i], s->batch, s->tokens, f)) return false;
    return true;
}

static bool open_engine(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    if (!(s->plan ? device_plan : device_open)(&r->device, settings_device(s)))
        return fault_set(f, "there is no GPU, or no driver");
    coda_dtype dtype = settings_dtype(s);
    r->engine =
        (struct engine){.device = &r->device,
                        .config = &r->source.config,
                        .family = r->source.family,
                        .from = s->from ? &r->source.files : NULL,
                        .dtype = dtype              ? dtype
                                 : r->device.on_gpu ? CODA_BF16
                                                    : CODA_F32,
                        .adapter = (int)s->adapters,
                        .rows = s->batch,
                        .tokens = s->tokens,
                        .accumulates = s->accumulate > 1,
                        .whole = r->device.on_gpu && s->accumulate == 1 && strcmp(s->optimizer, "muon") != 0,
                        .chunk = s->chunk,
                        .how = {!strcmp(s->optimizer, "muon"), s->decay, s->clip, s->scale, s->scale_steps},
                        .only_plan = s->plan};
    if (!engine_open(&r->engine, f)) return false;
    if (!s->plan && !parameters_fill(&r->engine.params, (uint64_t)s->seed, r->source.config.layers, f))
        return false;
    fprintf(stderr, "train: %s of %lld parameters that learn, on %s\n", r->source.config.family,
            (long long)r->engine.params.learned, device_name(&r->device));
    return true;
}

/* Where the last checkpoint stopped. */
static bool restore(struct run *r, struct fault *f)
{
    struct place at;
    const struct settings *s = &r->settings;
    if (!saved_restore(s->resume, &r->engine.params, &r->history, &at, f)) return false;
    if (at.digest != r->corpus.digest)
        return fault_set(f, "%s: the text, or its tokenizer, is not the one that %s has learned from",
                         s->text, s->resume);
    if (r->history.steps > s->steps)
        return fault_set(f, "%s has done %lld of %lld steps", s->resume, (long long)r->history.steps,
                         (long long)s->steps);
    return windows_begin(&r->windows, at.epoch, at.next, f);
}

/* Files that do not change, and a checkpoint of step 0. */
static bool write_first(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    return source_write(&r->source, s->out, r->engine.dtype, f) && run_save(r, f);
}

bool run_open(struct run *r, const struct settings *s, struct fault *f)
{
    r->settings = *s;
    bool resumes = s->resume != NULL;
    if (!(resumes ? go_on : begin)(r, f) || !source_open(&r->source, &r->settings, f)) return false;
    r->kept = settings_object(&r->settings);
    if (!r->kept) return fault_set(f, "out of memory");
    return open_corpus(r, f) && open_batches(r, f) && open_engine(r, f) &&
           (resumes ? restore : write_first)(r, f);
}

bool run_plans(struct run *r, const struct settings *s, struct fault *f)
{
    const char *names[] = {"plan of a batch: its loss and gradients", "plan of the loss of what is held out",
                           "plan of the optimiser"};
    r->settings = *s;
    if (!source_open(&r->source, &r->settings, f) || !open_engine(r, f)) return false;
    if (r->engine.whole) names[PLAN_LEARN] = "plan of a step: loss, gradients, and AdamW";
    for (int i = 0; i < PLANS; i++)
        if (r->engine.program[i].plan) page_print(stdout, names[i], r->engine.program[i].plan, NULL);
    return standard_written(f);
}

void run_close(struct run *r)
{
    for (int64_t i = 0; r->batches && i < r->settings.accumulate; i++) batch_free(&r->batches[i]);
    free(r->batches);
    engine_close(&r->engine);
    history_free(&r->history);
    windows_free(&r->windows);
    windows_free(&r->held);
    corpus_free(&r->corpus);
    source_close(&r->source);
    json_decref(r->kept);
    settings_free(&r->settings);
}
