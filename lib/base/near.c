/* near.c -- see near.h. */
#include "near.h"

#include "base.h"

#include <string.h>

enum { LONGEST = 64 };

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Row i of the table of distances from i letters of a to each beginning of b, by the two rows before it. */
static void next_row(int *row, const int *above, const int *two_above, const char *a, const char *b, int i,
                     int columns)
{
    row[0] = i;
    for (int j = 1; j <= columns; j++) {
        char x = lower(a[i - 1]), y = lower(b[j - 1]);
        int replaced = above[j - 1] + (x != y);
        row[j] = MIN(replaced, MIN(above[j], row[j - 1]) + 1);
        bool swapped = i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y;
        if (swapped) row[j] = MIN(row[j], two_above[j - 2] + 1);
    }
}

static int distance(const char *a, int rows, const char *b, int columns)
{
    int table[3][LONGEST + 1] = {{0}};
    for (int j = 0; j <= columns; j++) table[0][j] = j;
    for (int i = 1; i <= rows; i++)
        next_row(table[i % 3], table[(i + 2) % 3], table[(i + 1) % 3], a, b, i, columns);
    return table[rows % 3][columns];
}

void near_try(struct near *n, const char *known)
{
    size_t a = strnlen(n->word, LONGEST + 1), b = strnlen(known, LONGEST + 1);
    if (a > LONGEST || b > LONGEST) return;
    int d = distance(n->word, (int)a, known, (int)b);
    if (3 * d > (int)MAX(a, b) || (n->best && d >= n->distance)) return;
    n->best = known;
    n->distance = d;
}
