/* test_events.c -- coda_on_event: what it refuses, and, with NVRTC, which events kernels bring: a miss and a
 * compilation the first time, a hit the second. */
#include "util_folder.h"
#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KINDS = 8 };

struct heard {
    atomic_int of[KINDS]; /* events of each kind */
    atomic_int wrong;
};

static void hear(void *context, const coda_event *e)
{
    struct heard *h = context;
    int kind = __builtin_ctz(e->kind);
    bool named = e->kind == CODA_EVENT_PLAN ? !*e->name : !strncmp(e->name, "coda_", 5);
    bool timed = e->kind == CODA_EVENT_PLAN || e->kind == CODA_EVENT_COMPILE_END;
    if (e->size != sizeof *e || !named || *e->text || (timed ? e->ms <= 0 : e->ms != 0)) h->wrong++;
    h->of[kind]++;
}

static int count(const struct heard *h, coda_event_kind kind) { return h->of[__builtin_ctz(kind)]; }

static graph *product(void)
{
    return graph_parse(
        "%x = input bf16[48,64]\n%w = weight bf16[96,64]\n%p = matmul %x, %w\n%y = softmax %p\n"
        "output %y = %y\n");
}

static void compile(const graph *g, coda_device device, coda_cache *cache)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = device, opt.cache = cache;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    coda_plan_free(p);
}

START_TEST(refuses_kinds)
{
    ck_assert_int_eq(coda_on_event(hear, NULL, 0), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "kinds is 0x0"), "%s", coda_error());
    ck_assert_int_eq(coda_on_event(hear, NULL, 256), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "kinds is 0x100"), "%s", coda_error());
    ck_assert_int_eq(coda_on_event(NULL, NULL, 0), CODA_OK);
}
END_TEST

START_TEST(a_plan_is_told_once)
{
    struct heard h = {0};
    graph *g = product();
    ck_assert_int_eq(coda_on_event(hear, &h, CODA_EVENT_PLAN), CODA_OK);
    compile(g, CODA_DEVICE_CPU, NULL);
    ck_assert_int_eq(count(&h, CODA_EVENT_PLAN), 1);
    ck_assert_int_eq(coda_on_event(hear, &h, CODA_EVENT_LOAD), CODA_OK);
    compile(g, CODA_DEVICE_CPU, NULL);
    ck_assert_int_eq(coda_on_event(NULL, NULL, 0), CODA_OK);
    compile(g, CODA_DEVICE_CPU, NULL);
    ck_assert_int_eq(count(&h, CODA_EVENT_PLAN), 1);
    ck_assert_int_eq(h.wrong, 0);
    graph_free(g);
}
END_TEST

/* ---- Files that are not there ---- */

struct unwritten {
    char line[4][256];
    int lines;
};

static void hear_unwritten(void *context, const coda_event *e)
{
    struct unwritten *u = context;
    if (e->kind != CODA_EVENT_UNWRITTEN || u->lines == 4) return;
    snprintf(u->line[u->lines++], sizeof u->line[0], "%s: %s", e->name, e->text);
}

static void expect_unwritten(const char *trace, const char *dump, const char *first, const char *second)
{
    struct unwritten u = {0};
    char info[8192];
    graph *g = product();
    setenv("CODA_TRACE", trace, 1);
    setenv("CODA_DUMP", dump, 1);
    compile(g, CODA_DEVICE_CPU, NULL); /* nobody listens */
    ck_assert_int_eq(coda_on_event(hear_unwritten, &u, CODA_EVENT_UNWRITTEN | CODA_EVENT_PLAN), CODA_OK);
    for (int i = 0; i < 3; i++) compile(g, CODA_DEVICE_CPU, NULL);
    ck_assert_int_eq(u.lines, 2);
    bool dump_first = u.line[0][5] == 'D';
    ck_assert_str_eq(u.line[dump_first], first);
    ck_assert_str_eq(u.line[!dump_first], second);
    ck_assert_int_gt(coda_info_print(info, sizeof info), 0);
    ck_assert_msg(strstr(info, "trace: ") && strstr(info, first + strlen("CODA_TRACE: ")), "%s", info);
    graph_free(g);
}

