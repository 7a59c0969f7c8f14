/*
 * deflate.c -- a build tool: standard input as one stream of deflate (RFC 1951) that is shorter than zlib's.
 *
 * zlib takes the longest match, or that of the next byte. This finds all matches of each byte, and takes the
 * path through them that has the fewest bits; how many bits a symbol has follows from the path, so both are
 * found in turns, as Zopfli does it. Where a block ends is chosen by the same bits.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LITERALS = 286, DISTANCES = 30, END = 256, LONGEST = 258, WINDOW = 1 << 15, DEPTH = 1024, TURNS = 8 };
enum {
    CHUNK = 512, /* symbols: a block ends behind a whole number of them */
    REACH = 64,  /* chunks: no block has as many */
    NAMED = 3,   /* bits: about what a block's head has for each symbol that it names */
    BIT = 64,    /* prices are in 64ths of a bit */
    MOST_BITS = 15
};

struct match {
    uint16_t length, distance; /* of all matches of a byte, each is longer than the one ahead, and farther */
};
struct symbol {
    uint16_t length, distance; /* 1 and 0: a literal */
};
struct counts {
    uint32_t literal[LITERALS], distance[DISTANCES];
};

static double weight[CHUNK * REACH + 2]; /* n log2 n */
static uint8_t *text, length_code[LONGEST + 1], distance_code[WINDOW + 1];
static size_t size, bits, symbols;
static struct match *match;
static size_t *first_match; /* of each byte; one more behind the last */
static struct symbol *symbol, *taken;
static uint16_t length_base[29], distance_base[DISTANCES];
static uint8_t length_extra[29], distance_extra[DISTANCES];

static void die(void) { fputs("deflate: out of memory\n", stderr), exit(EXIT_FAILURE); }

static void *allocate(size_t count, size_t each)
{
    void *p = calloc(count + 1, each);
    if (!p) die();
    return p;
}

/* By sums and products alone, so that it is the same with every C library: of m in [sqrt(1/2), sqrt(2)) it is
 * 2 atanh((m - 1) / (m + 1)) / ln 2. */
static double log2_of(double x)
{
    int power;
    double m = frexp(x, &power), sum = 0;
    if (m < 0.70710678) m *= 2, power--;
    double t = (m - 1) / (m + 1);
    for (int k = 13; k > 0; k -= 2) sum = sum * t * t + 1. / k;
    return power + 2.8853900817779268 * t * sum;
}

/* ---- The codes of lengths and distances: RFC 1951, 3.2.5 ---- */

static void make_tables(void)
{
    for (int k = 0, base = 3; k < 28; base += 1 << length_extra[k++]) {
        length_extra[k] = (uint8_t)(k < 8 ? 0 : k / 4 - 1), length_base[k] = (uint16_t)base;
        for (int n = base; n < base + (1 << length_extra[k]) && n <= LONGEST; n++)
            length_code[n] = (uint8_t)k;
    }
    length_base[28] = LONGEST, length_code[LONGEST] = 28;
    for (int n = 1; n < CHUNK * REACH + 2; n++) weight[n] = n * log2_of(n);
    for (int k = 0, base = 1; k < DISTANCES; base += 1 << distance_extra[k++]) {
        distance_extra[k] = (uint8_t)(k < 4 ? 0 : k / 2 - 1), distance_base[k] = (uint16_t)base;
        for (int n = base; n < base + (1 << distance_extra[k]); n++) distance_code[n] = (uint8_t)k;
    }
}

/* ---- All matches ---- */

static uint32_t hash_of(const uint8_t *at)
{
    return ((uint32_t)(at[0] | at[1] << 8 | at[2] << 16) * 2654435761u) >> 16;
}

static size_t common(const uint8_t *a, const uint8_t *b, size_t most)
{
    size_t n = 0;
    while (n < most && a[n] == b[n]) n++;
    return n;
}

