"""regions.py -- a graph of which some nodes are refused, cut into parts: plans, and modules for PyTorch.

Nodes that are taken and nodes that are left get levels, so that a part is all of one kind on one level: even ones are
plans. What was folded is a constant of the parts that read it. A part without a product is left, too: it would save
no launch. """
import copy
import warnings

import torch
from torch._ops import HigherOrderOperator
from torch.fx.passes.split_module import split_module

from .compiled import Moved, as_it_is, device_of, program_of
from .lift import FORBIDDEN, Lift, NESTING, at, is_number, paths_of, word_of
from .text import Refuse
from .writes import memory_of, touched, written_by

PRODUCTS = {"linear", "matmul", "bmm", "mm", "addmm",
    "scaled_dot_product_attention", "conv2d", "baddbmm", "__matmul__"}


def written(graph, labels):
    """Memory that calls of PyTorch's write to, of those that these labels leave to it."""
    given = [x for n in graph.nodes if labels.get(n) == "left" for x in written_by(n)]
    for x in given:
        if not memory_of(x):
            raise Refuse("what is written in place is %s, whose memory is not known" % x.name)
    return set().union(*map(memory_of, given))


def spread(graph, labels):
    """Leaves all that has to do with memory that PyTorch writes to, as to a plan a tensor is what it was. What was folded
    of it, or of that, is made in each call."""
    more = True
    while more:
        more, memory = False, written(graph, labels)
        for n in graph.nodes:
            if n.op in ("placeholder", "get_attr", "output"):
                if n.op != "output" and not memory.isdisjoint(memory_of(n)):
                    raise Refuse("what is written in place is %s, an argument" % n.name)
                continue
            stale = labels[n] == "folded" and any(labels.get(x) == "left" for x in n.all_input_nodes)
            if labels[n] != "left" and (stale or not memory.isdisjoint(touched(n))):
                labels[n], more = "left", True


def after(graph, labels):
    """Of each node that reads, makes or writes memory that is written to: those that come before it for that reason."""
    memory, earlier, last, made = written(graph, labels), {}, {}, {}
    for n in graph.nodes:
        own = {m for x in written_by(n) for m in memory_of(x)} if labels.get(n) == "left" else set()
        for m in touched(n) & memory:
            made.setdefault(n, set()).update(earlier.get(m, ()) if m in own else last.get(m, ()))
            earlier.setdefault(m, []).append(n)
            if m in own:
                last[m] = [n]
    return made


def levels(graph, labels):
    """Of each node: even where it is taken."""
    level, before = {}, after(graph, labels)
    for n in graph.nodes:
        if n.op in ("placeholder", "output", "get_attr"):
            continue
        odd = labels[n] == "left"
        most = max((level[x] for x in (*n.all_input_nodes, *before.get(n, ())) if x in level), default=0)
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


def level_of(part):
    return int(part.target.split("_")[-1])


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
            # What says something of nodes around it, and what may write to anything that it is given.
            if word_of(n) in FORBIDDEN or NESTING.search(word_of(n)) or isinstance(n.target, HigherOrderOperator):
                raise Refuse(at(n, why))
        self.spread(lift)
        self.refused = [(n, why) for n, why in lift.refused]
        self.buffers = [(k, as_it_is(x)) for k, x in lift.buffers]
        whole, labels = with_constants(module, lift)
        self.drop_small(whole.graph, labels)
        level = levels(whole.graph, labels)
        if not any(v == "taken" for v in labels.values()):
            raise Refuse("no part of it has a product")
        self.split = split_module(whole, whole, lambda n: level[n])
        self.in_order()
        self.programs, self.left = [], 0
        device, where = device_of(example)
        self.build(lift, dict(zip(places, zip(example, paths))), device, where, fallback)
        self.taken, self.folded = lift.taken, lift.folded

    @staticmethod
    def spread(lift):
        try:
            spread(lift.module.graph, lift.labels)
        except Refuse as e:
            n, why = next((p for p in lift.refused if written_by(p[0])), (None, ""))
            raise Refuse(at(n, why) if n else str(e)) from e

    def in_order(self):
        """Parts by level: what one writes in place another one reads without a value that says so."""
        graph = self.split.graph
        end = next(n for n in graph.nodes if n.op == "output")
        for n in sorted((n for n in graph.nodes if n.op == "call_module"), key=level_of):
            for x in (n, *[u for u in graph.nodes if u.op == "call_function" and u.args[0] is n]):
                end.prepend(x)
        self.split.recompile()

    @staticmethod
    def drop_small(graph, labels):
        while True:
            spread(graph, labels)
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
            if level_of(n) % 2:
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
