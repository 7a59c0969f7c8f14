/*
 * train.c -- trains a LLaMA on a text, or goes on with a checkpoint of any decoder.
 *
 *     train [OPTION]... [TEXT]
 *
 * Options are those of training/train_settings.def; `train --help` says what they mean. What is written into
 * the folder of --out is a checkpoint that generate reads; `train --resume FOLDER` goes on with a run that
 * was stopped, however it was, to the bits that it would have had.
 */
#include <stdio.h>
#include <stdlib.h>

#include "standard.h"
#include "train_run.h"

static void print_end(const struct run *r)
{
    long long steps = (long long)r->history.steps;
    const struct settings *s = &r->settings;
    if (s->plan) return;
    if (steps < s->steps)
        fprintf(stderr, "train: stopped behind step %lld; train --resume %s goes on\n", steps, s->out);
    else fprintf(stderr, "train: %lld steps; the checkpoint is %s\n", steps, s->out);
}

int main(int argc, char **argv)
{
    struct settings s;
    struct fault f = {{0}};
    (void)argc;
    standard_open();
    switch (settings_read(&s, argv, &f)) {
    case SETTINGS_HELP: return fflush(stdout) ? 1 : 0;
    case SETTINGS_WRONG: return fprintf(stderr, "train: %s; see train --help\n", f.text), 2;
    case SETTINGS_GOOD: break;
    }
    struct run *r = calloc(1, sizeof *r);
    bool good = r != NULL || fault_set(&f, "out of memory");
    good = good && (s.plan ? run_plans(r, &s, &f) : run_open(r, &s, &f) && run_steps(r, &f));
    if (good) print_end(r);
    else fprintf(stderr, "train: %s\n", f.text);
    if (r) run_close(r);
    free(r);
    return !good;
}