/* Those of one byte, by the chain of earlier ones that begin with the same three. */
static size_t match_byte(size_t at, uint32_t from, const uint32_t *next, size_t count)
{
    size_t most = size - at < LONGEST ? size - at : LONGEST, best = 2;
    for (int depth = 0; from && at - (from - 1) <= WINDOW && depth < DEPTH && best < most; depth++) {
        const uint8_t *earlier = text + from - 1;
        size_t n = earlier[best] == text[at + best] ? common(earlier, text + at, most) : 0;
        if (n > best) match[count++] = (struct match){(uint16_t)(best = n), (uint16_t)(at - (from - 1))};
        uint32_t then = next[(from - 1) % WINDOW];
        from = then < from ? then : 0;
    }
    return count;
}

static void find_matches(void)
{
    uint32_t *head = allocate(1 << 16, sizeof *head),
             *next = allocate(WINDOW, sizeof *next); /* 1 + a place */
    size_t count = 0, capacity = 0;
    for (size_t at = 0; at < size; at++) {
        first_match[at] = count;
        if (size - at < 3) continue;
        if (capacity < count + LONGEST) {
            capacity = 2 * capacity + (1 << 16);
            if (!(match = realloc(match, capacity * sizeof *match))) die();
        }
        uint32_t *slot = &head[hash_of(text + at)];
        count = match_byte(at, *slot, next, count);
        next[at % WINDOW] = *slot, *slot = (uint32_t)at + 1;
    }
    first_match[size] = count;
    free(head), free(next);
}

/* ---- What symbols cost, and the cheapest path ---- */

static void count_symbols(struct counts *c, const struct symbol *from, const struct symbol *to,
                          const uint8_t *at)
{
    memset(c, 0, sizeof *c);
    c->literal[END] = 1;
    for (; from < to; at += from++->length) {
        if (!from->distance) c->literal[*at]++;
        else c->literal[257 + length_code[from->length]]++, c->distance[distance_code[from->distance]]++;
    }
}

/* -log2 of how often each comes; one that has not come may do so yet. */
static void price(uint32_t *bit, const uint32_t *count, int n)
{
    double all = 0;
    for (int k = 0; k < n; k++) all += count[k];
    for (int k = 0; k < n; k++) {
        double b = log2_of(all > 1 ? all : 1) - log2_of(count[k] ? count[k] : .3);
        bit[k] = (uint32_t)(BIT * (b < 1 ? 1 : b > MOST_BITS ? MOST_BITS : b));
    }
}

/* The path through bytes [from, to) with the fewest bits, priced as `seen`, put behind `symbol`. */
static void take_path(size_t from, size_t to, const struct counts *seen)
{
    struct counts bit;
    uint32_t *cost = allocate(to - from + 1, sizeof *cost);
    struct symbol *by = allocate(to - from + 1, sizeof *by); /* what ends at a byte */
    price(bit.literal, seen->literal, LITERALS), price(bit.distance, seen->distance, DISTANCES);
    memset(cost, 255, (to - from + 1) * sizeof *cost);
    cost[0] = 0;
    for (size_t at = from; at < to; at++) {
        uint32_t *here = cost + (at - from);
        if (*here + bit.literal[text[at]] < here[1])
            here[1] = *here + bit.literal[text[at]], by[at - from + 1] = (struct symbol){1, 0};
        size_t n = 3;
        for (const struct match *m = match + first_match[at]; m < match + first_match[at + 1]; m++) {
            int d = distance_code[m->distance];
            uint32_t base = *here + bit.distance[d] + BIT * distance_extra[d];
            for (; n <= m->length && n <= to - at; n++) {
                int l = length_code[n];
                uint32_t all = base + bit.literal[257 + l] + BIT * length_extra[l];
                if (all < here[n])
                    here[n] = all, by[at - from + n] = (struct symbol){(uint16_t)n, m->distance};
            }
        }
    }
    size_t count = 0;
    for (size_t n = to - from; n; n -= by[n].length) taken[count++] = by[n];
    while (count) symbol[symbols++] = taken[--count];
    free(cost), free(by);
}

