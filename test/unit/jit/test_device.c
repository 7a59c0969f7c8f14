/*
 * test_device.c -- without a driver every call says what is missing; and what a launch and a tensor map
 * ask of the driver. Needs no GPU, and makes no use of one.
 */
#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit.h"
#include "library.h"
#include "module.h"

static char err[JIT_ERROR_SIZE], line[1024];

static void expect_text(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part), "\"%s\" lacks \"%s\"", text, part);
    ck_assert_ptr_null(strchr(text, '\n'));
}

/* ---- What is missing; each test is its own process, for libraries are looked for once ---- */

START_TEST(says_that_there_is_no_driver)
{
    setenv("CODA_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    const char *want = "the CUDA driver is missing: /nonexistent/libcuda.so.1: cannot open shared object";
    struct jit_device dev;
    struct jit_kernel *k;
    struct jit_lt *lt;
    struct jit_map map;
    ck_assert_int_eq(jit_device_open(&dev, err), CODA_E_DEVICE);
    expect_text(err, want);
    ck_assert(!jit_driver_info(line, sizeof line));
    expect_text(line, want);
    err[0] = 0;
    ck_assert_int_eq(jit_load(&k, &(struct jit_cubin){0}, "k", 0, &dev, NULL, err), CODA_E_DEVICE);
    ck_assert_ptr_null(k);
    expect_text(err, want);
    err[0] = 0;
    struct jit_lt_shape s = {.in = CODA_BF16, .out = CODA_BF16, .batch = 1, .m = 8, .n = 8, .k = 8};
    ck_assert_int_eq(jit_lt_new(&lt, &s, err), CODA_E_DEVICE);
    ck_assert_ptr_null(lt);
    expect_text(err, want);
    err[0] = 0;
    ck_assert_int_eq(jit_map_rebase(&map, NULL, err), CODA_E_DEVICE);
    expect_text(err, want);
}
END_TEST

START_TEST(says_that_a_driver_is_too_old)
{
    setenv("CODA_LIBCUDA", "libm.so.6", 1);
    struct jit_device dev;
    ck_assert_int_eq(jit_device_open(&dev, err), CODA_E_DEVICE);
    expect_text(err, "the CUDA driver is missing: libm.so.6 is too old: it has no cuInit");
}
END_TEST

START_TEST(says_that_nvrtc_is_missing)
{
    setenv("CODA_CUDA_LIB", "/nonexistent:/nowhere", 1);
    const char *want = "NVRTC is missing: /nonexistent/libnvrtc.so.13: cannot open shared object";
    struct jit_cubin c;
    struct jit_options o = {.arch = "sm_90a", .no_cache = true};
    ck_assert_int_eq(jit_compile(&c, "k", "", &o, err), CODA_E_DEVICE);
    expect_text(err, want);
    ck_assert_ptr_null(c.image);
    ck_assert(!jit_nvrtc_info(line, sizeof line));
    expect_text(line, want);
    ck_assert(!jit_cublaslt_info(line, sizeof line));
    expect_text(line, "cuBLASLt is missing: /nonexistent/libcublasLt.so.13");
}
END_TEST

START_TEST(finds_nvrtc)
{
    ck_assert_msg(jit_nvrtc_info(line, sizeof line), "%s", line);
    int major = 0, minor = -1, path = 0;
    ck_assert_int_eq(sscanf(line, "%d.%d %n", &major, &minor, &path), 2);
    ck_assert(major >= 12 && minor >= 0);
    ck_assert_int_eq(line[path], '/');
    expect_text(line, "libnvrtc");

    char folders[1024]; /* and again where it is, behind a folder where it is not */
    snprintf(folders, sizeof folders, "/nonexistent:%s", line + path);
    *strrchr(folders, '/') = 0;
    setenv("CODA_CUDA_LIB", folders, 1);
    ck_assert_ptr_nonnull(nvrtc_open(err));
}
END_TEST

/* What depends on the current directory is refused by its name, and what is found elsewhere says so. */
START_TEST(refuses_relative_places)
{
    static const char *const drivers[] = {"./libcuda.so.1", "build/libcuda.so.1", "../libcuda.so.1"};
    setenv("CODA_LIBCUDA", drivers[_i % 3], 1);
    ck_assert(!jit_driver_info(line, sizeof line));
    expect_text(line, "$CODA_LIBCUDA has \"");
    expect_text(line, drivers[_i % 3]);
    expect_text(line, "no absolute path");
    setenv("CODA_CUDA_LIB", _i ? "lib:./lib:../x" : "relative/lib64", 1);
    ck_assert(!jit_nvrtc_info(line, sizeof line) && !jit_cublaslt_info(err, sizeof err));
    expect_text(line, _i ? "$CODA_CUDA_LIB has \"lib\"" : "$CODA_CUDA_LIB has \"relative/lib64\"");
    expect_text(err, "no absolute path");
}
END_TEST

/* A library that is nowhere: every place is tried, and the first that was refused is kept. */
START_TEST(says_what_it_refused_on_the_way)
{
    static const char *const names[] = {"CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"};
    static const char *const values[] = {"relative/cuda", ".", "/nonexistent::/nowhere"};
    static const char *const shown[] = {"\"relative/cuda\"", "\".\"", "\"\""};
    struct library l = {.title = "it", .names = {"libcoda-nowhere.so.1", "libcoda-nowhere.so.0"}};
    unsetenv("LD_LIBRARY_PATH"), unsetenv("CUDA_HOME"), unsetenv("CUDA_PATH");
    setenv(names[_i], values[_i], 1);
    ck_assert(!library_open_toolkit(&l));
    expect_text(l.refused, names[_i]);
    expect_text(l.refused, shown[_i]);
    l = (struct library){.path = "/lib/it.so"};
    snprintf(l.refused, sizeof l.refused, "$X has \"x\"");
    library_print(&l, "1.0", line, sizeof line);
    ck_assert_str_eq(line, "1.0 /lib/it.so ($X has \"x\")");
}
END_TEST

/* By the kernel's word, and not by argv[0]. */
START_TEST(knows_its_own_file)
{
    char path[4096], exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    ck_assert(n > 0);
    exe[n] = 0;
    ck_assert(library_file_of((const void *)(uintptr_t)library_file_of, path, sizeof path));
    ck_assert_str_eq(path, exe);
    ck_assert(!library_file_of(&n, path, sizeof path)); /* on the stack */
    ck_assert(!library_file_of((const void *)(uintptr_t)library_file_of, path, 4));
}
END_TEST

/* ---- Tensor maps: refused before a driver is asked ---- */

static struct jit_map_shape good_shape(void)
{
    return (struct jit_map_shape){.dtype = CODA_BF16,
                                  .rank = 2,
                                  .dim = {4096, 100},
                                  .stride = {1, 4096},
                                  .box = {64, 128},
                                  .swizzle = 128};
}

static void expect_bad_map(struct jit_map_shape s, uintptr_t address, const char *part)
{
    struct jit_map map;
    ck_assert_int_eq(jit_map_encode(&map, &s, (void *)address, err), CODA_E_INVALID);
    expect_text(err, part);
}

START_TEST(refuses_maps_with_their_numbers)
{
    struct jit_map_shape s = good_shape();
    expect_bad_map(s, 8, "is not a multiple of 16");
    s.stride[1] = 4097;
    expect_bad_map(s, 0, "stride 1 is 8194 bytes");
    s = good_shape(), s.stride[0] = 2;
    expect_bad_map(s, 0, "innermost stride is 2");
    s = good_shape(), s.dim[1] = 0;
    expect_bad_map(s, 0, "dimension 1 is 0");
    s = good_shape(), s.dim[0] = (int64_t)1 << 33;
    expect_bad_map(s, 0, "dimension 0 is 8589934592");
    s = good_shape(), s.box[1] = 257;
    expect_bad_map(s, 0, "box 1 is 257");
    s = good_shape(), s.box[0] = 72;
    expect_bad_map(s, 0, "box rows of 144 bytes do not fit a swizzle of 128");
    s = good_shape(), s.box[0] = 4;
    expect_bad_map(s, 0, "box rows of 8 bytes");
    s = good_shape(), s.swizzle = 16;
    expect_bad_map(s, 0, "swizzle of 16 bytes");
    s = good_shape(), s.l2_promotion = 512;
    expect_bad_map(s, 0, "L2 promotion to 512 bytes");
    s = good_shape(), s.rank = 6;
    expect_bad_map(s, 0, "rank 6");
    s = good_shape(), s.rank = 0;
    expect_bad_map(s, 0, "rank 0");
    s = good_shape(), s.dtype = 0;
    expect_bad_map(s, 0, "dtype 0");
    s = good_shape(), s.stride[1] = -4096;
    expect_bad_map(s, 0, "stride 1 is -4096 elements");
    s = (struct jit_map_shape){.dtype = CODA_F32, /* extents whose product is no int64 */
                               .rank = 4,
                               .dim = {(int64_t)1 << 32, (int64_t)1 << 32, 1, 1},
                               .stride = {1, (int64_t)1 << 37, 4, 4},
                               .box = {4, 1, 1, 1}};
    expect_bad_map(s, 0, "stride 2 is 9223372036854775807 bytes");
}
END_TEST

/* The stride of a dimension of extent 1 is never used, so any is taken: only the driver is missing. */
START_TEST(takes_any_stride_of_extent_one)
{
    setenv("CODA_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    struct jit_map_shape s = good_shape();
    struct jit_map map;
    s.rank = 3, s.dim[2] = 1, s.stride[2] = 7, s.box[2] = 1;
    ck_assert_int_eq(jit_map_encode(&map, &s, NULL, err), CODA_E_DEVICE);
    s.dim[1] = 1, s.stride[1] = 3;
    ck_assert_int_eq(jit_map_encode(&map, &s, NULL, err), CODA_E_DEVICE);
}
END_TEST

/* ---- Launches, against a table of our own ---- */

static struct {
    int launches, bound;
    CUcontext current; /* the thread's */
    CUresult result;
    CUlaunchConfig config;
    CUlaunchAttribute attribute;
    CUfunction function;
    void *parameter;
} fake;

static CUresult fake_launch(const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
    fake.launches++;
    fake.config = *c;
    if (c->numAttrs) fake.attribute = c->attrs[0];
    fake.function = f;
    fake.parameter = params[0];
    ck_assert_ptr_null(extra);
    return fake.result;
}

static CUresult fake_current(CUcontext *out) { return *out = fake.current, CUDA_SUCCESS; }
static CUresult fake_bind(CUcontext c) { return fake.bound++, fake.current = c, CUDA_SUCCESS; }
static CUresult fake_name(CUresult r, const char **out) { return (void)r, *out = "NAME", CUDA_SUCCESS; }

static int here; /* its address stands for what only the driver looks into */

static const struct driver fake_driver = {.cuLaunchKernelEx = fake_launch,
                                          .cuCtxGetCurrent = fake_current,
                                          .cuCtxSetCurrent = fake_bind,
                                          .cuGetErrorName = fake_name,
                                          .cuGetErrorString = fake_name};

static struct jit_kernel fake_kernel(void)
{
    memset(&fake, 0, sizeof fake);
    return (struct jit_kernel){.driver = &fake_driver,
                               .function = (CUfunction)&here,
                               .context = (CUcontext)&here,
                               .parameters = 192,
                               .symbol = "coda_rows"};
}

START_TEST(launches_what_it_is_told)
{
    char params[192];
    struct jit_kernel k = fake_kernel();
    struct jit_launch l = {.grid = 7, .threads = 384, .shared_bytes = 200000, .pdl = true};
    ck_assert_int_eq(jit_launch(&k, &l, params, sizeof params, (coda_stream)&here, err), CODA_OK);
    ck_assert_int_eq(fake.launches, 1);
    ck_assert_ptr_eq(fake.parameter, params);
    ck_assert_ptr_eq(fake.function, &here);
    ck_assert_ptr_eq(fake.config.hStream, &here);
    ck_assert_uint_eq(fake.config.gridDimX, 7);
    ck_assert_uint_eq(fake.config.gridDimY * fake.config.gridDimZ, 1);
    ck_assert_uint_eq(fake.config.blockDimX, 384);
    ck_assert_uint_eq(fake.config.blockDimY * fake.config.blockDimZ, 1);
    ck_assert_uint_eq(fake.config.sharedMemBytes, 200000);
    ck_assert_uint_eq(fake.config.numAttrs, 1);
    ck_assert_int_eq(fake.attribute.id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    ck_assert_int_eq(fake.attribute.value.programmaticStreamSerializationAllowed, 1);
    l.pdl = false;
    ck_assert_int_eq(jit_launch(&k, &l, params, sizeof params, NULL, err), CODA_OK);
    ck_assert_uint_eq(fake.config.numAttrs, 0);
    l.grid = 0;
    ck_assert_int_eq(jit_launch(&k, &l, params, sizeof params, NULL, err), CODA_OK);
    ck_assert_int_eq(fake.launches, 2);
    ck_assert_int_eq(fake.bound, 0);
}
END_TEST

/* Whoever calls it has the context for it: that of the thread stays what it is. */
START_TEST(fails_in_a_thread_without_a_context)
{
    char params[192];
    struct jit_kernel k = fake_kernel();
    struct jit_launch l = {.grid = 1, .threads = 32};
    fake.result = CUDA_ERROR_INVALID_CONTEXT;
    ck_assert_int_eq(jit_launch(&k, &l, params, sizeof params, NULL, err), CODA_E_DEVICE);
    ck_assert_int_eq(fake.launches, 1);
    ck_assert_int_eq(fake.bound, 0);
    expect_text(err, "coda_rows: NAME");
}
END_TEST

START_TEST(refuses_parameters_of_another_size)
{
    char params[200];
    struct jit_kernel k = fake_kernel();
    struct jit_launch l = {.grid = 1, .threads = 32};
    ck_assert_int_eq(jit_launch(&k, &l, params, 200, NULL, err), CODA_E_INVALID);
    ck_assert_str_eq(err, "coda_rows: takes 192 bytes of parameters, not 200");
    ck_assert_int_eq(jit_launch(&k, &l, params, 64, NULL, err), CODA_E_INVALID);
    ck_assert_int_eq(fake.launches, 0);
    ck_assert_int_eq(jit_launch(&k, &l, params, 65, NULL, err), CODA_OK); /* 127 bytes of padding */
}
END_TEST

/* ---- cuBLASLt: refused before a driver is asked ---- */

START_TEST(refuses_products_with_their_numbers)
{
    struct jit_lt *lt;
    struct jit_lt_shape s = {.in = CODA_I32, .out = CODA_I32, .batch = 1, .m = 8, .n = 8, .k = 8};
    ck_assert_int_eq(jit_lt_new(&lt, &s, err), CODA_E_UNSUPPORTED);
    s.in = CODA_F32, s.out = CODA_BF16;
    ck_assert_int_eq(jit_lt_new(&lt, &s, err), CODA_E_UNSUPPORTED);
    expect_text(err, "dtypes 1 -> 2");
    s.out = CODA_F32, s.k = 0;
    ck_assert_int_eq(jit_lt_new(&lt, &s, err), CODA_E_UNSUPPORTED);
    expect_text(err, "[1,8,8,0]");
    ck_assert_ptr_null(lt);
    jit_lt_free(NULL);
    jit_unload(NULL);
}
END_TEST

TESTS(device, ONE(says_that_there_is_no_driver), ONE(says_that_a_driver_is_too_old),
      ONE(says_that_nvrtc_is_missing), ONE(finds_nvrtc), EACH(refuses_relative_places, 3),
      EACH(says_what_it_refused_on_the_way, 3), ONE(knows_its_own_file), ONE(refuses_maps_with_their_numbers),
      ONE(takes_any_stride_of_extent_one), ONE(launches_what_it_is_told),
      ONE(fails_in_a_thread_without_a_context), ONE(refuses_parameters_of_another_size),
      ONE(refuses_products_with_their_numbers));
