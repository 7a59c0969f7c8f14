/*
 * damage.c -- real entries of each kind with every bit flipped, every length cut, and what else happens
 * to files: all rejected, none reaches the driver, and each healed by exactly one compile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture.h"

enum { KERNEL = 1, OTHER = 2 };
static char folder[256], tuning_folder[256];

struct file {
    char path[512];
    unsigned char *bytes;
    size_t size;
};

static void take_largest(const char *path, void *ctx)
{
    struct file *f = ctx;
    size_t size;
    unsigned char *bytes = read_whole(path, &size);
    struct entry e;
    if (bytes && entry_check(&e, bytes, size) == ENTRY_INTACT) {
        free(f->bytes);
        snprintf(f->path, sizeof f->path, "%s", path);
        f->bytes = bytes, f->size = size;
    } else free(bytes);
}

/* The one entry of a folder. */
static struct file only_entry(const char *path)
{
    struct file f = {.size = 0};
    walk_files(path, take_largest, &f);
    return f;
}

/* ---- As bytes ---- */

static bool passes(const unsigned char *bytes, size_t size)
{
    struct entry e;
    return entry_check(&e, bytes, size) == ENTRY_INTACT;
}

static void every_bit_and_length(const char *kind, const struct file *f)
{
    long bad = 0;
    unsigned char *copy = malloc(f->size + 64);
    memcpy(copy, f->bytes, f->size);
    for (size_t bit = 0; bit < 8 * f->size; bit++) {
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
        bad += passes(copy, f->size);
        copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    figure(8 * (long)f->size, bad, "%s entry of %zu bytes, every bit flipped, as bytes", kind, f->size);
    bad = 0;
    for (size_t n = 0; n < f->size; n++) bad += passes(copy, n);
    memset(copy + f->size, 0, 64);
    for (size_t n = 1; n <= 64; n++) bad += passes(copy, f->size + n);
    figure((long)f->size + 64, bad, "%s entry, every length cut and 64 longer ones, as bytes", kind);
    free(copy);
}

/* ---- As files, through everything up to the driver ---- */

/* After the file was harmed: one compile, a right kernel, and the next process hits. */
static long heals(const char *what, size_t where)
{
    long bad = 0;
    for (int turn = 0; turn < 2; turn++) {
        int before = atomic_load(&board->compiles), wrong = atomic_load(&board->wrong);
        struct coda_cache *c = open_cache(folder);
        if (use_kernel(c, KERNEL)) bad += complain("%s at %zu: %s", what, where, coda_error());
        cache_close(c);
        int compiles = atomic_load(&board->compiles) - before;
        if (compiles != !turn)
            bad += complain("%s at %zu, turn %d: %d compiles", what, where, turn, compiles);
        if (atomic_load(&board->wrong) != wrong) bad += complain("%s at %zu reached the driver", what, where);
    }
    return bad;
}

static long harm(const struct file *f, const void *bytes, size_t size, const char *what, size_t where)
{
    if (!write_whole(f->path, bytes, size)) return complain("%s cannot be written", f->path);
    return heals(what, where);
}

static void bits_on_disk(const struct file *f)
{
    long cases = 0, bad = 0, step = scaled(101, 1);
    for (size_t bit = 0; bit < 8 * f->size; bit += (size_t)step, cases++) {
        f->bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        bad += harm(f, f->bytes, f->size, "bit", bit);
        f->bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    figure(cases, bad, "every %s bit flipped on disk, rejected and healed by one compile",
           step == 1 ? "single" : "101st");
}

static void lengths_on_disk(const struct file *f)
{
    long cases = 0, bad = 0;
    for (size_t n = 0; n < f->size; n += (size_t)scaled(53, 1), cases++)
        bad += harm(f, f->bytes, n, "length", n);
    for (size_t n = 1; n <= 64; n += (size_t)scaled(9, 1), cases++) {
        memset(f->bytes + f->size, 0, n);
        bad += harm(f, f->bytes, f->size + n, "appended", n);
    }
    unsigned char *copy = malloc(f->size);
    for (size_t at = 0; at < f->size; at += 512, cases++) {
        memcpy(copy, f->bytes, f->size);
        memset(copy + at, 0, f->size - at < 512 ? f->size - at : 512);
        bad += harm(f, copy, f->size, "zeroed block", at);
    }
    free(copy);
    figure(cases, bad, "cut, lengthened or with a block of zeros on disk, healed by one compile");
}

/* Another entry's bytes under this name, and names that are no files. */
static void foreign_on_disk(const struct file *f)
{
    long bad = 0;
    struct coda_cache *c = open_cache(tuning_folder); /* as the place of another entry */
    if (use_kernel(c, OTHER)) bad += complain("the other kernel: %s", coda_error());
    cache_close(c);
    struct file other = only_entry(tuning_folder);
    bad += harm(f, other.bytes, other.size, "another kernel's entry", 0);
    free(other.bytes);
    unlink(f->path), bad += mkfifo(f->path, 0600) + heals("a FIFO", 0);
    unlink(f->path), bad += symlink("/dev/zero", f->path) + heals("a link to a device", 0);
    unlink(f->path), bad += symlink(other.path, f->path) + heals("a link to an entry", 0);
    unlink(f->path), bad += symlink(f->path, f->path) + heals("a link to itself", 0);
    unlink(f->path), bad += mkdir(f->path, 0700) + heals("a folder", 0);
    bad += harm(f, "", 0, "an empty file", 0);
    figure(7, bad, "another entry, FIFO, links, a folder, nothing: healed by one compile");
    remove_tree(tuning_folder);
}

static struct file make_kernel_entry(void)
{
    struct coda_cache *c = open_cache(folder);
    if (use_kernel(c, KERNEL)) complain("%s", coda_error());
    cache_close(c);
    return only_entry(folder);
}

static struct file make_tuning_entry(void)
{
    static const char text[] = "tile 128x256x64 stages 4\n";
    struct coda_cache *c = open_cache(tuning_folder);
    struct cache_key k = cache_key(CACHE_TUNING, "tuning\nshape 1\n", "by torture\n");
    cache_put(c, &k, text, sizeof text);
    cache_close(c);
    return only_entry(tuning_folder);
}

/* Texts go by get and put: a harmed one is a miss, and the put after it is read again. */
static void texts_on_disk(const struct file *f)
{
    static const char text[] = "tile 128x256x64 stages 4\n";
    struct cache_key k = cache_key(CACHE_TUNING, "tuning\nshape 1\n", "by torture\n");
    long bad = 0;
    for (size_t bit = 0; bit < 8 * f->size; bit++) {
        void *data = NULL;
        size_t size;
        f->bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (!write_whole(f->path, f->bytes, f->size)) bad += complain("%s cannot be written", f->path);
        f->bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        struct coda_cache *c = open_cache(tuning_folder);
        if (cache_get(c, &k, &data, &size)) bad += complain("text, bit %zu: not rejected", bit), free(data);
        cache_put(c, &k, text, sizeof text);
        if (!cache_get(c, &k, &data, &size)) bad += complain("text, bit %zu: not healed", bit);
        else bad += size != sizeof text || memcmp(data, text, size), free(data);
        cache_close(c);
    }
    figure(8 * (long)f->size, bad, "every bit of a tuning entry flipped on disk, a miss and healed by a put");
}

static void counted_by_cause(const struct file *f)
{
    long bad = 0;
    f->bytes[f->size - 1] ^= 1;
    write_whole(f->path, f->bytes, f->size);
    f->bytes[f->size - 1] ^= 1;
    struct coda_cache *c = open_cache(folder);
    use_kernel(c, KERNEL);
    if (counted(c, COUNT_rejected_digest) != 1 || counted(c, COUNT_healed) < 1 ||
        counted(c, COUNT_compiles) != 1 || counted(c, COUNT_stored) != 1)
        bad += complain("a flipped bit is counted as rejected %d, healed %d, compiled %d, stored %d",
                        (int)counted(c, COUNT_rejected_digest), (int)counted(c, COUNT_healed),
                        (int)counted(c, COUNT_compiles), (int)counted(c, COUNT_stored));
    cache_close(c);
    figure(1, bad, "a rejection is counted by its cause");
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "damage");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    snprintf(tuning_folder, sizeof tuning_folder, "%s", under("tuning"));
    struct file kernel = make_kernel_entry(), tuning = make_tuning_entry();
    if (!kernel.bytes || !tuning.bytes)
        return complain("there is no entry to harm"), figure(0, 1, "entries"), 1;
    every_bit_and_length("kernel", &kernel);
    every_bit_and_length("tuning", &tuning);
    texts_on_disk(&tuning);
    remove_tree(tuning_folder);
    bits_on_disk(&kernel);
    lengths_on_disk(&kernel);
    foreign_on_disk(&kernel);
    counted_by_cause(&kernel);
    free(kernel.bytes);
    free(tuning.bytes);
    return torture_end();
}
