"""deferred.py -- packages imported when something of them is wanted first, for processes whose calls are in files.

A model of transformers imports torch._dynamo for a wrapper of masks and for decorators, whoever compiles, and torchvision
for one function; it imports Inductor, SymPy and Triton, seconds in all. Behind defer() that import gives an empty module, as
do its submodules but for those in ALONE, which are read without it. They become the real ones as soon as anybody asks for a
name or sets one: torch.compile does. Three kinds of names do not ask: what only marks a function or a tensor for Dynamo
(MARKS) is noted, and done when Dynamo is there; `disable` is PyTorch's own form of it that asks Dynamo at the call; and a
function of a submodule asks at its call, until Dynamo is there, which then replaces it where a module has it. So it is with
other packages (LATER), of which transformers takes some names that import them when they are used (lazy.py). """
import functools
import re
import sys
import threading
import types
import weakref
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

import torch

from .lazy import source_of, taken

NAME = "torch._dynamo"
LATER = (NAME, "accelerate", "scipy", "sklearn", "torch.distributed._composable.fsdp", "torch.distributed.fsdp",
         "torch.fx.experimental.symbolic_shapes", "torchvision.datasets", "torchvision.models",
         "torchvision.ops")
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
        if (name.startswith("__") and name not in ("__all__", "__version__")) or not fill(self):
            raise AttributeError("module %s has no attribute %r" % (self.__name__, name))
        return getattr(self, name)

    def __setattr__(self, name, value):
        if not name.startswith("__") and not isinstance(value, types.ModuleType) and fill(self):
            return setattr(self, name, value)
        return super().__setattr__(name, value)


def root_of(name):
    """The package of LATER that a module is, or is in; None if there is none."""
    return next((r for r in LATER if name == r or name.startswith(r + ".")), None)


def fill(module):
    """Imports it, behind the package; False if that goes on in this very thread, which then sees what is there so far."""
    with lock:
        if type(module) is not Deferred:
            return True
        name = module.__name__
        if name in loading:
            return False
        root = root_of(name)
        if name != root:
            fill(sys.modules[root])
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
        settle(module)
        return True


# ---- What does not ask for it ----

def asker(frame):
    """The name of the module that asks, be it by an import."""
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("importlib", "_frozen_importlib"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "") if frame is not None else ""


def stand_in(module, name):
    if not module.__name__.startswith(NAME):
        ask = taken(module, name, asker(sys._getframe(2)), fill)
        if ask is not None:
            handed.append((ask, module, name))
        return ask
    if module.__name__ != NAME:
        return lazy_function(module, name) if re.search(r"^def %s\(" % re.escape(name), source_of(module), re.M) else None
    return disable if name == "disable" else marker(name) if name in MARKS else None


def lazy_function(module, name):
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
    """Does what was noted, and puts functions and classes of a package where those are that ask for them."""
    root = root_of(module.__name__)
    if module.__name__ == NAME:
        for name, x, args, kwargs in marks:
            if x() is not None:
                getattr(module, name)(x(), *args, **kwargs)
        marks.clear()
    mine = [h for h in handed if root_of(h[1].__name__) == root and (root == NAME or type(h[1]) is not Deferred)]
    real = {id(ask): getattr(of, name) for ask, of, name in mine if hasattr(of, name)}  # of another version it may have none
    for other in [m for m in list(sys.modules.values()) if real and isinstance(m, types.ModuleType)]:
        for key, x in list(vars(other).items()):
            if id(x) in real:
                setattr(other, key, real[id(x)])
    for h in mine:
        if h in handed:  # a module that was filled above has taken its own
            handed.remove(h)  # one by one: another thread may append


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


class There(Loader):
    """Gives a module that was imported while it was looked for, as it is."""

    def __init__(self, module):
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        module.__spec__ = self.spec


class Finder(MetaPathFinder):
    """While a thread imports the package others get its submodules empty, too: a thread within an import does not wait for
    another one's, which may wait for it."""

    def find_spec(self, name, path, target=None):
        root = root_of(name)
        if root is None or name in ALONE:
            return None
        left = type(sys.modules.get(root)) is Deferred
        if loading and loader[0] == threading.get_ident():
            return self.within(name, root, path) if left and name != root else None
        spec = PathFinder.find_spec(name, path) if left or name == root else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Later(spec.loader)
        return spec

    def within(self, name, root, path):
        """A module of a package that is not there, for one that is being imported: the package comes first."""
        fill(sys.modules[root])
        if name not in sys.modules:
            return None
        spec = PathFinder.find_spec(name, path) or ModuleSpec(name, None)  # a package may make modules that have no file
        spec.loader = There(sys.modules[name])
        return spec


def defer():
    """From now on torch._dynamo, scikit-learn, SciPy, Accelerate, PyTorch's shards and torchvision's models are imported when
    they are needed, as by torch.compile, not when a package names them: call it before transformers is imported, in a process
    that makes calls of a file. Nothing of them is replaced. Says whether it comes in time for torch._dynamo."""
    if NAME not in sys.modules and not any(isinstance(f, Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    return type(sys.modules.get(NAME)) in (Deferred, type(None))
