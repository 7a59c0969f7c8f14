/*
 * png.h -- pictures of 8 bits a channel in PNG (ISO/IEC 15948), whose bytes are stored, not compressed.
 */
#ifndef PNG_H
#define PNG_H

#include <stdbool.h>
#include <stdint.h>

#include "fault.h"

/* Rows of `channels` bytes a pixel: 1, grey, or 3, red, green and blue. */
struct image {
    int width, height, channels;
    uint8_t *pixel;
};

bool png_write(const char *path, const struct image *i, struct fault *f);

#endif
