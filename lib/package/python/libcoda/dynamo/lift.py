"""lift.py -- a graph of Dynamo's as the text of a graph of libcoda's.

Each node goes to a rule by its name (rules.py). What depends on shapes and buffers alone is computed at once by
PyTorch: masks, positions and rotary tables are tensors then, whose values are looked at, so that no spelling of them
has to be known. """
import operator
import re

import torch

from . import layout, products, rules, spellings, state
from .integers import Integers
from .layout import Tensor, dense, plain
from .results import Results
from .text import Refuse, Text, name
from .writes import TENSORS, memory_of, touched, word_of, written_by

RANDOM = {"rand", "randn", "rand_like", "randn_like", "randint",
    "bernoulli", "normal", "multinomial", "randperm", "rrelu"}
SKIPPED = {"_log_api_usage_once", "_set_grad_enabled", "_warn_once"}
FORBIDDEN = {"_enter_autocast": "autocast", "_exit_autocast": "autocast"}
NESTING = re.compile(r"_(increment|decrement)_nesting$|^_(enter|exit)_")  # calls that change what the process is in


def path_of(node):
    """Where a parameter or buffer lives in the model, or an argument's name; and its kind."""
    argument = node.meta.get("grapharg")
    source = getattr(argument, "source", None)
    text = getattr(source, "name", None)
    text = text() if callable(text) else text or ""
    parts = re.findall(r"\._(modules|parameters|buffers)\['([^']*)'\]", text)
    if parts and parts[-1][0] != "modules":
        return ".".join(p[1] for p in parts), parts[-1][0]
    words = re.findall(r"[A-Za-z_]\w*", text)
    return (words[-1] if words else node.name), "input"


def scope_of(node):
    """The module in which a node was called: model.layers.17.mlp."""
    stack = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    path = re.sub(r"^L\['[^]]*'\](\[\d+\])?\.?", "", path)
    path = re.sub(r"\._(modules|parameters|buffers)\['([^']*)'\]", r".\2", path)
    return re.sub(r"[^A-Za-z0-9_.\-/:]", "", path).strip(".")[:200]


def at(node, why):
    """The reason, behind the module in which the node was called."""
    scope = scope_of(node)
    return "%s: %s" % (scope, why) if scope else why


def known(x):
    """A size as a number: of a symbolic one the hint, so that nothing is said of other calls."""
    return x.node.hint if isinstance(x, torch.SymInt) else x


def is_number(node, x):
    """A number of Python's that may be another one in the next call: Dynamo gives it as a tensor and takes it out."""
    return isinstance(x, torch.Tensor) and x.ndim == 0 and x.dtype == torch.float64 and x.device.type == "cpu" and \
        all(word_of(u) == "item" for u in node.users)


def storage(x):
    return x.untyped_storage().data_ptr()


def read_under(node, source):
    """Does anything behind a node that writes to `source` read its memory by another name than these two?"""
    own, later = memory_of(source), False
    seen = {node, source}
    for n in node.graph.nodes:
        if later and any(x not in seen and not own.isdisjoint(memory_of(x)) for x in n.all_input_nodes):
            return True
        if later and not own.isdisjoint(memory_of(n)):
            seen.add(n)  # made of the new values
        later = later or n is node
    return False


def sizes(x):
    return tuple(int(known(n)) for n in x.shape)


def symbols(module, arguments):
    """(symbol, number) of each size that is an argument."""
    places = [n.meta.get("example_value") for n in module.graph.nodes if n.op == "placeholder"]
    return [(p.node.expr, known(x)) for p, x in zip(places, arguments) if isinstance(p, torch.SymInt)]


def paths_of(module):
    """path_of each placeholder: Dynamo forgets them when it is done."""
    return [path_of(n) for n in module.graph.nodes if n.op == "placeholder"]


class Opaque:
    """What no graph can have, in the hands of PyTorch."""


class Leaf:
    """Where a leaf's memory comes from: an argument of the call, by its number, a tensor that was folded, or zeros of
    its own in each call, like `fresh`."""

    def __init__(self, node, argument=None, tensor=None, source=None, fresh=None):
        self.node, self.argument, self.tensor, self.source, self.fresh = node, argument, tensor, source, fresh


