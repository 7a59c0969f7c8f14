"""calls.py -- a graph as a list of coda_* calls, with the shapes and dtypes that they will have.

A dtype is f32, bf16, f16, i32 or i64, or T: whatever the run is in. Calls are written as lines that calls.c reads:

    %4 = transpose %3 [0,2,1]
    %5 = leaky_relu %4 (0.01)
    output %5 [3,4]
"""

import math

import numpy as np

MAX_RANK, MAX_CONCAT = 6, 64
INTEGERS = ("i32", "i64")


class Inexpressible(Exception):
    """Says why no calls of the API compute a case."""


class Value:
    def __init__(self, number, dims, dtype):
        self.number, self.dims, self.dtype = number, tuple(int(d) for d in dims), dtype
        if len(self.dims) > MAX_RANK:
            raise Inexpressible("more than 6 dimensions")

    rank = property(lambda self: len(self.dims))
    size = property(lambda self: math.prod(self.dims))


class Call:
    def __init__(self, word, args, ints, floats, value):
        self.word, self.args, self.ints, self.floats, self.value = word, args, ints, floats, value
        self.array = None  # of a leaf


def broadcast(*shapes):
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise Inexpressible("shapes that do not broadcast")


def check_integers(array, dtype):
    if dtype in INTEGERS and array.size and np.abs(array.astype(np.float64)).max() >= 2**24:
        raise Inexpressible("integers of 2^24 and more")


def number(x):
    return repr(float(np.float32(x)))


