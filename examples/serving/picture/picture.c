/*
 * picture.c -- two plans with their memory; the steps.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "loading.h"
#include "picture.h"
#include "progress.h"
#include "tensor.h"

/* ---- Memory ---- */

static struct shared *find(struct picture *p, const char *name)
{
    for (int i = 0; i < p->shared_count; i++)
        if (!strcmp(p->shared[i].name, name)) return &p->shared[i];
    return NULL;
}

static void *memory(void *context, const coda_arg_info *info)
{
    struct picture *p = context;
    if (info->kind == CODA_ARG_WEIGHT)
        return (char *)p->m.memory[CODA_ARG_WEIGHT] + weights_find(&p->m.weights, info->name)->offset;
    struct shared *s = find(p, info->name);
    if (s) return s->bytes == info->bytes ? s->data : NULL;
    if (p->shared_count == MOST_SHARED || strlen(info->name) >= sizeof s->name) return NULL;
    s = &p->shared[p->shared_count++];
    strcpy(s->name, info->name);
    s->bytes = info->bytes;
    s->data = device_alloc(&p->m.device, info->bytes);
    return s->data && device_clear(&p->m.device, s->data, s->bytes) ? s->data : NULL;
}

static bool allocate(struct picture *p, const coda_plan *plan, void ***args, void **workspace,
                     struct fault *f)
{
    size_t bytes = coda_plan_workspace(plan);
    *args = calloc((size_t)coda_plan_args(plan) + 1, sizeof **args);
    if (!*args) return fault_set(f, "out of memory");
    if (!arguments_bind(plan, *args, memory, p, f)) return false;
    *workspace = device_alloc(&p->m.device, bytes);
    return *workspace || fault_set(f, "there is no memory for %zu bytes of scratch", bytes);
}

bool picture_write(struct picture *p, const char *name, const void *from, size_t bytes, struct fault *f)
{
    struct shared *s = find(p, name);
    if (!s) return true;
    if (s->bytes != bytes) return fault_set(f, "%s: %zu bytes for memory of %zu", name, bytes, s->bytes);
    return device_write(&p->m.device, s->data, from, bytes) ||
           fault_set(f, "%s cannot be copied to %s", name, device_name(&p->m.device));
}

/* ---- Opening ---- */

/* A plan while a thread of its own makes it. */
struct making {
    struct picture *p;
    const coda_graph *g;
    coda_plan *plan;
    struct fault fault;
    bool good;
};

static void *make(void *context)
{
    struct making *m = context;
    coda_compile_options o = device_target(&m->p->m.device);
    if (m->p->opt.tune && o.device == CODA_DEVICE_GPU) o.flags |= CODA_AUTOTUNE;
    m->good = m->p->m.device.absent || device_enter(&m->p->m.device) ||
              fault_set(&m->fault, "a thread cannot use the GPU");
    m->good =
        m->good && (coda_compile(&m->plan, m->g, &o) == CODA_OK || fault_set(&m->fault, "%s", coda_error()));
    return NULL;
}

/* Both plans side by side, as each has kernels enough for some cores alone; where they are measured, one
 * after the other. */
static bool compile(struct picture *p, coda_graph *const graphs[2], struct fault *f)
{
    struct making first = {.p = p, .g = graphs[0]}, step = {.p = p, .g = graphs[1]};
    pthread_t thread;
    bool beside = !p->opt.tune && !pthread_create(&thread, NULL, make, &first);
    make(&step);
    if (beside) pthread_join(thread, NULL);
    else make(&first);
    p->first = first.plan, p->step = step.plan;
    times_end(&p->m.times, "plans");
    if (!first.good || !step.good) *f = first.good ? step.fault : first.fault;
    return first.good && step.good;
}

/* Nothing that a file says is passed over. */
static bool all_used(const struct picture *p, struct fault *f)
{
    for (int i = 0; i < p->m.files.count; i++)
        if (!p->m.files.tensor[i].used)
            return fault_set(f, "tensor %.120s is not read by %s, and may change what is computed",
                             p->m.files.tensor[i].name, p->config.name);
    return true;
}

static bool fill(struct picture *p, coda_graph *const graphs[2], struct fault *f)
{
    struct loading *l = loading_begin(&p->m, graphs, 2, f);
    times_end(&p->m.times, "memory");
    if (!l) return false;
    bool good = compile(p, graphs, f) && allocate(p, p->first, &p->first_args, &p->first_workspace, f) &&
                allocate(p, p->step, &p->step_args, &p->step_workspace, f);
    times_end(&p->m.times, "memory");
    good = loading_end(l, f) && good;
    times_end(&p->m.times, "weights");
    return good;
}

static bool build(struct picture *p, struct fault *f)
{
    coda_graph *graphs[2] = {NULL};
    bool good =
        (graphs[0] = picture_first_graph(p, f)) && (graphs[1] = picture_step_graph(p, f)) && all_used(p, f);
    times_end(&p->m.times, "graph");
    if (good) good = (p->m.opt.only_plan ? compile : fill)(p, graphs, f);
    coda_graph_free(graphs[0]);
    coda_graph_free(graphs[1]);
    return good;
}

struct picture *picture_open(const char *path, const struct picture_options *opt, struct fault *f)
{
    static const struct picture_graphs *const graphs[] = {&picture_dit, &picture_pixart, &picture_sd3,
                                                          &picture_flux, &picture_wan};
    struct picture *p = calloc(1, sizeof *p);
    if (!p) return fault_set(f, "out of memory"), NULL;
    times_begin(&p->m.times);
    p->opt = *opt;
    p->m.opt = opt->open;
    bool good = picture_read(p, path, f) && picture_choose(p, f);
    p->graphs = graphs[p->config.kind];
    if (good && build(p, f)) return p;
    picture_close(p);
    return NULL;
}

