"""plan.py -- compiled graphs: which array is which argument, and runs."""
import ctypes
import threading
import weakref

from . import arrays, c
from ._convert import enum, options_of, text_of, word
from .errors import InvalidError, failure, must
from .graph import Graph, argument

WRITTEN = ("output", "sum", "state", "consumed")
RESULTS = ("output", "sum")


def stream_of(stream):
    """The address of a stream: a number, a stream of torch or cupy, or what has __cuda_stream__."""
    if stream is None or isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1]
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise TypeError(
    "%s is no stream: a number, or what has __cuda_stream__, cuda_stream or ptr" %
     type(stream).__name__)


def current_stream(module, given):
    """That of the library whose arrays are given; else the one that all of them name."""
    name = getattr(module, "__name__", "")
    if name == "torch":
        return module.cuda.current_stream().cuda_stream
    if name == "cupy":
        return module.cuda.get_current_stream().ptr
    named = {m.stream for m in given if m is not None and m.stream is not None}
    if len(named) > 1:
        raise InvalidError("arrays of %d streams: which one shall the run be on? Give stream=" % len(named))
    return named.pop() if named else None


def reference(x):
    """A weak one to an array, or to what it is a view of: once it is gone another array may have its address."""
    while getattr(x, "base", None) is not None:
        x = x.base
    try:
        return weakref.ref(x)
    except TypeError:
        return lambda: x


class Plan:
    """What coda_compile has made. plan(x, w) runs it: leaves by position, in the order of their making, or by
    name: plan(x=x, w=w), or plan({"x": x, "w": w})."""

    def __init__(self, graph, device="gpu", fold="none", flags=0, **options):
        self.handle = c.coda_plan()
        self._cache = options.get("cache")
        if isinstance(self._cache, Cache):
            options["cache"] = self._cache.handle
        opt = options_of(graph, c.coda_compile_options, dict(options, device=device, fold=fold, flags=flags))
        must(c.coda_compile(ctypes.byref(self.handle), graph.handle, opt))
        self.device = word("coda_device", enum("coda_device", device))
        self.args = [argument(c.coda_plan_arg, self.handle, i) for i in range(c.coda_plan_args(self.handle))]
        self.names = [a.name for a in self.args]
        self.leaves = [i for i, a in enumerate(self.args) if a.kind not in RESULTS]
        self.results = [i for i, a in enumerate(self.args) if a.kind in RESULTS]
        self.symbols = [s[0] for s in graph.symbols]
        self._known = self._plain_symbols(graph) if self.symbols else []
        self._threads, self._prepared = threading.local(), None
        self._maps = graph.__dict__.get("kept")  # references of the caller's maps

    def __del__(self, free=c.coda_plan_free):
        if getattr(self, "handle", None):
            free(self.handle)

    def __copy__(self):
        return self  # nothing changes a plan

    def __deepcopy__(self, memo):
        return self

    def __reduce_ex__(self, protocol):
        raise TypeError("a plan is of this process: pickle its graph, and compile that")

    def _plain_symbols(self, graph):
        """(argument, axis, symbol) where a dimension is a symbol by itself."""
        out = []
        for i, a in enumerate(graph.args):
            for axis, d in enumerate(a.dims):
                if d < 0 and graph.dim_text(d) in self.symbols:
                    out.append((i, axis, self.symbols.index(graph.dim_text(d))))
        return out

    # ---- What it is ----

    def explain(self, what="plan"):
        """Its text: graph, derivation, rewritten, plan, dot, shapes or reasons."""
        return text_of(c.coda_plan_print, self.handle, enum("coda_text", what))

    def __str__(self):
        return self.explain()

    @property
    def stats(self):
        out = c.coda_plan_stats()
        must(c.coda_plan_stats_get(self.handle, ctypes.byref(out)))
        return out

    @property
    def kernels(self):
        """coda_kernel_info of each distinct kernel."""
        out = []
        for i in range(c.coda_plan_kernels(self.handle)):
            out.append(c.coda_kernel_info())
            must(c.coda_plan_kernel(self.handle, i, ctypes.byref(out[-1])))
        return out

    workspace_bytes = property(lambda self: c.coda_plan_workspace(self.handle))
    prepared_bytes = property(lambda self: c.coda_plan_prepared(self.handle))
    prepared_id = property(lambda self: c.coda_plan_prepared_id(self.handle))

    # ---- Runs ----

    def __call__(self, *given, out=None, stream=None, **more):
        """Results: one, or a tuple. They are `out`, by order or by name, or new arrays like those given. On a GPU the
        run is on `stream`, or torch's or cupy's current one, and goes on behind the call."""
        run = Binding(self, given, more, out, stream)
        run()
        return run.result

    def bind(self, *given, out=None, stream=None, **more):
        """The same as a callable without arguments, that costs what the call of C costs. Arrays stay where they are:
        what they hold is read anew at each call, which writes `result` anew. So an array that would have to be
        copied is refused: one that is strided or aligned otherwise than the graph says, or a read-only buffer."""
        return Binding(self, given, more, out, stream, bound=True)

    @property
    def unread(self):
        """Names of leaves that no run reads, as their values are folded. Behind the first call their memory may go, and
        calls are made without them."""
        return [self.names[i] for i in self.leaves if self.args[i].unread]

    def prepare_again(self):
        """Weights hold new values in the memory that they had: the next run folds them anew."""
        self._prepared = None

    def arg_for(self, i, dims):
        return argument(c.coda_plan_arg_for, self.handle, i, dims) if dims is not None else self.args[i]


