"""lazy.py -- functions and classes of packages that are imported when they are first used (lazy imports).

transformers imports scikit-learn, and with it SciPy and pandas, for a function of assisted decoding, and PyTorch's shards,
which import SymPy for sizes that are symbols. TAKEN is what one package takes of another one in this way."""
import re
import typing

TAKEN = {(by, module): names.split() for by, of in {
    "transformers": {
        "accelerate": "PartialState dispatch_model",
        "accelerate.hooks": "AlignDevicesHook add_hook_to_module remove_hook_from_module",
        "accelerate.utils": "extract_model_from_parallel get_balanced_memory get_max_memory infer_auto_device_map reduce",
        "accelerate.utils.modeling": "clean_device_map get_max_layer_size",
        "scipy.optimize": "linear_sum_assignment",
        "sklearn.metrics": "roc_curve",
        "torch.distributed._composable.fsdp": "fully_shard",
        "torch.distributed.fsdp": "CPUOffloadPolicy FullyShardedDataParallel MixedPrecisionPolicy"},
    "torch.distributed.tensor": {
        "torch.fx.experimental.symbolic_shapes": "GuardOnDataDependentSymNode statically_known_true"},
}.items() for module, names in of.items()}
RAISED = ("GuardOnDataDependentSymNode",)  # exceptions, of which none is raised as long as the module is not there


class LazyName:
    """Has the place of a function or a class, `name` of a module or of another one. Nothing is an instance of a class that
    is not there yet; every other question imports the module."""

    def __init__(self, of, name, fill):
        self.__dict__.update(_of=of, _name=name, _fill=fill, __name__=name)

    def _real(self):
        of = self._of
        if isinstance(of, LazyName):
            return getattr(of._real(), self._name)
        self._fill(of)
        return getattr(of, self._name)

    def _here(self):
        """The real one, if it is there; nothing is imported for it."""
        return vars(self._of).get(self._name) if not isinstance(self._of, LazyName) else None

    def __call__(self, *args, **kwargs):
        return self._real()(*args, **kwargs)

    def __reduce__(self):
        """A copy of it, or what is read from a pickle of it, is the real one."""
        return typing.cast, (None, self._real())

    def __getattr__(self, name):
        if not isinstance(self._of, LazyName) and self._here() is None:
            if name.startswith("__"):  # as typing asks of whatever it is given
                raise AttributeError("%s, which is not imported, has no %s" % (self._name, name))
            if re.search(r"^ +def %s\(" % re.escape(name), source_of(self._of), re.M):
                return LazyName(self, name, self._fill)
        return getattr(self._real(), name)

    def __setattr__(self, name, value):
        setattr(self._real(), name, value)

    def __instancecheck__(self, x):
        real = self._here()
        return real is not None and isinstance(x, real)

    def __subclasscheck__(self, x):
        real = self._here()
        return real is not None and issubclass(x, real)

    def __mro_entries__(self, bases):
        return (self._real(),)

    def __or__(self, other):
        return typing.Union[self, other]

    def __ror__(self, other):
        return typing.Union[other, self]


def source_of(module):
    get = getattr(module.__loader__, "get_source", None)
    return (get and get(module.__name__)) or ""


def taken(module, name, by, fill):
    """What the module `by` gets of one that is not there; None if it wants the real one."""
    for (of, other), names in TAKEN.items():
        if other == module.__name__ and name in names and (by + ".").startswith(of + "."):
            return type(name, (Exception,), {}) if name in RAISED else LazyName(module, name, fill)
    return None
