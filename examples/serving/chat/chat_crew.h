/*
 * chat_crew.h -- a runner on each rank, which share one model out and make all steps together: the first one
 * is the engine's, the others have threads of their own and do what it does. Of one rank it is that runner.
 */
#ifndef CHAT_CREW_H
#define CHAT_CREW_H

#include "chat_runner.h"

struct crew;

/* NULL, and the fault, if it cannot be had. A crew belongs to the thread that made it. */
struct crew *crew_new(const struct runner_options *opt, struct fault *f);
void crew_free(struct crew *c);
/* The first one, which has the inputs and the results of all. */
struct runner *crew_runner(const struct crew *c);

/* runner_warm, runner_launch and runner_wait of all ranks. Where one fails there is no further step. */
bool crew_warm(struct crew *c, struct fault *f);
bool crew_launch(struct crew *c, int rows, int sequences, struct fault *f);
bool crew_wait(struct crew *c, struct runner_step *out, struct fault *f);

#endif