class Binding:
    """Arrays as the arguments of a plan, checked once; binding() runs it, `result` is what it writes."""

    def __init__(self, plan, given, more, out, stream, bound=False):
        self.plan, self.bound, self.copies = plan, bound, set()
        options = {
    n: more.pop(n) for n in (
        "threads",
        "workspace",
        "prepared",
         "dims") if n in more and n not in plan.names}
        list_ = self.by_name(given, more, out)
        self.module = arrays.module_of(x for x in list_ if x is not None)
        wanted = stream_of(stream)
        self.memories = [self.memory_of(i, x, wanted) if x is not None and plan.args[i].kind != "scalar" else None
                         for i, x in enumerate(list_)]
        self.stream = wanted if stream is not None or plan.device == "cpu" else current_stream(
            self.module, self.memories)
        self.dims = self.solve(options.pop("dims", None))
        self.keep = list_
        self.pointers = (ctypes.c_void_p * len(list_))()
        for i in plan.leaves + plan.results:
            self.pointers[i] = self.place(i)
        results = [self.keep[i] for i in plan.results]
        self.result = results[0] if len(results) == 1 else tuple(results)
        self.call = self.caller(**options)

    def __reduce_ex__(self, protocol):
        raise TypeError("what is bound to arrays is neither copied nor pickled: bind the plan again")

    def fail(self, i, text):
        a = self.plan.args[i]
        raise InvalidError("%s %s: %s" % (a.kind, a.name, text))

    def memory_of(self, i, x, stream):
        try:
            m = arrays.memory(x, stream)
        except InvalidError as e:
            self.fail(i, str(e))
        if m.copied:
            if self.bound:
                self.fail(i, "a read-only buffer is read from a copy, and a bound plan reads arrays where they lie")
            self.copies.add(i)
        return m

    def by_name(self, given, named, out):
        """An array for each argument, or None."""
        plan, list_ = self.plan, [None] * len(self.plan.args)
        if len(given) == 1 and isinstance(given[0], dict):
            given, named = (), dict(given[0], **named)
        if len(given) > len(plan.leaves):
            raise TypeError("%d arrays for %d leaves: %s" %
                            (len(given), len(plan.leaves), ", ".join(plan.names[i] for i in plan.leaves)))
        for i, x in zip(plan.leaves, given):
            list_[i] = x
        if out is not None and not isinstance(out, dict):
            out = list(out) if isinstance(out, (tuple, list)) else [out]
            if len(out) != len(plan.results):
                raise TypeError("out has %d arrays for %d results" % (len(out), len(plan.results)))
            out = {plan.names[i]: x for i, x in zip(plan.results, out)}
        for name, x in [*named.items(), *(out or {}).items()]:
            if name not in plan.names:
                raise TypeError("there is no argument %r: %s" % (name, ", ".join(plan.names)))
            i = plan.names.index(name)
            if list_[i] is not None:
                raise TypeError("the argument %r comes twice" % name)
            list_[i] = x
        for i in plan.leaves:
            if list_[i] is None and not self.may_lack(i):
                self.fail(i, "no array is given")
        return list_

    def may_lack(self, i):
        """Has it been folded, and is not looked at again?"""
        return self.plan.args[i].unread and (self.plan._prepared is not None or not self.plan.prepared_id)

    def solve(self, dims):
        """The symbols' values, from the shapes of the arrays that have them."""
        plan = self.plan
        if not plan.symbols:
            return None
        known = dict(zip(range(len(plan.symbols)), dims)) if dims is not None else {}
        for i, axis, symbol in plan._known:
            m = self.memories[i]
            if m is not None and axis < len(m.shape):
                known.setdefault(symbol, m.shape[axis])
        if len(known) < len(plan.symbols):
            raise InvalidError("no array says what the symbol %s is: give dims=(...)" %
                               next(s for k, s in enumerate(plan.symbols) if k not in known))
        return (ctypes.c_int64 * len(known))(*[known[k] for k in range(len(known))])

    def place(self, i):
        """The address of an argument."""
        a, m = self.plan.arg_for(i, self.dims), self.memories[i]
        if m is None and i in self.plan.leaves and a.kind != "scalar":
            return None
        if a.kind == "scalar":
            box = (ctypes.c_float if a.dtype == "f32" else ctypes.c_int32)(self.keep[i])
            self.keep[i] = box
            return ctypes.addressof(box)
        if m is None:
            return self.fresh(i, a)
        if m.dtype != a.dtype:
            self.fail(i, "%s was given for %s%s" % (m.dtype, a.dtype, arrays.hint(m.dtype, a.dtype)))
        if m.shape != a.dims:
            self.fail(i, "shape %s was given for %s" % (list(m.shape), list(a.dims)))
        on_gpu = self.plan.device == "gpu"
        if (m.device[0] == "cuda") != on_gpu:
            self.fail(i, "the array is on %s, the plan on %s" % (m.device[0], self.plan.device))
        if m.readonly and a.kind in WRITTEN:
            self.fail(i, "the array is read-only, and a run writes to it")
        strides = m.strides or arrays.dense_strides(m.shape)
        if m.address % 16 or any(d > 1 and s != t for d, s, t in zip(a.dims, strides, a.strides)):
            return self.copied(i, a)
        return m.address

    def copied(self, i, a):
        """A leaf that lies otherwise than the graph says, or at an odd address."""
        if self.bound or a.kind in WRITTEN or tuple(a.strides) != arrays.dense_strides(a.dims):
            self.fail(i, "strides %s at an address that is %d modulo 16, where strides %s and a multiple of 16 are "
                      "wanted%s" % (list(self.memories[i].strides or arrays.dense_strides(a.dims)),
                                    self.memories[i].address % 16, list(a.strides),
                                    ": a bound plan copies nothing" if self.bound else ""))
        try:
            self.keep[i] = arrays.contiguous(self.keep[i], self.module)
        except InvalidError as e:
            self.fail(i, str(e))
        self.copies.add(i)
        self.memories[i] = arrays.memory(self.keep[i], self.stream)
        if self.memories[i].address % 16:
            self.keep[i] = arrays.Array(a.dims, a.dtype)
            ctypes.memmove(self.keep[i].memory.address, self.memories[i].address, self.keep[i].nbytes)
            self.memories[i] = self.keep[i].memory
        return self.memories[i].address

    def fresh(self, i, a):
        if a.kind == "sum":
            self.fail(i, "a run adds to it: give the array that it adds to, by name or in out")
        if tuple(a.strides) != arrays.dense_strides(a.dims):
            self.fail(i, "it has strides %s: give the array, by name or in out" % list(a.strides))
        device = ("cuda", 0) if self.plan.device == "gpu" else ("cpu", 0)
        leaves = [self.keep[k] for k in self.plan.leaves]
        self.keep[i] = arrays.empty(self.module, a.dims, a.dtype, device, leaves)
        self.memories[i] = arrays.memory(self.keep[i], self.stream)
        return self.memories[i].address

    # ---- The call ----

    def scratch(self, given, size, what):
        """Memory of the plan's device, aligned to 256 bytes: (address, what keeps it)."""
        if given is not None:
            m = arrays.memory(given, self.stream)
            if arrays.count(m.shape) * arrays.BYTES[m.dtype] < size or m.address % 256:
                raise InvalidError("%s: %d bytes at a multiple of 256 are wanted" % (what, size))
            return m.address, given
        if not size:
            return None, None
        if self.plan.device != "gpu":
            return arrays.host(size)
        if self.module is None:
            raise InvalidError("%s on a GPU wants memory: give %s=, %d bytes, or tensors of torch or cupy" %
                               (what, what, size))
        made = arrays.empty(self.module, (size + 256,), "u8", ("cuda", 0), [self.keep[k] for k in self.plan.leaves])
        return (arrays.memory(made).address + 255) // 256 * 256, made

    def workspace(self, given):
        """One for each thread and plan, but for what is bound to its own."""
        size = c.coda_plan_workspace_for(self.plan.handle,
     self.dims) if self.dims is not None else self.plan.workspace_bytes
        mine = self.plan._threads.__dict__
        if given is not None or mine.get("size", -1) < size:
            made = self.scratch(given, size, "workspace")
            if given is not None:
                return made
            mine["size"], mine["made"] = size, made
        return mine["made"]

    def prepared(self, given, workspace):
        """Folded constants, made anew when a weight lies elsewhere, is gone, or says that it has changed."""
        plan = self.plan
        if not plan.prepared_id:
            return None
        weights = [i for i in plan.leaves if plan.args[i].kind == "weight"]
        now = {i: (self.pointers[i], getattr(self.keep[i], "_version", 0)) for i in weights if self.keep[i] is not None}
        if self.copies.intersection(weights):  # the next copy may lie where this one did
            now = None
        made = plan._prepared
        same = made is not None and now is not None and made[0] is not None and \
            all(made[0].get(i) == x and made[2][i]() is not None for i, x in now.items())
        if not same or given is not None:
            for i in weights:
                if self.keep[i] is None:
                    self.fail(i, "weights are folded anew, as another one has changed, and this one is not given")
            memory = self.scratch(given, plan.prepared_bytes, "prepared")
            must(c.coda_prepare(plan.handle, self.pointers, memory[0], workspace, self.stream))
            plan._prepared = made = (now, memory, {i: reference(self.keep[i]) for i in weights})
        self.constants = made[1]  # the plan's next ones may be others
        return made[1][0]

    def caller(self, threads=0, workspace=None, prepared=None):
        self.room = self.workspace(workspace)
        constants = self.prepared(prepared, self.room[0])
        arguments = (self.plan.handle, self.pointers, constants, self.room[0], self.stream)
        if self.dims is None and not threads:
            run = c.coda_run
        else:
            run = c.coda_run_shaped
            count = 0 if self.dims is None else len(self.dims)
            arguments += (ctypes.byref(c.coda_run_options(dims=self.dims, dim_count=count, threads=threads)),)

        def call():
            status = run(*arguments)
            if status:
                raise failure(status)
        return call

    def __call__(self):
        self.call()
        return self.result


