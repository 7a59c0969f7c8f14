/*
 * wgmma_cost.c -- what a GEMM takes in a tile of mainloop_wgmma, in clock cycles:
 *     max(waves * (max(products, traffic) + traffic * power), weights) + what the epilogue leaves exposed
 *     products = bm bn K / wgmma             16-bit multiply-adds that an SM finishes in a clock; fp8: twice
 *                                            as many, and PROMOTION
 *     traffic  = 2 (a_box + bn) K / l2_bytes bytes that L2 gives an SM in a clock (fp8: half); an operand's,
 *                                            divided by the blocks of a cluster that get its tile at one time
 *     weights  = 2 N K / (memory_bytes SMs)  bytes that memory gives an SM in a clock: with few rows, all
 *     power    = 1/8, or 0.3 with many rows, where the card's power is short and bytes take their part
 * wgmma, l2_bytes and memory_bytes are the target's (targets.def).
 * The numbers are fitted to the first row at M 1 to 1024, where they mostly pick what is within 5 % of the
 * best tile tried; with many rows, at 16384, to runs of some 0.3 s, after which the clock is what power and
 * heat allow.
 */
#include "wgmma.h"

enum { COOPERATION = 1400 }; /* clocks between two that both consumers share */

static bool shares_sm(const struct tile *t) { return t->groups == 1 && tile_splits(t) == 1; }

/* Tiles that leave element by element, not by TMA. A gated one is half as wide. */
static bool stores_directly(const struct program *p, const struct tile *t)
{
    if (program_is_gated(p)) return false;
    const struct moves staged = staged_stores(p, t);
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_STORE && step_level(&p->step[i]) == LEVEL_SLOT && !moves_have(&staged, i))
            return true;
    return false;
}

/* Cycles of the split-K reduction: reduce-scatter, by the bytes a block gets; or gathered by rank 0. */
static double sums_clocks(const struct tile *t, const struct target *target)
{
    int splits = tile_splits(t), bytes = 4 * t->bm * tile_share(t) * (splits - 1);
    if (t->scattered) return 1000 + (double)bytes / target->cluster_bytes;
    return splits > 1 ? 500 * splits * splits : 0;
}

static bool folds_segments(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (step_folds_segments(&p->step[i])) return true;
    return false;
}

/* Cycles of a tile's epilogue, if nothing hides them. */
static double epilogue_clocks(const struct program *p, const struct tile *t, const struct target *target)
{
    bool staged = (program_is_gated(p) ? t->bn / 2 : t->bn) % 32 == 0 || t->bn <= 64;
    int elements = tile_a_box(p, t) * tile_share(t) / (t->pingpong ? 1 : t->groups);
    double work = 1 + 0.5 * (p->pair == PAIR_HEADS) + 4 * program_loads_directly(p, t) +
                  4 * program_is_heavy(p) + 0.5 * folds_segments(p) + (conv1d_step_of(p) >= 0);
    return 1000 + elements / 16.0 * work * (staged ? 1 : 1.5) + sums_clocks(t, target);
}

/* Sums of fp8 that are added up every 128 k, what of it other warps do not hide. Measured for 2048 x 4096, K
 * 4096: an SM takes 2 % less for as much of a tile of 128 x 192 as for one of 128 x 128, the formula says
 * 3 %. */
#define PROMOTION 1.1

/* Cycles of the main loop for a tile of `columns` columns, up to its last product. */
static double main_clocks(const struct program *p, const struct tile *t, const struct target *target,
                          int columns)
{
    bool f8 = program_is_f8(p);
    int slot = f8 ? 128 : 64;
    double k = (double)CEIL_DIV(p->k, slot * tile_splits(t)) * slot;
    double a = (double)tile_a_box(p, t) / tile_cluster_n(t), b = (double)columns / tile_cluster_m(t);
    double products = t->bm * columns * k / target->wgmma,
           traffic = (f8 ? 1 : 2) * (a + b) * k / target->l2_bytes;
    if (f8) products *= PROMOTION / 2;
    bool many = p->dim[1] > MOST_ODD_ROWS;
    double shallow = t->stages < 4 ? 1.08 : 1, together = many && !t->pingpong ? 1.02 : 1;
    bool thin = t->bm > 64 && columns <= 64; /* shared memory is late with operands */
    return (MAX(products, traffic) + traffic * (many ? 0.3 : 0.125)) * shallow * together *
               (thin ? 1.06 : 1) * (stores_directly(p, t) ? 1.03 : 1) +
           BEGINNING;
}

