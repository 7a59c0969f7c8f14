/*
 * warp.c -- what the lanes of a warp do together: the last to come does it for all.
 *
 * Lanes that meet at different things are a mistake, as CUDA's .sync and .aligned say.
 */
#include "machine.h"

#include <string.h>

enum exchange {
    NONE,
    SYNC,
    SHUFFLE,
    SHUFFLE_XOR,
    ELECT,
    STORE2,
    STORE4,
    LOAD2,
    LOAD4,
    LOAD4_TRANSPOSED,
    MULTIPLY,
    MULTIPLY_HALF,
    MULTIPLY_TF32,
    MULTIPLY_BYTES
};
static const char *const names[] = {"nothing",     "syncwarp",          "shfl",        "shfl.xor",
                                    "elect",       "stmatrix.x2",       "stmatrix.x4", "ldmatrix.x2",
                                    "ldmatrix.x4", "ldmatrix.x4.trans", "mma.bf16",    "mma.f16",
                                    "mma.tf32",    "mma.u8.s8"};

/* Row r of matrix i is at the address that lane 8 i + r gives; lane l has two elements of row l / 4. */
static void move_matrices(struct thread *t, struct warp *w, int count, bool store)
{
    for (int i = 0; i < count; i++)
        for (int r = 0; r < 8; r++) {
            struct thread *giver = w->lane[8 * i + r];
            uint32_t at = own_offset(giver, w->address[giver->lane], 16, 16, store ? "stmatrix" : "ldmatrix");
            uint32_t *row = (uint32_t *)(void *)(t->block->shared + at);
            if (store) note_plain_store(giver, at, 16);
            else if (is_coming(t->block, at, 16))
                fail_thread(giver, "ldmatrix at 0x%x, where a copy is on its way", w->address[giver->lane]);
            for (int l = 0; l < 4; l++) {
                if (store) row[l] = w->in[4 * r + l][i];
                else w->out[4 * r + l][i] = row[l];
            }
        }
}

/* Lane l has rows 2 (l % 4) and the next of column l / 4. */
static void transpose(struct warp *w)
{
    uint32_t m[EMU_WARP][4];
    memcpy(m, w->out, sizeof m);
    for (int l = 0; l < EMU_WARP; l++)
        for (int i = 0; i < 4; i++) {
            int from = l % 4 * 8 + l / 8, shift = l / 4 % 2 * 16; /* of row 2 (l % 4), column l / 4 */
            uint32_t low = m[from][i] >> shift & 0xffff, high = m[from + 4][i] >> shift & 0xffff;
            w->out[l][i] = low | high << 16;
        }
}

/* Elements of a's row g or of b's column g: pair k / 2 % 4 of the registers of lane 4 g + pair. */
static void read_elements(const struct warp *w, int first, int g, int apart, bool half, float *out)
{
    for (int k = 0; k < 16; k++) {
        uint32_t pair = w->in[4 * g + k / 2 % 4][first + k / 8 * apart];
        out[k] = element_value((uint16_t)(k % 2 ? pair >> 16 : pair), half);
    }
}

static void multiply(struct warp *w, bool half)
{
    float a[16][16], b[8][16];
    for (int g = 0; g < 8; g++) {
        read_elements(w, 0, g, 2, half, a[g]);
        read_elements(w, 1, g, 2, half, a[g + 8]);
        read_elements(w, 4, g, 1, half, b[g]);
    }
    for (int l = 0; l < EMU_WARP; l++)
        for (int i = 0; i < 4; i++) {
            const float *row = a[l / 4 + i / 2 * 8], *column = b[l % 4 * 2 + i % 2];
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += row[k] * column[k];
            memcpy(&w->out[l][i], &sum, 4);
        }
}

