"""state.py -- caches that a call writes to, and numbers that are known when it runs.

A static cache of transformers is a tensor [B, heads, keys, D] for keys, one for values, and a counter of rank 0, which
the call adds to. What depends on the counter alone is computed for a few of its values, so that masks, positions and
tables are looked at as numbers here, too: a mask that is causal at all of them is causal, and a rotation is one whose
positions begin with the counter. Rows that `index_copy_` stores become `append`, the counter's sum `assign`. """
import torch

from . import layout
from .layout import Tensor, dense
from .text import Refuse

SAMPLES = (0, 5, 40)  # of a counter: the first call, and two others
HND = 1  # coda_cache_layout: [B, heads, keys, D]
BY_LENGTH = 3  # coda_attention_align: the last query is the last key of `lengths`
WRITES = {"index_copy_"}


class Counted:
    """What a counter makes of itself: a tensor for each of its samples."""
    __slots__ = ("counter", "values")

    def __init__(self, counter, values):
        self.counter, self.values = counter, values

    @property
    def shape(self):
        return tuple(self.values[0].shape)

    @property
    def dtype(self):
        return self.values[0].dtype

    @property
    def ndim(self):
        return self.values[0].ndim

    def offset(self):
        """The tensor to which the counter is added; None if it is another function of it."""
        if self.dtype not in (torch.int64, torch.int32):
            return None
        base = self.values[0]
        return base if all(torch.equal(v, base + s) for v, s in zip(self.values, SAMPLES)) else None


def found(x):
    """All that are in an argument."""
    if isinstance(x, Counted):
        return [x]
    if isinstance(x, slice):
        return found((x.start, x.stop, x.step))
    if isinstance(x, dict):
        return found(list(x.values()))
    return [c for y in x for c in found(y)] if isinstance(x, (tuple, list)) else []


def replaced(x, put):
    """An argument with put(c) in the place of each."""
    if isinstance(x, Counted):
        return put(x)
    if isinstance(x, slice):
        return slice(*(replaced(y, put) for y in (x.start, x.stop, x.step)))
    if isinstance(x, dict):
        return {k: replaced(v, put) for k, v in x.items()}
    return type(x)(replaced(y, put) for y in x) if type(x) in (tuple, list) else x


def fold(call, args, kwargs):
    """What PyTorch makes of it at each sample. In place it does so of the samples, which others share as it does."""
    counters = {c.counter for c in found(args) + found(kwargs)}
    if len(counters) > 1:
        raise Refuse("arithmetic of two counters")
    made = [call(replaced(args, lambda c: c.values[k]), replaced(kwargs, lambda c: c.values[k]))
            for k in range(len(SAMPLES))]
    if not all(isinstance(x, torch.Tensor) for x in made):
        raise Refuse("a number that is known when it runs")
    return Counted(counters.pop(), made)


class Counters:
    """Those of a graph, by the number of the argument."""

    def __init__(self, l):
        self.l, self.own, self.leaves, self.numbers, self.made, self.unknown = l, {}, {}, {}, {}, set()

    def placeholder(self, k, path, device):
        self.own[k] = [torch.tensor(s, device=device) for s in SAMPLES]
        self.leaves[k] = path
        return Counted(k, list(self.own[k]))

    def leaf(self, k):
        """The counter's node, a state if the call adds to it."""
        if isinstance(self.leaves[k], str):
            node = self.l.g.leaf("input", self.leaves[k], (), "i64")
            self.leaves[k] = node
            self.l.leaf_of(node, argument=k)
        return self.leaves[k]

    def number(self, k):
        """Its value before the call, in fp32."""
        if k not in self.numbers:
            self.numbers[k] = self.l.g.early_node("cast", [self.leaf(k)], (), "f32", to="f32")
        return self.numbers[k]

    def node(self, c, dtype):
        """A sum with the counter, as integers of this dtype."""
        base = c.offset()
        if base is None:
            raise Refuse("a tensor that depends on a number which is known when it runs")
        key = (c.counter, tuple(base.shape), tuple(base.flatten().tolist()), dtype)
        if key not in self.made:
            g, n = self.l.g, self.number(c.counter)
            if base.ndim or bool(base.any()):
                n = g.early_node("add", [self.l.tensor(base.float()).node, n], tuple(base.shape), "f32")
            self.made[key] = g.early_node("cast", [n], tuple(base.shape), dtype, to=dtype)
        return self.made[key]

    def tensor(self, c):
        """For rules that know of no counters. What no node can be is a leaf, which nothing may need in the end."""
        if c.offset() is not None:
            return dense(self.node(c, "i64"), c.shape, torch.int64)
        stored = torch.float32 if c.dtype in (torch.bool, torch.float64) else c.dtype
        leaf = self.l.g.leaf("input", "counted", c.shape, layout.text.name(stored))
        self.unknown.add(leaf)
        return dense(leaf, c.shape, c.dtype)

    def is_own(self, c):
        """Is it the counter itself, as the call leaves it?"""
        return all(a.data_ptr() == b.data_ptr() for a, b in zip(self.own[c.counter], c.values))

    def finish(self):
        """Writes the counters that the call added to."""
        for k, own in self.own.items():
            by = {int(v) - s for v, s in zip(own, SAMPLES)}
            if by == {0}:
                continue
            if len(by) > 1:
                raise Refuse("a counter that is not added to")
            value = self.node(Counted(k, own), "i64")
            self.leaf(k).word = "state"
            self.l.g.write(self.l.g.node("assign", [self.leaf(k), value], (), "i64"))


