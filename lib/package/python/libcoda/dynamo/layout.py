"""layout.py -- tensors of PyTorch as dense values of a graph, seen through a view.

A Tensor is a node, whose elements lie one behind the other, cut into axes of given sizes; each of its dimensions is a
list of these axes, in any order. So view, transpose, expand and slices of heads are bookkeeping: `view(B, T, H, D)`,
`transpose(1, 2)` of a projection [B, T, H*D] is the same node with other dimensions, and so is a key head that is
repeated. What cannot be said so is made by plain(), which transposes. """
from . import text
from .text import Refuse


class Axis:
    """A run of `size`; `stretched`: each of its elements is the same one, as expand makes them."""
    __slots__ = ("size", "stretched")

    def __init__(self, size, stretched=False):
        self.size, self.stretched = size, stretched


def product(sizes):
    n = 1
    for s in sizes:
        n *= s
    return n


class Tensor:
    """`axes`: those of the node, outermost first, none of size 1. `dims`: a list of axes for each dimension. `made`: the
    operation's name and operands. `origin`: Dynamo's node, if it is made of one argument of integers (integers.py)."""
    __slots__ = ("node", "axes", "dims", "dtype", "made", "origin")

    def __init__(self, node, axes, dims, dtype, made=None):
        self.node, self.axes, self.dims, self.dtype = node, list(axes), [list(d) for d in dims], dtype
        self.made, self.origin = made, None

    @property
    def shape(self):
        return tuple(product(a.size for a in d) for d in self.dims)

    @property
    def sizes(self):
        return [a.size for a in self.axes]

    def of(self, dims):
        return Tensor(self.node, self.axes, dims, self.dtype)


def dense(node, shape, dtype):
    """A node as it lies."""
    dims = [[Axis(n)] if n != 1 else [] for n in shape]
    return Tensor(node, [a for d in dims for a in d], dims, dtype)


def is_plain(x):
    flat = [a for d in x.dims for a in d]
    return len(flat) == len(x.axes) and all(a is b for a, b in zip(flat, x.axes))


# ---- Into other places ----

def stretch(g, node, before, n, after):
    """Repeats: [before, after] becomes [before, n, after]."""
    part = g.reshape(node, (before, 1, after))
    return g.node("concat", [part] * n, (before, n, after), node.dtype, axis=1)


def in_order(g, x, order):
    """The node whose elements lie in the order of these axes, all of x's and some that are stretched."""
    real = [a for a in order if not a.stretched]
    node = x.node
    if not all(a is b for a, b in zip(real, x.axes)):
        where = [x.axes.index(a) for a in real]
        runs = [[where[0]]]
        for k in where[1:]:  # neighbours that stay neighbours are one dimension
            if k == runs[-1][-1] + 1:
                runs[-1].append(k)
            else:
                runs.append([k])
        starts = sorted(r[0] for r in runs)
        sizes = {r[0]: product(x.axes[k].size for k in r) for r in runs}
        node = g.reshape(node, [sizes[s] for s in starts])
        node = g.transpose(node, [starts.index(r[0]) for r in runs])
    sizes = [1 if a.stretched else a.size for a in order]
    for k, a in enumerate(order):
        if a.stretched:
            node = stretch(g, node, product(sizes[:k]), a.size, product(sizes[k + 1:]))
            sizes[k] = a.size
    return node


def plain(g, x):
    """The node with x's elements in the order of its dimensions, and its shape."""
    return g.reshape(in_order(g, x, [a for d in x.dims for a in d]), x.shape)


def flatten(g, x):
    return dense(plain(g, x), x.shape, x.dtype)


def units(x):
    """The dimensions in the order in which they lie, if each lies in one piece and none is stretched; else None."""
    places, before = [], -1
    for k, d in enumerate(x.dims):
        where = [-1 if a.stretched else x.axes.index(a) for a in d]
        if -1 in where or any(b != a + 1 for a, b in zip(where, where[1:])):
            return None
        places.append((where[0] if where else before, k))  # one of size 1 stays behind its neighbour
        before = where[-1] if where else before
    return [k for _, k in sorted(places)]


def aligned(g, x, order):
    """x's node with its dimensions in this order, each a dimension of it."""
    have = units(x)
    shape = x.shape
    if have is not None and [k for k in have if x.dims[k]] == [k for k in order if x.dims[k]]:
        return g.reshape(x.node, [shape[k] for k in order])
    flat = [a for k in order for a in x.dims[k]]
    return g.reshape(in_order(g, x, flat), [shape[k] for k in order])


def from_aligned(node, order, dtype):
    """The tensor whose dimensions lie in this order in the node."""
    axes = [Axis(n) if n != 1 else None for n in node.shape]
    dims = [None] * len(order)
    for a, k in zip(axes, order):
        dims[k] = [a] if a else []
    return Tensor(node, [a for a in axes if a], dims, dtype)


def strides(x):
    """Of each dimension, in its node's memory: 0 of one that is stretched; None if x is no view of it."""
    out = []
    for d in x.dims:
        where = [-1 if a.stretched else x.axes.index(a) for a in d]
        if any(b != a + 1 for a, b in zip(where, where[1:])):
            return None
        out.append(product(x.sizes[where[-1] + 1:]) if where and where[-1] >= 0 else 0)
    return out


def shrunk(x):
    """x with size 1 where a dimension is stretched throughout."""
    return x.of([[] if d and all(a.stretched for a in d) else d for d in x.dims])


# ---- Views ----

