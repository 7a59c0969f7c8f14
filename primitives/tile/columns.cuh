// columns.cuh -- which columns of a tile meet in one thread.
//
// A warp holds 16 rows of the tile; its columns come in octets of 8, of which a thread holds two
// neighbours, 2 (lane % 4) and the next, in each of two rows. The epilogue walks patches of two octets,
// A and B. A slot is what one step of arithmetic sees: one element, or the two lanes of a pair.
#pragma once

#include "types.cuh"

namespace coda {

// A layout says: lanes of a slot; whether these lie apart, in octets A and B, or are neighbours; whether
// the output has half the columns (gated); octet(patch, side) of A (0) and B (1); the output columns that
// must be finished together (chunk); the tensor column of column j of a tile that begins with column `tile`
// of the product; and, for a thread whose first column in the tile is j, how far its columns in an octet are
// from that, and from each other (step). B is loaded as the columns lie in the tensor, or in halves (gated)
// or pieces of heads (split).

template <int bn> struct Plain {
    static constexpr int lanes = 1, chunk = 64;
    static constexpr bool apart = false, gated = false, split = false;
    DEV static constexpr int octet(int patch, int side) { return 2 * patch + side; }
    DEV static int column(int tile, int j) { return tile + j; }
    DEV static constexpr int distance(int, int octet) { return 8 * octet; }
    static constexpr int step = 1;
};

// Neighbours 2i and 2i + 1 are a pair.
template <int bn> struct Neighbours : Plain<bn> {
    static constexpr int lanes = 2;
};

constexpr int common_multiple(int a, int b)
{
    int n = a;
    while (n % b) n += a;
    return n;
}

// Columns i and i + rotary / 2 of each head are a pair; so are the halves of what is left of the head.
// A tile holds whole heads.
template <int bn, int head, int rotary> struct HalfHeads : Plain<bn> {
    static constexpr int lanes = 2, chunk = common_multiple(head, 64);
    static constexpr bool apart = true;
    DEV static constexpr int octet(int patch, int side)
    {
        const int first = patch / (head / 16) * (head / 8), i = patch % (head / 16);
        return first + (i < rotary / 16 ? i + side * (rotary / 16)
                                        : rotary / 16 + i + side * ((head - rotary) / 16));
    }
};

// The same for tiles that are no whole heads: each 64 columns of a tile are a piece of a head, 32 first
// columns of pairs and the 32 second ones.
template <int bn, int head> struct SplitHeads : Plain<bn> {
    static constexpr int lanes = 2, pieces = head / 64; // of a head
    static constexpr bool apart = true, split = true;
    DEV static constexpr int octet(int patch, int side) { return patch / 4 * 8 + patch % 4 + 4 * side; }
    DEV static constexpr int column(int tile, int j)
    {
        const int piece = tile / 64 + j / 64, side = j % 64 / 32;
        return piece / pieces * head + piece % pieces * 32 + side * (head / 2) + j % 32;
    }
    DEV static constexpr int distance(int tile, int octet)
    {
        return column(tile, 8 * octet) - column(tile, 0);
    }
};

// The left half of the tile is gate, the right half up: columns i and i + n / 2 of the product, or 2i and
// 2i + 1 if they are interleaved.
template <int bn, int n, bool interleaved> struct Gated : Plain<bn> {
    static constexpr int lanes = 2;
    static constexpr bool apart = true, gated = true;
    DEV static constexpr int octet(int patch, int side) { return patch + side * (bn / 16); }
    DEV static int half_column(int tile, int i) { return tile / 2 + i; }
    DEV static int column(int tile, int j)
    {
        const int i = half_column(tile, j % (bn / 2)), side = j / (bn / 2);
        return interleaved ? 2 * i + side : i + side * (n / 2);
    }
    DEV static constexpr int distance(int, int octet)
    {
        const int i = octet % (bn / 16) * 8, side = octet / (bn / 16);
        return interleaved ? 2 * i + side : i + side * (n / 2);
    }
    static constexpr int step = interleaved ? 2 : 1;
};

} // namespace coda
