/* mainloop_table.c -- the main loops that make kernels, in the order in which they are asked for tiles. */
#include "mainloop.h"

const struct mainloop *const mainloops[] = {&mainloop_gemv,        /* a row, or two short ones */
                                            &mainloop_skinny,      /* up to 16 */
                                            &mainloop_wgmma,       /* any, on Hopper */
                                            &mainloop_wgmma_f8,    /* of fp8, on Hopper */
                                            &mainloop_stream_mma,  /* up to 16, where streams beat that */
                                            &mainloop_wgmma_mixed, /* of fewer bits by 16, on Hopper */
                                            &mainloop_mma,         /* of 16 bits, where there is no wgmma */
                                            &mainloop_fma,         /* fp32 */
                                            &mainloop_simt,        /* what no other takes */
                                            NULL};