def split_axis(x, axis, outer):
    """x, with an axis cut in two; dimensions that have it have both."""
    a, b = Axis(outer, axis.stretched), Axis(axis.size // outer, axis.stretched)

    def cut(axes):
        return [c for d in axes for c in ((a, b) if d is axis else (d,))]
    return Tensor(x.node, x.axes if axis.stretched else cut(x.axes), [cut(d) for d in x.dims], x.dtype)


def reshape(g, x, shape):
    shape, total = list(shape), product(x.shape)
    if -1 in shape:
        known = product(s for s in shape if s != -1)
        shape[shape.index(-1)] = total // known if known else 0
    if product(shape) != total:
        raise Refuse("a reshape of %s to %s" % (list(x.shape), shape))
    if total == 0:
        return dense(g.reshape(x.node, shape), shape, x.dtype)
    cut = x
    while True:
        made = regroup(cut, shape)
        if isinstance(made, list):
            return cut.of(made)
        if made is None:  # an axis that no cut fits
            return dense(g.reshape(plain(g, x), shape), shape, x.dtype)
        cut = split_axis(cut, *made)


def regroup(x, shape):
    """Axes for each new dimension; or (axis, size) where one has to be cut; or None."""
    rest = [a for d in x.dims for a in d]
    out = []
    for want in shape:
        out.append([])
        while want > 1:
            a = rest[0]
            if a.size > want:
                return (a, want) if a.size % want == 0 else None
            if want % a.size:
                return None
            out[-1].append(rest.pop(0))
            want //= a.size
    return out


def permute(x, order):
    return x.of([x.dims[k] for k in order])


def expand(x, sizes):
    sizes = list(sizes)
    extra = len(sizes) - len(x.dims)
    dims = [[]] * extra + x.dims
    shape = (1,) * extra + x.shape
    out = []
    for d, have, want in zip(dims, shape, sizes):
        if want in (-1, have):
            out.append(d)
        elif have == 1:
            out.append([Axis(want, True)])
        else:
            raise Refuse("an expand of %s to %s" % (list(x.shape), sizes))
    return x.of(out)


def slice_dim(g, x, k, start, stop, step):
    size = x.shape[k]
    start, stop, step = slice(start, stop, step).indices(size)
    if (start, stop, step) == (0, size, 1):
        return x
    if step < 1:
        raise Refuse("a slice with step %d" % step)
    n = max(0, -(-(stop - start) // step))
    d = x.dims[k]
    if d and all(a.stretched for a in d):
        return x.of(x.dims[:k] + [[Axis(n, True)] if n != 1 else []] + x.dims[k + 1:])
    if len(d) != 1 or n == 0:
        x = flatten(g, x)
        d = x.dims[k]
        if not d:
            raise Refuse("a slice of %d elements of 1" % n)
    at = x.axes.index(d[0])
    node = g.slice(g.reshape(x.node, x.sizes), at, start, stop, step)
    new = [Axis(n)] if n != 1 else []
    return Tensor(node, x.axes[:at] + new + x.axes[at + 1:], x.dims[:k] + [new] + x.dims[k + 1:], x.dtype)


def concat(g, parts, k):
    """Along a dimension; the first says how the result lies."""
    order = units(shrunk(parts[0]))
    if order is None or any(len(p.dims) != len(parts[0].dims) for p in parts):
        order = list(range(len(parts[0].dims)))
    nodes = [aligned(g, p, order) for p in parts]
    shape = list(nodes[0].shape)
    shape[order.index(k)] = sum(n.shape[order.index(k)] for n in nodes)
    return from_aligned(g.node("concat", nodes, shape, nodes[0].dtype, axis=order.index(k)), order, parts[0].dtype)


# ---- Elementwise ----

def unary(g, word, x, dtype=None, **attributes):
    """The view does not matter."""
    node = g.node(word, [x.node], x.node.shape, text.name(dtype or x.dtype), **attributes)
    return Tensor(node, x.axes, x.dims, dtype or x.dtype)


def broadcast(*shapes):
    n = max(map(len, shapes))
    out = []
    for sizes in zip(*[(1,) * (n - len(s)) + tuple(s) for s in shapes]):
        most = max(sizes) if 0 not in sizes else 0
        if any(s not in (1, most) for s in sizes):
            raise Refuse("shapes %s, which do not broadcast" % " and ".join(str(list(s)) for s in shapes))
        out.append(most)
    return tuple(out)


def elementwise(g, word, operands, dtype, **attributes):
    """Of tensors and of nodes of rank 0. The largest says how the result lies; others follow."""
    tensors = [shrunk(x) for x in operands if isinstance(x, Tensor)]
    full = broadcast(*(x.shape for x in operands if isinstance(x, Tensor)))
    shape = broadcast(*(x.shape for x in tensors))
    rank = len(shape)
    extra = iter([rank - len(x.dims) for x in tensors])  # dimensions that it has not
    tensors = [x.of([[]] * (rank - len(x.dims)) + x.dims) for x in tensors]
    leader = max(tensors, key=lambda x: product(x.shape))
    order = units(leader) if leader.shape == shape else None
    order = order or list(range(rank))
    rest = iter(tensors)
    nodes = []
    for x in operands:
        if isinstance(x, Tensor):
            node, absent = aligned(g, next(rest), order), next(extra)
            for k in range(absent):  # with them it would be a value of rows, where these are one
                if len(node.shape) > 1 and order[k] == k and node.shape[0] == 1:
                    node = g.reshape(node, node.shape[1:])
            nodes.append(node)
        else:
            nodes.append(x)
    made = from_aligned(g.node(word, nodes, [shape[k] for k in order], text.name(dtype), **attributes), order, dtype)
    return made if full == shape else expand(made, full)
