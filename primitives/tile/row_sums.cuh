// row_sums.cuh -- rows added by id, which sort_ids.cuh has sorted.
//
// The first blocks add long rows, those of more than a piece of tokens. Such a block has a slice of columns
// and a share of the sorted tokens: it adds the rows of which the first token at a multiple of a piece is in
// its share. Its teams add pieces, and one thread for each column then adds the pieces' sums in their order.
// Each of the other blocks has some rows and a chunk of columns, and a team adds a row's tokens one after the
// other. So the bits of a sum depend on its tokens alone.
#pragma once
#include "port/tile.cuh"
#include "tile/block.cuh"
#include "tile/scan.cuh"

namespace coda {

template <class Config> struct RowSums {
    typedef typename Config::T T;
    static constexpr i32 threads = Config::threads, width = Config::width;
    static constexpr i32 lanes = Config::lanes, teams = threads / lanes, chunk = lanes * width;
    static constexpr i32 slice_lanes = Config::slice_lanes, slice_teams = threads / slice_lanes;
    static constexpr i32 slice = slice_lanes * width;
    static constexpr u32 columns = Config::columns;
    static constexpr u32 chunks = (columns + chunk - 1) / chunk, slices = (columns + slice - 1) / slice;
    static constexpr u32 piece = Config::piece, most_rows = Config::most_rows;
    // Loads that do not wait for what came before: of one row; of several, of few tokens each.
    static constexpr i32 wide = width * sizeof(T) > 8 ? 2 : 1, ahead = 8 / wide, at_once = 4 / wide, few = 2;
    static_assert(slice <= threads && columns % width == 0);

    // Rows of threads that have one each, or none.
    struct Rows {
        u32 row[threads], from[threads], to[threads]; // its tokens
        u32 pieces[threads];                          // up to the end of this row
        u32 of_warp[threads / 32];
    };
    struct Shared {
        Rows rows;
        i32 order[slice_teams][piece]; // of the tokens of a team's piece
        u32 start[most_rows + 1];
        u32 done[2][slice_teams]; // the row of which a team's piece is the last one, or `none`
        float part[2][slice_teams][slice];
    };
    static constexpr u32 none = ~0u;

    struct From {              // what a thread adds
        const T *x;            // in its columns
        const i32 *order, *id; // tokens by id, and their ids
        u32 tokens;
        i64 stride;
        bool any; // has it columns?
    };

    // ---- Tokens ----

    // Adjacent elements in as few registers as they take in memory, until they are added.
    typedef port::Vector<u32, (width * sizeof(T) + 3) / 4> Packed;

    DEV static Packed load(const T *p)
    {
        if constexpr (width * sizeof(T) < 4) return {{p->bits}};
        else return *reinterpret_cast<const Packed *>(p);
    }
    DEV static void add(float (&y)[width], const Packed &v)
    {
#pragma unroll
        for (i32 k = 0; k < width; k++) {
            if constexpr (sizeof(T) == 4) {
                y[k] += bits_float(v.at[k]);
            } else {
                const Pair x = unpack2<T>(v.at[k / 2]);
                y[k] += k % 2 ? x.b : x.a;
            }
        }
    }

    // Token number i of the order, and its row; whatever memory holds.
    DEV static u32 token_at(const From &f, u32 i)
    {
        const u32 token = (u32)f.order[i];
        return token < f.tokens ? token : 0;
    }
    DEV static Packed load_row(const From &f, u32 token) { return load(f.x + token * f.stride); }

    // Tokens from..to-1, one after the other.
    DEV static void add(float (&y)[width], const From &f, u32 from, u32 to)
    {
#pragma unroll 1
        for (u32 at = from; at < to; at += ahead) {
            const u32 n = to - at;
            Packed v[ahead];
#pragma unroll
            for (i32 i = 0; i < ahead; i++)
                if (i < n) v[i] = load_row(f, token_at(f, at + i));
#pragma unroll
            for (i32 i = 0; i < ahead; i++)
                if (i < n) add(y, v[i]);
        }
    }
    DEV static void clear(float (&y)[width])
    {
#pragma unroll
        for (i32 k = 0; k < width; k++) y[k] = 0.0f;
    }

    // Where the tokens of lower ids end, whatever memory holds.
    DEV static u32 start_of(const i32 *sorted, u32 row, u32 tokens)
    {
        const u32 start = (u32)sorted[row];
        return start < tokens ? start : tokens;
    }

    // ---- Rows of a piece or less ----

    DEV static void store(f32 *to, const float (&y)[width])
    {
        if constexpr (Config::adds) port::accumulate_piece(to, y);
        else port::store_piece(to, y);
    }
    // Adds the team's next rows, as many as at_once, that have a few tokens or none. Returns a bit for each
    // of them that has more: bit r / teams for row r.
    DEV static u32 add_few(const From &f, u32 row, u32 n, f32 *sums, const Shared &shared)
    {
        u32 from[at_once], terms[at_once], more = 0;
        Packed v[at_once][few];
#pragma unroll
        for (i32 i = 0; i < at_once; i++) {
            const u32 r = row + i * teams, end = r < n ? shared.start[r + 1] : 0;
            from[i] = r < n ? shared.start[r] : 0;
            terms[i] = end > from[i] ? end - from[i] : 0;
            if (few < terms[i] && terms[i] <= piece) more |= 1u << r / teams;
#pragma unroll
            for (i32 k = 0; k < few; k++)
                if (k < terms[i] && terms[i] <= few) v[i][k] = load_row(f, token_at(f, from[i] + k));
        }
#pragma unroll
        for (i32 i = 0; i < at_once; i++) {
            const u32 r = row + i * teams;
            float y[width];
            clear(y);
#pragma unroll
            for (i32 k = 0; k < few; k++)
                if (k < terms[i]) add(y, v[i][k]);
            if (r < n && terms[i] <= few && (terms[i] || !Config::adds)) store(sums + (i64)r * columns, y);
        }
        return more;
    }
    // The n rows of a block from `first` on.
    DEV static void add_rows(const From &f, const i32 *sorted, f32 *sums, u32 first, u32 n, u32 column,
                             Shared &shared)
    {
        const u32 team = threadIdx.x / lanes;
        u32 more = 0;
        for (u32 i = threadIdx.x; i <= n; i += threads)
            shared.start[i] = start_of(sorted, first + i, f.tokens);
        __syncthreads();
        sums += (i64)first * columns + column + threadIdx.x % lanes * width;
#pragma unroll 1
        for (u32 row = team; row < n && f.any; row += at_once * teams)
            more |= add_few(f, row, n, sums, shared);
#pragma unroll 1
        for (; more; more &= more - 1) {
            const u32 r = (__ffs(more) - 1) * teams + team;
            float y[width];
            clear(y);
            add(y, f, shared.start[r], shared.start[r + 1]);
            store(sums + (i64)r * columns, y);
        }
        __syncthreads();
    }

    // ---- Longer rows ----

    // Each thread has a place of the order, a piece behind that of the thread before it, and takes the row
    // that is there if the row is long and this is its first such place. Returns how many pieces they have.
    DEV static u32 find_rows(const i32 *sorted, const i32 *id, u32 place, bool is_there, u32 tokens, u32 rows,
                             Rows &found)
    {
        const u32 row = is_there ? (u32)id[place] : rows, i = threadIdx.x;
        u32 from = 0, to = 0, all;
        if (row < rows) from = start_of(sorted, row, tokens), to = start_of(sorted, row + 1, tokens);
        const bool is_first = from <= place && place - from < piece;
        const bool is_long = from < to && to - from > piece;
        const u32 pieces = is_first && is_long ? (to - from + piece - 1) / piece : 0;
        found.row[i] = row, found.from[i] = from, found.to[i] = to;
        found.pieces[i] = scan_warps<threads / 32>(pieces, all, found.of_warp);
        __syncthreads();
        return all;
    }
    // The thread that has piece p.
    DEV static u32 find_piece(u32 p, const Rows &found)
    {
        u32 at = 0;
#pragma unroll
        for (u32 step = threads / 2; step; step /= 2)
            if (found.pieces[at + step - 1] <= p) at += step;
        return at;
    }

    // Piece p, if there is one.
    DEV static void add_piece(const From &f, u32 p, u32 pieces, u32 turn, Shared &shared)
    {
        const u32 team = threadIdx.x / slice_lanes, lane = threadIdx.x % slice_lanes;
        const Rows &rows = shared.rows;
        From own = f;
        u32 from = 0, n = 0;
        if (p < pieces) {
            const u32 i = find_piece(p, rows), left = rows.pieces[i] - p, end = rows.to[i];
            const u32 last = (end - rows.from[i] - 1) / piece * piece; // where the last one begins
            from = rows.from[i] + last - (left - 1) * piece;
            n = left > 1 ? piece : end - from;
            if (lane == 0) shared.done[turn][team] = left > 1 ? none : rows.row[i];
        }
        own.order = shared.order[team];
        __syncwarp();
        for (u32 i = lane; i < n; i += slice_lanes) shared.order[team][i] = f.order[from + i];
        __syncwarp();
        float y[width];
        clear(y);
        if (f.any) add(y, own, 0, n);
#pragma unroll
        for (i32 k = 0; k < width; k++) shared.part[turn][team][lane * width + k] = y[k];
    }
    // n pieces of a thread's column.
    DEV static float add_parts(float sum, u32 n, f32 *to, u32 turn, const Shared &shared)
    {
#pragma unroll(columns < 8 ? 2 : 4) // of few columns a thread has more to keep, and 4 would spill
        for (u32 i = 0; i < n; i++) {
            const u32 row = shared.done[turn][i];
            sum += shared.part[turn][i][threadIdx.x];
            if (row == none) continue;
            f32 *const at = to + (i64)row * columns;
            *at = Config::adds ? *at + sum : sum;
            sum = 0.0f;
        }
        return sum;
    }

    // Rows of the places from..to-1, which are multiples of a piece, or the end.
    DEV static void add_long(const From &f, const i32 *sorted, f32 *sums, u32 from, u32 to, u32 rows,
                             u32 column, Shared &shared)
    {
        const bool any = threadIdx.x < slice && column + threadIdx.x < columns;
        u32 turn = 0;
#pragma unroll 1
        for (u32 at = from; at < to; at += threads * piece) {
            const u32 own = threadIdx.x * piece;
            const u32 pieces = find_rows(sorted, f.id, at + own, own < to - at, f.tokens, rows, shared.rows);
            float sum = 0.0f;
#pragma unroll 1
            for (u32 p = 0; p < pieces; p += slice_teams, turn ^= 1) {
                add_piece(f, p + threadIdx.x / slice_lanes, pieces, turn, shared);
                __syncthreads();
                const u32 n = pieces - p < slice_teams ? pieces - p : slice_teams;
                if (any) sum = add_parts(sum, n, sums + column + threadIdx.x, turn, shared);
            }
            __syncthreads();
        }
    }

    // ---- All ----

    // A block has rows_at_once rows, most_rows or less, of which a team has 32 at most. There are so many
    // shares of the sorted tokens, each of `share` of them, a multiple of a piece.
    template <class Block, class Args>
    DEV static void run(const Block &block, const Args &a, const T *x, const i32 *sorted, f32 *sums,
                        u32 tokens, u32 rows, u32 rows_at_once, u32 shares, u32 share)
    {
        Shared &shared = *(Shared *)block.shared();
        const i32 *const order = sorted + rows + 1;
        const i64 longs = (i64)shares * slices, groups = (rows + rows_at_once - 1) / rows_at_once;
        for (i64 item = block.index(); item < longs + groups * chunks; item += block.count()) {
            const bool is_long = item < longs;
            const i64 at = is_long ? item : item - longs;
            const u32 column = (u32)(at % (is_long ? slices : chunks)) * (is_long ? slice : chunk);
            const u32 own = column + threadIdx.x % (is_long ? slice_lanes : lanes) * width;
            const From f = {x + own * Config::column_stride,
                            order,
                            order + tokens,
                            tokens,
                            Config::stride(a),
                            own < columns};
            if (is_long) {
                const u32 all = start_of(sorted, rows, tokens), from = (u32)(at / slices) * share;
                if (from < all)
                    add_long(f, sorted, sums, from, all - from < share ? all : from + share, rows, column,
                             shared);
            } else {
                const u32 first = (u32)(at / chunks) * rows_at_once;
                add_rows(f, sorted, sums, first, rows - first < rows_at_once ? rows - first : rows_at_once,
                         column, shared);
            }
        }
    }
};

} // namespace coda
