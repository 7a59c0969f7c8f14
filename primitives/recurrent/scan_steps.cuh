// scan_steps.cuh -- a selective scan token by token: states stay in registers from the first token of a
// sequence to the last. (Gu and Dao, arXiv 2312.00752; one decay for a head: Dao and Gu, arXiv 2405.21060.)
//
//     d = dt + bias, or softplus of it;  s = e^(d a) s + d x b;  y = (s . c + skip x) silu(gate)
//
// A block has some neighbouring columns of one group of heads, of one sequence, and a tile of tokens at a
// time: b and c, which all its columns read, and d, d x and, of one decay for a head, e^(d a) of each column
// lie in shared memory. A team of `lanes` has `rows` columns, a lane `own` neighbouring states of each. The
// sums of s . c over a team are added for as many pairs of token and column together as it has lanes, so that
// each lane ends with the sum of one pair. In which order a sum is added depends on the number of states
// alone: equal tokens leave equal bits however they are spread over tiles and runs.
//
// Whoever writes an element of `after` has read it of `state`: both may be one memory.
//
// Config: types T (x, b, c, gate, y), D (dt), S (state), A (after), I (starts); i32 heads, head_dim, groups,
// states, lanes, own, rows, threads, tokens; bool each (a is [heads][states]), softplus, bias, skip, gate,
// packed, state, after, y (they are there), pieces (a lane's states move as one); i64 starts_stride.
#pragma once
#include "map/silu.cuh"
#include "port/tile.cuh"
#include "recurrent/scan_tensors.cuh"

