"""deferred.py -- torch._dynamo imported when something of it is wanted first, for processes whose calls are in files.

A model of transformers imports it for a wrapper of masks and for decorators, whoever compiles, and torchvision for one
function; it imports Inductor, SymPy and Triton, seconds in all. Behind defer() that import gives an empty module, as do its
submodules but for those in ALONE, which are read without it. They become the real ones as soon as anybody asks for a name
or sets one: torch.compile does. Three kinds of names do not ask: what only marks a function or a tensor for Dynamo (MARKS)
is noted, and done when Dynamo is there; `disable` is PyTorch's own form of it that asks Dynamo at the call; and a function
of a submodule asks at its call, until Dynamo is there, which then replaces it where a module has it."""
import functools
import re
import sys
import threading
import types
import weakref
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import PathFinder

import torch

NAME = "torch._dynamo"
ALONE = (NAME + "._trace_wrapped_higher_order_op",)
MARKS = ("allow_in_graph", "assume_constant_result", "mark_static_address")
lock, loading, loader = threading.RLock(), set(), [None]  # modules that are being imported, and by which thread
marks, handed = [], []  # what was noted; functions that ask, with their module and name


class Deferred(types.ModuleType):
    """A module, as long as nothing of it is there but its place."""

    def __getattr__(self, name):
        short = None if loading else stand_in(self, name)
        if short is not None:
            return short
        if (name.startswith("__") and name != "__all__") or not fill(self):
            raise AttributeError("module %s has no attribute %r" % (self.__name__, name))
        return getattr(self, name)

    def __setattr__(self, name, value):
        if not name.startswith("__") and not isinstance(value, types.ModuleType) and fill(self):
            return setattr(self, name, value)
        return super().__setattr__(name, value)


def fill(module):
    """Imports it, behind the package; False if that goes on in this very thread, which then sees what is there so far."""
    with lock:
        if type(module) is not Deferred:
            return True
        name = module.__name__
        if name in loading:
            return False
        if name != NAME:
            fill(sys.modules[NAME])
        if type(module) is not Deferred:  # the package has imported it
            return True
        loading.add(name)
        loader[0] = threading.get_ident()
        try:
            module.__loader__.exec_module(module)
            if type(module) is Deferred:  # no class of its own
                module.__class__ = types.ModuleType
        finally:
            loading.discard(name)
        if name == NAME:
            settle(module)
        return True


# ---- What does not ask for it ----

def stand_in(module, name):
    if module.__name__ != NAME:
        source = module.__loader__.get_source(module.__name__) or ""
        return asking(module, name) if re.search(r"^def %s\(" % re.escape(name), source, re.M) else None
    return disable if name == "disable" else marker(name) if name in MARKS else None


def asking(module, name):
    def ask(*args, **kwargs):
        fill(module)
        return getattr(module, name)(*args, **kwargs)
    ask.__name__ = name
    handed.append((ask, module, name))
    return ask


def noted(x):
    """A call that gives x, unless nobody else has it any more."""
    try:
        return weakref.ref(x)
    except TypeError:
        return lambda: x


def marker(name):
    def mark(x, *args, **kwargs):
        module = sys.modules[NAME]
        with lock:
            if type(module) is Deferred and not loading:
                marks.append((name, noted(x), args, kwargs))
                return None if name == "mark_static_address" else x
        return getattr(module, name)(x, *args, **kwargs)
    return mark


def disable(fn=None, recursive=True, **others):
    if fn is None:
        return functools.partial(disable, recursive=recursive, **others)
    module = sys.modules[NAME]
    if type(module) is Deferred and isinstance(fn, types.FunctionType):
        return torch._disable_dynamo(fn, recursive)
    fill(module)
    return module.disable(fn, recursive, **others)


def settle(module):
    """Does what was noted, and puts functions where those are that ask for them."""
    for name, x, args, kwargs in marks:
        if x() is not None:
            getattr(module, name)(x(), *args, **kwargs)
    real = {id(ask): getattr(of, name) for ask, of, name in handed}
    for other in [m for m in list(sys.modules.values()) if real and isinstance(m, types.ModuleType)]:
        for key, x in list(vars(other).items()):
            if id(x) in real:
                setattr(other, key, real[id(x)])
    marks.clear()
    handed.clear()


# ---- Imports ----

class Later(Loader):
    """Leaves the module as it is made."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        module.__class__ = Deferred


class Finder(MetaPathFinder):
    """While a thread imports the package others get its submodules empty, too: a thread within an import does not wait for
    another one's, which may wait for it."""

    def find_spec(self, name, path, target=None):
        mine = loading and loader[0] == threading.get_ident()
        inside = name.startswith(NAME + ".") and type(sys.modules.get(NAME)) is Deferred
        if mine or name in ALONE or not (name == NAME or inside):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = Later(spec.loader)
        return spec


def defer():
    """From now on torch._dynamo is imported when it is needed, as by torch.compile, not when a package names it: call it
    before transformers is imported, in a process that makes calls of a file. Of torch._dynamo nothing is replaced. Says
    whether it comes in time."""
    if NAME not in sys.modules and not any(isinstance(f, Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    return type(sys.modules.get(NAME)) in (Deferred, type(None))
