// epilogue_layout.cuh -- the numbers of an epilogue: how a consumer's part of a tile is cut into blocks,
// chunks and units, how these are staged in shared memory, and which of them exist.
//
// All are constants of the Config and the Epilogue, but for the predicates at the end, which ask the tile.
// The picture in README.md shows them. lib/schedule/epilogue_layout.c computes the bytes of shared memory
// from the same facts; a static_assert of each main loop compares.
//
// It stands on the layout of a tile's columns (columns.cuh), and on the two kinds of memory to stage in: a
// consumer's own (fetch.cuh), or slots of the ring (lent.cuh).
#pragma once

#include "tile/columns.cuh"
#include "tile/fetch.cuh"
#include "tile/lent.cuh"
#include "tile/raster.cuh"

namespace coda {

// What TMA stores of a unit in a range of columns: its tiles, and of each the tensor map and that one's first
// column. An Epilogue without ranges has Staged alone; else that is the list of the range with most bytes.
template <class Epilogue, int range, bool alone = Epilogue::ranges == 1 || !Epilogue::Staged::count>
struct StoresOf {
    using Staged = typename Epilogue::Staged;
    DEV static constexpr int map(int i) { return i; }
    DEV static constexpr int first(int) { return 0; }
};
template <class Epilogue, int range>
struct StoresOf<Epilogue, range, false> : Epilogue::template Stores<range> {};

template <class Config, class Epilogue> struct EpilogueLayout {
    using Columns = typename Config::Columns;
    using State = typename Epilogue::State;

    // ---- A consumer's part of a tile ----

    static constexpr int rows = Config::bm / (Config::pingpong ? 1 : Config::groups); // of a warpgroup
    static constexpr int blocks = rows / 64;
    static constexpr int patch_of_product = 16; // columns
    static constexpr int patches = Config::bn / patch_of_product;
    static constexpr int tile_columns = Columns::gated ? Config::bn / 2 : Config::bn; // of the output
    static constexpr int patch_columns = Columns::gated ? 8 : 16;                     // of the output
    static constexpr bool has_row = !__is_empty(typename Epilogue::Row);
    static constexpr bool has_col = !__is_empty(typename Epilogue::Col);
    static constexpr bool has_half = !__is_empty(typename Epilogue::Half);
    static constexpr bool has_state = !__is_empty(State);
    static constexpr bool folds_columns = !__is_empty(typename Epilogue::ColumnState);
    using Staged = typename Epilogue::Staged;
    using Fetched = typename Epilogue::Fetched;
    static constexpr bool stages = Staged::count > 0, fetches = Fetched::count > 0;

    // ---- Chunks and units ----

    // Chunks are as wide as buffers if a tile goes through any, else what compiles well.
    static constexpr bool buffered = stages || fetches;
    static constexpr int paired_columns = Columns::apart && !Columns::gated ? Columns::chunk : Config::unit;
    static constexpr int chunk_columns =
        Epilogue::segment ? common_multiple(Epilogue::segment, 64) : paired_columns;
    static constexpr int default_chunk_patches = patches % 4 == 0                    ? 4
                                                 : patches < 8 && !Epilogue::loads   ? patches
                                                 : Config::roomy && patches % 3 == 0 ? 3
                                                                                     : 1;
    static constexpr int chunk_patches =
        buffered || Epilogue::segment ? chunk_columns / patch_columns : default_chunk_patches;
    static constexpr int chunk_width = chunk_patches * patch_columns;
    static constexpr int chunks = patches / chunk_patches, units = chunks * blocks;
    static_assert(patches % chunk_patches == 0 && rows % 64 == 0 && rows <= 256);

    // A row has a state of each tile, or, so that it is the same in tiles of any width, of so many columns,
    // which are so many patches. Then: is the patch behind so many others of its chunk, and so many of its
    // tile, the last of a state, and which of the row's states is that?
    static constexpr bool cuts_states = has_state && Config::state_columns > 0;
    static constexpr int state_columns = cuts_states ? Config::state_columns : Config::bn;
    static constexpr int state_patches = state_columns / patch_of_product;
    static_assert(state_columns % patch_of_product == 0 && Config::bn % state_columns == 0);
    static_assert(!cuts_states || Config::tail_bn % state_columns == 0);
    DEV static bool ends_state(int in_chunk, int in_tile)
    {
        return ((chunk_patches % state_patches ? in_tile : in_chunk) + 1) % state_patches == 0;
    }
    DEV static int state_of(const Tile &t, int in_tile)
    {
        return t.first / state_columns + in_tile / state_patches;
    }

    // Segments of a chunk, and that of one of its patches.
    static constexpr int segments = chunk_width / (Epilogue::segment ? Epilogue::segment : chunk_width);
    DEV static constexpr int segment_of(int patch) { return patch * segments / chunk_patches; }

    // How often a chunk's code is unrolled: once where it is large (it rotates, has wide states or several
    // fetched values, or any beside a warp of another kernel, or folds columns, in a large tile; a gated one
    // has states), and where the sums of all chunks have the same order; else for each chunk.
    static constexpr bool is_tight = Config::leaves_warp && Fetched::lines > 0; // in registers
    static constexpr bool slot_code_is_long =
        Columns::lanes == 2 || sizeof(State) > sizeof(float) || Fetched::lines > 1 || is_tight ||
        folds_columns || Epilogue::segment || Epilogue::above;
    static constexpr bool code_is_large = slot_code_is_long && blocks * Config::bn > 192;
    static constexpr bool chunks_are_alike =
        Columns::gated ? has_state : buffered || !Columns::apart || Epilogue::segment;
    static constexpr int unrolled_chunks = code_is_large && chunks_are_alike ? 1 : chunks;

    // Patches whose loads are in flight together: few where accumulators leave few registers. What several
    // fetched tiles have of a patch is as much as they leave.
    static constexpr int direct_loads = Epilogue::loads - Fetched::lines;
    static constexpr int loads_in_flight = blocks * Config::bn > 128 && !Config::roomy ? 2 : 8;
    static constexpr int patches_in_flight(int n)
    {
        return n % 2 == 0 && n * direct_loads > loads_in_flight ? patches_in_flight(n / 2) : n;
    }
    static constexpr bool one_by_one = (Fetched::lines > 1 || is_tight) && blocks * Config::bn > 256;
    static constexpr int batch = one_by_one ? 1 : patches_in_flight(chunk_patches);

    // ---- Staging ----

    // Of each tile that TMA moves, buffers of 64 rows and Config::unit columns, swizzled over the bytes of a
    // row: those of stores, tile after tile, and behind them those of fetched units. A byte of an element
    // takes so many in the buffers of a unit, and in one buffer.
    static constexpr int chunk_byte = 64 * chunk_columns, buffer_byte = 64 * Config::unit;
    static constexpr int buffers = chunk_columns / Config::unit; // of a tile, for each unit
    static constexpr int stored_bytes = chunk_byte * Staged::bytes; // of a unit
    static constexpr int fetched_bytes = chunk_byte * Fetched::bytes;
    static constexpr int own_ring = stored_bytes <= 8192 && units > 1 ? 2 : 1;
    static constexpr int fetch_room = Config::groups > 2 ? 8192 : 16384;
    static constexpr int fetch_fit = fetches ? fetch_room / fetched_bytes : 1;
    static constexpr int fetch_most = folds_columns ? 1 : most_fetch_slots; // beside states of columns
    static constexpr int fetch_slots = fetch_fit < fetch_most ? fetch_fit : fetch_most;
    using Own = OwnStage<units, fetched_bytes, fetch_slots, stored_bytes, own_ring>;
    // Slots of the ring are cut in pieces of one size, a buffer; what is fetched is one tile at most, and the
    // first one that is stored takes its place.
    static constexpr int lent_bytes = buffer_byte * (stages ? Staged::bytes / Staged::count : 2);
    static constexpr int in_place_bytes = Config::lends && fetches ? lent_bytes : 0;
    static constexpr int lent_pieces = (stored_bytes - in_place_bytes) / lent_bytes;
    using Stage = typename StageOf<Config, Own, units, lent_bytes, fetches, lent_pieces>::Type;
    static constexpr int ring = Stage::ring; // units that can be stored at one time
    static constexpr int own_bytes = fetches ? Own::all_bytes : Own::store_bytes;
    static constexpr int stage_bytes = Config::lends ? 0 : own_bytes;
    static_assert(!fetches || (buffers == 1 && fetch_slots > 0));
    static_assert(!Config::lends || !fetches || fetched_bytes == lent_bytes);

    // ---- What exists ----

    // Where the tensor ends with a patch, a patch exists or it does not. This is asked also where there is
    // no end, if registers are short: the compiler does not mix the arithmetic of two patches then.
    static constexpr int output_columns = Columns::gated ? Config::n / 2 : Config::n; // of the tensor
    static constexpr bool ends_on_patch =
        output_columns % patch_columns == 0 && (Columns::gated || !Columns::apart);
    static constexpr bool no_partial_tile = Config::tail || output_columns % tile_columns == 0;
    static constexpr bool short_of_registers = has_state && blocks * Config::bn > 256;
    static_assert(!Config::tail ||
                  (Config::bn % 64 == 0 && Config::tail_bn % (chunk_width * (Columns::gated ? 2 : 1)) == 0));
    DEV static int out_first(const Tile &t) { return Columns::gated ? t.first / 2 : t.first; }
    DEV static bool exists(const Tile &t, int patch)
    {
        if (!ends_on_patch || (no_partial_tile && !short_of_registers)) return true;
        return out_first(t) + (patch + 1) * patch_columns <= output_columns;
    }
    // How many of two neighbouring columns exist; the first is even.
    DEV static int live(int n)
    {
        if (ends_on_patch || no_partial_tile) return 2;
        return output_columns % 2 && n + 1 == output_columns ? 1 : n < output_columns ? 2 : 0;
    }
    // A chunk that a tile of the tail does not have is not drained.
    DEV static bool has_chunk(const Tile &t, int chunk)
    {
        const int first = chunk * chunk_width * (Columns::gated ? 2 : 1);
        return !Config::tail || first < Config::tail_bn || t.width == Config::bn;
    }
};

} // namespace coda
