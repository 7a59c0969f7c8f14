"""rounding.py -- where a value of 16 bits is rounded. A plan rounds what it stores; in the midst of a kernel a cast to 16 bits
leaves fp32's digits, and none of a model's own casts is worth a store. PyTorch's rounding is seen where a cast to 16 bits
is undone by the next one, as in `x - x.bfloat16().float()`, and where a value is taken for one of two: there is a map that
rounds. """
import torch

from . import layout
from .layout import Tensor

MAPS = {"bf16": "to_bf16", "f16": "to_f16"}
SHORT = {torch.bfloat16, torch.float16}
# Which give one of their operands, or one with the other sign, and so make no digits.
EXACT = {"reshape", "transpose", "slice", "concat", "relu", "abs", "maximum", "minimum", "where", "embedding", "end"}


def origins(node):
    """The nodes of which this one has the digits."""
    seen, stack, out = set(), [node], []
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if n.word in EXACT or n.word == "scale" and n.attributes["alpha"] == -1:
            stack += [x for x in n.operands if x.dtype == n.dtype]
        else:
            out.append(n)
    return out


def is_rounded(node):
    """Was it cast to 16 bits?"""
    return any(n.word == "cast" and n.operands[0].dtype in ("f32", *MAPS) and n.operands[0].dtype != n.dtype
               for n in origins(node))


def is_stored(node):
    """Does it have the digits that memory has?"""
    return all(n.word in ("input", "weight", "state", "append", "constant", *MAPS.values()) for n in origins(node))


def by_map(l, x):
    """x in fp32, rounded to the 16 bits that it is of."""
    wide = layout.unary(l.g, "cast", x, torch.float32, to="f32")
    return layout.unary(l.g, MAPS[x.node.dtype], wide)


def widened(l, x):
    """x ahead of a cast to something else: rounded, if it was cast to 16 bits."""
    return by_map(l, x) if x.dtype in SHORT and x.node.dtype in MAPS and is_rounded(x.node) else x


def exact(l, x):
    """x ahead of what is discontinuous: as PyTorch has it in memory."""
    stored = not isinstance(x, Tensor) or x.dtype not in SHORT or x.node.dtype not in MAPS or is_stored(x.node)
    return x if stored else by_map(l, x)
