"""integers.py -- what is made of one argument of integers alone, as rotary tables are of position_ids.

It is looked at as numbers, as what depends on a counter is (state.py): where a rule asks, PyTorch makes it of a few
values of the argument, so that no spelling has to be known. """
import torch

from . import layout
from .state import Counted

BELOW = (50, 500, 4000)  # what a sample of the argument is drawn below
MOST = 1 << 22  # elements of what is looked at


class Integers:
    """Those arguments of a graph, by their nodes."""

    def __init__(self, l):
        self.l, self.source, self.known, self.unknown = l, {}, {}, {}

    def placeholder(self, node, x):
        """Not of the tolerant lift, in which each node is taken or left by itself."""
        if isinstance(x, layout.Tensor) and x.dtype in (torch.int64, torch.int32) and not self.l.tolerant:
            self.source[node], x.origin = node, node

    def follow(self, node, made):
        """Notes of which argument a node is made, if it is one alone."""
        values = [(n, self.l.env[n]) for n in node.all_input_nodes]
        of = {self.source.get(n) for n, x in values if self.l.holds(x)}
        if len(of) == 1 and None not in of and not any(isinstance(x, Counted) for _, x in values):
            self.source[node] = of.pop()
            if isinstance(made, layout.Tensor) and made.origin is None:
                made.origin = node

    def knows(self, x):
        return isinstance(x, layout.Tensor) and x.origin is not None

    def later(self, x, why):
        """What no node can be, if it is made of such an argument: a leaf, which nothing may need in the end."""
        if not self.knows(x):
            return None
        leaf = self.l.g.leaf("input", "unknown", x.shape, layout.text.name(x.dtype))
        self.unknown[leaf] = why
        return layout.dense(leaf, x.shape, x.dtype)

    def sample(self, node, k):
        shape, dtype = self.l.env[node].shape, self.l.env[node].dtype
        drawn = torch.Generator().manual_seed(k)
        device = self.l.arguments[self.l.leaves[self.l.env[node].node].argument].device
        return torch.randint(BELOW[k], shape, generator=drawn, dtype=dtype).to(device)

    def value(self, node, k):
        """What PyTorch makes of a node by the k-th sample."""
        if node not in self.source:
            return self.l.env[node]
        if (node, k) not in self.known:
            if self.source[node] is node:
                self.known[node, k] = self.sample(node, k)
            else:
                args, kwargs = (self.l.value(x, lambda n: self.value(n, k)) for x in (node.args, node.kwargs))
                self.known[node, k] = self.l.by_torch(node, args, kwargs)
        return self.known[node, k]

    def samples(self, x):
        """(the argument, as a tensor of the graph; its samples; what PyTorch makes of x by them), or None."""
        if not self.knows(x) or layout.product(x.shape) > MOST:
            return None
        source = self.source[x.origin]
        try:
            made = [self.value(x.origin, k) for k in range(len(BELOW))]
        except (RuntimeError, IndexError, TypeError, ValueError):  # as of a table that has fewer rows
            return None
        if not all(isinstance(y, torch.Tensor) and tuple(y.shape) == x.shape for y in made):
            return None
        return self.l.env[source], [self.value(source, k) for k in range(len(BELOW))], made
