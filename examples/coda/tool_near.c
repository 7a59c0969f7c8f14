/* tool_near.c -- the known word that is nearest to one that is not known, for complaints. */
#include <stdio.h>
#include <string.h>

#include "tool.h"

enum { LONGEST = 40 };

/* Letters to insert, delete or replace; neighbours to swap are two (Levenshtein). */
static int distance(const char *a, const char *b)
{
    int row[LONGEST + 1], n = (int)strlen(b);
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int replaced = corner + (a[i - 1] != b[j - 1]), other = row[j] < row[j - 1] ? row[j] : row[j - 1];
            corner = row[j];
            row[j] = replaced < other + 1 ? replaced : other + 1;
        }
    }
    return row[n];
}

void nearest_try(struct nearest *n, const char *known)
{
    size_t a = strlen(n->word), b = strlen(known);
    if (a > LONGEST || b > LONGEST) return;
    int d = distance(n->word, known);
    if ((size_t)(2 * d) > (a > b ? a : b) || (n->best && d >= n->distance)) return;
    n->best = known;
    n->distance = d;
}

const char *nearest_text(struct nearest *n)
{
    if (!n->best) return "";
    snprintf(n->text, sizeof n->text, "; do you mean %s?", n->best);
    return n->text;
}
