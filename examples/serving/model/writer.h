/*
 * writer.h -- a decoder's text without the host, greedy or drawn: the token, its position and the text are
 * states in the device's memory, a step reads what the last one left, and on a GPU the launches of several
 * steps are captured once in a CUDA graph.
 */
#ifndef WRITER_H
#define WRITER_H

#include "model.h"
#include "sample.h"

struct writer;

/* `burst`: steps of one captured graph, 1 at least. `how` to draw tokens; without, or without a temperature,
 * each is the likeliest. A draw depends on the seed, and on the token's place. The model must outlive the
 * writer, which shares its weights and caches. */
struct writer *writer_open(struct model *m, int burst, const struct sampling *how, struct fault *f);
void writer_close(struct writer *w);

/* `token` follows the m->length tokens that the caches hold. Writes the `n` tokens behind it, each by all
 * before it, to `to`; then the caches hold n tokens more: to[n - 1] is not among them. Of tokens that are
 * drawn `logprobs` gets the log of the model's probability of each; it may be NULL. The host waits once, at
 * the end. Use bursts, or multiples of them, as n: what is left over runs as single steps. */
bool writer_write(struct writer *w, int32_t token, int n, int32_t *to, float *logprobs, struct fault *f);

/* The plan of a step, for those who want to see it. */
const coda_plan *writer_plan(const struct writer *w);

#endif
