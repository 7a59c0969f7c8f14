/*
 * headers.cpp -- README's first program in C++, and the rest of coda.hpp: operators, arguments by name, ends
 * of life, and mistakes, as exceptions or, where CODA_NO_EXCEPTIONS is defined, as results. headers.sh builds
 * it in each C++.
 */
#include <cmath>
#include <cstdio>
#include <cstring>

#include "coda.hpp"

static int failures;
static void expect(bool good, const char *what)
{
    if (!good) std::printf("WRONG: %s\n", what), failures++;
}

enum : int { rows = 64, columns = 256, inner = 688 };
alignas(16) static float x[rows * columns], w[2 * inner * columns], d[columns * inner], y[rows * columns];

static coda::graph block()
{
    coda::graph g;
    auto vx = g.input("x", CODA_F32, {rows, columns});
    auto vw = g.weight("w", CODA_F32, {2 * inner, columns});
    auto vd = g.weight("d", CODA_F32, {columns, inner});
    auto a = coda::swiglu(coda::matmul(coda::rms_norm(vx, coda::none, 1e-5f), vw), CODA_STACKED);
    g.output("y", coda::matmul(a, vd) + vx);
    return g;
}

/* (3 - x) * 2 / x, -x of columns 1 and 2, and what has several operands or results. */
static coda::graph odds_and_ends()
{
    coda::graph g;
    auto v = g.input("v", CODA_F32, {2, 4});
    expect(v.dims() == std::vector<int64_t>({2, 4}) && v.dtype() == CODA_F32, "dims and dtype of a leaf");
    g.output("numbers", (3 - v) * 2.0 / v);
    g.output("middle", -v(1, 1, 3));
    auto [best, where] = coda::top_k(v, 1);
    g.output("best", best);
    g.output("place", where);
    g.output("both", coda::concat(1, {v, coda::apply("relu", {v})}));
    g.output("turned", coda::reshape(coda::transpose(v, {1, 0}), {8}));
    g.output("sums", coda::row_sums(v, coda::reshape(where, {2}), 4));
    auto [smooth, last] = coda::conv1d(v, coda::reshape(v, {4, 2}));
    g.output("smooth", smooth);
    g.output("last", last);
    auto [scanned, states] = coda::scan(v, v, coda::reshape(v(0, 0, 1), {4}), v, v);
    g.output("scanned", scanned);
    g.output("states", states);
    auto [out, state] = coda::delta(v, v, v, v(1, 0, 1), v(1, 0, 1));
    g.output("out", out);
    (void)state;
    return g;
}

/* What is built under scopes says so, in texts and in mistakes. */
static void scopes()
{
    coda::graph g;
    auto v = g.input("v", CODA_F32, {2, 4});
    {
        coda::scope layer(g, "layers", 17), unit(g, "mlp");
        g.output("y", coda::tanh(v));
    }
    g.output("z", coda::exp(v));
    expect(g.text().find("tanh %v @layers.17.mlp ") != std::string::npos, "the scope of a node");
    expect(g.text().find("exp %v  ;") != std::string::npos, "no scope behind its end");
    coda::scope outer(g, "head");
#ifndef CODA_NO_EXCEPTIONS
    try {
        coda::scope wrong(g, "a b");
        expect(false, "a scope with a blank");
    } catch (const coda::error &e) {
        expect(std::strstr(e.what(), "in head: `a b` is no scope"), e.what());
    }
#endif
}

template <class T> static T take(T made) { return made; }
#ifdef CODA_NO_EXCEPTIONS
template <class T> static T take(coda::result<T> made)
{
    expect(bool(made), made ? "" : made.error().what());
    return std::move(*made);
}
#endif

static coda::plan on_cpu(const coda::graph &g)
{
    return take(coda::compile(g, coda::compile_options(CODA_DEVICE_CPU)));
}

static void runs_by_name()
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) x[r * columns + c] = static_cast<float>(r + 1);
    for (float &v : w) v = 1 / static_cast<float>(columns);
    for (float &v : d) v = 1 / static_cast<float>(inner);
    coda::plan p = on_cpu(block());
    auto memory = coda::host_alloc(p.workspace());
    take(p.run({{"y", y, sizeof y}, {"d", d, sizeof d}, {"w", w}, {"x", x}}, memory.get()));
    double silu = 1 / (1 + std::exp(-1.0));
    expect(std::fabs(y[0] - (1 + silu)) < 1e-4 && std::fabs(y[63 * columns] - (64 + silu)) < 1e-4,
           "the block");
    std::memset(y, 0, sizeof y);
    take(p.run({x, w, d, y}, memory.get()));
    expect(std::fabs(y[0] - (1 + silu)) < 1e-4, "the block, by order");
    expect(p.stats().launches > 0 && p.text().find("gemm") != std::string::npos, "text and stats of a plan");
    coda::plan moved = std::move(p);
    expect(!p.get() && moved.get(), "a plan moves");
}

