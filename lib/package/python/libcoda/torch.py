"""libcoda.torch: operations of PyTorch, which torch.compile and torch.export take as they are.

    import torch, libcoda.torch
    y, = torch.ops.coda.graph("%x = input f32[T,8] ...", [x, w])      any graph, by its text
    y = torch.ops.coda.rms_norm_linear(x, gain, weight, bias, 1e-6)
    y = torch.ops.coda.swiglu_mlp(x, gate, up, down)
    loss = torch.ops.coda.linear_cross_entropy(hidden, weight, targets)
    o = torch.ops.coda.attention_append(q, k, v, k_cache, v_cache, lengths)

Each has a fake kernel, and each but the last, which writes to its caches, a gradient: backward computes anew what it
needs of forward, so nothing but the arguments is kept between them. Weights are [out, in], as torch.nn.Linear has
them. The first call of given shapes makes a plan, which the next ones find. """
import ctypes
import functools
import re

import torch

from . import arrays, operations as ops
from ._stages import Stage, dense_and_aligned
from .errors import InvalidError, UnsupportedError
from .graph import Graph

PLANS = 512  # that are kept
WORDS = {getattr(torch, name): word for word, name in arrays.NUMPY.items() if word != "f64" and hasattr(torch, name)}
LIBRARY = torch.library.Library("coda", "FRAGMENT")


def types_of(tensors, what):
    """(dtype, shape) of each tensor, or None, as keys."""
    for x in tensors:
        if x is not None and x.dtype not in WORDS:
            raise InvalidError("coda::%s: a tensor of %s: libcoda takes %s" % (what, x.dtype, ", ".join(WORDS.values())))
    return tuple(None if x is None else (WORDS[x.dtype], tuple(map(int, x.shape))) for x in tensors)


# ---- A graph's text ----

def is_plain(argument):
    return argument.kind in ("input", "weight")


@functools.lru_cache(maxsize=PLANS)
def parsed(text):
    """(graph, leaves, results, symbols) of a text, which writes nothing but its results."""
    g = Graph(text)
    leaves = [a for a in g.args if a.kind not in ("output", "sum")]
    results = [a for a in g.args if a.kind in ("output", "sum")]
    for a in leaves + results:
        if not is_plain(a) and a.kind != "output":
            raise UnsupportedError("coda::graph: %s %s: inputs, weights and outputs are taken, as a run writes to "
                                   "nothing else" % (a.kind, a.name))
    return g, leaves, results, [s[0] for s in g.symbols]


def solved(text, leaves):
    """The symbols' values, by the shapes of these tensors, which are checked. Sizes may be symbols of PyTorch's."""
    g, wanted, _, symbols = parsed(text)
    if len(leaves) != len(wanted):
        raise InvalidError("coda::graph: %d tensors for %d leaves: %s" %
                           (len(leaves), len(wanted), ", ".join(a.name for a in wanted)))
    values = {}
    for x, a in zip(leaves, wanted):
        if WORDS.get(x.dtype) != a.dtype or x.ndim != len(a.dims):
            raise InvalidError("coda::graph: %s %s: %s of %d dimensions was given for %s of %d" %
                               (a.kind, a.name, x.dtype, x.ndim, a.dtype, len(a.dims)))
        for n, d in zip(x.shape, a.dims):
            if d < 0 and g.dim_text(d) in symbols:
                values.setdefault(g.dim_text(d), n)
    for s in symbols:
        if s not in values:
            raise InvalidError("coda::graph: no tensor's shape says what the symbol %s is" % s)
    for x, a in zip(leaves, wanted):
        want = shape_of(g, a.dims, values)
        if tuple(x.shape) != want:
            raise InvalidError("coda::graph: %s %s: shape %s was given for %s" %
                               (a.kind, a.name, list(x.shape), list(want)))
    return values


