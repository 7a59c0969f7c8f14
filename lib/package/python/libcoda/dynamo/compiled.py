"""compiled.py -- what the backend gives Dynamo: plans of a graph, or of those parts of it that a graph can say."""
import array
import ctypes
import operator
import re

import torch
from torch.autograd import forward_ad

from .. import _addresses, arrays
from .._stages import Scratch, dense_and_aligned, on, replays_of, run
from ..errors import Error, UnsupportedError
from ..graph import Graph
from .lift import Lift, is_number, known, paths_of
from .text import Refuse, name

# A graph over a symbol is lifted for each of these sizes; then every size that it has is a multiple of its prime.
PRIMES = (4093, 3067, 2039)
MOST = 1 << 15  # of a symbolic size, if a lift at it says the same
NUMBERS = 32  # sets of numbers, with which a graph has plans


def device_of(arguments):
    """("cpu" or "gpu", the torch.device) of the tensors among them."""
    for x in arguments:
        if isinstance(x, torch.Tensor):
            if x.device.type not in ("cpu", "cuda"):
                raise Refuse("tensors on %s: libcoda takes those of the host and of CUDA" % x.device)
            return ("gpu" if x.device.type == "cuda" else "cpu"), x.device
    return "cpu", torch.device("cpu")


ADDRESS = torch.Tensor.data_ptr


def is_symbol(size):
    return isinstance(size, torch.SymInt)


def picker(at):
    """A call that gives the elements at these places of a sequence, as a tuple."""
    if len(at) > 1:
        return operator.itemgetter(*at)
    return (lambda x: (x[at[0]],)) if at else lambda x: ()


