// inbox.cuh -- memory in which ranks leave words for each other, and how a wait for them ends.
//
// Each rank has an inbox on its own device, into which the others write. It begins with a head; then come
// three areas, of which an exchange takes one, and the next exchange the next one. Data is its own flag: a
// word that is not there yet reads `none`, and who has read a word writes `none` over it. A rank begins an
// exchange when its last one has ended; its words of that one came to all others, so these had ended the one
// before. So who writes into an area finds it clear, and nobody asks.
//
// Where in an area words begin says what plan they are of: words of another plan's are not those that a rank
// waits for, so that ranks which run plans in another order end by their deadlines, not with a sum of both.
// A rank that has waited too long tells the others why, and they end, too.
#pragma once
#include "ptx/system.cuh"
#include "types.cuh"

namespace coda::exchange {

constexpr u32 none = 0xffffffffu; // no number: a NaN that arithmetic does not make
constexpr i32 counters = 1024;    // blocks of an exchange that each have one of their own
constexpr i32 areas = 3;
constexpr u32 last_epoch = 3u << 30; // a multiple of areas: the one behind it is 0
constexpr u32 patience_tries = 128;  // loads between two looks at the clock
constexpr u32 look_after = 1000;     // units of 1,024 ns between two looks at the host's memory
constexpr u32 pause_ns = 100;        // between two loads of who has lost patience

struct Head {
    u32 epoch[counters]; // exchanges so far: all are equal between launches
    u32 dead;            // the rank waits for nobody, and sends nothing
    u32 looked;          // when one of its threads last read the host's notes, in units of 1,024 ns
    u32 done;            // blocks that have ended, of an exchange that has more than there are counters
    u32 told;            // the host's notes have a reason
    u32 late;            // another rank has left its reason, as in Notes, which follows
    u32 missed, at, program;
    u32 left[8]; // ranks of other processes that use this inbox no more
};
static_assert(sizeof(Head) == 4 * (counters + 16), "as large as lib/exec/peers.h says");

// What the host and the kernels of a rank tell each other, in the host's memory. Loads of it pass the bus one
// by one, some 17 ns each: those of all threads that wait would take longer than the exchange, so that the
// other ranks wait and read, too. So one thread reads for all, in each millisecond.
struct Notes {
    u32 over; // written by either: waits end
    u32 late; // 1: what follows is a rank that did not come; 2: one that gave up
    u32 missed, epoch, program;
};

// What a launch knows of its group, whose rank it is, and where: the last part of a kernel's arguments.
template <i32 ranks> struct Company {
    u8 *inbox[ranks];
    Notes *notes;
    u64 start;    // bytes of an inbox ahead of where the plan's words begin in the first area
    u64 area;     // bytes of each
    u64 patience; // nanoseconds that a wait may last; 0: any number
    u32 rank, program;
};

// Data, where `none` may not be.
template <u32 nan> DEV ptx::Words sendable(ptx::Words w)
{
#pragma unroll
    for (i32 i = 0; i < 4; i++) w.at[i] = w.at[i] == none ? nan : w.at[i];
    return w;
}
DEV bool is_there(const ptx::Words &w)
{
    return w.at[0] != none && w.at[1] != none && w.at[2] != none && w.at[3] != none;
}

// Where words of another rank come to lie, if there are any.
struct Place {
    u32 from;
    u8 *at;
    bool here = true;
};

// An exchange, as a thread of a rank sees it, behind the wait for the kernel ahead.
template <i32 ranks> struct Exchange {
    const Company<ranks> &company;
    u32 block, epoch;
    bool begun = false, ended; // nothing is sent or waited for any more
    bool behind = false;       // whom this rank waits for may wait itself, and names a third one first

    DEV Exchange(const Company<ranks> &company, u32 block) : company(company), block(block) {}
    // The exchange's number, all along it. What is sent should be on its way from memory then, too.
    DEV void begin()
    {
        epoch = ptx::load_word_system(&head()->epoch[block % counters]);
        ended = ptx::load_word_system(&head()->dead);
        begun = true;
    }
    DEV Head *head_of(u32 rank) const { return (Head *)company.inbox[rank]; }
    DEV Head *head() const { return head_of(company.rank); }

    // Where in the first area of a rank's inbox the words of another one lie, which are `bytes`; and how far
    // behind that they do in this exchange's.
    DEV u8 *slot(u32 of, u32 from, i64 bytes) const
    {
        return company.inbox[of] + company.start + (i64)(from - (from > of)) * bytes;
    }
    DEV i64 area() const { return epoch % areas * (i64)company.area; }

    DEV void send(u32 to, i64 bytes, i64 at, const ptx::Words &w) const
    {
        if (!ended) ptx::store_system(slot(to, company.rank, bytes) + area() + at, w);
    }
    // Where the words of another rank come to lie.
    DEV Place place(u32 from, i64 bytes, i64 at) const
    {
        return {from, slot(company.rank, from, bytes) + area() + at};
    }
    DEV ptx::Words received(Place p)
    {
        ptx::Words w[1];
        receive(w, [=](i32) { return p; });
        return w[0];
    }
    // Words of all places, looked for at once, then again until they are there; and taken away.
    template <i32 n, class F> DEV void receive(ptx::Words (&w)[n], const F &place)
    {
#pragma unroll
        for (i32 i = 0; i < n; i++) w[i] = place(i).here ? ptx::load_system(place(i).at) : ptx::Words{};
        if (!ended) await(w, place);
#pragma unroll
        for (i32 i = 0; i < n; i++)
            if (place(i).here && !ended) ptx::store_system(place(i).at, {{none, none, none, none}});
    }
    template <i32 n, class F> DEV void await(ptx::Words (&w)[n], const F &place)
    {
        u64 began = 0;
        u32 missing;
        do {
#pragma unroll 1
            for (u32 tries = 0; tries < patience_tries; tries++) {
                bool all = true;
#pragma unroll
                for (i32 i = 0; i < n; i++)
                    if (!is_there(w[i])) w[i] = ptx::load_system(place(i).at), all = false;
                if (all) return;
                if (began) ptx::pause(pause_ns);
            }
            missing = place(n - 1).from;
#pragma unroll
            for (i32 i = n - 2; i >= 0; i--)
                if (!is_there(w[i])) missing = place(i).from;
            lose_patience(missing, began);
        } while (!ended);
    }

    DEV void lose_patience(u32 from, u64 &began)
    {
        const u64 now = ptx::nanoseconds();
        if (!began) began = now;
        ended = ptx::load_word_system(&head()->dead);
        if (ended) return;
        const u64 more = behind ? min(company.patience / 4, (u64)500000000) : 0;
        if (company.patience && now - began > company.patience + more) tell_all(from);
        else if (is_over(now)) give_up();
        else return;
        ptx::store_word_system(&head()->dead, 1);
        ended = true;
    }
    // As far as this thread is the one that looks.
    DEV bool is_over(u64 now) const
    {
        constexpr u32 behind = 1 << 24; // 17 s that a thread may have slept since, while another one looked
        const u32 time = (u32)(now >> 10), before = ptx::load_word_system(&head()->looked);
        if (time - before + behind < look_after + behind) return false;
        if (!ptx::claim_word(&head()->looked, before, time)) return false;
        return ptx::load_word_system(&company.notes->over);
    }
    // A rank that did not come: to this rank's host, and to all ranks, that one too.
    DEV void tell_all(u32 from) const
    {
        tell(1, from, epoch, company.program);
        tell_others(1, from);
    }
    // The host has ended the group: the others know before they see what this rank does from now on.
    DEV void give_up() const
    {
        if (ptx::claim_word(&head()->told, 0, 1)) tell_others(2, company.rank);
    }
    DEV void tell_others(u32 late, u32 missed) const
    {
#pragma unroll
        for (i32 i = 1; i < ranks; i++) {
            Head *h = head_of((company.rank + i) % ranks);
            ptx::store_word_system(&h->missed, missed);
            ptx::store_word_system(&h->at, epoch);
            ptx::store_word_system(&h->program, company.program);
            ptx::fence_system();
            ptx::store_word_system(&h->late, late);
            ptx::fence_system();
            ptx::store_word_system(&h->dead, 1);
        }
    }
    DEV void tell(u32 late, u32 missed, u32 at, u32 program) const
    {
        if (!ptx::claim_word(&head()->told, 0, 1)) return;
        Notes *n = company.notes;
        ptx::store_word_system(&n->missed, missed);
        ptx::store_word_system(&n->epoch, at);
        ptx::store_word_system(&n->program, program);
        ptx::fence_system();
        ptx::store_word_system(&n->late, late);
        ptx::store_word_system(&n->over, 1);
    }
    // The host learns what another rank has said.
    DEV void pass_on() const
    {
        const Head *h = head();
        const u32 late = ptx::load_word_system(&h->late);
        if (!late) return;
        ptx::fence_system();
        tell(late, ptx::load_word_system(&h->missed), late == 1 ? ptx::load_word_system(&h->at) : epoch,
             ptx::load_word_system(&h->program));
    }

    // By all threads of all blocks, at the end. Each block counts for some, and reads no counter but its own,
    // as others may not have begun. Where there are more blocks than counters, the last one counts for all.
    DEV void end(u32 blocks, i32 threads)
    {
        if (!begun) begin();
        if (ended) pass_on();
        __syncthreads();
        if (blocks > counters && !is_last(blocks)) return;
        const u32 first = blocks > counters ? 0 : block;
        if (blocks > counters) blocks = 1;
        const u32 next = epoch + 1 == last_epoch ? 0 : epoch + 1;
        for (u32 i = first + threadIdx.x * blocks; i < counters; i += threads * blocks)
            head()->epoch[i] = next;
    }
    // Have all the others of this launch ended?
    DEV bool is_last(u32 blocks) const
    {
        __shared__ bool last;
        if (!threadIdx.x) {
            last = ptx::add_word(&head()->done, 1) == blocks - 1;
            if (last) head()->done = 0;
        }
        __syncthreads();
        return last;
    }
};

} // namespace coda::exchange
