/*
 * bundle.c -- many entries as one read-only block of bytes: a file beside a model, or an array in a program.
 *
 *     bundle   ::= magic digest^4 count text total index manifest blocks
 *     magic    ::= "coda\n\x1a" "B" "1"      8 bytes, the last one is the format's version
 *     digest   ::= of everything after it
 *     index    ::= ( name^4 offset size )^count      names ascend, no two are alike
 *     name     ::= the digest of an entry's WHAT
 *     manifest ::= `text` bytes, the last of them NUL
 *     blocks   ::= entries in the order of the index, each from the next multiple of 16 on, zeros between
 *
 * Everything but magic and text is u64, little-endian; offsets count from the first byte. There is one way
 * to write a bundle: each offset must be the one that follows from the sizes before it, and the last block
 * ends the bundle. So nothing overlaps, nothing is hidden between, and a check is additions and a digest,
 * done once when it is opened. An entry is checked again, by entry.c, when it is used.
 *
 * An entry is found by WHAT alone, whoever made it, so that a bundle serves a machine that has no NVRTC or
 * another one. The digest guards against rot, not attackers: a file that somebody else owns or may write
 * is refused, by the rule for all files (dir.c). It is read, never mapped: a file cut short while it is in
 * use would otherwise end the process. Before memory is taken for it, its header, its index and, if it is
 * large, the header of each entry must promise the bytes that it has: holes are refused at once.
 */
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "coda\n\x1a"
                             "B"
                             "1";
enum { AT_DIGEST = 8, AT_COUNT = 40, AT_TEXT = 48, AT_TOTAL = 56, HEADER = 64 };
enum { ROW_OFFSET = 32, ROW_SIZE = 40, ROW = 48, ALIGN = 16, COUNT_MAX = 1 << 20 };
#define BUNDLE_MAX ((uint64_t)1 << 32) /* bytes */

struct bundle {
    const unsigned char *data;
    void *owned; /* the same, if it came from a file */
    int count;
};

/* What follows the bundle's name in why; and false, with errno EIO. */
static bool refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, CACHE_ERROR, format, args);
    va_end(args);
    errno = EIO;
    return false;
}

static void *no_memory(char *why, uint64_t bytes)
{
    refuse(why, "is too much for memory: %llu bytes", (unsigned long long)bytes);
    errno = ENOMEM;
    return NULL;
}

static int compare(const struct digest *a, const struct digest *b)
{
    for (int i = 0; i < 4; i++)
        if (a->word[i] != b->word[i]) return a->word[i] < b->word[i] ? -1 : 1;
    return 0;
}

static uint64_t align(uint64_t x) { return (x + ALIGN - 1) / ALIGN * ALIGN; }

static const unsigned char *row(const unsigned char *p, uint64_t i) { return p + HEADER + i * ROW; }

/* ---- Open ---- */

static bool ascends(const unsigned char *p, uint64_t i)
{
    struct digest a = bytes_get_digest(row(p, i - 1)), b = bytes_get_digest(row(p, i));
    return compare(&a, &b) < 0;
}

static bool zeros(const unsigned char *p, uint64_t from, uint64_t to)
{
    while (from < to && !p[from]) from++;
    return from >= to;
}

/* Where the text ends, by the first HEADER bytes; 0 if they cannot be those of a bundle of this size. No
 * sum comes near 2^64: count and text are bounded before they are used. */
static uint64_t check_header(const unsigned char *p, uint64_t size, char *why)
{
    if (size < HEADER || memcmp(p, magic, 7)) return refuse(why, "is no bundle");
    if (p[7] != (unsigned char)magic[7])
        return refuse(why, "is a bundle of format %d, not %d", p[7], magic[7]);
    uint64_t count = bytes_get(p + AT_COUNT, 8), text = bytes_get(p + AT_TEXT, 8);
    if (bytes_get(p + AT_TOTAL, 8) != size)
        return refuse(why, "has %llu bytes instead of %llu", (unsigned long long)size,
                      (unsigned long long)bytes_get(p + AT_TOTAL, 8));
    if (count > COUNT_MAX) return refuse(why, "has %llu entries", (unsigned long long)count);
    uint64_t end = HEADER + count * ROW;
    if (end > size || !text || text > size - end) return refuse(why, "ends inside its index");
    return end + text;
}

