/* test_shape.c -- every shape rule, right and wrong, over one set of leaves. */
#include "graph.h" /* before check.h, which has a macro called fail */

#include "util_mistake.h"
#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <string.h>

static const char leaves[] = "%x = input bf16[2,8,64]\n"
                             "%m = input f32[8,64]\n"
                             "%h = input f16[8,64]\n"
                             "%col = input f32[8,1]\n"
                             "%v = weight f32[64]\n"
                             "%v8 = weight f32[8]\n"
                             "%s = input f32[]\n"
                             "%w = weight bf16[96,64]\n"
                             "%wb = weight bf16[2,96,64]\n"
                             "%wkn = weight bf16[64,96]\n"
                             "%i = input i32[2,8]\n"
                             "%j = input i32[8]\n"
                             "%grid = input i32[8,3]\n"
                             "%grids = input i32[2,8,2]\n"
                             "%len = input i32[2]\n"
                             "%pairs = input i32[2,8,2]\n"
                             "%eight = input f32[8]\n"
                             "%table = input i32[2,4]\n"
                             "%pool = input bf16[48,32]\n"
                             "%one = input i32[1]\n"
                             "%r = input i32[2,8,1]\n"
                             "%r1 = input i32[1,8,1]\n"
                             "%e = input f32[0,64]\n"
                             "%c0 = input f32[8,0]\n"
                             "%k0 = weight f32[5,0]\n"
                             "%odd = input f32[4,7]\n"
                             "%kv = input bf16[2,16,32]\n"
                             "%kvb = input bf16[2,16,64]\n"
                             "%kvh = input bf16[2,4,16,8]\n"
                             "%kv8 = input f8e4m3[2,16,32]\n"
                             "%one4 = input f32[4]\n"
                             "%one1 = input f32[1]\n"
                             "%poolh = input bf16[12,4,4,8]\n"
                             "%kv2 = input bf16[2,17,32]\n"
                             "%kvs = input f32[7,16,32]\n"
                             "%kvhs = input f32[7,4,16,8]\n"
                             "%seven = input i32[7]\n"
                             "%starts = input i32[8]\n"
                             "%tables = input i32[7,4]\n"
                             "%pairs1 = input i32[8,2]\n"
                             "%none = input i32[0]\n"
                             "%kvs0 = input f32[0,16,32]\n"
                             "%six = input i32[1,2,1,2,1,2]\n"
                             "%rows = input f32[16777216,1]\n"
                             "%more = input f32[16777217,1]\n"
                             "%four = input f32[1,2,4,8]\n"
                             "%tall = input f32[2000000000,1]\n"
                             "%wide = input f32[1,2000000000]\n"
                             "%b4 = input f32[2,4,8,16]\n"
                             "%bh = input bf16[4,8,16]\n"
                             "%bk = input bf16[2,1,1,16]\n"
                             "%bi = input i32[2,4,8,16]\n"
                             "%bf = input f16[4,8,16]\n"
                             "%b16 = input f32[16]\n"
                             "%b1 = input f32[1,1]\n"
                             "%bt = input f32[8,8,1]\n"
                             "%b5 = input f32[1,2,4,8,16]\n"
                             "%y = ";

/* The type of one operation over the leaves, or the failure's text. */
static const char *infer(const char *operation, char *out, size_t size)
{
    char text[2048];
    snprintf(text, sizeof text, "%s%s\n", leaves, operation);
    graph *g = graph_parse(text);
    if (g) {
        ck_assert_int_eq(graph_verify(g), CODA_OK);
        snprintf(out, size, "%s", type_text(&g->node[g->nodes - 1].type).s);
    } else {
        const char *line = mistake_plain(coda_error()), *message = strstr(line, ": ");
        snprintf(out, size, "%s", message ? message + 2 : line);
    }
    graph_free(g);
    return out;
}

