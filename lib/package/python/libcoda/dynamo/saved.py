"""saved.py -- calls of a model that were compiled once, in a file: a later process makes them without Dynamo.

save() makes each call by way of Dynamo, and notes where the arguments of its graph are, in the call or in the model,
and what the call returns of the graph's results. What Dynamo would guard is noted as a form: types, shapes and numbers
of the call's arguments, and a digest of each module. A call of another form is compiled as any other.

PyTorch has a file of its own for compiled functions, which holds Dynamo's guards: 10 MB for a model of 32 layers, of
which it does not take models of transformers, and it belongs to one version. This one is 0.2 MB of text. """
import copy
import dataclasses
import functools
import io
import sys
import warnings
from collections.abc import Mapping

import torch

from .. import c
from ..errors import InvalidError, UnsupportedError, must
from .compiled import MOST, Moved, Program
from .form import (Form, PLAIN, class_of, device_of, difference, digest, digests, holder_of, hooks_of, sized,
                   tensors_of, versions)
from .lift import Leaf
from .text import DTYPES, Text

FORMAT = 2
bundles = []  # of kernels, which the library reads as long as there is a process


# ---- Results ----

def packed(x, made, form):
    """What a call returns, where its parts are among the graph's results and the call's own tensors and objects."""
    for kind, list_ in (("made", made), ("tensor", form.tensors), ("object", form.objects)):
        for k, y in enumerate(list_):
            if x is y and not isinstance(x, PLAIN):
                return kind, k
    if isinstance(x, PLAIN):
        return "plain", x
    if type(x) in (list, tuple):
        return type(x).__name__, [packed(y, made, form) for y in x]
    if dataclasses.is_dataclass(x) or type(x) is dict:
        parts = x.items() if isinstance(x, dict) else [(f.name, getattr(x, f.name)) for f in dataclasses.fields(x)]
        return "dict" if type(x) is dict else class_of(x), {k: packed(y, made, form) for k, y in parts}
    raise UnsupportedError("the call returns a %s, which no file can hold" % type(x).__name__)


class Fields(dict):
    """What stands for an object whose class is not there: its fields, also by their names, be they a dict's methods."""

    def __getattribute__(self, name):
        return self[name] if name in self else dict.__getattribute__(self, name)


def unpacking(form, whole=None):
    """A call of (results, tensors, objects) that gives what was packed. `whole`: what is made instead of classes."""
    kind, of = form
    if kind in ("made", "tensor", "object"):
        at = ("made", "tensor", "object").index(kind)
        return lambda *lists: lists[at][of]
    if kind == "plain":
        return lambda *lists: of
    if kind in ("list", "tuple"):
        parts, made = [unpacking(x, whole) for x in of], list if kind == "list" else tuple
        return lambda *lists: made([p(*lists) for p in parts])
    parts = {k: unpacking(x, whole) for k, x in of.items()}
    if kind == "dict":
        return lambda *lists: {k: p(*lists) for k, p in parts.items()}
    if whole is None:
        module, name = kind.split(":")
        whole = functools.reduce(getattr, name.split("."), sys.modules.get(module))
        if not dataclasses.is_dataclass(whole):
            raise InvalidError("the file's calls return a %s, which is not there" % kind)
    return lambda *lists: whole(**{k: p(*lists) for k, p in parts.items()})


# ---- Save ----

class Recorder:
    """A backend that notes which program runs with what."""

    def __init__(self, options):
        self.options, self.runs = options, []

    def __call__(self, module, example):
        from .backend import backend
        whole = backend(module, example, options=self.options)
        places = [n.meta.get("example_value") for n in module.graph.nodes if n.op == "placeholder"]

        def run(*arguments):
            program = whole.program(arguments)
            made = program(arguments)
            self.runs.append((program, places, arguments, made))
            return made
        return run


