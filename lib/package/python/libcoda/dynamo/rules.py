"""rules.py -- operations of PyTorch, by their names, as nodes of a graph: a function for each.

A rule gets the Lift and the arguments of the call, in which tensors of the graph are layout.Tensor and what was
folded is a torch.Tensor. Elementwise operations give what PyTorch's promotion of dtypes says; sums inside are fp32,
as libcoda's are. """
import functools
import math

import torch

from . import counting, layout, rope, rounding
from .layout import Tensor
from .text import Refuse

RULES, SAME = {}, {}
IN_PLACE = {"iadd", "isub", "imul", "itruediv", "add_", "mul_", "sub_", "div_"}
COUNTED = {"scaled_dot_product_attention", "index_copy_"}  # which look at what depends on a counter
VIEWS = {"getitem", "view", "reshape", "transpose", "permute", "unsqueeze", "squeeze", "expand", "chunk", "split", "narrow",
         "select", "flatten", "unbind", "t", "detach", "contiguous"}


def rule(*names):
    def put(f):
        for n in names:
            RULES[n], SAME[n] = f, names[0]
        return f
    return put


# ---- Numbers and dtypes ----

def uniform(x):
    """The number that all elements of a folded tensor are, or None."""
    if isinstance(x, (bool, int, float)):
        return float(x)
    if isinstance(x, torch.Tensor) and x.numel() and not x.is_complex():
        first = x.reshape(-1)[0]
        if bool((x == first).all()):
            return float(first)
    return None


def promoted(*operands):
    """torch.result_type, of more than two."""
    made = None
    for x in operands:
        x = torch.empty((1,) * len(x.dims), dtype=x.dtype, device="meta") if isinstance(x, Tensor) else x
        x = x.to("meta") if isinstance(x, torch.Tensor) else x
        if made is None:
            made = x
        else:
            dtype = torch.result_type(made, x)
            made = torch.empty((1,) * max(getattr(made, "ndim", 0), getattr(x, "ndim", 0)),
                               dtype=dtype, device="meta")
    return made.dtype


def cast(l, x, dtype):
    if x.dtype == dtype:
        return x
    x = rounding.widened(l, x) if dtype.is_floating_point else rounding.exact(l, x)
    if x.dtype == dtype:
        return x
    if dtype == torch.bool:
        return layout.elementwise(l.g, "not_equal", [cast(l, x, torch.float32), l.g.constant(0, "f32")], torch.bool)
    if x.dtype == torch.bool and dtype == torch.float32:
        return Tensor(x.node, x.axes, x.dims, dtype)
    made = layout.unary(l.g, "cast", x, dtype, to=layout.text.name(dtype))
    top = None if dtype.is_floating_point else counting.bound(l, x)
    return made if top is None else counting.bounded(l, made, top)


def rounded(n, dtype):
    return float(torch.tensor(n, dtype=torch.float64).to(dtype))


def operand(l, x, dtype, wide=False):
    """A tensor of this dtype, or a constant; `wide`: a number of Python's is not rounded to 16 bits."""
    n = uniform(x)
    if n is not None:
        wide = wide and not isinstance(x, torch.Tensor) and not math.isnan(n) and rounded(n, dtype) != n
        return l.g.constant(n, layout.text.name(torch.float32 if wide else dtype))
    return cast(l, l.tensor(x), dtype)


COMMUTE = {"add", "mul", "maximum", "minimum"}


def elementwise(l, word, *operands, dtype=None, **attributes):
    dtype = dtype or promoted(*operands)
    if not dtype.is_floating_point:
        made = counting.arithmetic(l, word, operands, dtype)
        if made is None:
            raise Refuse("arithmetic of %s" % dtype)
        return made
    shape = layout.broadcast(*[tuple(x.shape) for x in operands if isinstance(x, (Tensor, torch.Tensor))])
    if word in COMMUTE and uniform(operands[0]) is not None:
        operands = operands[::-1]
    wide = uniform(operands[0]) is None  # the result has the first one's dtype
    made = layout.elementwise(l.g, word, [operand(l, x, dtype, wide) for x in operands], dtype, **attributes)
    return layout.expand(made, shape) if made.shape != shape else made


