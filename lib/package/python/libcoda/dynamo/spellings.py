"""spellings.py -- operations of PyTorch that are others of rules.py and products.py, put together."""
import math

import torch

from . import layout, products, rules
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
    if not 0 <= negative_slope <= 1:
        raise Refuse("leaky_relu with the slope %g" % negative_slope)
    return elementwise(l, "maximum", x, elementwise(l, "mul", x, negative_slope))


@rule("hardtanh")
def hardtanh(l, x, min_val=-1.0, max_val=1.0, inplace=False):
    not_in_place("hardtanh", inplace)
    return rules.clamp(l, x, min_val, max_val)


@rule("relu6")
def relu6(l, x, inplace=False):
    return hardtanh(l, x, 0.0, 6.0, inplace)


@rule("hardsigmoid")
def hardsigmoid(l, x, inplace=False):
    return elementwise(l, "div", relu6(l, elementwise(l, "add", x, 3.0), inplace), 6.0)


@rule("hardswish")
def hardswish(l, x, inplace=False):
    return elementwise(l, "mul", x, hardsigmoid(l, x, inplace))


@rule("mish")
def mish(l, x, inplace=False):
    not_in_place("mish", inplace)
    return elementwise(l, "mul", x, unary(l, "tanh", unary(l, "softplus", x)))


@rule("elu")
def elu(l, x, alpha=1.0, inplace=False):
    """exp sees no positive x: where nothing is chosen of it its gradient must be 0, not 0 times infinity."""
    not_in_place("elu", inplace)
    below = elementwise(l, "sub", unary(l, "exp", rules.clamp(l, x, max=0.0)), 1.0)
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
        return elementwise(l, word, x, other[0])


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

# ---- Rows ----


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


@rule("conv1d")
def conv1d(l, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Of one column at a time: a product."""
    weight = l.tensor(weight)
    numbers = [v[0] if isinstance(v, (tuple, list)) else v for v in (stride, padding)]
    if weight.shape[2] != 1 or numbers != [1, 0] or groups != 1 or len(x.dims) != 3:
        raise Refuse("a convolution over %d columns, of %d groups" % (weight.shape[2], groups))
    made = products.linear(l, layout.permute(x, [0, 2, 1]), layout.reshape(l.g, weight, weight.shape[:2]), bias)
    return layout.permute(made, [0, 2, 1])