class Calls:
    def __init__(self):
        self.calls, self.outputs = [], []

    def call(self, word, args, dims, dtype, ints=(), floats=()):
        v = Value(len(self.calls), dims, dtype)
        self.calls.append(Call(word, args, [int(i) for i in ints], list(floats), v))
        return v

    # ---- Leaves ----

    def leaf(self, array, dtype, weight=False):
        array = np.ascontiguousarray(array) if array.ndim else array
        check_integers(array, dtype)
        v = self.call("weight" if weight else "input", [], array.shape, dtype)
        self.calls[-1].array = array
        return v

    def constant(self, array, dtype):
        """What is part of the formula: indices, masks, factors, numbers."""
        array = np.asarray(array)
        if array.ndim == 0:
            check_integers(array, dtype)
            return self.call("constant", [], (), dtype, floats=[array])
        return self.leaf(array, dtype, weight=True)

    def iota(self, *dims):
        return self.constant(np.arange(math.prod(dims), dtype=np.int32).reshape(dims), "i32")

    def output(self, v):
        self.outputs.append(v)

    # ---- Elementwise ----

    def map(self, name, *args, params=()):
        dtype = "f32" if args[0].dtype in INTEGERS else args[0].dtype
        return self.call(name, args, broadcast(*(a.dims for a in args)), dtype, floats=params)

    def where(self, condition, a, b):
        dtype = "f32" if a.dtype == "i32" else a.dtype
        return self.call("where", [condition, a, b], broadcast(condition.dims, a.dims, b.dims), dtype)

    def scale(self, x, alpha):
        return x if alpha == 1 else self.map("scale", x, params=[alpha])

    def affine(self, x, a, b):
        return self.map("affine", x, params=[a, b])

    def cast(self, x, dtype):
        return x if x.dtype == dtype else self.call("cast", [x], x.dims, dtype)

    def floats(self, x):
        """Products, norms and softmax take no integers."""
        return self.cast(x, "f32") if x.dtype in INTEGERS else x

    def expand(self, x, dims):
        dims = broadcast(x.dims, dims)
        return x if x.dims == dims else self.map("left", x, self.constant(np.ones(dims, np.int32), "i32"))

    # ---- Data movement ----

    def reshape(self, x, *dims):
        dims = [int(d) for d in dims]
        if -1 in dims:
            at = dims.index(-1)
            rest = math.prod(dims[:at] + dims[at + 1 :])
            dims[at] = x.size // rest if rest else 0
        return x if tuple(dims) == x.dims else self.call("reshape", [x], dims, x.dtype, dims)

    def transpose(self, x, perm):
        perm = [int(p) for p in perm]
        if perm == list(range(x.rank)):
            return x
        return self.call("transpose", [x], [x.dims[p] for p in perm], x.dtype, perm)

    def slice(self, x, axis, start, stop, step=1):
        if (start, stop, step) == (0, x.dims[axis], 1):
            return x
        dims = list(x.dims)
        dims[axis] = max(0, -(-(stop - start) // step))
        return self.call("slice", [x], dims, x.dtype, [axis, start, stop, step])

    def concat(self, axis, parts):
        if len(parts) == 1:
            return parts[0]
        if len({p.dtype for p in parts}) > 1:
            parts = [self.cast(self.floats(p), "f32") for p in parts]
        while len(parts) > MAX_CONCAT:
            parts = [self.concat(axis, parts[:MAX_CONCAT])] + parts[MAX_CONCAT:]
        dims = list(parts[0].dims)
        dims[axis] = sum(p.dims[axis] for p in parts)
        return self.call("concat", parts, dims, parts[0].dtype, [axis])

    def select_along(self, x, axis, indices):
        """Elements of one axis in any order: runs of equal steps are slices."""
        parts, i = [], 0
        indices = [int(j) for j in indices]
        if not indices:
            return self.slice(x, axis, 0, 0)
        while i < len(indices):
            step = indices[i + 1] - indices[i] if i + 1 < len(indices) else 1
            end = i + 1
            while step > 0 and end < len(indices) and indices[end] - indices[end - 1] == step:
                end += 1
            parts.append(
                self.slice(x, axis, indices[i], indices[end - 1] + 1, max(step, 1) if end > i + 1 else 1)
            )
            i = end
        if len(parts) > 4 * MAX_CONCAT:
            raise Inexpressible("a permutation of more than 256 parts")
        return self.concat(axis, parts)

    def move(self, x, axis, to):
        order = [a for a in range(x.rank) if a != axis]
        order.insert(to, axis)
        return self.transpose(x, order)

    # ---- Rows ----

    def statistic(self, name, x):
        return self.call(name, [x], x.dims[:-1] + (1,), "f32")

    def rows(self, x, axes):
        """x with these axes made one, the last, and the way back for what has a 1 there."""
        kept = [a for a in range(x.rank) if a not in axes]
        t = self.transpose(x, kept + list(axes))
        return self.reshape(t, *[x.dims[a] for a in kept], math.prod(x.dims[a] for a in axes))

    def from_rows(self, y, dims, axes):
        """Inverse of rows(): y has the kept axes and one that is all of `axes`."""
        kept = [a for a in range(len(dims)) if a not in axes]
        order = kept + list(axes)
        y = self.reshape(y, *[dims[a] for a in order])
        return self.transpose(y, [order.index(a) for a in range(len(dims))])

    def over(self, x, axes, f):
        """f of the rows along these axes, back in x's shape."""
        return self.from_rows(f(self.rows(x, axes)), x.dims, axes)

    def softmax(self, x):
        return self.call("softmax", [self.floats(x)], x.dims, x.dtype)

    def first_index(self, x, extreme):
        """The first column that holds the extreme [..., 1] of its row."""
        n = x.dims[-1]
        at = self.where(self.map("equal", x, extreme), self.iota(n), self.constant(n, "i32"))
        return self.scale(self.statistic("row_max", self.scale(at, -1)), -1)

    def pick(self, x, ids):
        """x [..., n] at ids [..., m]: [..., m], by comparing columns; whatever else a row holds."""
        hit = self.map("equal", self.reshape(ids, *ids.dims, 1), self.iota(x.dims[-1]))
        x = self.reshape(x, *x.dims[:-1], 1, x.dims[-1])
        zero = self.constant(0, "i32")
        return self.reshape(self.statistic("row_sum", self.where(hit, x, zero)), *ids.dims)

    # ---- Products ----

    def matmul(self, x, w, kn=False):
        """The last two axes; w has no others, or those of x."""
        x, w = self.floats(x), self.floats(w)
        if x.rank == 1:
            return self.reshape(self.matmul(self.reshape(x, 1, -1), w, kn), -1)
        dims = x.dims[:-1] + (w.dims[-1 if kn else -2],)
        return self.call("matmul_kn" if kn else "matmul", [x, w], dims, x.dtype)

    # ---- Text ----

    def live(self):
        used, todo = set(), [v.number for v in self.outputs]
        while todo:
            n = todo.pop()
            if n not in used:
                used.add(n)
                todo += [a.number for a in self.calls[n].args if a]
        return [c for c in self.calls if c.value.number in used]

    def steps(self):
        views = ("input", "weight", "constant", "reshape", "transpose", "slice")
        return sum(c.word not in views for c in self.live())

    def leaves(self):
        return [c for c in self.live() if c.array is not None]

    def text(self):
        names, lines = {None: "_"}, []
        for c in self.live():
            names[c.value] = f"%{len(names) - 1}"
            words = [names[c.value], "=", c.word] + [names[a] for a in c.args]
            if c.word in ("cast", "constant"):
                words.append(c.value.dtype)
            if c.array is not None:
                words += [c.value.dtype, "[" + ",".join(map(str, c.value.dims)) + "]"]
            elif c.ints or c.word == "reshape":
                words.append("[" + ",".join(map(str, c.ints)) + "]")
            if c.floats:
                words.append("(" + ",".join(number(f) for f in c.floats) + ")")
            lines.append(" ".join(words))
        return lines + [f"output {names[v]} [{','.join(map(str, v.dims))}]" for v in self.outputs]