# ---- Elementwise ----

@rule("add", "iadd", "add_")
def add(l, x, y, alpha=1, **_):
    if alpha != 1:
        y = mul(l, y, alpha)
    return rope.matched(l, x, y) or elementwise(l, "add", x, y)


@rule("sub", "isub", "sub_")
def sub(l, x, y, alpha=1):
    return elementwise(l, "sub", x, mul(l, y, alpha) if alpha != 1 else y)


@rule("rsub")
def rsub(l, x, y, alpha=1):
    return sub(l, y, x, alpha)


@rule("mul", "imul", "mul_")
def mul(l, x, y):
    for a, b in ((x, y), (y, x)):
        if uniform(b) == 1 and isinstance(a, Tensor) and promoted(a, b) == a.dtype and getattr(b, "ndim", 0) == 0:
            return a
    return elementwise(l, "mul", x, y)


@rule("truediv", "div", "itruediv", "div_")
def truediv(l, x, y, rounding_mode=None):
    if rounding_mode:
        raise Refuse("a division that rounds")
    return elementwise(l, "div", x, y)


@rule("pow", "__pow__")
def pow_(l, x, e):
    if uniform(e) is None or not isinstance(x, Tensor):
        raise Refuse("a power by a tensor")
    e = uniform(e)
    if e == 0.5:
        return unary(l, "sqrt", x)
    if e == -0.5:
        return unary(l, "rsqrt", x)
    if e == -1:
        return unary(l, "rcp", x)
    if e not in (1, 2, 3, 4):
        raise Refuse("the power %g" % e)
    square = elementwise(l, "mul", x, x) if e > 1 else x
    return square if e <= 2 else elementwise(l, "mul", square, x if e == 3 else square)


@rule("square")
def square(l, x):
    return pow_(l, x, 2)


def one_of(l, word, x, y):
    """Where both are equal each has half of the gradient: the mean of both has that, and is as large."""
    made = elementwise(l, word, x, y)
    if not l.keep or not made.dtype.is_floating_point:
        return made
    mean = elementwise(l, "add", *[elementwise(l, "mul", z, 0.5) if isinstance(z, Tensor) else z * 0.5 for z in (x, y)])
    return where(l, RULES["eq"](l, x, y), mean, made)


@rule("maximum")
def maximum(l, x, y):
    return one_of(l, "maximum", x, y)


@rule("minimum")
def minimum(l, x, y):
    return one_of(l, "minimum", x, y)


@rule("clamp", "clip")
def clamp(l, x, min=None, max=None):
    if isinstance(min, (Tensor, torch.Tensor)) or isinstance(max, (Tensor, torch.Tensor)):
        raise Refuse("clamp by tensors")
    low, high = -math.inf if min is None else float(min), math.inf if max is None else float(max)
    made = unary(l, "clip", x, low=low, high=high)
    return within(l, x, low, high, made) if l.keep and not bounds_pass() else made


@functools.lru_cache(maxsize=None)
def bounds_pass():
    """Does this PyTorch's clamp pass a gradient to what is equal to a bound? That of some versions does, as coda_clip."""
    x = torch.ones((), requires_grad=True)
    with torch.enable_grad():
        x.clamp(max=1.0).backward()
    return bool(x.grad)


def within(l, x, low, high, made):
    """What was made of x, with a gradient of 1 between the bounds and of 0 at them."""
    sides = [RULES[word](l, x, n) for word, n in (("gt", low), ("lt", high)) if math.isfinite(n)]
    if not sides:
        return made
    return where(l, sides[0] if len(sides) == 1 else RULES["and_"](l, *sides), x, l.ended(made))