/* A second block of 64 rows is multiplied in vain if there are no more than 64: 4 to 11 % longer, measured at
 * 16 to 64 rows and N 22016. */
#define VAIN_COST 1.08

static bool in_vain(const struct program *p, const struct tile *t) { return t->bm > 64 && p->dim[1] <= 64; }

/* Blocks of a cluster wait for each other. fp8 of 2048 and 16384 rows, N 4096 and 12288, took 1 to 6 % longer
 * by twos in tiles of 128 x 128, 128 x 192 and 256 x 128, where the bytes that they share are 4 to 5 % of the
 * price. */
#define CLUSTER_COST 1.08

/* A tile of the tail takes more bytes for a product: measured at N 2048 and 4096. */
#define TAIL_COST 1.1

/* Where raster.cuh puts the tail of a band that begins with row `first` and has so many whole tiles. */
static int64_t tail_place(const struct tile *t, int64_t first, int64_t columns, int64_t longer, int64_t tiles)
{
    int64_t blocks = t->blocks, saved = t->bn - t->tail_bn, dealt = (t->bn + saved / 2) / saved * longer;
    int64_t tail = first * t->tail, block = tail < dealt ? tail % longer : (tail - dealt) % blocks;
    int64_t place = (block + blocks - first * columns % blocks) % blocks;
    return place < tiles ? place + (tiles - place) / blocks * blocks : tiles;
}

/* How many tiles of the tail each block gets: those of a band lie one after the other. */
static void deal_tails(const struct program *p, const struct tile *t, int64_t longer, int *tails)
{
    int64_t rows = CEIL_DIV(p->dim[1], t->bm), columns = program_row_tiles(p, t), all = 0;
    for (int b = 0; b < t->blocks; b++) tails[b] = 0;
    for (int64_t first = 0; first < rows; first += t->band) {
        int64_t height = MIN(rows - first, t->band), run = height * t->tail;
        int64_t place = tail_place(t, first, columns, longer, height * (columns - t->tail));
        int64_t from = (first * columns + place) % t->blocks, past = from + run % t->blocks - t->blocks;
        all += run / t->blocks;
        tails[from]++;
        if (past < 0) tails[from + run % t->blocks]--;
        else tails[0]++, tails[past]--;
    }
    for (int b = 0, sum = (int)all; b < t->blocks; b++) tails[b] = sum += tails[b];
}

/* Cycles of the main loops of the SM that has most to multiply. */
static double busiest_clocks(const struct program *p, const struct tile *t, const struct target *target,
                             int64_t tiles)
{
    int tails[TILE_MOST_BLOCKS];
    int64_t turns = CEIL_DIV(tiles, target->sms),
            longer = tiles % target->sms ? tiles % target->sms : target->sms;
    double whole = main_clocks(p, t, target, t->bn), most = 0;
    if (!t->tail) return (double)turns * whole;
    double slim = TAIL_COST * main_clocks(p, t, target, t->tail_bn);
    deal_tails(p, t, longer, tails);
    for (int b = 0; b < t->blocks; b++)
        most = MAX(most, (double)(turns - (b >= longer) - tails[b]) * whole + tails[b] * slim);
    return most;
}

double wgmma_cost_of(const struct program *p, const struct tile *t, const struct target *target,
                     int64_t tiles)
{
    int sms = target->sms;
    double blocks = (double)tiles, waves = (double)(int64_t)((blocks + sms - 1) / sms);
    double epilogue = epilogue_clocks(p, t, target);
    double weights = weight_clocks(p, target, blocks / (waves * sms)) + BEGINNING * waves;
    double stream = MAX(busiest_clocks(p, t, target, tiles), weights);
    bool overlaps = t->pingpong || shares_sm(t);
    double all = overlaps ? MAX(stream, waves * epilogue / 2) + epilogue
                          : stream + waves * epilogue + (waves - 1) * COOPERATION;
    bool apart = program_is_f8(p) && tile_cluster(t) > 1 && tile_splits(t) == 1;
    return all * (in_vain(p, t) ? VAIN_COST : 1) * (apart ? CLUSTER_COST : 1);
}

double wgmma_cost(const struct program *p, const struct tile *t, const struct target *target)
{
    return wgmma_cost_of(p, t, target, program_blocks(p, t));
}