def range_of(size):
    """The numbers of which Dynamo's graph holds, as (least, most) around the one that it was traced with; None if that
    is not to be seen."""
    import sympy
    node = size.node
    env, symbol, hint = node.shape_env, node.expr, int(node.hint)
    tests = [g.expr for g in env.guards]
    if any(t.free_symbols - {symbol} for t in tests):
        return None
    tests = [sympy.lambdify(symbol, t) for t in tests if t.free_symbols]
    least = most = hint
    while least > 2 and all(t(least - 1) for t in tests):
        least -= 1
    while most < MOST and all(t(most + 1) for t in tests):
        most += 1
    return least, most


class Said:
    """A lifted graph as a file has it, to a Program: what Lift is otherwise."""

    def __init__(self, of, arguments):
        self.g, self.said, self.written, self.arguments = self, of["text"], of["written"], arguments
        self.leaves = {}
        for x in of["leaves"]:
            node = Text().made(x["name"], x["word"], [], {"stride": x["stride"]}, (), x["dtype"])
            fresh = None if x["fresh"] is None else torch.empty(x["fresh"][0], dtype=x["fresh"][1], device="meta")
            self.leaves[node] = Leaf(node, x["argument"], x["tensor"], fresh=fresh)
        nodes = list(self.leaves)
        self.outputs = [(o[0], nodes[o[1]]) if o[0] == "leaf" else tuple(o) for o in of["outputs"]]
        self.buffers = [(k, arguments[k]) for k, _ in of["buffers"] if arguments[k] is not None]
        self.taken, self.folded, self.spelled = of["taken"], of["folded"], {}

    def used_leaves(self):
        return list(self.leaves)


def program_as_data(program, arguments):
    nodes = [x.node for x in program.leaves]
    leaves = [dict(name=x.node.id, word=x.node.word, stride=x.node.attributes["stride"], dtype=x.node.dtype,
                   argument=x.argument, tensor=None if x.tensor is None else x.tensor.cpu(),
                   fresh=None if x.fresh is None else (tuple(x.fresh.shape), x.fresh.dtype)) for x in program.leaves]
    outputs = []
    for o in program.outputs:
        if o[0] == "value" and not isinstance(o[1], (torch.Tensor, *PLAIN)):
            raise UnsupportedError("the graph gives a %s, which no file can hold" % type(o[1]).__name__)
        outputs.append([o[0], nodes.index(o[1])] if o[0] == "leaf" else list(o))
    return dict(text=program.text, at=program.at, leaves=leaves, outputs=outputs, taken=program.taken,
                folded=program.folded, written=any(x.node.word == "state" for x in program.leaves),
                buffers=[(k, digest(arguments[k])) for k, _ in program.buffers])


def sources(run, form, names):
    """Where each argument of a graph is; the call's key, with T in it if one program serves several sizes; and their
    range."""
    program, places, arguments, _ = run
    made, sizes, between = [], {}, None
    for place, x in zip(places, arguments):
        if isinstance(place, torch.SymInt) and program.at is not None:
            sizes[place.node.expr], between = None, range_of(place)
            between = between and (max(between[0], program.least), min(between[1], program.most))
    at = {id(x): k for k, x in enumerate(form.tensors)}
    symbolic = {}
    for place, x in zip(places, arguments):
        if isinstance(x, torch.Tensor) and id(x) in at:
            for axis, d in enumerate(place.shape):
                if isinstance(d, torch.SymInt) and d.node.expr in sizes:
                    sizes[d.node.expr] = ("size", at[id(x)], axis)
                    symbolic[at[id(x)], axis] = "T"
    for place, x in zip(places, arguments):
        if not isinstance(x, torch.Tensor):
            made.append(sizes.get(place.node.expr) if between and isinstance(place, torch.SymInt) else ("value", int(x)))
        elif id(x) in at:
            made.append(("call", at[id(x)]))
        elif id(x) in names:
            made.append(("model", names[id(x)][0]))
        elif x.ndim == 0 and x.dtype == torch.float64:  # a number, which the key or a module's digest has
            made.append(("value", None))
        else:
            raise UnsupportedError("the call reads a tensor %s that is neither its argument nor the model's" %
                                   list(x.shape))
    if program.at is not None and (between is None or made[program.at] is None):
        raise UnsupportedError("the sizes of which the graph holds are not known: save it with sizes that are fixed")
    return made, symbolic, between


