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

static bool step(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    const struct schedule schedule = {rate_of(r), s->warmup, s->steps};
    struct rates rates = schedule_rates(&schedule, r->history.steps + 1);
    double loss, norm;
    int64_t targets, n = fill(r, &targets, f);
    bool good = n >= 0 && engine_begin(&r->engine, targets, f);
    for (int64_t i = 0; good && i < n; i++) good = engine_learn(&r->engine, &r->batches[i], f);
    r->tokens += targets;
    return good && engine_improve(&r->engine, &rates, &loss, &norm, f) &&
           history_add(&r->history, (float)loss, (float)norm, rates.rate, f);
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
                        e->flops * (double)r->settings.accumulate * (double)(h->steps - r->told), peak};
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

static bool is_due(int64_t every, int64_t step, int64_t last)
{
    return every && (step % every == 0 || step == last);
}

/* What comes behind a step. The time that it takes is none of the steps'. */
static bool between(struct run *r, struct fault *f)
{
    const struct settings *s = &r->settings;
    int64_t step = r->history.steps, last = s->steps;
    double began = times_now();
    bool good = (!is_due(s->evaluate, step, last) || judge(r, f)) &&
                ((!is_due(s->save, step, last) && step != last && !is_due(s->sample, step, last)) ||
                 run_save(r, f)) &&
                (!is_due(s->sample, step, last) || speak_sample(s->out, s, step, f));
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
    if (r->history.steps == s->steps) return run_save(r, f);
    while (r->history.steps < s->steps) {
        if (!step(r, f)) return false;
        if (is_due(s->log, r->history.steps, s->steps)) tell(r);
        if (!between(r, f)) return false;
        if (ended && r->history.steps < s->steps) return run_save(r, f);
    }
    return true;
}