def at_size(sizes, n):
    """Sizes, multiples of the first prime as multiples of n."""
    prime = PRIMES[0]
    return tuple([d // prime * n if d and d % prime == 0 else d for d in sizes])


def agree(plan, made, symbolic):
    """Refuses a plan that would write other results than those for which there is memory."""
    for k, (i, (shape, stored, _)) in enumerate(zip(plan.results, made)):
        a = plan.args[i]
        if a.dtype != name(stored) or not symbolic and tuple(a.dims) != tuple(shape):
            raise Refuse("the result %d is %s%s, where PyTorch has %s%s" % (k, a.dtype, list(a.dims), name(stored), list(shape)))


def form(x):
    """Where a tensor lies, and how."""
    return x.data_ptr(), x.dtype, x.shape, x.stride()


def as_it_is(x):
    """What says of a buffer that it is what it was when it was folded. Of one that was made in inference mode PyTorch
    counts no changes."""
    return (0 if x.is_inference() else x._version, *form(x))


class Moved(UnsupportedError):
    """A tensor of the model has another type or shape than its graph."""


def refuse_tangents(arguments):
    if any(isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in arguments):
        raise UnsupportedError("gradients in forward mode, which no plan has: compile without backend=\"coda\"")


class Found:
    """Addresses of all leaves, and where and how weights and states lay then: `lie`, or `forms` where no C can say."""

    def __init__(self, both=None, arguments=None, steady=(), forms=None):
        self.both, self.forms = both, forms
        quick = both is not None and _addresses.unmoved is not None
        self.lie = _addresses.Places(arguments, [a for _, a in steady]) if quick else None


class Program:
    """A lifted graph and its plan; it is called with Dynamo's arguments. `at`: among them, of the value of the one
    symbol that the graph has."""

    def __init__(self, lift, device, where, at=None, replay=True):
        self.text, self.at = lift.said or str(lift.g), at
        self.replays = replays_of(where) if replay else None
        used = lift.g.used_leaves()
        self.leaves, self.outputs, self.where = [lift.leaves[n] for n in used], lift.outputs, where
        self.buffers = [(k, as_it_is(x)) for k, x in lift.buffers]
        self.types = self.types_of(lift.arguments)
        self.taken, self.folded, self.spelled = lift.taken, lift.folded, lift.spelled
        self.made = []
        for kind, *more in self.outputs:
            if kind == "made":
                stored = torch.float32 if more[2] == torch.bool else more[2]
                self.made.append((tuple(more[1]), stored, more[2]))
        self.rooms = [(shape, arrays.dense_strides(shape), stored) for shape, stored, _ in self.made]
        self.plan, self.scratch = None, Scratch(where)
        if self.made or lift.g.written:
            with on(where):
                self.plan = self.compiled(lift, device)
            agree(self.plan, self.made, at is not None)
        self.kept = {k: x.tensor.to(where) for k, x in enumerate(self.leaves) if x.tensor is not None}
        # Leaves that most calls give as the graph wants them: the place, the argument's number. Weights and states are
        # in the same memory from call to call, as a rule.
        given = [(k, x.argument) for k, x in enumerate(self.leaves)
                 if x.argument is not None and x.node.attributes["stride"] is None]
        self.given = [p for p in given if self.leaves[p[0]].node.word == "input"]
        self.steady = [p for p in given if p not in self.given]
        self.pick, self.found = picker([a for _, a in self.steady]), Found()
        self.others = sorted(set(range(len(self.leaves))) - set(self.kept) - {k for k, _ in given})
        self.states = {k: x.argument for k, x in enumerate(self.leaves)
                       if x.node.word == "state" and x.argument is not None}
        self.written = picker(list(self.states.values()))
        # What gather() holds if weights and states lie as the graph wants them; states among it have to be copied back.
        self.usual = len(self.kept) + len(self.given) + len(self.others)
        self.copied = not self.states.keys().isdisjoint(self.others)
        self.places = {x.node: k for k, x in enumerate(self.leaves)}
        # Are the results what is made, as it is made?
        self.straight = all(stored == dtype for _, stored, dtype in self.made) and \
            [(o[0], o[1], len(o)) for o in self.outputs] == [("made", k, 4) for k in range(len(self.made))]

    def compiled(self, lift, device):
        return Graph(self.text).compile(device)

    def plans(self):
        """Each with its name, for reports."""
        return [("plan", self.plan)] if self.plan is not None else []

    def fits(self, arguments):
        """Are the buffers that were folded as they were?"""
        for k, known in self.buffers:
            if as_it_is(arguments[k]) != known:
                return False
        return True

    def types_of(self, arguments):
        """Of each weight, by the argument's number, what its graph depends on. PyTorch 2.11 guards none of that."""
        given = {x.argument: arguments[x.argument] for x in self.leaves if x.node.word == "weight" and x.argument is not None}
        return {a: (x.dtype, x.shape, x.device) for a, x in given.items() if not any(map(is_symbol, x.shape))}

    def placed(self, x, leaf):
        """x as the graph wants it: dense, or with these strides, at a multiple of 16 bytes."""
        strides, type_ = leaf.node.attributes["stride"], self.types.get(leaf.argument)
        if type_ is not None and type_ != (x.dtype, x.shape, x.device):
            raise Moved("%s is %s %s on %s now, and was %s %s on %s when its graph was made" % (
                        leaf.node.id, x.dtype, list(x.shape), x.device, type_[0], list(type_[1]), type_[2]))
        if x.is_neg():
            x = x.resolve_neg()
        if strides is not None:
            if x.stride() == strides and x.data_ptr() % 16 == 0:
                return x
            return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)
        return dense_and_aligned(x)

    def dims(self, arguments):
        return None if self.at is None else (ctypes.c_int64 * 1)(int(arguments[self.at]))

    def fresh(self, dims):
        """New memory for what is made."""
        empty = self.scratch.empty
        if dims is None:
            return [empty(*room) for room in self.rooms]
        shapes = [at_size(shape, dims[0]) for shape, _, _ in self.made]
        return [empty(shape, arrays.dense_strides(shape), of[1]) for shape, of in zip(shapes, self.made)]

    def scaled(self, sizes, arguments):
        """Those of a result, in this call."""
        return sizes if self.at is None else at_size(sizes, int(arguments[self.at]))

    def memory(self, arguments, leaf):
        """A leaf's, in this call."""
        if leaf.fresh is not None:
            return torch.zeros(leaf.fresh.shape, dtype=leaf.fresh.dtype, device=self.where)
        return self.placed(arguments[leaf.argument], leaf)

    def leave(self, arguments, hold):
        """What was written to is where the caller has it, and has another version."""
        theirs = self.written(arguments)
        if self.copied or len(hold) > self.usual:
            laid = [hold.get(k, arguments[a]) for k, a in self.states.items()]
            for x, y in zip(laid, theirs):
                if x is not y:
                    y.copy_(x)
            theirs = [y for x, y in zip(laid, theirs) if x is y]
        if theirs:
            torch.autograd.graph.increment_version(theirs)

    def result(self, out, arguments, hold, made, before):
        """`before`: results ahead of it."""
        kind, of = out[:2]
        if kind == "made":
            return made[of] if len(out) == 4 else made[of].as_strided(*[self.scaled(x, arguments) for x in out[4:]])
        if kind == "view":
            x = (arguments if of[0] == "argument" else before)[of[1]]
            return x.as_strided(*out[2:4], x.storage_offset() + out[4])
        if kind == "leaf":
            k = self.places[of]
            return hold[k] if k in hold else arguments[self.leaves[k].argument]
        return arguments[of] if kind == "argument" else of

    def returned(self, arguments, hold, made):
        out = []
        for o in self.outputs:
            out.append(self.result(o, arguments, hold, made, out))
        return tuple(out)

    def settle(self, hold, arguments):
        """The leaves' addresses, with those of weights and states. They are known from now on, if all lie as the graph
        wants them, until one lies elsewhere or otherwise: Dynamo guards the strides of none of them in each version."""
        both = array.array("Q", bytes(8 * len(self.leaves)))
        for k, x in self.kept.items():
            both[k] = x.data_ptr()
        known = True
        for k, a in self.steady:
            x = arguments[a]
            laid = self.placed(x, self.leaves[k])
            both[k] = laid.data_ptr()
            if laid is not x:
                hold[k], known = laid, False
        if known:
            self.found = Found(both, arguments, self.steady, list(map(form, self.pick(arguments))))
        return both

    def located(self, hold, arguments):
        """The same, which is what is known if nothing has moved."""
        found = self.found
        if found.lie is not None:
            good = found.lie.hold(arguments)
        else:
            good = found.forms == list(map(form, self.pick(arguments)))
        return found.both if good else self.settle(hold, arguments)

    def gather(self, arguments):
        """Tensors that the call makes for leaves, or holds, and the leaves' addresses."""
        if type(arguments) is not tuple:
            arguments = tuple(arguments)
        if forward_ad._current_level >= 0:
            refuse_tangents(arguments)
        hold = self.kept.copy()
        both = self.located(hold, arguments)[:]
        for k, a in self.given:
            x = hold[k] = arguments[a]
            both[k] = at = x.data_ptr()
            if at & 15 or not x.is_contiguous():
                hold[k] = x = self.placed(x, self.leaves[k])
                both[k] = x.data_ptr()
        for k in self.others:
            hold[k] = self.memory(arguments, self.leaves[k])
            both[k] = hold[k].data_ptr()
        return hold, both

    def all_held(self, arguments, hold):
        """What gather() holds, weights and states of the caller's among it: a tensor for each leaf."""
        return [hold[k] if k in hold else arguments[x.argument] for k, x in enumerate(self.leaves)]

    def __call__(self, arguments):
        hold, both = self.gather(arguments)
        dims = self.dims(arguments)
        made = self.fresh(dims)
        if self.plan is not None:
            both.extend(map(ADDRESS, made))
            run(self.plan, both, self.scratch, dims, self.replays)
            if self.states:
                self.leave(arguments, hold)
        if self.straight:
            return tuple(made)
        made = [x if x.dtype == dtype else x.to(dtype) for x, (_, _, dtype) in zip(made, self.made)]
        return self.returned(arguments, hold, made)


def program_of(lift, device, where, at=None, replay=True):
    """A program with gradients, if a call that records asks for any."""
    from .training import Trained
    return (Trained if lift.keep and Trained.differentiable(lift) else Program)(lift, device, where, at, replay)


# ---- Sizes that are not known ----

def over_symbol(text, prime):
    """The text with multiples of a prime as multiples of T."""
    def size(m):
        n = int(m.group())
        if n < prime or n % prime:
            return m.group()
        return "T" if n == prime else "%d*T" % (n // prime)
    return re.sub(r"(?<![\w.])\d+(?![\w.])", size, text)


def at_symbol(text, n):
    """The text over T with n in its place. A window of n keys and more is none."""
    text = re.sub(r"(?<![\w.])(?:(\d+)\*)?T(?![\w.])", lambda m: str(int(m.group(1) or 1) * n), text)
    return without_windows(text, n)


def without_windows(text, n):
    return re.sub(r",? window=(\d+)\b", lambda m: "" if int(m.group(1)) >= n else m.group(), text)


def alike(text, lifted, n):
    """Is the text over T what a lift at this size says? A number beyond which the graph does something else, as of
    min(T, 19) or of a window, makes texts that differ; and there may be no lift, as of x[5] of two rows."""
    try:
        return at_symbol(text, n) == without_windows(str(lifted(n).g), n)
    except (Refuse, Error, IndexError, RuntimeError):
        return False


def symbolic(module, example, paths, keep, replay):
    """A program over the one symbol among the arguments, with the sizes between which it is known to hold; None if there
    is none, or more depends on it than sizes."""
    at = [k for k, x in enumerate(example) if isinstance(x, torch.SymInt)]
    places = [n for n in module.graph.nodes if n.op == "placeholder"]
    if len({example[k].node.expr for k in at}) != 1 or example[at[0]].node.expr.is_number:
        return None
    symbol = example[at[0]].node.expr

    def lifted(n, prime=False):
        shapes = []
        for place in places:
            of = getattr(place.meta.get("example_value"), "shape", ())
            shapes.append(tuple(int(d.node.expr.subs(symbol, n)) if isinstance(d, torch.SymInt) else d for d in of))
        given = [n if k in at else known(x) for k, x in enumerate(example)]
        return Lift(module, given, paths, shapes=shapes, keep=keep, at=(symbol, n, prime)).run()
    lifts, texts = [], []
    for prime in PRIMES:
        lift = lifted(prime, True)
        used = [lift.leaves[n] for n in lift.g.used_leaves()]
        if any(x.tensor is not None and any(d and d % prime == 0 for d in x.tensor.shape) for x in used) or \
                any(o[0] == "value" and o[1] is not None for o in lift.outputs):
            return None
        lifts.append(lift)
        texts.append(over_symbol(str(lift.g), prime))
    if texts[0] != texts[1] or texts[0] != texts[2]:
        return None
    least = next((n for n in (2, known(example[at[0]])) if alike(texts[0], lifted, n)), None)
    if least is None:
        return None
    lifts[0].symbol = lambda text: "dim %%T = 1..%d\n" % MOST + over_symbol(text, PRIMES[0])
    lifts[0].said = lifts[0].symbol(str(lifts[0].g))
    program = program_of(lifts[0], *device_of(example), at[0], replay)
    program.said, program.least, program.most, program.symbol = texts[0], least, PRIMES[0], symbol
    return program


class Left:
    """What PyTorch does instead."""

    def __init__(self, call):
        self.call = call

    def fits(self, arguments):
        return True

    def program(self, arguments):
        return self

    def __call__(self, arguments):
        return self.call(*arguments)


class Whole:
    """A graph as one program for each set of sizes and numbers that it is called with. `keep`: a word of coda_keep, for
    gradients, if any are wanted. `replay`: are runs that come again recorded?"""

    def __init__(self, module, example, fallback, keep="products", replay=True, paths=None):
        self.module, self.programs, self.paths, self.fallback = module, {}, paths or paths_of(module), fallback
        self.tensors = [k for k, x in enumerate(example) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        self.recording, self.asked, self.others = torch.is_grad_enabled(), self.asking(example), {}
        self.wish, self.replay = keep, replay
        self.keep = keep if self.recording and self.asked else None
        self.sizes = [k for k, x in enumerate(example) if isinstance(x, (int, torch.SymInt))]
        places = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.floats = [k for k, x in enumerate(example) if is_number(places[k], x)]
        self.numbers, self.many, self.moved = self.numbers_of(example), None, None
        try:
            self.symbolic = symbolic(module, example, self.paths, self.keep, replay)
        except (Refuse, Error, IndexError, RuntimeError):  # of sizes that the model does not have
            self.symbolic = None
        self.first = self.symbolic or self.made([known(x) for x in example])

    def made(self, arguments):
        made = program_of(Lift(self.module, arguments, self.paths, keep=self.keep).run(), *device_of(arguments),
                          replay=self.replay)
        self.programs[self.key(arguments)] = made
        return made

    def numbers_of(self, arguments):
        return tuple([float(arguments[k]) for k in self.floats])

    def key(self, arguments):
        if not self.sizes and not self.floats:
            return ()
        return (*[int(arguments[k]) for k in self.sizes], *self.numbers_of(arguments))

    def needed(self, key, arguments):
        """A program of these sizes and numbers."""
        numbers = {k[len(self.sizes):] for k in self.programs}
        if key[len(self.sizes):] in numbers or len(numbers) < NUMBERS:
            return self.made(arguments)
        if self.many is None:
            self.many = Left(self.fallback(self.module, "a number that is another one in each of %d calls" % NUMBERS))
        return self.many

    def asking(self, arguments):
        """Which of them ask for a gradient."""
        return tuple([k for k in self.tensors if arguments[k].requires_grad])

    def of_others(self, asked, arguments):
        """The same for another set of weights that ask: PyTorch 2.11 does not guard that."""
        if asked not in self.others:
            try:
                self.others[asked] = Whole(self.module, arguments, self.fallback, self.wish, self.replay, self.paths)
            except (Refuse, Error) as e:
                self.others[asked] = Left(self.fallback(self.module, str(e)))
        return self.others[asked].program(arguments)

    def holds(self, n, arguments):
        """Does the program over a symbol hold at this size? Beyond those for which that is known a lift says so."""
        program = self.symbolic
        if program.least <= n <= program.most:
            return True
        if n > MOST or self.key(arguments) in self.programs:
            return False
        at = program.symbol, n, False
        good = alike(program.said, lambda _: Lift(self.module, arguments, self.paths, keep=self.keep, at=at).run(), n)
        if good:
            program.least, program.most = min(program.least, n), max(program.most, n)
        return good

    def program(self, arguments):
        """What runs this call: a Program, or Left."""
        if self.recording and torch.is_grad_enabled():
            asked = self.asking(arguments)
            if asked != self.asked:
                return self.of_others(asked, arguments)
        program = self.symbolic
        if program is not None and program.fits(arguments) and \
                (not self.floats or self.numbers_of(arguments) == self.numbers) and self.holds(int(arguments[program.at]), arguments):
            return program
        key = self.key(arguments)
        program = self.programs.get(key)
        if program is None or not program.fits(arguments):
            try:
                program = self.needed(key, arguments)
            except (Refuse, Error) as e:  # of these sizes, or of what a buffer holds now
                program = self.programs[key] = Left(self.fallback(self.module, str(e)))
        return program

    def __call__(self, *arguments):
        try:
            return self.program(arguments)(arguments)
        except Moved as e:
            if self.moved is None:
                self.moved = Left(self.fallback(self.module, str(e)))
            return self.moved(arguments)
