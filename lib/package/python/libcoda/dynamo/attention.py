"""attention.py -- scaled_dot_product_attention, and the same written out: softmax(q k^T * scale, capped, + mask) v.

A mask that was folded is looked at: causal, a window, nothing; any other one is a bias. One that depends on inputs,
as transformers makes of an attention_mask, is a bias, too. """
import math

import torch

from . import layout, rules, state
from .layout import Tensor
from .text import Refuse

# What a mask has of keys that are not seen, or less. It is finite, so that a row that sees nothing, as a padded one,
# is no NaN, which other rows' zeros would not take away.
HIDDEN = -1e30
SINK = -1e29  # the score of a key of zeros, which has no weight beside any key that is seen, and all of it beside none
LEAST = -1e28  # what a mask of numbers adds to scores, if it is more than -inf: such a key is seen, if only beside hidden ones


def heads_of(x):
    """(axes of the heads that are there, how often each stands) of dimension 1: key heads may be repeated."""
    d = x.dims[1]
    if d and d[-1].stretched:
        return d[:-1], d[-1].size
    return d, 1


def rows_of(l, x):
    """[B, T, heads*D] of [B, heads, T, D], heads that are repeated once; and how many."""
    d, times = heads_of(x)
    if any(a.stretched for a in d):
        raise Refuse("heads that are repeated in two ways")
    x = x.of([x.dims[0], d, x.dims[2], x.dims[3]])
    b, h, t, n = x.shape
    return l.g.reshape(layout.aligned(l.g, x, [0, 2, 1, 3]), (b, t, h * n)), h


def seen_of(mask):
    """A folded mask as what is seen, if that is all that it says."""
    if mask.dtype == torch.bool:
        return mask
    seen = mask > HIDDEN / 2
    return seen if bool((mask[seen] == 0).all()) else None


def shape_of_mask(seen, tq, tk):
    """The attributes that say what is seen of [.., Tq, Tk], or None."""
    rows = seen.reshape(-1, *seen.shape[-2:])
    if not bool((rows == rows[:1]).all()):
        return None
    m = rows[0].expand(tq, tk)
    if bool(m.all()):
        return {}
    whole = torch.ones(tq, tk, dtype=torch.bool, device=m.device)
    causal = whole.tril(tk - tq)
    if torch.equal(m, causal):
        return {"causal": 1}
    window = int(m[-1].sum())
    if window and torch.equal(m, causal & whole.triu(tk - tq - window + 1)):
        return {"causal": 1, "window": window}
    return None


def parted(mask, tq, tk):
    """(attributes, the rest) of a mask that is "and" of a folded one, which attributes say, and of another one, as of
    a causal mask and the keys of each sequence that are no padding."""
    while isinstance(mask, Tensor) and mask.made and mask.made[0] == "expand":
        mask = mask.made[1][0]
    word, args = mask.made[:2] if isinstance(mask, Tensor) and mask.made else ("", ())
    if word == "and_" and len(args) == 2:
        for seen, rest in (args, args[::-1]):
            if isinstance(seen, torch.Tensor) and seen.dtype == torch.bool and isinstance(rest, Tensor):
                said = shape_of_mask(seen.expand(torch.broadcast_shapes(seen.shape, (1, 1))), tq, tk)
                if said is not None:
                    return said, rest
    return {}, mask


def beside_sinks(l, mask):
    """A mask of numbers in which -inf alone is less than a sink."""
    if isinstance(mask, torch.Tensor):
        return mask.float().clamp(min=LEAST).masked_fill(mask.isneginf(), HIDDEN)
    if mask.dtype == torch.float16:  # whose least number is more than that
        return mask
    hidden = rules.RULES["eq"](l, mask, -math.inf)
    return rules.where(l, hidden, torch.tensor(HIDDEN, dtype=mask.dtype), rules.elementwise(l, "maximum", mask, LEAST))


def bias_of(l, mask, q, sinks=None):
    """A node that is added to scores, beside sinks if there are any."""
    if mask.dtype == torch.bool:
        seen = mask
        mask = torch.zeros(seen.shape).masked_fill(~seen, HIDDEN) if isinstance(seen, torch.Tensor) else \
            rules.where(l, seen, torch.zeros(()), torch.full((), HIDDEN))
    elif sinks is not None:
        mask = beside_sinks(l, mask)
    if isinstance(mask, torch.Tensor):
        mask = mask.float()
        while mask.ndim > 2 and mask.shape[0] == 1:
            mask = mask[0]
    mask = l.tensor(mask)
    if mask.dtype not in (torch.float32, q.dtype):
        mask = rules.cast(l, mask, torch.float32)
    dims = [[] if d and all(a.stretched for a in d) else d for d in mask.dims[:-1]] + mask.dims[-1:]
    return layout.plain(l.g, mask.of(dims))  # what is the same for all of a dimension is there once