def shape_of(g, dims, values):
    """Sizes of dimensions that may be sums and products of symbols."""
    def value(text):
        words = re.sub(r"[A-Za-z_][\w.]*", lambda m: "v[%r]" % m.group(), text)
        return eval(words, {"__builtins__": {}}, {"v": values})
    return tuple(d if d >= 0 else value(g.dim_text(d)) for d in dims)


# ---- Stages ----

def target(where):
    if where.type not in ("cpu", "cuda"):
        raise InvalidError("tensors on %s: libcoda takes those of the host and of CUDA" % where)
    if where.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise InvalidError("the first call of these shapes compiles, which no CUDA graph captures: call it once before")
    return ("gpu" if where.type == "cuda" else "cpu"), where


def built(name, types, attributes):
    """(graph, names of its leaves, one for each tensor; names of its results)"""
    if name == "graph":
        g, leaves, results, _ = parsed(*attributes)
        return Graph(str(g)), [a.name for a in leaves], [a.name for a in results]
    g, operation = Graph(), OPERATIONS[name]
    names = [n if t else None for n, t in zip(operation.tensors, types)]
    with g:
        values = [getattr(g, operation.kind(n))(n, *t) if t else None for n, t in zip(operation.tensors, types)]
        g.output("out", operation.build(*values, *attributes))
    return g, names, ["out"]


class Order:
    """A stage, and the places of its leaves among the tensors of a call."""

    def __init__(self, graph, names, where):
        self.stage = Stage(graph, *target(where))
        self.places = [names.index(n) for n in self.stage.inputs]
        self.symbols = self.stage.plan.symbols

    def __call__(self, tensors, values=None):
        hold = [dense_and_aligned(tensors[k]) for k in self.places]
        dims = None
        if self.symbols:
            dims = (ctypes.c_int64 * len(self.symbols))(*[int(values[s]) for s in self.symbols])
        return hold, self.stage([x.data_ptr() for x in hold], dims)


@functools.lru_cache(maxsize=PLANS)
def forward_of(name, types, attributes, where):
    g, names, _ = built(name, types, attributes)
    return Order(g, names, where)


@functools.lru_cache(maxsize=PLANS)
def backward_of(name, types, attributes, where, asked, wanted):
    """Of the leaves `wanted`, by the results `asked`, from leaves and cotangents alone; and which result is whose."""
    g, names, results = built(name, types, attributes)
    y = [g.find(results[k]) for k in asked]
    dy = [g.input("cotangent.%d" % k, v.dtype, v.shape) for k, v in zip(asked, y)]
    dtypes = [g.find(names[k]).dtype for k in wanted]
    made = g.grad(y, [g.find(names[k]) for k in wanted], dy)
    there = [k for k, d in zip(wanted, made) if d is not None]
    for k, d, dtype in zip(wanted, made, dtypes):
        if d is not None:
            g.output("gradient.%d" % k, ops.cast(d, dtype))
    g.check()
    if not there:
        return None, there
    part = g.split(len(results), keep="least")[1]
    return Order(part, names + ["cotangent.%d" % k for k in asked], where), there


def call(name, tensors, attributes, values=None):
    types = types_of(tensors, name) if name != "graph" else ()
    return forward_of(name, types, attributes, place_of(tensors))(tensors, values)[1]


def place_of(tensors):
    places = {x.device for x in tensors if x is not None}
    if len(places) != 1:
        raise InvalidError("tensors on %s: those of one call are in one place" % " and ".join(sorted(map(str, places))))
    return places.pop()


def call_backward(name, tensors, dy, wanted, attributes, values=None):
    """Gradients of the tensors whose flag is set; zeros where nothing depends on one."""
    types = types_of(tensors, name) if name != "graph" else ()
    asked = tuple(k for k, d in enumerate(dy) if d is not None)
    wanted = tuple(k for k, w in enumerate(wanted) if w)
    order, there = backward_of(name, types, attributes, place_of(tensors), asked, wanted) if asked else (None, [])
    made = order([*tensors, *[dy[k] for k in asked]], values)[1] if order else []
    found = dict(zip(there, made))
    return [found[k] if k in found else torch.zeros_like(tensors[k], memory_format=torch.contiguous_format) for k in wanted]


