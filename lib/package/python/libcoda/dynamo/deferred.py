"""deferred.py -- torch._dynamo imported when something of it is wanted first, for processes whose calls are in files.

A model of transformers imports it for a wrapper of masks and for decorators, whoever compiles; it imports Inductor, SymPy and
Triton, seconds in all. Behind defer() that import gives an empty module, which becomes the real one as soon as anybody asks
it for a name: torch.compile does. Its submodules in ALONE are read without it. What only marks a function or a tensor for
Dynamo (MARKS) is noted, and done when Dynamo is there; `disable` is PyTorch's own form of it that asks Dynamo at the call."""
import functools
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


class Deferred(types.ModuleType):
    """The module, as long as nothing of it is there but its place."""

    def __getattr__(self, name):
        state = self.__dict__["_deferred"]
        if name in (*MARKS, "disable") and not state.busy:
            return state.disable if name == "disable" else state.marker(name)
        if (name.startswith("__") and name != "__all__") or not state.fill(self):
            raise AttributeError("module %s has no attribute %r" % (NAME, name))
        return getattr(self, name)


def noted(x):
    """A call that gives x, unless nobody else has it any more."""
    try:
        return weakref.ref(x)
    except TypeError:
        return lambda: x


class State:
    """How far an import that was put off has come, and marks for when it is done."""

    def __init__(self, loader):
        self.loader, self.lock, self.busy, self.marks = loader, threading.RLock(), False, []

    def marker(self, name):
        def mark(x, *args, **kwargs):
            module = sys.modules[NAME]
            with self.lock:
                if type(module) is Deferred and not self.busy:
                    self.marks.append((name, noted(x), args, kwargs))
                    return None if name == "mark_static_address" else x
            return getattr(module, name)(x, *args, **kwargs)
        return mark

    def disable(self, fn=None, recursive=True, **others):
        if fn is None:
            return functools.partial(self.disable, recursive=recursive, **others)
        module = sys.modules[NAME]
        if type(module) is Deferred and isinstance(fn, types.FunctionType):
            return torch._disable_dynamo(fn, recursive)
        self.fill(module)
        return module.disable(fn, recursive, **others)

    def fill(self, module):
        """Imports it; False if that goes on in this very thread, which then sees what is there so far."""
        with self.lock:
            if self.busy:
                return False
            if type(module) is not Deferred:
                return True
            self.busy = True
            try:
                self.loader.exec_module(module)
                module.__class__ = types.ModuleType
            finally:
                self.busy = False
            del module.__dict__["_deferred"]
            for name, x, args, kwargs in self.marks:
                if x() is not None:
                    getattr(module, name)(x(), *args, **kwargs)
            return True


class Later(Loader):
    """Leaves the module as it is made."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        module._deferred = State(self.loader)
        module.__class__ = Deferred


class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == NAME:
            spec = PathFinder.find_spec(name, path)
            if spec is not None:
                spec.loader = Later(spec.loader)
            return spec
        module = sys.modules.get(NAME)
        # A thread in an import does not wait for another one's, which may wait for it.
        if type(module) is Deferred and name.startswith(NAME + ".") and name not in ALONE and not module._deferred.busy:
            module._deferred.fill(module)
        return None


def defer():
    """From now on torch._dynamo is imported when it is needed, as by torch.compile, not when a package names it: call it
    before transformers is imported, in a process that makes calls of a file. Of torch._dynamo nothing is replaced. Says
    whether it comes in time."""
    if NAME not in sys.modules and not any(isinstance(f, Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    return type(sys.modules.get(NAME, None)) in (Deferred, type(None))
