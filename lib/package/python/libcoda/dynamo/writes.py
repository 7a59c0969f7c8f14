"""What a node of PyTorch's graph writes to, and which memory it touches. """
import inspect

import torch

from .rules import IN_PLACE

ASSIGNMENTS = {"i" + w for w in "and or xor pow mod lshift rshift floordiv matmul concat".split()}
TENSORS = (torch.Tensor, torch.nn.Parameter, torch._subclasses.FakeTensor)


def word_of(node):
    """The last part of a target's name: `add` of operator.add, of Tensor.add, of aten.add.Tensor."""
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return target.split(".")[0]


def memory_of(node):
    """Memory of what a node makes, by what Dynamo has noted of it; but it has not that dropout gives its argument here."""
    while word_of(node) == "dropout" and isinstance(node.args[0] if node.args else None, torch.fx.Node):
        node = node.args[0]
    x = node.meta.get("example_value")
    all_ = x if isinstance(x, (tuple, list)) else (x,)
    try:
        return {y.untyped_storage()._cdata for y in all_ if type(y) in TENSORS and y.layout is torch.strided}
    except NotImplementedError:  # of a tensor in a transform as torch.func.grad, around which nothing is taken
        return set()


def written_by(node):
    """Tensors that a call writes to, as nodes."""
    word, target = word_of(node), node.target
    schema = getattr(target, "_schema", None) or getattr(getattr(target, "default", None), "_schema", None)
    if schema is not None:
        both = list(zip(schema.arguments, node.args)) + [(a, node.kwargs.get(a.name)) for a in schema.arguments]
        found = [x for a, x in both if a.alias_info is not None and a.alias_info.is_write]
    else:
        found = [node.kwargs.get("out")]
        found += (node.args[:1] or node.all_input_nodes[:1]) if in_place(node, word) else []
    return [x for y in found for x in (y if isinstance(y, (tuple, list)) else (y,)) if isinstance(x, torch.fx.Node)]


def in_place(node, word):
    """Does a call without a schema write to its first argument?"""
    bare = word[2:-2] if word.startswith("__") and word.endswith("__") else word
    if bare in IN_PLACE or bare in ASSIGNMENTS or bare in ("setitem", "copy_"):
        return True
    if word.endswith("_") and not word.endswith("__") and word not in ("and_", "or_", "not_", "is_"):
        return True
    try:
        return bool(inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments.get("inplace"))
    except (TypeError, ValueError):  # a method, or a function without a signature
        return bool(node.kwargs.get("inplace"))


def touched(node):
    """Memory that a node reads, writes or makes."""
    return set().union(memory_of(node), *map(memory_of, node.all_input_nodes))