# ---- Caches ----

def state_of(l, cache):
    """The state, or a version of it, that a cache is: an argument of the call, or zeros that the call makes."""
    if isinstance(cache, torch.Tensor):
        if cache.ndim != 4 or bool(cache.any()):
            raise Refuse("index_copy_ into a tensor that was folded")
        leaf = l.g.leaf("state", "cache", cache.shape, layout.text.name(cache.dtype))
        l.leaf_of(leaf, fresh=cache)
        return dense(leaf, cache.shape, cache.dtype)
    n = cache.node
    known = n.word in ("state", "append") or (n in l.leaves and l.leaves[n].argument is not None)
    if not known or len(cache.dims) != 4 or tuple(n.shape) != cache.shape or not layout.is_plain(cache):
        raise Refuse("index_copy_ into what is no cache [sequences, heads, keys, columns]")
    if n.word == "input":
        if n.attributes["stride"] is not None:
            raise Refuse("index_copy_ into a cache that is not contiguous")
        n.word = "state"
    return cache


def slots_of(l, index, sequences, keys):
    """i32 [sequences, T]: rows of a cache that is cut into heads."""
    if not isinstance(index, Counted) or index.ndim != 1:
        raise Refuse("index_copy_ at places that are no sum of a counter")
    first = torch.arange(sequences, device=index.values[0].device)[:, None] * keys
    return l.counters.node(Counted(index.counter, [v[None] + first for v in index.values]), "i32")


def index_copy(l, cache, dim, index, rows):
    """Stores rows [B, heads, T, D] in a cache."""
    cache = state_of(l, cache)
    b, h, keys, d = cache.shape
    if dim % 4 != 2 or len(rows.dims) != 4 or rows.shape[:2] != (b, h) or rows.shape[3] != d:
        raise Refuse("index_copy_ of %s into %s" % (list(rows.shape), list(cache.shape)))
    if rows.dtype != cache.dtype:
        raise Refuse("index_copy_ of %s into a cache of %s" % (rows.dtype, cache.dtype))
    t = rows.shape[2]
    stored = l.g.reshape(layout.aligned(l.g, rows, [0, 2, 1, 3]), (b, t, h * d))
    slots = slots_of(l, index, b, keys)
    node = l.g.node("append", [cache.node, stored, slots], cache.node.shape, cache.node.dtype, layout=HND)
    l.g.write(node)
    return dense(node, cache.shape, cache.dtype)


def is_cache(x):
    """Is x [B, heads, keys, D], heads repeated or not, a cache as it lies?"""
    real = [a for d in x.dims for a in d if not a.stretched]
    return isinstance(x, Tensor) and x.node.word == "append" and len(x.dims) == 4 and len(real) == len(x.axes) and \
        all(a is b for a, b in zip(real, x.axes)) and not any(a.stretched for k in (0, 2, 3) for a in x.dims[k])


def lengths_of(l, mask, sequences, tq, keys):
    """i32 [B]: how many keys there are, if the mask says that of them each query sees those up to its own."""
    values = mask.values if isinstance(mask, Counted) else [mask] if isinstance(mask, torch.Tensor) else []
    if not values or mask.dtype != torch.bool or tuple(mask.shape[-2:]) != (tq, keys):
        raise Refuse("attention over a cache without a causal mask of booleans")
    ahead = int(values[0].reshape(-1, tq, keys)[0, -1].sum())
    for v, s in zip(values, SAMPLES):
        seen = torch.arange(keys)[None] <= torch.arange(tq)[:, None] + (s + ahead - tq)
        if not bool((v.reshape(-1, tq, keys) == seen.to(v.device)).all()):
            raise Refuse("attention over a cache with a mask that is not causal")
    if isinstance(mask, torch.Tensor):
        return l.tensor(torch.full((sequences,), ahead, dtype=torch.int32)).node
    return l.counters.node(Counted(mask.counter, [torch.full((sequences,), s + ahead) for s in SAMPLES]), "i32")


def attend(l, q, k, v, mask, scale, softcap, shown=None):
    """Attention over caches, whose keys beyond the counter nobody sees. `shown`: what a mask that is an argument says, as
    lengths, a bias and sinks."""
    (b, h, tq, d), keys = q.shape, k.shape[2]
    heads = [layout.product(a.size for a in x.dims[1] if not a.stretched) for x in (k, v)]
    if heads[0] != heads[1] or h % heads[0] or k.shape[1] != h:
        raise Refuse("attention of %d heads over caches of %s" % (h, heads))
    rows = l.g.reshape(layout.aligned(l.g, q, [0, 2, 1, 3]), (b, tq, h * d))
    seen = {} if shown else {"causal": 1, "align": BY_LENGTH}
    operands = [shown[0], None, None, shown[2], *[None] * 4, shown[1]] if shown else [lengths_of(l, mask, b, tq, keys)]
    o = l.g.node("attention", [rows, k.node, v.node, *operands], (b, tq, h * d), rows.dtype, scale=float(scale), heads=h,
                 kv_heads=heads[0], **seen, layout=HND, softcap=softcap or 0)
    return layout.from_aligned(l.g.reshape(o, (b, tq, h, d)), [0, 2, 1, 3], q.dtype)
