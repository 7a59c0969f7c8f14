"""training.py -- programs whose results have gradients: a plan forward and a plan backward.

The graph of Dynamo's is lifted as for inference, coda_grad differentiates it and coda_split cuts it in two; to
PyTorch both are one torch.autograd.Function. So rules are those of inference, an attention or a norm is
differentiated as what it is, and the library says what is kept. AOTAutograd instead would hand over the two halves as
PyTorch's own formulas, each rounded to the activations' dtype, with attention taken apart and views made copies, and
would say by its own prices what is kept. """
import re

import torch

from .._stages import Stage, dense_and_aligned
from ..errors import Error, UnsupportedError
from ..graph import Graph
from ..operations import cast
from .compiled import Program
from .text import Refuse, merged

# Elements whose derivative is 0 everywhere, or is none.
ENDS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
        "logical_not", "arg_max", "end"}
FLOATS = {"f32", "bf16", "f16"}


def passes(node):
    """Does a gradient go through this node, in PyTorch's account?"""
    return node.word not in ENDS and node.dtype in FLOATS


def reached(outputs):
    """All nodes that a gradient of these reaches."""
    seen, stack = set(), [n for n in outputs if passes(n)]
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            stack += [x for x in n.operands if x is not None and passes(x)]
    return seen


def located(text, error):
    """A message that names a value by its number, with the module that the value is of ahead of it."""
    named, lines = re.search(r"%(\d+)\b", error), [x for x in text.split("\n") if x.startswith("%")]
    line = lines[int(named.group(1))] if named and int(named.group(1)) < len(lines) else ""
    return "%s: %s" % (line.rpartition(" @")[2], error) if " @" in line else error


class Pair:
    """Forward and backward, for gradients by these outputs. Of an output that no gradient comes to nothing is
    computed, as of logits beside a loss."""

    def __init__(self, program, asked):
        self.asked, self.program, self.again = asked, program, None
        self.forward, self.backward = (Stage(g, *program.target) for g in self.split(program.keep))
        self.reads = [program.names.index(n) for n in self.forward.inputs]
        self.kept = [n for n in self.forward.names if n.startswith("kept.")]
        self.gradients()

    def split(self, keep):
        try:
            return self.halves(keep)
        except Error as e:
            raise type(e)(located(self.program.joint, str(e))) from None

    def halves(self, keep):
        p, g = self.program, Graph(self.program.joint)
        y = [g.find("out.%d" % k) for k in self.asked]
        dy = [g.input("dy.%d" % k, v.dtype, v.shape) for k, v in zip(self.asked, y)]
        dx = g.grad(y, [g.find(p.names[k]) for k in p.wanted], dy)
        for k, d in zip(p.wanted, dx):
            if d is not None:
                g.output("dx.%d" % k, cast(d, p.leaves[k].node.dtype))
        g.check()
        return Graph(merged(str(g))).split(len(p.made), keep=keep)

    def gradients(self):
        """Of each leaf whose gradient is wanted: a result of backward, "zeros", or None."""
        outputs = [self.program.results[k] for k in self.asked]
        seen, names = reached(outputs), self.backward.names
        self.sources = []
        for k in self.program.wanted:
            name = "dx.%d" % k
            near = self.program.leaves[k].node in seen
            self.sources.append(names.index(name) if name in names else "zeros" if near else None)

    def anew(self):
        """Backward from the leaves alone."""
        if self.again is None:
            self.again = Stage(self.split("least")[1], *self.program.target)
        return self.again


