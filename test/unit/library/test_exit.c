/* test_exit.c -- a process may call exit() while another of its threads compiles. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */

static const char small[] = "%x = input f32[64,64]\n%y = silu %x\noutput %z = %y\n";

static coda_status compile(const coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_NONE;
    opt.arch = "sm_90a";
    opt.flags = CODA_NO_CACHE;
    coda_status status = coda_compile(&p, g, &opt);
    coda_plan_free(p);
    return status;
}

static void *compile_aside(void *g)
{
    compile(g);
    return NULL;
}

/* NVRTC's destructors must not meet a thread that is in it: the block's kernels take half a second each. */
static void exit_within(useconds_t us, int status)
{
    pthread_t t;
    coda_graph *first = NULL, *block = run_load("examples/graphs/llama.coda");
    bool good = block && coda_graph_parse(&first, small) == CODA_OK && compile(first) == CODA_OK &&
                pthread_create(&t, NULL, compile_aside, block) == 0;
    usleep(us);
    exit(good ? status : EXIT_FAILURE);
}

START_TEST(exit_waits_for_what_compiles)
{
    enum { STATUS = 3 };
    static const useconds_t within[] = {150000, 400000, 600000};
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (!child) exit_within(within[_i], STATUS);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "signal %d", WTERMSIG(status));
    ck_assert_int_eq(WEXITSTATUS(status), STATUS);
}
END_TEST

TESTS(exit, TAG("nvrtc apart"), SOME(exit_waits_for_what_compiles, 3));
