"""spellings.py -- operations of PyTorch that are others of rules.py and products.py, put together."""
import math

import torch

from . import counting, layout, products, rules
from .layout import Tensor
from .rules import RULES, SAME, axis, elementwise, ints, rule, unary
from .text import Refuse

# ---- Elementwise ----

for _name, _same in (("multiply", "mul"), ("subtract", "sub"), ("divide", "truediv"), ("true_divide", "truediv"),
                     ("negative", "neg"), ("absolute", "abs")):
    RULES[_name], SAME[_name] = RULES[_same], _same


def not_in_place(word, inplace):
    if inplace:
        raise Refuse("%s in place" % word)


@rule("leaky_relu")
def leaky_relu(l, x, negative_slope=0.01, inplace=False):
    not_in_place("leaky_relu", inplace)
    return rules.where(l, RULES["gt"](l, x, 0.0), x, elementwise(l, "mul", x, float(negative_slope)))


def clipped(l, x, low, high):
    return unary(l, "clip", x, low=float(low), high=float(high))


@rule("hardtanh")
def hardtanh(l, x, min_val=-1.0, max_val=1.0, inplace=False):
    """At a bound it has no gradient, in all versions of PyTorch."""
    not_in_place("hardtanh", inplace)
    made = clipped(l, x, min_val, max_val)
    return rules.within(l, x, min_val, max_val, made) if l.keep else made


@rule("relu6")
def relu6(l, x, inplace=False):
    return hardtanh(l, x, 0.0, 6.0, inplace)


@rule("hardsigmoid")
def hardsigmoid(l, x, inplace=False):
    return elementwise(l, "div", relu6(l, elementwise(l, "add", x, 3.0), inplace), 6.0)


@rule("hardswish")
def hardswish(l, x, inplace=False):
    return elementwise(l, "mul", x, hardsigmoid(l, x, inplace))


@rule("softplus")
def softplus(l, x, beta=1.0, threshold=20.0):
    if threshold < 20 or beta <= 0:
        raise Refuse("softplus that is x from %g on" % threshold)
    if beta == 1:
        return unary(l, "softplus", x)
    return elementwise(l, "div", unary(l, "softplus", elementwise(l, "mul", x, float(beta))), float(beta))


@rule("mish")
def mish(l, x, inplace=False):
    not_in_place("mish", inplace)
    return elementwise(l, "mul", x, unary(l, "tanh", unary(l, "softplus", x)))


@rule("elu")
def elu(l, x, alpha=1.0, inplace=False):
    """exp sees no positive x: where nothing is chosen of it its gradient must be 0, not 0 times infinity."""
    not_in_place("elu", inplace)
    below = elementwise(l, "sub", unary(l, "exp", clipped(l, x, -math.inf, 0)), 1.0)
    return elementwise(l, "add", unary(l, "relu", x), below if alpha == 1 else elementwise(l, "mul", below, float(alpha)))


@rule("softsign")
def softsign(l, x):
    return elementwise(l, "div", x, elementwise(l, "add", unary(l, "abs", x), 1.0))


@rule("logsigmoid", "log_sigmoid")
def logsigmoid(l, x):
    return rules.neg(l, unary(l, "softplus", rules.neg(l, x)))


@rule("glu")
def glu(l, x, dim=-1):
    a, b = rules.chunk(l, x, 2, dim)
    return elementwise(l, "mul", a, unary(l, "sigmoid", b))


def of_two(word, name):
    @rule(name)
    def f(l, x, *other, **more):
        if len(other) != 1 or more or not isinstance(other[0], (Tensor, torch.Tensor)):
            raise Refuse("%s along a dimension, with its places" % name)
        return rules.one_of(l, word, x, other[0])


of_two("minimum", "min")
of_two("maximum", "max")


def filled(*names, value=None):
    @rule(*names)
    def f(l, x, *args, dtype=None, **_):
        args = list(args)
        shape = ints([args.pop(0)] if args and isinstance(args[0], (tuple, list)) else args) if "new" in names[0] else x.shape
        if "new" not in names[0] and len(args) != (value is None):
            raise Refuse("%s of these arguments" % names[0])
        fill = value if value is not None else args[-1]
        return torch.full(tuple(shape), fill, dtype=dtype or x.dtype)


filled("zeros_like", value=0)
filled("ones_like", value=1)
filled("full_like")
filled("new_zeros", value=0)
filled("new_ones", value=1)