# ---- Schemas ----

def no_more(what):
    def backward(ctx, *_):
        raise UnsupportedError("coda::%s: a gradient of a gradient, which no plan makes" % what)
    return backward


def define(schema, call, fake, setup=None, backward=None):
    name = schema[:schema.index("(")]
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, call, key)
    torch.library.register_fake("coda::" + name, fake, lib=LIBRARY)
    if backward is not None:
        torch.library.register_autograd("coda::" + name, backward, setup_context=setup, lib=LIBRARY)


def empty_like(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def flags(x):
    """Which of a list of tensors wants a gradient."""
    return [t is not None and t.requires_grad and t.is_floating_point() for t in x]


def spread(made, wanted):
    made = iter(made)
    return [next(made) if w else None for w in wanted]


# ---- coda::graph ----

def graph(text, leaves):
    return call("graph", leaves, (text,), solved(text, leaves))


def graph_fake(text, leaves):
    values, (g, _, results, _) = solved(text, leaves), parsed(text)
    return [leaves[0].new_empty(shape_of(g, a.dims, values), dtype=getattr(torch, arrays.NUMPY[a.dtype]))
            for a in results]


def graph_setup(ctx, inputs, output):
    ctx.text, leaves = inputs
    ctx.wanted = flags(leaves)
    ctx.save_for_backward(*leaves)


def graph_backward(ctx, dy):
    made = torch.ops.coda.graph_backward(ctx.text, list(ctx.saved_tensors), list(dy), ctx.wanted)
    return None, spread(made, ctx.wanted)


define("graph(str text, Tensor[] leaves) -> Tensor[]", graph, graph_fake, graph_setup, graph_backward)
define("graph_backward(str text, Tensor[] leaves, Tensor?[] dy, bool[] wanted) -> Tensor[]",
       lambda text, leaves, dy, wanted: call_backward("graph", leaves, dy, wanted, (text,), solved(text, leaves)),
       lambda text, leaves, dy, wanted: [empty_like(x) for x, w in zip(leaves, wanted) if w],
       lambda ctx, inputs, output: None, no_more("graph"))


# ---- By name ----

class Operation:
    """`build` makes the result of values, None where an optional tensor is absent, and attributes. `fake` makes an empty
    one of tensors and attributes, and refuses shapes."""

    def __init__(self, schema, tensors, weights, build, fake):
        self.schema, self.tensors, self.weights = schema, tensors, weights
        self.build, self.fake = build, fake
        name = self.name = schema[:schema.index("(")]
        inside = schema[schema.index("(") + 1:schema.rindex(") ->")]
        count = len(tensors)
        self.defaults, self.count = fake.__defaults__, fake.__code__.co_argcount
        define(schema, self.call, fake, self.setup, self.backward)
        define("%s_backward(Tensor dy, %s, bool[] wanted) -> Tensor[]" % (name, re.sub(r"=[^,)]+", "", inside)),
               lambda dy, *given: call_backward(name, given[:count], [dy], given[-1], given[count:-1]),
               lambda dy, *given: [empty_like(x) for x, w in zip(given, given[-1]) if w],
               lambda ctx, inputs, output: None, no_more(name))

    def kind(self, name):
        return "weight" if name in self.weights else "input"

    def split(self, given):
        """Tensors and attributes of a call, which lacks what is as by default."""
        given = (*given, *self.defaults[len(self.defaults) - (self.count - len(given)):]) if len(given) < self.count else given
        return list(given[:len(self.tensors)]), tuple(given[len(self.tensors):])

    def call(self, *given):
        tensors, attributes = self.split(given)
        self.fake(*[None if x is None else x.to("meta") for x in tensors], *attributes)  # refuses shapes by name
        return call(self.name, tensors, attributes)[0]

    def setup(self, ctx, inputs, output):
        tensors, ctx.attributes = self.split(inputs)
        ctx.there = [x is not None for x in tensors]
        ctx.wanted = flags(tensors)
        ctx.save_for_backward(*[x for x in tensors if x is not None])

    def backward(self, ctx, dy):
        tensors = spread(ctx.saved_tensors, ctx.there)
        op = getattr(torch.ops.coda, self.name + "_backward")
        made = op(dy, *tensors, *ctx.attributes, ctx.wanted)
        return (*spread(made, ctx.wanted), *[None] * len(ctx.attributes))


def must(good, format, *arguments):
    if not good:
        raise InvalidError(format % arguments)


def shape(x):
    return list(x.shape)


def product(what, x, w, dtype=None):
    """The type of x w^T."""
    must(x.dtype == w.dtype, "coda::%s: x is %s and the weight %s", what, x.dtype, w.dtype)
    must(x.ndim and w.ndim == 2 and x.shape[-1] == w.shape[1], "coda::%s: x %s by a weight of %s, which is [out, in]",
         what, shape(x), shape(w))
    return x.new_empty((*x.shape[:-1], w.shape[0]), dtype=dtype)


def rms_norm_linear(x, gain, weight, bias, eps):
    y = ops.rms_norm(x, gain, eps) @ weight.T
    return y if bias is None else y + bias


def rms_norm_linear_fake(x, gain, weight, bias=None, eps=1e-6):
    for word, v, n in (("gain", gain, x.shape[-1]), ("bias", bias, weight.shape[0])):
        must(v is None or (v.ndim == 1 and v.shape[0] == n and v.dtype == x.dtype),
             "coda::rms_norm_linear: %s is %s %s for x %s and weight %s of %s", word, *(
                 ("", "") if v is None else (v.dtype, shape(v))), shape(x), shape(weight), x.dtype)
    return product("rms_norm_linear", x, weight)


def swiglu_mlp(x, gate, up, down):
    return (ops.silu(x @ gate.T) * (x @ up.T)) @ down.T


def swiglu_mlp_fake(x, gate, up, down):
    must(gate.shape == up.shape, "coda::swiglu_mlp: gate is %s and up %s", shape(gate), shape(up))
    return product("swiglu_mlp", product("swiglu_mlp", x, gate), down)


def linear_cross_entropy(x, weight, targets, ignore_index, reduction, softcap):
    loss = ops.linear_cross_entropy(x, weight, targets, ignore_index=ignore_index, ignore_zero=int(ignore_index == 0),
                                    reduction=reduction, softcap=softcap)
    return loss if reduction == "none" else ops.reshape(loss, ())


def linear_cross_entropy_fake(x, weight, targets, ignore_index=-100, reduction="mean", softcap=0.0):
    must(reduction in ("mean", "sum", "none"), "coda::linear_cross_entropy: reduction is %r: mean, sum or none", reduction)
    must(targets.dtype in (torch.int64, torch.int32) and targets.shape == x.shape[:-1],
         "coda::linear_cross_entropy: targets are %s %s for x %s", targets.dtype, shape(targets), shape(x))
    made = product("linear_cross_entropy", x, weight, torch.float32)
    return made.new_empty(x.shape[:-1] if reduction == "none" else ())


OPERATIONS = {o.name: o for o in (
    Operation("rms_norm_linear(Tensor x, Tensor? gain, Tensor weight, Tensor? bias=None, float eps=1e-6) -> Tensor",
              ["x", "gain", "weight", "bias"], {"gain", "weight", "bias"}, rms_norm_linear, rms_norm_linear_fake),
    Operation("swiglu_mlp(Tensor x, Tensor gate, Tensor up, Tensor down) -> Tensor",
              ["x", "gate", "up", "down"], {"gate", "up", "down"}, swiglu_mlp, swiglu_mlp_fake),
    Operation("linear_cross_entropy(Tensor x, Tensor weight, Tensor targets, int ignore_index=-100, "
              "str reduction=\"mean\", float softcap=0.0) -> Tensor",
              ["x", "weight", "targets"], {"weight"}, linear_cross_entropy, linear_cross_entropy_fake))}


# ---- A cache that is written to ----

def attention_append_graph(types, scale):
    """Rows behind those that the caches have, and attention over both."""
    (_, (b, t, heads, d)), (dtype, (_, _, kv_heads, _)), (_, (_, keys, _, _)) = types[0], types[1], types[3]
    g = Graph()
    q, k, v = (g.input(n, dtype, (b, t, h * d)) for n, h in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
    caches = [g.state(n, dtype, (b, keys, kv_heads * d)) for n in ("k_cache", "v_cache")]
    lengths = g.input("lengths", types[5][0], (b,))
    first = ops.cast(lengths, "f32")
    at = ops.reshape(first, (b, 1)) + ops.cast(g.iota(t), "f32")
    start = ops.cast(ops.reshape(g.iota(b), (b, 1)), "f32") * float(keys)
    slots = ops.cast(ops.where(at < float(keys), at + start, -1.0), "i32")  # what has no room is not stored
    k_now, v_now = (ops.append(c, x, slots) for c, x in zip(caches, (k, v)))
    o = ops.attention(q, k_now, v_now, ops.cast(first + float(t), "i32"), heads=heads, kv_heads=kv_heads, causal=1,
                      align="length", scale=scale)
    g.output("out", o)
    return g


@functools.lru_cache(maxsize=PLANS)
def attention_append_of(types, scale, where):
    return Order(attention_append_graph(types, scale), ["q", "k", "v", "k_cache", "v_cache", "lengths"], where)


def attention_append_fake(q, k, v, k_cache, v_cache, lengths, scale=None):
    b, t, _, d = q.shape if q.ndim == 4 else (0, 0, 0, 0)
    must(q.ndim == k.ndim == k_cache.ndim == 4 and k.shape == v.shape and k_cache.shape == v_cache.shape and
         tuple(k.shape[:2]) == (b, t) and k.shape[3] == k_cache.shape[3] == d and k_cache.shape[0] == b and
         k.shape[2] == k_cache.shape[2] and q.shape[2] % k.shape[2] == 0 and tuple(lengths.shape) == (b,),
         "coda::attention_append: q %s, k %s, v %s, caches %s and %s, lengths %s: wanted are [B, T, heads, D], "
         "[B, T, kv_heads, D] twice, [B, keys, kv_heads, D] twice, and [B]",
         *map(shape, (q, k, v, k_cache, v_cache, lengths)))
    must(len({x.dtype for x in (q, k, v, k_cache, v_cache)}) == 1 and lengths.dtype in (torch.int32, torch.int64),
         "coda::attention_append: q, k, v and caches are %s, lengths %s",
         [str(x.dtype) for x in (q, k, v, k_cache, v_cache)], lengths.dtype)
    return q.new_empty(q.shape)


def attention_append(q, k, v, k_cache, v_cache, lengths, scale=None):
    given = q, k, v, k_cache, v_cache, lengths
    attention_append_fake(*[x.to("meta") for x in given], scale)
    must(k_cache.is_contiguous() and v_cache.is_contiguous() and not (k_cache.data_ptr() % 16 or v_cache.data_ptr() % 16),
         "coda::attention_append: caches are written to where they lie: contiguous, at a multiple of 16 bytes")
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        raise UnsupportedError("coda::attention_append: a gradient is wanted of what is stored in a cache")
    scale = float(q.shape[-1] ** -0.5 if scale is None else scale)
    order = attention_append_of(types_of(given, "attention_append"), scale, place_of(given))
    return order(given)[1][0].view(q.shape)


define("attention_append(Tensor q, Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor lengths, "
       "float? scale=None) -> Tensor", attention_append, attention_append_fake)
