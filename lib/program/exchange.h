/* exchange.h -- a program in which ranks exchange something, where they have kernels for it. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include "program.h"

/* Who exchanges, where ranks are on GPUs. Which kernel it is follows from shapes and ranks alone, so that all
 * of them agree, but for tests and measurements. */
enum exchange_wish { EXCHANGE_NCCL, EXCHANGE_OWN, EXCHANGE_PUSH, EXCHANGE_TWO_SHOT, EXCHANGE_COPIES };
/* By what: words that kernels write, in so many trips; or copies of whole tensors by copy engines, and a
 * kernel that adds up. */
enum exchange_form { EXCHANGE_BY_NCCL, EXCHANGE_BY_WORDS, EXCHANGE_BY_WORDS_TWICE, EXCHANGE_BY_COPIES };

/* The limits of our kernels. */
enum { EXCHANGE_MOST_RANKS = 8, EXCHANGE_AREAS = 3, EXCHANGE_HEAD = 8192 };
/* Words of a plan begin at one of so many places in an area, so many bytes apart. */
enum { EXCHANGE_STARTS = 512, EXCHANGE_START = 128 };

/* Does the program read it for the order of exchanges alone? Then nobody needs to write it. */
bool exchange_is_order(const struct program *q, const struct tensor_use *u);

/* How often a word travels: 1, all send all that they have to all that want it; 2, first to a rank that adds
 * up, whose sum goes to all; 0: there is no kernel. */
int exchange_trips(const struct exchange_spec *s, enum exchange_wish wish);
/* What each thread of such a kernel does at once: 16 bytes; of a rank's result, or of the part that it adds
 * up. */
int64_t exchange_pieces(const struct exchange_spec *s, int trips);
/* Bytes of each of three areas in a rank's memory, into which the others write. */
int64_t exchange_area(const struct exchange_spec *s, int trips);

/* Is it one for copies? As what others run beside is, if it is large. */
bool exchange_copies(const struct exchange_spec *s, enum exchange_wish wish, bool beside);
/* Is it a sum over two ranks of which each should make a half? So are those of large gradients in fp32. */
bool exchange_shares(const struct exchange_spec *s, enum exchange_wish wish);
/* An exchange by copies: how many elements a rank adds up, and how many bytes lie between what two ranks
 * copy to a third. */
int64_t exchange_part(const struct exchange_spec *s);
int64_t exchange_stride(const struct exchange_spec *s);
/* SMs that products beside it leave to it. */
int exchange_copies_sms(const struct exchange_spec *s);

#endif