/* Element k of a's row g or of b's column g: lane 4 g + k % 4 has it; its lower 13 bits do not count. */
static float long_element(const struct warp *w, int first, int g, int k, int apart)
{
    uint32_t bits = w->in[4 * g + k % 4][first + k / 4 * apart] & 0xffffe000u;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void multiply_tf32(struct warp *w)
{
    for (int l = 0; l < EMU_WARP; l++)
        for (int i = 0; i < 4; i++) {
            float sum = 0;
            for (int k = 0; k < 8; k++)
                sum += long_element(w, i / 2, l / 4, k, 2) * long_element(w, 4, l % 4 * 2 + i % 2, k, 1);
            memcpy(&w->out[l][i], &sum, 4);
        }
}

/* Bytes of a's row g or of b's column g: byte k % 4 of lane 4 g + k / 4 % 4. */
static void read_bytes(const struct warp *w, int first, int g, int apart, uint8_t *out)
{
    for (int k = 0; k < 32; k++)
        out[k] = (uint8_t)(w->in[4 * g + k / 4 % 4][first + k / 16 * apart] >> 8 * (k % 4));
}

static void multiply_bytes(struct warp *w)
{
    uint8_t a[16][32], b[8][32];
    for (int g = 0; g < 8; g++) {
        read_bytes(w, 0, g, 2, a[g]);
        read_bytes(w, 1, g, 2, a[g + 8]);
        read_bytes(w, 4, g, 1, b[g]);
    }
    for (int l = 0; l < EMU_WARP; l++)
        for (int i = 0; i < 4; i++) {
            const uint8_t *row = a[l / 4 + i / 2 * 8], *column = b[l % 4 * 2 + i % 2];
            int32_t sum = 0;
            for (int k = 0; k < 32; k++) sum += row[k] * (int8_t)column[k];
            w->out[l][i] = (uint32_t)sum;
        }
}

static void perform(struct thread *t, struct warp *w)
{
    uint32_t chosen = draw(t->cluster, EMU_WARP);
    switch ((enum exchange)w->what) {
    case STORE2:
    case STORE4: move_matrices(t, w, w->what == STORE2 ? 2 : 4, true); return;
    case LOAD2:
    case LOAD4: move_matrices(t, w, w->what == LOAD2 ? 2 : 4, false); return;
    case LOAD4_TRANSPOSED:
        move_matrices(t, w, 4, false);
        transpose(w);
        return;
    case MULTIPLY:
    case MULTIPLY_HALF: multiply(w, w->what == MULTIPLY_HALF); return;
    case MULTIPLY_TF32: multiply_tf32(w); return;
    case MULTIPLY_BYTES: multiply_bytes(w); return;
    default:
        for (uint32_t l = 0; l < EMU_WARP; l++) {
            uint32_t from = w->what == SHUFFLE ? w->address[l] % EMU_WARP : (l ^ w->address[l]) % EMU_WARP;
            w->out[l][0] = w->what == ELECT ? l == chosen : w->in[from][0];
        }
    }
}

static void meet(struct thread *t, enum exchange what, uint32_t address, const uint32_t *in, int count)
{
    struct warp *w = t->warp;
    if (w->what && w->what != (int)what)
        fail_thread(t, "at %s, while others of its warp are at %s", names[what], names[w->what]);
    if (!w->lane[EMU_WARP - 1]) fail_thread(t, "%s in a warp that is not whole", names[what]);
    w->what = what;
    w->arrived |= 1u << t->lane;
    w->address[t->lane] = address;
    if (count) memcpy(w->in[t->lane], in, 4 * (size_t)count);
    if (w->arrived != ~0u) {
        sleep_on(t, NULL, AT_WARP, (uint32_t)what, 0);
        return;
    }
    perform(t, w);
    w->what = NONE;
    w->arrived = 0;
    for (int l = 0; l < EMU_WARP; l++)
        if (w->lane[l] != t) wake(w->lane[l]);
}

uint32_t emu_shuffle(uint32_t mask, uint32_t x, int lane, bool exclusive_or)
{
    struct thread *t = self_thread();
    if (mask != ~0u) fail_thread(t, "a shuffle of lanes %08x", mask);
    meet(t, exclusive_or ? SHUFFLE_XOR : SHUFFLE, (uint32_t)lane, &x, 1);
    return t->warp->out[t->lane][0];
}

void emu_warp_sync(void) { meet(self_thread(), SYNC, 0, NULL, 0); }

/* One lane, and nobody knows which. */
bool emu_elect(void)
{
    struct thread *t = self_thread();
    meet(t, ELECT, 0, NULL, 0);
    return t->warp->out[t->lane][0];
}

void emu_matrix_store(uint32_t address, const uint32_t *m, int count)
{
    meet(self_thread(), count == 2 ? STORE2 : STORE4, address, m, count);
}

void emu_matrix_load(uint32_t address, uint32_t *m, int count)
{
    struct thread *t = self_thread();
    meet(t, count == 2 ? LOAD2 : LOAD4, address, NULL, 0);
    memcpy(m, t->warp->out[t->lane], 4 * (size_t)count);
}

void emu_matrix_load_transposed(uint32_t address, uint32_t *m)
{
    struct thread *t = self_thread();
    meet(t, LOAD4_TRANSPOSED, address, NULL, 0);
    memcpy(m, t->warp->out[t->lane], sizeof t->warp->out[t->lane]);
}

static void add_product(float *d, const uint32_t *operands, enum exchange what)
{
    struct thread *t = self_thread();
    float sum[4];
    meet(t, what, 0, operands, 6);
    memcpy(sum, t->warp->out[t->lane], sizeof sum);
    for (int i = 0; i < 4; i++) d[i] += sum[i];
}

void emu_matrix_multiply(float *d, const uint32_t *operands, bool half)
{
    add_product(d, operands, half ? MULTIPLY_HALF : MULTIPLY);
}

void emu_matrix_multiply_bytes(int32_t *d, const uint32_t *operands)
{
    struct thread *t = self_thread();
    meet(t, MULTIPLY_BYTES, 0, operands, 6);
    for (int i = 0; i < 4; i++) d[i] = (int32_t)((uint32_t)d[i] + t->warp->out[t->lane][i]);
}

void emu_matrix_multiply_tf32(float *d, const uint32_t *operands) { add_product(d, operands, MULTIPLY_TF32); }
