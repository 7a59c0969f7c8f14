"""regions.py -- a graph of which some nodes are refused, cut into parts: plans, and modules for PyTorch.

Nodes that are taken and nodes that are left get levels, so that a part is all of one kind on one level: even ones are
plans. What was folded is a constant of the parts that read it. A part without a product is left, too: it would save
no launch. """
import copy
import warnings

import torch
from torch.fx.passes.split_module import split_module

from .compiled import Moved, as_it_is, device_of, program_of
from .lift import FORBIDDEN, Lift, NESTING, at, is_number, paths_of, word_of
from .rules import IN_PLACE
from .text import Refuse

PRODUCTS = {"linear", "matmul", "bmm", "mm", "addmm",
    "scaled_dot_product_attention", "conv2d", "baddbmm", "__matmul__"}


def writes(node):
    word = word_of(node)
    return word in IN_PLACE or (word.endswith("_") and not word.endswith("__") and word not in ("and_", "or_")) or \
        word in ("setitem", "copy_")


def levels(graph, labels):
    """Of each node: even where it is taken."""
    level = {}
    for n in graph.nodes:
        if n.op in ("placeholder", "output", "get_attr"):
            continue
        odd = labels[n] == "left"
        most = max((level[x] for x in n.all_input_nodes if x in level), default=0)
        level[n] = most + (most % 2 != odd)
    return level


def with_constants(module, lift):
    """The module with folded nodes as its constants; and the labels of its nodes."""
    module = copy.copy(module)
    graph, kept = torch.fx.Graph(), {}
    labels = {}
    env = {}

    def constant(n):
        v = lift.env[n]
        if not isinstance(v, torch.Tensor):
            return v
        if n not in kept:
            name = "folded_%d" % len(kept)
            setattr(module, name, v)
            kept[n] = graph.get_attr(name)
        return kept[n]
    for n in lift.module.graph.nodes:
        if lift.labels.get(n) == "folded":
            continue
        env[n] = graph.node_copy(n, lambda x: env[x] if x in env else constant(x))
        if n in lift.labels:
            labels[env[n]] = lift.labels[n]
    module.graph = graph
    return torch.fx.GraphModule(module, graph), labels


class Part(torch.nn.Module):
    """A plan as a module."""

    def __init__(self, program, one):
        super().__init__()
        self.program, self.one = program, one

    def forward(self, *arguments):
        made = self.program(arguments)
        return made[0] if self.one else made


class Regions:
    """What a graph of Dynamo's becomes where not all of it is taken."""

    def __init__(self, module, example, fallback, keep=None, replay=True):
        if any(isinstance(x, torch.SymInt) for x in example):
            raise Refuse("symbolic sizes, where a part is left to PyTorch")
        places = [n for n in module.graph.nodes if n.op == "placeholder"]
        if any(map(is_number, places, example)):
            raise Refuse("a number that may change, where a part is left to PyTorch")
        paths = paths_of(module)
        self.module, self.keep, self.replay = module, keep, replay
        self.tensors = [k for k, x in enumerate(example) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        self.recording, self.asked = torch.is_grad_enabled(), self.asking(example)
        lift = Lift(module, example, paths, tolerant=True, keep=keep).run()
        if keep and lift.silent:
            raise Refuse("torch.no_grad() around a part of it, where another part is left to PyTorch")
        for n, why in lift.refused:
            if writes(n) or word_of(n) in FORBIDDEN or NESTING.search(word_of(n)):  # which says something of nodes around it
                raise Refuse(at(n, why))
        self.refused = [(n, why) for n, why in lift.refused]
        self.buffers = [(k, as_it_is(x)) for k, x in lift.buffers]
        whole, labels = with_constants(module, lift)
        self.drop_small(whole.graph, labels)
        level = levels(whole.graph, labels)
        if not any(v == "taken" for v in labels.values()):
            raise Refuse("no part of it has a product")
        self.split = split_module(whole, whole, lambda n: level[n])
        self.programs, self.left = [], 0
        device, where = device_of(example)
        self.build(lift, dict(zip(places, zip(example, paths))), device, where, fallback)
        self.taken, self.folded = lift.taken, lift.folded

    @staticmethod
    def drop_small(graph, labels):
        while True:
            level = levels(graph, labels)
            good = {level[n] for n in level if labels[n] == "taken" and word_of(n) in PRODUCTS}
            bad = [n for n in level if labels[n] == "taken" and level[n] not in good]
            if not bad:
                return
            for n in bad:
                labels[n] = "left"

    def build(self, lift, arguments, device, where, fallback):
        """Plans of the even parts; the others are compiled when they are first called."""
        by_name = {n.name: x for n, x in arguments.items()}
        for n in self.split.graph.nodes:
            if n.op != "call_module":
                continue
            part = getattr(self.split, n.target)
            if int(n.target.split("_")[-1]) % 2:
                self.left += sum(m.op.startswith("call") for m in part.graph.nodes)
                setattr(self.split, n.target, fallback(part))
                continue
            places = [m for m in part.graph.nodes if m.op == "placeholder"]
            given = [by_name.get(m.name) or (self.example(m, a), (m.name, "input")) for m, a in zip(places, n.args)]
            result = next(m for m in part.graph.nodes if m.op == "output").args[0]
            lifted = Lift(part, [x for x, _ in given], [path for _, path in given], buffers=lift.buffers, keep=self.keep)
            program = program_of(lifted.run(), device, where, replay=self.replay)
            program.buffers = []
            self.programs.append(program)
            setattr(self.split, n.target, Part(program, not isinstance(result, (tuple, list))))

    def example(self, place, node):
        """Of what a part gives another: what Dynamo has noted of the node."""
        if node.op == "get_attr":
            return getattr(self.split, node.target)
        x = place.meta.get("example_value")
        if not isinstance(x, torch.Tensor):
            raise Refuse("a %s between two parts: %s" % (type(x).__name__, place.name))
        return x

    def asking(self, arguments):
        return [k for k in self.tensors if arguments[k].requires_grad]

    def by_torch(self, arguments, why):
        """The whole graph, where it is not what was compiled: PyTorch 2.11 guards nothing of parameters."""
        warnings.warn("libcoda leaves a call to PyTorch: %s" % why)
        return self.module(*arguments)

    def __call__(self, *arguments):
        for k, known in self.buffers:
            if as_it_is(arguments[k]) != known:
                return self.by_torch(arguments, "a buffer has new values, and others were computed with")
        if self.recording and torch.is_grad_enabled() and self.asking(arguments) != self.asked:
            return self.by_torch(arguments, "other weights ask for gradients than when its graph was made")
        try:
            return self.split(*arguments)
        except Moved as e:
            return self.by_torch(arguments, str(e))