class Lift:
    """`arguments`: values of the placeholders in order, of which those of buffers and numbers are taken as they
    are. `keep`: a word of coda_keep, if gradients are wanted. `at`: that of Results."""

    def __init__(self, module, arguments, paths, buffers=(), tolerant=False, shapes=None, keep=None, at=None):
        self.module, self.g, self.tolerant = module, Text(), tolerant
        self.keep, self.recording, self.silent = keep, True, False
        self.env, self.leaves, self.folded, self.taken, self.refused = {}, {}, 0, 0, []
        self.buffers, self.outputs, self.arguments, self.spelled = list(buffers), [], arguments, {}
        self.results, self.masks = Results(self, at, symbols(module, arguments)), {}  # lengths and biases of those that are arguments
        self.said, self.symbol = None, None  # the text, if it is another one than the graph's, and how it is made
        self.places, self.paths, self.labels, self.shapes = paths, {}, {}, shapes
        self.counters, self.integers = state.Counters(self), Integers(self)
        self.read = set()  # memory of which the graph, or PyTorch, has read
        self.bounds = {}  # what integers do not exceed (counting.py)

    # ---- The walk ----

    def run(self):
        """Raises Refuse at the first node that no rule takes; a tolerant one notes it and goes on."""
        with torch.no_grad():
            places = iter(range(len(self.arguments)))
            for node in self.module.graph.nodes:
                if node.op == "placeholder":
                    k = next(places)
                    self.env[node] = self.placeholder(node, k, self.arguments[k])
                    self.integers.placeholder(node, self.env[node])
                    self.results.base(node, "argument", k)
                elif node.op == "get_attr":
                    self.env[node] = operator.attrgetter(node.target)(self.module)
                elif node.op == "output":
                    self.output(node.args[0])
                elif node.op in ("call_function", "call_method"):
                    self.g.scope = scope_of(node)
                    self.env[node] = self.tried(node) if self.tolerant else self.asked(node)
                else:
                    raise Refuse("%s %s" % (node.op, node.target))
            self.counters.finish()
        for n in self.g.used_leaves():
            if n in self.counters.unknown:
                raise Refuse("a value that depends on a number which is known when it runs")
            if n in self.integers.unknown:
                raise Refuse(self.integers.unknown[n])
        return self

    def asked(self, node):
        try:
            return self.call(node)
        except Refuse as e:
            raise Refuse(at(node, str(e))) from e.__cause__

    def tried(self, node):
        """The node's value, be it what another library makes of it."""
        before = self.taken, self.folded
        try:
            made = self.call(node)
            self.labels[node] = "folded" if self.folded > before[1] else "taken"
            source = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
            if isinstance(self.env.get(source), tuple) and source in self.labels:
                self.labels[node] = self.labels[source]  # of several results one belongs to what made them
            return made
        except Refuse as e:
            self.labels[node] = "left"
            self.read |= touched(node)
            self.refused.append((node, str(e)))
            return self.foreign(node, node.meta.get("example_value"))

    def foreign(self, node, x):
        if isinstance(x, (tuple, list)):
            return tuple(self.foreign(node, y) for y in x)
        if not isinstance(x, torch.Tensor):
            return known(x)
        try:
            leaf = self.g.leaf("input", "left", sizes(x), name(x.dtype))
        except Refuse:
            return Opaque()
        self.leaves[leaf] = Leaf(leaf)
        return dense(leaf, sizes(x), x.dtype)

    def placeholder(self, node, k, x):
        if not isinstance(x, torch.Tensor):
            return known(x)
        if is_number(node, x):
            return x
        path, kind = self.places[k]
        if kind == "buffers" and not self.wants(x):
            self.buffers.append((k, x))
            self.paths[id(x)] = path
            return x
        if type(x) not in TENSORS:
            raise Refuse("%s is a %s, a subclass of torch.Tensor" % (path, type(x).__name__))
        if x.is_neg() and not isinstance(x, torch.nn.Parameter):
            raise Refuse("%s is a view of numbers with the other sign" % path)
        if x.ndim == 0 and x.dtype == torch.int64 and not self.tolerant:
            return self.counters.placeholder(k, path, x.device)
        shape = self.shapes[k] if self.shapes else sizes(x)
        if shape != sizes(x) and not x.is_contiguous():
            raise Refuse("%s, of a symbolic size, is not contiguous" % path)
        strides = None if x.is_contiguous() or not self.may_stride(x) else tuple(map(known, x.stride()))
        weight = kind == "parameters" or isinstance(x, torch.nn.Parameter)
        word = "u8" if x.dtype == torch.bool else name(x.dtype)
        leaf = self.g.leaf("weight" if weight else "input", path, shape, word, strides)
        self.leaves[leaf] = Leaf(leaf, argument=k)
        return dense(self.g.node("cast", [leaf], shape, "f32", to="f32") if word == "u8" else leaf, shape, x.dtype)

    def wants(self, x):
        """Is its gradient asked for?"""
        return bool(self.keep) and x.requires_grad and x.is_floating_point()

    @staticmethod
    def may_stride(x):
        """Can a leaf have these strides: no two elements in one place?"""
        run = 1
        both = [(known(n), known(s)) for n, s in zip(x.shape, x.stride())]
        for n, s in sorted((p for p in both if p[0] > 1), key=lambda p: p[1]):
            if s < run:
                return False
            run = s * n
        return True

    def value(self, x, of=None):
        """An argument of a node, with what is known of the nodes in it, or what `of` says of them."""
        if isinstance(x, torch.fx.Node):
            return of(x) if of else self.env[x]
        if isinstance(x, (tuple, list)):
            return (list if type(x) is list else tuple)([self.value(y, of) for y in x])
        if isinstance(x, slice):
            return slice(*[self.value(y, of) for y in (x.start, x.stop, x.step)])
        if isinstance(x, dict):
            return {k: self.value(v, of) for k, v in x.items()}
        return known(x)

    @staticmethod
    def holds(x):
        """Is a value of the graph in it?"""
        if isinstance(x, (tuple, list)):
            return any(map(Lift.holds, x))
        if isinstance(x, slice):
            return any(map(Lift.holds, (x.start, x.stop, x.step)))
        return Lift.holds(list(x.values())) if isinstance(x, dict) else isinstance(x, (Tensor, Opaque))

    def call(self, node):
        word = word_of(node)
        if any(isinstance(self.env.get(n), Opaque) for n in node.all_input_nodes):
            raise Refuse("it reads what no graph can have")
        if word in SKIPPED:
            if word == "_set_grad_enabled":
                self.recording = bool(node.args[0])
            self.folded += 1
            return None
        if word in FORBIDDEN or NESTING.search(word):
            raise Refuse(FORBIDDEN.get(word, "torch.func, or another mode: %s" % word))
        if word in RANDOM:
            raise Refuse("random numbers: %s" % word)
        args, kwargs = self.value(node.args), self.value(node.kwargs)
        if kwargs.get("out") is not None:
            raise Refuse("%s with out=" % word)
        counted = state.found(args) + state.found(kwargs)
        if not self.holds(args) and not self.holds(kwargs):
            if counted:
                self.folded += 1
                return state.fold(lambda a, k: self.by_torch(node, a, k), args, kwargs)
            return self.fold(node, word, args, kwargs)
        self.silent = self.silent or not self.recording
        self.spelled[word] = self.spelled.get(word, 0) + 1
        if word not in spellings.RULES and word[:2] == word[-2:] == "__":  # PyTorch 2.11 says __eq__ for eq
            word = next((w for w in (word[2:-2], word[2:-2] + "_") if w in spellings.RULES), word)
        rule = spellings.RULES.get(word)
        if rule is None:
            raise Refuse("no rule for %s" % word)
        if word in rules.IN_PLACE:
            self.check_in_place(node, args[0])
        given = args, kwargs
        if counted and word not in rules.COUNTED:
            given = state.replaced(args, self.counters.tensor), state.replaced(kwargs, self.counters.tensor)
        try:
            made = rule(self, *given[0], **given[1])
        except (TypeError, ValueError, IndexError, RuntimeError) as e:
            raise Refuse("%s of these arguments: %s" % (word, str(e).split("\n")[0])) from e
        if isinstance(made, Tensor) and made.made is None and made.node.word not in ("input", "weight"):
            made.made = (rules.SAME.get(word, word), args, kwargs)
        self.taken += 1
        if self.tolerant or isinstance(made, Tensor):
            self.read |= touched(node)
        if word not in rules.IN_PLACE and word not in state.WRITES:
            self.integers.follow(node, made)
        if self.keep and (not self.recording or word == "detach"):
            made = self.ended(made)
        if word in state.WRITES:
            self.write(node, made)
        return made

    def ended(self, x):
        """The same values, by which nothing is differentiated."""
        if isinstance(x, (tuple, list)):
            return tuple(map(self.ended, x))
        return Tensor(self.g.end(x.node), x.axes, x.dims, x.dtype) if isinstance(x, Tensor) else x

    def write(self, node, made):
        """What was written to has the new values from now on; views of it that were taken before would, too."""
        source, seen = node.args[0], False
        for user in source.users:
            seen = seen or user is node
            if not seen and word_of(user) in rules.VIEWS:
                raise Refuse("%s of what has a view" % word_of(node))
        self.env[source] = made

    @staticmethod
    def by_torch(node, args, kwargs):
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)

    def fold(self, node, word, args, kwargs):
        """By PyTorch, at once."""
        for n in written_by(node):
            x = self.env[n]
            if isinstance(x, torch.Tensor) and any(storage(x) == storage(b) for _, b in self.buffers):
                raise Refuse("%s writes to a buffer" % word)
            if not self.read.isdisjoint(memory_of(n)):
                raise Refuse("%s in place of what was read" % word)
        self.folded += 1
        return self.by_torch(node, args, kwargs)

    def check_in_place(self, node, x):
        """An operation in place is one that is not, if nobody reads the old name any more, nor memory under it."""
        source = node.args[0]
        later = list(source.users)
        if not isinstance(x, Tensor) or x.node in self.leaves or any(u is not node for u in later[later.index(node):]):
            raise Refuse("%s in place of what is read later" % word_of(node))
        if read_under(node, source):
            raise Refuse("%s in place of what is read later by another name" % word_of(node))
        if word_of(source) in rules.VIEWS:
            raise Refuse("%s in place of a part of a tensor" % word_of(node))

    def output(self, list_):
        for x in list_ if isinstance(list_, (tuple, list)) else [list_]:
            v = self.value(x)
            if self.tolerant:
                continue
            if isinstance(v, state.Counted):
                if self.counters.is_own(v):
                    self.outputs.append(("argument", v.counter))
                    continue
                v = self.counters.tensor(v)
            if isinstance(v, Tensor) and v.node.word in ("append", "state") and layout.is_plain(v):
                self.outputs.append(("leaf", self.root(v.node)))
            elif isinstance(v, Tensor):
                self.outputs.append(self.results.view(x, v) or self.results.made(x, v))
            elif isinstance(v, (tuple, list, dict)):
                raise Refuse("a result that is a %s" % type(v).__name__)
            else:
                self.outputs.append(("value", v))

    @staticmethod
    def root(node):
        """The state that a version is of."""
        while node.word == "append":
            node = node.operands[0]
        return node

    # ---- For rules ----

    def leaf_of(self, node, **source):
        self.leaves[node] = Leaf(node, **source)

    def tensor(self, x, dtype=None):
        """A tensor of the graph: also of one that was folded, in this dtype."""
        if isinstance(x, Tensor):
            return x
        if not isinstance(x, torch.Tensor):
            raise Refuse("%s where a tensor is wanted" % type(x).__name__)
        stored = torch.float32 if x.dtype in (torch.bool, torch.float64) else dtype or x.dtype
        for leaf in self.leaves.values():
            if leaf.source is x and leaf.node.dtype == name(stored):
                return dense(leaf.node, x.shape, dtype or x.dtype)
        leaf = self.g.leaf("input", self.paths.get(id(x), "folded"), x.shape, name(stored))
        self.leaves[leaf] = Leaf(leaf, tensor=x.to(stored).contiguous().clone(), source=x)
        return dense(leaf, x.shape, dtype or x.dtype)

    def counts(self):
        return self.taken, self.folded
