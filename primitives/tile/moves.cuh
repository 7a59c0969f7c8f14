// moves.cuh -- the tiles that TMA moves between an epilogue and memory: what their elements are made of.
//
// An Epilogue lists them: `using Staged = Moves<Whole<bf16, 0>, Whole<float, 1>>;`. Numbers are those of the
// lines that apply() gets or makes. A tile has an element of 2 or 4 bytes for each column of the output.
// Of an octet, a thread holds those of two neighbours, as `words` registers of 32 bits: one with both, or one
// for each. pack() makes the words of a patch's octet `side`, unpack() is the way back; lib/schedule/moves.h
// has the same forms.
//
// It stands on Line (access.cuh).
#pragma once

#include "tile/access.cuh"

namespace coda {

template <class... Move> struct Moves {
    static constexpr int count = sizeof...(Move);
    static constexpr int bytes = (0 + ... + Move::bytes); // of one column
    static constexpr int lines = (0 + ... + Move::lines);
    // f(move, its number, bytes of one column of those before it)
    template <class F> DEV static void each(F f)
    {
        int i = 0, before = 0;
        ((f(Move{}, i++, before), before += Move::bytes), ...);
    }
};

// One value. `upper`: that of octet B of a gated patch, else of octet A.
template <class T, int line, bool upper = false> struct Whole {
    static constexpr int bytes = sizeof(T), words = bytes / 2, lines = 1;
    static constexpr bool adds = false;
    DEV static void pack(u32 (&w)[words], const Line *x, int side)
    {
        const float(&y)[2] = x[line].x[upper ? 1 : side];
        if constexpr (bytes == 2) w[0] = pack2<T>(y[0], y[1]);
        else w[0] = float_bits(y[0]), w[1] = float_bits(y[1]);
    }
    DEV static void unpack(const u32 (&w)[words], Line *x, int side)
    {
        float(&y)[2] = x[line].x[upper ? 1 : side];
        if constexpr (bytes == 2) {
            const Pair p = unpack2<T>(w[0]);
            y[0] = p.a, y[1] = p.b;
        } else y[0] = bits_float(w[0]), y[1] = bits_float(w[1]);
    }
};
template <class T, int line> struct Upper : Whole<T, line, true> {
    static constexpr int lines = 0; // it is that of the gate's
};

// A staged tile that is added to what memory holds.
template <class Move> struct Adds : Move {
    static constexpr bool adds = true;
};

// Both columns of a gated pair, which are neighbours in memory.
template <class T, int line> struct Lanes {
    static constexpr int bytes = 4, words = 2, lines = 1;
    static constexpr bool adds = false;
    DEV static void pack(u32 (&w)[words], const Line *x, int)
    {
#pragma unroll
        for (int e = 0; e < 2; e++) w[e] = pack2<T>(x[line].x[0][e], x[line].x[1][e]);
    }
    DEV static void unpack(const u32 (&w)[words], Line *x, int)
    {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const Pair p = unpack2<T>(w[e]);
            x[line].x[0][e] = p.a, x[line].x[1][e] = p.b;
        }
    }
};

// Values of two lines, which are neighbours in memory.
template <class T, int first, int second> struct Twins {
    static constexpr int bytes = 4, words = 2, lines = 2;
    static constexpr bool adds = false;
    DEV static void pack(u32 (&w)[words], const Line *x, int side)
    {
#pragma unroll
        for (int e = 0; e < 2; e++) w[e] = pack2<T>(x[first].x[side][e], x[second].x[side][e]);
    }
    DEV static void unpack(const u32 (&w)[words], Line *x, int side)
    {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const Pair p = unpack2<T>(w[e]);
            x[first].x[side][e] = p.a, x[second].x[side][e] = p.b;
        }
    }
};

} // namespace coda