/* `p` need not go on behind the index. */
static bool check_index(const unsigned char *p, uint64_t size, uint64_t end, char *why)
{
    uint64_t count = bytes_get(p + AT_COUNT, 8);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t offset = bytes_get(row(p, i) + ROW_OFFSET, 8), bytes = bytes_get(row(p, i) + ROW_SIZE, 8);
        if (i && !ascends(p, i)) return refuse(why, "has entry %d out of order", (int)i);
        if (offset != align(end) || offset > size || bytes > size - offset)
            return refuse(why, "has entry %d out of place", (int)i);
        end = offset + bytes;
    }
    return end == size || refuse(why, "goes on behind its last entry");
}

/* What is between the parts of an index that is right. */
static bool check_gaps(const unsigned char *p, uint64_t end, char *why)
{
    uint64_t count = bytes_get(p + AT_COUNT, 8), text = bytes_get(p + AT_TEXT, 8);
    const unsigned char *manifest = p + end - text;
    if (memchr(manifest, 0, text) != manifest + text - 1) return refuse(why, "has a manifest without an end");
    for (uint64_t i = 0; i < count; i++) {
        uint64_t offset = bytes_get(row(p, i) + ROW_OFFSET, 8);
        if (!zeros(p, end, offset)) return refuse(why, "has entry %d out of place", (int)i);
        end = offset + bytes_get(row(p, i) + ROW_SIZE, 8);
    }
    return true;
}

static bool check(const unsigned char *p, uint64_t size, char *why)
{
    uint64_t end = check_header(p, size, why);
    if (!end) return false;
    struct digest want = bytes_get_digest(p + AT_DIGEST), is = digest_of(p + AT_COUNT, size - AT_COUNT);
    if (!digest_equal(&want, &is)) return refuse(why, "is damaged: its digest differs");
    return check_index(p, size, end, why) && check_gaps(p, end, why);
}

static struct bundle *open_bytes(const void *data, size_t size, char *why)
{
    if (!data) return refuse(why, "is NULL"), NULL;
    if (!check(data, size, why)) return NULL;
    struct bundle *b = malloc(sizeof *b);
    if (!b) return no_memory(why, size);
    *b = (struct bundle){.data = data, .count = (int)bytes_get((const unsigned char *)data + AT_COUNT, 8)};
    return b;
}

static bool cannot_read(char *why) { return refuse(why, "cannot be read: %s", error_text(errno)); }

/* Do the entries' own headers promise what the index says of them? */
static bool check_entries(int fd, const unsigned char *index, uint64_t count, char *why)
{
    unsigned char header[ENTRY_HEADER];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t offset = bytes_get(row(index, i) + ROW_OFFSET, 8),
                 size = bytes_get(row(index, i) + ROW_SIZE, 8);
        bool whole = size >= sizeof header;
        if (whole && !fd_read_at(fd, header, sizeof header, (off_t)offset)) return cannot_read(why);
        enum entry_fault f = whole ? entry_promise(header, size) : ENTRY_SHORT;
        if (f) return refuse(why, "has an entry %d that is rejected: %s", (int)i, entry_fault_name(f));
    }
    return true;
}

