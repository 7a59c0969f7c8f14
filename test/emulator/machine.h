/*
 * machine.h -- the emulated machine inside: threads, warps, warpgroups, blocks and clusters.
 *
 * The blocks of a cluster run together in one OS thread, one fiber at a time; a fiber runs until it waits.
 * Who runs next is drawn at random, and so is when a copy or a product that somebody issued takes effect:
 * at the latest when a thread waits for it. A seed makes a run repeat itself.
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <pthread.h>
#include <setjmp.h>

#include "emulator.h"

enum {
    MAX_THREADS = 1024,
    MAX_BARS = 256,     /* mbarriers of a block */
    SHARED_BASE = 1024, /* the window begins with a KB of the system's */
    SHARED_MOST = 232448,
    RANK_SHIFT = 24, /* of a cluster address: rank + 1 */
    PRODUCTS = 128,  /* in flight, of a warpgroup */
    SUMS = 8,        /* accumulators of a thread that are with products */
    GROUPS = 16,     /* committed groups that are remembered */
    MESSAGE = 400
};

/* ---- Products ---- */

struct sums { /* the accumulators that a chain of products adds to, while they are not the threads' */
    bool live;
    int n, returned;
    float value[64][256];
    float *reg[EMU_GROUP];
    bool back[EMU_GROUP];
    uint64_t last[EMU_GROUP]; /* the thread's last product in the chain */
};

struct product {
    struct emu_product what;
    bool from_registers;
    int threads; /* that issued it */
    struct sums *sums;
    const uint32_t *a_reg[EMU_GROUP];
    uint32_t a_copy[EMU_GROUP][4];
};

struct group {               /* a warpgroup */
    struct product *product; /* a ring; NULL until the first */
    struct sums *sums;
    uint64_t issued, executed, retired; /* retired: somebody has waited for them */
    struct thread *waiting;
};

/* ---- Threads, warps, blocks ---- */

enum wait { RUNNING, ENDED, AT_MBARRIER, AT_BARRIER, AT_CLUSTER, AT_WARP, AT_PRODUCT, AT_REGISTERS };

struct thread {
    struct emu_view view; /* first: see emu_self() */
    uint64_t magic;
    void *sp;
    struct cluster *cluster;
    struct block *block;
    struct warp *warp;
    struct group *group;
    int index, lane;     /* in the block, in the warp */
    uint32_t rank;       /* of several that a policy looks at, the highest runs */
    struct thread *next; /* in the list of those who wait for the same */
    enum wait wait;
    uint32_t wait_at, wait_for; /* for the report: address or number; parity or threads */
    uint32_t fences;            /* of the async proxy */
    int registers;
    bool fenced; /* wgmma.fence since its last wait */
    bool in_cluster_barrier;
    bool waited_for_grid; /* what the kernel ahead has written is there, or not read */
    bool grid_ended;      /* it is there */
    uint64_t cluster_phase;
    uint64_t issued; /* products */
    uint64_t group_end[GROUPS];
    unsigned groups;      /* of products, committed */
    unsigned store_group; /* the open one */
    unsigned open_stores; /* in it */
    unsigned copy_group;  /* of cp.async, the open one */
    unsigned looked;      /* at the block's clock, last */
};

struct warp {
    int what; /* enum exchange, 0: none */
    uint32_t arrived;
    struct thread *lane[EMU_WARP];
    uint32_t address[EMU_WARP], in[EMU_WARP][6], out[EMU_WARP][4];
};

struct mbarrier {
    uint32_t at;
    uint32_t expected, pending, phase;
    int64_t bytes;
    struct thread *maker; /* until it has executed the fence */
    struct thread *waiting;
};

struct named {
    int threads, arrived;
    struct thread *waiting;
};

struct granule {     /* 16 bytes of shared memory: who wrote them by plain stores, before which fence */
    uint16_t thread; /* index + 1 */
    uint16_t fences;
};

