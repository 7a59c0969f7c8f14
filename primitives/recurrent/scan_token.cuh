// scan_token.cuh -- one token of each sequence of a selective scan with a decay for each state, which is
// scan_steps.cuh with the same bits, but for one thing: steps may come as a product of few terms.
//
//     dt = w r                r [rank] of the token, w [heads][rank]
//
// One token is a chain of trips to memory and nothing else. Here it is one trip: what no kernel of the run
// writes is asked for before the one ahead has ended (Config::early), all else at once behind that. Teams are
// those of ScanSteps, each of one column; its lanes share the terms of the product, in pieces of 16 bytes.
//
// Config: as ScanSteps; heads are columns. bool early; waits (there is a kernel ahead); i32 rank, 0: dt are
// steps; i64 weights_row, from a row of w to the next.
#pragma once
#include "ptx/control.cuh"
#include "recurrent/scan_steps.cuh"

namespace coda {

template <class Config> struct ScanToken {
    typedef ScanSteps<Config> Steps;
    typedef typename Config::T T;
    typedef typename Steps::Tensors Tensors;
    typedef typename Steps::Place Place;
    static constexpr i32 lanes = Steps::lanes, own = Steps::own, states = Steps::states;
    static constexpr i32 rank = Config::rank, piece = 8;
    static constexpr i32 pieces = (rank + piece * lanes - 1) / (piece * lanes); // of a lane
    static_assert(Steps::rows == 1 && Config::each && Config::head_dim == 1 && rank % piece == 0);

    struct Shared {};

    // Terms of the lane as they lie in memory; without any there is one piece of zeros.
    struct Terms {
        port::Vector<T, piece> at[pieces + (pieces == 0)];
    };
    DEV static void load_terms(Terms &to, const T *p)
    {
#pragma unroll
        for (i32 i = 0; i < pieces; i++) {
            const i32 first = (i * lanes + (i32)threadIdx.x % lanes) * piece;
            to.at[i] = {};
            if (first < rank) to.at[i] = *reinterpret_cast<const port::Vector<T, piece> *>(p + first);
        }
    }
    // The sum of the team's products, in each lane.
    DEV static float add_team(float x)
    {
#pragma unroll
        for (i32 w = lanes / 2; w; w /= 2) x += __shfl_xor_sync(~0u, x, w);
        return x;
    }
    DEV static float multiply(const Terms &w, const Terms &r)
    {
        float sum = 0.0f;
#pragma unroll
        for (i32 i = 0; i < pieces; i++) {
            float a[piece], b[piece];
            port::load_words(a, w.at[i].at);
            port::load_words(b, r.at[i].at);
#pragma unroll
            for (i32 k = 0; k < piece; k++) sum = fmaf(a[k], b[k], sum);
        }
        return add_team(sum);
    }

    // The lane's states of a group's b or c; behind the states are zeros.
    DEV static void load_group(float (&to)[own], const T *p)
    {
        const i32 first = (i32)threadIdx.x % lanes * own;
#pragma unroll
        for (i32 i = 0; i < own; i++) to[i] = first + i < states ? to_float(p[first + i]) : 0.0f;
    }

    // What the column has besides the token.
    struct Column {
        float s[1][own], a[1][own], bias, skip;
        Terms w;
    };
    DEV static void load_column(Column &c, const Tensors &in, const Place &at, i32 column)
    {
        Steps::begin(in, at, c.s);
        Steps::load_rates(in, at, c.a);
        c.bias = Config::bias ? in.bias[column] : 0.0f;
        c.skip = Config::skip ? in.skip[column] : 0.0f;
        if constexpr (rank > 0) load_terms(c.w, in.weights + column * Config::weights_row);
    }

    // The token's numbers.
    struct Token {
        float x, gate, dt, b[own], c[own];
        Terms r;
    };
    DEV static void load_token(Token &t, const Tensors &in, const Place &at, i32 column)
    {
        t.x = to_float(in.x[at.x + column]);
        t.gate = Config::gate ? to_float(in.gate[at.gate + column]) : 0.0f;
        if constexpr (rank > 0) load_terms(t.r, in.dt + at.dt);
        else t.dt = to_float(in.dt[at.dt + column]);
        load_group(t.b, in.b + at.b + at.group * states);
        load_group(t.c, in.c + at.c + at.group * states);
    }

    // y; the states are those behind the token.
    DEV static float walk(Column &c, const Token &t)
    {
        float dt = t.dt, sum = 0.0f;
        if constexpr (rank > 0) dt = multiply(c.w, t.r);
        const float by = Tensors::make_step(dt, c.bias), add = by * t.x;
#pragma unroll
        for (i32 i = 0; i < own; i++) {
            c.s[0][i] = fmaf(math::exp2(by * c.a[0][i]), c.s[0][i], add * t.b[i]);
            sum = fmaf(c.s[0][i], t.c[i], sum);
        }
        float y = add_team(sum);
        if (Config::skip) y = fmaf(c.skip, t.x, y);
        if (Config::gate) y *= map::silu::apply(t.gate);
        return y;
    }

    template <class Block> DEV static void run(const Block &block, const Tensors &in)
    {
        const Place at = Steps::place(in, block.index());
        const i32 team = threadIdx.x / lanes, column = at.first + min(team, at.count - 1);
        Column c;
        Token t;
        if constexpr (Config::early) load_column(c, in, at, column);
        if constexpr (Config::waits) ptx::grid_wait();
        if constexpr (!Config::early) load_column(c, in, at, column);
        load_token(t, in, at, column);
        const SequenceRows of = in.find_rows(at.batch);
        if (Config::packed && at.batch == 0) Steps::clear(in, at, 0, of.first);
        if (Config::packed && at.batch + 1 >= in.sequences) Steps::clear(in, at, of.end, in.rows);
        if (of.first < of.end) {
            const float y = walk(c, t);
            if (Config::y && Steps::has(in, at, 0) && threadIdx.x % lanes == 0)
                in.y[at.y + column] = from_float<T>(y);
        }
        Steps::end(in, at, c.s);
    }
};

} // namespace coda
