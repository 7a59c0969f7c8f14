"""results.py -- how results lie, and which are views. Where PyTorch's result is a view of an argument or of another result,
so is ours; where it lies in another order than that of its dimensions, so does ours, if that is how its node lies. So
nothing is copied to be turned, and what the caller does to a view in place is seen where PyTorch shows it. """
import torch

from ..arrays import dense_strides
from . import layout
from .layout import plain


def known(x):
    return x.node.hint if isinstance(x, torch.SymInt) else x


class Results:
    """`at`: (symbol, its number, is that a prime?) of a lift for a program over the symbol."""

    def __init__(self, l, at, values):
        self.l, self.at, self.bases = l, at, {}  # what results may be views of, by its storage
        self.values = dict([at[:2]] if at else values)  # of symbols

    def size(self, n):
        """In this lift, whatever it was when Dynamo traced."""
        at = n.node.expr.subs(self.values) if isinstance(n, torch.SymInt) else n
        return int(at) if not isinstance(n, torch.SymInt) or at.is_number else int(known(n))

    def seen(self, x):
        """(shape, strides, offset, storage) of what PyTorch makes of a node, or None."""
        fake = x.meta.get("example_value") if isinstance(x, torch.fx.Node) else None
        if self.l.keep or self.l.tolerant or not isinstance(fake, torch.Tensor) or fake.layout != torch.strided:
            return None
        shape, strides = [tuple(map(self.size, s)) for s in (fake.shape, fake.stride())]
        return shape, strides, self.size(fake.storage_offset()), fake.untyped_storage()._cdata

    def base(self, x, kind, k):
        """Later results may be views of this argument, or this result."""
        seen = self.seen(x) if self.at is None else None
        if seen is not None:
            self.bases.setdefault(seen[3], (x, kind, k, seen, x.meta["example_value"].dtype))

    @staticmethod
    def origin(x):
        """The argument of which a node is made, if it is one alone."""
        while x.op != "placeholder":
            of = [n for n in x.all_input_nodes if isinstance(n.meta.get("example_value"), torch.Tensor)]
            if len(of) != 1:
                return None
            x = of[0]
        return x

    def view(self, x, v):
        """("view", ..) of an argument or another result, if it is one as PyTorch has it, and lies within; or None."""
        seen = self.seen(x)
        base, kind, k, whole, dtype = self.bases.get(seen[3], [None] * 5) if seen is not None else [None] * 5
        if base is None or dtype != v.dtype or seen[0] != v.shape or 0 in v.shape or \
                (kind == "argument" and self.origin(x) is not base):
            return None
        ends = [offset + sum((n - 1) * s for n, s in zip(shape, strides)) for shape, strides, offset, _ in (seen, whole)]
        inside = seen[2] >= whole[2] and ends[0] <= ends[1]
        return ("view", (kind, k), *seen[:2], seen[2] - whole[2]) if inside else None

    def made(self, x, v):
        """("made", ..): a result with memory of its own."""
        g, seen, mine, shape = self.l.g, self.seen(x), layout.strides(v), v.shape
        k = len(g.outputs)

        def alike(strides):
            return seen is not None and seen[0] == shape and all(a == b for n, a, b in zip(shape, strides, seen[1]) if n > 1)
        if not layout.is_plain(v) and mine is not None and alike(mine) and self.follows(v.node.shape + shape + seen[1]):
            g.output(v.node)
            self.base(x, "result", len(self.l.outputs))
            return "made", k, v.node.shape, v.dtype, *seen[:2]
        g.output(plain(g, v))
        if alike(dense_strides(shape)):
            self.base(x, "result", len(self.l.outputs))
        return "made", k, shape, v.dtype

    def follows(self, sizes):
        """Is each size a number, or a number of times the symbol?"""
        return self.at is None or not self.at[2] or all(n % self.at[1] ** 2 for n in sizes if n)