class Cache:
    """A cache of kernels of your own: options are those of coda_cache_options."""

    def __init__(self, **options):
        self.handle = c.coda_cache()
        must(c.coda_cache_open(ctypes.byref(self.handle), options_of(None, c.coda_cache_options, options)))

    def __del__(self, free=c.coda_cache_free):
        if getattr(self, "handle", None):
            free(self.handle)

    @property
    def stats(self):
        out = c.coda_cache_stats()
        must(c.coda_cache_stats_get(self.handle, ctypes.byref(out)))
        return out


RUN_OPTIONS = ("out", "stream", "threads", "workspace", "prepared", "dims")


class jit:
    """@jit(device="cpu", weights=("w",)): a function of values becomes one of arrays, by position or by name. Each set
    of shapes, dtypes and strides has its plan."""

    def __init__(self, function=None, *, device="gpu", weights=(), **options):
        self.function, self.device = function, device
        self.weights = (weights,) if isinstance(weights, str) else tuple(weights)
        self.options, self.plans = options, {}
        if function is not None:
            self.named(function)

    def named(self, function):
        import inspect  # here, so that who has no such function does not wait for it
        if not callable(function):
            raise TypeError("jit wants a function, and not %s" % type(function).__name__)
        self.function, self.__doc__ = function, function.__doc__
        name = getattr(function, "__name__", "")  # functools.partial has none
        self.__name__ = name if name.isidentifier() and name.isascii() else "output"  # such as <lambda>
        self.signature = inspect.signature(function)
        kinds = {n: p.kind for n, p in self.signature.parameters.items()}
        self.many = [n for n, k in kinds.items() if k == inspect.Parameter.VAR_POSITIONAL]
        self.named_many = [n for n, k in kinds.items() if k == inspect.Parameter.VAR_KEYWORD]
        for n in self.weights:
            if n not in kinds and not self.named_many:
                raise TypeError("weights: %r is no argument of %s%s" % (n, self.__name__, self.signature))

    def arguments(self, given, named):
        """(arguments of the function, as inspect has them, [(name, parameter, array)] in its order)."""
        try:
            bound = self.signature.bind(*given, **named)
        except TypeError as e:
            raise TypeError("%s%s: %s" % (self.__name__, self.signature, e)) from None
        out = []
        for n, x in bound.arguments.items():
            if n in self.many:
                out += [("%s.%d" % (n, k), n, y) for k, y in enumerate(x)]
            elif n in self.named_many:
                out += [(k, k, y) for k, y in x.items()]
            else:
                out.append((n, n, x))
        return bound, out

    def built(self, bound, leaves):
        """What the function makes of these leaves in place of its arrays."""
        rest = iter(leaves)
        for n, x in list(bound.arguments.items()):
            if n in self.many:
                bound.arguments[n] = tuple(next(rest) for _ in x)
            elif n in self.named_many:
                bound.arguments[n] = {k: next(rest) for k in x}
            else:
                bound.arguments[n] = next(rest)
        made = self.function(*bound.args, **bound.kwargs)
        return made if isinstance(made, (tuple, list)) else [made]

    def type_of(self, name, x):
        try:
            m = arrays.memory(x)
        except InvalidError as e:
            raise InvalidError("input %s: %s" % (name, e)) from None
        return m.dtype, m.shape, m.strides

    def plan(self, *given, **named):
        """The plan of arrays like these."""
        return self.planned(*self.arguments(given, named))

    def planned(self, bound, list_):
        types = tuple((n, *self.type_of(n, x)) for n, _, x in list_)
        if types not in self.plans:
            g = Graph()
            leaves = [g._leaf("weight" if of in self.weights else "input", *type_)
                      for (_, of, _), type_ in zip(list_, types)]
            for k, v in enumerate(self.built(bound, leaves)):
                g.output("%s.%d" % (self.__name__, k), v)
            self.plans[types] = g.compile(self.device, **self.options)
        return self.plans[types]

    def __call__(self, *given, **named):
        if self.function is None:
            self.named(*given)
            return self
        known = self.signature.parameters
        options = {n: named.pop(n) for n in RUN_OPTIONS if n in named and n not in known}
        bound, list_ = self.arguments(given, named)
        return self.planned(bound, list_)(*[x for _, _, x in list_], **options)