INTEGERS = {"abs", "sign", "floor", "ceil", "round", "relu", "clip", "scale"}  # of which PyTorch makes integers


def unary(l, word, x, **attributes):
    if not x.dtype.is_floating_point:
        if word in INTEGERS:
            raise Refuse("%s of %s" % (word, x.dtype))
        x = cast(l, x, torch.float32)
    return layout.unary(l.g, word, x, **attributes)


def simple(word, *names):
    @rule(*names)
    def f(l, x, inplace=False):
        if inplace:
            raise Refuse("%s in place" % names[0])
        return unary(l, word, x)


for _name in "tanh sigmoid relu exp log sqrt rsqrt abs silu".split():
    simple(_name, _name)
simple("rcp", "reciprocal")


def discrete(word):
    @rule(word)
    def f(l, x):
        return cast(l, unary(l, word, rounding.exact(l, x)), x.dtype) if x.dtype.is_floating_point else unary(l, word, x)


for _name in "sign floor ceil round".split():
    discrete(_name)


@rule("gelu")
def gelu(l, x, approximate="none"):
    return unary(l, "gelu_tanh" if approximate == "tanh" else "gelu_erf", x)


@rule("cos", "sin")
def turning(l, x):
    """No map is one of these: a rotation by tables of positions is an operation, which wants none of them."""
    made = l.integers.later(x, "no rule for cos, but in rotations by positions")
    if made is None:
        raise Refuse("no rule for cos")
    return made


@rule("neg")
def neg(l, x):
    return unary(l, "scale", x, alpha=-1.0)


def comparison(word, name):
    @rule(name)
    def f(l, x, y):
        if isinstance(x, Tensor) and x.dtype == torch.int64 and isinstance(y, (int, float)) and abs(y) >= 2 ** 24:
            raise Refuse("a comparison with %s" % y)
        counting.comparable(l, x, y)
        if isinstance(x, Tensor) and x.dtype.is_floating_point and isinstance(y, (int, float)):
            y = rounded(y, x.dtype)  # as PyTorch compares
        x, y = [cast(l, rounding.exact(l, v), torch.float32) if isinstance(v, Tensor) else v for v in (x, y)]
        y = y.float() if isinstance(y, torch.Tensor) else y
        x = x.float() if isinstance(x, torch.Tensor) else x
        made = elementwise(l, word, x, y, dtype=torch.float32)
        return Tensor(made.node, made.axes, made.dims, torch.bool)


for _word, _name in (("equal", "eq"), ("not_equal", "ne"), ("less", "lt"), ("less_equal", "le"), ("greater", "gt"),
                     ("greater_equal", "ge")):
    comparison(_word, _name)


def logic(word, *names):
    @rule(*names)
    def f(l, *operands):
        if any(getattr(x, "dtype", torch.bool) != torch.bool for x in operands):
            raise Refuse("%s of numbers" % names[0])
        operands = [x.float() if isinstance(x, torch.Tensor) else cast(l, x, torch.float32) for x in operands]
        made = elementwise(l, word, *operands, dtype=torch.float32)
        return Tensor(made.node, made.axes, made.dims, torch.bool)


logic("logical_and", "and_", "logical_and", "bitwise_and")
logic("logical_or", "or_", "logical_or", "bitwise_or")
logic("logical_not", "invert", "logical_not", "bitwise_not")


@rule("where")
def where(l, condition, x, y):
    dtype = promoted(x, y)
    if not dtype.is_floating_point:
        raise Refuse("where of %s" % dtype)
    shape = layout.broadcast(*[tuple(v.shape) for v in (condition, x, y) if isinstance(v, (Tensor, torch.Tensor))])
    chosen = operand(l, condition.float() if isinstance(condition, torch.Tensor)
                     else cast(l, condition, torch.float32), torch.float32)
    made = layout.elementwise(l.g, "where", [chosen, operand(l, x, dtype), operand(l, y, dtype)], dtype)
    return layout.expand(made, shape) if made.shape != shape else made