/* Is the file worth its memory? Only a large one is asked for the headers of its entries, too. */
static bool is_promising(int fd, uint64_t size, char *why)
{
    enum { LARGE = 1 << 26 };
    unsigned char header[HEADER], *index;
    if (size >= HEADER && !fd_read_at(fd, header, HEADER, 0)) return cannot_read(why);
    uint64_t end = check_header(header, size, why);
    if (!end) return false;
    uint64_t count = bytes_get(header + AT_COUNT, 8), bytes = HEADER + count * ROW;
    if (!(index = malloc(bytes))) return no_memory(why, bytes);
    bool good = (fd_read_at(fd, index, bytes, 0) || cannot_read(why)) && check_index(index, size, end, why) &&
                (size <= LARGE || check_entries(fd, index, count, why));
    free(index);
    return good;
}

static struct bundle *read_bundle(int fd, unsigned flags, char *why)
{
    struct stat st;
    if (fstat(fd, &st)) return refuse(why, "cannot be examined: %s", error_text(errno)), NULL;
    if (!S_ISREG(st.st_mode)) return refuse(why, "is no plain file"), NULL;
    const char *distrust = trust_problem(&st, flags | CACHE_READ_ONLY);
    if (distrust) return refuse(why, "%s", distrust), NULL;
    if ((uint64_t)st.st_size > BUNDLE_MAX)
        return refuse(why, "has %lld bytes, too many for a bundle", (long long)st.st_size), NULL;
    if (!is_promising(fd, (uint64_t)st.st_size, why)) return NULL;
    unsigned char *data = malloc((size_t)st.st_size + 1);
    if (!data) return no_memory(why, (uint64_t)st.st_size);
    size_t size = (size_t)st.st_size;
    struct bundle *b = NULL;
    if (fd_read(fd, data, size)) b = open_bytes(data, size, why);
    else cannot_read(why);
    if (b) b->owned = data;
    else free(data);
    return b;
}

/* Puts the bundle's name before a reason. */
static void name_bundle(char *why, const char *name)
{
    char reason[CACHE_ERROR];
    int saved = errno;
    snprintf(reason, sizeof reason, "%s", why);
    snprintf(why, CACHE_ERROR, "%.300s %.200s", name, reason);
    errno = saved;
}

struct bundle *bundle_open(const char *path, unsigned flags, char *why)
{
    int fd = fd_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0);
    struct bundle *b = NULL;
    if (fd < 0) refuse(why, "cannot be opened: %s", error_text(errno));
    else {
        b = read_bundle(fd, flags, why);
        int saved = errno;
        close(fd);
        errno = saved;
    }
    if (!b) name_bundle(why, path);
    return b;
}

struct bundle *bundle_of(const void *data, size_t size, char *why)
{
    struct bundle *b = open_bytes(data, size, why);
    if (!b) name_bundle(why, "the bundle in memory");
    return b;
}

void bundle_close(struct bundle *b)
{
    if (!b) return;
    free(b->owned);
    free(b);
}

/* ---- Look ---- */

int bundle_count(const struct bundle *b) { return b->count; }

const char *bundle_manifest(const struct bundle *b) { return (const char *)row(b->data, (uint64_t)b->count); }

const void *bundle_block(const struct bundle *b, int i, size_t *size)
{
    const unsigned char *r = row(b->data, (uint64_t)i);
    *size = (size_t)bytes_get(r + ROW_SIZE, 8);
    return b->data + bytes_get(r + ROW_OFFSET, 8);
}

bool bundle_find(const struct bundle *b, const struct cache_key *k, struct entry *out, bool *other)
{
    int low = 0, high = b->count;
    if (other) *other = false;
    while (low < high) {
        int mid = low + (high - low) / 2;
        struct digest d = bytes_get_digest(row(b->data, (uint64_t)mid));
        if (compare(&d, &k->what_digest) < 0) low = mid + 1;
        else high = mid;
    }
    if (low == b->count) return false;
    struct digest d = bytes_get_digest(row(b->data, (uint64_t)low));
    if (!digest_equal(&d, &k->what_digest)) return false;
    struct cache_key what = *k;
    what.by = NULL;
    size_t size;
    const void *block = bundle_block(b, low, &size);
    if (entry_check(out, block, size)) return false;
    bool same = !entry_match(out, &what);
    if (other) *other = !same;
    return same;
}

