// weights.cuh -- how a product's weights lie in memory: elements of a type by strides, or packed, as codes of
// few bits with scales. The one device file that knows formats; lib/pack/pack.h has the layout to the bit.
//
// Of a packed format a weight is (q - z) s or q s + m in fp32, with one rounding at most, as the host has it:
// all other products here fit in 24 bits.
#pragma once

#include "types.cuh"

namespace coda {

enum class Codes { int4 = 1, int5, int6, int8, e2m1, e4m3, e5m2 };
enum class Scales { f32 = 1, bf16, f16, e8m0, e4m3, f16u6, f16i8 };
enum class Zeros { none, points, minimum };

// ---- What codes and scales are as numbers ----

template <Codes codes> DEV float code_value(u32 q)
{
    if constexpr (codes == Codes::e4m3) return to_float(f8e4m3{(u8)q});
    else if constexpr (codes == Codes::e5m2) return to_float(f8e5m2{(u8)q});
    else if constexpr (codes == Codes::e2m1) { // a sign, 2 bits of exponent, 1 of mantissa
        const u32 e = q >> 1 & 3, m = q & 1;
        return bits_float((q & 8) << 28 | (e ? (126 + e) << 23 | m << 22 : m * 0x3f000000));
    } else if constexpr (codes == Codes::int8) return (float)(i8)q;
    else return (float)(i32)q;
}

// Both codes of pair p of a word of e2m1, a half each: the sign at bit 15, the others at 8, 7, 6, as
// rotations to the left by 0, 4, 10 and 14 have them; those of the last pair but for the lowest bits, which
// lie at 0 and 16 of the word.
DEV u32 e2m1_halves(u32 w, int p)
{
    const int turn = p < 2 ? 4 * p : 6 + 4 * (p - 1);
    const u32 x = turn ? w << turn | w >> (32 - turn) : w;
    return p < 3 ? x & 0x81c081c0 : (x & 0x81808180) | (w << 6 & 0x00400040);
}
// The same of pair 2 or, of a word that is turned by 4 already, 3.
DEV u32 e2m1_last_halves(u32 w, bool third)
{
    const u32 lowest = third ? 0x00400040 : 0;
    return ((w << 10 | w >> 22) & (0x81c081c0 ^ lowest)) | (w << 2 & lowest);
}

// What codes of 8 bits are as elements.
template <Codes codes> struct ElementOf {
    using Type = i8;
};
template <> struct ElementOf<Codes::e4m3> {
    using Type = f8e4m3;
};
template <> struct ElementOf<Codes::e5m2> {
    using Type = f8e5m2;
};

template <Scales scales> DEV float scale_value(const u8 *at, int i)
{
    if constexpr (scales == Scales::f32) return ((const float *)at)[i];
    else if constexpr (scales == Scales::bf16) return to_float(((const bf16 *)at)[i]);
    else if constexpr (scales == Scales::e8m0) // 0 is a subnormal number, 255 is none: by the bit below
        return bits_float((u32)at[i] << 23 | ((u8)(at[i] + 1) < 2 ? 0x00400000 : 0));
    else if constexpr (scales == Scales::e4m3) return to_float(((const f8e4m3 *)at)[i]);
    else return to_float(((const f16 *)at)[i]);
}

// ---- Elements of a type, which products read as another ----

template <class T> struct Elements {
};

// ---- A packed matrix of so many columns ----

// Places in the records that a group of `along` takes, as lib/pack/pack.h has it: of the next larger one that
// is whole products. 0: all of a row.
constexpr int places_of(int along)
{
    return along > 64 ? (along + 127) / 128 * 128 : along > 32 ? 64 : along > 16 ? 32 : along ? 16 : 0;
}

// Where column k is in the records of its row.
template <int along> DEV constexpr i64 place_of(i64 k)
{
    if constexpr (places_of(along) == along) return k;
    else return k / along * places_of(along) + k % along;
}

template <Codes codes, Scales scales, Zeros zeros, int along, i64 columns> struct Packed {
    static constexpr int bits = codes == Codes::int5                           ? 5
                                : codes == Codes::int6                         ? 6
                                : codes == Codes::int4 || codes == Codes::e2m1 ? 4
                                                                               : 8;
    static constexpr bool minima = zeros == Zeros::minimum;
    static constexpr bool two_levels = scales == Scales::f16u6 || scales == Scales::f16i8;
    static constexpr int places = places_of(along);
    static constexpr bool has_gaps = places != along, wide = places == 0 || places >= 128;
    static constexpr int tile = bits == 8 ? 64 : 128, step = two_levels ? 256 : wide ? 128 : tile;
    static constexpr int group = wide ? step : places, groups = step / group;
    static constexpr int scale_bytes = scales == Scales::f32                             ? 4
                                       : scales == Scales::bf16 || scales == Scales::f16 ? 2
                                                                                         : 1;
    static constexpr i64 width = columns;
    static constexpr bool floats = codes == Codes::e2m1 || codes == Codes::e4m3 || codes == Codes::e5m2;
    // Have its values 8 bits at most, and the range of bf16?
    static constexpr bool narrow = floats && (scales == Scales::e8m0 || scales == Scales::e4m3);
    static constexpr bool small = codes == Codes::e2m1 && scales == Scales::e4m3; // as f16 has them
    template <class Element, bool fits = small> struct Part {
        typedef bf16 type;
    };
    template <class Element> struct Part<Element, true> {
        typedef Element type;
    };
    // Places in a record, in bytes: codes, upper bits, scales, zero points or minima.
    static constexpr int high = 1024 * (step / tile), first_scale = high + (bits & 3) * step * 2;
    static constexpr int one = scales == Scales::f16u6   ? 256
                               : scales == Scales::f16i8 ? groups * 16 + 32
                                                         : scale_bytes * groups * 16;
    static constexpr int second = first_scale + one;
    static constexpr int bytes = second + (zeros == Zeros::points                   ? groups * 16
                                           : zeros == Zeros::minimum && !two_levels ? one
                                                                                    : 0);
    DEV static i64 place(i64 k) { return place_of<along>(k); }
    // Are n columns from a multiple of n on neighbours with one scale? n: 4 or 8.
    template <int n> static constexpr bool together = !has_gaps || along % n == 0;
    static constexpr i64 records = place_of<along>(columns - 1) / step + 1, block = records * bytes;
    // What integers count from, without zero points and minima.
    static constexpr int middle = zeros != Zeros::none   ? 0
                                  : codes == Codes::int4 ? 8
                                  : codes == Codes::int5 ? 16
                                  : codes == Codes::int6 ? 32
                                                         : 0;

    DEV static u32 word(const u8 *at) { return *(const u32 *)at; }
    // Of two levels what rows r and r + 8 of a record, r < 8, have side by side: d, and of minima -dmin, in
    // f16; and a word that lane t of four reads for group t of a run of 128 k, and t + 4 if there are eight.
    // In 6 bits a group has 8 bits of each half of it, and 4 of another one; in 8 bits two of its bytes.
    struct LevelWords {
        u32 d, m, lower, upper;
    };
    // Where these are, and how a group's come to the same bits.
    struct LevelPlace {
        static constexpr bool bytes = scales == Scales::f16i8;
        static constexpr float unit = bytes ? 1 : 0.25f; // of a scale as it lies
        u32 levels, lower, upper, shift, turn;
        DEV static LevelPlace of(int r, int run, int t)
        {
            if constexpr (bytes)
                return {first_scale + 256u + 4 * r, first_scale + 128u * run + 16 * r + 4 * t, 0, 0, 0};
            return {first_scale + 8u * r, first_scale + 128u + run * 64 + r * 8 + t / 2 * 4,
                    first_scale + 64u + run * 32 + r * 4, t % 2 * 8u, (t * 4 + 30u) % 32};
        }
        DEV LevelWords words(const u8 *record) const
        {
            if constexpr (bytes) return {word(record + levels), 0, word(record + lower), 0};
            return {word(record + levels), word(record + levels + 4), word(record + lower),
                    word(record + upper)};
        }
        // The scale at bits 2 to 7 of each half, bits 0 and 1 of the minimum there, its bits 2 to 5 likewise.
        static constexpr u32 scale_bits = 0x00fc00fc, low_bits = 0x00030003, high_bits = 0x003c003c;
        DEV u32 low(const LevelWords &w) const { return w.lower >> shift; }
        DEV u32 high(const LevelWords &w) const { return w.upper >> turn | w.upper << (32 - turn); }
    };
    // Rows r and r + 8 side by side.
    DEV static int beside(int r) { return r % 8 * 2 + r / 8; }

    // Code (r, k) of a record. Of 32 lanes 4 (r % 8) + t has it.
    DEV static u32 code(const u8 *record, int r, int k)
    {
        const int in_tile = k % tile, t = k % 16 / 4, lane = r % 8 * 4 + t;
        const u8 *own = record + k / tile * 1024 + r / 8 * 512 + lane * 16;
        if constexpr (bits == 8) return own[in_tile / 16 * 4 + k % 4];
        const int j = in_tile / 32, p = in_tile / 16 % 2 * 2 + k % 4 / 2, odd = k % 2;
        const u32 w = word(own + 4 * j);
        if constexpr (codes == Codes::e2m1) return e2m1_codes(w, p) >> 16 * odd & 15;
        u32 q = w >> (4 * p + 16 * odd) & 15;
        if constexpr ((bits & 3) != 0) {
            constexpr int n = bits & 3;
            const int at = n * (4 * j + p);
            const u8 *upper = record + high + ((k / tile * 32 + lane) * 2 + r / 8) * 4 * n;
            q |= (word(upper + at / 16 * 4) >> (at % 16 + 16 * odd) & ((1 << n) - 1)) << 4;
        }
        return q;
    }
    // Both codes of pair p of a word of e2m1, at 0 and 16.
    DEV static u32 e2m1_codes(u32 w, int p)
    {
        const u32 x = e2m1_halves(w, p);
        return (x >> 12 & 0x00080008) | (x >> 6 & 0x00070007);
    }

    // q's scale, and what is taken off q before it, or added behind it.
    struct Scale {
        float s, m;
        int z;
    };
    DEV static Scale scale(const u8 *record, int r, int k)
    {
        const int g = k % step / group, i = beside(r), at = 16 * g + i;
        const u8 *first = record + first_scale;
        if constexpr (two_levels) {
            constexpr int of_run = 128 / group;
            const int up = r / 8 * 16;
            const LevelPlace place = LevelPlace::of(r % 8, g / of_run, g % 4);
            const LevelWords w = place.words(record);
            const Pair ds = unpack2<f16>(w.d);
            const float d = up ? ds.b : ds.a;
            if constexpr (scales == Scales::f16i8)
                return {d * (float)(i8)(w.lower >> (g % 8 / 4 * 16 + up / 2)), 0, middle};
            const u32 low = place.low(w) >> up, high = place.high(w) >> up, b = (low & 3) | (high & 60);
            const Pair m = unpack2<f16>(w.m);
            return {d * (float)(low >> 2 & 63), (up ? m.b : m.a) * (float)b, 0};
        } else if constexpr (zeros == Zeros::minimum)
            return {scale_value<scales>(first, at), scale_value<scales>(record + second, at), 0};
        else if constexpr (zeros == Zeros::points) {
            const u8 z = record[second + at];
            return {scale_value<scales>(first, at), 0, codes == Codes::int8 ? (i32)(i8)z : (i32)z};
        } else return {scale_value<scales>(first, at), 0, middle};
    }

    DEV static float value(u32 q, const Scale &c)
    {
        if constexpr (floats) return code_value<codes>(q) * c.s;
        else if constexpr (zeros == Zeros::minimum) return fmaf((float)q, c.s, c.m);
        else return (float)((codes == Codes::int8 ? (i32)(i8)q : (i32)q) - c.z) * c.s;
    }

    // Element (row, k), counted from the beginning of a row block.
    DEV static float at(const u8 *from, i64 row, i64 k)
    {
        const i64 at = place(k);
        const u8 *record = from + row / 16 * block + at / step * bytes;
        const int r = (int)(row % 16), in_step = (int)(at % step);
        return value(code(record, r, in_step), scale(record, r, in_step));
    }

    // Codes k to k + 3 of a record, k a multiple of 4: they are one lane's.
    DEV static void four_codes(const u8 *record, int r, int k, u32 *q)
    {
        const int in_tile = k % tile, lane = r % 8 * 4 + k % 16 / 4;
        const u8 *own = record + k / tile * 1024 + r / 8 * 512 + lane * 16;
        const int j = bits == 8 ? in_tile / 16 : in_tile / 32, p = in_tile / 16 % 2 * 2;
        const u32 w = word(own + 4 * j);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if constexpr (bits == 8) q[i] = w >> 8 * i & 255;
            else if constexpr (codes == Codes::e2m1) q[i] = e2m1_codes(w, p + i / 2) >> 16 * (i % 2) & 15;
            else q[i] = w >> (4 * (p + i / 2) + 16 * (i % 2)) & 15;
        if constexpr ((bits & 3) != 0) {
            constexpr int n = bits & 3;
            const u8 *upper = record + high + ((k / tile * 32 + lane) * 2 + r / 8) * 4 * n;
            const int at = n * (4 * j + p); // of two pairs, which one word has
            const u32 x = word(upper + at / 16 * 4) >> at % 16;
#pragma unroll
            for (int i = 0; i < 4; i++) q[i] |= (x >> (n * (i / 2) + 16 * (i % 2)) & ((1 << n) - 1)) << 4;
        }
    }
    // Elements k to k + 3 of a row, k a multiple of 4: they have one scale.
    DEV static void four(const u8 *from, i64 row, i64 k, float (&x)[4])
    {
        static_assert(together<4>);
        const i64 at = place(k);
        const u8 *record = from + row / 16 * block + at / step * bytes;
        const int r = (int)(row % 16), in_step = (int)(at % step);
        u32 q[4];
        four_codes(record, r, in_step, q);
        const Scale c = scale(record, r, in_step);
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = value(q[i], c);
    }
    // Elements k to k + 7 of a row, k a multiple of 8: likewise.
    DEV static void eight(const u8 *from, i64 row, i64 k, float (&x)[8])
    {
        static_assert(together<8>);
        const i64 at = place(k);
        const u8 *record = from + row / 16 * block + at / step * bytes;
        const int r = (int)(row % 16), in_step = (int)(at % step);
        u32 q[8];
        four_codes(record, r, in_step, q);
        four_codes(record, r, in_step + 4, q + 4);
        const Scale c = scale(record, r, in_step);
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = value(q[i], c);
    }
};

// ---- B of a product, whichever it is: element (n, k) of what begins at `from` ----

template <class Config, class Weights> struct WeightsOf {
    using Element = float;
    // Strides of a packed matrix count elements of its rows.
    static constexpr i64 columns = Weights::width;
    DEV static float at(const u8 *from, i64 n, i64 k)
    {
        constexpr i64 stride_n = Config::b_stride_row, stride_k = Config::b_stride_k, first = Config::b_first;
        const i64 row = first / columns + n * (stride_n / columns) + k * (stride_k / columns);
        const i64 column = first % columns + n * (stride_n % columns) + k * (stride_k % columns);
        return Weights::at(from, row, column);
    }

    // ---- As sums of 16-bit values, for units that multiply these: two of bf16 have 16 of 24 bits ----
    static constexpr int parts = Weights::narrow ? 1 : 2;
    // In bf16, which has fp32's range, or in f16, which has that of some.
    template <class Element> using Part = typename Weights::template Part<Element>::type;

    // Neighbours along K, or N, that begin at a multiple of 8 of them, and `ahead` of them before the first;
    // whatever the other index is.
    template <bool along_k> static constexpr i64 other = along_k ? Config::b_stride_row : Config::b_stride_k;
    template <bool along_k, i64 ahead>
    static constexpr bool together =
        Weights::template together<8> &&other<!along_k> == 1 && other<along_k> % columns % 8 == 0 &&
        Config::b_first % columns % 8 == 0 && ahead % 8 == 0;
    template <bool along_k, i64 ahead, int step>
    DEV static void eight(const u8 *from, i64 n, i64 k, int left, float (&x)[8])
    {
        if constexpr (together<along_k, ahead> && (along_k || step == 1)) {
            constexpr i64 stride_n = Config::b_stride_row, stride_k = Config::b_stride_k,
                          first = Config::b_first;
            const i64 row = first / columns + n * (stride_n / columns) + k * (stride_k / columns);
            const i64 column = first % columns + n * (stride_n % columns) + k * (stride_k % columns);
            if (left > 0) Weights::eight(from, row, column, x);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (i < left) x[i] = along_k ? at(from, n, k + i) : at(from, n + step * i, k);
        }
    }
};
template <class Config, class T> struct WeightsOf<Config, Elements<T>> {
    static constexpr int parts = 1; // what has 8 bits is exact in 16
    template <class Element> using Part = Element;
    template <bool along_k, i64 ahead, int step>
    DEV static void eight(const T *from, i64 n, i64 k, int left, float (&x)[8])
    {
        from += n * Config::b_stride_row + k * Config::b_stride_k;
        constexpr i64 apart = along_k ? Config::b_stride_k : step * Config::b_stride_row;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < left) x[i] = to_float(from[i * apart]);
    }
};
template <class Config> struct WeightsOf<Config, void> {
    using Element = typename Config::B;
    DEV static Element at(const Element *from, i64 n, i64 k)
    {
        return from[n * Config::b_stride_row + k * Config::b_stride_k];
    }
};

} // namespace coda
