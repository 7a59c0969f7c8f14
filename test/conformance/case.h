/* case.h -- cases of the ONNX operator suite as lists of coda_* calls, written by generate.py. */
#ifndef CASE_H
#define CASE_H

#include <coda.h>
#include <stdbool.h>
#include <stdio.h>

enum { CASE_CALLS = 4096, CASE_ARGS = 64, CASE_NUMBERS = 8, CASE_OUTPUTS = 16 };

/* What a run is in: T in the calls. */
enum { MODE_F32, MODE_BF16, MODE_F16, MODES };
extern const char *const mode_name[MODES];
coda_dtype mode_dtype(int mode);

struct call {
    char word[32];      /* "input", "matmul", "leaky_relu", ... */
    int arg[CASE_ARGS]; /* earlier calls, -1: none */
    int args;
    int64_t number[CASE_NUMBERS];
    int numbers;
    float param[CASE_NUMBERS];
    int params;
    coda_dtype dtype; /* of a leaf, a cast or a constant; 0: the mode's */
    const void *data; /* of a leaf, floats or int32 */
};

struct conformance_case {
    char name[160];
    struct call *call;
    int calls, leaves;
    struct {
        int call, rank;
        int64_t dims[CASE_NUMBERS];
    } output[CASE_OUTPUTS];
    int outputs;
    double growth[MODES]; /* how errors of the inputs grow; 0: not run in this mode */
    const float *want[MODES][CASE_OUTPUTS];
};

int64_t count_elements(int rank, const int64_t *dims);

/* A set of cases: OUT.calls and OUT.data in memory, read from the front. */
struct case_reader {
    char *text, *data;
    const char *at, *next, *end; /* of the text, and of the data */
};
bool case_open(struct case_reader *r, const char *path);
void case_close(struct case_reader *r);
/* False after the last case. Exits with a message if the files are not as they should be. */
bool case_read(struct case_reader *r, struct conformance_case *c);

/* The graph of a case, its leaves inputs, weights but for the first one, or weights all. */
enum role { ROLE_INPUTS, ROLE_WEIGHTS, ROLE_ALL_WEIGHTS, ROLES };
coda_graph *case_graph(const struct conformance_case *c, int mode, enum role role);

/* Defines the map of this name in the graph, if it is one of maps.c and not defined yet. */
void maps_define(coda_graph *g, const char *name);

#endif
