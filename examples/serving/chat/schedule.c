/*
 * schedule.c -- the lists and the free pages of chat_schedule.h.
 */
#include <stdlib.h>
#include <string.h>

#include "chat_schedule.h"

bool schedule_new(struct schedule *s, const struct runner_options *opt, int queue)
{
    *s = (struct schedule){
        .rows = opt->rows, .sequences = opt->sequences, .pages = opt->pages, .queue = queue};
    s->by_place = config_state_bytes(&opt->served->config, 1) > 0;
    s->placed = calloc((size_t)s->sequences, sizeof *s->placed);
    s->running = calloc((size_t)s->sequences, sizeof *s->running);
    s->waiting = calloc((size_t)(s->queue + s->sequences), sizeof *s->waiting);
    s->free_pages = calloc((size_t)s->pages, sizeof *s->free_pages);
    if (!s->running || !s->waiting || !s->free_pages || !s->placed) return false;
    while (s->free_count < s->pages) {
        s->free_pages[s->free_count] = s->pages - 1 - s->free_count;
        s->free_count++;
    }
    return true;
}

void schedule_free(struct schedule *s)
{
    free(s->running);
    free(s->waiting);
    free(s->free_pages);
    free(s->placed);
}

/* ---- Lists by age ---- */

static void insert(struct request **list, int *count, struct request *r)
{
    int at = *count;
    for (; at && list[at - 1]->arrival > r->arrival; at--) list[at] = list[at - 1];
    list[at] = r;
    (*count)++;
}

static bool take_out(struct request **list, int *count, const struct request *r)
{
    for (int i = 0; i < *count; i++)
        if (list[i] == r) {
            memmove(list + i, list + i + 1, sizeof *list * (size_t)(*count - i - 1));
            (*count)--;
            return true;
        }
    return false;
}

static void give_back(struct schedule *s, struct request *r)
{
    while (r->page_count) s->free_pages[s->free_count++] = r->pages[--r->page_count];
    r->cached = r->rows = 0;
    if (s->placed[r->place] == r) s->placed[r->place] = NULL;
}

/* There is one: no more run than there are places. */
static void take_place(struct schedule *s, struct request *r)
{
    for (r->place = 0; s->placed[r->place];) r->place++;
    s->placed[r->place] = r;
}

bool schedule_add(struct schedule *s, struct request *r)
{
    if (s->waiting_count >= s->queue) return false;
    r->arrival = s->arrivals++;
    insert(s->waiting, &s->waiting_count, r);
    return true;
}

void schedule_remove(struct schedule *s, struct request *r)
{
    if (!take_out(s->running, &s->running_count, r)) take_out(s->waiting, &s->waiting_count, r);
    give_back(s, r);
}

/* ---- Pages ---- */

static int pages_of(int tokens) { return (tokens + PAGE_TOKENS - 1) / PAGE_TOKENS; }

/* Pages for so many tokens of r. Others that are younger give theirs back; if r is the youngest, r does, and
 * the answer is false. */
static bool grow(struct schedule *s, struct request *r, int tokens)
{
    while (r->page_count < pages_of(tokens)) {
        if (s->free_count) {
            r->pages[r->page_count++] = s->free_pages[--s->free_count];
            continue;
        }
        struct request *youngest = s->running[--s->running_count];
        give_back(s, youngest);
        insert(s->waiting, &s->waiting_count, youngest);
        s->preemptions++;
        if (youngest == r) return false;
    }
    return true;
}

/* The oldest that wait begin, as long as there are pages for all that is known of them, one token more, and
 * what the running ones still want for as much. */
static void admit(struct schedule *s, double now)
{
    int spare = s->free_count;
    for (int i = 0; i < s->running_count; i++) {
        const struct request *r = s->running[i];
        int want = pages_of(r->count + 1) - r->page_count;
        spare -= want > 0 ? want : 0;
    }
    while (s->waiting_count && s->running_count < s->sequences) {
        struct request *r = s->waiting[0];
        if ((spare -= pages_of(r->count + 1)) < 0) return;
        take_out(s->waiting, &s->waiting_count, r);
        insert(s->running, &s->running_count, r);
        take_place(s, r);
        if (!r->admitted) r->admitted = now;
    }
}

/* ---- A step ---- */

/* Rows for those that write, whose newest token alone is not cached, or for the others. */
static void give_rows(struct schedule *s, bool write, int *budget)
{
    for (int i = 0; i < s->running_count && *budget; i++) {
        struct request *r = s->running[i];
        int want = r->count - r->cached;
        if ((want == 1) != write || r->rows) continue;
        if (want > *budget) want = *budget;
        if (!grow(s, r, r->cached + want)) continue;
        r->rows = want;
        *budget -= want;
    }
}

int schedule_step(struct schedule *s, double now)
{
    int budget = s->rows, rows = 0;
    admit(s, now);
    for (int i = 0; i < s->running_count; i++) s->running[i]->rows = 0;
    give_rows(s, true, &budget);
    give_rows(s, false, &budget);
    for (int i = 0; i < s->running_count; i++) rows += s->running[i]->rows;
    return rows;
}

static void fill_rows(const struct request *r, struct runner_inputs *in, int row)
{
    for (int i = 0; i < r->rows; i++) {
        int at = r->cached + i;
        in->ids[row + i] = r->tokens[at];
        in->positions[row + i] = at;
        in->slots[row + i] = r->pages[at / PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS;
    }
}

static void fill_sequence(const struct request *r, struct runner_inputs *in, int b, int row)
{
    fill_rows(r, in, row);
    in->fresh[b] = r->cached == 0;
    in->last[b] = row + r->rows - 1;
    in->lengths[b] = r->cached + r->rows;
    sample_seeds(r->sampling.seed, 0, &in->seeds[2 * b]);
    in->places[b] = r->count;
    in->temperature[b] = (float)r->sampling.temperature;
    in->top_k[b] = r->sampling.top_k;
    in->top_p[b] = (float)r->sampling.top_p;
    memcpy(in->table + b * in->table_pages, r->pages, sizeof *r->pages * (size_t)r->page_count);
}

static int fill_in_order(const struct schedule *s, struct runner_inputs *in)
{
    int row = 0, b = 0;
    for (int i = 0; i < s->running_count; i++) {
        struct request *r = s->running[i];
        if (!r->rows) continue;
        fill_sequence(r, in, r->sequence = b, row);
        in->starts[++b] = row += r->rows;
    }
    return b;
}

static int fill_by_place(const struct schedule *s, struct runner_inputs *in)
{
    int row = 0, last = s->sequences;
    while (last && !(s->placed[last - 1] && s->placed[last - 1]->rows)) last--;
    for (int b = 0; b < last; b++) {
        struct request *r = s->placed[b];
        if (r && r->rows) {
            fill_sequence(r, in, r->sequence = b, row);
            row += r->rows;
        } else {
            runner_skip(in, b);
        }
        in->starts[b + 1] = row;
    }
    return last;
}

int schedule_fill(const struct schedule *s, struct runner_inputs *in)
{
    in->starts[0] = 0;
    return s->by_place ? fill_by_place(s, in) : fill_in_order(s, in);
}
