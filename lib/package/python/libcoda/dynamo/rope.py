"""rope.py -- rotary embeddings: x * cos + cat(-x[D/2:], x[:D/2]) * sin, whose tables were folded, as one operation.

The frequencies are a buffer of the model, so that every kind of scaling (LLaMA 3, YaRN, LongRoPE) needs no formula
here; the tables are compared with theirs. Tables that no buffer explains are no error: then the arithmetic stays as
it is written. """
import torch

from . import layout
from .layout import Tensor
from .state import SAMPLES, Counted


def strip(node):
    while node.word == "reshape":
        node = node.operands[0]
    return node


def made(x, word):
    return x.made[1] if isinstance(x, Tensor) and x.made and x.made[0] == word else None


def by_table(l, x):
    """(tensor, table) of a product with a folded tensor, or with what is made of one argument of integers."""
    def is_table(t):
        return isinstance(t, (torch.Tensor, Counted)) and t.ndim or l.integers.knows(t)
    for a, b in [made(x, "mul") or (None, None)]:
        if isinstance(a, Tensor) and is_table(b):
            return a, b
        if isinstance(b, Tensor) and is_table(a):
            return b, a
    return None, None


def is_half(part, x, upper):
    """Is this the upper or lower half of x's last dimension?"""
    n = part.node
    if n.word != "slice" or strip(n.operands[0]) is not strip(x.node):
        return False
    last = len(n.shape) - 1
    half, whole = n.shape[-1], n.operands[0].shape[-1]
    return n.attributes["axis"] == last and 2 * half == whole == x.shape[-1] and n.attributes["step"] == 1 and \
        n.attributes["start"] == (half if upper else 0) and part.shape == x.shape[:-1] + (half,)


def is_turned(r, x):
    """cat(-upper half, lower half)"""
    parts = made(r, "cat")
    if parts is None or len(parts[0]) != 2 or not all(isinstance(p, Tensor) for p in parts[0]):
        return False
    low, high = parts[0][1], made(parts[0][0], "neg")
    return high is not None and is_half(high[0], x, True) and is_half(low, x, False)


def frequencies(l, cos, sin, places):
    """(frequencies, factor) of tables [T, D], for these T positions, or None."""
    d = cos.shape[1]
    scale = float(torch.hypot(cos.double(), sin.double()).mean())
    place = places.double().cpu()[:, None]
    bar = (1e-4 + (float(place.max()) + 1) * 2.5e-7) if cos.dtype == torch.float32 else 1e-2
    for _, f in l.buffers:
        if f.ndim != 1 or 2 * f.numel() != d or not f.is_floating_point():
            continue
        angle = place * torch.cat((f, f)).double().cpu()
        if max(float((angle.cos() * scale - cos.double().cpu()).abs().max()),
               float((angle.sin() * scale - sin.double().cpu()).abs().max())) <= bar * max(scale, 1):
            return f, scale
    return None


def single(x):
    """Of a single row of tables: the last dimension of x of which it can be, or None."""
    return next((k for k in reversed(range(len(x.dims) - 1)) if x.shape[k] == 1), None)


def table(t, x, one=False):
    """A table's rows [T, D], and which dimension of x they are of; None if they differ otherwise. `one`: it may have
    one row."""
    shape = (1,) * (len(x.dims) - t.ndim) + tuple(t.shape)
    where = [k for k in range(len(shape) - 1) if shape[k] > 1]
    if len(shape) != len(x.dims) or shape[-1] != x.shape[-1]:
        return None, None
    t = t.reshape(shape)
    if not where and one:
        return t.reshape(1, shape[-1]), single(x)
    for k in where:  # equal for all sequences
        if len(where) > 1 and k == 0 and bool((t == t[:1]).all()):
            t, where = t[:1], where[1:]
    if len(where) != 1:
        return None, None
    return t.reshape(t.shape[where[0]], t.shape[-1]), where[0]


def counted(l, cos, sin, x):
    """(dimension of the steps, frequencies, factor, counter) of tables whose positions begin with a counter."""
    if cos.counter != sin.counter:
        return None
    made = []
    for c, s, first in zip(cos.values, sin.values, SAMPLES):
        (c, steps), (s, other) = table(c, x, True), table(s, x, True)
        if c is None or s is None or steps is None or steps != other or c.shape != s.shape:
            return None
        made.append((steps, frequencies(l, c, s, torch.arange(first, first + len(c)))))
    return agreed(made, cos.counter)


def agreed(made, places):
    """(dimension of the steps, frequencies, factor, positions), if all samples say so."""
    if any(f is None or k != made[0][0] or f[0] is not made[0][1][0] for k, f in made):
        return None
    return made[0][0], *made[0][1], places


