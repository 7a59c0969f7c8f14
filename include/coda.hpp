/*
 * coda.hpp -- coda.h for C++17 and later, in a header alone: graphs, plans and caches that free themselves,
 * operators, arguments by name, and errors as exceptions.
 *
 *     coda::graph g;
 *     auto x = g.input("x", CODA_BF16, {2048, 4096});
 *     auto w = g.weight("w", CODA_BF16, {22016, 4096}), d = g.weight("d", CODA_BF16, {4096, 11008});
 *     auto a = coda::swiglu(coda::matmul(coda::rms_norm(x, coda::none, 1e-5f), w), CODA_STACKED);
 *     g.output("y", coda::matmul(a, d) + x);
 *     coda::plan p = coda::compile(g);
 *     p.run({{"x", dx}, {"w", dw}, {"d", dd}, {"y", dy}}, workspace, stream); // in any order
 *
 * A builder coda_NAME(g, ...) of coda.h is coda::NAME(...), with the same arguments but for the graph, which
 * is that of the values. What it means, shapes, units, ownership of memory and threads: see coda.h, whose
 * structs and constants are used as they are. Options begin as their _INIT macro. Calls that are not here
 * take get() of a graph, a plan or a cache.
 *
 * A mistake throws coda::error, a std::runtime_error with a status, in the call that made it. Where
 * CODA_NO_EXCEPTIONS is defined nothing is thrown: builders return none, as in C, and what else can fail
 * returns a coda::result<T>, which is std::expected<T, coda::error> where there is one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CODA_HPP
#define CODA_HPP

#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if __has_include(<version>)
#include <version>
#endif
#ifdef __cpp_lib_expected
#include <expected>
#endif

#include "coda.h"

namespace coda {

/* ---- Errors ---- */

class error : public std::runtime_error {
  public:
    error(coda_status status, const std::string &text) : std::runtime_error(text), status_(status) {}
    coda_status status() const noexcept { return status_; }

  private:
    coda_status status_;
};

struct done {}; /* of calls that have no result but that they succeeded */

#ifdef __cpp_lib_expected
template <class T> using result = std::expected<T, coda::error>;
#else
template <class T> class result {
  public:
    result(T value) : value_(std::move(value)), error_(CODA_OK, "") {}
    result(coda::error e) : error_(std::move(e)) {}
    explicit operator bool() const noexcept { return value_.has_value(); }
    bool has_value() const noexcept { return value_.has_value(); }
    T &operator*() { return *value_; }
    T *operator->() { return &*value_; }
    const coda::error &error() const { return error_; }

  private:
    std::optional<T> value_;
    coda::error error_;
};
#endif

#ifdef CODA_NO_EXCEPTIONS
template <class T> using checked = result<T>;
#else
template <class T> using checked = T;
#endif

namespace detail {

template <class T> checked<T> fail(coda_status status, const std::string &text)
{
#ifndef CODA_NO_EXCEPTIONS
    throw error(status, text);
#elif defined(__cpp_lib_expected)
    return std::unexpected(error(status, text));
#else
    return error(status, text);
#endif
}

/* The result of a C call, if it succeeded. */
template <class T> checked<T> deliver(coda_status status, T made)
{
    if (status != CODA_OK) return fail<T>(status, coda_error());
    return made;
}

struct freer {
    void operator()(coda_graph *g) const noexcept { coda_graph_free(g); }
    void operator()(coda_plan *p) const noexcept { coda_plan_free(p); }
    void operator()(coda_cache *c) const noexcept { coda_cache_free(c); }
    void operator()(void *p) const noexcept { std::free(p); }
};
template <class T> using owner = std::unique_ptr<T, freer>;

/* The text of a call that prints into a buffer and returns the length. */
template <class F> std::string text_of(F print)
{
    int64_t length = print(nullptr, 0);
    std::string text(length > 0 ? static_cast<std::size_t>(length) + 1 : 1, '\0');
    print(&text[0], text.size());
    text.pop_back();
    return text;
}

} // namespace detail

/* ---- Values ---- */

class value {
  public:
    constexpr value() noexcept = default;
    constexpr value(coda_graph *g, coda_value v) noexcept : graph_(g), value_(v) {}

    operator coda_value() const noexcept { return value_; } /* as options want it */
    explicit operator bool() const noexcept { return value_.id != 0; }
    coda_graph *graph() const noexcept { return graph_; }