def with_symbol(key, symbolic):
    """The key, with T in the place of sizes."""
    number = iter(range(1 << 30))

    def of(x):
        if isinstance(x, tuple) and len(x) == 5 and isinstance(x[1], torch.dtype):
            k = next(number)
            return (*x[:3], tuple([symbolic.get((k, axis), d) for axis, d in enumerate(x[3])]), x[4])
        return tuple(map(of, x)) if isinstance(x, tuple) else x
    return of(key)


def recorded(model, fast, recorder, args, kwargs, where):
    """A call, and all that a file has of it."""
    before, names = Form(where, args, kwargs), tensors_of(model)
    if any(id(x) in names for x in before.tensors):
        raise UnsupportedError("an argument of the call is a parameter or a buffer of the model")
    del recorder.runs[:]
    result = fast(*args, **kwargs)
    if len(recorder.runs) != 1:
        raise UnsupportedError("the call is %d graphs, and a file holds calls of one" % len(recorder.runs))
    after = Form(where, args, kwargs)
    if before.key != after.key or any(x is not y for x, y in zip(before.tensors, after.tensors)):
        raise UnsupportedError("the call changes its arguments: %s" %
                               (difference(after.key, before.key) or "one has another tensor now"))
    run = recorder.runs[0]
    if type(run[0]) is not Program:
        raise UnsupportedError("the call is no plan alone")
    places, symbolic, between = sources(run, before, names)
    return dict(key=with_symbol(before.key, symbolic), between=between, sources=places,
                program=program_as_data(run[0], run[2]), result=packed(result, run[3], before)), run[0].plan


def bundle_of(plans):
    """The kernels of plans, as bytes."""
    import ctypes
    import os
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bundle")
        handles = (ctypes.c_void_p * len(plans))(*[p.handle for p in plans])
        opt = c.coda_export_options(plans=ctypes.cast(handles, type(c.coda_export_options().plans)), plan_count=len(plans))
        must(c.coda_cache_export(None, path.encode(), ctypes.byref(opt), None))
        with open(path, "rb") as f:
            return f.read()


def save(model, path, *calls, options=None):
    """Compiles calls of a model, and writes to a file what load() wants of them. Each is a dict of keyword arguments,
    or a tuple of others; it is made once. A size that torch._dynamo.mark_dynamic(tensor, axis) names may be another one
    in later calls. On a GPU the file has the kernels, too. `options`: as of the backend."""
    if not isinstance(model, torch.nn.Module) or not calls:
        raise TypeError("save(model, path, call, ...) wants a module, and a call: a dict of its arguments")
    if any(hooks_of(model)):
        raise UnsupportedError("a module of the model has hooks, which no file holds")
    recorder, modules = Recorder(dict(options or {}, fullgraph=True)), digests(model)
    fast, where, made = torch.compile(model, backend=recorder, fullgraph=True), device_of(model), []
    if torch.is_autocast_enabled(where.type):
        raise UnsupportedError("autocast, under which no call is saved")
    with torch.no_grad():
        for call in calls:
            args, kwargs = (), call
            if not isinstance(call, dict):
                args, kwargs = call if isinstance(call, tuple) else (call,), {}
            made.append(recorded(model, fast, recorder, args, kwargs, where))
    plans = [p for _, p in made if p is not None]
    kernels = torch.frombuffer(bytearray(bundle_of(plans)), dtype=torch.uint8) if where.type == "cuda" and plans else None
    torch.save(dict(libcoda=FORMAT, versions=versions(model), modules=modules, device=where.type,
                    dtype=torch.get_default_dtype(), training=model.training, kernels=kernels,
                    ties=[n for n in tensors_of(model).values() if len(n) > 1], calls=[of for of, _ in made]), path)


# ---- Load ----

