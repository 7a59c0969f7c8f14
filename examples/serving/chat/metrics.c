/*
 * metrics.c -- counters, gauges and histograms, under the names that vLLM gives them.
 */
#include "chat_metrics.h"
#include "plain.h"

static const double seconds[METRICS_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                               0.1,   0.25,   0.5,   1,    2.5,   10};
static const double moments[METRICS_BOUNDS] = {5e-6, 1e-5,   2e-5, 5e-5, 1e-4, 2e-4,
                                               5e-4, 0.0010, 0.01, 0.1,  1,    10};
static const double counts[METRICS_BOUNDS] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};

const char *finish_name(enum finish f)
{
    static const char *const name[FINISHES] = {"", "stop", "length", "abort", "error"};
    return name[f];
}

void metrics_init(struct metrics *m)
{
    struct histogram *timed[] = {&m->first_token, &m->between_tokens, &m->whole, &m->queue,     &m->prefill,
                                 &m->decode,      &m->step,           &m->graph, &m->graph_step};
    *m = (struct metrics){0};
    for (size_t i = 0; i < sizeof timed / sizeof *timed; i++) timed[i]->bound = seconds;
    m->rows.bound = counts;
    m->host.bound = moments;
}

void metrics_observe(struct histogram *h, double value)
{
    int i = 0;
    while (i < METRICS_BOUNDS && value > h->bound[i]) i++;
    h->below[i]++;
    h->sum += value;
}

void metrics_finish(struct metrics *m, const struct request *r, double now)
{
    m->finished[r->finish]++;
    if (r->finish != FINISH_STOP && r->finish != FINISH_LENGTH) return;
    metrics_observe(&m->whole, now - r->submitted);
    metrics_observe(&m->queue, r->admitted - r->submitted);
    metrics_observe(&m->prefill, r->first - r->admitted);
    metrics_observe(&m->decode, r->last - r->first);
}

/* ---- Text ---- */

struct page {
    const char *prefix, *model;
    FILE *to;
};

static void head(const struct page *p, const char *name, const char *type, const char *help)
{
    fprintf(p->to, "# HELP %s%s %s\n# TYPE %s%s %s\n", p->prefix, name, help, p->prefix, name, type);
}

static void single(const struct page *p, const char *name, const char *type, const char *help, double value)
{
    head(p, name, type, help);
    plain_print(p->to, "%s%s{model_name=\"%s\"} %.17g\n", p->prefix, name, p->model, value);
}

static void spread(const struct page *p, const char *name, const char *help, const struct histogram *h)
{
    uint64_t all = 0;
    head(p, name, "histogram", help);
    for (int i = 0; i <= METRICS_BOUNDS; i++) {
        all += h->below[i];
        fprintf(p->to, "%s%s_bucket{model_name=\"%s\",le=\"", p->prefix, name, p->model);
        if (i < METRICS_BOUNDS) plain_print(p->to, "%g\"} %llu\n", h->bound[i], (unsigned long long)all);
        else fprintf(p->to, "+Inf\"} %llu\n", (unsigned long long)all);
    }
    plain_print(p->to, "%s%s_sum{model_name=\"%s\"} %.17g\n", p->prefix, name, p->model, h->sum);
    fprintf(p->to, "%s%s_count{model_name=\"%s\"} %llu\n", p->prefix, name, p->model,
            (unsigned long long)all);
}

