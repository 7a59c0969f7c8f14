"""products.py -- rules of what reduces: statistics of rows, norms, products, tables, losses, attention."""
import functools

import torch

from . import attention, counting, layout, rounding, state
from .layout import Tensor, plain
from .rules import RULES, SAME, axis, cast, elementwise, promoted, rule, transpose, unary
from .text import Refuse

# ---- Rows ----

def last(l, x):
    """x's node with the last dimension last, and the order of all."""
    order = layout.units(x)
    n = len(x.dims)
    if order is None or (order[-1] != n - 1 and x.dims[n - 1]):
        order = list(range(n))
    order = [k for k in order if k != n - 1] + [n - 1]
    return layout.aligned(l.g, x, order), order


def rows(l, word, x, dim, keepdim, dtype=None):
    dims = [dim] if isinstance(dim, int) else list(dim) if dim is not None else list(range(len(x.dims)))
    dims = sorted(axis(x, k) for k in dims)
    if not dims:
        raise Refuse("a statistic over no dimension")
    shape, n = x.shape, len(x.dims)
    if word == "mean" and 0 in (shape[k] for k in dims):
        raise Refuse("the mean of nothing")
    kept = [k for k in range(n) if k not in dims]
    turned = layout.permute(x, kept + dims)
    turned = layout.reshape(l.g, turned, [shape[k] for k in kept] + [layout.product(shape[k] for k in dims)])
    node, order = last(l, turned)
    node = l.g.node(word, [node], node.shape[:-1] + (1,), "f32")
    made = layout.from_aligned(node, order, torch.float32)
    made = made.of(made.dims[:-1])
    if keepdim:
        for k in dims:
            made = made.of(made.dims[:k] + [[]] + made.dims[k:])
    dtype = dtype or x.dtype
    return cast(l, made, dtype) if dtype.is_floating_point else made


@rule("mean")
def mean(l, x, dim=None, keepdim=False, dtype=None):
    if not x.dtype.is_floating_point:
        raise Refuse("the mean of integers")
    return rows(l, "mean", x, dim, keepdim, dtype)


@rule("sum")
def sum_(l, x, dim=None, keepdim=False, dtype=None):
    if x.dtype.is_floating_point:
        return rows(l, "sum", x, dim, keepdim, dtype)
    top = counting.bound(l, x)
    if top is None or top * layout.product(x.shape) >= counting.EXACT or dtype not in (None, torch.int64):
        raise Refuse("the sum of integers")
    made = rows(l, "sum", cast(l, x, torch.float32), dim, keepdim)
    return counting.bounded(l, cast(l, made, torch.int64), top * layout.product(x.shape))


@rule("amax")
def amax(l, x, dim=None, keepdim=False):
    return rows(l, "max", x, dim, keepdim)


@rule("argmax")
def argmax(l, x, dim=None, keepdim=False):
    if dim is None or not x.dtype.is_floating_point and counting.bound(l, x) is None:
        raise Refuse("argmax of %s" % ("all elements" if dim is None else x.dtype))
    made = rows(l, "arg_max", cast(l, rounding.exact(l, x), torch.float32), dim, keepdim)
    return counting.bounded(l, cast(l, made, torch.int64), x.shape[axis(x, dim)] - 1)


@rule("var")
def var(l, x, dim=None, unbiased=True, keepdim=False, correction=None):
    n = layout.product(x.shape[k] for k in ([dim] if isinstance(dim, int) else dim or range(len(x.dims))))
    off = (1 if unbiased else 0) if correction is None else correction
    return elementwise(l, "div", rows(l, "m2", x, dim, keepdim), float(max(n - off, 0)))


@rule("norm", "vector_norm")
def norm(l, x, p=2, dim=None, keepdim=False, dtype=None):
    if p not in (1, 2, "fro") or dtype is not None:
        raise Refuse("the norm %s" % p if dtype is None else "a norm in %s" % dtype)
    if p == 1:
        return rows(l, "sum", unary(l, "abs", x), dim, keepdim)
    return unary(l, "sqrt", rows(l, "sum_sq", x, dim, keepdim))


@rule("softmax", "log_softmax")
def softmax(l, x, dim=None, dtype=None, _stacklevel=3, word="softmax"):
    k = axis(x, -1 if dim is None else dim)
    x = cast(l, x, dtype or x.dtype)
    n = len(x.dims)
    order = [j for j in range(n) if j != k] + [k]
    node, lie = last(l, layout.permute(x, order))
    made = layout.from_aligned(l.g.node(word, [node], node.shape, node.dtype), lie, x.dtype)
    return layout.permute(made, [order.index(j) for j in range(n)])


