/* util_rows.h -- rows programs for the tests of emission and of the GPU. */
#ifndef UTIL_ROWS_H
#define UTIL_ROWS_H

#include "util_program.h"

struct rows_case {
    const char *name;
    void (*build)(struct rig *r);
};
extern const struct rows_case rows_cases[];
extern const int rows_case_count;

/* An H200, as the planner sees it. */
#define rows_target target_rows[TARGET_H200]

#endif
