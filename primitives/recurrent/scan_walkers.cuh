// scan_walkers.cuh -- the warps of scan_tiles.cuh that walk, and the shared memory through which others serve
// them. A warp has four columns, a lane two states of one of these, which stay in registers.
//
// Config: that of scan_tiles.cuh.
#pragma once
#include "port/tile.cuh"
#include "ptx/barrier.cuh"
#include "recurrent/scan_tensors.cuh"

namespace coda {

template <class Config> struct ScanWalkers {
    typedef typename Config::T T;
    typedef typename Config::D D;
    typedef ScanTensors<Config> Tensors;
    static constexpr i32 states = 16, lanes = 8, own = 2, four = 4; // lanes of a column, states of a lane
    static constexpr i32 columns = Config::columns, fours = columns / four;
    static constexpr i32 tile = Config::tile, quads = tile / four;
    // Tiles that are ready or have been walked; two more come. Warps of each role that serves.
    static constexpr i32 depth = 3, stages = depth + 2, servers = 4, serving = 32 * servers;
    // Of two fours of columns more than schedulers have alike two warps each walk every other tile.
    static constexpr i32 walkers = fours, uneven = walkers % 4, even = walkers - uneven;
    static constexpr i32 threads = 32 * (walkers + uneven + 2 * servers);
    static_assert(Config::each && Config::head_dim == 1 && Config::states == states && sizeof(T) == 2);
    static_assert(threads == Config::threads && columns % 8 == 0 && tile % lanes == 0);

    // Warps are dealt to four schedulers in turn: each gets as many that walk at a time, in the mean, and one
    // of those that make tiles and of those that finish them.
    enum Role { WALK, MAKE, FINISH };
    struct Warp {
        Role role;
        i32 at; // among those of its role
    };
    DEV static constexpr Warp warp(i32 i)
    {
        const i32 behind = i - walkers - uneven;
        if (behind < 0) return {WALK, i};
        return {behind < servers ? MAKE : FINISH, behind % servers};
    }

    // Rows as they are in memory, but first each fourth one from the first on, and so on. Boxes of tensor
    // maps begin at multiples of 128 bytes.
    struct alignas(128) Raw {
        T x[tile][columns];
        D dt[tile][columns];
        T b[tile][states], c[tile][states];
        T gate[Config::gate ? tile : 1][columns];
    };
    // Of four columns, four tokens of each together; fours of columns begin on different banks.
    typedef float Columns[quads * four * four + four];
    // Of two states two tokens: a quad's first ones, then the others.
    typedef float States[quads][2][lanes][four];
    // Lanes leave parts of y in both at once, which are 64 bytes apart in banks.
    static constexpr i32 between = 48 - fours * (i32)(sizeof(Columns) / sizeof(float)) % 32;
    struct Ready {
        Columns step[fours]; // d, and then parts of y
        float gap[between];
        Columns add[fours]; // d x, likewise
        alignas(16) States b, c;
    };
    struct alignas(128) Shared {
        Raw raw[stages];
        Ready ready[depth];
        u64 arrived[stages]; // boxes
        u64 made[depth], walked[depth], finished[depth];
        u64 passed[uneven ? uneven : 1]; // states of columns that two warps walk
        float relay[uneven ? uneven : 1][32][own];
    };

    // A tile's place among `depth`.
    struct Slot {
        i32 at = 0;
        u32 parity = 0;
        DEV void next()
        {
            at = at + 1 == depth ? 0 : at + 1;
            if (at == 0) parity ^= 1;
        }
        DEV void next(i32 n)
        {
            at += n;
            if (at >= depth) at -= depth, parity ^= 1;
        }
    };
    DEV static void wait(const u64 &bar, u32 parity)
    {
        ptx::mbarrier_wait(ptx::shared_address(&bar), parity);
    }
    // A warp has done.
    DEV static void arrive(const u64 &bar)
    {
        __syncwarp();
        if (lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&bar));
    }

