/*
 * steps.c -- the steps of a run, and what is done between them.
 */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "plain.h"
#include "times.h"
#include "train_report.h"
#include "train_run.h"
#include "train_schedule.h"
#include "train_speak.h"

/* Batches of a step: the number of those that have windows. */
static int64_t fill(struct run *r, int64_t *targets, struct fault *f)
{
    int64_t n = 0;
    for (*targets = 0; n < r->settings.accumulate; n++) {
        if (!batch_fill(&r->batches[n], &r->windows, f)) return -1;
        *targets += r->batches[n].targets;
    }
    return n;
}

static double rate_of(const struct run *r)
{
    const struct settings *s = &r->settings;
    if (isfinite(s->rate)) return s->rate;
    return (s->from && !s->adapters ? 0.0024 : 0.024) / sqrt((double)r->source.config.hidden);
}

static bool is_due(int64_t every, int64_t step, int64_t last)
{
    return every && (step % every == 0 || step == last);
}

/* Begins the next step, which a GPU goes on with by itself. */
static bool launch(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    const struct schedule schedule = {rate_of(r), s->warmup, s->steps};
    struct rates rates = schedule_rates(&schedule, r->begun + 1);
    int64_t targets, n = fill(r, &targets, f);
    bool good = n >= 0 && engine_begin(&r->engine, targets, &rates, f);
    for (int64_t i = 0; good && i < n; i++) good = engine_learn(&r->engine, &r->batches[i], f);
    int at = (int)(r->begun++ % DOWNLOADS);
    r->launched[at].targets = targets;
    r->launched[at].rate = rates.rate;
    return good && engine_improve(&r->engine, f);
}

static void tell(struct run *r);

/* Waits for steps, until `behind` of those that were begun are left. */
static bool take(struct run *r, int64_t behind, struct fault *f)
{
    struct result result;
    while (r->history.steps < r->begun - behind) {
        int at = (int)(r->history.steps % DOWNLOADS);
        if (!engine_result(&r->engine, &result, f) ||
            !history_add(&r->history, (float)result.loss, (float)result.norm, r->launched[at].rate, f))
            return false;
        r->tokens += r->launched[at].targets;
        r->scale = result.scale;
        if (is_due(r->settings.log, r->history.steps, r->settings.steps)) tell(r);
    }
    return true;
}

/* The loss of the text that is held out. */
static bool judge(struct run *r, struct fault *f)
{
    struct batch *b = &r->batches[0];
    double sum = 0;
    int64_t targets = 0;
    if (r->held.to - r->held.from < 2) return true;
    if (!windows_begin(&r->held, 0, 0, f)) return false;
    while (batch_fill(b, &r->held, f) && b->filled) {
        targets += b->targets;
        if (!engine_judge(&r->engine, b, &sum, f)) return false;
    }
    if (!targets) return true;
    plain_print(stderr, "train: step %lld: loss %.4f of %lld tokens held out\n", (long long)r->history.steps,
                sum / (double)targets, (long long)targets);
    return history_judge(&r->history, r->history.steps, (float)(sum / (double)targets), f);
}

static void tell(struct run *r)
{
    const struct engine *e = &r->engine;
    const struct history *h = &r->history;
    double now = times_now(), peak = r->settings.peak * 1e12;
    if (!(peak > 0)) peak = report_peak(device_name(&r->device));
    struct pace pace = {now - r->began, r->tokens,
                        e->flops * (double)r->settings.accumulate * (double)(h->steps - r->told), peak,
                        r->scale};
    report_step(h, r->settings.steps, &pace, !isfinite(h->norm[h->steps - 1]));
    r->began = now;
    r->tokens = 0;
    r->told = h->steps;
}

bool run_save(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    const struct place at = {r->windows.epoch, r->windows.next, r->corpus.digest};
    const char *to = s->out;
    return save_training(to, &r->engine.params, &r->history, &at, r->kept, f) &&
           save_model(to, &r->engine.params, &r->source.config, r->engine.dtype, f) &&
           report_write(to, &r->history, f);
}

/* What comes behind a step, when it is done. The time that it takes is none of the steps'. */
static bool between(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    int64_t step = r->begun, last = s->steps;
    bool judges = is_due(s->evaluate, step, last), samples = is_due(s->sample, step, last);
    bool saves = is_due(s->save, step, last) || step == last || samples;
    if (!judges && !saves) return true;
    if (!take(r, 0, f)) return false;
    double began = times_now();
    bool good = (!judges || judge(r, f)) && (!saves || run_save(r, f)) &&
                (!samples || speak_sample(s->out, s, step, f));
    r->began += times_now() - began;
    return good;
}

/* SIGINT and SIGTERM end a run behind the step that it is at; the second one at once. */
static volatile sig_atomic_t ended;

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static void end_by_signals(void)
{
    struct sigaction by = {.sa_handler = end, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigaction(SIGINT, &by, NULL);
    sigaction(SIGTERM, &by, NULL);
}

bool run_steps(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    end_by_signals();
    r->began = times_now();
    r->told = r->history.steps;
    r->begun = r->history.steps;
    if (r->begun == s->steps) return run_save(r, f);
    while (r->begun < s->steps) {
        int64_t behind = r->device.on_gpu && !ended;
        if (!launch(r, f) || !take(r, behind, f) || !between(r, f)) return false;
        if (ended && r->begun < s->steps) return take(r, 0, f) && run_save(r, f);
    }
    return true;
}