void picture_close(struct picture *p)
{
    if (!p) return;
    struct device *d = &p->m.device;
    if (p->stream) d->gpu.stream_wait(p->stream);
    if (p->replay) d->gpu.replay_free(p->replay);
    if (p->graph) d->gpu.graph_free(p->graph);
    if (p->stream) d->gpu.stream_free(p->stream);
    coda_plan_free(p->first);
    coda_plan_free(p->step);
    for (int i = 0; i < p->shared_count; i++) device_free(d, p->shared[i].data);
    device_free(d, p->m.memory[CODA_ARG_WEIGHT]);
    device_free(d, p->first_workspace);
    device_free(d, p->step_workspace);
    for (struct made *m = p->made, *next; m; m = next)
        next = m->next, free(m->tensor.name), free(m->number), free(m);
    picture_schedule_free(&p->schedule);
    weights_free(&p->m.weights);
    checkpoint_close(&p->m.files);
    free(p->first_args);
    free(p->step_args);
    free(p);
}

/* ---- Steps ---- */

static bool run(struct picture *p, const coda_plan *plan, void *const *args, void *workspace, struct fault *f)
{
    return coda_run(plan, args, NULL, workspace, p->stream) == CODA_OK || fault_set(f, "%s", coda_error());
}

static bool capture(struct picture *p, struct fault *f)
{
    struct gpu *gpu = &p->m.device.gpu;
    bool good = !gpu->capture_begin(p->stream, 0) || fault_set(f, "the stream cannot be captured");
    good = good && run(p, p->step, p->step_args, p->step_workspace, f);
    if (gpu->capture_end(p->stream, &p->graph)) return good && fault_set(f, "the capture failed");
    return good &&
           ((!gpu->replay_new(&p->replay, p->graph, 0) && !gpu->replay_upload(p->replay, p->stream)) ||
            fault_set(f, "a step is no CUDA graph"));
}

bool picture_prepare(struct picture *p, struct fault *f)
{
    struct gpu *gpu = &p->m.device.gpu;
    bool on_gpu = p->m.device.on_gpu;
    if (!picture_inputs(p, f)) return false;
    if (on_gpu && !p->stream && gpu->stream_new(&p->stream, 0)) return fault_set(f, "there is no stream");
    if (!run(p, p->first, p->first_args, p->first_workspace, f)) return false;
    if (on_gpu && gpu->stream_wait(p->stream)) return fault_set(f, "the conditions failed on the GPU");
    return !on_gpu || p->replay || capture(p, f);
}

static bool begin(struct picture *p, struct fault *f)
{
    static const char *const history[] = {"last", "before", "older"}; /* of steps that are corrected */
    int64_t n = picture_numbers(p), all = n * p->shape.pictures;
    float *noise = malloc(sizeof *noise * (size_t)all), *patches = malloc(sizeof *patches * (size_t)all);
    bool good = (noise && patches) || fault_set(f, "out of memory");
    good = good && picture_noise(p, noise, f);
    for (int i = 0; good && i < p->shape.pictures; i++) picture_to_patches(p, noise + i * n, patches + i * n);
    good = good && picture_write(p, "latents", patches, sizeof *patches * (size_t)all, f) &&
           picture_write(p, "number", &(int32_t){0}, sizeof(int32_t), f);
    if (good) memset(patches, 0, sizeof *patches * (size_t)all);
    for (int i = 0; good && i < 3; i++)
        good = picture_write(p, history[i], patches, sizeof *patches * (size_t)all, f);
    free(noise);
    free(patches);
    return good;
}

bool picture_draw(struct picture *p, struct fault *f)
{
    struct gpu *gpu = &p->m.device.gpu;
    if (!begin(p, f)) return false;
    for (int i = 0; i < p->shape.steps; i++) {
        progress_count(p->opt.open.progress, i, p->shape.steps, "steps");
        if (p->replay && gpu->replay_run(p->replay, p->stream))
            return fault_set(f, "step %d cannot be launched", i);
        if (!p->replay && !run(p, p->step, p->step_args, p->step_workspace, f)) return false;
    }
    return !p->replay || !gpu->stream_wait(p->stream) || fault_set(f, "the steps failed on the GPU");
}

/* ---- Latents ---- */

int picture_rank(const struct picture *p) { return p->config.kind == PICTURE_WAN ? 5 : 4; }

void picture_dims(const struct picture *p, int64_t dims[5])
{
    int last = picture_rank(p) - 1;
    dims[0] = p->shape.pictures;
    dims[1] = p->config.channels;
    dims[2] = p->shape.frames;
    dims[last - 1] = (int64_t)p->shape.rows * p->config.patch;
    dims[last] = (int64_t)p->shape.columns * p->config.patch;
}

int64_t picture_numbers(const struct picture *p)
{
    return picture_patches(&p->shape) * picture_patch_columns(&p->config);
}

bool picture_latents(struct picture *p, float *to, struct fault *f)
{
    int64_t n = picture_numbers(p), all = n * p->shape.pictures;
    float *patches = malloc(sizeof *patches * (size_t)all);
    bool good = patches || fault_set(f, "out of memory");
    good = good &&
           (device_read(&p->m.device, patches, find(p, "latents")->data, sizeof *patches * (size_t)all) ||
            fault_set(f, "latents cannot be copied from %s", device_name(&p->m.device)));
    for (int i = 0; good && i < p->shape.pictures; i++) picture_of_patches(p, patches + i * n, to + i * n);
    free(patches);
    return good;
}
