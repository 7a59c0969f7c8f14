"""graph.py -- graphs and their values."""
import contextlib
import ctypes
import re
from collections import namedtuple

from . import arrays, c, operations as ops
from ._convert import Node, bytes_of, enum, options_of, text_of, values, word
from .errors import Error, InvalidError, failure, must

# An argument of a plan or a graph: `dims` and `strides` are numbers, or symbolic dimensions of the graph, below -1.
# unread: no run of the plan reads it, once its constants are folded.
Argument = namedtuple("Argument", "name kind dtype dims strides bytes unread", defaults=[False])


def argument(call, *of):
    info = c.coda_arg_info()
    must(call(*of, ctypes.byref(info)))
    n = info.rank
    return Argument(info.name.decode(), word("coda_arg_kind", info.kind), word("coda_dtype", info.dtype),
                    tuple(info.dims[:n]), tuple(info.strides[:n]), info.bytes, bool(info.unread))


def instead_of(name):
    """What is here for an operation that others have by that name, as a message ends: "; here it is silu"."""
    if name.startswith("_"):
        return ""
    if name in ops.__all__:
        return "; libcoda.%s(x) is a function" % name
    if "row_" + name in ops.__all__:
        return "; here it is row_%s" % name
    try:
        Graph("%%x = input f32 [1]\n%%y = %s %%x\n" % name)
    except Error as e:
        found = re.search("; (here it is|do you mean|there (is|are) no) .*", str(e))
        return found.group() if found else ""
    return ""


class Value(Node):
    """A tensor of a graph. Operators are those of NumPy; what has a call in coda.h is a function of the package."""
    __slots__ = ()
    __array_ufunc__ = None  # NumPy leaves operators to us

    def __init__(self, graph, value):
        self.graph, self.c = graph, value

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce_ex__(self, protocol):
        raise TypeError("a value is of a graph in this process: pickle the graph, and find() what has a name")

    # ---- What it is ----

    def _type(self):
        dims, dtype = (ctypes.c_int64 * c.CODA_MAX_RANK)(), ctypes.c_int()
        rank = c.coda_value_shape(self.graph.handle, self.c, dims, ctypes.byref(dtype))
        if rank < 0:
            raise InvalidError("this value is none of its graph's")
        return tuple(dims[:rank]), word("coda_dtype", dtype.value)

    shape = property(lambda self: self._type()[0], doc="Numbers, and symbolic dimensions, which are below -1.")
    dtype = property(lambda self: self._type()[1])
    ndim = property(lambda self: len(self.shape))

    def __repr__(self):
        dims, dtype = self._type()
        return "<libcoda.Value %s[%s]>" % (dtype, ",".join(self.graph.dim_text(d) for d in dims))

    # ---- Operators ----

    def __add__(self, x): return ops.add(self, x)
    def __radd__(self, x): return ops.add(x, self)
    def __sub__(self, x): return ops.sub(self, x)
    def __rsub__(self, x): return ops.sub(x, self)
    def __mul__(self, x): return ops.mul(self, x)
    def __rmul__(self, x): return ops.mul(x, self)
    def __truediv__(self, x): return ops.div(self, x)
    def __rtruediv__(self, x): return ops.div(x, self)
    def __neg__(self): return ops.neg(self)
    def __abs__(self): return ops.abs(self)
    def __lt__(self, x): return ops.less(self, x)
    def __le__(self, x): return ops.less_equal(self, x)
    def __gt__(self, x): return ops.greater(self, x)
    def __ge__(self, x): return ops.greater_equal(self, x)

    def __pow__(self, n):
        power = {2: lambda x: ops.mul(x, x), 0.5: ops.sqrt, -0.5: ops.rsqrt, -1: ops.reciprocal}.get(n)
        return power(self) if power else NotImplemented

    def __matmul__(self, w):
        if isinstance(w, Transposed):
            return ops.matmul(self, w.of)
        return ops.matmul_kn(self, w)

    def __getattr__(self, name):
        raise AttributeError("a value of a graph has no %s%s" % (name, instead_of(name)))

    def __bool__(self):
        raise TypeError("a value of a graph has no truth: it is known when a plan runs")

    @property
    def T(self):
        """The last two dimensions in the other order; x @ w.T is matmul(x, w), which reads w as it lies."""
        return Transposed(self)

    def __getitem__(self, index):
        """Slices with steps above 0, whole numbers, `...` and None, as in NumPy."""
        index = list(index) if isinstance(index, tuple) else [index]
        dims, given = self.shape, sum(i is not None and i is not Ellipsis for i in index)
        if given > len(dims):
            raise IndexError("%d indices for %d dimensions" % (given, len(dims)))
        if not any(i is Ellipsis for i in index):
            index.append(Ellipsis)
        at = next(k for k, i in enumerate(index) if i is Ellipsis)
        index[at:at + 1] = [slice(None)] * (len(dims) - given)
        out, axis, kept = self, 0, []  # of the result: 1, or the number of an axis of `out`
        for i in index:
            if i is None:
                kept.append(None)
                continue
            if isinstance(i, slice):
                kept.append(axis)
                if i != slice(None):
                    out = ops.slice(out, axis, *_bounds(i, dims[axis]))
            elif hasattr(i, "__index__"):
                out = ops.slice(out, axis, *_one(i.__index__(), dims[axis]))
            else:
                raise TypeError("an index is a number, a slice, ... or None, but not %s" % type(i).__name__)
            axis += 1
        if kept == list(range(len(dims))):
            return out
        dims = out.shape
        return ops.reshape(out, [1 if k is None else dims[k] for k in kept])

    def reshape(self, *dims):
        return ops.reshape(self, dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims)

    def transpose(self, *perm):
        if len(perm) == 1 and isinstance(perm[0], (tuple, list)):
            perm = perm[0]
        perm = perm or tuple(range(self.ndim))[::-1]
        if len(perm) != self.ndim:
            raise InvalidError("transpose: %d numbers for %d dimensions" % (len(perm), self.ndim))
        return ops.transpose(self, perm)

    def astype(self, dtype):
        return ops.cast(self, dtype)