class Call(torch.autograd.Function):
    """A run of a program, to PyTorch's autograd."""

    @staticmethod
    def forward(ctx, program, arguments, hold, both, *wanted):
        pair, dims = program.pair, program.dims(arguments)
        made = pair.forward([both[k] for k in pair.reads], dims)
        named = dict(zip(pair.forward.names, made))
        named.update((program.names[k], hold[k]) for k in range(len(hold)))
        ctx.set_materialize_grads(False)
        ctx.program, ctx.pair, ctx.dims = program, pair, dims
        ctx.save_for_backward(*[named[n] for n in pair.backward.inputs if not n.startswith("dy.")])
        ctx.leaves = [(x, x._version) for x in hold]  # for gradients that nobody foresaw
        results = [made[k] if dtype == stored else made[k].to(dtype) for k, (_, stored, dtype) in enumerate(program.made)]
        ctx.mark_non_differentiable(*[x for k, x in enumerate(results) if k not in program.differ])
        return tuple(results)

    @staticmethod
    def backward(ctx, *dy):
        made = Call.gradients(ctx, dy)
        if not torch.is_grad_enabled():
            return made
        wanted = [ctx.leaves[k][0] for k in ctx.program.wanted]  # create_graph=True
        return made[:4] + Once.apply(len(wanted), *made[4:], *wanted, *[d for d in dy if d is not None])

    @staticmethod
    @torch.no_grad()
    def gradients(ctx, dy):
        program, pair = ctx.program, ctx.pair
        asked = tuple(k for k in program.differ if dy[k] is not None)
        given = {"dy.%d" % k: dense_and_aligned(dy[k]) for k in asked}
        if not asked:
            return (None,) * (4 + len(program.wanted))
        if asked == pair.asked:
            stage = pair.backward
            given.update(zip([n for n in stage.inputs if not n.startswith("dy.")], ctx.saved_tensors))
        else:
            program.pair = pair = program.pair_of(asked)  # and the next forward keeps what this one wants
            stage = pair.anew()
            for name, (x, version) in zip(program.names, ctx.leaves):
                if name in stage.inputs and x._version != version:
                    raise RuntimeError("%s has been changed in place since forward, and its gradient wants it" % name)
                given[name] = x
        made = stage([given[n].data_ptr() for n in stage.inputs], ctx.dims)
        out = [made[s] if isinstance(s, int) else s for s in pair.sources]
        leaves = [ctx.leaves[k][0] for k in program.wanted]
        return (None,) * 4 + tuple(torch.zeros_like(x) if isinstance(d, str) else d for d, x in zip(out, leaves))


class Once(torch.autograd.Function):
    """Gradients as they are; those of them by what they depend on there are none."""

    @staticmethod
    def forward(ctx, count, *given):
        return tuple(x if x is None else x.view_as(x) for x in given[:count])

    @staticmethod
    def backward(ctx, *_):
        raise UnsupportedError("a gradient of a gradient, which no plan makes: compile without backend=\"coda\"")


class Trained(Program):
    """A lifted graph as two plans."""

    @staticmethod
    def wanted_of(lift):
        """The leaves whose gradients are asked for."""
        return [x for x in map(lift.leaves.get, lift.g.used_leaves())
                if x.argument is not None and x.node.dtype in FLOATS and lift.wants(lift.arguments[x.argument])]

    @staticmethod
    def differing(lift):
        """Results that have a gradient: their numbers."""
        asked = {x.node for x in Trained.wanted_of(lift)}
        return tuple(o[1] for o in lift.outputs if o[0] == "made" and o[3].is_floating_point and
                     reached([lift.g.outputs[o[1]]]) & asked)

    @staticmethod
    def differentiable(lift):
        return bool(Trained.differing(lift))

    def compiled(self, lift, device):
        for n in lift.g.written:
            raise Refuse("%s%s of %s: what a call writes to has no gradient" %
                         (n.scope + ": " if n.scope else "", n.word, n.operands[0].id))
        text = lift.g.lines(True)
        self.joint = lift.symbol(text) if lift.symbol else text
        self.names, self.results = [x.node.id for x in self.leaves], list(lift.g.outputs)
        self.keep, self.target, self.pairs = lift.keep, (device, self.where), {}
        self.differ = self.differing(lift)
        asked = self.wanted_of(lift)
        self.wanted = [k for k, x in enumerate(self.leaves) if x in asked]
        self.tensors = [self.leaves[k].argument for k in self.wanted]
        # The loss, where there is one; logits beside it get no gradient.
        losses = tuple(k for k in self.differ if not self.made[k][0])
        self.pair = self.pair_of(losses or self.differ)
        return self.pair.forward.plan

    def pair_of(self, asked):
        if asked not in self.pairs:
            self.pairs[asked] = Pair(self, asked)
        return self.pairs[asked]

    def plans(self):
        return [("forward", self.pair.forward.plan), ("backward", self.pair.backward.plan)]

    def __call__(self, arguments):
        with torch.no_grad():
            hold, both = self.gather(arguments)
            held = self.all_held(arguments, hold)
        made = Call.apply(self, arguments, held, both, *[arguments[a] for a in self.tensors])
        return self.returned(arguments, hold, made)