struct landing {                   /* of cp.async */
    uint32_t shared, bytes, exist; /* offset in the window */
    unsigned group, number;        /* of those of its thread */
    const void *global;
    struct mbarrier *bar; /* no copy: an arrival, once all copies before it have come */
};
struct landings {
    struct landing *landing;
    int count, room;
    unsigned made;
};

struct block {
    struct cluster *cluster;
    int index, rank;       /* in the grid, in the cluster */
    unsigned char *shared; /* bytes of the window from SHARED_BASE on */
    int threads, alive, warps, groups;
    struct thread **thread;
    struct warp *warp;
    struct group *group;
    struct named named[16];
    struct mbarrier bar[MAX_BARS];
    int bars;
    unsigned look; /* of its threads at the clock, which showed: */
    uint64_t look_ns;
    int free_registers;
    struct thread *wants_registers;
    struct granule *granule;
    struct landings *landings; /* of each thread */
    uint8_t *coming;           /* of each 4 bytes of shared memory: copies on their way */
};

/* ---- Copies ---- */

#define MAP_MAGIC 0xc0da3a90u

struct map {
    uint64_t magic, address, stride[4];
    uint32_t last[5];               /* extents - 1 */
    uint8_t box[5];                 /* - 1 */
    uint8_t rank, element, swizzle; /* of an element's bytes; of the swizzle's */
};
_Static_assert(sizeof(struct map) <= 128, "a tensor map is 128 bytes");

struct copy {
    struct thread *thread;
    struct block *block;
    struct map map; /* of rank 0: `bytes` adjacent ones */
    int at[5];
    uint32_t shared, bytes; /* offset in the window */
    const void *global;
    struct mbarrier *bar; /* of a load */
    unsigned group;       /* of a store */
    unsigned char *taken; /* of a store: what it has read; or what was sent */
    bool adds;            /* a store that adds */
    bool early;           /* a load that did not wait for the kernel ahead */
};
struct copies {
    struct copy *copy;
    int count, room;
};

/* ---- Clusters and launches ---- */

struct policy {
    uint32_t load, store, product, pause; /* chances of 2^16: to take effect now; to let others go on */
    enum {
        STARVE_NONE,
        STARVE_WARPS,
        STARVE_BLOCKS,
        STARVE_LANE /* one of each block; of every other one it is the first warp's, as producers are */
    } starve;       /* these have ranks, and the last ones seldom run */
};

struct ready {
    struct thread *thread;
    uint32_t rank; /* the thread's */
};

struct cluster {
    struct launch *launch;
    int index, blocks;
    struct block *block;
    struct ready *ready;
    int readies, alive;
    void *sp;                           /* of who started the fibers */
    bool fibers;                        /* they run */
    int products, landings;             /* of all blocks, that have not taken effect */
    struct copies loads, stores, reads; /* reads: of stores, that nobody has waited for */
    struct policy policy;
    uint64_t random;
    uint64_t cluster_phase;
    int cluster_arrived;
    struct thread *cluster_waiting;
    bool failed;
    jmp_buf unwind;
    unsigned char *stacks;
    int registers; /* of a thread at first */
};

struct launch {
    const struct emu_kernel *kernel;
    const char *name;
    const void *parameters;
    unsigned grid, threads, shared, number;
    int context;
    unsigned next;              /* cluster that nobody runs yet */
    unsigned host_loads, looks; /* by its threads: of the host's memory; at the clock, at different times */
    uint64_t seed;
    pthread_mutex_t lock;
    char message[MESSAGE];
    bool failed;
};

/* ---- schedule.c ---- */