class Call:
    """A call of a file's, of this model, or of weights by name."""

    def __init__(self, of, model, where, replay):
        self.key, self.between = of["key"], of["between"]
        places = list(enumerate(of["sources"]))
        self.given = [(k, s[1]) for k, s in places if s[0] == "call"]
        bare, folded = isinstance(model, dict), {k for k, _ in of["program"]["buffers"]}
        self.own = [(k, *((model, s[1]) if bare else holder_of(model, s[1]))) for k, s in places
                    if s[0] == "model" and not (bare and k in folded and s[1] not in model)]
        self.sizes = [(k, *s[1:]) for k, s in places if s[0] == "size"]
        self.start = [s[1] if s[0] == "value" else None for _, s in places]
        arguments = self.arguments([None] * (1 + max((s[1] for _, s in places if s[0] == "call"), default=-1)), False)
        for k, known in of["program"]["buffers"]:
            if (arguments[k] is None and not bare) or (arguments[k] is not None and digest(arguments[k]) != known):
                raise InvalidError("%s is not what it was when the file was made" % of["sources"][k][1])
        device = "gpu" if where.type == "cuda" else "cpu"
        self.program = Program(Said(of["program"], arguments), device, where, of["program"]["at"], replay)
        self.result = unpacking(of["result"], Fields if bare else None)
        if bare:
            self.agree()

    def agree(self):
        """Are weights by name those of the file?"""
        own, plan = {k: (d[n], n) for k, d, n in self.own}, self.program.plan
        for x, i in zip(self.program.leaves, plan.leaves if plan else ()):
            w, name = own.get(x.argument, (None, ""))
            a = plan.args[i]
            if w is None:
                continue
            kind = DTYPES.get(str(w.dtype)[6:], str(w.dtype))
            if (kind, list(w.shape)) != (a.dtype, list(a.dims)):
                raise InvalidError("%s is %s %s, and the file's is %s %s" % (name, kind, list(w.shape), a.dtype, list(a.dims)))

    def arguments(self, tensors, sized=True):
        made = self.start[:]
        for k, holder, name in self.own:
            if name not in holder:
                raise InvalidError("there is no %s among the weights" % name)
            made[k] = holder[name]
        for k, n in self.given:
            made[k] = tensors[n]
        for k, n, axis in self.sizes if sized else ():
            made[k] = tensors[n].shape[axis]
        return made

    def __call__(self, form):
        arguments = self.arguments(form.tensors)
        if not self.program.fits(arguments):
            raise Moved("a buffer holds other values now")
        return self.result(self.program(arguments), form.tensors, form.objects)


class Loaded:
    """A model that makes calls as a file has them. Others are compiled, with a warning at the first one; what is no call
    is the model's: loaded.generate, loaded.config. `model` may be weights by name: then others are errors."""

    def __init__(self, model, saved, path, options):
        self.model, self.path, self.options, self.compiled = model, path, dict(options or {}), None
        self.bare = isinstance(model, dict)
        self.where, self.saved, self.hooks = device_of(model), saved, [] if self.bare else hooks_of(model)
        replay = bool(self.options.get("replay", True))
        self.calls = [Call(of, model, self.where, replay) for of in saved["calls"]]
        self.known = {x.key: x for x in self.calls if x.between is None}

    def __getattr__(self, name):
        if name.startswith("__") or name == "model":
            raise AttributeError(name)
        return getattr(self.model, name)

    def __deepcopy__(self, memo):
        return Loaded(copy.deepcopy(self.model, memo), self.saved, self.path, self.options)

    def __reduce_ex__(self, protocol):
        raise TypeError("what is loaded is of this process: pickle the model, and load the file for it")

    def found(self, key):
        for call in self.calls:
            value = sized(key, call.key) if call.between else None
            if value and call.between[0] <= value <= call.between[1]:
                if len(self.known) < 256:
                    self.known[key] = call
                return call
        raise Moved(min((difference(key, call.key) for call in self.calls), key=len) or "a size is another one")

    def check(self):
        """Is the process as it was when the file was made, as far as a graph depends on it?"""
        if not self.bare and self.model.training is not self.saved["training"]:
            raise Moved("the model is %s training" % ("in" if self.model.training else "not in"))
        if any(self.hooks):
            raise Moved("a module has hooks")
        if torch.is_autocast_enabled(self.where.type):
            raise Moved("autocast")
        if torch.get_default_dtype() is not self.saved["dtype"]:
            raise Moved("the default dtype is %s" % torch.get_default_dtype())

    def gradients(self, call, form):
        """Are any asked for?"""
        return torch.is_grad_enabled() and (any(d[n].requires_grad for _, d, n in call.own) or
                                            any(x.requires_grad for x in form.tensors))

    def __call__(self, *args, **kwargs):
        try:
            self.check()
            form = Form(self.where, args, kwargs)
            call = self.known.get(form.key) or self.found(form.key)
            if self.gradients(call, form):
                raise Moved("gradients are wanted")
            return call(form)
        except UnsupportedError as e:
            return self.other(str(e))(*args, **kwargs)

    def other(self, why):
        if self.bare:
            raise UnsupportedError("%s does not have this call, and there is no model to compile: %s" % (self.path, why))
        if self.compiled is None:
            warnings.warn("libcoda compiles a call that %s does not have: %s" % (self.path, why), stacklevel=3)
            self.compiled = torch.compile(self.model, backend="coda", options=self.options)
        return self.compiled


