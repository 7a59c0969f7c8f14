/* sized.h -- structs that begin with their `size`, in both directions: what a caller chooses, and what the
 * library fills. The caller may have been compiled with an older or a newer coda.h. */
#ifndef SIZED_H
#define SIZED_H

#include "base.h"

/*
 * The size of each struct in its first version, which is what a size of 0 stands for: up to the field named
 * here. A later version appends its fields, not into the padding at the end, and leaves this list alone.
 */
#define SIZED_STRUCTS(X)                                                                                     \
    X(coda_map_def, grad)                                                                                    \
    X(coda_rope_options, interleave_sections)                                                                \
    X(coda_attention_options, bias)                                                                          \
    X(coda_sample_options, bias)                                                                             \
    X(coda_delta_options, eps)                                                                               \
    X(coda_append_options, scale)                                                                            \
    X(coda_cross_entropy_options, ignore_zero)                                                               \
    X(coda_adamw_options, correction2)                                                                       \
    X(coda_sgd_options, update)                                                                              \
    X(coda_muon_options, update)                                                                             \
    X(coda_compile_options, shapes)                                                                          \
    X(coda_run_options, done)                                                                                \
    X(coda_warm_options, kernel)                                                                             \
    X(coda_shape_stats, kernels)                                                                             \
    X(coda_symbol_info, multiple)                                                                            \
    X(coda_arg_info, unread)                                                                                 \
    X(coda_word_info, gradient)                                                                              \
    X(coda_kernel_info, shared_bytes)                                                                        \
    X(coda_plan_stats, flops)                                                                                \
    X(coda_cache_store, unlock)                                                                              \
    X(coda_cache_options, record)                                                                            \
    X(coda_cache_stats, unloads)                                                                             \
    X(coda_cache_entry, age_s)                                                                               \
    X(coda_cache_prune_options, clear)                                                                       \
    X(coda_cache_pruned, kept_bytes)                                                                         \
    X(coda_export_options, array)                                                                            \
    X(coda_bundle_report, damaged)                                                                           \
    X(coda_linear_cross_entropy_options, rows)                                                               \
    X(coda_grad_options, weights)                                                                            \
    X(coda_split_options, consume)                                                                           \
    X(coda_pack_format, group)                                                                               \
    X(coda_pack_source, row_order)                                                                           \
    X(coda_scan_options, gate)                                                                               \
    X(coda_quantized, search)                                                                                \
    X(coda_profile_options, product_rate)                                                                    \
    X(coda_profile_total, copy_rate)                                                                         \
    X(coda_profile_launch, product_rate)                                                                     \
    X(coda_group_options, timeout_ms)

#define SIZED_UP_TO(type, last)                                                                              \
    CEIL_DIV(offsetof(type, last) + sizeof(((type *)0)->last), sizeof(size_t)) * sizeof(size_t)

struct sized {
    const char *type;
    size_t base;  /* in the first version */
    size_t whole; /* in this one */
};

#define X(type, last) SIZED_##type,
enum sized_type { SIZED_STRUCTS(X) SIZED_TYPES };
#undef X
extern const struct sized sized[SIZED_TYPES];

/* Reads a struct of the caller's: NULL and what it does not have are zeros. Bytes that this version does not
 * know must be 0. `own` is the library's struct of that type. */
coda_status sized_read(const char *what, const struct sized *s, void *own, const void *given);
#define SIZED_READ(what, type, own, given)                                                                   \
    sized_read(what, &sized[SIZED_##type], (type *){own}, (const type *){given})

/* Whether a struct of the caller's can be filled: before a call does anything. NULL is not asked about. */
coda_status sized_check(const char *what, const struct sized *s, const void *out);
/* Fills it: what it has no room for is left out, what this version does not know becomes 0, and its size
 * stays as it is. */
void sized_write(const struct sized *s, void *out, const void *own);
#define SIZED_CHECK(what, type, out) sized_check(what, &sized[SIZED_##type], (const type *){out})
#define SIZED_WRITE(type, out, own) sized_write(&sized[SIZED_##type], (type *){out}, (const type *){own})

#endif