def shown(l, mask, q, keys):
    """(lengths, bias, sinks) of a mask that is an argument, or made of one: how many keys of each sequence there are up to the
    last one that any query sees, so that no others are read; and what is added to scores. Layers share them."""
    mask = layout.shrunk(mask)
    sinks = sinks_of(l, mask, q.shape[1])
    known = l.masks.get((mask.node, mask.shape)) if layout.is_plain(mask) else None
    if known is None:
        seen = mask if mask.dtype == torch.bool else rules.RULES["gt"](l, mask, HIDDEN / 2)
        count = rules.where(l, seen, torch.arange(1.0, keys + 1), torch.zeros(()))
        over = [d for d in (1, 2) if mask.shape[d] > 1] + [3]  # others are left, that rows are those of the bias
        most = layout.reshape(l.g, rules.RULES["amax"](l, count, over), mask.shape[:1])
        most = layout.expand(most, q.shape[:1])
        if mask.dtype != torch.bool:  # where all of them are hidden, by a number, all are seen
            most = rules.where(l, rules.RULES["gt"](l, most, 0.0), most, torch.full((), float(keys)))
        known = layout.plain(l.g, rules.cast(l, most, torch.int32)), bias_of(l, mask, q, sinks)
        l.g.ahead(*known)
        if layout.is_plain(mask):
            l.masks[mask.node, mask.shape] = known
    return (*known, sinks)


def sinks_of(l, mask, heads):
    """f32 [heads] where a mask may hide all keys of a query, by a boolean or by -inf, of which PyTorch's attention makes 0,
    else None. Layers share them."""
    if mask is None or isinstance(mask, torch.Tensor) and bool((mask if mask.dtype == torch.bool else ~mask.isneginf()).any(-1).all()):
        return None
    if ("sinks", heads) not in l.masks:
        l.masks["sinks", heads] = l.tensor(torch.full((heads,), SINK)).node
    return l.masks["sinks", heads]


def attend(l, q, k, v, mask, scale, softcap=0.0, causal=False, empty_is_zero=False):
    """[B, heads, Tq, D] of tensors of that shape. `empty_is_zero`: a query that sees no key gives 0, not the mean of v."""
    if [len(x.dims) for x in (q, k, v)] != [4, 4, 4]:
        raise Refuse("attention of %s dimensions" % "/".join(str(len(x.dims)) for x in (q, k, v)))
    (b, h, tq, d), (tk, dv) = q.shape, (k.shape[2], v.shape[3])
    if d != dv or k.shape[0] != b:
        raise Refuse("attention with values of %d columns for keys of %d" % (dv, d))
    rows, kv_heads = zip(*(rows_of(l, x) for x in (q, k, v)))
    if kv_heads[0] != h or kv_heads[1] != kv_heads[2] or h % kv_heads[1]:
        raise Refuse("attention of %s heads" % (kv_heads,))
    attributes, operands = {"causal": int(causal)}, []
    if causal and tq != tk:
        attributes["align"] = 1  # is_causal is of the upper left corner
    if isinstance(mask, torch.Tensor):
        seen = seen_of(mask)
        said = shape_of_mask(seen, tq, tk) if seen is not None else None
        if said is not None:
            attributes, mask = dict(attributes, **said), None
    said, mask = parted(mask, tq, tk)
    attributes.update(said)
    if mask is not None:
        sinks = sinks_of(l, mask, h) if empty_is_zero else None
        operands = [None] * 3 + [sinks] + [None] * 4 + [bias_of(l, mask, q, sinks)]
    o = l.g.node("attention", [*rows, *operands], (b, tq, h * d), rows[0].dtype, scale=float(scale), heads=h,
                 kv_heads=kv_heads[1], softcap=softcap or 0, **{k: x for k, x in attributes.items() if x})
    return layout.from_aligned(l.g.reshape(o, (b, tq, h, d)), [0, 2, 1, 3], q.dtype)