RULES["log_softmax"] = lambda l, x, dim=None, _stacklevel=3, dtype=None: softmax(l, x, dim, dtype, word="log_softmax")
SAME["log_softmax"] = "log_softmax"


def normalised(l, word, x, shape, operands, **attributes):
    if len(shape) != 1:
        raise Refuse("%s over %d dimensions" % (word, len(shape)))
    node, order = last(l, x)
    nodes = [None if w is None else plain(l.g, cast(l, l.tensor(w), x.dtype)) for w in operands]
    return layout.from_aligned(l.g.node(word, [node, *nodes], node.shape, node.dtype, **attributes), order, x.dtype)


@rule("layer_norm")
def layer_norm(l, x, shape, weight=None, bias=None, eps=1e-5, *_):
    return normalised(l, "layer_norm", x, shape, [weight, bias], eps=float(eps))


@functools.lru_cache(maxsize=None)
def least_eps(dtype):
    """What this PyTorch adds where no eps is given: of 16 bits some versions have fp32's, as they compute in fp32."""
    x = torch.full((16,), 2.0 ** -8, dtype=dtype)
    made = float(torch.nn.functional.rms_norm(x, (16,)).double()[0])
    return min((torch.finfo(t).eps for t in (dtype, torch.float32)),
               key=lambda eps: abs(made - 2.0 ** -8 / (2.0 ** -16 + eps) ** 0.5))


@rule("rms_norm")
def rms_norm(l, x, shape, weight=None, eps=None):
    eps = least_eps(x.dtype) if eps is None else eps
    return normalised(l, "rms_norm", x, shape, [weight], eps=float(eps))


# ---- Products, tables ----

def kn(x):
    """Does the second dimension from the end lie behind the last: is this a transposed matrix?"""
    order = layout.units(x)
    n = len(x.dims)
    return order is not None and [k for k in order if k >= n - 2] == [n - 1, n - 2]


def multiply(l, x, w):
    """x [.., M, K] by w [.., K, N]."""
    dtype = promoted(x, w)
    x, w = cast(l, l.tensor(x), dtype), cast(l, l.tensor(w), dtype)
    if len(w.dims) == 2:
        node, order = last(l, x)
    else:
        batch = layout.broadcast(x.shape[:-2], w.shape[:-2])
        x, w = layout.expand(x, batch + x.shape[-2:]), layout.expand(w, batch + w.shape[-2:])
        node, order = plain(l.g, x), list(range(len(x.dims)))
    swap = list(range(len(w.dims)))
    swap[-2:] = swap[:-3:-1]
    turned = kn(w) or (len(w.dims) == 2 and not layout.is_plain(w))
    other = plain(l.g, layout.permute(w, swap) if turned else w)
    if x.shape[-1] != w.shape[-2]:
        raise Refuse("a product of %s and %s" % (list(x.shape), list(w.shape)))
    shape = node.shape[:-1] + (w.shape[-1],)
    return layout.from_aligned(l.g.node("matmul", [node, other], shape, node.dtype, kn=int(not turned)), order, dtype)


@rule("linear")
def linear(l, x, weight, bias=None):
    made = multiply(l, x, transpose(l, l.tensor(weight), 0, 1))
    return made if bias is None else elementwise(l, "add", made, bias)


@rule("matmul", "bmm", "mm", "__matmul__")
def matmul(l, x, y):
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        made = attention.matched(l, x, y)
        if made is not None:
            return made
    nx, ny = (len(v.dims) if isinstance(v, Tensor) else v.ndim for v in (x, y))
    if nx < 2 or ny < 2:
        raise Refuse("a product of %d and %d dimensions" % (nx, ny))
    x, y = l.tensor(x), l.tensor(y)
    if nx < ny:
        x = layout.expand(x, y.shape[:-2] + x.shape[-2:])
    return multiply(l, x, y)


@rule("addmm")
def addmm(l, bias, x, w, beta=1, alpha=1):
    if (beta, alpha) != (1, 1):
        raise Refuse("addmm with factors")
    return elementwise(l, "add", multiply(l, x, w), bias)


