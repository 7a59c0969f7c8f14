/*
 * fuzz_text.c -- mutated graph texts into the parser: fuzz_text SECONDS [SEED].
 *
 * A text is either refused with one line that names a line, or makes a graph that verifies and whose
 * own text is a fixed point. Run it under address and undefined-behaviour sanitizers.
 */
#include "graph.h"
#include "util_random.h"
#include "util_symbolic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_TEXT = 1 << 16 };

static const char *const seeds[] = {
    "map leaky(2; 1) \"DEV static float apply(float x, float y, float a) { return x > y ? x : a; }\"\n"
    "%x = input bf16[2,8,64]\n%w = weight bf16[96,64] stride=[72,1]\n%v = weight f32[64]\n"
    "%ids = input i32[2,8]\n%3 = matmul %x, %w {kn=0}\n%4 = rms_norm %x, %v {eps=0x1p-17}\n"
    "%5 = layer_norm %x, _, %v {eps=1e-5}\n%6 = leaky %x, %v {p0=0.1}\n"
    "%7 = rope %x, %ids, _ {base=1e4, head_dim=16, rotary=8, heads=2, half=1, inverse=1, scale=1.5}\n"
    "%at = input i32[8,3]\n%8 = rope %x, %at {section0=9, section1=12, section2=11, interleave_sections=0}\n"
    "output %y = %3\n",
    "%q = input f32[4,32]\n%k = input f32[9,16]\n%n = input i64[1]\n"
    "%a = attention %q, %k, %k, %n {scale=0.5, heads=4, kv_heads=2, window=3, causal=1, align=3}  ; comment\n"
    "%s = softmax %a # comment\n%r = reshape %s {d0=2, d1=64, rank=2}\n%t = transpose %r {p0=1}\n"
    "%c = concat %r, %r {axis=1}\noutput %y = %t stride=[1,64]\noutput %c = %c\n",
    "%q = input f32[7,32]\n%k = input f32[3,9,16]\n%n = input i32[3]\n%s = input i32[4]\n"
    "%b = input f32[4,1,9]\n"
    "%a = attention %q, %k, %k, %n, _, _, _, _, _, _, %s, %b {heads=4, kv_heads=2, causal=1, "
    "align=3}\noutput %y "
    "= %a\n",
    "%x = input f16[4,10]\n%t = input i32[4]\n%l = cross_entropy %x, %t {ignore=-100, reduction=2}\n"
    "%p = select %x, %t\n%m = max %x\n%g = slice %x {axis=1, stop=10, step=2}\n"
    "%u = slice %x {axis=1, start=1, stop=10, step=2} @%g\n%z = swiglu %g, %u @%g\n"
    "%b = top_k %x {k=3}\n%c = top_k %x {k=3, indices=1} @%b\noutput %c = %c\n"
    "%o = iota {n=4}\n%j = exponential %o, %t, %t, %t\n%q = nucleus %x, %j, _, %m\n"
    "%f = cast %z {to=f32} @layers.0\n%e = embedding %x, %t\n%d = row_sums %e, %t {rows=4}\noutput %d += "
    "%d\noutput %y = %f\noutput %l = %l\n",
    "%x = input f16[9,10]\n%g = group {ranks=1}\n%a = all_reduce %x, %g\n"
    "%b = reduce_scatter %a, %g, %a {axis=0}\n%c = all_gather %b, %g, %b {axis=-1}\noutput %y = %c\n",
    "%x = input f16[9,10]\n%w = weight f32[10,4]\n%s = state bf16[2,3,10]\n%t = input i64[3]\n"
    "%c = conv1d %x, %w, _, %s, %t\n%a = conv1d %x, %w, _, %s, %t {after=1} @%c\n%s1 = assign %s, %a\n"
    "output %y = %c\n",
    "%x = input bf16[9,12]\n%d = input f32[9,6]\n%a = weight f32[6,5]\n%b = input bf16[9,10]\n"
    "%s = state f32[2,12,5]\n%t = input i64[3]\n%k = weight f32[6]\n"
    "%y = scan %x, %d, %a, %b, %b, %s, %t, _, %k, %x {groups=2, softplus=1}\n"
    "%z = scan %x, %d, %a, %b, %b, %s, %t, _, %k, %x {groups=2, softplus=1, after=1} @%y\n"
    "%s1 = assign %s, %z\noutput %y = %y\n",
    "%q = input f16[7,8]\n%v = input f16[7,12]\n%d = input f32[7,2]\n%s = state f32[3,2,4,6]\n"
    "%t = input i32[4]\n%o = delta %q, %q, %v, %d, %d, %s, %t {heads=2, norm=1, eps=1e-6}\n"
    "%a = delta %q, %q, %v, %d, %d, %s, %t {heads=2, norm=1, eps=1e-6, after=1} @%o\n%s1 = assign %s, %a\n"
    "output %y = %o\n",
};