struct thread *self_thread(void);
void run_cluster(struct cluster *c);
/* Puts the running thread to sleep on a list; whoever wakes the list makes all on it ready. */
void sleep_on(struct thread *t, struct thread **list, enum wait wait, uint32_t at, uint32_t what);
void wake_all(struct thread **list);
void wake(struct thread *t);
void let_others_run(struct thread *t); /* perhaps */
void yield(struct thread *t);
uint32_t draw(struct cluster *c, uint32_t below);
bool chance(struct cluster *c, uint32_t of_65536);
/* Ends the launch. Never returns. */
_Noreturn void fail_thread(const struct thread *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void fail_launch(struct launch *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *switch_stack(void **save, void *to);

/* ---- barrier.c, copies.c, product.c ---- */

struct mbarrier *find_mbarrier(const struct thread *t, uint32_t address);
struct mbarrier *find_mbarrier_of(const struct thread *t, const struct block *b, uint32_t address);
void complete_arrival(struct mbarrier *b);
void complete_bytes(struct mbarrier *b, uint32_t bytes);
void print_mbarrier(const struct block *b, uint32_t address, char *out, size_t size);

/* Some of what is pending takes effect, by chance; or one, if it must. False if there was nothing to do. */
bool advance_copies(struct cluster *c, bool must);
void finish_stores(struct cluster *c);
void check_copies_of_ended(const struct thread *t, bool last_of_block);
bool load_overlaps(const struct block *b, uint32_t from, uint32_t bytes);
bool store_overlaps(const struct block *b, uint32_t from, uint32_t bytes); /* whose reads nobody waited for */

/* async.c. Perhaps one of what threads copy comes. */
bool advance_landings(struct cluster *c, bool must);
bool is_coming(const struct block *b, uint32_t offset, uint32_t bytes);
void check_landings_of_ended(const struct thread *t);

bool advance_products(struct cluster *c, bool must);
void check_products_of_ended(const struct thread *t);
bool product_reads(const struct block *b, uint32_t from, uint32_t bytes);
float element_value(uint16_t bits, bool half); /* an element of f16, or of bf16 */

/* ---- memory.c: the shared window and device memory ---- */

/* Checks an address and gives the offset in the window of this block, or of any of the cluster. */
struct block *block_at(const struct thread *t, uint32_t *address, const char *what); /* takes the rank out */
uint32_t own_offset(const struct thread *t, uint32_t address, uint32_t bytes, uint32_t align,
                    const char *what);
void note_plain_store(struct thread *t, uint32_t offset, uint32_t bytes);
const struct granule *unfenced(const struct block *b, uint32_t offset, uint32_t bytes, uint32_t *where);
bool in_device_memory(const void *p, size_t bytes);
void describe_address(const void *p, char *out, size_t size);
enum { MOST_DEVICES = 64, MOST_CONTEXTS = 2 * MOST_DEVICES }; /* the first ones are those of devices */
void *device_new(size_t bytes, int context);
bool device_delete(void *p);
uint64_t device_allocation(const void *p); /* its number, 0: none */
int context_of(const void *p);             /* that it was allocated in; -1: in none */
/* Writes a handle of 64 bytes by which another process has the same memory; where it lies then, of a context
 * of which number, NULL: not at all. */
bool device_share(const void *p, void *handle);
void *device_adopt(const void *handle, int *context);
/* Lets one context read and write what another one allocates; may it? */
void peers_allow(int context, int other);
bool peers_allowed(int context, int other);
/* From now on loads that do not wait for the kernel ahead bring what the context's memory holds now, if it is
 * not too much to copy; where that is of a byte. */
void device_remember(int context);
const void *device_before(const void *p);
/* False if a byte between the end of an allocation and its guard page was written; says which. */
bool device_margins_good(char *out, size_t size);
size_t device_total(void);
/* `bytes` bytes that end at a page which nobody may touch, and begin after another; filled with 0xff. */
unsigned char *guarded_new(size_t bytes);
void guarded_delete(unsigned char *p, size_t bytes);

/* ---- system.c: words that other devices see late ---- */

/* Those of a launch, or of one of its blocks, are there from now on. */
void finish_words(const struct launch *l, const struct block *b);

/* ---- launch.c ---- */

/* Runs the grid; false with the message of what went wrong. Several may run at once. */
bool run_launch(struct launch *l);

#endif