def steps_of(x, t, places):
    """The dimension of x along which the positions [.., T] count, of which t is a table; None if there is none."""
    n, (b, count) = len(x.dims), ((1,) * 2 + tuple(places))[-2:]
    shape = (1,) * (n - t.ndim) + tuple(t.shape)
    along = [k for k in range(n - 1) if shape[k] > 1 and not (k == 0 and b > 1 and n > 3)]
    if len(shape) != n or shape[-1] != x.shape[-1] or len(along) > 1:
        return None
    if b > 1 and (n < 4 or not shape[0] == b == x.shape[0]):
        return None
    k = along[0] if along else single(x)
    return k if k is not None and shape[k] == count else None


def given(l, cos, sin, x):
    """The same of tables that are made of an argument alone: its numbers are the positions."""
    both = [l.integers.samples(t) for t in (cos, sin)]
    if None in both or both[0][0] is not both[1][0] or not 0 < len(both[0][0].dims) < 3:
        return None
    source, made = both[0][0], []
    for places, c, s in zip(both[0][1], both[0][2], both[1][2]):
        steps = steps_of(x, c, source.shape)
        if steps is None or c.shape != s.shape:
            return None
        rows = [t.reshape(-1, t.shape[-1]) for t in (c, s)]
        if len(rows[0]) != places.numel():
            return None
        made.append((steps, frequencies(l, *rows, places.flatten())))
    return agreed(made, source)


def positions(l, places, shape):
    """A position for each row: from a counter on, along the last dimension, or what an argument says."""
    if isinstance(places, Tensor):
        of = places.shape
        node = l.g.reshape(places.node, of[-1:] if layout.product(of[:-1]) == 1 else of)
        l.g.ahead(node)
        return node
    base = torch.arange(shape[-1]).expand(shape)
    return l.counters.node(Counted(places, [base + s for s in SAMPLES]), "i32")


def turn(l, x, steps, f, scale, rotary, counter=None):
    """The operation, with the dimension `steps` of x and the last one where it wants them. `counter`: its number, or the
    tensor of positions."""
    n = len(x.dims)
    order = [k for k in range(n - 1) if k < steps and k == 0 and n > 3] + [steps]
    order += [k for k in range(n - 1) if k not in order] + [n - 1]
    node = layout.aligned(l.g, x, order)
    at = order.index(steps) + 1
    shape = node.shape[:at] + (layout.product(node.shape[at:]),)
    table = l.tensor(f, torch.float32)
    more = {"rotary": rotary} if rotary != x.shape[-1] else {}
    more.update({"scale": scale} if abs(scale - 1) > 1e-6 else {})
    places = positions(l, counter, shape[:-1]) if counter is not None else None
    turned = l.g.node("rope", [l.g.reshape(node, shape), places, table.node], shape, node.dtype, head_dim=x.shape[-1], half=1,
                      **more)
    return layout.from_aligned(l.g.reshape(turned, node.shape), order, x.dtype)


def matched(l, a, b):
    """The sum of a and b, if that is a rotation."""
    for p, q in ((a, b), (b, a)):
        (x, cos), (r, sin) = by_table(l, p), by_table(l, q)
        if x is None or r is None or not is_turned(r, x):
            continue
        kinds = [next((f for of, f in ((Counted, counted), (Tensor, given)) if isinstance(t, of)), None) for t in (cos, sin)]
        if any(kinds):
            found = kinds[0](l, cos, sin, x) if kinds[0] is kinds[1] else None
            if found is not None:
                steps, f, scale, counter = found
                y = turn(l, x, steps, f, scale, x.shape[-1], counter)
                y.made = ("rope", (x, steps, f, scale, counter), {})
                return y
            continue
        (cos, steps), (sin, other) = table(cos, x), table(sin, x)
        if cos is None or sin is None or steps != other or cos.shape != sin.shape:
            continue
        found = frequencies(l, cos, sin, torch.arange(len(cos)))
        if found is not None:
            y = turn(l, x, steps, *found, x.shape[-1])
            y.made = ("rope", (x, steps, *found, None), {})
            return y
    return None


def partial(l, parts, k):
    """cat(rope(x[..., :r]), x[..., r:]): the rest of each head passes."""
    turned = made(parts[0], "rope")
    if turned is None or len(parts) != 2 or k != len(parts[0].dims) - 1:
        return None
    x, steps, f, scale, counter = turned
    a, b = x.node, parts[1].node
    if a.word != "slice" or b.word != "slice" or strip(a.operands[0]) is not strip(b.operands[0]):
        return None
    whole, r = a.operands[0], x.shape[-1]
    last = len(whole.shape) - 1
    cuts = [[n.attributes[k] for k in ("axis", "start", "stop")] for n in (a, b)]
    if cuts != [[last, 0, r], [last, r, whole.shape[-1]]] or b.operands[0].shape != whole.shape:
        return None
    axis = layout.Axis(whole.shape[-1])
    if len(x.dims[-1]) != 1 or x.axes[-1] is not x.dims[-1][0]:
        return None
    full = Tensor(whole, x.axes[:-1] + [axis], x.dims[:-1] + [[axis]], x.dtype)
    return turn(l, full, steps, f, scale, r, counter)
