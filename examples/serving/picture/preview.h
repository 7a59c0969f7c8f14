/*
 * preview.h -- latents as pixels.
 */
#ifndef PREVIEW_H
#define PREVIEW_H

#include "picture.h"
#include "png.h"

/* Latents of all pictures, side by side, each `zoom` times as large. Those of one or three channels without a
 * decoder are pixels from -1 to 1. Others are a preview: `map` is an .npy file of [channels + 1, 3], what
 * each channel adds to red, green and blue, and behind them a constant, of colours from -1 to 1; without it
 * they are false colours: brightness is what varies most in a picture, what varies next is shown as two
 * hues. */
bool preview_make(const struct picture *p, const float *latents, const char *map, int zoom, struct image *to,
                  struct fault *f);

#endif