def read(path):
    with open(path, "rb") as f:
        whole = io.BytesIO(f.read())
    try:
        saved = torch.load(whole, map_location="cpu", weights_only=True)
        good = isinstance(saved, dict) and saved.get("libcoda") == FORMAT
    except Exception as e:  # of whatever kind, by whatever bytes
        raise InvalidError("%s is no file of libcoda.dynamo.save: %s" % (path, str(e).split("\n")[0][:120])) from None
    if not good:
        raise InvalidError("%s is no file of this libcoda's dynamo.save" % path)
    return saved


def weights_of(given, saved):
    """Of weights by name those that the file's calls read, by one of their names that is there, as the calls have it then.
    Where a tensor has several, they are of one value."""
    ties, made = {n[0]: n for n in saved["ties"]}, {}
    for of in saved["calls"]:
        for k, s in enumerate(of["sources"]):
            here = [n for n in ties.get(s[1], s[1:]) if n in given] if s[0] == "model" else []
            for n in here:
                if n in made:
                    continue
                x = made[n] = given[n]
                whole = isinstance(x, torch.Tensor)
                if not whole or x.is_meta or x.layout is not torch.strided:
                    raise InvalidError("%s is a %s, and no dense tensor with elements" %
                                       (n, "%s tensor on %s" % (x.layout, x.device) if whole else type(x).__name__))
                y = made[here[0]]
                if x is not y and ((x.dtype, x.device) != (y.dtype, y.device) or not torch.equal(x, y)):
                    raise InvalidError("%s and %s are one tensor in the file, and here they differ" % (here[0], n))
            if here:
                of["sources"][k] = "model", here[0]
    return made


def load(model, path, options=None):
    """The model, whose calls that save() has put into this file run without being compiled: as of the same class, of
    the same sizes, with whatever weights. Or weights alone, tensors by their names in the model, as state_dict() has
    them: then neither the model nor its package is wanted, and a result that is an object of it is a dict of its fields."""
    bare = isinstance(model, Mapping)
    saved, now = read(path), versions(torch.nn.Module() if bare else model)
    for name, version in saved["versions"].items():
        if now.get(name) != version and not (bare and name not in ("torch", "libcoda")):
            raise InvalidError("%s was made with %s %s, and here is %s: save it again" %
                               (path, name, version, now.get(name, "none")))
    if bare:
        model = weights_of(model, saved)
    where = device_of(model)
    if saved["device"] != where.type:
        raise InvalidError("%s is for a model on %s, and this one is on %s" % (path, saved["device"], where.type))
    if not bare and any(hooks_of(model)):
        raise UnsupportedError("a module of the model has hooks, which no file holds")
    made = saved["modules"] if bare else digests(model)
    for name in {**saved["modules"], **made}:
        if made.get(name) != saved["modules"].get(name):
            raise InvalidError("%s is of another model: they differ in %s" % (path, name or type(model).__name__))
    if saved["kernels"] is not None:
        kernels = saved["kernels"].contiguous()
        must(c.coda_cache_add_bundle(None, kernels.data_ptr(), kernels.numel()))
        bundles.append(kernels)
    return Loaded(model, saved, path, options)