    std::vector<int64_t> dims() const
    {
        std::vector<int64_t> d(CODA_MAX_RANK);
        int rank = coda_value_shape(graph_, value_, d.data(), nullptr);
        d.resize(rank > 0 ? static_cast<std::size_t>(rank) : 0);
        return d;
    }
    coda_dtype dtype() const
    {
        coda_dtype t = CODA_F32;
        coda_value_shape(graph_, value_, nullptr, &t);
        return t;
    }
    /* Elements start, start + step, ... below stop along an axis: coda_slice. */
    value operator()(int axis, int64_t start, int64_t stop, int64_t step = 1) const;

  private:
    coda_graph *graph_ = nullptr;
    coda_value value_ = {0};
};

inline constexpr value none{}; /* an operand that is not there: CODA_NONE */

namespace detail {

inline void check(coda_graph *g)
{
#ifndef CODA_NO_EXCEPTIONS
    coda_status status = coda_graph_status(g);
    if (status != CODA_OK) throw error(status, coda_error());
#endif
    (void)g;
}

inline value built(coda_graph *g, coda_value v)
{
    if (!v.id) check(g); /* the graph keeps its first mistake */
    return {g, v};
}

template <class T> constexpr bool is_value = std::is_same_v<std::decay_t<T>, value>;
template <class... A> using if_values = std::enable_if_t<(is_value<A> || ...), int>;

inline coda_graph *graph_of() { return nullptr; }
template <class T, class... Rest> coda_graph *graph_of(const T &first, const Rest &...rest)
{
    if constexpr (is_value<T>)
        if (first.graph()) return first.graph();
    return graph_of(rest...);
}

inline coda_value plain(const value &v) { return v; }
template <class T> T plain(T v) { return v; }

template <class F, class... A> value build(F f, const A &...a)
{
    coda_graph *g = graph_of(a...);
    return built(g, f(g, plain(a)...));
}

inline std::vector<coda_value> plain(const std::vector<value> &in) { return {in.begin(), in.end()}; }
inline coda_graph *graph_of(const std::vector<value> &in)
{
    for (const value &v : in)
        if (v.graph()) return v.graph();
    return nullptr;
}

} // namespace detail

/* ---- Builders: arguments as in coda.h, without the graph ---- */