@rule("masked_fill")
def masked_fill(l, x, mask, value):
    if not isinstance(x, Tensor):
        x = l.tensor(x)
    return where(l, mask, torch.tensor(value, dtype=x.dtype), x)


# ---- The same values ----

@rule("contiguous", "clone", "detach", "alias", "__copy__")
def same(l, x, *_, **__):
    return x


@rule("dropout")
def dropout(l, x, p=0.5, training=True, inplace=False):
    if training and p:
        raise Refuse("dropout in training")
    return x


@rule("to", "type", "_to_copy")
def to(l, x, *args, **kwargs):
    asked = list(args) + [v for k, v in kwargs.items() if k not in ("copy", "non_blocking", "memory_format")]
    for a in asked:
        if isinstance(a, (Tensor, torch.Tensor)):
            return cast(l, x, a.dtype)
    dtype = next((a for a in asked if isinstance(a, torch.dtype)), None)
    return x if dtype is None else cast(l, x, dtype)


@rule("type_as")
def type_as(l, x, y):
    return cast(l, x, y.dtype)


for _name, _dtype in (("float", torch.float32), ("half", torch.float16), ("bfloat16", torch.bfloat16), ("bool", torch.bool),
                      ("long", torch.int64), ("int", torch.int32), ("double", torch.float64)):
    RULES[_name] = (lambda d: lambda l, x, **_: cast(l, x, d))(_dtype)
    SAME[_name] = "to"


# ---- Shapes ----

def axis(x, k):
    n = len(x.dims)
    if not -n <= k < max(n, 1):
        raise Refuse("dimension %d of %d" % (k, n))
    return k % n if n else 0


