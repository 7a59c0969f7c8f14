"""_convert.py -- arguments of Python as those of the calls in operations.py."""
import ctypes

from . import arrays, c
from .errors import InvalidError, failure

NONE = c.coda_value(0)


class Node:
    """A value of a graph: `graph`, and `c`, the coda_value."""
    __slots__ = ("graph", "c")


def graph_of(nodes):
    for x in nodes:
        if isinstance(x, Node):
            return x.graph
    raise TypeError("none of the operands is a value of a graph")


def number(g, x, like):
    """A constant of the dtype of the operand beside it, or f32 beside an integer."""
    dtype = ctypes.c_int(c.CODA_F32)
    if like is not None:
        c.coda_value_shape(g.handle, like.c, None, ctypes.byref(dtype))
    if dtype.value not in (c.CODA_BF16, c.CODA_F16):
        dtype.value = c.CODA_F32
    return c.coda_constant(g.handle, dtype, x)


def operand(g, x, like=None):
    if isinstance(x, Node):
        if x.graph is not g:
            raise InvalidError("a value of another graph is no operand of this one")
        return x.c
    if x is None:
        return NONE
    if isinstance(x, (int, float)) or hasattr(x, "__float__") and not hasattr(x, "__len__"):
        return number(g, float(x), like)
    raise TypeError("an operand is a value of a graph, a number or None, but not %s" % type(x).__name__)


def operands(g, *list):
    """The graph, and the coda_value of each."""
    g = g or graph_of(list)
    like = next((x for x in list if isinstance(x, Node)), None)
    return (g, *[operand(g, x, like) for x in list])


def values(g, list):
    return (c.coda_value * len(list))(*[operand(g, x) for x in list])


def made(g, value):
    """A result; the graph's mistake, if it is none."""
    if not value.id:
        g.check()
    return g.value(value)


def array(of, numbers):
    return None if numbers is None else (of * len(numbers))(*numbers)


def bytes_of(text):
    return text.encode() if isinstance(text, str) else text


def enum(name, word):
    """A number of an enum, by itself or by its word: "f32", "stacked"; a dtype also as NumPy or PyTorch has it."""
    if isinstance(word, int):
        return word
    words, said = c.ENUMS[name], arrays.short(word) if name == "coda_dtype" else word
    if not isinstance(said, str) or said not in words:
        raise InvalidError("%r is no %s: %s" % (word, name, ", ".join(words)))
    return words[said]


def word(name, number):
    """The word of a number of an enum."""
    return next((w for w, n in c.ENUMS[name].items() if n == number), number)


def pointer(x):
    return ctypes.byref(x) if isinstance(x, ctypes.Structure) else x


def field(g, struct, name, x):
    if name in struct.enums:
        return enum(struct.enums[name], x)
    if isinstance(x, Node) or struct.kinds()[name] is c.coda_value:
        return operand(g, x)
    if isinstance(x, (list, tuple)):
        return struct.kinds()[name](*x)
    return bytes_of(x)


def options_of(g, struct, options):
    """A struct of options from keyword arguments, or NULL without any."""
    if not options:
        return None
    known = struct.kinds()
    for name in options:
        if name not in known or name == "size":
            raise TypeError("%s has no option %r; it has %s" %
                            (struct.__name__, name, ", ".join(n for n in known if n != "size")))
    return ctypes.byref(struct(**{n: field(g, struct, n, x) for n, x in options.items()}))


def text_of(call, *arguments):
    """What a call prints, whatever its length."""
    size = 4096
    while True:
        buffer = ctypes.create_string_buffer(size)
        length = call(*arguments, buffer, size)
        if length < 0:
            raise failure(length)
        if length < size:
            return buffer.value.decode("utf-8", "replace")
        size = length + 1
