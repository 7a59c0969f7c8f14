/*
 * shim.cpp -- puts the device files of primitives/ behind C functions. vocabulary.h, made by the Makefile,
 * includes every map, reduction and port, and lists the names as MAPS(X) and REDUCES(X).
 *
 * No C++ library is linked: the tests are C.
 */
#include <pthread.h>

#include "vocabulary.h"
#include "shim.h"
#include "attention/grad_walk.cuh"
#include "tile/raster.cuh"
#include "tile/weights.cuh"

using namespace coda;

thread_local HostIndex threadIdx;

/* ---- Maps: apply takes as many floats as its type says ---- */

template <int... i> struct Indices {
};
template <int n, int... i> struct MakeIndices : MakeIndices<n - 1, n - 1, i...> {
};
template <int... i> struct MakeIndices<0, i...> {
    typedef Indices<i...> type;
};

template <class... F> constexpr int arity(float (*)(F...)) { return sizeof...(F); }
template <class Map, int... i> float spread(const float *args, Indices<i...>)
{
    return Map::apply(args[i]...);
}
template <class Map> float call(const float *args)
{
    return spread<Map>(args, typename MakeIndices<arity(Map::apply)>::type());
}

/* The same of its form for 16 bits, if it has one. */
template <class Map, int... i> float spread_narrow(const float *args, Indices<i...>)
{
    return Map::narrow(args[i]...);
}
template <class Map, decltype(Map::narrow) * = nullptr> float call_narrow(const float *args)
{
    return spread_narrow<Map>(args, typename MakeIndices<arity(Map::narrow)>::type());
}
typedef float (*Call)(const float *);
template <class Map> constexpr auto narrow_of(int) -> decltype(Map::narrow, Call())
{
    return call_narrow<Map>;
}
template <class Map> constexpr Call narrow_of(long) { return nullptr; }

/* ---- A block of 64 threads. A shuffle writes, meets, reads and meets; so does nothing else ---- */

enum { THREADS = 64 };
static pthread_barrier_t meeting;
static float exchange[THREADS], shared_memory[THREADS];

void __syncthreads() { pthread_barrier_wait(&meeting); }

float __shfl_xor_sync(unsigned, float x, int distance)
{
    exchange[threadIdx.x] = x;
    __syncthreads();
    float other = exchange[threadIdx.x ^ distance];
    __syncthreads();
    return other;
}

struct Lane {
    int thread, n, step;
    const float *x;
    float key, *out;
};

template <class R> void *run_lane(void *context)
{
    const Lane *lane = static_cast<const Lane *>(context);
    typename R::State s;
    threadIdx.x = lane->thread;
    R::init(s);
    for (int c = lane->thread; c < lane->n; c += THREADS) R::push(s, lane->x[c], c, lane->key);
    if (lane->step) block::fold_lanes<R, 8, 4>(s);
    else block::fold_warps<R, 2>(s, shared_memory);
    lane->out[lane->thread] = R::finish(s);
    return nullptr;
}

