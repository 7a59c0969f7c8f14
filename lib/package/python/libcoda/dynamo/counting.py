"""counting.py -- integers that are known to be small: flags, how many of them there are, places of the largest, rows of a table.

The library's arithmetic is fp32's, which is exact below 2^24. So that of integers is taken where none is below 0 and a bound
says that all results are exact, as positions are that a model counts by what is no padding; any other is refused. """
import torch

from . import layout, rules
from .layout import Tensor
from .text import Refuse

EXACT = 1 << 24
LONGEST = 2048  # what is summed up along: by a product with a triangle
TOP = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "maximum": max, "minimum": min}


def bound(l, x):
    """What no element of x exceeds, of integers or flags of which none is below 0; None where that is not known."""
    if isinstance(x, Tensor):
        return 1 if x.dtype == torch.bool else l.bounds.get(x.node)
    if isinstance(x, torch.Tensor):
        whole = not x.is_floating_point() and not x.is_complex() and x.numel() and int(x.min()) >= 0
        return int(x.max()) if whole else None
    return int(x) if isinstance(x, int) and x >= 0 else None


def bounded(l, x, top):
    l.bounds[x.node] = top
    return x


def arithmetic(l, word, operands, dtype):
    """Of integers, in fp32; None if a bound is missing, or too large."""
    tops = [bound(l, x) for x in operands]
    if word not in TOP or None in tops or TOP[word](*tops) >= EXACT:
        return None
    wide = [rules.cast(l, x, torch.float32) if isinstance(x, Tensor) else x.float() if isinstance(x, torch.Tensor) else x
            for x in operands]
    return bounded(l, rules.cast(l, rules.elementwise(l, word, *wide, dtype=torch.float32), dtype), TOP[word](*tops))


def comparable(l, *operands):
    """Refuses a comparison of integers by fp32, unless those of one side are known to be small: what the others are rounded
    to is on the same side of these."""
    whole = [x for x in operands if isinstance(x, (Tensor, torch.Tensor)) and x.dtype in (torch.int64, torch.int32)]
    small = [bound(l, x) if isinstance(x, Tensor) else int(x.abs().max()) if x.numel() else 0 for x in whole]
    if len(whole) == 2 and all(top is None or top >= EXACT for top in small):
        raise Refuse("a comparison of two tensors of %s, which may be 2^24 or more" % whole[0].dtype)


def cumsum(l, x, dim, dtype=None):
    top, k = bound(l, x), rules.axis(x, dim)
    n = x.shape[k] if x.dims else 0
    if top is None or not 0 < n <= LONGEST or n * top >= EXACT or dtype not in (None, torch.int64, torch.int32):
        raise Refuse("no rule for cumsum, but of flags, %d at most" % LONGEST)
    order = [j for j in range(len(x.dims)) if j != k] + [k]
    sums = rules.RULES["linear"](l, layout.permute(rules.cast(l, x, torch.float32), order), torch.ones(n, n).tril())
    made = layout.permute(sums, [order.index(j) for j in range(len(order))])
    return bounded(l, rules.cast(l, made, dtype or torch.int64), n * top)


def rows(l, x, index):
    """x[i, j, ..], of which some are of the graph: rows of x as a table."""
    sizes, rest = x.shape[:len(index)], x.shape[len(index):]
    tops = [bound(l, i) for i in index]
    if len(index) > len(x.shape) or not x.dtype.is_floating_point or \
            any(i.dtype == torch.bool or top is None or top >= n for i, top, n in zip(index, tops, sizes)):
        raise Refuse("an index of which nothing says that it is none from the end")
    at = index[0]
    for i, n in zip(index[1:], sizes[1:]):
        at = rules.RULES["add"](l, rules.RULES["mul"](l, at, n) if isinstance(at, Tensor) else at * n, i)
    table = layout.reshape(l.g, x, [layout.product(sizes), layout.product(rest)])
    return layout.reshape(l.g, rules.RULES["embedding"](l, at, table), at.shape + rest)