/* ---- Huffman's codes: their lengths, and how a block's head says these ---- */

struct leaf {
    uint64_t count; /* and below it the symbol, so that the order is one */
    int up;
};

static int by_count(const void *a, const void *b)
{
    const struct leaf *x = a, *y = b;
    return (x->count > y->count) - (x->count < y->count);
}

/* Joins the two least of `leaves` sorted nodes, and so on; returns how many nodes there are, root last. */
static int join(struct leaf *node, int leaves)
{
    int low = 0, joined = leaves, nodes = leaves;
    for (; nodes < 2 * leaves - 1; nodes++) {
        uint64_t sum = 0;
        for (int i = 0; i < 2; i++) {
            bool leaf =
                low < leaves && (joined == nodes || node[low].count >> 16 <= node[joined].count >> 16);
            struct leaf *least = &node[leaf ? low++ : joined++];
            sum += least->count >> 16, least->up = nodes;
        }
        node[nodes] = (struct leaf){sum << 16, 0};
    }
    return nodes;
}

/* Lengths of codes, of at most `most` bits: where one is longer, counts are halved until none is. */
static void huffman(uint8_t *length, const uint32_t *count, int n, int most)
{
    struct leaf node[2 * LITERALS];
    for (int flat = 0, longest = most + 1; longest > most; flat++) {
        int leaves = 0, depth[2 * LITERALS];
        memset(length, 0, (size_t)n);
        for (int k = 0; k < n; k++)
            if (count[k])
                node[leaves++] = (struct leaf){(uint64_t)((count[k] >> flat) + 1) << 16 | (unsigned)k, 0};
        for (int k = 0; leaves < 2; k++) /* a decoder wants two */
            if (!count[k]) node[leaves++] = (struct leaf){1 << 16 | (unsigned)k, 0};
        qsort(node, (size_t)leaves, sizeof *node, by_count);
        int nodes = join(node, leaves);
        depth[nodes - 1] = 0, longest = 0;
        for (int k = nodes - 2; k >= 0; k--) {
            depth[k] = depth[node[k].up] + 1;
            if (k < leaves) length[node[k].count & 0xffff] = (uint8_t)depth[k];
            if (depth[k] > longest) longest = depth[k];
        }
    }
}

struct head {
    uint8_t length[LITERALS + DISTANCES], code[LITERALS + DISTANCES], extra[LITERALS + DISTANCES],
        of_code[19];
    int literals, distances, n, codes;
    uint32_t bits; /* of the head */
};
static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
static const uint8_t extra_bits[19] = {[16] = 2, 3, 7};

/* Lengths by runs: RFC 1951, 3.2.7. */
static void write_runs(struct head *h, const uint8_t *length, int n)
{
    for (int k = 0, run; k < n; k += run) {
        for (run = 1; k + run < n && length[k + run] == length[k] && run < (length[k] ? 7 : 138);) run++;
        if (length[k] && run > 3) {
            h->code[h->n] = length[k], h->extra[h->n++] = 0;
            h->code[h->n] = 16, h->extra[h->n++] = (uint8_t)(run - 4);
        } else if (!length[k] && run > 2) {
            h->code[h->n] = run > 10 ? 18 : 17, h->extra[h->n++] = (uint8_t)(run - (run > 10 ? 11 : 3));
        } else run = 1, h->code[h->n] = length[k], h->extra[h->n++] = 0;
    }
}