template <class R> void fold(float out[64], const float *x, int n, float key, int step)
{
    pthread_t thread[THREADS];
    Lane lane[THREADS];
    pthread_barrier_init(&meeting, nullptr, THREADS);
    for (int t = 0; t < THREADS; t++) {
        lane[t] = {t, n, step, x, key, out};
        pthread_create(&thread[t], nullptr, run_lane<R>, &lane[t]);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(thread[t], nullptr);
    pthread_barrier_destroy(&meeting);
}

/* ---- Reductions ---- */

template <class R> typename R::State read(const float *state)
{
    typename R::State s;
    static_assert(sizeof s == R::state * sizeof(float), "a State is float v[state]");
    memcpy(&s, state, sizeof s);
    return s;
}
template <class R> void write(float *state, const typename R::State &s) { memcpy(state, &s, sizeof s); }

template <class R> void init(float *state)
{
    typename R::State s;
    R::init(s);
    write<R>(state, s);
}
template <class R> void push(float *state, float x, int col, float key)
{
    typename R::State s = read<R>(state);
    R::push(s, x, col, key);
    write<R>(state, s);
}
template <class R> void merge(float *state, const float *other)
{
    typename R::State s = read<R>(state);
    R::merge(s, read<R>(other));
    write<R>(state, s);
}
template <class R> float finish(const float *state) { return R::finish(read<R>(state)); }

/* ---- Ports ---- */

template <class T> void load_eight(shim_way way, float (&x)[8], const T *p, int64_t stride, int64_t count)
{
    switch (way) {
    case SHIM_PIECE: port::load_piece(x, p); break;
    case SHIM_TAIL: port::load_tail(x, p, stride, count); break;
    case SHIM_AT:
        for (int i = 0; i < 8; i += 2) {
            Pair v = port::load_pair_at(p, stride, i, count);
            x[i] = v.a, x[i + 1] = v.b;
        }
        break;
    case SHIM_PAIRS:
        for (int i = 0; i < 8; i += 2) {
            Pair v = port::load_pair(p + i);
            x[i] = v.a, x[i + 1] = v.b;
        }
    }
}

template <class T> void store_eight(shim_way way, T *p, const float (&x)[8], int64_t stride, int64_t count)
{
    switch (way) {
    case SHIM_PIECE: port::store_piece(p, x); break;
    case SHIM_TAIL: port::store_tail(p, x, stride, count); break;
    case SHIM_AT:
        for (int i = 0; i < 8; i++) port::store_at(p, stride, i, count, x[i]);
        break;
    case SHIM_PAIRS:
        for (int i = 0; i < 8; i += 2) port::store_pair(p + i, Pair{x[i], x[i + 1]});
    }
}

/* ---- What C sees ---- */

/* ---- Walks ---- */

template <int m, int cols, int high, int wide, int tails, int tail_wide, int walk, int parts, bool columns>
struct Walked : ConfigDefaults {
    struct Args {
        Divisor divisor;
    };
    static constexpr i64 n = cols;
    static constexpr bool batched = false;
    static constexpr int bm = high, bn = wide, tail = tails, tail_bn = tail_wide, band = walk, blocks = parts;
    static constexpr bool across = columns;
    static i32 rows(const Args &) { return m; }
    // What the launch gives: the clusters of a band across, or the blocks that have a tile more.
    static Args args()
    {
        const int tile_rows = (m + high - 1) / high;
        const int tiles = tile_rows * ((cols - tails * tail_wide + wide - 1) / wide + tails);
        const u32 number = columns ? walk * tile_rows : tiles % parts ? tiles % parts : parts;
        u32 shift = 0;
        while (1u << shift < number) shift++;
        return {{number, (u32)(((((u64)1 << shift) - number) << 32) / number + 1), shift}};
    }
    static void at(unsigned index, shim_tile *out)
    {
        const Args a = args();
        const Tile t = Raster<Walked>{a}.tile(index);
        *out = {t.m, t.first, t.width};
    }
    static shim_walk entry()
    {
        const Args a = args();
        return {m, cols, high, wide, tails, tail_wide, walk, parts, (int)Raster<Walked>{a}.count(), at};
    }
};

/* ---- A walk of attention's gradients ---- */

static Divisor divisor(u32 number)
{
    u32 shift = 0;
    while (1u << shift < number) shift++;
    return {number, (u32)(((((u64)1 << shift) - number) << 32) / number + 1), shift};
}

static GradTiles grad_tiles(const shim_grad_tiles &t)
{
    return {t.rows, t.streams, t.bands, t.band, divisor((u32)(t.rows * t.band))};
}

struct GridBlock {
    u32 blocks, block;
    u32 count() const { return blocks; }
    u32 index() const { return block; }
};

template <int kv_heads, int heads, bool causal> struct GradWalked {
    static constexpr int bm = 128;
    static int tiles(const shim_grad_tiles of[2], int blocks, int block, shim_grad_tile *out, int most)
    {
        const AttentionGradExtents extents = {0, 0, 0, 0, grad_tiles(of[0]), grad_tiles(of[1])};
        const GridBlock mine = {(u32)blocks, (u32)block};
        int n = 0;
        for (GradWalk<kv_heads, heads, bm, causal> walk(extents); walk.next(mine); n++)
            if (n < most) out[n] = {walk.of_keys, walk.batch, walk.head, walk.row};
        return n;
    }
    static shim_grad_walk entry() { return {kv_heads, heads, bm, causal, tiles}; }
};

extern "C" {

#define MAP(name) {#name, arity(map::name::apply), call<map::name>, narrow_of<map::name>(0)},
const struct shim_map shim_maps[] = {MAPS(MAP){nullptr, 0, nullptr, nullptr}};

#define REDUCE(name)                                                                                         \
    {#name,                                                                                                  \
     reduce::name::state,                                                                                    \
     init<reduce::name>,                                                                                     \
     push<reduce::name>,                                                                                     \
     merge<reduce::name>,                                                                                    \
     finish<reduce::name>,                                                                                   \
     fold<reduce::name>},
const struct shim_reduce shim_reduces[] = {REDUCES(REDUCE){}};

void shim_rope(float out[2], float a, float b, float position, float high, float low)
{
    Pair r = high == 0.0f ? Pair{a, b} : pair::rope::apply(a, b, port::turn(position, high, low));
    out[0] = r.a, out[1] = r.b;
}
void shim_turn(float out[2], float position, float high, float low)
{
    Pair r = port::turn(position, high, low);
    out[0] = r.a, out[1] = r.b;
}
void shim_half_turns(float out[2], float radians)
{
    Pair r = port::half_turns(radians);
    out[0] = r.a, out[1] = r.b;
}
void shim_turn_below(float out[2], float position, float high, float low)
{
    Pair r = port::turn_further(port::turn(position, high, low), port::turn(8.0f, high, low));
    out[0] = r.a, out[1] = r.b;
}

void shim_load(int dtype, shim_way way, float *to, const void *p, int64_t stride, int64_t count)
{
    float(&x)[8] = *reinterpret_cast<float(*)[8]>(to);
    if (dtype == 1) load_eight(way, x, static_cast<const f32 *>(p), stride, count);
    if (dtype == 2) load_eight(way, x, static_cast<const bf16 *>(p), stride, count);
    if (dtype == 3) load_eight(way, x, static_cast<const f16 *>(p), stride, count);
    if (dtype == 4) load_eight(way, x, static_cast<const i32 *>(p), stride, count);
    if (dtype == 6) load_eight(way, x, static_cast<const i64 *>(p), stride, count);
    if (dtype == 5) load_eight(way, x, static_cast<const f8e4m3 *>(p), stride, count);
    if (dtype == 7) load_eight(way, x, static_cast<const f8e5m2 *>(p), stride, count);
    if (dtype == 8) load_eight(way, x, static_cast<const i8 *>(p), stride, count);
    if (dtype == 9) load_eight(way, x, static_cast<const u8 *>(p), stride, count);
}

void shim_store(int dtype, shim_way way, void *p, const float *from, int64_t stride, int64_t count)
{
    const float(&x)[8] = *reinterpret_cast<const float(*)[8]>(from);
    if (dtype == 1) store_eight(way, static_cast<f32 *>(p), x, stride, count);
    if (dtype == 2) store_eight(way, static_cast<bf16 *>(p), x, stride, count);
    if (dtype == 3) store_eight(way, static_cast<f16 *>(p), x, stride, count);
    if (dtype == 4) store_eight(way, static_cast<i32 *>(p), x, stride, count);
    if (dtype == 6) store_eight(way, static_cast<i64 *>(p), x, stride, count);
    if (dtype == 5) store_eight(way, static_cast<f8e4m3 *>(p), x, stride, count);
    if (dtype == 7) store_eight(way, static_cast<f8e5m2 *>(p), x, stride, count);
    if (dtype == 8) store_eight(way, static_cast<i8 *>(p), x, stride, count);
    if (dtype == 9) store_eight(way, static_cast<u8 *>(p), x, stride, count);
}

float shim_partials(float room[16], const float x[8])
{
    for (int b = 0; b < 8; b++) port::store_partial<reduce::sum>(room, 1, b, 8, {{x[b]}});
    block::States<reduce::sum, 1> states;
    states.load(room, 1, 8);
    return reduce::sum::finish(states.merged(room, 1, 8));
}

void shim_join_tiles(float out[2], const float *states, int tiles)
{
    block::States<reduce::mean, 1> all;
    all.load(states, 0, tiles);
    const auto row = all.merged(states, 0, tiles);
    out[0] = reduce::mean::finish(row), out[1] = reduce::m2::finish(row);
}

uint32_t shim_pack(int dtype, float lo, float hi)
{
    return dtype == 2 ? pack2<bf16>(lo, hi) : pack2<f16>(lo, hi);
}

void shim_unpack(int dtype, float out[2], uint32_t packed)
{
    Pair x = dtype == 2 ? unpack2<bf16>(packed) : unpack2<f16>(packed);
    out[0] = x.a, out[1] = x.b;
}

const shim_walk shim_walks[] = {
    Walked<16384, 2048, 128, 192, 1, 128, 14, 132, false>::entry(),
    Walked<16384, 4096, 128, 192, 1, 64, 8, 132, false>::entry(),
    Walked<16384, 6144, 128, 192, 3, 128, 8, 132, false>::entry(),
    Walked<16384, 5120, 128, 192, 1, 128, 8, 132, false>::entry(),
    Walked<300, 512, 64, 256, 4, 64, 2, 3, false>::entry(),
    Walked<1500, 1024, 128, 192, 7, 64, 3, 5, false>::entry(),
    Walked<77, 256, 128, 192, 1, 64, 1, 2, false>::entry(),
    Walked<2000, 3000, 128, 192, 0, 0, 8, 132, false>::entry(),
    Walked<2048, 4096, 128, 256, 0, 0, 6, 132, true>::entry(),
};
const int shim_walk_count = sizeof shim_walks / sizeof *shim_walks;

const shim_grad_walk shim_grad_walks[] = {
    GradWalked<8, 32, true>::entry(),
    GradWalked<8, 32, false>::entry(),
    GradWalked<32, 32, true>::entry(),
    GradWalked<3, 3, true>::entry(),
};
const int shim_grad_walk_count = sizeof shim_grad_walks / sizeof *shim_grad_walks;
}

/* ---- Packed weights ---- */

template <Codes codes, Scales scales, Zeros zeros, int group, i64 columns>
float packed_at(const uint8_t *packed, int64_t row, int64_t k)
{
    return Packed<codes, scales, zeros, group, columns>::at(packed, row, k);
}
#define PACKED(word, codes, scales, zeros, group)                                                            \
    {word, 320, packed_at<Codes::codes, Scales::scales, Zeros::zeros, group, 320>},                          \
        {word, 77, packed_at<Codes::codes, Scales::scales, Zeros::zeros, group, 77>},
extern const struct shim_packed shim_packed[] = {
    PACKED("q4_0", int4, f16, none, 32)       //
    PACKED("q4_1", int4, f16, minimum, 32)    //
    PACKED("q5_0", int5, f16, none, 32)       //
    PACKED("q5_1", int5, f16, minimum, 32)    //
    PACKED("q8_0", int8, f16, none, 32)       //
    PACKED("q4_k", int4, f16u6, minimum, 32)  //
    PACKED("q5_k", int5, f16u6, minimum, 32)  //
    PACKED("q6_k", int6, f16i8, none, 16)     //
    PACKED("mxfp4", e2m1, e8m0, none, 32)     //
    PACKED("nvfp4", e2m1, e4m3, none, 16)     //
    PACKED("fp8_block", e4m3, f32, none, 128) //
    PACKED("int4_g128_f16_zeros", int4, f16, points, 128) PACKED("int4_g16_bf16_min", int4, bf16, minimum, 16)
        PACKED("int4_row_f32_zeros", int4, f32, points, 0)
            PACKED("int5_g64_bf16_min", int5, bf16, minimum, 64)
                PACKED("int6_g128_bf16", int6, bf16, none, 128)                                         //
    PACKED("int8_row_f32", int8, f32, none, 0)                                                          //
    PACKED("int8_g256_f16_zeros", int8, f16, points, 256) PACKED("e2m1_g128_f32", e2m1, f32, none, 128) //
    PACKED("e4m3_g32_e8m0", e4m3, e8m0, none, 32)                                                       //
    PACKED("e5m2_g64_bf16", e5m2, bf16, none, 64)                                                       //
    PACKED("e5m2_row_e4m3", e5m2, e4m3, none, 0)                                                        //
    {nullptr, 0, nullptr}};