static const struct {
    const char *operation, *expected;
} table[] = {
    /* matmul */
    {"matmul %x, %w", "bf16[2,8,96]"},
    {"matmul %x, %wb", "bf16[2,8,96]"},
    {"matmul %x, %wkn {kn=1}", "bf16[2,8,96]"},
    {"matmul %m, %w", "f32[8,96]"},
    {"matmul %e, %w", "f32[0,96]"},
    {"matmul %c0, %k0", "f32[8,5]"},
    {"matmul %m, %wkn", "matmul: x is [8,64] but w is [64,96]; inner sizes 64 and 96 differ; a w of [K,N] is "
                        "for coda_matmul_kn, or kn=1"},
    {"matmul %m, %w {kn=1}", "matmul: x is [8,64] but w is [96,64] (kn); inner sizes 64 and 96 differ; a w "
                             "of [N,K] is for coda_matmul, or kn=0"},
    {"matmul %m, %wb", "matmul: x is [8,64] but w is [2,96,64]; leading dimensions differ"},
    {"matmul %m, %v", "matmul: w is [64]; it needs rank 2 or more"},
    {"matmul %i, %w", "matmul: x is i32[2,8]; it must be f32, bf16 or f16"},
    {"matmul %x, %w {kn=2}", "matmul: kn is 2; must be 0..1"},
    /* maps */
    {"add %x, %m", "bf16[2,8,64]"},
    {"add %m, %x", "f32[2,8,64]"},
    {"mul %m, %col", "f32[8,64]"},
    {"mul %col, %v", "f32[8,64]"},
    {"add %s, %s", "f32[]"},
    {"add %s, %x", "f32[2,8,64]"},
    {"add %i, %len", "add: operand 0 is [2,8] but operand 1 is [2]; they do not broadcast: 8 and 2 differ"},
    {"add %i, %i", "f32[2,8]"},
    {"add %e, %v", "f32[0,64]"},
    {"add %e, %one", "f32[0,64]"},
    {"silu %h", "f16[8,64]"},
    {"nll_loss %m, %j {ignore=1, classes=2}",
     "nll_loss: operand 0 is [8,64] but operand 1 is [8]; they do not broadcast: 64 and 8 differ"},
    {"add %tall, %wide", "add result: f32[2000000000,2000000000] does not fit in 2^62 bytes"},
    /* reductions */
    {"sum %x", "f32[2,8,1]"},
    {"max %i", "f32[2,1]"},
    {"sum %c0", "f32[8,1]"},
    {"sum %s", "sum: x is []; it needs rank 1 or more"},
    {"select %x, %i", "f32[2,8,1]"},
    {"select %x, %r", "f32[2,8,1]"},
    {"select %x, %r1", "f32[2,8,1]"},
    {"select %x, %j", "select: x is [2,8,64] but the key is [8]; it must be one value for each row"},
    {"select %m, %col", "f32[8,1]"},
    {"select %m, %v", "select: x is [8,64] but the key is [64]; it must be one value for each row"},
    {"select %m, %m", "select: x is [8,64] but the key is [8,64]; it must be one value for each row"},
    /* the k largest */
    {"top_k %x {k=64}", "bf16[2,8,64]"},
    {"top_k %x {k=1, indices=1}", "i32[2,8,1]"},
    {"top_k %v8 {k=8}", "f32[8]"},
    {"top_k %e {k=2}", "f32[0,2]"},
    {"top_k %m", "top_k: k is 0; must be 1..64"},
    {"top_k %tall {k=65}", "top_k: k is 65; must be 1..64"},
    {"top_k %m {k=2, indices=2}", "top_k: indices is 2; must be 0..1"},
    {"top_k %v8 {k=9}", "top_k: x is [8]; k is 9, and it needs 9..2147483647 columns"},
    {"top_k %c0 {k=1}", "top_k: x is [8,0]; k is 1, and it needs 1..2147483647 columns"},
    {"top_k %i {k=1}", "top_k: x is i32[2,8]; it must be f32, bf16 or f16"},
    {"top_k %s {k=1}", "top_k: x is []; it needs rank 1 or more"},
    /* norms */
    {"rms_norm %x, %v {eps=1e-5}", "bf16[2,8,64]"},
    {"rms_norm %x", "bf16[2,8,64]"},
    {"rms_norm %c0 {eps=1}", "f32[8,0]"},
    {"rms_norm %x, %v8", "rms_norm: x is [2,8,64] but gain is [8]; it must be [64]"},
    {"rms_norm %x, %m", "rms_norm: x is [2,8,64] but gain is [8,64]; it must be [64]"},
    {"rms_norm %x {eps=-1}", "rms_norm: eps is -1; it must be finite and >= 0"},
    {"rms_norm %x {eps=nan}", "rms_norm: eps is nan; it must be finite and >= 0"},
    {"rms_norm %i", "rms_norm: x is i32[2,8]; it must be f32, bf16 or f16"},
    {"rms_norm %s", "rms_norm: x is []; it needs rank 1 or more"},
    {"layer_norm %m, %v, %v", "f32[8,64]"},
    {"layer_norm %m, _, %v", "f32[8,64]"},
    {"layer_norm %m, _, %v8", "layer_norm: x is [8,64] but bias is [8]; it must be [64]"},
    {"softmax %h", "f16[8,64]"},
    {"softmax %j", "softmax: x is i32[8]; it must be f32, bf16 or f16"},
    /* rope */
    {"rope %x {base=1e4}", "bf16[2,8,64]"},
    {"rope %x, %i {base=1e4, head_dim=16, rotary=8, heads=2, half=1}", "bf16[2,8,64]"},
    {"rope %x, %j {base=1e4}", "bf16[2,8,64]"},
    {"rope %m, %j {base=1e4}", "f32[8,64]"},
    {"rope %e {base=1e4}", "f32[0,64]"},
    {"rope %x, _, _ {inverse=1, scale=2}", "bf16[2,8,64]"},
    {"rope %x {inverse=2}", "rope: inverse is 2; must be 0..1"},
    {"rope %x {scale=inf}", "rope: scale is inf; it must be finite"},
    {"rope %x, _, %v8 {head_dim=16}", "bf16[2,8,64]"},
    {"rope %x, _, %v8 {head_dim=64}",
     "rope: frequencies are f32[8]; must be f32[32], one for each pair of 64 columns"},
    {"rope %x, %grid {section0=8, section1=12, section2=12}", "bf16[2,8,64]"},
    {"rope %x, %grid {section0=11, section1=11, section2=10, interleave_sections=1}", "bf16[2,8,64]"},
    {"rope %m, %grid {head_dim=8, rotary=6, section0=1, section1=1, section2=1}", "f32[8,64]"},
    {"rope %x, %grids {section0=8, section1=24}", "bf16[2,8,64]"},
    {"rope %x, %grid {section0=16, section1=24, section2=24}",
     "rope: sections add up to 64; must be 32, a frequency for each pair of 64 columns"},
    {"rope %x, %grid {section0=2, section1=33}", "rope: section1 is 33 of 32 frequencies"},
    {"rope %x, %grid {section0=32}", "rope: there are 1 sections; must be 2..4"},
    {"rope %x {interleave_sections=1}", "rope: there are 0 sections to interleave; must be 2..4"},
    {"rope %x, %grid {interleave_sections=2}", "rope: interleave_sections is 2; must be 0..1"},
    {"rope %x, %grid {section1=32}", "rope: section1 is 32; sections are 2..4 positive numbers, then zeros"},
    {"rope %x, %grid {section0=8, section1=-8, section2=32}",
     "rope: section1 is -8; sections are 2..4 positive numbers, then zeros"},
    {"rope %x, %grid {section0=8, section1=8, section2=8, section3=7, section4=1}",
     "rope: section4 is 1; sections are 2..4 positive numbers, then zeros"},
    {"rope %x, %grid {section0=8, section1=12, section2=12, interleave_sections=1}",
     "rope: section1 is 12; interleaved with 2 others it has 11 of 32 frequencies at most"},
    {"rope %x {section0=8, section1=12, section2=12}", "rope: 3 sections, but no positions"},
    {"rope %x, %j {section0=8, section1=24}", "rope: x is [2,8,64] and sections are 2 but positions are "
                                              "i32[8]; must be i32 or i64 with x's leading dimensions"
                                              " and 2 columns, or [8,2]"},
    {"rope %x, %grid {section0=8, section1=24}",
     "rope: x is [2,8,64] and sections are 2 but positions are i32[8,3]; must be i32 or i64 with x's leading"
     " dimensions and 2 columns, or [8,2]"},
    {"rope %x, %grid",
     "rope: x is [2,8,64] but positions are i32[8,3]; must be i32 or i64 with x's leading dimensions or [8]"},
    {"rope %x, %len {base=1e4}",
     "rope: x is [2,8,64] but positions are i32[2]; must be i32 or i64 with x's leading dimensions or [8]"},
    {"rope %m, %v8 {base=1e4}",
     "rope: x is [8,64] but positions are f32[8]; must be i32 or i64 with x's leading dimensions or [8]"},
    {"rope %x", "bf16[2,8,64]"},
    {"rope %x {base=0.5}", "rope: base is 0.5; it must be finite and >= 1"},
    {"rope %x {base=1}", "bf16[2,8,64]"},
    {"rope %x {base=1e4, head_dim=48}", "rope: head_dim is 48; it must divide the 64 columns"},
    {"rope %x {base=1e4, head_dim=-2}", "rope: head_dim is -2; it must divide the 64 columns"},
    {"rope %c0 {base=1e4}", "rope: head_dim is 0; it must divide the 0 columns"},
    {"rope %x {base=1e4, rotary=2}", "bf16[2,8,64]"},
    {"rope %x {base=1e4, rotary=7}", "rope: rotary is 7; it must be even, 2..head_dim (64)"},
    {"rope %x {base=1e4, head_dim=8, rotary=16}", "rope: rotary is 16; it must be even, 2..head_dim (8)"},
    {"rope %odd {base=1e4}", "rope: rotary is 7; it must be even, 2..head_dim (7)"},
    {"rope %x {base=1e4, head_dim=16, heads=5}", "rope: heads is 5; must be 1..4"},
    {"rope %x {base=1e4, half=3}", "rope: half is 3; must be 0..1"},
    {"rope %v {base=1e4}", "rope: x is [64]; it needs rank 2 or more"},
    /* attention */
    {"attention %x, %x, %x {scale=0, heads=4}", "bf16[2,8,64]"},
    {"attention %x, %kv, %kv, %len {heads=8, kv_heads=4, window=3, causal=1, align=3}", "bf16[2,8,64]"},
    {"attention %x, %kv, %kv, %len {heads=8, kv_heads=4, window=3, align=1}", "bf16[2,8,64]"},
    {"attention %x, %kv, %kv, %len {heads=8, kv_heads=4}", "bf16[2,8,64]"},
    {"attention %x, %x, %x, %len {causal=1}", "bf16[2,8,64]"},
    {"attention %x, %kv, %kv {heads=8, kv_heads=4, window=3, causal=1}", "bf16[2,8,64]"},
    {"attention %m, %m, %m, %one {heads=1}", "f32[8,64]"},
    {"attention %e, %m, %m", "f32[0,64]"},
    {"attention %m, %e, %e", "f32[8,64]"},
    {"attention %x, %kv, %kv {heads=8, kv_heads=4, ahead=2, softcap=30}", "bf16[2,8,64]"},
    {"attention %x, %x, %x, _, _, _, %eight {heads=8}", "bf16[2,8,64]"},
    {"attention %x, %x, %x, _, %pairs, %eight {heads=8}", "bf16[2,8,64]"},
    {"attention %m, %m, %m, _, %pairs",
     "attention: q is [8,64] but ranges are i32[2,8,2]; must be i32 or i64[8,2]"},
    {"attention %x, %x, %x, _, %len",
     "attention: q is [2,8,64] but ranges are i32[2]; must be i32 or i64[2,8,2]"},
    {"attention %x, %x, %x, _, _, %eight {heads=4}",
     "attention: slopes are f32[8]; must be f32[4], one for each head"},
    {"attention %x, %x, %x, _, _, _, %len {heads=2}",
     "attention: sinks are i32[2]; must be f32[2], one for each head"},
    {"attention %x, %x, %x {causal=1, ahead=3}", "attention: ahead is 3; causal queries see nothing ahead"},
    {"attention %x, %x, %x {ahead=-3}", "attention: ahead is -3; must be 0..2147483647"},
    {"attention %x, %x, %x {heads=8, score=softcap {cap=30}}", "bf16[2,8,64]"},
    {"attention %x, %kv, %kv, %len {heads=8, kv_heads=4, score=relu}", "bf16[2,8,64]"},
    {"attention %x, %kv, %kv, %len {heads=8, kv_heads=4, score=add, align=3}", "bf16[2,8,64]"},
    {"attention %x, %kv, %kv, %len {heads=8, kv_heads=4, score=add}",
     "attention: the score's map, lengths, Tq 8 and Tk 16: align must say where queries sit:"
     " CODA_ALIGN_LENGTH (3): the last before the length, CODA_ALIGN_END (2): before Tk, or"
     " CODA_ALIGN_START (1)"},
    {"attention %x, %x, %x {score=sum}", "attention: score is sum, a reduction; it must be a map"},
    {"attention %x, %x, %x {softcap=-1}", "attention: softcap is -1; must be finite, and 0 or more"},
    {"attention %x, %x, %x {softcap=inf}", "attention: softcap is inf; must be finite, and 0 or more"},
    {"attention %x, %kv, %kv, %len, _, %eight {heads=8, kv_heads=4}",
     "attention: slopes, lengths, Tq 8 and Tk 16: align must say where queries sit: CODA_ALIGN_LENGTH (3):"
     " the last before the length, CODA_ALIGN_END (2): before Tk, or CODA_ALIGN_START (1)"},
    {"attention %x, %pool, %pool, %len, _, _, _, %table {heads=8, kv_heads=4, page=4, causal=1, align=3}",
     "bf16[2,8,64]"},
    {"attention %x, %pool, %pool, %len, _, _, _, %table {heads=8, kv_heads=4, page=32}",
     "attention: k is [48,32], the table [2,4]; k must be [slots,columns] of whole pages of 32, and a "
     "sequence"
     " have 1073741824 keys at most"},
    {"attention %x, %kv, %kv, %len, _, _, _, %table {heads=8, kv_heads=4, page=4}",
     "attention: k is [2,16,32], the table [2,4]; k must be [slots,columns] of whole pages of 4, and a "
     "sequence"
     " have 1073741824 keys at most"},
    {"attention %x, %poolh, %poolh, %len, _, _, _, %table {heads=8, kv_heads=4, page=4, layout=1}",
     "bf16[2,8,64]"},
    {"attention %m, %poolh, %poolh, %one, _, _, _, %table {heads=8, kv_heads=4, page=4, layout=1}",
     "attention: q is [8,64] but the table is i32[2,4]; must be i32 or i64[1,pages]"},
    {"attention %x, %kvh, %kvh, %len {heads=8, kv_heads=4, layout=1}", "bf16[2,8,64]"},
    {"attention %m, %kvh, %kvh {heads=8, kv_heads=4, layout=1}",
     "attention: q is [8,64], k [2,4,16,8], the page 0; of layout HND k is [B,kv_heads,Tk,head_dim], or "
     "[pages,kv_heads,page,head_dim]"},
    {"attention %x, %poolh, %poolh, %len, _, _, _, %table {heads=8, kv_heads=4, page=8, layout=1}",
     "attention: q is [2,8,64], k [12,4,4,8], the page 8; of layout HND k is [B,kv_heads,Tk,head_dim], or "
     "[pages,kv_heads,page,head_dim]"},
    {"attention %m, %kvs, %kvs, %seven, _, _, _, _, _, _, %starts {heads=8, kv_heads=4}", "f32[8,64]"},
    {"attention %m, %kvs, %kvs, %seven, _, _, _, _, _, _, %starts {heads=8, kv_heads=4, lse=1}", "f32[8,8]"},
    {"attention %m, %kvs, %kvs, _, %pairs1, _, _, _, _, _, %starts {heads=8, kv_heads=4, causal=1}",
     "f32[8,64]"},
    {"attention %m, %kvs, %kvs, %seven, _, _, _, _, _, _, %starts {heads=8, kv_heads=4, causal=1, align=3}",
     "f32[8,64]"},
    {"attention %m, %kvhs, %kvhs, _, _, _, _, _, _, _, %starts {heads=8, kv_heads=4, layout=1}", "f32[8,64]"},
    {"attention %m, %pool, %pool, %seven, _, _, _, %tables, _, _, %starts {heads=8, kv_heads=4, page=4}",
     "f32[8,64]"},
    {"attention %m, %poolh, %poolh, %seven, _, _, _, %tables, _, _, %starts {heads=8, kv_heads=4, page=4, "
     "layout=1}",
     "f32[8,64]"},
    {"attention %m, %kvs0, %kvs0, _, _, _, _, _, _, _, %one {heads=8, kv_heads=4}", "f32[8,64]"},
    {"attention %x, %kv, %kv, _, _, _, _, _, _, _, %starts {heads=8, kv_heads=4}",
     "attention: q is [2,8,64] but starts are i32[8]; q must be [T,columns], starts i32 or i64[B+1]"},
    {"attention %m, %kvs, %kvs, _, _, _, _, _, _, _, %none {heads=8, kv_heads=4}",
     "attention: q is [8,64] but starts are i32[0]; q must be [T,columns], starts i32 or i64[B+1]"},
    {"attention %m, %kvs, %kvs, _, _, _, _, _, _, _, %eight {heads=8, kv_heads=4}",
     "attention: q is [8,64] but starts are f32[8]; q must be [T,columns], starts i32 or i64[B+1]"},
    {"attention %m, %kvs, %kvs, _, _, _, _, _, _, _, %table {heads=8, kv_heads=4}",
     "attention: q is [8,64] but starts are i32[2,4]; q must be [T,columns], starts i32 or i64[B+1]"},
    {"attention %m, %kv, %kv, _, _, _, _, _, _, _, %starts {heads=8, kv_heads=4}",
     "attention: starts are i32[8] but k is [2,16,32]; must be [7,Tk,columns]"},
    {"attention %m, %pool, %pool, _, _, _, _, _, _, _, %starts {heads=8, kv_heads=4}",
     "attention: starts are i32[8] but k is [48,32]; must be [7,Tk,columns]"},
    {"attention %m, %kvs, %kvs, %len, _, _, _, _, _, _, %starts {heads=8, kv_heads=4}",
     "attention: starts are i32[8] but lengths are i32[2]; must be i32 or i64[7]"},
    {"attention %m, %pool, %pool, %seven, _, _, _, %table, _, _, %starts {heads=8, kv_heads=4, page=4}",
     "attention: starts are i32[8] but the table is i32[2,4]; must be i32 or i64[7,pages]"},
    {"attention %m, %kvh, %kvh, _, _, _, _, _, _, _, %starts {heads=8, kv_heads=4, layout=1}",
     "attention: starts are i32[8], k [2,4,16,8], the page 0; of layout HND k is [B,kv_heads,Tk,head_dim], "
     "or "
     "[pages,kv_heads,page,head_dim]"},
    {"attention %m, %kvs, %kvs, _, %pairs, _, _, _, _, _, %starts {heads=8, kv_heads=4}",
     "attention: q is [8,64] but ranges are i32[2,8,2]; must be i32 or i64[8,2]"},
    {"attention %m, %kvs, %kvs, %seven, _, _, _, _, _, _, %starts {heads=8, kv_heads=4, causal=1}",
     "attention: causal, lengths, Tq 8 and Tk 16: align must say where queries sit: CODA_ALIGN_LENGTH (3):"
     " the last before the length, CODA_ALIGN_END (2): before Tk, or CODA_ALIGN_START (1)"},
    {"attention %x, %kvh, %kvh {heads=8, layout=1}",
     "attention: k is [2,4,16,8], of 4 heads, but kv_heads is 8"},
    {"attention %x, %kvh, %kvh {heads=4, layout=1}",
     "attention: k is [2,16,32]; 4 kv_heads of 16 columns make 64"},
    {"attention %x, %kv, %kv {heads=4, layout=1}",
     "attention: q is [2,8,64], k [2,16,32], the page 0; of layout HND k is [B,kv_heads,Tk,head_dim], or "
     "[pages,kv_heads,page,head_dim]"},
    {"attention %x, %kv, %kv {heads=4, layout=3}", "attention: layout is 3; must be 0..1"},
    {"attention %x, %kv8, %kv8, %len, _, _, _, _, %one4, %one1 {heads=8, kv_heads=4}", "bf16[2,8,64]"},
    {"attention %x, %kv, %kv, %len, _, _, _, _, _, %eight {heads=8, kv_heads=4}",
     "attention: v_scale is f32[8]; must be f32[1] or f32[4], one for each key head"},
    {"attention %x, %kv, %kv, %len, _, _, _, _, %one {heads=8, kv_heads=4}",
     "attention: k_scale is i32[1]; must be f32[1] or f32[4], one for each key head"},
    {"attention %kv8, %kv8, %kv8", "attention: operand 0 is f8e4m3[2,16,32]; only a product's w, attention's "
                                   "k and v, coda_cast, views, coda_all_gather and coda_assign read 8 bits"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %b4 {heads=4}", "bf16[2,8,64]"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %bh {heads=4, lse=1}", "f32[2,4,8]"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %bk {heads=4}", "bf16[2,8,64]"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %b16 {heads=4}", "bf16[2,8,64]"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %b1 {heads=4}", "bf16[2,8,64]"},
    {"attention %m, %kvs, %kvs, _, _, _, _, _, _, _, %starts, %bt {heads=8, kv_heads=4}", "f32[8,64]"},
    {"attention %x, %pool, %pool, %len, _, _, _, %table, _, _, _, %b16 {heads=8, kv_heads=4, page=4}",
     "bf16[2,8,64]"},
    {"attention %x, %kvh, %kvh, _, _, _, _, _, _, _, _, %b16 {heads=8, kv_heads=4, layout=1}",
     "bf16[2,8,64]"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %b4 {heads=8}",
     "attention: bias is f32[2,4,8,16]; must be f32 or bf16, of rank 1..4, and broadcast to [2,8,8,16]"},
    {"attention %x, %x, %x, _, _, _, _, _, _, _, _, %bk {heads=4}",
     "attention: bias is bf16[2,1,1,16]; must be f32 or bf16, of rank 1..4, and broadcast to [2,4,8,8]"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %bf {heads=4}",
     "attention: bias is f16[4,8,16]; must be f32 or bf16, of rank 1..4, and broadcast to [2,4,8,16]"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %bi {heads=4}",
     "attention: bias is i32[2,4,8,16]; must be f32 or bf16, of rank 1..4, and broadcast to [2,4,8,16]"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %b5 {heads=4}",
     "attention: bias is f32[1,2,4,8,16]; must be f32 or bf16, of rank 1..4, and broadcast to [2,4,8,16]"},
    {"attention %x, %kvb, %kvb, _, _, _, _, _, _, _, _, %s {heads=4}",
     "attention: bias is f32[]; must be f32 or bf16, of rank 1..4, and broadcast to [2,4,8,16]"},
    {"attention %m, %m, %m, _, _, _, _, _, _, _, _, %bh {heads=4}",
     "attention: bias is bf16[4,8,16]; must be f32, of rank 1..4, and broadcast to [4,8,8]"},
    {"attention %m, %kvs, %kvs, _, _, _, _, _, _, _, %starts, %b4 {heads=8, kv_heads=4}",
     "attention: bias is f32[2,4,8,16]; must be f32, of rank 1..4, and broadcast to [8,8,16]"},
    {"attention %x, %pool, %pool, %len, _, _, _, %table, _, _, _, %bt {heads=4, kv_heads=2, page=4}",
     "attention: bias is f32[8,8,1]; must be f32 or bf16, of rank 1..4, and broadcast to [2,4,8,16]"},
    {"attention %x, %x, %x {heads=4, lse=1}", "f32[2,4,8]"},
    {"attention %m, %m, %m {lse=1}", "f32[1,8]"},
    {"attention %x, %x, %x {lse=2}", "attention: lse is 2; must be 0..1"},
    {"attention %x, %pool, %pool, _, _, _, _, %table {heads=8, kv_heads=4, page=4}",
     "attention: pages of 4 keys want lengths"},
    {"attention %x, %pool, %pool, %len, _, _, _, %table {heads=8, kv_heads=4, page=3}",
     "attention: page is 3 with a table; a table wants a power of two up to 1048576"},
    {"attention %x, %kv, %kv, %len {heads=8, kv_heads=4, page=4}",
     "attention: page is 4 without a table; a table wants a power of two up to 1048576"},
    {"attention %x, %pool, %pool, %len, _, _, _, %pairs {heads=8, kv_heads=4, page=4}",
     "attention: q is [2,8,64] but the table is i32[2,8,2]; must be i32 or i64[2,pages]"},
    {"attention %x, %kv, %kv2 {heads=2, kv_heads=1}",
     "attention: k is [2,16,32] but v is [2,17,32]; they must be equal"},
    {"attention %x, %kv, %kv {heads=4}", "attention: k is [2,16,32]; 4 kv_heads of 16 columns make 64"},
    {"attention %x, %x, %x {heads=4, kv_heads=3}",
     "attention: heads is 4, kv_heads 3; both positive, and kv_heads divides heads"},
    {"attention %x, %x, %x {heads=-4}",
     "attention: heads is -4, kv_heads -4; both positive, and kv_heads divides heads"},
    {"attention %x, %x, %x {heads=5}", "attention: q is [2,8,64]; 5 heads must divide its columns"},
    {"attention %x, %m, %m", "attention: q is [2,8,64] but k is [8,64]; both must be [B,T,columns] or "
                             "[T,columns], heads beside each other"},
    {"attention %m, %kv, %kv", "attention: q is [8,64] but k is [2,16,32]; both must be [B,T,columns] or "
                               "[T,columns], heads beside each other"},
    {"attention %four, %four, %four", "attention: q is [1,2,4,8] but k is [1,2,4,8]; both must be "
                                      "[B,T,columns] or [T,columns], heads beside each other"},
    {"attention %x, %x, %x, %one", "attention: q is [2,8,64] but lengths are i32[1]; must be i32 or i64[2]"},
    {"attention %x, %x, %x {window=-1}", "attention: window is -1; must be 0..2147483647"},
    {"attention %x, %x, %x {causal=2}", "attention: causal is 2; must be 0..1"},
    {"attention %x, %x, %x {align=4}", "attention: align is 4; must be 0..3"},
    {"attention %x, %kv, %kv, %len {heads=8, kv_heads=4, causal=1}",
     "attention: causal, lengths, Tq 8 and Tk 16: align must say where queries sit: CODA_ALIGN_LENGTH (3):"
     " the last before the length, CODA_ALIGN_END (2): before Tk, or CODA_ALIGN_START (1)"},
    {"attention %x, %kv, %kv, %len {heads=8, kv_heads=4, window=2}",
     "attention: window, lengths, Tq 8 and Tk 16: align must say where queries sit: CODA_ALIGN_LENGTH (3):"
     " the last before the length, CODA_ALIGN_END (2): before Tk, or CODA_ALIGN_START (1)"},
    {"attention %x, %x, %x {scale=inf}", "attention: scale is inf; it must be finite, and so its double"},
    /* cross entropy */
    {"cross_entropy %x, %i {ignore=-100}", "f32[2,8]"},
    {"cross_entropy %x, %i {reduction=1}", "f32[1]"},
    {"cross_entropy %h, %j {reduction=2}", "f32[1]"},
    {"cross_entropy %x, %j",
     "cross_entropy: logits are [2,8,64] but targets are i32[8]; must be i32 or i64, one for each row"},
    {"cross_entropy %m, %v8",
     "cross_entropy: logits are [8,64] but targets are f32[8]; must be i32 or i64, one for each row"},
    {"cross_entropy %x, %i {reduction=3}", "cross_entropy: reduction is 3; must be 0..2"},
    {"cross_entropy %x, %i {ignore=2147483648}",
     "cross_entropy: ignore is 2147483648; must be -2147483648..2147483647"},
    {"cross_entropy %x, %i {ignore=16777217}",
     "cross_entropy: ignore is 16777217; it has no exact fp32 value"},
    /* movement */
    {"embedding %w, %i", "bf16[2,8,64]"},
    {"embedding %v, %i",
     "embedding: table is f32[64] and ids are i32[2,8]; need [V,N] and i32 or i64 of rank < 6"},
    {"embedding %w, %m",
     "embedding: table is bf16[96,64] and ids are f32[8,64]; need [V,N] and i32 or i64 of rank < 6"},
    {"embedding %w, %six",
     "embedding: table is bf16[96,64] and ids are i32[1,2,1,2,1,2]; need [V,N] and i32 or i64 of rank < 6"},
    {"embedding %rows, %i", "f32[2,8,1]"},
    {"embedding %more, %i", "embedding: table is f32[16777217,1], 16777217 rows; most are 16777216"},
    {"row_sums %x, %i {rows=100}", "f32[100,64]"},
    {"row_sums %h, %j {rows=0}", "f32[0,64]"},
    {"row_sums %v8, %s", "row_sums: x is [8] but ids are f32[]; must be i32 or i64, one for each row of x"},
    {"row_sums %x, %j {rows=4}",
     "row_sums: x is [2,8,64] but ids are i32[8]; must be i32 or i64, one for each row of x"},
    {"row_sums %m, %m {rows=4}",
     "row_sums: x is [8,64] but ids are f32[8,64]; must be i32 or i64, one for each row of x"},
    {"row_sums %i, %len {rows=4}", "row_sums: x is i32[2,8]; it must be f32, bf16 or f16"},
    {"row_sums %s, %j {rows=4}", "row_sums: x is []; it needs rank 1 or more"},
    {"row_sums %m, %j {rows=16777217}", "row_sums: rows is 16777217; must be 0..16777216"},
    {"row_sums %m, %j {rows=-3}", "dim: -3; must be >= 0"},
    {"cast %x {to=f32}", "f32[2,8,64]"},
    {"cast %i {to=f16}", "f16[2,8]"},
    {"cast %i {to=i32}", "i32[2,8]"},
    {"cast %x", "cast: it needs {to=DTYPE}"},
    {"slice %x {axis=2, start=1, stop=64, step=2}", "bf16[2,8,32]"},
    {"slice %x {axis=1, start=3, stop=3, step=1}", "bf16[2,0,64]"},
    {"slice %i {axis=1, stop=8, step=3}", "i32[2,3]"},
    {"slice %x {axis=2, stop=64, step=9223372036854775807}", "bf16[2,8,1]"},
    {"slice %x {axis=3, stop=1, step=1}", "slice: x is [2,8,64]; it has no axis 3"},
    {"slice %x {axis=-1, stop=3, step=1}", "bf16[2,8,3]"},
    {"slice %x {axis=-3, stop=1, step=1}", "bf16[1,8,64]"},
    {"slice %x {axis=-4, stop=1, step=1}", "slice: x is [2,8,64]; it has no axis -4"},
    {"slice %s {axis=-1}", "slice: x is []; it has no axis -1"},
    {"slice %x {axis=1, start=2, stop=9, step=1}",
     "slice: start 2, stop 9, step 1; need 0 <= start <= stop <= 8 and step >= 1"},
    {"slice %x {axis=1, start=2, stop=1, step=1}",
     "slice: start 2, stop 1, step 1; need 0 <= start <= stop <= 8 and step >= 1"},
    {"slice %x {axis=1, stop=8}",
     "slice: start 0, stop 8, step 0; need 0 <= start <= stop <= 8 and step >= 1"},
    {"concat %m, %e {axis=0}", "f32[8,64]"},
    {"concat %m, %m, %col {axis=1}", "f32[8,129]"},
    {"concat %m, %m, %m {axis=1, interleave=1}", "f32[8,192]"},
    {"concat %m, %m, %col {axis=-1}", "f32[8,129]"},
    {"concat %m, %e {axis=-2}", "f32[8,64]"},
    {"concat %m, %m {axis=-1, interleave=1}", "f32[8,128]"},
    {"concat %m, %m {axis=-3}", "concat: operand 0 is [8,64]; it has no axis -3"},
    {"concat %m, %v {axis=-2}",
     "concat: operand 0 is f32[8,64] but operand 1 is f32[64]; only axis 0 may differ"},
    {"concat %m, %h", "concat: operand 0 is f32[8,64] but operand 1 is f16[8,64]; only axis 0 may differ"},
    {"concat %m, %v", "concat: operand 0 is f32[8,64] but operand 1 is f32[64]; only axis 0 may differ"},
    {"concat %m, %col", "concat: operand 0 is f32[8,64] but operand 1 is f32[8,1]; only axis 0 may differ"},
    {"concat %m, %col {axis=1, interleave=1}",
     "interleave: operand 0 is f32[8,64] but operand 1 is f32[8,1]; only equal types interleave"},
    {"concat %m, %m {axis=2, interleave=1}", "interleave: operand 0 is [8,64]; it has no axis 2"},
    {"concat %m, %m {interleave=2}", "concat: interleave is 2; must be 0..1"},
    {"concat %m {axis=2}", "concat: operand 0 is [8,64]; it has no axis 2"},
    {"concat %s", "concat: operand 0 is []; it has no axis 0"},
    {"reshape %x {d0=16, d1=64, rank=2}", "bf16[16,64]"},
    {"reshape %e {d0=7, d1=0, rank=2}", "f32[7,0]"},
    {"reshape %s", "f32[]"},
    {"reshape %one", "i32[]"},
    {"reshape %x {d0=16, d1=63, rank=2}", "reshape: x is [2,8,64], 1024 elements, but [16,63] has 1008"},
    {"reshape %x {d0=16, rank=7}", "reshape: rank is 7; must be 0..6"},
    {"reshape %x {d0=-1, d1=-1024, rank=2}", "dim: -1024; must be >= 0"},
    {"reshape %x {d0=-1, d1=64, rank=2}", "bf16[16,64]"},
    {"reshape %x {d0=4, d1=-1, d2=32, rank=3}", "bf16[4,8,32]"},
    {"reshape %x {d0=-1, rank=1}", "bf16[1024]"},
    {"reshape %s {d0=-1, rank=1}", "f32[1]"},
    {"reshape %e {d0=64, d1=-1, rank=2}", "f32[64,0]"},
    {"reshape %e {d0=0, d1=-1, rank=2}",
     "reshape: x is [0,64], 0 elements; the dimensions beside the -1 make 0, which does"
     " not divide them"},
    {"reshape %x {d0=-1, d1=63, rank=2}",
     "reshape: x is [2,8,64], 1024 elements; the dimensions beside the -1 make 63, which does"
     " not divide them"},
    {"reshape %x {d0=-1, d1=64, d2=-1, rank=3}",
     "reshape: x is [2,8,64]; dimensions 0 and 2 are -1, and one may be"},
    {"reshape %x {d0=-2, d1=64, rank=2}", "dim: -2; must be >= 0"},
    {"reshape %x {d0=-1, d1=4611686018427387904, rank=2}",
     "reshape result: bf16[1,4611686018427387904] does not fit in 2^62 bytes"},
    {"reshape %e {d0=0, d1=1152921504606846976, rank=2}", "f32[0,1152921504606846976]"},
    {"reshape %e {d0=0, d1=4611686018427387904, rank=2}",
     "reshape result: f32[0,4611686018427387904] does not fit in 2^62 bytes"},
    {"transpose %x {p0=2, p2=1}", "bf16[64,2,8]"},
    {"transpose %s", "f32[]"},
    {"transpose %x {p1=1, p2=1}", "transpose: x is [2,8,64]; p2 = 1 makes no permutation"},
    {"transpose %x {p1=1, p2=3}", "transpose: x is [2,8,64]; p2 = 3 makes no permutation"},
    {"transpose %x {p0=-1, p1=-3, p2=1}", "bf16[64,2,8]"},
    {"transpose %x {p1=-1, p2=2}", "transpose: x is [2,8,64]; p2 = 2 makes no permutation"},
    {"transpose %x {p1=-4, p2=2}", "transpose: x is [2,8,64]; p1 = -4 makes no permutation"},
    /* arity */
    {"matmul %x", "matmul: takes 2 operands, got 1"},
    {"swiglu %x", "swiglu: takes 2 operands, got 1"},
    {"rms_norm %x, %v, %v", "rms_norm: takes 1 to 2 operands, got 3"},
    {"rms_norm _, %v", "rms_norm: operand 0 (x) is CODA_NONE"},
    {"add %x, _", "add: operand 1 is CODA_NONE"},
    {"concat %x, _", "concat: operand 1 is CODA_NONE"},
};

START_TEST(rule)
{
    char got[1024];
    ck_assert_str_eq(infer(table[_i].operation, got, sizeof got), table[_i].expected);
}
END_TEST

/* Attributes left out become what they stand for. */
START_TEST(defaults)
{
    graph *g = graph_parse("%x = input f32[4,32]\n%1 = rope %x {base=1, head_dim=8}\n"
                           "%2 = attention %x, %x, %x {heads=2}\n");
    ck_assert_ptr_nonnull(g);
    const struct attr_rope *rope = &g->node[1].attr.rope;
    const struct attr_attention *attention = &g->node[2].attr.attention;
    ck_assert_int_eq(rope->head_dim, 8);
    ck_assert_int_eq(rope->rotary, 8);
    ck_assert_int_eq(rope->heads, 4);
    ck_assert_int_eq(attention->kv_heads, 2);
    ck_assert(attention->scale == 0.25f);
    graph_free(g);
}
END_TEST

START_TEST(counting)
{
    struct type t = {CODA_F32, 3, {2, 3, 5}, NULL}, huge = {CODA_F32, 3, {1 << 30, 1 << 30, 4}, NULL},
                s = {CODA_F32, 0, {0}, NULL};
    int64_t stride[CODA_MAX_RANK];
    ck_assert_int_eq(type_elements(&t), 30);
    ck_assert_int_eq(type_rows(&t), 6);
    ck_assert_int_eq(type_columns(&t), 5);
    ck_assert_int_eq(type_elements(&huge), -1);
    ck_assert_int_eq(type_elements(&s), 1);
    ck_assert_int_eq(type_rows(&s), 1);
    huge.dim[2] = 0;
    ck_assert_int_eq(type_elements(&huge), 0);
    dense_strides(&t, stride);
    ck_assert_int_eq(stride[0], 15);
    ck_assert_int_eq(stride[1], 5);
    ck_assert_int_eq(stride[2], 1);
}
END_TEST

static const struct {
    int rank;
    int64_t dim[3], stride[3];
    const char *expected;
} strided[] = {
    {2, {4, 8}, {8, 1}, ""},
    {2, {4, 8}, {1, 4}, ""},
    {2, {4, 8}, {100, 3}, ""},
    {2, {1, 8}, {0, 1}, ""},
    {3, {0, 8, 8}, {0, 0, 0}, ""},
    {3, {2, 3, 4}, {4, 8, 1}, ""},
    {2, {4, 8}, {7, 1}, "input x: stride 0 is 7 but the dimensions below it span 8 elements; they overlap"},
    {2, {4, 8}, {0, 1}, "input x: stride 0 is 0 but dimension 0 is 4; its elements overlap"},
    {2, {4, 8}, {-8, 1}, "input x: stride 0 is -8; must be 0..1152921504606846976"},
    {2, {1, 8}, {INT64_MAX, 1}, "input x: stride 0 is 9223372036854775807; must be 0..1152921504606846976"},
    {2,
     {1LL << 40, 0},
     {INT32_MAX, 1},
     "input x: f32[1099511627776,0] with stride 2147483647 does not fit in 2^62 bytes"},
    {2,
     {4, 8},
     {1152921504606846976, 1},
     "input x: f32[4,8] with stride 1152921504606846976 does not fit in 2^62 bytes"},
};

START_TEST(strides)
{
    struct type t = {CODA_F32, strided[_i].rank, {0}, NULL};
    memcpy(t.dim, strided[_i].dim, sizeof strided[_i].dim);
    coda_status s = strides_check("input", "x", &t, strided[_i].stride);
    ck_assert_str_eq(s == CODA_OK ? "" : coda_error(), strided[_i].expected);
}
END_TEST

TESTS(shape, EACH(rule, ARRAY_SIZE(table)), EACH(strides, ARRAY_SIZE(strided)), ONE(defaults), ONE(counting));