/* ---- Make ---- */

struct part {
    struct digest name;
    struct entry entry;
    const void *data;
    size_t size;
    int order;
};

static int compare_bytes(const void *a, size_t a_size, const void *b, size_t b_size)
{
    if (a_size != b_size) return a_size < b_size ? -1 : 1;
    return a_size ? memcmp(a, b, a_size) : 0;
}

/* What has one name by chance or by craft is in an order of its own, not in that of its coming. */
static int by_name(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int c = compare(&x->name, &y->name);
    if (!c) c = compare_bytes(x->entry.key, x->entry.what_size, y->entry.key, y->entry.what_size);
    if (!c) c = compare_bytes(x->entry.note, x->entry.note_size, y->entry.note, y->entry.note_size);
    return c ? c : x->order - y->order;
}

/* Sorts, drops all but the first of each name, and leaves the count; false if one is no intact entry. */
static bool arrange(struct part *part, const struct bundle_block *block, int *count, char *why)
{
    int kept = 0;
    for (int i = 0; i < *count; i++) {
        struct entry e;
        enum entry_fault f = entry_check(&e, block[i].data, block[i].size);
        if (f) return refuse(why, "has an entry %d that is rejected: %s", i, entry_fault_name(f));
        part[i] = (struct part){name_of(e.key, e.what_size, NULL, 0), e, block[i].data, block[i].size, i};
    }
    qsort(part, (size_t)*count, sizeof *part, by_name);
    for (int i = 0; i < *count; i++)
        if (!kept || compare(&part[kept - 1].name, &part[i].name)) part[kept++] = part[i];
    *count = kept;
    return true;
}

/* Fills zeroed bytes, or measures if p is NULL; the whole size. */
static uint64_t lay_out(unsigned char *p, const struct part *part, int count, const char *manifest)
{
    uint64_t text = strlen(manifest) + 1, end = HEADER + (uint64_t)count * ROW;
    if (p) memcpy(p + end, manifest, text);
    end += text;
    for (int i = 0; i < count; i++) {
        unsigned char *r = p ? p + HEADER + i * ROW : NULL;
        end = align(end);
        if (r) {
            bytes_put_digest(r, &part[i].name);
            bytes_put(r + ROW_OFFSET, end, 8);
            bytes_put(r + ROW_SIZE, part[i].size, 8);
            memcpy(p + end, part[i].data, part[i].size);
        }
        end += part[i].size;
    }
    return end;
}

static void *pack(const struct part *part, int count, const char *manifest, size_t *size, char *why)
{
    uint64_t total = lay_out(NULL, part, count, manifest);
    if (count > COUNT_MAX || total > BUNDLE_MAX)
        return refuse(why, "has %d entries of %llu bytes, too many", count, (unsigned long long)total), NULL;
    unsigned char *p = calloc(1, total);
    if (!p) return no_memory(why, total);
    lay_out(p, part, count, manifest);
    memcpy(p, magic, sizeof magic);
    bytes_put(p + AT_COUNT, (uint64_t)count, 8);
    bytes_put(p + AT_TEXT, strlen(manifest) + 1, 8);
    bytes_put(p + AT_TOTAL, total, 8);
    struct digest d = digest_of(p + AT_COUNT, total - AT_COUNT);
    bytes_put_digest(p + AT_DIGEST, &d);
    *size = total;
    return p;
}

void *bundle_pack(const struct bundle_block *block, int count, const char *manifest, size_t *size, char *why)
{
    struct part *part = calloc((size_t)count + 1, sizeof *part);
    void *data = NULL;
    if (!part) no_memory(why, (uint64_t)count * sizeof *part);
    else if (arrange(part, block, &count, why)) data = pack(part, count, manifest, size, why);
    if (!data) name_bundle(why, "the bundle");
    free(part);
    return data;
}
