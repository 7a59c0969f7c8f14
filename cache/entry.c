/*
 * entry.c -- one entry as bytes: the same in a file, in a store and in a bundle.
 *
 *     entry  ::= magic digest header key note data
 *     magic  ::= "coda\r\n\x1a\n"                                      8 bytes
 *     digest ::= 32 bytes                                               of all that follows it
 *     header ::= format:u32 kind:u32 what:u64 key:u64 note:u64 data:u64 sizes in bytes
 *
 * Numbers are little-endian; `what` is how much of the key is WHAT. One file an entry: with the source
 * in a file of its own, a kill between the two would show one without the other.
 *
 * A check uses no size before it was compared with what is there, and nothing but the format's number
 * before the digest was right. Only whether a large file is worth reading is asked of its header alone.
 */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

static const char magic[8] = "coda\r\n\x1a\n";
enum { AT_DIGEST = 8, AT_HEADER = 40, AT_SIZES = 48 };

/* ORDER entry_fault */
static const char *const fault_name[ENTRY_FAULTS] = {
    "", "short", "foreign", "version", "sizes", "digest", "key", "untrusted",
};

const char *entry_fault_name(enum entry_fault f) { return fault_name[f]; }

const char *cache_kind_name(enum cache_kind kind)
{
    return kind == CACHE_KERNEL ? "kernel" : kind == CACHE_TUNING ? "tuning" : "unknown";
}

/* ---- Keys ---- */

struct cache_key cache_key(enum cache_kind kind, const char *what, const char *by)
{
    struct cache_key k = {.kind = kind, .what = what, .by = by};
    k.what_digest = name_of(what, strlen(what), NULL, 0);
    k.digest = by ? name_of(what, strlen(what), by, strlen(by)) : k.what_digest;
    return k;
}

static bool is_name_of(const char *name, const char *key, size_t size)
{
    char own[DIGEST_HEX];
    struct digest d = name_of(key, size, NULL, 0);
    digest_hex(own, &d);
    return !strcmp(own, name);
}

bool entry_is_named(const struct entry *e, const char *name)
{
    return is_name_of(name, e->key, e->key_size) || is_name_of(name, e->key, e->what_size);
}

bool entry_is_made(const struct entry *e, const char *name)
{
    return e->key_size > e->what_size && is_name_of(name, e->key, e->key_size);
}

/* ---- Entries ---- */

/* Adds up sizes that may be anything; SIZE_MAX if the sum is longer than an entry may be. */
static size_t add_sizes(const uint64_t *size, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        if (size[i] > ENTRY_MAX) return SIZE_MAX;
        sum += size[i];
    }
    return sum > ENTRY_MAX ? SIZE_MAX : (size_t)sum;
}

void *entry_pack(const struct entry *e, size_t *size)
{
    const uint64_t sizes[] = {ENTRY_HEADER, e->key_size, e->note_size, e->data_size};
    size_t total = add_sizes(sizes, 4);
    unsigned char *p = total == SIZE_MAX ? NULL : malloc(total), *at;
    if (!p) return NULL;
    memcpy(p, magic, sizeof magic);
    bytes_put(p + AT_HEADER, ENTRY_FORMAT, 4);
    bytes_put(p + AT_HEADER + 4, (uint64_t)e->kind, 4);
    bytes_put(p + AT_SIZES, e->what_size, 8);
    for (int i = 1; i < 4; i++) bytes_put(p + AT_SIZES + 8 * i, sizes[i], 8);
    at = p + ENTRY_HEADER;
    if (e->key_size) at = (unsigned char *)memcpy(at, e->key, e->key_size) + e->key_size;
    if (e->note_size) at = (unsigned char *)memcpy(at, e->note, e->note_size) + e->note_size;
    if (e->data_size) memcpy(at, e->data, e->data_size);
    struct digest d = digest_of(p + AT_HEADER, total - AT_HEADER);
    bytes_put_digest(p + AT_DIGEST, &d);
    *size = total;
    return p;
}

/* The sizes of a header's parts, its own among them; ENTRY_SIZES if they are not the whole. */
static enum entry_fault read_sizes(uint64_t sizes[4], uint64_t *what, const unsigned char *p, uint64_t size)
{
    sizes[0] = ENTRY_HEADER;
    for (int i = 1; i < 4; i++) sizes[i] = bytes_get(p + AT_SIZES + 8 * i, 8);
    *what = bytes_get(p + AT_SIZES, 8);
    return add_sizes(sizes, 4) != size || *what > sizes[1] ? ENTRY_SIZES : ENTRY_INTACT;
}

static enum entry_fault read_title(const unsigned char *p, uint64_t size)
{
    if (size < ENTRY_HEADER || size > ENTRY_MAX) return ENTRY_SHORT;
    if (memcmp(p, magic, sizeof magic)) return ENTRY_FOREIGN;
    return bytes_get(p + AT_HEADER, 4) != ENTRY_FORMAT ? ENTRY_VERSION : ENTRY_INTACT;
}

enum entry_fault entry_promise(const void *header, uint64_t size)
{
    uint64_t sizes[4], what;
    enum entry_fault f = read_title(header, size);
    return f ? f : read_sizes(sizes, &what, header, size);
}

enum entry_fault entry_check(struct entry *out, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    uint64_t sizes[4], what;
    enum entry_fault f = read_title(p, size);
    if (f) return f;
    struct digest d = digest_of(p + AT_HEADER, size - AT_HEADER), want = bytes_get_digest(p + AT_DIGEST);
    if (!digest_equal(&d, &want)) return ENTRY_DIGEST;
    if ((f = read_sizes(sizes, &what, p, size))) return f;
    *out = (struct entry){.kind = (enum cache_kind)bytes_get(p + AT_HEADER + 4, 4),
                          .key = (const char *)p + ENTRY_HEADER,
                          .key_size = (size_t)sizes[1],
                          .what_size = (size_t)what,
                          .note_size = (size_t)sizes[2],
                          .data_size = (size_t)sizes[3]};
    out->note = out->key + out->key_size;
    out->data = out->note + out->note_size;
    return ENTRY_INTACT;
}

static bool is_text(const char *bytes, size_t size, const char *text)
{
    return strlen(text) == size && !memcmp(bytes, text, size);
}

enum entry_fault entry_match(const struct entry *e, const struct cache_key *k)
{
    bool same = e->kind == k->kind && is_text(e->key, e->what_size, k->what) &&
                (!k->by || is_text(e->key + e->what_size, e->key_size - e->what_size, k->by)) &&
                (!k->text || is_text(e->note, e->note_size, k->text));
    return same ? ENTRY_INTACT : ENTRY_KEY;
}

bool entry_same(const struct entry *a, const struct entry *b)
{
    return a->kind == b->kind && a->what_size == b->what_size && a->note_size == b->note_size &&
           !memcmp(a->key, b->key, a->what_size) && !memcmp(a->note, b->note, a->note_size);
}
