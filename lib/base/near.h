/*
 * near.h -- the known word that is nearest to one that is not known, for error messages.
 *
 * Nearest by Damerau and Levenshtein's distance (optimal string alignment): the letters to insert, delete or
 * replace, and neighbours to swap. Upper and lower case are alike. A word further away than a third of the
 * longer one's letters is not near.
 *
 *     struct near n = {.word = "bais"};
 *     for (each known word) near_try(&n, known);
 *     n.best                              "bias", or NULL
 */
#ifndef NEAR_H
#define NEAR_H

struct near {
    const char *word, *best; /* best: NULL, none is near */
    int distance;            /* of best */
};

void near_try(struct near *n, const char *known);

#endif