def rows_in_place(l, ids, table):
    """Of ids that were folded, as positions and types of tokens are: the table's rows where they lie, if all ids are
    one, or count along the last dimension. A gradient, or sizes that are not known, want ids."""
    if not isinstance(ids, torch.Tensor) or l.keep or l.shapes is not None or not ids.numel() or not ids.ndim:
        return None
    first, n = int(ids.reshape(-1)[0]), ids.shape[-1]
    one = bool((ids == first).all())
    counts = torch.arange(first, first + n, device=ids.device)
    if not one and not bool((ids == counts).all()) or first < 0 or first + (1 if one else n) > table.shape[0]:
        return None
    rows = layout.slice_dim(l.g, table, 0, first, first + (1 if one else n), 1)
    return layout.expand(rows.of(rows.dims[1:]) if one else rows, tuple(ids.shape) + table.shape[1:])


@rule("embedding")
def embedding(l, ids, table, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if max_norm is not None:
        raise Refuse("an embedding with max_norm")
    if isinstance(table, Tensor) and table.dtype in (torch.int64, torch.int32) and not isinstance(ids, Tensor):
        ids, table = table, ids  # by the order of aten
    table = l.tensor(table)
    rows = rows_in_place(l, ids, table)
    if rows is not None:
        return rows
    ids = l.tensor(ids)
    if table.shape[0] > 2 ** 24:
        raise Refuse("a table of %d rows" % table.shape[0])
    l.bounds.setdefault(ids.node, table.shape[0] - 1)  # others are an error
    shape = ids.shape + table.shape[1:]
    node = l.g.node("embedding", [plain(l.g, table), plain(l.g, ids)], shape, layout.text.name(table.dtype))
    return layout.dense(node, shape, table.dtype)


@rule("conv2d")
def conv2d(l, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Patches that do not overlap are a product."""
    weight = l.tensor(weight)
    n, c, p, q = weight.shape
    padding = 0 if padding == "valid" else padding
    pair = [v if isinstance(v, (tuple, list)) else (v, v) for v in (stride, padding, dilation)]
    if tuple(pair[0]) != (p, q) or tuple(pair[1]) != (0, 0) or tuple(pair[2]) != (1, 1) or groups != 1:
        raise Refuse("a convolution whose windows overlap, or are padded")
    b, _, h, w = x.shape
    if h % p or w % q:
        raise Refuse("a convolution of %d x %d by %d x %d" % (h, w, p, q))
    x = layout.reshape(l.g, x, [b, c, h // p, p, w // q, q])
    x = layout.reshape(l.g, layout.permute(x, [0, 2, 4, 1, 3, 5]), [b, h // p, w // q, c * p * q])
    made = linear(l, x, layout.reshape(l.g, weight, [n, c * p * q]), bias)
    return layout.permute(made, [0, 3, 1, 2])


# ---- Losses ----

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}  # of the text form


def loss(l, x, reduction):
    """A mean or a sum over all elements, or none."""
    if reduction == "none":
        return x
    return RULES[reduction](l, x)


@rule("cross_entropy")
def cross_entropy(l, x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                  label_smoothing=0.0):
    if weight is not None or label_smoothing or size_average is not None or reduce is not None:
        raise Refuse("a cross-entropy with weights or smoothed labels")
    target = l.tensor(target)
    if len(x.dims) != len(target.dims) + 1 or target.dtype.is_floating_point:
        raise Refuse("a cross-entropy by probabilities")
    if len(x.dims) > 2:  # classes are dimension 1
        x = layout.permute(x, [0, *range(2, len(x.dims)), 1])
    node = l.g.node("cross_entropy", [plain(l.g, x), plain(l.g, target)], target.shape if reduction == "none" else (1,),
                    "f32", ignore=ignore_index, reduction=REDUCTIONS[reduction])
    shape = target.shape if reduction == "none" else ()
    return cast(l, layout.dense(l.g.reshape(node, shape), shape, torch.float32), x.dtype)


@rule("mse_loss")
def mse_loss(l, x, y, size_average=None, reduce=None, reduction="mean", weight=None):
    if weight is not None or size_average is not None or reduce is not None or tuple(x.shape) != tuple(y.shape):
        raise Refuse("a squared error with weights, or of other shapes")
    d = elementwise(l, "sub", x, y)
    return loss(l, elementwise(l, "mul", d, d), reduction)


# ---- Caches, attention ----

@rule("index_copy_")
def index_copy_(l, cache, dim, index, source):
    return state.index_copy(l, cache, dim, index, source)


@rule("scaled_dot_product_attention")
def sdpa(l, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p:
        raise Refuse("dropout in training")
    return attention.sdpa(l, q, k, v, attn_mask, is_causal, scale, enable_gqa)
