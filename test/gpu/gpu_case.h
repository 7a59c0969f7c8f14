/* gpu_case.h -- the runner that the GPU tests share: a test is `int gpu_NAME(void)` in gpu_NAME.c and
 * returns the number of its failures, which is the sum of its gpu_case() calls. */
#ifndef GPU_CASE_H
#define GPU_CASE_H

#include <stdbool.h>

/* Counts a case and prints one line, "ok     NAME: ..." or "FAILED NAME: ...". Returns 1 if it failed. */
int gpu_case(bool good, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Is case i this process's? A test that others wait for runs in several (gpu_main.c), each of which takes a
 * share of its cases. */
bool gpu_mine(int i);
/* Says that a case did not run, and why not. Returns 0. */
int gpu_skip(const char *name, const char *why);

#endif
