/*
 * scores.c -- SentencePiece's BPE, which has a score of each token and no list of merges: of
 * all neighbours that joined are a token, those merge first whose token has the highest score, and of
 * equal ones the leftmost.
 *
 * Here it becomes a table of merges: each token is cut in two at each of its characters, and where both
 * halves are tokens they merge, with a rank by the token's score. (Kudo, Richardson: SentencePiece,
 * arXiv 1808.06226.)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_json.h"

enum { LONGEST = 1024 }; /* bytes of a token that is cut: its prefixes and suffixes are looked up, each */

struct cut {
    double score;
    int32_t left, right, id;
};

struct cuts {
    struct cut *list;
    size_t count, room;
};

static bool add_cut(struct cuts *c, struct cut cut)
{
    if (c->count == c->room) {
        size_t room = c->room ? 2 * c->room : 4096;
        struct cut *list = realloc(c->list, room * sizeof *list);
        if (!list) return false;
        c->list = list;
        c->room = room;
    }
    c->list[c->count++] = cut;
    return true;
}

static bool cut_word(const struct tokenizer *t, const char *word, int32_t id, double score, struct cuts *to)
{
    size_t n = strlen(word);
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)word[i] & 0xc0) == 0x80) continue; /* inside of a character */
        int32_t left = vocab_find(&t->vocab, word, i);
        int32_t right = left < 0 ? -1 : vocab_find(&t->vocab, word + i, n - i);
        if (right >= 0 && !add_cut(to, (struct cut){score, left, right, id})) return false;
    }
    return true;
}

static bool cut_words(const struct tokenizer *t, const json_t *words, const json_t *scores, struct cuts *to,
                      struct complaint *c)
{
    const char *word;
    json_t *number;
    json_object_foreach((json_t *)words, word, number)
    {
        json_int_t id = json_integer_value(number);
        const json_t *score = json_array_get(scores, (size_t)id);
        if (!json_is_number(score) || !isfinite(json_number_value(score)))
            return complain(c, "token %lld has no score", (long long)id);
        if (strlen(word) > LONGEST)
            return complain(c, "token %lld has %zu bytes, more than %d", (long long)id, strlen(word),
                            LONGEST);
        if (!cut_word(t, word, (int32_t)id, json_number_value(score), to)) return complain(c, "no memory");
    }
    return true;
}

static int by_score(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

bool merges_of_scores(struct tokenizer *t, const json_t *words, const json_t *scores, struct complaint *c)
{
    struct cuts all = {0};
    bool good =
        cut_words(t, words, scores, &all, c) && (bpe_merges(&t->bpe, all.count) || complain(c, "no memory"));
    if (good && all.count) qsort(all.list, all.count, sizeof *all.list, by_score);
    uint32_t rank = 0;
    for (size_t i = 0; good && i < all.count; i++) {
        rank += i && all.list[i].score < all.list[i - 1].score;
        bpe_merge(&t->bpe, all.list[i].left, all.list[i].right, rank, all.list[i].id);
    }
    free(all.list);
    return good;
}
