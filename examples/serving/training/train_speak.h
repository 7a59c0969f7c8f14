/*
 * train_speak.h -- texts that a checkpoint writes: samples of what is being learned, and stories to learn
 * from.
 */
#ifndef TRAIN_SPEAK_H
#define TRAIN_SPEAK_H

#include "train_settings.h"

/* Prints a text that goes on behind `prompt`, as the checkpoint in `folder` draws it. */
bool speak_sample(const char *folder, const struct settings *s, int64_t step, struct fault *f);

/* The checkpoint of stories that comes with the sources: NULL if it is not found. `room` is of PATH_MAX. */
const char *speak_stories_model(char *room);

#define STORIES_SEPARATOR "<|endoftext|>"
/* Writes `count` stories of that model to folder/stories.txt. */
bool speak_stories(const char *model, const char *folder, int count, uint64_t seed, struct fault *f);

#endif
