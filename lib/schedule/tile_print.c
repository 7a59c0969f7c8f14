/* tile_print.c -- a tile as a plan's text says it, which tuning keeps. */
#include "epilogue_layout.h"
#include "tile.h"

/* ORDER mainloop */
static const char *const mainloop_name[] = {"sm90", "simt", "cublaslt", "sm90_gemv", "sm90_skinny"};

void tile_print(const struct tile *tile, struct text *t)
{
    text_append(t, mainloop_name[tile->mainloop]);
    if (tile->mainloop == MAINLOOP_CUBLASLT) return;
    text_printf(t, " %dx%dx%d stages=%d groups=%d%s band=%d%s%s", tile->bm, tile->bn, tile->bk, tile->stages,
                tile->groups, tile->pingpong ? " pingpong" : "", tile->band, tile->across ? " across" : "",
                tile->serpentine ? " serpentine" : "");
    if (tile->tail) text_printf(t, " tail=%dx%d", tile->tail, tile->tail_bn);
    if (tile->blocks) text_printf(t, " blocks=%d", tile->blocks);
    if (tile->splits > 1) text_printf(t, " splits=%d%s", tile->splits, tile->scattered ? " scattered" : "");
    if (tile_cluster(tile) > 1)
        text_printf(t, " cluster=%dx%d", tile_cluster_m(tile), tile_cluster_n(tile));
    if (tile->lends) text_append(t, " lends");
}
