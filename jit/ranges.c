/*
 * ranges.c -- ranges for profilers, by NVTX's injection protocol (NVTX 3, "NVTX_INJECTION64_PATH").
 *
 * A tool names a library in the environment. A client of NVTX opens it and calls InitializeInjectionNvtx2
 * with a function that gives tables: of slots, in which the tool leaves its own functions. Nothing is
 * linked, and without a tool nothing happens. What the protocol needs is declared here, under own names.
 */
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

typedef void (*slot)(void);

/* Modules and their functions, by the numbers that NVTX gives them. */
enum { CALLBACKS = 1, VERSION_INFO = 3 };
enum { CORE2 = 5, MODULES = 7, MOST_SLOTS = 17, NVTX_3 = 3 };
enum { DOMAIN_RANGE_PUSH = 4, DOMAIN_RANGE_POP = 5, DOMAIN_CREATE = 12 };
static const unsigned slots[MODULES] = {0, 16, 9, 15, 7, 16, 7};

struct attributes { /* of an event */
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
};
enum { MESSAGE_ASCII = 1 };
_Static_assert(sizeof(struct attributes) == 48, "the attributes of an event have 48 bytes in NVTX 3");

struct callbacks {
    size_t size;
    int (*module)(int module, slot ***table, unsigned *count);
};
struct version_info {
    size_t size;
    uint32_t version, reserved;
    void (*set_tool)(uint32_t version);
};

typedef int initialize_injection(const void *(*table)(uint32_t id));
typedef void *domain_create(const char *name);
typedef int domain_range_push(void *domain, const struct attributes *a);
typedef int domain_range_pop(void *domain);

/* ---- What the tool is given ---- */

static slot installed[MODULES][MOST_SLOTS];
static slot *table[MODULES][MOST_SLOTS];

static int give_module(int module, slot ***out, unsigned *count)
{
    if (module < 1 || module >= MODULES) return 0;
    for (unsigned i = 1; i < slots[module]; i++) table[module][i] = &installed[module][i];
    *out = table[module];
    if (count) *count = slots[module];
    return 1;
}

static void ignore_version(uint32_t version) { (void)version; }

static const void *give_table(uint32_t id)
{
    static const struct callbacks callbacks = {sizeof callbacks, give_module};
    static const struct version_info info = {sizeof info, NVTX_3, 0, ignore_version};
    return id == CALLBACKS ? (const void *)&callbacks : id == VERSION_INFO ? &info : NULL;
}

/* ---- The tool ---- */

static atomic_bool listening;
static void *domain;

#define INSTALLED(type, number) ((type *)(void *)installed[CORE2][number])

/* Stays open: who has begun to listen may have threads. */
static void open_tool(void)
{
    const char *path = jit_environment("NVTX_INJECTION64_PATH");
    void *library = path ? library_open_tool(path) : NULL;
    initialize_injection *begin;
    if (!library) return;
    *(void **)&begin = dlsym(library, "InitializeInjectionNvtx2");
    if (!begin || !begin(give_table)) {
        dlclose(library);
        return;
    }
    if (!INSTALLED(domain_range_push, DOMAIN_RANGE_PUSH) || !INSTALLED(domain_range_pop, DOMAIN_RANGE_POP))
        return;
    if (INSTALLED(domain_create, DOMAIN_CREATE)) domain = INSTALLED(domain_create, DOMAIN_CREATE)("coda");
    atomic_store_explicit(&listening, true, memory_order_release);
}

bool jit_ranges(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_tool);
    return atomic_load_explicit(&listening, memory_order_acquire);
}

void jit_range_push(const char *name)
{
    const struct attributes a = {
        .version = NVTX_3, .size = sizeof a, .message_type = MESSAGE_ASCII, .message = name};
    INSTALLED(domain_range_push, DOMAIN_RANGE_PUSH)(domain, &a);
}

void jit_range_pop(void) { INSTALLED(domain_range_pop, DOMAIN_RANGE_POP)(domain); }