@rule("gather")
def gather(l, x, dim, index, sparse_grad=False):
    """Of a folded tensor whose elements are all the same one, as types of tokens are that a model has in a buffer."""
    value = rules.uniform(x) if isinstance(x, torch.Tensor) else None
    if value is None:
        raise Refuse("no rule for gather, but of equal elements")
    return torch.full(index.shape, value, dtype=x.dtype, device=x.device)


# ---- Rows ----


rule("cumsum")(counting.cumsum)


@rule("amin")
def amin(l, x, dim=None, keepdim=False):
    return rules.neg(l, products.amax(l, rules.neg(l, x), dim, keepdim))


@rule("std")
def std(l, x, dim=None, unbiased=True, keepdim=False, correction=None):
    return unary(l, "sqrt", products.var(l, x, dim, unbiased, keepdim, correction))


@rule("var_mean")
def var_mean(l, x, dim=None, unbiased=True, keepdim=False, correction=None):
    return products.var(l, x, dim, unbiased, keepdim, correction), products.mean(l, x, dim, keepdim)


@rule("logsumexp")
def logsumexp(l, x, dim, keepdim=False):
    return products.rows(l, "log_sum_exp", x, dim, keepdim)


@rule("linalg_vector_norm")
def vector_norm(l, x, ord=2, dim=None, keepdim=False, dtype=None):
    return products.norm(l, x, ord, dim, keepdim, dtype)


@rule("normalize")
def normalize(l, x, p=2.0, dim=1, eps=1e-12, out=None):
    size = vector_norm(l, x, p, dim, True)
    return elementwise(l, "div", x, rules.clamp(l, size, min=eps))


@rule("group_norm")
def group_norm(l, x, num_groups, weight=None, bias=None, eps=1e-5, *_):
    """Of each sample's groups of channels, dimension 1, with all that lies behind it."""
    shape, n = x.shape, num_groups
    if len(shape) < 2 or shape[1] % n:
        raise Refuse("group_norm of %s by %d" % (list(shape), n))
    inner = layout.product(shape[1:]) // n
    y = layout.reshape(l.g, x, [shape[0], n, inner])
    y = layout.reshape(l.g, products.layer_norm(l, y, (inner,), None, None, eps), shape)
    for word, w in (("mul", weight), ("add", bias)):
        if w is not None:
            y = elementwise(l, word, y, layout.reshape(l.g, l.tensor(w), [shape[1]] + [1] * (len(shape) - 2)))
    return y


# ---- Shapes ----

@rule("numpy_T")
def reversed_(l, x):
    return layout.permute(x, list(range(len(x.dims)))[::-1])


@rule("mT", "adjoint")
def turned(l, x):
    return rules.transpose(l, x, -1, -2)


@rule("movedim", "moveaxis")
def movedim(l, x, source, destination):
    pair = [[k] if isinstance(k, int) else list(k) for k in (source, destination)]
    here, there = ([axis(x, k) for k in each] for each in pair)
    rest = [k for k in range(len(x.dims)) if k not in here]
    placed = dict(zip(there, here))
    return layout.permute(x, [placed[k] if k in placed else rest.pop(0) for k in range(len(x.dims))])


@rule("setitem")
def setitem(l, x, *_):
    raise Refuse("elements of a tensor that are written in place, as in a cache that rolls")


@rule("roll")
def roll(l, x, shifts, dims=None):
    if dims is None:
        raise Refuse("roll of all elements")
    for by, k in zip(*([v] if isinstance(v, int) else list(v) for v in (shifts, dims))):
        k = axis(x, k)
        n = x.shape[k]
        at = -by % n if n else 0
        if at:
            x = rules.cat(l, [layout.slice_dim(l.g, x, k, at, n, 1), layout.slice_dim(l.g, x, k, 0, at, 1)], k)
    return x


@rule("flip")
def flip(l, x, *dims):
    for k in ints(dims):
        k, n = axis(x, k), x.shape[axis(x, k)]
        order = [k] + [j for j in range(len(x.dims)) if j != k]
        turned = rules.picked(l, layout.permute(x, order), (torch.arange(n - 1, -1, -1),)) if n > 1 else layout.permute(x, order)
        x = layout.permute(turned, [order.index(j) for j in range(len(order))])
    return x


