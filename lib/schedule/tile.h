/* tile.h -- the tile and main loop of a GEMM: what they are, and which one a program gets. */
#ifndef TILE_H
#define TILE_H

#include "identity.h"
#include "plan.h"

struct mainloop; /* mainloop.h */

/* How the output is tiled and walked; primitives/tile/README.md explains the words. */
struct tile {
    const struct mainloop *mainloop;
#define FLAG(name) bool name;
#define COUNT(name, least, from) int name;
#include "tile.def"
};

/* Candidates by kind. The costs of KNOWN tiles are fitted to measurements, so that tile_choose may trust
 * them; the other classes' costs only rank their members, and only tuning, which times them, may choose one.
 * ORDER tile_class */
enum tile_class {
    TILES_KNOWN,
    TILES_SQUARE,    /* over 1024 rows, many waves: each wave's tiles form about a square, for L2 */
    TILES_SCATTERED, /* split-K by reduce-scatter: each block of a cluster drains some columns */
    TILES_CLUSTERED, /* pairs of blocks share a multicast load of A or B */
    TILES_THREE,     /* three consumer warpgroups, 192 rows; alone or in such pairs. (192 x 192 is KNOWN, too,
                        where all tiles run at once.) */
    TILES_SKINNY,    /* at most 16 rows, mainloop_skinny, in the forms that are not KNOWN */
    TILE_CLASSES,
    TILES_NAMED = TILE_CLASSES /* no search offers them: a decision that names one has it */
};

/* ---- tile.c ---- */

/* Writes the cheapest `most` candidates of a class, or as many as there are, to out, cheapest first, and
 * returns their number. KNOWN is never empty: what no other main loop takes has the SIMT tile. */
int tile_candidates(const struct program *p, const struct target *target, enum tile_class c, struct tile *out,
                    int most);
/* The cheapest KNOWN tile. */
struct tile tile_choose(const struct program *p, const struct target *target);
/* The candidate of any class that equals `wanted`; tile_choose's, if none does. */
struct tile tile_offered(const struct program *p, const struct target *target, const struct tile *wanted);
/* Dynamic shared memory of a block, in bytes. */
int tile_shared_bytes(const struct program *p, const struct tile *t);
/* The most stages with which tile t takes at most `shared_bytes` of shared memory; 0 if none fits. */
int tile_stages(const struct program *p, const struct tile *t, int shared_bytes);

/* ---- tile_print.c ---- */

/* Appends the tile in the words of a plan's text, in which the cache keeps it. */
void tile_print(const struct tile *tile, struct text *t);
/* False, and *out as it was, if the words are not those of a tile of some main loop of this library. */
bool tile_parse(const char *words, struct tile *out);
bool tile_equal(const struct tile *a, const struct tile *b);
bool tile_identify(struct identity *id, struct arena *a, const struct tile *t); /* adds all that it is */
/* Appends a line that says why a program has the SIMT main loop, which is slow, and what would help; nothing
 * if it has another one. */
void tile_explain(const struct program *p, const struct tile *tile, const struct target *target,
                  struct text *t);

/* ---- Numbers of a tile ---- */

static inline int tile_splits(const struct tile *t) { return MAX(t->splits, 1); } /* that share K */
/* Columns of a tile that one block drains: bn, or bn / splits. */
static inline int tile_share(const struct tile *t) { return t->scattered ? t->bn / tile_splits(t) : t->bn; }
/* Rows that the kernel's text may take for granted. */
static inline int64_t tile_rows(const struct program *p, const struct tile *t)
{
    return t->most_rows ? t->most_rows : p->dim[1];
}
/* Blocks that one multicast load of B serves, and one of A; blocks of a cluster with tiles of their own. */
static inline int tile_cluster_m(const struct tile *t) { return MAX(t->cluster_m, 1); }
static inline int tile_cluster_n(const struct tile *t) { return MAX(t->cluster_n, 1); }
static inline int tile_cluster(const struct tile *t) { return tile_cluster_m(t) * tile_cluster_n(t); }

#endif
