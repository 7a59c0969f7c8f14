"""form.py -- what a call and a model are known by, in files of saved.py: forms of calls, digests of modules."""
import hashlib
import sys

import torch

from ..errors import UnsupportedError

PLAIN = (bool, int, float, str, type(None), torch.dtype)
NOTES = {"_is_torch_compile", "_compiled_call_impl", "_original_object_hash"}  # notes of a process in modules


# ---- Forms ----

class Form:
    """What a call is known by: `key`, and its tensors and objects in the order in which they are met. A tensor or an
    object that comes again is named by its number."""

    def __init__(self, where, args, kwargs):
        self.where, self.numbers, self.tensors, self.objects, self.path = where, {}, [], [], []
        given = [("argument %d" % k, x) for k, x in enumerate(args)], sorted(kwargs.items())
        self.key = tuple([tuple([(k, self.at(k, x)) for k, x in list_]) for list_ in given])

    def at(self, name, x):
        self.path.append(str(name))
        made = self.of(x)
        self.path.pop()
        return made

    def of(self, x):
        if type(x) in PLAIN:
            return type(x).__name__, x
        known = self.numbers.get(id(x))
        if known is not None:
            return "again", known
        if isinstance(x, torch.Tensor):
            self.numbers[id(x)] = len(self.numbers)
            self.tensors.append(x)
            if x.is_neg():
                raise UnsupportedError("%s of a call is a view of numbers with the other sign" % ".".join(self.path))
            place = "here" if x.device == self.where else str(x.device)
            return type(x).__name__, x.dtype, place, tuple(x.shape), str(x.layout)
        if type(x) in (list, tuple):
            return type(x).__name__, tuple([(str(k), self.at(k, y)) for k, y in enumerate(x)])
        if type(x) is dict:
            return "dict", tuple([(k, self.at(k, y)) for k, y in x.items()])
        if isinstance(x, torch.device):
            return "device", "here" if x == self.where else str(x)
        if not hasattr(x, "__dict__") or callable(x):
            raise UnsupportedError("%s of a call is a %s, of which no file says what it is" %
                                   (".".join(self.path), type(x).__name__))
        self.numbers[id(x)] = len(self.numbers)
        self.objects.append(x)
        return class_of(x), tuple([(k, self.at(k, y)) for k, y in sorted(vars(x).items())])


def class_of(x):
    return "%s:%s" % (type(x).__module__, type(x).__qualname__)


def sized(key, saved):
    """The value of T with which the saved key is this one; 0 if it has none there; None if they differ."""
    if saved == "T" and isinstance(key, int):
        return key
    if not isinstance(key, tuple) or not isinstance(saved, tuple) or len(key) != len(saved):
        return 0 if type(key) is type(saved) and key == saved else None
    values = [sized(a, b) for a, b in zip(key, saved)]
    if None in values or len({v for v in values if v}) > 1:
        return None
    return max(values, default=0)


def difference(key, saved, path=""):
    """The first thing in which they differ, in words."""
    if isinstance(key, tuple) and isinstance(saved, tuple) and len(key) == len(saved):
        for k, (a, b) in enumerate(zip(key, saved)):
            named = isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], str) and isinstance(a[1], tuple)
            found = difference(a, b, (path and path + ".") + a[0] if named else
                               "%s on axis %d" % (path, k) if isinstance(key[0], int) else path)
            if found:
                return found
        return ""
    if saved == "T" and isinstance(key, int) or type(key) is type(saved) and key == saved:
        return ""
    return "%s is %s, and %s was saved" % (path or "the call", key, saved)


# ---- Models ----

def code_of(kind):
    """What the methods of a class do, as bytes."""
    made = hashlib.sha256()
    for name, f in sorted(vars(kind).items()):
        code = getattr(f, "__code__", None)
        if code is not None:
            numbers = [x for x in code.co_consts if isinstance(x, (int, float, str, bytes))]
            made.update(repr((name, code.co_code, code.co_names, numbers)).encode())
    return made.hexdigest()


def plain(x):
    if type(x) in (tuple, list):
        return all(map(plain, x))
    return type(x) in PLAIN or type(x) is dict and all(map(plain, x.values()))


def numbers_of(x, memo):
    """The attributes of a module, or of an object that it has, such as a configuration, which are numbers and words."""
    if id(x) not in memo:
        made = [(k, v) for k, v in vars(x).items() if plain(v) and k not in NOTES]
        if isinstance(x, torch.nn.Module):
            made += [(k, numbers_of(v, memo)) for k, v in vars(x).items()
                     if hasattr(v, "__dict__") and not callable(v) and not isinstance(v, torch.Tensor)]
        memo[id(x)] = repr(sorted(made, key=lambda p: p[0]))
    return memo[id(x)]


def digests(model):
    """Of each module, what a graph knows of it without looking at a tensor's elements."""
    first, made, codes, memo = {}, {}, {}, {}
    for name, m in model.named_modules():
        for kind in type(m).__mro__[:-1]:
            if not kind.__module__.startswith("torch.") and kind not in codes:
                codes[kind] = code_of(kind)
        tensors = [(k, first.setdefault(id(x), "%s.%s" % (name, k)), tuple(x.shape), str(x.dtype))
                   for group in (m._parameters, m._buffers) for k, x in group.items() if x is not None]
        code = [codes[k] for k in type(m).__mro__ if k in codes]
        made[name] = hashlib.sha256(repr((class_of(m), tensors, numbers_of(m, memo), code)).encode()).hexdigest()
    return made


def versions(model):
    """Of the packages whose code a graph is of."""
    roots = {t.__module__.split(".")[0] for m in model.modules() for t in type(m).__mro__} | {"libcoda", "torch"}
    return {r: str(v) for r in sorted(roots) for v in [getattr(sys.modules.get(r), "__version__", None)] if v}


def hooks_of(model):
    """Dictionaries of its hooks."""
    return [h for m in model.modules() for h in (m._forward_hooks, m._forward_pre_hooks)]


def tensors_of(model):
    """The names of each parameter and buffer, by its id."""
    made = {}
    for list_ in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, x in list_:
            made.setdefault(id(x), []).append(name)
    return made


def holder_of(model, name):
    """The dictionary that has this parameter or buffer, and the key."""
    path, _, last = name.rpartition(".")
    m = model.get_submodule(path)
    return (m._parameters if last in m._parameters else m._buffers), last


def device_of(model, form=None):
    own = model.values() if isinstance(model, dict) else (*model.parameters(), *model.buffers())
    for x in (*own, *(form.tensors if form else ())):
        return x.device
    return torch.device("cpu")


def digest(x):
    return hashlib.sha256(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest() \
        if x.numel() else ""