/* Of the library, and of its CUDA graphs. */
static void library(const struct page *p, const struct runner_stats *m)
{
    const struct {
        const char *name, *type, *help;
        int64_t value;
    } all[] = {
        {"kernels_loaded", "gauge", "Kernels that are loaded for shapes of steps.", m->kernels},
        {"shapes_pending", "gauge", "Shapes whose best kernels are still to be made.", m->pending},
        {"shapes_planned_total", "counter", "Shapes for which the library made a plan.", m->planned},
        {"shapes_improved_total", "counter", "Shapes that got their best kernels late.", m->improved},
        {"shapes_failed_total", "counter", "Shapes whose best kernels could not be made.", m->failed},
        {"runs_total", "counter", "Runs that the library launched, those that were captured as well.",
         m->runs},
        {"runs_base_total", "counter", "Runs among them by kernels that serve any shape.", m->runs_base},
        {"graph_captures_total", "counter", "CUDA graphs that were made.", m->captures},
        {"graph_launches_total", "counter", "Steps that were a CUDA graph.", m->replays}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        single(p, all[i].name, all[i].type, all[i].help, (double)all[i].value);
}

void metrics_print_http(const struct metrics_http *m, const char *prefix, const char *model, FILE *to)
{
    const struct page p = {prefix, model, to};
    single(&p, "http_connections", "gauge", "Connections that are open.", m->connections);
    single(&p, "http_connections_total", "counter", "Connections that were let in.", (double)m->accepted);
    single(&p, "http_late_total", "counter", "Connections that were ended at a deadline.", (double)m->late);
    single(&p, "http_evicted_total", "counter", "Connections that were ended to make room.",
           (double)m->evicted);
    single(&p, "http_body_bytes", "gauge", "Memory of bodies.", (double)m->body_bytes);
    single(&p, "http_jobs_waiting", "gauge", "Prompts and answers that wait to be made.", m->jobs);
}

void metrics_print(const struct metrics *m, const struct metrics_now *now, const char *prefix,
                   const char *model, FILE *to)
{
    const struct page p = {prefix, model, to};
    single(&p, "num_requests_running", "gauge", "Requests that have pages.", now->running);
    single(&p, "num_requests_waiting", "gauge", "Requests that wait for pages or a place.", now->waiting);
    single(&p, "kv_cache_usage_perc", "gauge", "Used share of the pages; 1 is all.",
           now->pages ? (double)now->pages_used / now->pages : 0);
    single(&p, "state_bytes", "gauge", "Memory of the running requests' states, of layers that carry one.",
           (double)now->runner.state_bytes * now->running);
    single(&p, "num_preemptions_total", "counter", "Requests that gave their pages back.",
           (double)now->preemptions);
    library(&p, &now->runner);
    single(&p, "prompt_tokens_total", "counter", "Tokens of prompts that were answered.",
           (double)m->prompt_tokens);
    single(&p, "generation_tokens_total", "counter", "Tokens of answers.", (double)m->generation_tokens);
    head(&p, "request_success_total", "counter", "Requests that are over, by reason.");
    for (int f = FINISH_STOP; f < FINISHES; f++)
        fprintf(to, "%srequest_success_total{model_name=\"%s\",finished_reason=\"%s\"} %llu\n", prefix, model,
                finish_name(f), (unsigned long long)m->finished[f]);
    spread(&p, "iteration_tokens_total", "Rows of a step.", &m->rows);
    spread(&p, "step_seconds", "Time of a step.", &m->step);
    spread(&p, "step_host_seconds",
           "From the end of a step to the launch of the next one, if that is a CUDA graph.", &m->host);
    spread(&p, "graph_seconds", "The device's time of a step that is a CUDA graph, if the next is one, too.",
           &m->graph);
    spread(&p, "graph_step_seconds", "From the start of such a step to the start of the next one.",
           &m->graph_step);
    spread(&p, "time_to_first_token_seconds", "From a request to its first token.", &m->first_token);
    spread(&p, "inter_token_latency_seconds", "Between two tokens of an answer.", &m->between_tokens);
    spread(&p, "e2e_request_latency_seconds", "From a request to its last token.", &m->whole);
    spread(&p, "request_queue_time_seconds", "From a request to its first pages.", &m->queue);
    spread(&p, "request_prefill_time_seconds", "From its first pages to its first token.", &m->prefill);
    spread(&p, "request_decode_time_seconds", "From its first token to its last.", &m->decode);
}
