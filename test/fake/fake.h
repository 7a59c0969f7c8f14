/*
 * fake.h -- a compiler and a driver that are not there: what nvrtc.c and cuda.c share with a test.
 *
 * Both are shared objects that libcoda opens in the place of NVIDIA's (CODA_CUDA_LIB, CODA_LIBCUDA), so
 * that everything from coda_compile to coda_run runs on any machine. The compiler makes of each source
 * one image that holds all that it was given; the driver makes the image again from what it says of
 * itself, and compares each byte. A board, one struct in a file that $FAKE_BOARD names, is mapped by
 * everybody: the test writes on it how the fakes shall behave, and reads from it what they did.
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fake_mode {
    FAKE_GOOD,
    FAKE_FAIL,   /* an error of the source */
    FAKE_MEMORY, /* the compiler is out of memory */
    FAKE_CRASH,  /* SIGSEGV */
    FAKE_ABORT,
    FAKE_HANG /* for ever */
};
/* A source that holds one of these words behaves so whatever the board says. */
#define FAKE_FAIL_WORD "FAKE_FAIL"
#define FAKE_CRASH_WORD "FAKE_CRASH"
#define FAKE_ABORT_WORD "FAKE_ABORT"
#define FAKE_HANG_WORD "FAKE_HANG"

enum { FAKE_DEVICES = 2, FAKE_TEXTS = 4096 };

struct fake_board {
    /* Asked for; all zero: one device of sm_90a, compiles that take no time. */
    atomic_int mode; /* enum fake_mode */
    atomic_int compile_us;
    atomic_int image_bytes;        /* at least */
    atomic_int version;            /* of the compiler, 1000 * major + 10 * minor; 0: 13000 */
    atomic_int devices;            /* 0: 1 */
    atomic_int arch[FAKE_DEVICES]; /* 90, 80, ...; 0: 90 */
    atomic_int refuse;             /* images that the driver will refuse; -1: all */
    atomic_int failing_launch;     /* so many launches from now; 0: none */
    atomic_int failing_compile;    /* the same of compiles */
    atomic_int hold;               /* not 0: compiles that have started wait */
    atomic_int gather;             /* compiles that have started wait until so many have run at once */
    atomic_int hold_launch;        /* 1: the next launch makes it 2, and waits until it is 0 */
    /* Done. */
    atomic_int compiles, running, most_running; /* started; now; the most at any time */
    atomic_int failures;                        /* of compiles */
    atomic_int aside;                           /* compiles in threads that take no signals */
    atomic_int loads, unloads, refused;
    atomic_int wrong;                  /* images that were not what a compile gives: must stay 0 */
    atomic_int launches, bad_launches; /* the latter: of kernels that are not loaded */
    struct {
        atomic_ullong digest; /* 0: free */
        atomic_int compiles;
    } text[FAKE_TEXTS]; /* one for each distinct source, arch and option */
};

/* The board of this process, private if $FAKE_BOARD names none. */
struct fake_board *fake_board(void);
/* A compile that has started takes so many microseconds, and as long as the board holds it. */
void fake_compile_waits(struct fake_board *b, int us);

/* ---- image.c ---- */

struct fake_image {
    char magic[8];
    char arch[16];
    uint32_t version;
    uint32_t text, options; /* bytes, each with its NUL, that follow this struct */
    uint32_t total;         /* bytes of the whole image */
    uint64_t headers;       /* digest */
};
uint64_t fake_digest(uint64_t seed, const void *data, size_t size);
/* Fills `size` bytes after the struct that `out` begins with. */
void fake_image_fill(void *out, const char *text, const char *options);
/* Is it, byte for byte, what the compiler makes of the source in it? */
bool fake_image_good(const void *image);
const char *fake_image_text(const struct fake_image *i);

/* The pointers of its parameter, where they lie, and whether the kernel writes there; how large all of it
 * is. */
enum { FAKE_FIELDS = 32 };
struct fake_fields {
    struct fake_field {
        int offset;
        bool written;
    } field[FAKE_FIELDS];
    int n;
    size_t parameters;
};
struct fake_fields fake_image_fields(const struct fake_image *i);

#endif
