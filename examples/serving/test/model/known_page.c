/*
 * known_page.c -- the tables of keys as a page.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_keys.h"
#include "known.h"
#include "picture_config.h"
#include "words_keys.h"

static const char *const verdicts[] = {"read", "ignored", "refused"};

static void print_families(FILE *to, const struct key_table *t, unsigned families)
{
    bool every = true, first = true;
    for (int i = 0; t->families[i]; i++) every &= families >> i & 1;
    if (every) fputs("all", to);
    for (int i = 0; !every && t->families[i]; i++)
        if (families >> i & 1) fprintf(to, "%s%s", first ? "" : ", ", t->families[i]), first = false;
}

static void print_table(FILE *to, const struct key_table *t)
{
    fprintf(to, "\n## %s\n\n| Key | Of | | |\n|---|---|---|---|\n", t->title);
    for (int i = 0; i < t->count; i++) {
        const struct key *k = &t->key[i];
        char names[1200];
        snprintf(names, sizeof names, "%s", k->names);
        fputs("| ", to);
        for (char *rest = names, *one; (one = strsep(&rest, " "));)
            if (*one) fprintf(to, "%s`%s`", one == names ? "" : " ", one);
        fputs(" | ", to);
        print_families(to, t, k->families);
        fprintf(to, " | %s", verdicts[k->verdict]);
        if (k->values) fprintf(to, " where it is in `%s`", k->values);
        fprintf(to, " | %s |\n", k->reason);
    }
}

static void print_page(FILE *to)
{
    static const struct key_table *const all[] = {
        &config_keys,     &rope_keys,    &quant_keys,   &quant_group_keys, &quant_weights_keys,
        &generation_keys, &modules_keys, &gguf_keys,    &words_keys,       &settings_keys,
        &map_keys,        &tensor_keys,  &picture_keys, &schedule_keys};
    fputs(
        "# What of a checkpoint's files is read\n\n"
        "Each key that a file has is read, or it is ignored because logits, vectors and tokens are the same "
        "with and\nwithout it, or the file is refused with the key's name; so is one that no table has. A "
        "key "
        "that is null is not\nset. `*` stands for any characters, `#` for a number, `ARCH` for the "
        "architecture. "
        "Words that begin with `gguf:`\nare what GGUF's metadata becomes; no file may have them. Tensors "
        "that no "
        "graph reads have a table, too. The tables\nare those of the code (`*_keys.c`); "
        "`make keys` in the folder above writes this page of them.\n",
        to);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) print_table(to, all[i]);
}

void known_page(void)
{
    const char *path = "model/keys.md";
    char *want = NULL, *got = calloc(1, 1 << 18);
    size_t n;
    FILE *to = open_memstream(&want, &n);
    print_page(to);
    fclose(to);
    FILE *f = fopen(path, getenv("CODA_BLESS") ? "w" : "r");
    if (f && getenv("CODA_BLESS")) fputs(want, f);
    else if (f)
        CHECK(fread(got, 1, (1 << 18) - 1, f) == n && !strcmp(got, want), "%s is not what the tables say",
              path);
    CHECK(f, "%s is missing: run the test from the project's root", path);
    if (f) fclose(f);
    free(want);
    free(got);
}