def ints(args):
    return list(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else list(args)


@rule("view", "reshape")
def reshape(l, x, *shape, **kwargs):
    shape = ints(shape or (kwargs.get("shape") or kwargs.get("size"),))
    if shape and isinstance(shape[0], torch.dtype):
        raise Refuse("a view of another dtype")
    return layout.reshape(l.g, x, shape)


@rule("view_as", "reshape_as")
def view_as(l, x, y):
    return layout.reshape(l.g, x, y.shape)


@rule("flatten")
def flatten(l, x, start_dim=0, end_dim=-1):
    a, b = axis(x, start_dim), axis(x, end_dim)
    return layout.reshape(l.g, x, [*x.shape[:a], -1, *x.shape[b + 1:]])


@rule("unflatten")
def unflatten(l, x, dim, sizes):
    k = axis(x, dim)
    return layout.reshape(l.g, x, [*x.shape[:k], *sizes, *x.shape[k + 1:]])


@rule("transpose", "swapaxes", "swapdims")
def transpose(l, x, dim0, dim1):
    order = list(range(len(x.dims)))
    a, b = axis(x, dim0), axis(x, dim1)
    order[a], order[b] = b, a
    return layout.permute(x, order)


@rule("t")
def t(l, x):
    return transpose(l, x, 0, 1) if len(x.dims) == 2 else x


@rule("permute")
def permute(l, x, *dims, **kwargs):
    return layout.permute(x, [axis(x, k) for k in ints(dims or (kwargs["dims"],))])


@rule("unsqueeze")
def unsqueeze(l, x, dim):
    k = dim % (len(x.dims) + 1)
    return x.of(x.dims[:k] + [[]] + x.dims[k:])


@rule("squeeze")
def squeeze(l, x, *dims, **kwargs):
    asked = ints(dims or ((kwargs["dim"],) if "dim" in kwargs else (list(range(len(x.dims))),)))
    gone = {axis(x, k) for k in asked}
    shape = x.shape
    return x.of([d for k, d in enumerate(x.dims) if not (k in gone and shape[k] == 1)])


@rule("expand")
def expand(l, x, *sizes, **_):
    return layout.expand(x, ints(sizes))


@rule("expand_as")
def expand_as(l, x, y):
    return layout.expand(x, y.shape)


@rule("repeat_interleave")
def repeat_interleave(l, x, repeats, dim=None, **_):
    if not isinstance(repeats, int) or dim is None:
        raise Refuse("repeat_interleave by a tensor")
    k = axis(x, dim)
    x = unsqueeze(l, x, k + 1)
    shape = x.shape
    x = layout.expand(x, [*shape[:k + 1], repeats, *shape[k + 2:]])
    return layout.reshape(l.g, x, [*shape[:k], shape[k] * repeats, *shape[k + 2:]])


@rule("size")
def size(l, x, dim=None):
    return torch.Size(x.shape) if dim is None else x.shape[dim]


@rule("dim", "ndimension")
def dim(l, x):
    return len(x.dims)


@rule("numel")
def numel(l, x):
    return layout.product(x.shape)


@rule("getattr")
def getattr_(l, x, name):
    if name == "shape":
        return torch.Size(x.shape)
    if name in ("T", "mT"):
        return transpose(l, x, -1, -2)
    known = {"dtype": x.dtype, "ndim": len(x.dims), "device": torch.device("cpu"),
                                           "requires_grad": False, "is_cuda": False}
    if name not in known:
        raise Refuse("the attribute %s" % name)
    return known[name]


@rule("getitem")
def getitem(l, x, index):
    if not isinstance(x, Tensor):
        if isinstance(x, torch.Tensor):
            return gather(l, x, index)
        return x[index]
    if isinstance(index, torch.Tensor) or (isinstance(index, tuple) and index and
                                           all(isinstance(i, torch.Tensor) for i in index)):
        return picked(l, x, index if isinstance(index, tuple) else (index,))
    each = index if isinstance(index, tuple) else (index,)
    if each and all(isinstance(i, (Tensor, torch.Tensor)) for i in each):
        return counting.rows(l, x, each)
    index = list(index) if isinstance(index, tuple) else [index]
    given = sum(i is not None and i is not Ellipsis for i in index)
    if not any(i is Ellipsis for i in index):
        index.append(Ellipsis)
    at = next(k for k, i in enumerate(index) if i is Ellipsis)
    index[at:at + 1] = [slice(None)] * (len(x.dims) - given)
    k = 0
    for i in index:
        if i is None:
            x = unsqueeze(l, x, k)
        elif isinstance(i, slice):
            x = layout.slice_dim(l.g, x, k, i.start, i.stop, i.step)
        elif isinstance(i, int) and not isinstance(i, bool):
            x = select(l, x, k, i)
            continue
        else:
            raise Refuse("an index that is a %s" % type(i).__name__)
        k += 1
    return x


def picked(l, x, index):
    """Elements by folded indices into the first dimensions: a view where each counts along a dimension of its own."""
    if any(i.is_floating_point() or i.dtype == torch.bool for i in index) or len(index) > len(x.dims):
        raise Refuse("an index of %s" % index[0].dtype)
    shape = layout.broadcast(*(tuple(i.shape) for i in index))
    rank, sizes = len(shape), x.shape[:len(index)]
    along = []
    for i, n in zip(index, sizes):
        i = i.reshape((1,) * (rank - i.ndim) + tuple(i.shape))
        where = [k for k in range(rank) if i.shape[k] > 1]
        counts = torch.arange(n, device=i.device)
        plain_count = i.numel() == n and len(where) <= 1 and torch.equal(i.reshape(-1), counts.to(i.dtype))
        along.append((where[0] if where else None) if plain_count else -1)
    placed = [k for k in along if k is not None]
    if -1 not in placed and len(set(placed)) == len(placed):
        dims = [[] for _ in shape]
        for k, d in zip(along, x.dims):
            if k is not None:
                dims[k] = d
        return layout.expand(x.of(dims + x.dims[len(index):]), shape + x.shape[len(index):])
    flat = torch.zeros((), dtype=torch.int64)
    for i, n in zip(index, sizes):
        flat = flat * n + torch.where(i < 0, i + n, i)
    rest = x.shape[len(index):]
    was = x.dtype
    x = cast(l, x, torch.float32) if not was.is_floating_point else x
    table = layout.reshape(l.g, x, [layout.product(sizes), layout.product(rest)])
    made = layout.reshape(l.g, RULES["embedding"](l, flat.expand(shape).contiguous(), table), shape + rest)
    return cast(l, made, was) if was != torch.bool else Tensor(made.node, made.axes, made.dims, was)


def gather(l, table, index):
    """Rows of a folded tensor by ids of the graph."""
    if isinstance(index, Tensor) and table.ndim == 2:
        return RULES["embedding"](l, index, table)
    raise Refuse("an index into a tensor of %d dimensions" % table.ndim)


@rule("select")
def select(l, x, dim, index):
    k = axis(x, dim)
    n = x.shape[k]
    if not -n <= index < n:
        raise Refuse("element %d of %d" % (index, n))
    x = layout.slice_dim(l.g, x, k, index % n, index % n + 1, 1)
    return x.of(x.dims[:k] + x.dims[k + 1:])


@rule("narrow")
def narrow(l, x, dim, start, length):
    k = axis(x, dim)
    start = start % x.shape[k] if start < 0 else start
    return layout.slice_dim(l.g, x, k, start, start + length, 1)


@rule("split")
def split(l, x, size, dim=0, **kwargs):
    k = axis(x, kwargs.get("axis", dim))
    n = x.shape[k]
    sizes = size if isinstance(size, (tuple, list)) else [min(size, n - i) for i in range(0, n, size)]
    out, start = [], 0
    for s in sizes:
        out.append(layout.slice_dim(l.g, x, k, start, start + s, 1))
        start += s
    return tuple(out)


SAME["split_with_sizes"], RULES["split_with_sizes"] = "split", split


@rule("chunk")
def chunk(l, x, chunks, dim=0):
    return split(l, x, -(-x.shape[axis(x, dim)] // chunks), dim)


@rule("unbind")
def unbind(l, x, dim=0):
    return tuple(select(l, x, dim, i) for i in range(x.shape[axis(x, dim)]))


@rule("cat", "concat", "concatenate")
def cat(l, tensors, dim=0, **kwargs):
    parts = [x for x in tensors if not (isinstance(x, torch.Tensor) and x.numel() == 0)]
    dtype = promoted(*parts)
    parts = [cast(l, l.tensor(x), dtype) for x in parts]
    k = axis(parts[0], kwargs.get("axis", dim))
    return rope.partial(l, parts, k) or (parts[0] if len(parts) == 1 else layout.concat(l.g, parts, k))


@rule("stack")
def stack(l, tensors, dim=0):
    parts = [l.tensor(x) for x in tensors]
    k = dim % (len(parts[0].dims) + 1)
    return cat(l, [unsqueeze(l, x, k) for x in parts], k)


@rule("pad")
def pad(l, x, pad, mode="constant", value=None):
    """By a constant, which is put together with x."""
    if mode != "constant" or len(pad) % 2 or len(pad) > 2 * len(x.dims):
        raise Refuse("a pad that is no constant")
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        k = len(x.dims) - 1 - i
        if x.shape[k] + min(before, 0) + min(after, 0) <= 0:
            raise Refuse("a pad that leaves nothing of %s" % list(x.shape))
        x = layout.slice_dim(l.g, x, k, max(-before, 0), x.shape[k] - max(-after, 0), 1)
        shape = x.shape

        def part(n):
            return torch.full((*shape[:k], max(n, 0), *shape[k + 1:]), value or 0, dtype=x.dtype)
        parts = [part(before)][:before > 0] + [x] + [part(after)][:after > 0]
        x = cat(l, parts, k)
    return x
