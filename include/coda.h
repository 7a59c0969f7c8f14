/*
 * coda.h -- a Transformer block as a graph of C calls, run as a few fused GPU kernels.
 *
 * libcoda takes the formula of a block, rewrites it algebraically into GEMM + epilogue programs
 * (CODA, arXiv 2605.19269), specialises CUDA templates for the exact shapes, compiles them with
 * NVRTC at first use, keeps the cubins in a cache on disk, and launches them.
 *
 *     coda_graph *g = coda_graph_new();
 *     coda_value  x = coda_input (g, "x",  CODA_BF16, 2, (int64_t[]){2048, 4096});
 *     coda_value  w = coda_weight(g, "w",  CODA_BF16, 2, (int64_t[]){22016, 4096});
 *     coda_value  d = coda_weight(g, "d",  CODA_BF16, 2, (int64_t[]){4096, 11008});
 *     coda_value  h = coda_rms_norm(g, x, CODA_NONE, 1e-5f);
 *     coda_value  a = coda_swiglu(g, coda_matmul(g, h, w), CODA_STACKED);
 *     coda_output(g, "y", coda_add(g, coda_matmul(g, a, d), x));
 *
 *     coda_plan *p;
 *     if (coda_compile(&p, g, NULL) != CODA_OK) { puts(coda_error()); return 1; }
 *     coda_graph_free(g);                                   // a plan stands on its own
 *     void *args[] = { dx, dw, dd, dy };                    // device pointers, in order of creation
 *     coda_run(p, args, NULL, workspace, stream);           // coda_plan_workspace(p) bytes
 *
 * CONTRACTS
 * Errors.    Fallible calls return a coda_status: CODA_OK is 0, failures are negative. A failure
 *            always leaves one line of text with the numbers in it in coda_error() (this thread's);
 *            success never touches it. The library never prints, exits or aborts.
 * Structs.   All structs begin with their `size`, so that later versions can append fields. One that
 *            you hand over begins as its _INIT macro and is changed field by field:
 *                coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
 *                opt.device = CODA_DEVICE_CPU;
 *            INIT is all zeros but for the size, and a size of 0 is that of the first version (0.1.0).
 *            So for options NULL, zeros and INIT are the same, and languages without macros need none.
 *            Options may be larger than this version's if the rest is 0; else the call fails, as it
 *            was asked for something unknown.
 *            What coda fills, such as coda_plan_stats, is filled up to its size and not beyond; what a
 *            larger one holds beyond this version's fields becomes 0; a call that fails leaves it as it
 *            was. Set the size there, too. In what a callback gets, coda has set it: fields beyond it
 *            are not there. A size that is below the first version's, above 4096 or no multiple of
 *            sizeof(size_t) is refused.
 * Poison.    Builder calls return a value, so they nest like the formula. The first mistake is kept
 *            in the graph; later calls on it return CODA_NONE quietly, and coda_graph_status() or
 *            coda_compile() reports it: the node, its scope, its operands by name and type, and what
 *            does not fit. coda_graph_print() shows what was built until then.
 * Ownership. What coda returns through `out` or from a _new call, you free with the matching _free
 *            (NULL is fine). Names, dims and option structs are copied during the call. Strings that
 *            coda returns belong to the object they came from. Device memory is always yours: coda
 *            allocates none but while CODA_AUTOTUNE or coda_plan_profile measure, and gives that back.
 * Threads.   A graph belongs to one thread at a time. A plan does not change: share it between threads
 *            and streams, with one workspace for each run in flight. A cache is safe across threads and
 *            processes.
 * Cache.     Kernels are kept in the process and on disk. What goes wrong there costs time, never a
 *            result or an error; it is counted.
 * Shapes.    Row-major, outermost dimension first, at most CODA_MAX_RANK dimensions, each a number >= 0
 *            or, below -1, symbolic: see coda_symbol. "Rows" are all dimensions but the last, which
 *            holds the columns.
 * Numbers.   bf16, fp16 and fp32 tensors, int32 and int64 indices (below 2^24), fp8 caches. Sums, norms and
 *            statistics are fp32 always. Every operation's result has the dtype of its first tensor
 *            operand unless said otherwise; fused, it stays fp32 in registers until it is stored. The
 *            same plan on the same data gives the same bits on every run, as long as it has the same
 *            kernels. These change between runs of a plan with symbols alone, when the thread of
 *            CODA_POLICY_BACKGROUND, or coda_warm beside CODA_POLICY_NEVER, has made better ones; with
 *            CODA_BATCH_INVARIANT the bits stay all the same.
 * Range.     inf and NaN go through operations as IEEE arithmetic has it, unless said otherwise; what
 *            is below 2^-126 may count as 0. A sum or product may be inf or NaN where the magnitudes of
 *            its terms add up to more than 3.4e38. Fusing moves factors, gains, shifts and casts past a
 *            product. What is finite with CODA_NO_FUSION stays finite: in fp16 always, as nothing is stored
 *            there that an unfused plan does not store (a gain after a norm's factor costs a pass, or folds
 *            into weights whose rows are scaled to a mean square of 1; products that are scaled later are
 *            fp32 until then; CODA_FAST_FP16 saves that, and overflows where x times the gain does); in bf16
 *            and fp32 where sum |x_k g_k w_k|, without the factor that comes later, is below 3.4e38, as after
 *            a norm if the squares of x g and those of a row of w add up to less. A folded layer_norm takes
 *            the mean off after the product: a relative error of about 2^-22 |mean| / deviation.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CODA_H
#define CODA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CODA_VERSION_MAJOR 0
#define CODA_VERSION_MINOR 1
#define CODA_VERSION_PATCH 0
#define CODA_VERSION_STRING "0.1.0"

#if defined(_WIN32)
#define CODA_API
#else
#define CODA_API __attribute__((visibility("default")))
#endif

/* Compilers check what a format asks for. */
#if defined(__GNUC__)
#define CODA_PRINTF(nth, first) __attribute__((__format__(__printf__, nth, first)))
#else
#define CODA_PRINTF(nth, first)
#endif

#define CODA_MAX_RANK 6

/* ------------------------------------------------------------------------------------------------
 * Status
 * ---------------------------------------------------------------------------------------------- */

typedef enum coda_status {
    CODA_OK = 0,
    CODA_E_INVALID = -1,     /* the caller's mistake: shape, dtype, NULL, name */
    CODA_E_UNSUPPORTED = -2, /* well-formed, but not on this device or in this version */
    CODA_E_MEMORY = -3,      /* host memory ran out */
    CODA_E_COMPILE = -4,     /* NVRTC rejected a kernel: the first error line is in coda_error() */
    CODA_E_DEVICE = -5,      /* no driver, no GPU, no NVRTC, or a CUDA call failed */
    CODA_E_IO = -6           /* a file could not be read or written */
} coda_status;

/* This thread's last failure, one line; "" before the first. Valid until its next failing call. */
CODA_API const char *coda_error(void);

/* "CODA_OK", "CODA_E_INVALID", ... Never NULL. */
CODA_API const char *coda_status_name(coda_status status);

/* CODA_VERSION_STRING of the library that is linked. */
CODA_API const char *coda_version(void);

/* ------------------------------------------------------------------------------------------------
 * Graph
 * ---------------------------------------------------------------------------------------------- */

typedef struct coda_graph coda_graph;
typedef struct coda_plan coda_plan;
typedef struct coda_cache coda_cache;

/* Names a tensor inside one graph. CODA_NONE names none and stands for an absent optional operand. */
typedef struct coda_value {
    uint32_t id;
} coda_value;

#ifdef __cplusplus
#define CODA_NONE (coda_value{0})
#else
#define CODA_NONE ((coda_value){0})
#endif

typedef enum coda_dtype {
    CODA_F32 = 1,
    CODA_BF16 = 2,
    CODA_F16 = 3,
    CODA_I32 = 4,
    CODA_F8E4M3 = 5, /* OCP e4m3fn: up to 448, NaN 0x7f and 0xff, no inf; storage, of caches and products */
    CODA_I64 = 6,    /* an operand of int64 is taken wherever int32 is asked for, but no coda_scalar is one;
                        2^32 + 5 is no 5. Results are int32, of which coda_cast makes int64 */
    CODA_F8E5M2 = 7, /* OCP e5m2, the upper byte of an fp16: up to 57344, inf, NaN; storage, as I8 and U8 */
    CODA_I8 = 8,     /* -128 .. 127 */
    CODA_U8 = 9      /* 0 .. 255 */
} coda_dtype;

/* NULL only when memory runs out. */
CODA_API coda_graph *coda_graph_new(void);
CODA_API void coda_graph_free(coda_graph *g);

/* The graph's first mistake, or CODA_OK; sets coda_error() to its text. */
CODA_API coda_status coda_graph_status(const coda_graph *g);

/*
 * Symbolic dimensions: one graph for every shape. A symbol is a number that is known later; it and what is
 * computed with it may stand where dims, strides, and a slice's start and stop are wanted. It is below -1,
 * belongs to its graph, and takes the values least..most that are multiples of `multiple` (1: all), to which
 * both ends belong; 0 and 1 are values as any other. Its name is one of the graph's. Numbers are wanted in
 * weights, in the last two dimensions of w in coda_matmul, and for columns: the last dimension of what
 * products, norms, reductions, top_k, rope, attention, cross_entropy and embedding read as rows.
 *
 * Two dimensions are equal if they are the same polynomial: [B, T, D] reshapes to [B*T, D]. Nothing else is
 * assumed, so that what is built fits with all values: a symbol is never 1 to a broadcast, [T] + [S] is an
 * error, and so is a slice to 128 of a T that may be less. A graph has 16 symbols; a polynomial has 8 terms
 * of degree 4. A mistake poisons the graph and returns INT64_MIN, so that calls nest.
 */