#define CODA_BUILDER(name)                                                                                   \
    template <class... A, detail::if_values<A...> = 0> value name(const A &...a)                             \
    {                                                                                                        \
        return detail::build(coda_##name, a...);                                                             \
    }
/* clang-format off */
CODA_BUILDER(matmul) CODA_BUILDER(matmul_kn) CODA_BUILDER(scaled_matmul)
CODA_BUILDER(add) CODA_BUILDER(sub) CODA_BUILDER(mul) CODA_BUILDER(div) CODA_BUILDER(scale) CODA_BUILDER(bias)
CODA_BUILDER(relu) CODA_BUILDER(relu2) CODA_BUILDER(gelu_erf) CODA_BUILDER(gelu_tanh) CODA_BUILDER(gelu_quick)
CODA_BUILDER(silu) CODA_BUILDER(tanh) CODA_BUILDER(sigmoid) CODA_BUILDER(softplus)
CODA_BUILDER(exp) CODA_BUILDER(log) CODA_BUILDER(sqrt) CODA_BUILDER(rsqrt) CODA_BUILDER(reciprocal)
CODA_BUILDER(neg) CODA_BUILDER(abs) CODA_BUILDER(sign) CODA_BUILDER(floor) CODA_BUILDER(ceil)
CODA_BUILDER(round) CODA_BUILDER(clip) CODA_BUILDER(minimum) CODA_BUILDER(maximum)
CODA_BUILDER(equal) CODA_BUILDER(not_equal) CODA_BUILDER(less) CODA_BUILDER(less_equal)
CODA_BUILDER(greater) CODA_BUILDER(greater_equal)
CODA_BUILDER(logical_and) CODA_BUILDER(logical_or) CODA_BUILDER(logical_not) CODA_BUILDER(where)
CODA_BUILDER(swiglu) CODA_BUILDER(geglu) CODA_BUILDER(reglu) CODA_BUILDER(glu) CODA_BUILDER(geglu_erf)
CODA_BUILDER(swiglu_clamped)
CODA_BUILDER(rms_norm) CODA_BUILDER(layer_norm) CODA_BUILDER(softmax) CODA_BUILDER(log_softmax)
CODA_BUILDER(row_sum) CODA_BUILDER(row_max) CODA_BUILDER(row_mean) CODA_BUILDER(log_sum_exp)
CODA_BUILDER(reduce) CODA_BUILDER(reduce_columns) CODA_BUILDER(nucleus)
CODA_BUILDER(rope) CODA_BUILDER(attention) CODA_BUILDER(append) CODA_BUILDER(assign)
CODA_BUILDER(cross_entropy) CODA_BUILDER(embedding) CODA_BUILDER(row_sums) CODA_BUILDER(cast)
CODA_BUILDER(slice)
/* clang-format on */
#undef CODA_BUILDER

                                                                                        inline value
    apply(const char *map, const std::vector<value> &in, const std::vector<float> &params = {})
{
    coda_graph *g = detail::graph_of(in);
    return detail::built(g, coda_apply(g, map, detail::plain(in).data(), static_cast<int>(in.size()),
                                       params.empty() ? nullptr : params.data()));
}
inline value concat(int axis, const std::vector<value> &in)
{
    coda_graph *g = detail::graph_of(in);
    return detail::built(g, coda_concat(g, axis, detail::plain(in).data(), static_cast<int>(in.size())));
}
inline value interleave(int axis, const std::vector<value> &in)
{
    coda_graph *g = detail::graph_of(in);
    return detail::built(g, coda_interleave(g, axis, detail::plain(in).data(), static_cast<int>(in.size())));
}
inline value reshape(value x, const std::vector<int64_t> &dims)
{
    return detail::built(x.graph(), coda_reshape(x.graph(), x, static_cast<int>(dims.size()), dims.data()));
}
/* perm has a number for each dimension of x. */
inline value transpose(value x, const std::vector<int> &perm)
{
    return detail::built(x.graph(), coda_transpose(x.graph(), x, perm.data()));
}

/* The gradients of a value of one element, or of y's with their cotangents dy, by each x; none where no y
 * depends on it. */
inline std::vector<value> grad(const std::vector<value> &y, const std::vector<value> &dy,
                               const std::vector<value> &x, const coda_grad_options *opt = nullptr)
{
    coda_graph *g = detail::graph_of(y);
    std::vector<coda_value> dx(x.size()), of_y = detail::plain(y), of_x = detail::plain(x);
    std::vector<coda_value> of_dy = detail::plain(dy);
    coda_grad(g, of_y.data(), dy.empty() ? nullptr : of_dy.data(), static_cast<int>(y.size()), of_x.data(),
              static_cast<int>(x.size()), dx.data(), opt);
    std::vector<value> out;
    for (coda_value v : dx) out.push_back(detail::built(g, v));
    return out;
}
inline std::vector<value> grad(value y, const std::vector<value> &x)
{
    return grad(std::vector<value>{y}, {}, x);
}

inline void consume(value x) { coda_consume(x.graph(), x), detail::check(x.graph()); }
inline value linear_cross_entropy(value x, value w, value targets,
                                  const coda_linear_cross_entropy_options *opt = nullptr)
{
    return detail::built(x.graph(), coda_linear_cross_entropy(x.graph(), x, w, targets, opt));
}

/* A step of an optimiser; an m or w that is absent is value(). */
inline void adamw(value grad, value p, value m, value v, value w = {},
                  const coda_adamw_options *opt = nullptr)
{
    coda_adamw(grad.graph(), grad, p, m, v, w, opt), detail::check(grad.graph());
}
inline void sgd(value grad, value p, value m = {}, value w = {}, const coda_sgd_options *opt = nullptr)
{
    coda_sgd(grad.graph(), grad, p, m, w, opt), detail::check(grad.graph());
}
inline void muon(value grad, value p, value m, value w = {}, const coda_muon_options *opt = nullptr)
{
    coda_muon(grad.graph(), grad, p, m, w, opt), detail::check(grad.graph());
}
inline value norm_squared(const std::vector<value> &x)
{
    coda_graph *g = detail::graph_of(x);
    std::vector<coda_value> of_x = detail::plain(x);
    return detail::built(g, coda_norm_squared(g, of_x.data(), static_cast<int>(x.size())));
}

/* Builders of two results return both: values and indices, the tensor and lse, the column and logprob. */
inline std::pair<value, value> top_k(value x, int64_t k)
{
    coda_value values = {0}, indices = {0};
    coda_top_k(x.graph(), x, k, &values, &indices);
    return {detail::built(x.graph(), values), detail::built(x.graph(), indices)};
}
inline std::pair<value, value> quantize_rows(value x, coda_dtype t, int64_t columns = 0)
{
    coda_value scale = {0}, made = coda_quantize_rows(x.graph(), x, t, columns, &scale);
    return {detail::built(x.graph(), made), detail::built(x.graph(), scale)};
}
inline std::pair<value, value> attention_lse(value q, value k, value v, value lengths,
                                             const coda_attention_options *opt)
{
    coda_value lse = {0}, made = coda_attention_lse(q.graph(), q, k, v, lengths, opt, &lse);
    return {detail::built(q.graph(), made), detail::built(q.graph(), lse)};
}
inline std::pair<value, value> conv1d(value x, value w, value bias = {}, value before = {}, value starts = {})
{
    coda_value after = {0}, made = coda_conv1d(x.graph(), x, w, bias, before, starts, &after);
    return {detail::built(x.graph(), made), detail::built(x.graph(), after)};
}
inline std::pair<value, value> scan(value x, value dt, value a, value b, value c, value state = {},
                                    value starts = {}, const coda_scan_options *opt = nullptr)
{
    coda_value after = {0}, made = coda_scan(x.graph(), x, dt, a, b, c, state, starts, opt, &after);
    return {detail::built(x.graph(), made), detail::built(x.graph(), after)};
}
inline value all_reduce(value x, value group)
{
    return detail::built(x.graph(), coda_all_reduce(x.graph(), x, group));
}
inline value reduce_scatter(value x, int axis, value group)
{
    return detail::built(x.graph(), coda_reduce_scatter(x.graph(), x, axis, group));
}
inline value all_gather(value x, int axis, value group)
{
    return detail::built(x.graph(), coda_all_gather(x.graph(), x, axis, group));
}
inline std::pair<value, value> delta(value q, value k, value v, value decay, value beta, value before = {},
                                     value starts = {}, const coda_delta_options *opt = nullptr)
{
    coda_value after = {0},
               made = coda_delta(q.graph(), q, k, v, decay, beta, before, starts, opt, &after);
    return {detail::built(q.graph(), made), detail::built(q.graph(), after)};
}
inline std::pair<value, value> sample(value logits, value seeds, value places, const coda_sample_options *opt)
{
    coda_value logprob = {0}, made = coda_sample(logits.graph(), logits, seeds, places, opt, &logprob);
    return {detail::built(logits.graph(), made), detail::built(logits.graph(), logprob)};
}

inline value value::operator()(int axis, int64_t start, int64_t stop, int64_t step) const
{
    return slice(*this, axis, start, stop, step);
}

/* ---- Operators. A number is a constant of the other operand's dtype, or fp32 beside an integer ---- */

namespace detail {
inline value constant_beside(const value &v, double number)
{
    coda_dtype t = v.dtype();
    if (t != CODA_BF16 && t != CODA_F16) t = CODA_F32;
    return built(v.graph(), coda_constant(v.graph(), t, number));
}
} // namespace detail

#define CODA_OPERATOR(sign, name)                                                                            \
    inline value operator sign(const value &a, const value &b) { return name(a, b); }                        \
    inline value operator sign(const value &a, double b) { return name(a, detail::constant_beside(a, b)); }  \
    inline value operator sign(double a, const value &b) { return name(detail::constant_beside(b, a), b); }
CODA_OPERATOR(+, add)
CODA_OPERATOR(-, sub)
CODA_OPERATOR(*, mul)
CODA_OPERATOR(/, div)
#undef CODA_OPERATOR
inline value operator-(const value &x) { return neg(x); }

/* ---- Graphs ---- */

class graph {
  public:
    graph() : graph_(coda_graph_new())
    {
#ifndef CODA_NO_EXCEPTIONS
        if (!graph_) throw std::bad_alloc();
#endif
    }
    explicit graph(coda_graph *owned) noexcept : graph_(owned) {}
    static checked<graph> parse(const std::string &text)
    {
        coda_graph *made = nullptr;
        coda_status status = coda_graph_parse(&made, text.c_str());
        return detail::deliver(status, graph(made));
    }
    /* With a number for each symbol, in order. */
    checked<graph> bind(const std::vector<int64_t> &numbers) const
    {
        coda_graph *made = nullptr;
        coda_status status = coda_graph_bind(&made, get(), numbers.data(), static_cast<int>(numbers.size()));
        return detail::deliver(status, graph(made));
    }

    coda_graph *get() const noexcept { return graph_.get(); }
    coda_status status() const noexcept { return coda_graph_status(get()); }
    std::string text() const
    {
        return detail::text_of([this](char *b, std::size_t n) { return coda_graph_print(get(), b, n); });
    }

    using dims = std::vector<coda_dim>;
    value input(const char *name, coda_dtype t, const dims &d) { return leaf(coda_input, name, t, d); }
    value weight(const char *name, coda_dtype t, const dims &d) { return leaf(coda_weight, name, t, d); }
    value state(const char *name, coda_dtype t, const dims &d) { return leaf(coda_state, name, t, d); }
    /* Of the bytes of a packed weight, which are an argument; t is the dtype of what they mean. */
    value weight_packed(const char *name, const coda_pack_format &format, const dims &d, coda_dtype t)
    {
        return detail::built(
            get(), coda_weight_packed(get(), name, &format, static_cast<int>(d.size()), d.data(), t));
    }
    /* With strides, in elements, one for each dimension. */
    value input(const char *name, coda_dtype t, const dims &d, const dims &strides)
    {
        return leaf(coda_input_strided, name, t, d, strides);
    }
    value weight(const char *name, coda_dtype t, const dims &d, const dims &strides)
    {
        return leaf(coda_weight_strided, name, t, d, strides);
    }
    value state(const char *name, coda_dtype t, const dims &d, const dims &strides)
    {
        return leaf(coda_state_strided, name, t, d, strides);
    }
    value group_input(const char *name, int ranks)
    {
        return detail::built(get(), coda_group_input(get(), name, ranks));
    }
    value scalar(const char *name, coda_dtype t) { return detail::built(get(), coda_scalar(get(), name, t)); }
    value constant(coda_dtype t, double v) { return detail::built(get(), coda_constant(get(), t, v)); }
    value iota(coda_dim n) { return detail::built(get(), coda_iota(get(), n)); }

    coda_dim symbol(const char *name, int64_t least, int64_t most, int64_t multiple = 1)
    {
        return checked_dim(coda_symbol(get(), name, least, most, multiple));
    }
    coda_dim dim_mul(coda_dim a, coda_dim b) { return checked_dim(coda_dim_mul(get(), a, b)); }
    coda_dim dim_add(coda_dim a, coda_dim b) { return checked_dim(coda_dim_add(get(), a, b)); }
    coda_dim dim_sub(coda_dim a, coda_dim b) { return checked_dim(coda_dim_sub(get(), a, b)); }
    void define_map(const coda_map_def &def)
    {
        if (coda_define_map(get(), &def) != CODA_OK) detail::check(get());
    }

    void output(const char *name, value v) { coda_output(get(), name, v), detail::check(get()); }
    void output_add(const char *name, value v) { coda_output_add(get(), name, v), detail::check(get()); }
    void output(const char *name, value v, const dims &strides)
    {
        coda_output_strided(get(), name, v, strides.data()), detail::check(get());
    }
    void output_add(const char *name, value v, const dims &strides)
    {
        coda_output_add_strided(get(), name, v, strides.data()), detail::check(get());
    }

    /* In fp64 on the CPU: coda_evaluate. */
    checked<done> evaluate(const std::vector<void *> &args) const
    {
        return detail::deliver(coda_evaluate(get(), args.data()), done());
    }

  private:
    template <class F, class... Strides>
    value leaf(F f, const char *name, coda_dtype t, const dims &d, const Strides &...s)
    {
        return detail::built(get(), f(get(), name, t, static_cast<int>(d.size()), d.data(), s.data()...));
    }
    coda_dim checked_dim(coda_dim d)
    {
        if (d == INT64_MIN) detail::check(get());
        return d;
    }
    detail::owner<coda_graph> graph_;
};

/* While it lives, what is built has this prefix, "mlp", or "layers.17" of a name and a number, by
 * coda_scope_push. The graph lives longer. */
class scope {
  public:
    scope(const graph &g, const std::string &name) : graph_(g.get())
    {
        coda_scope_push(graph_, "%s", name.c_str());
        detail::check(graph_);
    }
    scope(const graph &g, const std::string &name, int64_t number)
        : scope(g, name + "." + std::to_string(number))
    {
    }
    ~scope() { coda_scope_pop(graph_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    coda_graph *graph_;
};

/* ---- Caches and plans ---- */

class cache {
  public:
    explicit cache(coda_cache *owned) noexcept : cache_(owned) {}
    static checked<cache> open(const coda_cache_options &opt)
    {
        coda_cache *made = nullptr;
        coda_status status = coda_cache_open(&made, &opt);
        return detail::deliver(status, cache(made));
    }
    coda_cache *get() const noexcept { return cache_.get(); }

  private:
    detail::owner<coda_cache> cache_;
};

/* An argument by its name; of 0 bytes the size is not checked. */
struct binding : coda_binding {
    binding(const char *n, void *memory, std::size_t size = 0) noexcept : coda_binding{n, memory, size} {}
};

class plan {
  public:
    explicit plan(coda_plan *owned) noexcept : plan_(owned) {}

    coda_plan *get() const noexcept { return plan_.get(); }
    std::size_t workspace() const noexcept { return coda_plan_workspace(get()); }
    std::size_t prepared() const noexcept { return coda_plan_prepared(get()); }
    std::string text(coda_text what = CODA_TEXT_PLAN) const
    {
        return detail::text_of([&](char *b, std::size_t n) { return coda_plan_print(get(), what, b, n); });
    }
    coda_plan_stats stats() const noexcept
    {
        coda_plan_stats s = CODA_PLAN_STATS_INIT;
        coda_plan_stats_get(get(), &s);
        return s;
    }

    /* coda_bind: pointers in the order of coda_run, for use again and again. Symbols want dims. */
    checked<std::vector<void *>> order(const std::vector<binding> &bindings,
                                       const std::vector<int64_t> &dims = {}) const
    {
        std::vector<coda_binding> list(bindings.begin(), bindings.end());
        std::vector<void *> args(static_cast<std::size_t>(coda_plan_args(get())));
        coda_status status = coda_bind(args.data(), get(), list.data(), static_cast<int>(list.size()),
                                       dims.empty() ? nullptr : dims.data());
        return detail::deliver(status, std::move(args));
    }

    /* By order: one pointer for each leaf, as they were created, and each output. */
    checked<done> run(const std::vector<void *> &args, void *workspace = nullptr,
                      coda_stream stream = nullptr, void *prepared = nullptr) const
    {
        return detail::deliver(coda_run(get(), args.data(), prepared, workspace, stream), done());
    }
    checked<done> prepare(const std::vector<void *> &args, void *prepared, void *workspace = nullptr,
                          coda_stream stream = nullptr) const
    {
        return detail::deliver(coda_prepare(get(), args.data(), prepared, workspace, stream), done());
    }
    /* By name, in any order. */
    checked<done> run(const std::vector<binding> &bindings, void *workspace = nullptr,
                      coda_stream stream = nullptr, void *prepared = nullptr) const
    {
        return with(bindings,
                    [&](const std::vector<void *> &a) { return run(a, workspace, stream, prepared); });
    }
    checked<done> prepare(const std::vector<binding> &bindings, void *prepared, void *workspace = nullptr,
                          coda_stream stream = nullptr) const
    {
        return with(bindings,
                    [&](const std::vector<void *> &a) { return prepare(a, prepared, workspace, stream); });
    }

  private:
    template <class F> checked<done> with(const std::vector<binding> &bindings, F then) const
    {
        auto args = order(bindings);
#ifdef CODA_NO_EXCEPTIONS
        if (!args) return detail::fail<done>(args.error().status(), args.error().what());
        return then(*args);
#else
        return then(args);
#endif
    }
    detail::owner<coda_plan> plan_;
};

inline coda_compile_options compile_options(coda_device device = CODA_DEVICE_GPU)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = device;
    return opt;
}

inline checked<plan> compile(const graph &g, const coda_compile_options &opt = compile_options())
{
    coda_plan *made = nullptr;
    coda_status status = coda_compile(&made, g.get(), &opt);
    return detail::deliver(status, plan(made));
}

/* Memory of the host, aligned as a workspace must be; it frees itself. Null for 0 bytes or without memory. */
using host_memory = detail::owner<void>;
inline host_memory host_alloc(std::size_t bytes)
{
    return host_memory(bytes ? std::aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr);
}

} // namespace coda

#endif