    // Which states the lane has, of which of four columns.
    DEV static i32 lane() { return threadIdx.x % 32; }
    DEV static i32 of_states() { return lane() / 2 % 2 + lane() / 8 * 2; }
    DEV static i32 of_column() { return lane() % 2 + lane() / 4 % 2 * 2; }
    // Lanes whose numbers of states differ by 4, 2, 1.
    DEV static constexpr i32 apart(i32 level) { return level == 0 ? 16 : level == 1 ? 8 : 2; }

    struct Column {
        float s[own], a[own];
    };
    // What a warp walks of a tile.
    struct Part {
        Columns &step, &add;
        const States &b, &c;
        float *left; // where the lane leaves parts of y for those who finish
    };
    // What four tokens need; of b and c two of them together.
    struct Quad {
        float d[four], add[four], b[2][four], c[2][four];
    };

    DEV static void load_quad(Quad &to, i32 quad, const Part &part)
    {
        const i32 at = four * (four * quad + of_column());
        port::load_piece(to.d, &part.step[at]);
        port::load_piece(to.add, &part.add[at]);
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
            port::load_piece(to.b[h], part.b[quad][h][of_states()]);
            port::load_piece(to.c[h], part.c[quad][h][of_states()]);
        }
    }

    DEV static Pair of_token(const float (&two)[four], i32 t) { return {two[own * t], two[own * t + 1]}; }
    // A token: the lane's part of s . c.
    DEV static float walk_token(Column &of, float d, float add, Pair b, Pair c)
    {
        of.s[0] = fmaf(math::exp2(d * of.a[0]), of.s[0], add * b.a);
        of.s[1] = fmaf(math::exp2(d * of.a[1]), of.s[1], add * b.b);
        return fmaf(of.s[1], c.b, of.s[0] * c.a);
    }
    // Eight tokens are walked while those of turn `next` come.
    DEV static void walk_turn(Column &of, Quad (&now)[2], float (&v)[lanes], i32 next, const Part &part)
    {
#pragma unroll
        for (i32 h = 0; h < 2; h++) {
#pragma unroll
            for (i32 t = 0; t < four; t++)
                v[four * h + t] = walk_token(of, now[h].d[t], now[h].add[t], of_token(now[h].b[t / 2], t % 2),
                                             of_token(now[h].c[t / 2], t % 2));
            load_quad(now[h], 2 * next + h, part);
        }
    }

    // Sums over lanes that have not been added up to `level`: a lane keeps every half. Two lanes are left
    // with parts of two sums.
    template <i32 level> DEV static void add_up(float (&v)[lanes])
    {
        if constexpr (level < 2) {
            constexpr i32 w = lanes >> (level + 1);
            const bool upper = lane() & apart(level);
#pragma unroll
            for (i32 i = 0; i < w; i++) {
                const float keep = upper ? v[i + w] : v[i], give = upper ? v[i] : v[i + w];
                v[i] = keep + __shfl_xor_sync(~0u, give, apart(level));
            }
            add_up<level + 1>(v);
        }
    }
    // Of a turn's eight tokens the lane gets parts of two, which lie over what all lanes have read: those of
    // odd numbers of states over d, the others over d x.
    DEV static void leave_turn(float (&v)[lanes], i32 turn, const Part &part)
    {
        add_up<0>(v);
        const float two[2] = {v[0], v[1]};
        port::store_piece(part.left + 2 * turn * four * four, two);
    }
    // While the sums of a turn are added, the next one is walked. take() comes when all but states is there,
    // pass() when these are done.
    template <bool whole, class Take, class Pass>
    DEV static void walk_turns(Column &of, i32 turns, const Part &part, const Take &take, const Pass &pass)
    {
        if (whole) turns = tile / lanes;
        Quad now[2];
        float v[lanes];
#pragma unroll
        for (i32 h = 0; h < 2; h++) load_quad(now[h], h, part);
        take();
        walk_turn(of, now, v, min(1, turns - 1), part);
#pragma unroll whole ? tile / lanes : 1
        for (i32 turn = 1; turn < turns; turn++) {
            float sum[lanes];
            walk_turn(of, now, sum, min(turn + 1, turns - 1), part);
            __syncwarp();
            leave_turn(v, turn - 1, part);
#pragma unroll
            for (i32 i = 0; i < lanes; i++) v[i] = sum[i];
        }
        if (whole) pass();
        __syncwarp();
        leave_turn(v, turns - 1, part);
    }
    DEV static void walk_one(Column &of, i32 t, const Part &part)
    {
        const i32 q = of_states(), quad = t / four, at = four * (four * quad + of_column()) + t % four;
        const Pair b = of_token(part.b[quad][t / 2 % 2][q], t % 2),
                   c = of_token(part.c[quad][t / 2 % 2][q], t % 2);
        float y = walk_token(of, part.step[at], part.add[at], b, c);
#pragma unroll
        for (i32 i = 0; i < 3; i++) y += __shfl_xor_sync(~0u, y, apart(i));
        __syncwarp();
        if (q == 0) part.add[at] = y, part.step[at] = -0.0f;
    }

    template <class Place>
    DEV static void walk(const Tensors &in, const Place &at, i32 first, i32 end, Shared &shared)
    {
        const i32 warp = ptx::uniform(threadIdx.x / 32), w = warp < walkers ? warp : warp - uneven;
        const i32 pair = uneven ? w - even : -1, turn = warp >= walkers; // of two warps, if there are two
        const i32 k = four * w + of_column(), q = of_states();
        const bool there = k < at.count && at.batch < in.sequences;
        const i64 element = ((i64)at.batch * Config::heads + at.first + k) * states + own * q;
        Column of;
        if (Config::state && there) port::load_tail(of.s, in.state + element, 1, own);
        else port::load_tail(of.s, in.state, 1, 0);
        port::load_tail(of.a, in.a + (i64)(at.first + min(k, at.count - 1)) * states + own * q, 1, own);
#pragma unroll
        for (i32 i = 0; i < own; i++) of.a[i] *= math::LOG2_E;
        // Of two warps each walks every other tile.
        const i32 every = pair >= 0 ? 2 : 1;
        float *const relay = shared.relay[max(pair, 0)][lane()];
        // Floats from where a Ready begins to where the lane leaves its parts of y.
        const Ready &one = shared.ready[0];
        const i32 leaves = (i32)((q % 2 ? one.step[w] : one.add[w]) - one.step[0]) +
                           (q / 4 * four + of_column()) * four + q / 2 % 2 * 2;
        Slot now;
        if (turn) now.next();
#pragma unroll 1
        for (i32 row = first + turn * tile; row < end; row += every * tile, now.next(every)) {
            const i32 count = min(tile, end - row);
            Ready &ready = shared.ready[now.at];
            const Part part = {ready.step[w], ready.add[w], ready.b, ready.c, ready.step[0] + leaves};
            const auto take = [&] {
                if (pair < 0 || row == first) return;
                wait(shared.passed[pair], turn ^ 1);
                port::load_tail(of.s, relay, 1, own);
            };
            const auto pass = [&] {
                if (pair < 0) return;
                port::store_tail(relay, of.s, 1, own);
                arrive(shared.passed[pair]);
            };
            wait(shared.made[now.at], now.parity);
            if (count == tile) {
                walk_turns<true>(of, 0, part, take, pass);
            } else {
                take();
                if (count >= lanes)
                    walk_turns<false>(
                        of, count / lanes, part, [] {}, [] {});
#pragma unroll 1
                for (i32 t = count / lanes * lanes; t < count; t++) walk_one(of, t, part);
                pass();
            }
            arrive(shared.walked[now.at]);
        }
        const i32 tiles = (end - first + tile - 1) / tile;
        const bool last = pair < 0 || (tiles > 0 ? (tiles - 1) % 2 : 0) == turn;
        if (Config::after && there && last) port::store_tail(in.after + element, of.s, 1, own);
    }
};

} // namespace coda
