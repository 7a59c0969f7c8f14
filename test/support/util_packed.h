/* util_packed.h -- graphs that read a packed weight, each in another way: for the tests that run them. */
#ifndef UTIL_PACKED_H
#define UTIL_PACKED_H

#include "graph.h"

extern const char *const packed_formats[]; /* words of coda_pack_format_find */
extern const int packed_format_count;
extern const int packed_whole_count; /* of them, the first ones: groups without gaps */

struct packed_sizes {
    int64_t m, n, k, batch; /* of x [m, .] and w [n, k]; batch 0: one matrix */
    coda_dtype dtype;       /* of x */
};
extern const struct packed_sizes packed_sizes[];
extern const int packed_size_count;

struct packed_reader {
    const char *name;
    void (*make)(graph *g, coda_value w, const struct packed_sizes *s);
    bool rounds; /* to x's dtype, before the product */
};
extern const struct packed_reader packed_readers[];
extern const int packed_reader_count;

/* Its weight is called w: packed, or `whole`, in fp32. */
graph *packed_graph(const coda_pack_format *f, int reader, const struct packed_sizes *s, bool whole);

#endif