typedef int64_t coda_dim;
CODA_API coda_dim coda_symbol(coda_graph *g, const char *name, int64_t least, int64_t most,
                              int64_t multiple);
/* Products, sums and differences of numbers >= 0 and dimensions of g; CODA_E_INVALID if the result may be
 * below 0 or above 2^62. */
CODA_API coda_dim coda_dim_mul(coda_graph *g, coda_dim a, coda_dim b);
CODA_API coda_dim coda_dim_add(coda_graph *g, coda_dim a, coda_dim b);
CODA_API coda_dim coda_dim_sub(coda_graph *g, coda_dim a, coda_dim b);
/* "B*T-1"; prints as coda_graph_print does. */
CODA_API int64_t coda_dim_print(const coda_graph *g, coda_dim d, char *buf, size_t size);

typedef struct coda_symbol_info {
    size_t size;
    const char *name;
    int64_t least, most, multiple;
} coda_symbol_info;
#define CODA_SYMBOL_INFO_INIT {sizeof(coda_symbol_info), NULL, 0, 0, 0}
/* In the order of coda_symbol. CODA_E_INVALID for an index out of range. */
CODA_API int coda_graph_symbols(const coda_graph *g);
CODA_API coda_status coda_graph_symbol(const coda_graph *g, int index, coda_symbol_info *out);

/* A new graph, with a number for each symbol, in order: as the same calls would have made it with them. */
CODA_API coda_status coda_graph_bind(coda_graph **out, const coda_graph *g, const int64_t *dims,
                                     int dim_count);

/*
 * Leaves, in the order in which coda_run() takes their pointers: that in which these calls are made. C does
 * not say which of two calls inside another call's parentheses comes first, and compilers differ: give each
 * leaf a statement of its own, or bind arguments by name (coda_bind). A weight is an input whose values
 * change rarely: constants may be folded into it (coda_compile_options.fold). Strides are in
 * elements, one for each dimension, >= 0 and free of overlap; without them the tensor is dense.
 * A name is a C identifier (dots allowed), unique in the graph.
 */
CODA_API coda_value coda_input(coda_graph *g, const char *name, coda_dtype t, int rank,
                               const int64_t *dims);
CODA_API coda_value coda_input_strided(coda_graph *g, const char *name, coda_dtype t, int rank,
                                       const int64_t *dims, const int64_t *strides);
CODA_API coda_value coda_weight(coda_graph *g, const char *name, coda_dtype t, int rank,
                                const int64_t *dims);
CODA_API coda_value coda_weight_strided(coda_graph *g, const char *name, coda_dtype t, int rank,
                                        const int64_t *dims, const int64_t *strides);

/* A leaf of rank 0, CODA_F32 or CODA_I32, as a temperature or a loss scale: args[i] points to a float or an
 * int32_t in host memory. coda_run copies it into the kernels' parameters, so the memory may be used again at
 * once; a captured CUDA graph keeps the value of the capture. It costs no memory traffic. */
CODA_API coda_value coda_scalar(coda_graph *g, const char *name, coda_dtype t);

/* A leaf that a run reads, and writes to by coda_append and coda_assign: a cache of keys, positions. It
 * holds from run to run what the last one left, in the caller's memory, which shares no byte with another
 * argument's. */
CODA_API coda_value coda_state(coda_graph *g, const char *name, coda_dtype t, int rank,
                               const int64_t *dims);
CODA_API coda_value coda_state_strided(coda_graph *g, const char *name, coda_dtype t, int rank,
                                       const int64_t *dims, const int64_t *strides);

/* A number: a value of rank 0, which broadcasts with anything and is no argument of coda_run. It is rounded
 * to fp32 and then to t as by coda_cast; integers are those below 2^24. Kernels have it in their text, so
 * that it costs no memory traffic. As an operation's result has the dtype of its first tensor operand, give
 * a constant that comes first the dtype of the other: coda_sub(g, coda_constant(g, CODA_BF16, 1), x). */
CODA_API coda_value coda_constant(coda_graph *g, coda_dtype t, double value);

/* 0, 1, ... n - 1: int32 [n], n up to 2^24 or symbolic, which is no argument of coda_run. Kernels know their
 * columns' numbers, so that it costs no memory traffic where it broadcasts along the columns of others. */
CODA_API coda_value coda_iota(coda_graph *g, int64_t n);

/*
 * Scopes say where nodes come from. All that is built until the matching pop gets this prefix, behind those
 * that are open, with a dot between: "layers.%d" of 17, then "mlp", make "layers.17.mlp". Errors and
 * coda_plan_print say it, and a graph's text keeps it (`@layers.17.mlp`). It has no part in what is
 * computed: texts, names and cache keys of kernels are without it, so that layers share kernels. What a
 * rewrite makes of a node has that one's scope.
 * A prefix is formatted as by printf, in the locale "C", of letters, digits, _ . - / and : alone. Others,
 * more than 64 that are open, more than 255 characters in all, and a pop without its push poison the graph.
 * What is open when a graph is compiled or printed does no harm.
 */
CODA_API void coda_scope_push(coda_graph *g, const char *format, ...) CODA_PRINTF(2, 3);
CODA_API void coda_scope_pop(coda_graph *g);

/* Names a result; its pointer follows those of all leaves, in the order of these calls. */
CODA_API void coda_output(coda_graph *g, const char *name, coda_value v);
CODA_API void coda_output_strided(coda_graph *g, const char *name, coda_value v,
                                  const int64_t *strides);
/* The same, but a run adds v, which is fp32, to what the argument holds: `+=` of gradients. Each element is
 * added to once a run, in fp32, so results are the same bits each time; subnormals may count as 0. */
CODA_API void coda_output_add(coda_graph *g, const char *name, coda_value v);
CODA_API void coda_output_add_strided(coda_graph *g, const char *name, coda_value v,
                                      const int64_t *strides);

/* Shape of a value: returns its rank and fills dims (room for CODA_MAX_RANK) and dtype; either may
 * be NULL. Returns -1 for CODA_NONE and for an id that the graph does not have. A value of another
 * graph is told from this one's only by that: do not mix them. */
CODA_API int coda_value_shape(const coda_graph *g, coda_value v, int64_t *dims, coda_dtype *t);

/* ---- Matrix products ---- */

/* x [..., M, K] times the transpose of w [N, K] or [..., N, K] (PyTorch's Linear): [..., M, N].
 * The call says which way round w lies, as a square one's shape does not: this one takes a square w of
 * [K, N], as JAX, ONNX's MatMul and GPT-2's files have it, without an error, and multiplies by its transpose.
 * Such weights are for coda_matmul_kn; those of PyTorch's Linear, in safetensors or GGUF, are for this one.
 * Leading dimensions of x and of w must be equal, or w has none (one weight for all). N is a number; M and K
 * may be symbolic. y has the dtype of x. w may have 8 bits (CODA_F8E4M3, CODA_F8E5M2, CODA_I8, CODA_U8): its
 * values count as they are, a coda_mul of y applies their scales, nothing folds into such a w, and GPUs read
 * it by fp32 multiply-adds. Of x in fp8 see coda_quant.h. The fast kernels multiply bf16 by bf16, or fp16
 * by fp16, also where these were only cast to fp32. Any other product, such as fp32 by bf16, is exact but for
 * the rounding of its sums, and slow: coda never rounds an operand by itself. coda_cast one operand to the
 * other's dtype where that is good enough: the cast costs nothing where a kernel writes the operand.
 * CODA_TEXT_PLAN says which products are slow, why, and what would help. */
CODA_API coda_value coda_matmul(coda_graph *g, coda_value x, coda_value w);

/* The same with w stored [K, N] or [..., K, N]: x w. */
CODA_API coda_value coda_matmul_kn(coda_graph *g, coda_value x, coda_value w);

/* ---- Elementwise; shapes broadcast from the right as in NumPy (equal, or 1, or absent) ---- */