/* The sum of x * x has the gradient 2 x; nothing comes to what it does not depend on. */
static void differentiates()
{
    alignas(16) float in[4] = {1, 2, 3, -4}, out[4], none[4] = {0}, loss[1];
    coda::graph g;
    auto vx = g.input("x", CODA_F32, {1, 4}), other = g.input("other", CODA_F32, {1, 4});
    auto sum = coda::reshape(coda::row_sum(vx * vx), {1});
    auto grads = coda::grad(sum, {vx, other});
    expect(grads.size() == 2 && !static_cast<coda_value>(grads[1]).id, "no gradient of what is not read");
    g.output("loss", sum);
    g.output("dx", grads[0]);
    coda::plan p = on_cpu(g);
    auto memory = coda::host_alloc(p.workspace());
    take(p.run({in, none, loss, out}, memory.get()));
    expect(loss[0] == 30 && out[0] == 2 && out[3] == -8, "a gradient");
}

static void computes_odds_and_ends()
{
    alignas(16) float v[8] = {1, 2, -4, 8, 3, -1, 6, 5}, numbers[8], middle[4], best[4], both[16], turned[8];
    alignas(16) float sums[16], smooth[8], last[4], scanned[8], states[16], out[8];
    alignas(16) int32_t place[2];
    coda::graph g = odds_and_ends();
    coda::graph again = take(coda::graph::parse(g.text()));
    expect(again.text() == g.text(), "text of a graph, there and back");
    coda::plan p = on_cpu(again);
    auto memory = coda::host_alloc(p.workspace());
    take(p.run({v, numbers, middle, best, place, both, turned, sums, smooth, last, scanned, states, out},
               memory.get()));
    for (int i = 0; i < 8; i++) expect(std::fabs(numbers[i] - (3 - v[i]) * 2 / v[i]) < 1e-5f, "operators");
    expect(middle[0] == -2 && middle[1] == 4 && middle[2] == 1 && middle[3] == -6, "a slice, and minus");
    expect(best[0] == 8 && place[0] == 3 && best[1] == 6 && place[1] == 2, "top_k");
    expect(sums[3] == 0 && sums[8] == 3 && sums[11] == 5 && sums[12] == 1 && sums[15] == 8, "row_sums");
    expect(smooth[0] == 2 && smooth[4] == 7 && last[0] == 3 && last[3] == 5, "conv1d");
    expect(std::fabs(scanned[1] - 340) < 1e-3f && std::fabs(states[0] - 47.0855f) < 1e-3f, "scan");
    expect(out[0] == 85 * .5f && out[3] == 8 * 85 * .5f, "delta"); // |k|^2 v / sqrt(4)
    expect(both[2] == -4 && both[6] == 0 && both[7] == 8 && turned[1] == 3 && turned[2] == 2,
           "concat, transpose");
}

/* Does the call fail with this status and these words? */
template <class F> static void refuses(F call, coda_status status, const char *words)
{
    std::string got = "no mistake";
    coda_status as = CODA_OK;
#ifdef CODA_NO_EXCEPTIONS
    auto made = call();
    if (!made) got = made.error().what(), as = made.error().status();
#else
    try {
        call();
    } catch (const coda::error &e) {
        got = e.what(), as = e.status();
    }
#endif
    expect(as == status && got.find(words) != std::string::npos,
           (std::string(words) + " is not in: " + got).c_str());
}

static void refuses_mistakes()
{
    coda::plan p = on_cpu(block());
    auto memory = coda::host_alloc(p.workspace());
    auto run = [&](const std::vector<coda::binding> &b) { return [&, b] { return p.run(b, memory.get()); }; };
    refuses(run({{"x", x}, {"w", w}, {"d", d}}), CODA_E_INVALID, "y is not bound");
    refuses(run({{"x", x}, {"w", w}, {"x", x}}), CODA_E_INVALID, "x is bound twice");
    refuses(run({{"z", x}}), CODA_E_INVALID, "none of the plan's 4 arguments is called");
    refuses(run({{"x", x, 16}}), CODA_E_INVALID, "x has 16 bytes; the plan wants 65536");
    refuses([] { return coda::graph::parse("nonsense"); }, CODA_E_INVALID, "line 1");
    auto mistaken = [] {
        coda::graph g;
        auto a = g.input("a", CODA_F32, {2, 3}), b = g.input("b", CODA_F32, {2, 4});
        g.output("y", coda::matmul(a, b));
        return coda::compile(g, coda::compile_options(CODA_DEVICE_CPU));
    };
    refuses(mistaken, CODA_E_INVALID, "inner sizes 3 and 4 differ");
}

int main()
{
    runs_by_name();
    computes_odds_and_ends();
    differentiates();
    refuses_mistakes();
    scopes();
    return failures != 0;
}
