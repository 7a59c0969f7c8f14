/*
 * keys.h -- the members of an object that a file has, by a table of what is read, what may be ignored, and
 * why.
 *
 * Nothing that a file says is passed over: a member is given out if the table says that its family reads it,
 * and is marked then. In the end each one must be marked, or stand in the table as one that changes nothing;
 * all others are refused by name. model/keys.md is made of these tables.
 */
#ifndef KEYS_H
#define KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum verdict { KEY_READ, KEY_IGNORED, KEY_REFUSED };

struct key {
    /* Separated by blanks. '*' stands for any characters, '#' for a number, a leading ARCH for the name of
     * the architecture. */
    const char *names;
    unsigned families; /* a bit of each, by its place in the table's list */
    enum verdict verdict;
    const char *values; /* of one that is ignored: the values that are, as JSON's list; NULL: any */
    const char *reason; /* what it is; why nothing changes without it; why it is refused */
};
#define KEY_ALL (~0u)

struct key_table {
    const char *title;           /* which file's members */
    const char *const *families; /* ends with NULL */
    const struct key *key;
    int count;
};

/* An object while it is read. */
struct keys {
    const struct key_table *table;
    const json_t *object;
    const char *what;         /* the object's name in messages */
    const char *architecture; /* in place of ARCH, or NULL */
    const char *family;
    unsigned bit; /* the family's; 0: one that the table does not have */
    json_t *read; /* the names that were given out */
};

/* The strings must stay until the end. `object` may be NULL: it has no members. */
void keys_begin(struct keys *k, const struct key_table *table, const char *family, const json_t *object,
                const char *what);
/* NULL where it is absent or null, and where the family does not read it. `name` may begin with ARCH. */
json_t *keys_get(struct keys *k, const char *name);
/* Whether all members are known. If not, `why` says in one line which one is not. */
bool keys_end(struct keys *k, char *why, size_t size);
/* Instead of keys_end, where reading has failed already. */
void keys_leave(struct keys *k);

/* The row of a verdict for a name, or NULL. */
const struct key *key_find(const struct key_table *t, unsigned bit, enum verdict verdict, const char *name,
                           const char *architecture);
/* A family's bit; 0: none of the table's. */
unsigned key_family(const struct key_table *t, const char *family);

#endif