namespace coda {

template <class Config> struct ScanSteps {
    typedef typename Config::T T;
    static constexpr i32 lanes = Config::lanes, own = Config::own, rows = Config::rows;
    static constexpr i32 threads = Config::threads, teams = threads / lanes, columns = teams * rows;
    static constexpr i32 states = Config::states, padded = own * lanes;
    static constexpr i32 tokens = Config::tokens, turn = lanes / rows; // tokens whose sums are added together
    static constexpr i32 of_group = Config::heads / Config::groups * Config::head_dim; // columns
    static constexpr i32 tiles = (of_group + columns - 1) / columns;
    static constexpr i32 all = Config::heads * Config::head_dim;
    static_assert(32 % lanes == 0 && lanes % rows == 0 && threads % 32 == 0);
    static_assert(tokens % turn == 0 || tokens < turn);
    static_assert(padded >= states && Config::heads % Config::groups == 0);

    struct Shared {
        alignas(16) float b[tokens][padded];
        alignas(16) float c[tokens][padded];
        float step[tokens][columns]; // d, or e^(d a)
        float add[tokens][columns];  // d x, then y
    };

    typedef ScanTensors<Config> Tensors;

    // What a block has: columns from `first` on, of which there are `count`, in the group's tensors b and c.
    struct Place {
        i32 batch, group, first, count;
        i64 x, dt, b, c, gate, y; // where the sequence's batch begins
    };

    DEV static Place place(const Tensors &in, u32 index)
    {
        const i32 tile = index % (tiles * Config::groups), batch = index / (tiles * Config::groups);
        const i32 group = tile / tiles, first = tile % tiles * columns;
        const i64 of = Config::packed ? 0 : batch;
        return {batch,           group,           group * of_group + first, min(columns, of_group - first),
                of * in.of_x.batch, of * in.of_dt.batch, of * in.of_b.batch, of * in.of_c.batch,
                of * in.of_gate.batch, of * in.of_y.batch};
    }

    // ---- States ----

    DEV static i64 of_state(const Place &at, i32 r)
    {
        const i32 team = threadIdx.x / lanes, lane = threadIdx.x % lanes;
        return ((i64)at.batch * all + at.first + team * rows + r) * states + lane * own;
    }
    // Has the thread such a column, of a sequence that there is? If rows divide a group, all or none.
    DEV static bool has(const Tensors &in, const Place &at, i32 r)
    {
        const i32 row = threadIdx.x / lanes * rows + (of_group % rows ? r : 0);
        return row < at.count && at.batch < in.sequences;
    }

    template <class S> DEV static void load_states(float (&s)[own], const S *p)
    {
        if constexpr (Config::pieces) port::load_piece(s, p);
        else port::load_tail(s, p, 1, states - (i32)threadIdx.x % lanes * own);
    }

    DEV static void begin(const Tensors &in, const Place &at, float (&s)[rows][own])
    {
#pragma unroll
        for (i32 r = 0; r < rows; r++) {
#pragma unroll
            for (i32 i = 0; i < own; i++) s[r][i] = 0.0f;
            if constexpr (Config::state)
                if (has(in, at, r)) load_states(s[r], in.state + of_state(at, r));
        }
    }

    DEV static void end(const Tensors &in, const Place &at, const float (&s)[rows][own])
    {
        if constexpr (Config::after)
#pragma unroll
            for (i32 r = 0; r < rows; r++) {
                if (!has(in, at, r)) continue;
                if constexpr (Config::pieces) port::store_piece(in.after + of_state(at, r), s[r]);
                else
                    port::store_tail(in.after + of_state(at, r), s[r], 1,
                                     states - (i32)threadIdx.x % lanes * own);
            }
    }

    // a log2 e of the lane's states, where each has its own.
    DEV static void load_rates(const Tensors &in, const Place &at, float (&a)[rows][own])
    {
        const i32 team = threadIdx.x / lanes, lane = threadIdx.x % lanes;
#pragma unroll
        for (i32 r = 0; r < rows; r++) {
            const i32 column = at.first + min(team * rows + r, at.count - 1);
            const float *const p = in.a + (i64)(column / Config::head_dim) * states + lane * own;
#pragma unroll
            for (i32 i = 0; i < own; i++)
                a[r][i] = lane * own + i < states ? p[i] * math::LOG2_E : 0.0f;
        }
    }

    // ---- Tiles of tokens ----

    // b and c of `count` tokens from row `row` on; behind the states are zeros.
    DEV static void bring_groups(const Tensors &in, const Place &at, i32 row, i32 count, Shared &shared)
    {
        const T *const b = in.b + at.b + row * in.of_b.time + at.group * states;
        const T *const c = in.c + at.c + row * in.of_c.time + at.group * states;
#pragma unroll 4
        for (i32 i = threadIdx.x; i < count * padded; i += threads) {
            const i32 t = i / padded, n = i % padded;
            const bool there = n < states;
            shared.b[t][n] = there ? to_float(b[t * in.of_b.time + n]) : 0.0f;
            shared.c[t][n] = there ? to_float(c[t * in.of_c.time + n]) : 0.0f;
        }
    }

    DEV static void bring_columns(const Tensors &in, const Place &at, i32 row, i32 count, Shared &shared)
    {
#pragma unroll 1
        for (i32 i = threadIdx.x; i < count * columns; i += threads) {
            const i32 t = i / columns, k = i % columns, column = at.first + k;
            const i32 head = column / Config::head_dim;
            if (k >= at.count) continue;
            const float d = Tensors::make_step(to_float(in.dt[at.dt + (row + t) * in.of_dt.time + head]),
                                               Config::bias ? in.bias[head] : 0.0f);
            shared.step[t][k] = Config::each ? d : math::exp(d * in.a[head]);
            shared.add[t][k] = d * to_float(in.x[at.x + (row + t) * in.of_x.time + column]);
        }
    }

    DEV static void leave_columns(const Tensors &in, const Place &at, i32 row, i32 count,
                                  const Shared &shared)
    {
        if constexpr (Config::y)
#pragma unroll 1
            for (i32 i = threadIdx.x; i < count * columns; i += threads) {
                const i32 t = i / columns, k = i % columns, column = at.first + k;
                if (k >= at.count) continue;
                float y = shared.add[t][k];
                if (Config::skip)
                    y = fmaf(in.skip[column / Config::head_dim],
                             to_float(in.x[at.x + (row + t) * in.of_x.time + column]), y);
                if (Config::gate)
                    y *= map::silu::apply(to_float(in.gate[at.gate + (row + t) * in.of_gate.time + column]));
                in.y[at.y + (row + t) * in.of_y.time + column] = from_float<T>(y);
            }
    }

    // Rows of no sequence.
    DEV static void clear(const Tensors &in, const Place &at, i32 row, i32 end)
    {
        if constexpr (Config::y)
            for (i32 i = threadIdx.x; i < (end - row) * columns; i += threads)
                if (i % columns < at.count)
                    in.y[at.y + (row + i / columns) * in.of_y.time + at.first + i % columns] =
                        from_float<T>(0.0f);
    }

    // ---- Steps ----

    // The sum over the team of each of `lanes` numbers: lane i gets that of number i as v[0].
    template <i32 w> DEV static void add_up(float (&v)[lanes])
    {
        if constexpr (w > 0) {
            const bool upper = threadIdx.x & w;
#pragma unroll
            for (i32 i = 0; i < w; i++) {
                const float keep = upper ? v[i + w] : v[i], give = upper ? v[i] : v[i + w];
                v[i] = keep + __shfl_xor_sync(~0u, give, w);
            }
            add_up<w / 2>(v);
        }
    }

    // One token of the tile: the lane's part of s . c of its columns.
    DEV static void step(float (&s)[rows][own], const float (&a)[rows][own], const Shared &shared, i32 t,
                         float *y)
    {
        const i32 team = threadIdx.x / lanes, lane = threadIdx.x % lanes;
        float b[own], c[own];
        load_own(b, &shared.b[t][lane * own]);
        load_own(c, &shared.c[t][lane * own]);
#pragma unroll
        for (i32 r = 0; r < rows; r++) {
            const float by = shared.step[t][team * rows + r], add = shared.add[t][team * rows + r];
            float sum = 0.0f;
#pragma unroll
            for (i32 i = 0; i < own; i++) {
                const float decay = Config::each ? math::exp2(by * a[r][i]) : by;
                s[r][i] = fmaf(decay, s[r][i], add * b[i]);
                sum = fmaf(s[r][i], c[i], sum);
            }
            y[r] = sum;
        }
    }
    DEV static void load_own(float (&v)[own], const float *p)
    {
        if constexpr ((own & (own - 1)) == 0) port::load_piece(v, p);
        else port::load_tail(v, p, 1, own);
    }

    // As many tokens as there are lanes for the sums of their columns.
    DEV static void walk_turn(float (&s)[rows][own], const float (&a)[rows][own], i32 first, Shared &shared)
    {
        const i32 team = threadIdx.x / lanes, lane = threadIdx.x % lanes;
        float v[lanes];
#pragma unroll
        for (i32 t = 0; t < turn; t++) step(s, a, shared, first + t, &v[t * rows]);
        add_up<lanes / 2>(v);
        __syncwarp(); // all lanes have read what y lies over
        shared.add[first + lane / rows][team * rows + lane % rows] = v[0];
    }

    // One token; its sums are added in the same order.
    DEV static void walk_one(float (&s)[rows][own], const float (&a)[rows][own], i32 t, Shared &shared)
    {
        const i32 team = threadIdx.x / lanes, lane = threadIdx.x % lanes;
        float v[rows];
        step(s, a, shared, t, v);
#pragma unroll
        for (i32 r = 0; r < rows; r++) {
#pragma unroll
            for (i32 w = lanes / 2; w; w /= 2) v[r] += __shfl_xor_sync(~0u, v[r], w);
        }
        __syncwarp();
#pragma unroll
        for (i32 r = 0; r < rows; r++)
            if (lane == r) shared.add[t][team * rows + r] = v[r];
    }

    DEV static void walk(float (&s)[rows][own], const float (&a)[rows][own], i32 count, Shared &shared)
    {
        i32 t = 0;
        if constexpr (turn <= tokens) {
#pragma unroll 1
            for (; t + turn <= count; t += turn) walk_turn(s, a, t, shared);
        }
#pragma unroll 1
        for (; t < count; t++) walk_one(s, a, t, shared);
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        Shared &shared = *reinterpret_cast<Shared *>(block.shared());
        const Place at = place(in, block.index());
        float s[rows][own], a[rows][own] = {};
        begin(in, at, s);
        if constexpr (Config::each) load_rates(in, at, a);
        const SequenceRows of = in.find_rows(at.batch);
        const i32 first = of.first, behind = of.end;
        if (Config::packed && at.batch == 0) clear(in, at, 0, first);
        if (Config::packed && at.batch + 1 >= in.sequences) clear(in, at, behind, in.rows);
#pragma unroll 1
        for (i32 row = first; row < behind; row += tokens) {
            const i32 count = min(tokens, behind - row);
            bring_groups(in, at, row, count, shared);
            bring_columns(in, at, row, count, shared);
            __syncthreads();
            walk(s, a, count, shared);
            __syncthreads();
            leave_columns(in, at, row, count, shared);
        }
        end(in, at, s);
    }
};

} // namespace coda