def sdpa(l, q, k, v, mask, causal, scale, gqa):
    dtype = rules.promoted(q, k, v)
    q, k, v = (rules.cast(l, l.tensor(x), dtype) for x in (q, k, v))
    if scale is None:
        scale = q.shape[-1] ** -0.5
    if state.is_cache(k) and state.is_cache(v) and not causal:
        argument = isinstance(mask, Tensor) and len(mask.dims) == 4 and mask.shape[3] == k.shape[2]
        return state.attend(l, q, k, v, mask, scale, 0, shown(l, mask, q, k.shape[2]) if argument else None)
    if isinstance(mask, state.Counted):
        mask = l.counters.tensor(mask)
    if isinstance(mask, torch.Tensor) and mask.is_floating_point() and bool(((mask == 0) | mask.isneginf()).all()):
        mask = mask == 0
    lead = len(q.dims) == 3
    if lead:
        q, k, v = (x.of([[]] + x.dims) for x in (q, k, v))
        mask = mask[None] if isinstance(mask, torch.Tensor) and mask.ndim == 3 else mask
    o = attend(l, q, k, v, mask, scale, causal=causal, empty_is_zero=True)
    return o.of(o.dims[1:]) if lead else o


# ---- The same, written out ----

class Scores:
    """What is known of scores: the factor of q k^T, the cap, what was added."""

    def __init__(self, q, k):
        self.q, self.k, self.scale, self.softcap, self.mask = q, k, 1.0, 0.0, None


def number(args):
    """(tensor, number) of an operation with one of each."""
    for a, b in (args[:2], args[1::-1]):
        n = rules.uniform(b)
        if isinstance(a, Tensor) and n is not None:
            return a, n
    return None, None


def capped(x, n):
    """s of tanh(s / n)"""
    inner = x.made[1][0] if x.made and x.made[0] == "tanh" else None
    if inner is None or not inner.made or inner.made[0] not in ("truediv", "mul"):
        return None
    s, by = number(inner.made[1])
    by = 1 / by if s is not None and inner.made[0] == "mul" and by else by
    return s if s is not None and abs(by - n) <= 1e-6 * abs(n) else None


def scores(x):
    if not isinstance(x, Tensor) or not x.made:
        return None
    word, args, _ = x.made
    if word == "matmul":
        q, k = args[:2]
        both = isinstance(q, Tensor) and isinstance(k, Tensor) and len(q.dims) == len(k.dims) == 4
        return Scores(q, layout.permute(k, [0, 1, 3, 2])) if both else None
    if word in ("to", "contiguous", "dropout"):
        return scores(args[0])
    if word in ("mul", "truediv"):
        inner, n = number(args)
        if inner is None or (word == "truediv" and inner is not args[0]):
            return None
        s = capped(inner, n) if word == "mul" else None
        found = scores(s if s is not None else inner)
        if found is None or found.mask is not None or found.softcap:
            return None
        if s is not None:
            found.softcap = n
        else:
            found.scale *= n if word == "mul" else 1 / n
        return found
    if word == "add":
        for a, b in (args[:2], args[1::-1]):
            found = scores(a)
            if found is not None and found.mask is None and isinstance(b, (Tensor, torch.Tensor)):
                found.mask = b
                return found
    if word in ("masked_fill", "where"):
        return hidden(word, args)
    return None


def hidden(word, args):
    """Scores that a condition hides."""
    if word == "masked_fill":
        x, condition, low = args[:3]
        low = rules.uniform(low)
        condition = ~condition if isinstance(condition, torch.Tensor) else None
    else:
        condition, x, low = args[:3]
        low = rules.uniform(low)
    found = scores(x)
    if found is None or found.mask is not None or condition is None or low is None or low > HIDDEN / 2:
        return None
    found.mask = condition
    return found


def matched(l, p, v):
    """The product of p and v, if p is a softmax of scores."""
    while p.made and p.made[0] in ("to", "dropout", "contiguous"):
        p = p.made[1][0]
    if not p.made or p.made[0] != "softmax" or len(v.dims) != 4:
        return None
    args, kwargs = p.made[1:]
    along = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    found = scores(args[0])
    if found is None or along not in (-1, 3):
        return None
    dtype = v.dtype
    q, k = (rules.cast(l, x, dtype) for x in (found.q, found.k))
    try:
        return attend(l, q, k, v, found.mask, found.scale, found.softcap)
    except Refuse:
        return None