START_TEST(files_that_cannot_be)
{
    static const char *const want[][2] = {
        {"/nonexistent/t.json",
         "CODA_TRACE: /nonexistent/t.json cannot be opened: No such file or directory"},
        {"/dev/full", "CODA_TRACE: /dev/full cannot be written: No space left on device"},
        {"/tmp", "CODA_TRACE: /tmp cannot be opened: Is a directory"}};
    expect_unwritten(want[_i][0], "/nonexistent", want[_i][1],
                     "CODA_DUMP: /nonexistent is no folder that can be opened, or is a symbolic link");
}
END_TEST

/* ---- Another listener, while others tell ---- */

enum { TELLERS = 3, TURNS = 100 };
static atomic_bool over;

struct place {
    atomic_bool mine; /* may be called now */
    atomic_int begun, late;
};

static void hear_in_turn(void *context, const coda_event *e)
{
    struct place *p = context;
    (void)e;
    p->begun++;
    if (!p->mine) p->late++;
    usleep(300);
    if (!p->mine) p->late++;
}

static void *keep_compiling(void *g)
{
    while (!over) compile(g, CODA_DEVICE_CPU, NULL);
    return NULL;
}

START_TEST(no_call_comes_late)
{
    static struct place place[2];
    pthread_t thread[TELLERS];
    graph *g = product();
    for (int i = 0; i < TELLERS; i++) ck_assert(!pthread_create(&thread[i], NULL, keep_compiling, g));
    for (int i = 0; i < TURNS; i++) {
        struct place *now = &place[i % 2], *before = &place[(i + 1) % 2];
        now->mine = true;
        ck_assert_int_eq(coda_on_event(hear_in_turn, now, CODA_EVENT_PLAN), CODA_OK);
        before->mine = false;
        for (int begun = now->begun; now->begun == begun;) usleep(20); /* one is under way */
    }
    ck_assert_int_eq(coda_on_event(NULL, NULL, 0), CODA_OK);
    over = true;
    for (int i = 0; i < TELLERS; i++) pthread_join(thread[i], NULL);
    ck_assert_int_eq(place[0].late + place[1].late, 0);
    graph_free(g);
}
END_TEST

START_TEST(kernels)
{
    struct heard first = {0}, second = {0};
    coda_cache_options at = CODA_CACHE_OPTIONS_INIT;
    coda_cache *cache;
    graph *g = product();
    folder_make();
    at.dir = folder_under("cache");
    ck_assert_msg(!coda_cache_open(&cache, &at), "%s", coda_error());
    ck_assert_int_eq(coda_on_event(hear, &first, 127), CODA_OK);
    compile(g, CODA_DEVICE_NONE, cache);
    ck_assert_int_eq(coda_on_event(hear, &second, 127), CODA_OK);
    compile(g, CODA_DEVICE_NONE, cache);
    ck_assert_int_eq(coda_on_event(NULL, NULL, 0), CODA_OK);
    ck_assert_int_eq(count(&first, CODA_EVENT_COMPILE_BEGIN), 2);
    ck_assert_int_eq(count(&first, CODA_EVENT_COMPILE_END), 2);
    ck_assert_int_eq(count(&first, CODA_EVENT_CACHE_MISS), 2);
    ck_assert_int_eq(count(&first, CODA_EVENT_CACHE_HIT), 0);
    ck_assert_int_eq(count(&second, CODA_EVENT_CACHE_HIT), 2);
    ck_assert_int_eq(count(&second, CODA_EVENT_COMPILE_BEGIN) + count(&second, CODA_EVENT_CACHE_MISS), 0);
    ck_assert_int_eq(count(&first, CODA_EVENT_PLAN) + count(&second, CODA_EVENT_PLAN), 2);
    ck_assert_int_eq(first.wrong + second.wrong, 0);
    coda_cache_free(cache);
    graph_free(g);
    folder_remove();
}
END_TEST

TESTS(events, ONE(refuses_kinds), ONE(a_plan_is_told_once), EACH(files_that_cannot_be, 3),
      ONE(no_call_comes_late), CASE("nvrtc"), TAG("nvrtc"), SECONDS(60), ONE(kernels));