/* Pieces that break things more often than random bytes. */
static const char *const words[] = {
    "dim %T = 1..64\n",
    "dim ",
    "..",
    " step 8",
    "T",
    "B*T",
    "*",
    "+",
    "%",
    "_",
    "=",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    ",",
    ";",
    "#",
    "\n",
    "\"",
    "\\",
    "\\x",
    "@%",
    " @layers.17.mlp",
    " @a/b-c:0",
    "-",
    "0",
    "1",
    "2",
    "-1",
    "1000000000",
    "nan",
    "inf",
    "1e39",
    "0x1p-149",
    "2147483648",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "input",
    "weight f32[",
    "map",
    "output ",
    "stride=[",
    "bf16",
    "i32",
    "i64",
    "[0]",
    "[]",
    "f32[1,1,1,1,1,1]",
    "f32[1,1,1,1,1,1,1]",
    "matmul",
    "attention ",
    "reshape ",
    "top_k ",
    "iota ",
    "nucleus ",
    "exponential ",
    "indices=",
    "k=",
    "concat ",
    "slice ",
    "sum ",
    "select ",
    "nll ",
    "nll_loss ",
    "transpose ",
    "embedding",
    "row_sums ",
    "rows=",
    "conv1d ",
    "scan ",
    "group ",
    "ranks=",
    "all_reduce ",
    "reduce_scatter ",
    "all_gather ",
    "delta ",
    "key_heads=",
    "norm=",
    "after=",
    "%x",
    "%y",
    "rank=",
    "axis=",
    "interleave=",
    "step=",
    "start=",
    "head_dim=",
    "window=",
    "heads=",
    "reduction=",
};

struct buffer {
    char text[MAX_TEXT];
    int length;
};

/* Replaces `cut` bytes at `at` by `n` bytes. */
static void splice(struct buffer *b, int at, int cut, const char *with, int n)
{
    cut = MIN(cut, b->length - at);
    if (b->length - cut + n >= MAX_TEXT) return;
    memmove(b->text + at + n, b->text + at + cut, (size_t)(b->length - at - cut));
    memcpy(b->text + at, with, (size_t)n);
    b->length += n - cut;
    b->text[b->length] = 0;
}

static void mutate(struct random *r, struct buffer *b)
{
    int at = (int)random_below(r, b->length + 1), from = (int)random_below(r, b->length + 1);
    int n = (int)random_below(r, MIN(40, b->length - from) + 1);
    char copy[40], byte = (char)random_below(r, 256);
    memcpy(copy, b->text + from, (size_t)n);
    const char *word = words[random_below(r, ARRAY_SIZE(words))];
    switch (random_below(r, 6)) {
    case 0: splice(b, at, 1, &byte, 1); break;                     /* may end the text early */
    case 1: splice(b, at, (int)random_below(r, 12), "", 0); break; /* cut */
    case 2: splice(b, at, 0, copy, n); break;                      /* repeat elsewhere */
    case 3: splice(b, at, 1 + (int)random_below(r, 6), word, (int)strlen(word)); break;
    case 4: splice(b, at, 0, word, (int)strlen(word)); break;
    default: /* another digit */
        while (at < b->length && (b->text[at] < '0' || b->text[at] > '9')) at++;
        byte = (char)('0' + random_below(r, 10));
        if (at < b->length) splice(b, at, 1, &byte, 1);
    }
}

static void start(struct random *r, struct buffer *b)
{
    struct text t = {0};
    int64_t pick = random_below(r, 2 * ARRAY_SIZE(seeds));
    if (pick < ARRAY_SIZE(seeds)) {
        text_append(&t, seeds[pick]);
    } else if (random_chance(r, 30)) {
        graph *g = symbolic_graph(random_next(r), NULL);
        graph_print(g, &t);
        graph_free(g);
    } else {
        struct random_options ro = {.states = random_chance(r, 30), .wide = random_chance(r, 50)};
        graph *g = random_graph(random_next(r), &ro);
        graph_print(g, &t);
        graph_free(g);
    }
    b->length = 0;
    splice(b, 0, 0, text_str(&t), (int)MIN(t.length, MAX_TEXT / 2));
    text_free(&t);
}

static void stop(const char *what, const char *text)
{
    fprintf(stderr, "fuzz_text: %s: %s\n%s\n", what, coda_error(), text);
    abort();
}

/* Returns 1 if the text is a graph. */
static int check(const char *text)
{
    coda_graph *g, *again;
    coda_status s = coda_graph_parse(&g, text);
    if (s != CODA_OK) {
        if (g || s != CODA_E_INVALID || strncmp(coda_error(), "line ", 5) != 0) stop("refused badly", text);
        return 0;
    }
    struct text once = {0}, twice = {0};
    if (graph_verify(g) != CODA_OK) stop("parsed but not valid", text);
    graph_print(g, &once);
    if (coda_graph_parse(&again, text_str(&once)) != CODA_OK) stop("printed but not read", text_str(&once));
    graph_print(again, &twice);
    if (strcmp(text_str(&once), text_str(&twice)) != 0) stop("no fixed point", text_str(&once));
    text_free(&once);
    text_free(&twice);
    coda_graph_free(again);
    coda_graph_free(g);
    return 1;
}

int main(int argc, char **argv)
{
    static struct buffer b, before;
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    struct random r = {argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL)};
    unsigned long long seed = r.state;
    time_t begin = time(NULL);
    long texts = 0, graphs = 0;
    printf("fuzz_text: seed %llu\n", seed);
    fflush(stdout);
    while (difftime(time(NULL), begin) < seconds) {
        start(&r, &b);
        if (!check(b.text)) stop("a seed is refused", b.text);
        for (int i = 0; i < 200; i++, texts++) {
            before = b;
            for (int64_t n = random_below(&r, 3); n >= 0; n--) mutate(&r, &b);
            int valid = check(b.text);
            graphs += valid;
            if (!valid) b = before; /* mistakes would only pile up */
        }
    }
    printf("fuzz_text: %ld texts, %ld of them graphs, seed %llu: ok\n", texts, graphs, seed);
    return 0;
}