def _one(i, size):
    if size >= 0 and not -size <= i < size:
        raise IndexError("index %d of %d elements" % (i, size))
    i = i % size if size > 0 else i
    return i, i + 1, 1


def _bounds(i, size):
    if i.step is not None and i.step <= 0:
        raise InvalidError("a slice's step is above 0, and not %d" % i.step)
    if size >= 0 and all(n is None or n >= -size for n in (i.start, i.stop)):
        return i.indices(size)
    return i.start or 0, size if i.stop is None else i.stop, i.step or 1


class Transposed(Value):
    """w.T: a transposed value where it is no operand of @."""
    __slots__ = ("of", "_made")

    def __init__(self, of):
        self.graph, self.of, self._made = of.graph, of, None

    @property
    def c(self):
        if self._made is None:
            n = self.of.ndim
            if n < 2:
                raise InvalidError("T of %d dimensions: there are no two to change places" % n)
            self._made = ops.transpose(self.of, [*range(n - 2), n - 1, n - 2])
        return self._made.c

    @property
    def T(self):
        return self.of


class Graph(ops.Calls):
    """A formula. Leaves are made by input, weight, state and scalar, results named by output; str(g) is its text."""

    def __init__(self, text=None):
        self.handle = c.coda_graph()
        if text is None:
            self.handle = c.coda_graph_new()
            if not self.handle:
                raise MemoryError("no memory for a graph")
        else:
            must(c.coda_graph_parse(ctypes.byref(self.handle), bytes_of(text)))

    @classmethod
    def owning(cls, handle):
        g = cls.__new__(cls)
        g.handle = handle
        return g

    def __reduce_ex__(self, protocol):
        """A copy is of the text."""
        if self.__dict__.get("kept"):
            raise TypeError("a graph with maps of its own is neither copied nor pickled")
        self.check()
        return Graph, (str(self),)

    def __del__(self, free=c.coda_graph_free):
        if getattr(self, "handle", None):
            free(self.handle)

    def __str__(self):
        return text_of(c.coda_graph_print, self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def value(self, value):
        return Value(self, value)

    def find(self, name):
        """The value of the leaf or output of this name."""
        made = c.coda_graph_find(self.handle, bytes_of(name))
        if not made.id:
            raise failure(c.CODA_E_INVALID)
        return Value(self, made)

    def check(self):
        """Raises the graph's first mistake, if it has one."""
        must(c.coda_graph_status(self.handle))

    def checked(self, number):
        """A dimension, or the status of a call."""
        if number in (-2 ** 63, c.CODA_E_INVALID):
            self.check()
        return number

    def _leaf(self, call, name, dtype, dims, strides):
        if dims is None:  # like an array
            if dtype is None or isinstance(dtype, (str, tuple, list, int, float)):
                raise InvalidError("%s %s: a dtype and dims are wanted, or an array, but not %r alone" %
                                   (call, name, dtype))
            try:
                m = arrays.memory(dtype)
            except InvalidError as e:
                raise InvalidError("%s %s: %s" % (call, name, e)) from None
            dtype, dims, strides = m.dtype, m.shape, m.strides
        if arrays.short(dtype) == "f64":
            raise InvalidError("%s %s: f64 was given%s" % (call, name, arrays.HINT))
        make = getattr(super(), call + ("_strided" if strides is not None else ""))
        return make(name, dtype, dims, *([strides] if strides is not None else []))

    def input(self, name, dtype, dims=None, strides=None):
        """A leaf that a run reads: its dtype and dims, or an array of its type. Strides are in elements."""
        return self._leaf("input", name, dtype, dims, strides)

    def weight(self, name, dtype, dims=None, strides=None):
        """An input whose values change rarely, so that constants may be folded into it."""
        return self._leaf("weight", name, dtype, dims, strides)

    def state(self, name, dtype, dims=None, strides=None):
        """A leaf that a run reads, and writes to by append and assign."""
        return self._leaf("state", name, dtype, dims, strides)

    @contextlib.contextmanager
    def scope(self, name):
        """What is built inside has this prefix, in messages and plans: "layers.17.mlp"."""
        c.coda_scope_push(self.handle, b"%s", ctypes.c_char_p(bytes_of(name)))
        self.check()
        try:
            yield self
        finally:
            c.coda_scope_pop(self.handle)
        self.check()

    def dim_text(self, dim):
        return str(dim) if dim >= 0 else text_of(c.coda_dim_print, self.handle, dim)

    @property
    def args(self):
        return [argument(c.coda_graph_arg, self.handle, i) for i in range(c.coda_graph_args(self.handle))]

    @property
    def symbols(self):
        """(name, least, most, multiple) of each symbolic dimension."""
        out = []
        for i in range(c.coda_graph_symbols(self.handle)):
            info = c.coda_symbol_info()
            must(c.coda_graph_symbol(self.handle, i, ctypes.byref(info)))
            out.append((info.name.decode(), info.least, info.most, info.multiple))
        return out

    def bind(self, *numbers):
        """A new graph, with a number for each symbol."""
        out = c.coda_graph()
        must(
    c.coda_graph_bind(
        ctypes.byref(out),
        self.handle,
        (ctypes.c_int64 *
        len(numbers))(
            *
            numbers),
             len(numbers)))
        return Graph.owning(out)

    def define_map(self, name, source, inputs=1, params=0, reference=None, grad=()):
        """A map of your own, for apply and attention's score; reference(in, params) is for the CPU device."""
        kinds = c.coda_map_def.kinds()
        call = reference
        if reference is not None:
            def call(x, p):
                return reference(x[:inputs], p[:params] if params else [])
        call = kinds["reference"](call) if call else kinds["reference"]()
        made = c.coda_map_def(name=bytes_of(name), source=bytes_of(source), inputs=inputs,
                              params=params, reference=call, grad=kinds["grad"](*map(bytes_of, grad)))
        must(c.coda_define_map(self.handle, ctypes.byref(made)))
        self.__dict__.setdefault("kept", []).append(call)

    def grad(self, y, x, dy=None, **options):
        """Of a value, or a list of them, by each of x: a list, with None where no y depends on an x."""
        y, x = [y] if isinstance(y, Node) else y, [x] if isinstance(x, Node) else x
        dx = (c.coda_value * len(x))()
        dy = [dy] if isinstance(dy, Node) else dy
        c.coda_grad(self.handle, values(self, y), dy and values(self, dy), len(y), values(self, x), len(x), dx,
                    options_of(self, c.coda_grad_options, options))
        self.check()
        return [Value(self, c.coda_value(d.id)) if d.id else None for d in dx]

    def split(self, outputs, keep="products", consume=False, also=()):
        """(forward, backward) of a graph with gradients: coda_split."""
        parts, kept = (c.coda_graph(), c.coda_graph()), values(self, also)
        opt = c.coda_split_options(keep=enum("coda_keep", keep), consume=consume, also=kept, also_count=len(also))
        must(c.coda_split(self.handle, outputs, ctypes.byref(opt), *map(ctypes.byref, parts)))
        return tuple(map(Graph.owning, parts))

    def evaluate(self, *given, **named):
        """In fp64 on the host, without rounding: the yardstick of tests. The results, in the order of outputs."""
        args, kept = self.args, []
        arrays_of = dict(zip([a.name for a in args if a.kind not in ("output", "sum")], given), **named)
        pointers = (ctypes.c_void_p * len(args))()
        for i, a in enumerate(args):
            if a.kind == "scalar":
                kept.append((ctypes.c_float if a.dtype == "f32" else ctypes.c_int32)(arrays_of[a.name]))
                pointers[i] = ctypes.addressof(kept[-1])
                continue
            if a.kind == "output":
                arrays_of[a.name] = arrays.Array(a.dims, "f64")
            if a.name not in arrays_of:
                raise InvalidError("%s %s: no array is given" % (a.kind, a.name))
            try:
                m = arrays.memory(arrays_of[a.name])
            except InvalidError as e:
                raise InvalidError("%s %s: %s" % (a.kind, a.name, e)) from None
            if m.dtype != ("f64" if a.kind in ("output", "sum") else a.dtype) or m.shape != a.dims:
                raise InvalidError("%s %s: %s%s was given for %s%s" %
                                   (a.kind, a.name, m.dtype, list(m.shape), a.dtype, list(a.dims)))
            kept.append(m)
            pointers[i] = m.address
        must(c.coda_evaluate(self.handle, pointers))
        made = [arrays_of[a.name] for a in args if a.kind in ("output", "sum")]
        return made[0] if len(made) == 1 else tuple(made)

    def compile(self, device="gpu", fold="none", flags=0, **options):
        """A Plan. Options are those of coda_compile_options; flags a sum of c.CODA_NO_FUSION and others."""
        from .plan import Plan
        return Plan(self, device=device, fold=fold, flags=flags, **options)