static void make_head(struct head *h, const struct counts *c)
{
    uint8_t lengths[LITERALS + DISTANCES];
    uint32_t count[19] = {0};
    h->n = 0, h->literals = LITERALS, h->distances = DISTANCES, h->codes = 19, h->bits = 17;
    huffman(h->length, c->literal, LITERALS, MOST_BITS);
    huffman(h->length + LITERALS, c->distance, DISTANCES, MOST_BITS);
    while (h->literals > 257 && !h->length[h->literals - 1]) h->literals--;
    while (h->distances > 1 && !h->length[LITERALS + h->distances - 1]) h->distances--;
    memcpy(lengths, h->length, (size_t)h->literals);
    memcpy(lengths + h->literals, h->length + LITERALS, (size_t)h->distances);
    write_runs(h, lengths, h->literals + h->distances);
    for (int k = 0; k < h->n; k++) count[h->code[k]]++;
    huffman(h->of_code, count, 19, 7);
    while (h->codes > 4 && !h->of_code[order[h->codes - 1]]) h->codes--;
    for (int k = 0; k < h->n; k++) h->bits += (uint32_t)h->of_code[h->code[k]] + extra_bits[h->code[k]];
    h->bits += 3 * (uint32_t)h->codes;
}

/* About how many bits a block has: the entropy of its symbols, their extra bits, and what its head has. */
static double block_bits(const struct counts *c)
{
    double sum = 60;
    uint32_t literals = 0, distances = 0;
    for (int k = 0; k < LITERALS; k++) {
        uint32_t n = c->literal[k];
        if (n) sum += n * (k > END ? length_extra[k - END - 1] : 0.) - weight[n] + NAMED, literals += n;
    }
    for (int k = 0; k < DISTANCES; k++) {
        uint32_t n = c->distance[k];
        if (n) sum += n * (double)distance_extra[k] - weight[n] + NAMED, distances += n;
    }
    return sum + weight[literals] + weight[distances];
}

/* ---- Blocks: the cheapest cut of the symbols into whole chunks ---- */

/* Writes the first symbol of each block, and `symbols` behind the last; returns the bits of all. */
static double cut(size_t *begin, size_t *blocks)
{
    size_t chunks = (symbols + CHUNK - 1) / CHUNK;
    struct counts *chunk = allocate(chunks, sizeof *chunk);
    double *least = allocate(chunks + 1, sizeof *least);
    size_t *from = allocate(chunks + 1, sizeof *from), place = 0;
    for (size_t k = 0; k < chunks; k++) {
        size_t to = (k + 1) * CHUNK < symbols ? (k + 1) * CHUNK : symbols;
        count_symbols(&chunk[k], symbol + k * CHUNK, symbol + to, text + place);
        for (size_t i = k * CHUNK; i < to; i++) place += symbol[i].length;
    }
    for (size_t end = 1; end <= chunks; end++) {
        struct counts sum = {{0}, {0}};
        least[end] = HUGE_VAL;
        for (size_t k = end; k > 0 && end - k < REACH; k--) {
            for (int i = 0; i < LITERALS; i++) sum.literal[i] += chunk[k - 1].literal[i];
            for (int i = 0; i < DISTANCES; i++) sum.distance[i] += chunk[k - 1].distance[i];
            sum.literal[END] = 1;
            double all = least[k - 1] + block_bits(&sum);
            if (all < least[end]) least[end] = all, from[end] = k - 1;
        }
    }
    double all = least[chunks];
    size_t n = 0;
    for (size_t k = chunks; k; k = from[k]) n++;
    *blocks = n, begin[n] = symbols;
    for (size_t k = chunks; k; k = from[k]) begin[--n] = from[k] * CHUNK;
    free(chunk), free(least), free(from);
    return all;
}

/* ---- The stream ---- */

static uint64_t pending;

static void put(uint32_t value, int n)
{
    pending |= (uint64_t)value << bits;
    for (bits += (size_t)n; bits >= 8; bits -= 8, pending >>= 8) putchar((int)(pending & 255));
}

/* Codes of these lengths, each with its first bit lowest: RFC 1951, 3.2.2. */
static void make_codes(uint16_t *code, const uint8_t *length, int n)
{
    for (int bit = 1, next = 0; bit <= MOST_BITS; bit++, next <<= 1)
        for (int k = 0; k < n; k++) {
            if (length[k] != bit) continue;
            code[k] = 0;
            for (int i = 0; i < bit; i++) code[k] |= (uint16_t)((next >> i & 1) << (bit - 1 - i));
            next++;
        }
}