CODA_API coda_value coda_add(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_sub(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_mul(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_div(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_scale(coda_graph *g, coda_value x, float alpha);    /* alpha x */
CODA_API coda_value coda_bias(coda_graph *g, coda_value x, coda_value bias); /* bias [N] */

CODA_API coda_value coda_relu(coda_graph *g, coda_value x);       /* max(x, 0) */
CODA_API coda_value coda_relu2(coda_graph *g, coda_value x);      /* max(x, 0)^2 */
CODA_API coda_value coda_gelu_erf(coda_graph *g, coda_value x);   /* x/2 (1 + erf(x / sqrt 2)) */
CODA_API coda_value coda_gelu_tanh(coda_graph *g, coda_value x);  /* its tanh form, as in GPT-2 */
CODA_API coda_value coda_gelu_quick(coda_graph *g, coda_value x); /* x sigmoid(1.702 x) */
CODA_API coda_value coda_silu(coda_graph *g, coda_value x);       /* x sigmoid(x) */
CODA_API coda_value coda_tanh(coda_graph *g, coda_value x);
CODA_API coda_value coda_sigmoid(coda_graph *g, coda_value x);  /* 1 / (1 + exp(-x)) */
CODA_API coda_value coda_softplus(coda_graph *g, coda_value x); /* log(1 + exp(x)) */

/* As in NumPy, zeros, infinities and NaN included. In all that is elementwise int32 operands count as fp32,
 * and a result that would be int32 is fp32; coda_cast makes int32 of it, and loses nothing below 2^24. */
CODA_API coda_value coda_exp(coda_graph *g, coda_value x);
CODA_API coda_value coda_log(coda_graph *g, coda_value x);        /* natural; -inf of 0, NaN below */
CODA_API coda_value coda_sqrt(coda_graph *g, coda_value x);       /* as IEEE rounds it; NaN below 0 */
CODA_API coda_value coda_rsqrt(coda_graph *g, coda_value x);      /* 1 / sqrt(x) */
CODA_API coda_value coda_reciprocal(coda_graph *g, coda_value x); /* 1 / x */
CODA_API coda_value coda_neg(coda_graph *g, coda_value x);        /* -x, a coda_scale */
CODA_API coda_value coda_abs(coda_graph *g, coda_value x);
CODA_API coda_value coda_sign(coda_graph *g, coda_value x);       /* 1, -1; 0 and NaN stay */
CODA_API coda_value coda_floor(coda_graph *g, coda_value x);
CODA_API coda_value coda_ceil(coda_graph *g, coda_value x);
CODA_API coda_value coda_round(coda_graph *g, coda_value x);      /* of two nearest the even one */
/* min(max(x, low), high): high where they cross. NaN stays, and a bound that is NaN is none. */
CODA_API coda_value coda_clip(coda_graph *g, coda_value x, float low, float high);
CODA_API coda_value coda_minimum(coda_graph *g, coda_value a, coda_value b); /* NaN if either is */
CODA_API coda_value coda_maximum(coda_graph *g, coda_value a, coda_value b); /* likewise */

/* Comparisons are 1 where they hold, else 0, as always in a's dtype, of int32 in fp32. NaN differs from all,
 * itself included, and is neither less nor greater. What the same kernel computes is compared in fp32, before
 * it is rounded to 16 bits. To the logical ones all that is not 0 is true, NaN, too. */
CODA_API coda_value coda_equal(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_not_equal(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_less(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_less_equal(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_greater(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_greater_equal(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_logical_and(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_logical_or(coda_graph *g, coda_value a, coda_value b);
CODA_API coda_value coda_logical_not(coda_graph *g, coda_value x);
/* a where the condition is not 0, else b: three that broadcast, in a's dtype, whatever the condition's. What
 * is not chosen has no part in it, be that inf or NaN. */
CODA_API coda_value coda_where(coda_graph *g, coda_value condition, coda_value a, coda_value b);

/* Applies a map by name: a file of primitives/map, or one made with coda_define_map(). `params` are
 * its constants (the names after ';' in its signature), NULL when it has none. */
CODA_API coda_value coda_apply(coda_graph *g, const char *map, const coda_value *in, int n,
                               const float *params);

/* A map of your own. `source` is CUDA C++ for one element, for example
 *     "DEV static float apply(float x, float y) { return x > y ? x : 0.1f * y; }"
 * compiled with the kernels that use it; it may call the functions of primitives/math.cuh (`math::exp`),
 * and the compiler's errors count its lines. `reference` computes the same in double for the CPU device
 * and may be NULL (then only a GPU runs the graph). `name` is an identifier that no map has yet.
 * The source is code that runs as you, and must stand for itself, as kernels are kept under keys that
 * have nothing but it: CODA_E_INVALID for #include and all that reads a file or the clock
 * (__has_include, __TIME__, __FILE__, _Pragma, ...), for directives but #define, #undef, #if and its
 * kin, #error and #pragma unroll, for ##, and for quotes and comments without an end. */
typedef struct coda_map_def {
    size_t size;
    const char *name;
    int inputs; /* 1..4 tensor operands; 0 (INIT): 1 */
    int params; /* 0..4 float constants, passed after them */
    const char *source;
    double (*reference)(const double *in, const double *params);
    /* The partial derivative by each operand: "0", "1", or the name of a map that is there, or of this one,
     * which takes the same params, and the same operands or the first of them. NULL: none is known. */
    const char *grad[4];
} coda_map_def;
#define CODA_MAP_DEF_INIT {sizeof(coda_map_def), NULL, 0, 0, NULL, NULL, {NULL, NULL, NULL, NULL}}
CODA_API coda_status coda_define_map(coda_graph *g, const coda_map_def *def);

/* ---- Gated units: x [..., 2F] -> [..., F], act(gate) * up ---- */

typedef enum coda_layout {
    CODA_INTERLEAVED = 0, /* columns gate0 up0 gate1 up1 ... */
    CODA_STACKED = 1      /* columns gate0 .. gateF-1 up0 .. upF-1 */
} coda_layout;
CODA_API coda_value coda_swiglu(coda_graph *g, coda_value x, coda_layout layout); /* silu */
CODA_API coda_value coda_geglu(coda_graph *g, coda_value x, coda_layout layout);  /* gelu, tanh form */
CODA_API coda_value coda_reglu(coda_graph *g, coda_value x, coda_layout layout);  /* relu */
CODA_API coda_value coda_glu(coda_graph *g, coda_value x, coda_layout layout);    /* sigmoid */
CODA_API coda_value coda_geglu_erf(coda_graph *g, coda_value x, coda_layout layout); /* gelu, erf form */
/* (u + 1) g sigmoid(alpha g), g = min(gate, limit), u = up between -limit and limit; limit >= 0, which may be
 * inf. gpt-oss (arXiv 2508.10925): CODA_INTERLEAVED, alpha 1.702, limit 7. */
CODA_API coda_value coda_swiglu_clamped(coda_graph *g, coda_value x, coda_layout layout, float alpha,
                                        float limit);

/* ---- Normalisation over the last dimension; gain and bias [N] may be CODA_NONE ---- */

/* x / sqrt(mean(x^2) + eps) * gain. Zhang & Sennrich, arXiv 1910.07467. A row that holds inf or NaN, or whose
 * squares add up to more than 3.4e38, is NaN throughout; with mean(x^2) + eps below 2^-126 inf or NaN. */
CODA_API coda_value coda_rms_norm(coda_graph *g, coda_value x, coda_value gain, float eps);
/* (x - mean) / sqrt(var + eps) * gain + bias, var over N. Ba et al., arXiv 1607.06450. A sum past fp32 does
 * not harm, and var does not cancel; but the mean is rounded to fp32, so that before gain results may be off
 * by some 2^-22 |mean| / deviation, which is all of them where |mean| is 2^22 deviations or more.
 * NaN as in rms_norm, by the squares of x - mean. */
CODA_API coda_value coda_layer_norm(coda_graph *g, coda_value x, coda_value gain, coda_value bias,
                                    float eps);
/* Rows add up to 1, whatever the size of x. One that holds inf or NaN, or -inf alone, is NaN throughout. */
CODA_API coda_value coda_softmax(coda_graph *g, coda_value x);
CODA_API coda_value coda_log_softmax(coda_graph *g, coda_value x); /* its logarithm; NaN as there */

/* ---- Row statistics: [..., N] -> [..., 1], always fp32. NaN if the row holds one ---- */

CODA_API coda_value coda_row_sum(coda_graph *g, coda_value x);     /* 0 if N is 0 */
CODA_API coda_value coda_row_max(coda_graph *g, coda_value x);     /* -inf if N is 0 */
CODA_API coda_value coda_row_mean(coda_graph *g, coda_value x);    /* finite if mean |x| is; N 0: NaN */
CODA_API coda_value coda_log_sum_exp(coda_graph *g, coda_value x); /* inf if there is one, -inf of -inf */

/* A reduction by name: a file of primitives/reduce. `key` is one value for each row, [...] or [..., 1]
 * that may repeat, for those that take one (`select`: the column that the key names), else CODA_NONE. */
CODA_API coda_value coda_reduce(coda_graph *g, const char *reduction, coda_value x, coda_value key);
/* Down the columns: x [..., M, N] -> fp32 [..., 1, N]; refused for a reduction with a key or a state of more
 * than 4 floats (top_4 to top_16). Leading dimensions are separate matrices: reshape [B, T, N] to [B*T, N] to
 * reduce over all rows. M = 0 gives what coda_reduce gives of no columns; arg_max names a row. Each run of a
 * plan leaves equal bits. */
CODA_API coda_value coda_reduce_columns(coda_graph *g, const char *reduction, coda_value x);

/* The k largest of each row, in descending order: x [..., N] gives *values [..., k] of x's dtype and *indices
 * int32 [..., k], where in the row each of them is. Of equal elements the one further left comes first; NaN
 * is above all, and -0 is 0. 1 <= k <= 64 and k <= N: a kernel keeps a row's best in two registers of each
 * lane of a warp. values or indices may be NULL where they are not wanted. For the smallest, scale by -1
 * before and after. Behind a product, k up to 16 is the epilogue's: each tile leaves its best, and of the
 * product nothing is stored that nobody else reads. */
CODA_API void coda_top_k(coda_graph *g, coda_value x, int64_t k, coda_value *values, coda_value *indices);

/* ---- Sampling ---- */

/* Draws a column of each row: logits [..., V], V up to 2^24, give int32 [...]. Column c comes with the
 * probability that softmax(logits / temperature) has there, among those that are kept: as in transformers and
 * vLLM, the temperature divides first, then top_k keeps the so many greatest, top_p of these the greatest
 * that make up so much of their probability, the one that reaches it included, and min_p those that have at
 * least so much of the greatest one's. Elements equal to the last one that is kept are kept, too.
 *
 * `seeds` is int32 [..., 2], a key, say a request's seed and the number of its text, and `places` int32
 * [...], the token's place in the text: numbers below 2^24, of which leading dimensions may be 1. The draw
 * depends on them and on the row alone, on nothing that other rows hold and not on how many there are: noise
 * of column c is g = -log(-log(u)), u being 64 bits of Philox4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011) of the counter (c, place, 0, 0) under the key, and what is drawn is
 * the greatest of logits + temperature g (Gumbel 1954; Maddison et al., arXiv 1411.0030). So all devices draw
 * alike but where two of these are equal to rounding, and one with a temperature of 0, or less, is the
 * greatest of the logits. NaN is above all, of equals the first is drawn, and of -inf alone column 0.
 *
 * Options have one number for each row, [...] or [..., 1], or one for all rows. Behind a product that makes
 * the logits, all of it is the epilogue's, and these are never stored, but for top_k, top_p and min_p, which
 * read them once more: see coda_nucleus.
 *
 * *logprob, fp32 [...], is log_softmax(logits + bias) of the column, by neither the temperature nor what is
 * kept; from the greatest value and its noise, so up to 2e-6 of these off. NaN of a row with NaN or inf, or
 * of -inf alone. logprob and opt may be NULL. */
typedef struct coda_sample_options {
    size_t size;
    coda_value temperature; /* fp32; INIT: 1, and likewise none of the others */
    coda_value top_k;       /* int32; of a row for which it is below 1, or V or more, all are kept */
    coda_value top_p;       /* fp32; from 1 on all are kept, of 0 or less the greatest */
    coda_value min_p;       /* fp32; of 0 or less all are kept */
    coda_value bias;        /* is added to the logits, with which it broadcasts: -inf forbids a column */
} coda_sample_options;
#define CODA_SAMPLE_OPTIONS_INIT {sizeof(coda_sample_options), {0}, {0}, {0}, {0}, {0}}
CODA_API coda_value coda_sample(coda_graph *g, coda_value logits, coda_value seeds, coda_value places,
                                const coda_sample_options *opt, coda_value *logprob);

/* The least element of each row that these options of coda_sample keep: x [..., V] gives fp32 [..., 1]. It is
 * the largest such that it and what is no less are enough for top_k, and for top_p, but for min_p, which may
 * ask for more than any element: then it is max + temperature log(min_p). -inf where all are kept, NaN of a
 * row with NaN. Operands have one number for each row, or one; temperature may be CODA_NONE: 1, and so may
 * the others: all are kept. The row is not sorted: it is exact for any top_k and top_p. Weights e^((x - max)
 * / temperature) count in units of 2^-38, so that sums are exact, and the same in any order. */
CODA_API coda_value coda_nucleus(coda_graph *g, coda_value x, coda_value temperature, coda_value top_k,
                                 coda_value top_p, coda_value min_p);

/* ---- Rotary embedding (Su et al., arXiv 2104.09864) ---- */

typedef enum coda_rope_style {
    CODA_ROPE_HALF = 0,       /* pairs (i, i + rotary/2), as in LLaMA's public weights */
    CODA_ROPE_INTERLEAVED = 1 /* pairs (2i, 2i+1), as in the paper */
} coda_rope_style;

/* x [..., T, H*head_dim]: every pair (a, b) of the first `rotary` columns of a head becomes
 *     (a cos t - b sin t, a sin t + b cos t),   t = position * base^(-2i / rotary),
 * i the pair's index in the head. Heads from `heads` on, and columns from `rotary` on, pass through:
 * a projection [q heads | k heads | v heads] is rotated whole with heads = q + k. `positions` is
 * int32 with x's leading dimensions ([..., T] or [T]); CODA_NONE means 0 .. T-1.
 * On a GPU cos t and sin t are off by 3e-7 at most up to position 2^20, 1.5e-5 up to 2^23, and do not turn
 * beyond; so too with frequencies of one radian or less, which are taken as exact. Larger ones are right up
 * to position 2^20. */
typedef struct coda_rope_options {
    size_t size;
    int64_t head_dim; /* columns of a head; 0 (INIT): the whole row is one head */
    int64_t rotary;   /* rotated columns of each head, even; 0 (INIT): head_dim */
    int64_t heads;    /* leading heads rotated; 0 (INIT): all */
    float base;       /* >= 1; 0 (INIT): 10000 */
    coda_rope_style style; /* INIT: CODA_ROPE_HALF */
    coda_value frequencies; /* fp32 [rotary/2]: radians for one position, in place of base^(-2i / rotary),
                             * so that LLaMA-3.1's scaling, YaRN or LongRoPE is the caller's arithmetic;
                             * INIT: none */
    float scale;            /* the factor of cos t and sin t, as YaRN's mscale; 0 (INIT): 1 */
    int inverse;            /* 1: turns by -t, which undoes a rotation, and is its gradient; INIT: 0 */
    int64_t sections[4];    /* a position is a row of s numbers, 2 to 4, as time, height and width of a patch
                             * of an image (M-RoPE: Qwen2-VL, arXiv 2409.12191): `positions` is then
                             * [..., T, s] or [T, s], and not CODA_NONE. Of the rotary/2 frequencies the
                             * first sections[0] turn by column 0 of the positions, the next sections[1] by
                             * column 1, and so on. They add up to rotary/2; behind the last one zeros.
                             * INIT: all 0, and positions are single numbers */
    int interleave_sections; /* 1 (Qwen3-VL): frequency i turns by column a = i % s of the positions while
                              * i < s * sections[a], all others by column 0. Still sections[a] frequencies
                              * turn by column a; CODA_E_INVALID if they cannot. Wants `sections`.
                              * INIT: 0, one section after the other */
} coda_rope_options;
#define CODA_ROPE_OPTIONS_INIT \
    {sizeof(coda_rope_options), 0, 0, 0, 0.0f, CODA_ROPE_HALF, {0}, 0.0f, 0, {0, 0, 0, 0}, 0}
CODA_API coda_value coda_rope(coda_graph *g, coda_value x, coda_value positions,
                              const coda_rope_options *opt);

/* ---- Attention ---- */

/* Where queries sit among the keys, their positions. They matter to a causal mask, a window, `ahead`, slopes
 * and maps of scores of two operands or more; without any of these all keys are seen, whatever is said here.
 * A position below 0 is one as others are, from which `ahead` and slopes count, except under LENGTH. */
typedef enum coda_attention_align {
    CODA_ALIGN_DEFAULT = 0, /* END; refused where lengths leave it open: see the option `align` */
    CODA_ALIGN_START = 1,   /* query i sits at position i, as key i does */
    CODA_ALIGN_END = 2,     /* at i + Tk - Tq: the last query at the last of the Tk keys */
    CODA_ALIGN_LENGTH = 3   /* at i + lengths[b] - Tq (Tk - Tq without lengths): the queries are the
                             * newest of the lengths[b] rows that a cache of Tk holds. One before its
                             * row 0 sees no key and gives 0, be it for `ahead`, slopes or a map alone */
} coda_attention_align;

/* How a cache lies, or a page of it. */
typedef enum coda_cache_layout {
    CODA_LAYOUT_NHD = 0, /* a row for each key, which has all heads: [..., keys, kv_heads*head_dim] */
    CODA_LAYOUT_HND = 1  /* the keys of each head together: [..., kv_heads, keys, head_dim] */
} coda_cache_layout;

/* softmax(scale q k^T + mask) v, head by head: q [B, Tq, heads*head_dim], k and v
 * [B, Tk, kv_heads*head_dim], result like q; without B, one sequence. `lengths` is int32 [B], or CODA_NONE:
 * all Tk keys; what is below 0 counts as 0, what is above Tk as Tk. Nothing of size Tq*Tk is stored.
 *
 * Query i of sequence b sits at the position that `align` gives it, and sees the keys j for which all that is
 * asked for holds:
 *     j < lengths[b],   causal: j <= position,   ahead: j <= position + ahead,
 *     window: j > position - window,   ranges: ranges[b][i][0] <= j < ranges[b][i][1]
 * The score of a key that it sees is made in this order, each step only with its option:
 *     s = scale k_scale q k^T
 *     s = softcap tanh(s / softcap)
 *     s = s - slopes[head] |position - j|
 *     s = s + bias[b][head][i][j]
 *     s = score(s, position, j, head; score_params)
 * and the result is v_scale (sum of e^s v[j]) / (sum of e^s + e^sinks[head]). A query that sees no key
 * gives 0.
 *
 * Rows of k and v from lengths[b] on, and whatever lies between rows, may hold any bits: no result depends
 * on them. An inf or NaN in a row before lengths[b] makes those queries that see it what the formula
 * says; it may or may not reach others of that sequence, but none of another. */
typedef struct coda_attention_options {
    size_t size;
    int64_t heads;    /* heads of q; 0 (INIT): 1 */
    int64_t kv_heads; /* heads of k and v, a divisor of heads: query head h reads key head
                       * h / (heads / kv_heads); 0 (INIT): heads */
    int64_t window;   /* the most keys that a query sees up to its position, that one included;
                       * 0 (INIT): no limit */
    int causal;       /* 1: a query sees no key behind its position; excludes `ahead`; INIT: 0 */
    float scale;      /* the factor of q k^T, finite; 0 (INIT): 1 / sqrt(head_dim) */
    coda_attention_align align; /* where queries sit. With lengths and any of causal, window, ahead, slopes
                                 * or a map of two operands or more, the default (INIT) is taken only where
                                 * Tq == Tk (padded sequences that attend to themselves: query i sits beside
                                 * key i), or Tq == 1 under a causal mask alone (the query sees all that is
                                 * there). Elsewhere CODA_E_INVALID asks for a word: a cache wants LENGTH */
    int64_t ahead;     /* the most keys that a query sees behind its position; excludes `causal`;
                        * 0 (INIT): no limit, but that of a causal mask */
    coda_value ranges; /* int32 [B, Tq, 2], [Tq, 2] without B, [T, 2] with starts: the first key that each
                        * query sees, and the one behind the last, so that packed documents, prefixes and
                        * chunks are data. A tile of queries computes only those blocks of keys of which some
                        * query of it sees one. INIT: none */
    coda_value slopes; /* fp32 [heads]: what a score loses for each key of distance (ALiBi, arXiv
                        * 2108.12409). INIT: none */
    coda_value sinks;  /* fp32 [heads]: the score of one key more, whose value is 0, that each query of the
                        * head sees (gpt-oss). No softcap, slope, bias or map changes it. INIT: none */
    coda_value table;  /* int32 [B, pages]: keys lie in pages of a pool. k and v are [slots,
                        * kv_heads*head_dim], key j of sequence b is row table[b][j / page] * page + j % page
                        * of them, and Tk is pages * page. Wants `page` and lengths. Entries past a
                        * sequence's length may hold anything; a page that the pool does not have reads as
                        * zeros. INIT: none */
    float softcap;     /* the bound that tanh keeps scores within (Gemma 2), finite; 0 (INIT): none */
    int64_t page;      /* keys in a page: a power of two that divides slots; tensor cores read pages of 8
                        * and more. Wants `table`. 0 (INIT): keys lie one behind the other */
    coda_cache_layout layout; /* how k and v lie. With CODA_LAYOUT_HND they are [B, kv_heads, Tk, head_dim],
                               * B being 1 where q has none, or a pool [pages, kv_heads, page, head_dim].
                               * INIT: CODA_LAYOUT_NHD */
    coda_value k_scale; /* fp32 [1] or [kv_heads]: what is read of k is multiplied by it, as a cache of
                         * CODA_F8E4M3 wants it. Tensor cores read fp8 if q is bf16 or fp16, head_dim a
                         * multiple of 16 up to 128, and the queries of a group's heads are 16 at most, as in
                         * decoding; more queries, and scales of 16-bit keys, take the plain kernel in this
                         * version, which is slow. INIT: none */
    coda_value v_scale; /* the same for v */
    coda_value starts;  /* int32 [B + 1]: packs the queries of sequences that have some each, none, one or
                         * many, as a server's step has chunks of prompts and sequences that write. q is
                         * [T, heads*head_dim], and its rows from starts[b] below starts[b + 1] are the
                         * queries of sequence b, one of the B that k and v, lengths and a table are of,
                         * shaped as above. What is said of Tq then holds of starts[b + 1] - starts[b], and
                         * query i of sequence b is row starts[b] + i. A start below 0 counts as 0, one above
                         * T as T, and one below an earlier one as that one, so that a row is of one sequence
                         * at most. Rows of none, before starts[0] and from starts[B] on, see no key. A tile
                         * of queries is of one sequence, and ends where that does: no result depends on
                         * another sequence, and queries that are not there cost no tile. INIT: none */
    const char *score;  /* a map, of primitives/map or made with coda_define_map(), that turns a score into
                         * the one that the softmax takes, in natural units (a key's weight is e^s). It gets
                         * s, the query's position, the key's number j and the query head's number from 0, all
                         * as float; one of fewer operands gets the first of these. `softcap` with {30} is
                         * softcap = 30, and
                         *     DEV static float apply(float s, float pos, float j, float head, float most)
                         *     { return s - fminf(fabsf(pos - j), most); }
                         * penalises distance. A score of -inf hides its key, which is computed all the
                         * same; a query without a sink is NaN if all that it sees scores -inf.
                         * NULL (INIT): none */
    float score_params[4]; /* the map's constants, those behind its last one 0; INIT: 0 */
    coda_value bias;       /* fp32 or of q's dtype, in natural units (a float attn_mask of PyTorch; the
                            * relative positions of T5 and Swin): [B, heads, Tq, Tk], of which each dimension
                            * may be 1, and the first ones absent, as NumPy broadcasts; without B
                            * [heads, Tq, Tk]; with starts [heads, T, Tk], a row for each row of q. Its last
                            * index is the key's number, in pages too. What it has of keys that a query does
                            * not see may be anything. It may be a view of any strides; two elements are read
                            * at once where keys are adjacent in it, and Tk and the other strides even.
                            * INIT: none */
} coda_attention_options;
#define CODA_ATTENTION_OPTIONS_INIT \
    {sizeof(coda_attention_options), 0, 0, 0, 0, 0.0f, CODA_ALIGN_DEFAULT, 0, {0}, {0}, {0}, {0}, 0.0f, \
     0, CODA_LAYOUT_NHD, {0}, {0}, {0}, NULL, {0.0f, 0.0f, 0.0f, 0.0f}, {0}}
CODA_API coda_value coda_attention(coda_graph *g, coda_value q, coda_value k, coda_value v,
                                   coda_value lengths, const coda_attention_options *opt);

/* The same, and *lse, fp32 [B, heads, Tq] ([heads, Tq] without B, [heads, T] with starts): log of the sum of
 * e^s over the scores s that the query's weights were divided by, a sink's included; -inf where a query sees
 * no key. Parts of attention over parts of the keys are put together by it; gradients want it. One launch. */
CODA_API coda_value coda_attention_lse(coda_graph *g, coda_value q, coda_value k, coda_value v,
                                       coda_value lengths, const coda_attention_options *opt,
                                       coda_value *lse);

/* ---- State ----
 * Both calls give the state as it is afterwards: a value of its type, which is read as any other. `state` is
 * what coda_state, coda_append or coda_assign has returned, no view of it, and is written over: whatever
 * reads it must have been built before, else CODA_E_INVALID; what was, runs before. A run leaves the last
 * one in the argument's memory, read or not; a graph that writes a state needs no output. Every reader sees
 * what is stored: rounded to the dtype; integers are exact below 2^24. An output named after its version was
 * written over gets a copy made before. Runs that share a state may not be in flight at one time. */

typedef struct coda_append_options {
    size_t size;
    coda_cache_layout layout; /* how the state lies. With CODA_LAYOUT_HND it is
                               * [pages, heads, page, head_dim], rows are [..., heads*head_dim], and slots
                               * count keys: slot s is key s % page of page s / page, of each head. So a cache
                               * [B, heads, T, head_dim]: token t of sequence b is slot b*T + t.
                               * INIT: CODA_LAYOUT_NHD */
    coda_value scale; /* fp32 [1], or [heads], as many as divide the columns evenly: a state of CODA_F8E4M3
                       * holds rows / scale. Wants such a state. INIT: none */
} coda_append_options;
#define CODA_APPEND_OPTIONS_INIT {sizeof(coda_append_options), CODA_LAYOUT_NHD, {0}}

/* Row i of rows [..., W] becomes row slots[i] of the state [..., W], whose rows are counted through all its
 * dimensions but the last, 2^24 at most. slots int32 [...]; a row whose slot is negative, or beyond the end,
 * is skipped: of a cache [B, T, W] row t of sequence b is slot b*T + t, and t = T is the next sequence's, so
 * the caller gives -1 for what does not fit. If a slot comes twice it gets one of the two rows, or columns of
 * both. rows have the state's dtype, or are floats where the state is CODA_F8E4M3. opt may be NULL.
 * A state of CODA_F8E4M3 rounds to nearest even, to at most +-448, and keeps NaN. Such a state, or another
 * tensor of that dtype, is read by coda_attention as k and v, coda_cast, coda_assign, slices, reshapes and
 * transposes; others refuse it. */
CODA_API coda_value coda_append(coda_graph *g, coda_value state, coda_value rows, coda_value slots,
                                const coda_append_options *opt);
/* The state becomes the value, of its type. */
CODA_API coda_value coda_assign(coda_graph *g, coda_value state, coda_value value);

/* ---- Loss ---- */

typedef enum coda_reduction {
    CODA_REDUCE_MEAN = 0, /* [1], over the rows not ignored */
    CODA_REDUCE_NONE = 1, /* one loss for each row, ignored rows 0: [...] */
    CODA_REDUCE_SUM = 2   /* [1] */
} coda_reduction;

/* log_sum_exp(logits) - logits[target], fp32. logits [..., V], targets int32 [...]. A target that is
 * neither the ignored index nor in 0..V-1 gives NaN, as does a row that holds inf or NaN, or -inf alone; an
 * ignored row is 0 whatever it holds. Right for logits of any size: (max - logits[target]) + log(sum). */
typedef struct coda_cross_entropy_options {
    size_t size;
    int32_t ignore_index;     /* 0 (INIT): -100; to ignore index 0, set ignore_zero */
    coda_reduction reduction; /* INIT: CODA_REDUCE_MEAN */
    int ignore_zero;          /* 1: index 0 is ignored, and ignore_index must be 0; INIT: 0 */
} coda_cross_entropy_options;
#define CODA_CROSS_ENTROPY_OPTIONS_INIT {sizeof(coda_cross_entropy_options), 0, CODA_REDUCE_MEAN, 0}
CODA_API coda_value coda_cross_entropy(coda_graph *g, coda_value logits, coda_value targets,
                                       const coda_cross_entropy_options *opt);

/* ---- Data movement; slices, reshapes and transposes are views wherever strides can say it ---- */

/* table [V, N] of any dtype but those of 8 bits, V up to 2^24, ids int32 [...]: [..., N]. An id outside
 * 0..V-1 gives a row of zeros. */
CODA_API coda_value coda_embedding(coda_graph *g, coda_value table, coda_value ids);
/* Rows added by id: x [..., N], fp32, bf16 or fp16, and ids int32 or int64 [...] give fp32 [rows, N]: row i
 * is the sum of the rows of x whose id is i, 0 where none has it. An id outside 0..rows-1 adds to nothing. It
 * is the gradient of coda_embedding, torch's index_add_ on zeros, and pooling by segment. rows, up to 2^24,
 * may be symbolic. Sums are fp32, of 32 rows in the order of x, then of these in theirs, after a stable
 * counting sort of the ids (Knuth, TAOCP 3, 5.2): no atomics on floats, so each run leaves equal bits, on
 * GPUs of any size. coda_output_add does not touch a row that no id names. */
CODA_API coda_value coda_row_sums(coda_graph *g, coda_value x, coda_value ids, int64_t rows);
/* To int32 or int64: towards zero, to the nearest that fits; NaN is 0. So an arg_max becomes ids. To
 * CODA_F8E4M3 or CODA_F8E5M2, of floats: to the nearest, ties to even; e4m3 saturates at 448, e5m2 not. */
CODA_API coda_value coda_cast(coda_graph *g, coda_value x, coda_dtype t);
/* Elements start, start+step, ... below stop along `axis`: 0 is the first one, -1 the last, as in all that
 * takes axes. start and stop count from the beginning: a negative one is symbolic. */
CODA_API coda_value coda_slice(coda_graph *g, coda_value x, int axis, int64_t start, int64_t stop,
                               int64_t step);
CODA_API coda_value coda_concat(coda_graph *g, int axis, const coda_value *in, int n);
/* Operands of one type take turns along `axis`: element j of in[i] is element j * n + i of the result. */
CODA_API coda_value coda_interleave(coda_graph *g, int axis, const coda_value *in, int n);
/* One dimension may be -1: what the others leave, [B, T, 64] as {-1, 64} is [B*T, 64]. It has to be a number,
 * or a polynomial, that times the others is all there is: none is beside a 0, nor of [T, 3] as {-1, 2}. */
CODA_API coda_value coda_reshape(coda_graph *g, coda_value x, int rank, const int64_t *dims);
/* Dimension i of the result is dimension perm[i] of x; -1 is its last one. */
CODA_API coda_value coda_transpose(coda_graph *g, coda_value x, const int *perm);

/* ---- Text. Both forms print and parse back to the same text. ---- */

/* Writes at most `size` bytes, NUL included, and returns the length of the whole text (as
 * snprintf does; buf may be NULL when size is 0). A negative value is a coda_status.
 * Of a graph with a mistake it is what was built until then, which parses, and the mistake as a comment in
 * the last line: "; mistake: matmul %2 in ...". */
CODA_API int64_t coda_graph_print(const coda_graph *g, char *buf, size_t size);
/* Makes a graph from its text; errors name the line. */
CODA_API coda_status coda_graph_parse(coda_graph **out, const char *text);

/* The words of the text form, and of maps of your own: what `coda ops` prints. */
typedef enum coda_word_kind {
    CODA_WORD_OPERATION = 0, /* of the library's own */
    CODA_WORD_MAP = 1,       /* for coda_apply, and coda_attention_options.score */
    CODA_WORD_REDUCTION = 2, /* for coda_reduce and coda_reduce_columns */
    CODA_WORD_FUNCTION = 3   /* that a coda_map_def may call, as math::NAME; no word of the text form */
} coda_word_kind;
/* Strings are static, none is NULL, and those that say nothing are "". */
typedef struct coda_word_info {
    size_t size;
    coda_word_kind kind;
    const char *name;
    const char *operands;   /* with shapes: "x [..., N], gain? [N]"; `?`: may be absent, `_` or CODA_NONE */
    const char *attributes; /* between braces: "eps=float"; of a map its constants */
    const char *result;     /* its shape and dtype */
    const char *meaning;    /* the formula */
    const char *calls;      /* that make it: "coda_silu, coda_apply" */
    const char *gradient;   /* a map's partial derivatives, or those of a reduction: "x: silu_grad(x)" */
} coda_word_info;
#define CODA_WORD_INFO_INIT \
    {sizeof(coda_word_info), CODA_WORD_OPERATION, NULL, NULL, NULL, NULL, NULL, NULL, NULL}
/* A map may have the name of a function; of such words coda_word_find gives the map, and of "math::exp" the
 * function. Negative, a coda_status, if there is none; coda_error() says which name is near. */
CODA_API int coda_words(void);
CODA_API coda_status coda_word(int index, coda_word_info *out);
CODA_API int coda_word_find(const char *name);
/* A small graph that has the word; "" for a function. Prints as coda_graph_print does. */
CODA_API int64_t coda_word_example(int index, char *buf, size_t size);

/* Evaluates the graph in fp64 without rounding, but to fp8, on the CPU: the yardstick of tests.
 * `args` as in coda_run(), in host memory and aligned to their elements, except that every output is dense
 * double. States are rounded to their dtype once, at the end. Symbols want coda_graph_bind before. */
CODA_API coda_status coda_evaluate(const coda_graph *g, void *const *args);

/* ------------------------------------------------------------------------------------------------
 * Compile
 * ---------------------------------------------------------------------------------------------- */

typedef enum coda_device {
    CODA_DEVICE_GPU = 0, /* the current CUDA context's GPU, else the first GPU's primary context */
    CODA_DEVICE_CPU = 1, /* runs plans program by program on the host; needs no CUDA at all */
    CODA_DEVICE_NONE = 2 /* compiles kernels for `arch` into the cache; needs NVRTC, no GPU */
} coda_device;

typedef enum coda_fold {
    CODA_FOLD_NONE = 0,    /* gains stay in the epilogues; coda_prepare() is not needed */
    CODA_FOLD_COPY = 1,    /* constants fold into copies of the weights, in `prepared` memory */
    CODA_FOLD_IN_PLACE = 2 /* ... into the weights themselves, where no other operation reads them */
} coda_fold;

enum {
    CODA_NO_FUSION = 1 << 0,  /* one kernel for each operation: the yardstick */
    CODA_NO_CACHE = 1 << 1,   /* neither read nor write the cache */
    CODA_CUBLASLT = 1 << 2,   /* all GEMMs without an epilogue go to cuBLASLt */
    CODA_PLAN_ONLY = 1 << 3,  /* stop after the plan, for CODA_DEVICE_GPU that of a GPU at hand; none runs */
    CODA_AUTOTUNE = 1 << 4,   /* measure what is not known yet; see below */
    CODA_MAX_AUTOTUNE = 1 << 5, /* the same with every tile that might win, and for longer */
    CODA_FAST_FP16 = 1 << 6,   /* fp16 may overflow before a norm's factor is applied; see Range */
    CODA_BATCH_INVARIANT = 1 << 7, /* a row has the same bits in every company; see below */
    CODA_NO_DEFERRAL = 1 << 8, /* products multiply what norms have made, rounded: nothing moves past them */
    CODA_OVERLAP = 1 << 9,     /* exchanges run beside what does not wait for them: see coda_group.h */
    CODA_STEADY = 1 << 10      /* all runs have the first one's memory, where ranks write: see coda_group.h */
};

typedef enum coda_policy {
    CODA_POLICY_WAIT = 0,       /* a run waits for the kernels that its shape wants, if they are not loaded */
    CODA_POLICY_ERROR = 1,      /* it fails: a service that must not wait asks coda_warm for its shapes */
    CODA_POLICY_BACKGROUND = 2, /* it has kernels that serve any shape, which coda_compile waits for, until a
                                 * thread of the library has made the best ones */
    CODA_POLICY_NEVER = 3       /* it has those that serve any shape, unless coda_warm has made better ones */
} coda_policy;

typedef struct coda_compile_options {
    size_t size;
    coda_device device;    /* INIT: CODA_DEVICE_GPU */
    coda_fold fold;        /* INIT: CODA_FOLD_NONE */
    unsigned flags;        /* INIT: 0 */
    const char *arch;      /* "sm_90a"; NULL (INIT): the device's, or sm_90a without one */
    coda_cache *cache;     /* of kernels; NULL (INIT): the one that the environment describes */
    coda_policy policy;    /* of a graph with symbols; INIT: CODA_POLICY_WAIT */
    int shapes;            /* plans of single shapes that it keeps, the last ones used; 0 (INIT): 64 */
} coda_compile_options;
#define CODA_COMPILE_OPTIONS_INIT \
    {sizeof(coda_compile_options), CODA_DEVICE_GPU, CODA_FOLD_NONE, 0, NULL, NULL, CODA_POLICY_WAIT, 0}

/*
 * Tuning. Tiles are chosen by a price. With CODA_AUTOTUNE (which needs CODA_DEVICE_GPU) each matrix
 * product of the plan is instead timed with its epilogue: with the few cheapest tiles, and taken apart,
 * by cuBLASLt and kernels of its own for the epilogue. The fastest is used, so that a tuned plan is not
 * slower than cuBLASLt with separate kernels, and the figures go to the cache. They serve every later
 * coda_compile() of an equal product for this device, with or without the flag; CODA_TEXT_PLAN shows
 * them. Tuning takes seconds and runs on the device by itself: nothing else should run there. It is the
 * one time that coda allocates device memory: tensors of the product's sizes, several of each, at most
 * half of what is free, given back before coda_compile() returns. If that is too little the product is
 * not tuned, and CODA_TEXT_PLAN says so. Results differ by rounding only: tilings add up in other orders,
 * and a product taken apart is rounded to its dtype before the epilogue, as with CODA_NO_FUSION.
 *
 * CODA_MAX_AUTOTUNE times some forty tiles of each product, also where the cache has figures of fewer, and
 * among them kinds of tiles that no price chooses as yet. Large products run for long enough each that
 * power and heat decide, as they do in service. It takes up to half a minute for a product.
 *
 * Products that tensor maps cannot describe (fp32, odd pitches) have a plain and slow kernel. Without
 * figures they too go to cuBLASLt, if it is there and faster by price. Each such product wants 64 MiB of
 * workspace; products that run one after the other share them.
 */

/*
 * Batch invariance. With CODA_BATCH_INVARIANT the bits that a row of a result has depend on that row of the
 * inputs, on the weights and on the device alone: not on how many rows there are, from 1 on, at which place
 * it is, what others hold, nor on which kernels are ready. They are the same in all runs of a plan with
 * symbols, for all dims, before and after CODA_POLICY_BACKGROUND has made better kernels; and in plans of
 * graphs that differ in their numbers of rows alone, where no such number lets the graph be rewritten
 * otherwise, as 1 may, or one that is also a number of columns; a plan with symbols is always rewritten alike
 * if it can be before its symbols have values. An input of more than one dimension is taken to have rows; by
 * its symbols a plan tells a vector of each sample, [B, 1, N], from rows [B, T, N] also where T is 1, while a
 * plan of a graph with numbers cannot, and may then round what is computed of that vector otherwise. What
 * the formula makes of all rows (statistics of columns, a loss over all) depends on all of them, but not on
 * which kernels are ready.
 *
 * In attention a query depends on its own sequence: on its position and the keys that it sees, not on other
 * sequences, how many there are, where in a batch it is or where keys lie. With `starts` it does not depend
 * either on how many queries of its sequence are in the run, nor which: prompts in pieces of any lengths and
 * tokens one by one give the same bits. Without, this holds from Tq = 2 on; the only query of a sequence
 * (Tq = 1, decoding) has a faster kernel, whose bits are others. Keys of 8 bits have two kernels, for up to
 * 16 queries of a group's heads and for more, and in the first one a query depends on those beside it, too.
 *
 * It costs speed: all numbers of rows have one kind of kernel, that streams no weights past few rows and
 * shares no sum, statistics have a state for each 64 columns, and packed queries have the kernel of prompts.
 * CODA_AUTOTUNE measures what keeps bits, and figures of other plans say nothing here. CODA_CUBLASLT is
 * refused (CODA_E_INVALID), and slow products stay with the plain kernel: the library chooses by rows.
 */

/* Rewrites, plans, compiles (or finds in the cache) and loads. Slow the first time: do it before serving.
 * A plan's kernels are compiled side by side, on as many threads as there are cores that the process may
 * use, or on $CODA_COMPILE_THREADS (1 to 64). On failure *out is NULL. */
CODA_API coda_status coda_compile(coda_plan **out, const coda_graph *g,
                                  const coda_compile_options *opt);
CODA_API void coda_plan_free(coda_plan *p); /* no run may be in flight */

/* ------------------------------------------------------------------------------------------------
 * Run
 * ---------------------------------------------------------------------------------------------- */

typedef struct CUstream_st *coda_stream; /* a CUstream or cudaStream_t; NULL is the default stream */

/* Bytes of scratch for one run in flight, and of folded constants shared by all runs. Memory must be
 * aligned to 256 bytes (cuMemAlloc's is).
 *
 * What must survive from coda_prepare to coda_run, and from one run to the next: of `prepared`, everything,
 * at the address where it was prepared; of the workspace, nothing; of the outputs, nothing; of the states,
 * everything. Each run may have another workspace and other outputs, whatever they hold. */
CODA_API size_t coda_plan_workspace(const coda_plan *p);
CODA_API size_t coda_plan_prepared(const coda_plan *p);

/* Names what coda_prepare leaves: the formulas of all folded values, with names, types and strides of the
 * weights in them; 0 if there is nothing to prepare. Plans of equal ids share one `prepared` memory and one
 * coda_prepare by any of them. They need not be of equal graphs: what is folded does not depend on how
 * many rows the inputs have, so plans of one model for prefill and for decoding have equal ids. */
CODA_API uint64_t coda_plan_prepared_id(const coda_plan *p);

/* Writes the folded constants into `prepared` (and, with CODA_FOLD_IN_PLACE, into the weights). Needed if
 * coda_plan_prepared_id() is not 0: once for all plans of one id, and again when weights have got new
 * values. Takes what coda_run takes; inputs and outputs are left alone. Asynchronous on the stream, as
 * coda_run, but may lock and allocate; do not capture it in a CUDA graph that is replayed.
 *
 * The library remembers which memory of the process holds folded weights, and which is prepared, also when
 * the plan is freed. CODA_E_INVALID, with the argument's name: to fold a weight in place twice; to run a
 * plan with a weight that was folded in place for plans that fold it otherwise, or do not; to run a plan
 * whose weights were not folded, or with `prepared` memory that was not prepared for its id. */
CODA_API coda_status coda_prepare(const coda_plan *p, void *const *args, void *prepared,
                                  void *workspace, coda_stream stream);

/* Says that memory holds new values, or was freed: what is remembered of any weight folded in place, or
 * prepared memory, with a byte in these `bytes` from `first` on, is forgotten; first NULL: all of it. Call it
 * before coda_prepare when you have stored new values into weights that are folded in place. Not needed
 * where the library sees by itself that the memory is another: the outputs and the workspace of a run, what
 * the CUDA driver has freed and allocated again, and host memory whose values have changed (by samples). */
CODA_API void coda_prepare_forget(const void *first, size_t bytes);

/* Says that `prepared`, and with CODA_FOLD_IN_PLACE the weights in args, hold what coda_prepare of a plan of
 * this id has left elsewhere: copies, perhaps by way of a file, another device or another process. */
CODA_API coda_status coda_prepare_adopt(const coda_plan *p, void *const *args, void *prepared);

/* Runs the plan in the CUDA context it was compiled in, whichever is current: NULL is that one's default
 * stream. Asynchronous, capturable in a CUDA graph, without allocation or lock. args has a pointer for each
 * leaf and output in order (coda_plan_arg): device pointers aligned to 16 bytes; for CODA_DEVICE_CPU, whose
 * work is done when the call returns, host pointers aligned to elements. Those without elements or unread
 * (coda_arg_info) may be NULL, as may memory of 0 bytes. All must stay valid until the stream's work ends.
 *
 * What a call writes shares no byte with anything else: outputs, states, consumed inputs, workspace,
 * `prepared`, and in coda_prepare the weights that it folds in place. CODA_E_INVALID, with both names, if
 * they do: here, in coda_prepare and in coda_evaluate. Strided tensors are compared element by element, so an
 * output may lie between the elements of an input. Leaves may overlap each other. The comparison is exact,
 * but its work is limited: a pair whose strides interleave in more ways than can be tried in some
 * milliseconds is refused, too. */
CODA_API coda_status coda_run(const coda_plan *p, void *const *args, void *prepared, void *workspace,
                              coda_stream stream);

/* ------------------------------------------------------------------------------------------------
 * Inspect
 * ---------------------------------------------------------------------------------------------- */

typedef enum coda_arg_kind {
    CODA_ARG_INPUT = 0, CODA_ARG_WEIGHT = 1, CODA_ARG_OUTPUT = 2, CODA_ARG_SCALAR = 3,
    CODA_ARG_SUM = 4, CODA_ARG_STATE = 5, /* of coda_output_add, of coda_state: read and written */
    CODA_ARG_CONSUMED = 6, /* of coda_consume: an input of which nothing is left */
    CODA_ARG_GROUP = 7 /* of coda_group_input: the coda_group of the rank that runs; dims[0]: the ranks */
} coda_arg_kind;

typedef struct coda_arg_info {
    size_t size;
    const char *name;
    coda_arg_kind kind;
    coda_dtype dtype;
    int rank;
    int64_t dims[CODA_MAX_RANK];
    int64_t strides[CODA_MAX_RANK]; /* elements */
    size_t bytes;                   /* from the first element to the end of the last, at most */
    int unread; /* 1: no run reads it: behind coda_prepare its memory may be freed, and its pointer be NULL */
} coda_arg_info;
#define CODA_ARG_INFO_INIT {sizeof(coda_arg_info), NULL, CODA_ARG_INPUT, (coda_dtype)0, 0, {0}, {0}, 0, 0}

/* Of coda_run, coda_evaluate. CODA_E_INVALID: no such index. Only plans without symbols have unread ones. */
CODA_API int coda_graph_args(const coda_graph *g);
CODA_API coda_status coda_graph_arg(const coda_graph *g, int index, coda_arg_info *out);
CODA_API int coda_plan_args(const coda_plan *p);
CODA_API coda_status coda_plan_arg(const coda_plan *p, int index, coda_arg_info *out);
/* The index of the argument of this name; negative, a coda_status, if there is none. */
CODA_API int coda_plan_find(const coda_plan *p, const char *name);

/*
 * Which memory is which argument, by name. coda_bind fills `args` for coda_run, coda_prepare and
 * coda_run_shaped: coda_plan_args(p) pointers in the plan's order, which stay the caller's. It is called once
 * for memory that stays where it is; runs then cost what they cost without names. The order of creation, the
 * plan's, is an order of calls: where leaves are made inside the arguments of one call, as in
 * coda_matmul(g, coda_input(...), coda_weight(...)), C leaves it open, and compilers differ.
 *
 *     void *args[3];
 *     coda_binding list[] = {{"x", x, sizeof x}, {"w", w, sizeof w}, {"y", y, sizeof y}};
 *     if (coda_bind(args, p, list, 3, NULL) == CODA_OK) coda_run(p, args, NULL, workspace, stream);
 *
 * Each argument has one binding, in any order. CODA_E_INVALID, with the name: one that the plan does not
 * have, that comes twice, that is missing, or whose memory has fewer bytes than the tensor; bytes 0 are not
 * checked, nor is `data`, which coda_run looks at. On failure all of args that was not bound is NULL. For a
 * plan with symbols `dims` has a value for each, whose sizes count; NULL: those of the largest values.
 * Threads may bind one plan at a time, each its own args.
 */
typedef struct coda_binding {
    const char *name;
    void *data;   /* device memory, or host memory for CODA_DEVICE_CPU */
    size_t bytes; /* that lie there; 0: not checked */
} coda_binding;
CODA_API coda_status coda_bind(void **args, const coda_plan *p, const coda_binding *bindings, int count,
                               const int64_t *dims);

typedef struct coda_kernel_info {
    size_t size;
    const char *name;   /* the symbol a profiler shows, e.g. coda_gemm_mul_rope */
    const char *source; /* its CUDA text */
    int cached;         /* 1: found in the cache; 0: compiled now */
    double compile_ms;  /* wall time of NVRTC; 0 if cached */
    int registers;      /* a thread; -1 if unknown */
    int spill_bytes;    /* stores + loads, a thread; 0 in a good kernel; -1 if unknown */
    int shared_bytes;   /* dynamic, a block */
} coda_kernel_info;
#define CODA_KERNEL_INFO_INIT {sizeof(coda_kernel_info), NULL, NULL, 0, 0, 0, 0, 0}

/* Kernels of a plan in launch order, each distinct one once. */
CODA_API int coda_plan_kernels(const coda_plan *p);
CODA_API coda_status coda_plan_kernel(const coda_plan *p, int index, coda_kernel_info *out);

typedef struct coda_plan_stats {
    size_t size;
    int launches;            /* of one run */
    int launches_unfused;    /* the same graph, one kernel for each operation */
    int64_t bytes;           /* read and written by one run, each operand once a program; at most
                              * INT64_MAX */
    int64_t bytes_unfused;
    double flops;            /* of the matrix products and attention, 2 for a multiply-add */
} coda_plan_stats;
#define CODA_PLAN_STATS_INIT {sizeof(coda_plan_stats), 0, 0, 0, 0, 0}
CODA_API coda_status coda_plan_stats_get(const coda_plan *p, coda_plan_stats *out);

typedef enum coda_text {
    CODA_TEXT_GRAPH = 0,      /* as given */
    CODA_TEXT_DERIVATION = 1, /* which rewrite fired where, and what it saved */
    CODA_TEXT_REWRITTEN = 2,  /* the graph after all rewrites */
    CODA_TEXT_PLAN = 3,       /* programs, steps, tiles, what tuning measured, buffers */
    CODA_TEXT_DOT = 4,        /* the plan as a Graphviz picture */
    CODA_TEXT_SHAPES = 5,     /* of a graph with symbols: the tiles of each product by its rows, and what each
                               * costs above the cheapest, by price; else "" */
    CODA_TEXT_REASONS = 6,    /* a line for each two programs of which one reads what the other writes, with
                               * why they are not one, the bytes of each run that this costs, and what helps;
                               * and one for each kernel that is not the fast one */
    CODA_TEXT_STAGES = 7      /* the graph as given, behind each rewrite and as planned, each behind a line
                               * "; stage NAME"; then what each makes: "; program 0: 8 bytes, 0 flops: %7" */
} coda_text;
/* Prints as coda_graph_print does. */
CODA_API int64_t coda_plan_print(const coda_plan *p, coda_text what, char *buf, size_t size);

/* One `key: value` line each for library, CPU device, driver, device, NVRTC, cuBLASLt, NCCL and cache
 * directory, and for CODA_DUMP's folder if set: also what is missing or refused, and why. On any machine. */
CODA_API int64_t coda_info_print(char *buf, size_t size);

/* ------------------------------------------------------------------------------------------------
 * Shapes
 *
 * A graph with symbols compiles, too: into its plan for the largest values, and, at the first run of each
 * other shape, that shape's. What is asked of such a plan (workspace, args, texts, statistics) is answered
 * for the largest values, whose workspace is enough for all. coda_run refuses it.
 *
 * The first run of a shape plans it, in a fraction of a millisecond for each block of a model. Shapes share
 * kernels: some fifty serve a block at any number of rows. Those that are not loaded yet may take NVRTC
 * seconds: coda_compile_options.policy says whether a run waits, fails, or has others meanwhile. While the
 * stream is captured a run never waits, but fails with a line that names the shape: name such shapes to
 * coda_warm before. Later runs take one short lock more than coda_run does. A shape that was dropped for
 * others is planned anew when it comes again; its kernels stay loaded. Captured graphs count as runs in
 * flight for coda_plan_free, and the plan's cache must outlive it. All calls may run in several threads; of
 * those that want the same new shape one makes it and the others wait. All tiles are by price: with symbols
 * CODA_AUTOTUNE measures nothing, and what it measured of other graphs is not asked for.
 *
 * Which kernels a shape has in the end depends on the graph and its dims, not on what ran before. With
 * CODA_POLICY_BACKGROUND its results change once, by rounding, when the best ones take over, unless the plan
 * has CODA_BATCH_INVARIANT: a server that compiles while it serves wants both.
 * ---------------------------------------------------------------------------------------------- */

typedef struct coda_run_options {
    size_t size;
    const int64_t *dims; /* a value for each symbol, in the order of coda_symbol */
    int dim_count;       /* the number of symbols: 0 for a plan without */
    int threads;         /* of a run on the CPU device, the caller's included, up to 64; 1: it starts none.
                          * 0: one for each core that the process may use, by its affinity and its control
                          * group's quota, as coda_run does. Results do not depend on it */
    int done_count;      /* 0 (INIT), or the number of arguments, each of which has ... */
    void *const *done;   /* ... a CUevent here, or NULL. It is recorded on the stream behind the launch after
                          * which the run does not write the argument any more, so that another stream may
                          * take it while the run goes on, as reductions of gradients do. In a capture it is a
                          * node. None of a run that fails need be recorded; on the CPU device none is */
} coda_run_options;
#define CODA_RUN_OPTIONS_INIT {sizeof(coda_run_options), NULL, 0, 0, 0, NULL}
/* As coda_run, with tensors of these dims. */
CODA_API coda_status coda_run_shaped(const coda_plan *p, void *const *args, void *prepared,
                                     void *workspace, coda_stream stream, const coda_run_options *opt);

enum { CODA_WARM_ALL = -1 };
typedef struct coda_warm_options {
    size_t size;
    const int64_t *dims; /* `bindings` times a value for each symbol */
    int bindings;        /* or CODA_WARM_ALL */
    int deadline_ms;     /* shapes, or kernels, are begun until then; 0 (INIT): all of them */
    int (*progress)(void *context, int done, int all); /* after each, or some, in this thread, if not NULL;
                                                        * a result other than 0: enough */
    void *context;
    void (*kernel)(void *context, const coda_kernel_info *k); /* with CODA_WARM_ALL: each one that is done,
                                                               * in this thread, if not NULL */
} coda_warm_options;
#define CODA_WARM_OPTIONS_INIT {sizeof(coda_warm_options), NULL, 0, 0, NULL, NULL, NULL}
/* Makes plans of these shapes, in order. May run beside coda_run_shaped. To stop early is no failure.
 * With CODA_WARM_ALL it makes no plan, but compiles each kernel that some shape wants, and loads it on a GPU:
 * no run waits for a compiler from then on, but plans its shape. Each shape is looked at, a fraction of a
 * millisecond for each block of a model, shared by the cores; of more than 16,384 those near tiles' borders.
 * With CODA_POLICY_BACKGROUND or _NEVER, on any device, kernels that serve any shape are among them.
 * The functions may call all of the library, for this plan, too: coda_warm goes on behind them. After their
 * coda_plan_seal it fails, as every call does that wants more kernels (CODA_E_UNSUPPORTED), or is done; their
 * coda_plan_free of this plan ends it, and frees the plan as it returns. */
CODA_API coda_status coda_warm(const coda_plan *p, const coda_warm_options *opt);
/* Waits for what is being compiled, drops what waits to be, and from then on nothing is compiled for this
 * plan, by no call and in no thread. A run whose kernels are not loaded has those that serve any shape, if
 * the policy made some, or fails. A plan without symbols is sealed from the start. */
CODA_API coda_status coda_plan_seal(const coda_plan *p);
/* 1: a run of this shape finds its best plan. 0: it would make it, or have a slower one. Negative: a
 * coda_status. */
CODA_API int coda_plan_ready(const coda_plan *p, const int64_t *dims);

/* The symbols of a plan, as coda_graph_symbols has them; for values of these, in order, what coda_plan_arg
 * and coda_plan_workspace (SIZE_MAX if it fails; it plans the shape) say of the largest. */
CODA_API int coda_plan_symbols(const coda_plan *p);
CODA_API coda_status coda_plan_symbol(const coda_plan *p, int index, coda_symbol_info *out);
CODA_API coda_status coda_plan_arg_for(const coda_plan *p, int index, const int64_t *dims,
                                       coda_arg_info *out);
CODA_API size_t coda_plan_workspace_for(const coda_plan *p, const int64_t *dims);

/* Values of one symbol that are worth a captured graph, or a place among those that are kept: any other one
 * may be rounded up to the next of them for at most `percent`, >= 1, of its run's time. Writes the first
 * `most`, rising, and returns how many there are: the last is the symbol's most, and none is 0. Negative: a
 * coda_status. Time is by the library's price, of the GPU that the plan is for (an H200 where there is none),
 * or of the CPU device. The percentage holds with all other symbols at their least (but 0), and with all at
 * their most. How many keys attention reads of a cache is data, and counts nothing: where they take most of
 * the time, padding costs less than is said. Looks at some hundred shapes, which takes 0.4 s on a slow core
 * for a server's model of 32 layers, whose keys lie in pages, and 20 ms for a block. Compiles nothing. */
CODA_API int coda_plan_buckets(const coda_plan *p, int symbol, int percent, int64_t *out, int most);

typedef struct coda_shape_stats {
    size_t size;
    int64_t runs;    /* by coda_run_shaped */
    int64_t planned; /* shapes, one that was dropped as often as it came again */
    int64_t dropped;
    int64_t kept;    /* now */
    int64_t runs_base; /* with kernels that serve any shape */
    int64_t pending;   /* shapes whose best kernels the background has still to make */
    int64_t improved;  /* shapes that got theirs */
    int64_t failed;    /* shapes that did not: they go on as they are */
    int64_t kernels;   /* loaded for any of the shapes; 0 without a GPU */
} coda_shape_stats;
#define CODA_SHAPE_STATS_INIT {sizeof(coda_shape_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0}
CODA_API coda_status coda_shape_stats_get(const coda_plan *p, coda_shape_stats *out);

#ifdef __cplusplus
}
#endif

#include "coda_cache.h" /* the cache of kernels, and bundles */
#include "coda_grad.h"  /* gradients */
#include "coda_quant.h" /* packed weights */
#include "coda_profile.h" /* how long launches take */
#include "coda_recurrent.h" /* causal convolution, gated delta rule, selective scans */
#include "coda_group.h" /* one graph over several ranks */

#endif
