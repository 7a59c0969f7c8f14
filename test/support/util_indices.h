/* util_indices.h -- graphs whose integers are int64, one for each place that takes them. */
#ifndef UTIL_INDICES_H
#define UTIL_INDICES_H

struct index_case {
    const char *name;
    double tolerance;
    const char *text; /* in which int32 may stand for int64 */
};
extern const struct index_case index_cases[];
extern const int index_case_count;

#endif