static void write_block(const struct symbol *from, const struct symbol *to, const uint8_t *at, bool last)
{
    struct counts c;
    struct head h = {0};
    uint16_t literal[LITERALS], distance[DISTANCES], of_code[19];
    count_symbols(&c, from, to, at);
    make_head(&h, &c);
    make_codes(literal, h.length, LITERALS), make_codes(distance, h.length + LITERALS, DISTANCES);
    make_codes(of_code, h.of_code, 19);
    put(last | 2 << 1, 3), put((uint32_t)(h.literals - 257), 5), put((uint32_t)(h.distances - 1), 5);
    put((uint32_t)(h.codes - 4), 4);
    for (int k = 0; k < h.codes; k++) put(h.of_code[order[k]], 3);
    for (int k = 0; k < h.n; k++)
        put(of_code[h.code[k]], h.of_code[h.code[k]]), put(h.extra[k], extra_bits[h.code[k]]);
    for (; from < to; at += from++->length) {
        int l = from->distance ? 257 + length_code[from->length] : *at, d = distance_code[from->distance];
        put(literal[l], h.length[l]);
        if (!from->distance) continue;
        put((uint32_t)(from->length - length_base[l - 257]), length_extra[l - 257]);
        put(distance[d], h.length[LITERALS + d]);
        put((uint32_t)(from->distance - distance_base[d]), distance_extra[d]);
    }
    put(literal[END], h.length[END]);
}

static void read_all(void)
{
    size_t capacity = 1 << 16;
    text = allocate(capacity, 1);
    for (size_t n; (n = fread(text + size, 1, capacity - size, stdin)) > 0;)
        if ((size += n) == capacity && !(text = realloc(text, (capacity *= 2) + 1))) die();
}

static size_t bytes_of(const struct symbol *from, const struct symbol *to)
{
    size_t n = 0;
    while (from < to) n += from++->length;
    return n;
}

/* Each block's path anew, by the prices of the path that it has. */
static void take_paths(const size_t *begin, size_t blocks)
{
    struct symbol *was = allocate(symbols, sizeof *was);
    struct counts seen;
    memcpy(was, symbol, symbols * sizeof *was);
    symbols = 0;
    for (size_t k = 0, at = 0; k < blocks; k++) {
        size_t to = at + bytes_of(was + begin[k], was + begin[k + 1]);
        count_symbols(&seen, was + begin[k], was + begin[k + 1], text + at);
        take_path(at, to, &seen);
        at = to;
    }
    free(was);
}

int main(void)
{
    struct counts seen;
    double least = HUGE_VAL;
    size_t shortest = 0, blocks = 0;
    read_all(), make_tables();
    first_match = allocate(size + 1, sizeof *first_match);
    symbol = allocate(size, sizeof *symbol), taken = allocate(size, sizeof *taken);
    struct symbol *best = allocate(size, sizeof *best);
    size_t *begin = allocate(size + 1, sizeof *begin);
    find_matches();
    for (int k = 0; k < LITERALS; k++) seen.literal[k] = seen.distance[k % DISTANCES] = 1;
    take_path(0, size, &seen);
    for (int turn = 0; turn < TURNS; turn++) {
        double all = cut(begin, &blocks);
        if (all < least) least = all, shortest = symbols, memcpy(best, symbol, symbols * sizeof *symbol);
        take_paths(begin, blocks);
    }
    memcpy(symbol, best, shortest * sizeof *best), symbols = shortest;
    cut(begin, &blocks);
    if (!size) write_block(symbol, symbol, text, true);
    for (size_t k = 0, at = 0; k < blocks; k++) {
        write_block(symbol + begin[k], symbol + begin[k + 1], text + at, k + 1 == blocks);
        at += bytes_of(symbol + begin[k], symbol + begin[k + 1]);
    }
    put(0, 7);
    return fflush(stdout) || ferror(stdin) ? EXIT_FAILURE : EXIT_SUCCESS;
}