@rule("repeat", "tile")
def repeat(l, x, *sizes, **kwargs):
    sizes = ints(sizes or (kwargs.get("repeats") or kwargs.get("dims"),))
    sizes = [1] * (len(x.dims) - len(sizes)) + sizes
    x = x.of([[]] * (len(sizes) - len(x.dims)) + x.dims)
    shape = x.shape
    if math.prod(sizes) == 0:
        raise Refuse("a tensor that is repeated no time")
    paired = x.of([d for e in x.dims for d in ([], e)])
    paired = layout.expand(paired, [n for pair in zip(sizes, shape) for n in pair])
    return layout.reshape(l.g, paired, [a * b for a, b in zip(sizes, shape)])


@rule("tensor_split")
def tensor_split(l, x, indices_or_sections, dim=0):
    """By places, or into so many parts, of which the first are longer by 1."""
    k, at = axis(x, dim), indices_or_sections
    n = x.shape[k]
    if isinstance(at, int):
        at = [i * (n // at) + min(i, n % at) for i in range(1, at)]
    elif not isinstance(at, (tuple, list)):
        raise Refuse("tensor_split by a tensor")
    places = [0] + [min(max(i + n if i < 0 else i, 0), n) for i in at] + [n]
    return tuple(layout.slice_dim(l.g, x, k, a, max(a, b), 1) for a, b in zip(places, places[1:]))


# ---- Products ----

@rule("einsum")
def einsum(l, equation, *operands):
    """Of two operands: a product of what both have and the result has not, for each of what all three have."""
    operands = operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    given, _, out = equation.replace(" ", "").partition("->")
    names = given.split(",")
    if len(names) != 2 or len(operands) != 2 or "." in equation or any(len(set(s)) < len(s) for s in (*names, out)):
        raise Refuse("einsum of %s" % equation)
    a, b = names
    each, over = [c for c in a if c in b and c in out], [c for c in a if c in b and c not in out]
    left, right = ([c for c in s if c in out and c not in each] for s in (a, b))
    if not over or sorted(each + left + right) != sorted(out) or set(a + b) != set(out) | set(over):
        raise Refuse("einsum of %s" % equation)
    sizes = {c: n for s, x in zip(names, operands) for c, n in zip(s, x.shape)}

    def matrix(x, s, rows, columns):
        x = layout.permute(l.tensor(x), [s.index(c) for c in each + rows + columns])
        return layout.reshape(l.g, x, [sizes[c] for c in each] + [layout.product(sizes[c] for c in p) for p in (rows, columns)])
    made = products.matmul(l, matrix(operands[0], a, left, over), matrix(operands[1], b, over, right))
    lie = each + left + right
    return layout.permute(layout.reshape(l.g, made, [sizes[c] for c in lie]), [lie.index(c) for c in out])


@rule("baddbmm")
def baddbmm(l, x, batch1, batch2, beta=1, alpha=1):
    made = products.matmul(l, batch1, batch2)
    made = made if alpha == 1 else elementwise(l, "mul", made, float(alpha))
    return made if beta == 0 else elementwise(l, "add", made, x if beta == 1 else elementwise(l, "mul", x, float(beta)))


WIDEST = 16  # columns that a convolution reads


@rule("conv1d")
def conv1d(l, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """A product of the columns that it reads, side by side."""
    weight = l.tensor(weight)
    (n, c, width), padding = weight.shape, 0 if padding == "valid" else padding
    s, p, d = [v[0] if isinstance(v, (tuple, list)) else v for v in (stride, padding, dilation)]
    if width > WIDEST or groups != 1 or len(x.dims) != 3 or isinstance(p, str):
        raise Refuse("a convolution over %d columns, of %d groups" % (width, groups))
    x = layout.permute(rules.pad(l, x, [p, p]) if p else x, [0, 2, 1])
    count = (x.shape[1] - d * (width - 1) - 1) // s + 1
    if count < 1:
        raise Refuse("a convolution of fewer columns than it reads")
    read = [layout.slice_dim(l.g, x, 1, j * d, j * d + s * (count - 1) + 1, s) for j in range(width)]
    rows = read[0] if width == 1 else rules.cat(l, read, 2)
    flat = layout.reshape(l.g, layout.permute(weight, [0, 2, 1]), [n, width * c])
    return layout.permute(products.linear(l, rows, flat, bias), [0, 2, 1])
