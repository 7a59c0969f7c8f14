"""coda.py -- libcoda by ctypes: as much of coda.h as these tests want. Memory is the caller's, as addresses."""
import ctypes
import os
import sys

F32, BF16, F16, I32 = 1, 2, 3, 4
GPU, CPU = 0, 1
OUTPUT = 2  # of coda_arg_kind
HERE = os.path.dirname(os.path.abspath(__file__))


class Value(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint32)]


NONE = Value(0)


def options(name, *fields):
    """A struct whose first field is its size."""
    of = {"p": ctypes.c_void_p, "l": ctypes.c_int64, "i": ctypes.c_int, "f": ctypes.c_float, "v": Value}
    members = [("size", ctypes.c_size_t)] + [(f[2:], of[f[0]]) for f in fields]

    def init(self, **given):
        ctypes.Structure.__init__(self, size=ctypes.sizeof(self), **given)
    return type(name, (ctypes.Structure,), {"_fields_": members, "__init__": init})


Attention = options("Attention", "l:heads", "l:kv_heads", "l:window", "i:causal", "f:scale", "i:align", "l:ahead",
                    "v:ranges", "v:slopes", "v:sinks", "v:table", "f:softcap", "l:page", "i:layout", "v:k_scale",
                    "v:v_scale", "v:starts", "p:score", "f:a", "f:b", "f:c", "f:d", "v:bias")
Rope = options("Rope", "l:head_dim", "l:rotary", "l:heads", "f:base", "i:style", "v:frequencies", "f:scale",
               "i:inverse", "l:s0", "l:s1", "l:s2", "l:s3", "i:interleave")
CrossEntropy = options("CrossEntropy", "i:ignore_index", "i:reduction", "i:ignore_zero")
Compile = options("Compile", "i:device", "i:fold", "i:flags", "p:arch", "p:cache", "i:policy", "i:shapes")


class Argument(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("kind", ctypes.c_int),
                ("dtype", ctypes.c_int), ("rank", ctypes.c_int), ("dims", ctypes.c_int64 * 6),
                ("strides", ctypes.c_int64 * 6), ("bytes", ctypes.c_size_t)]


class Error(Exception):
    pass


def load():
    path = os.environ.get("CODA_LIBRARY", os.path.join(HERE, "..", "..", "build", "libcoda.so"))
    try:
        lib = ctypes.CDLL(path)
    except OSError as e:
        sys.exit("%s: %s: `make` builds the library" % (sys.argv[0], e))
    p, i, v, f = ctypes.c_void_p, ctypes.c_int, Value, ctypes.c_float
    signatures = {
        "input": (v, [p, ctypes.c_char_p, i, i, p]), "weight": (v, [p, ctypes.c_char_p, i, i, p]),
        "matmul": (v, [p, v, v]), "add": (v, [p, v, v]), "mul": (v, [p, v, v]), "bias": (v, [p, v, v]),
        "scale": (v, [p, v, f]), "rms_norm": (v, [p, v, v, f]), "layer_norm": (v, [p, v, v, v, f]),
        "swiglu": (v, [p, v, i]), "geglu": (v, [p, v, i]), "gelu_tanh": (v, [p, v]), "gelu_erf": (v, [p, v]),
        "softmax": (v, [p, v]), "rope": (v, [p, v, v, p]), "attention": (v, [p, v, v, v, v, p]),
        "embedding": (v, [p, v, v]), "cross_entropy": (v, [p, v, v, p]), "slice": (v, [p, v, i] + 3 * [ctypes.c_int64]),
        "reshape": (v, [p, v, i, p]), "tanh": (v, [p, v]), "value_shape": (i, [p, v, p, p]), "cast": (v, [p, v, i]),
        "output": (None, [p, ctypes.c_char_p, v]), "grad": (None, [p, p, p, i, p, i, p, p]),
        "split": (i, [p, i, p, p, p]), "evaluate": (i, [p, p]), "compile": (i, [p, p, p]),
        "run": (i, [p, p, p, p, p]), "graph_new": (p, []), "graph_free": (None, [p]), "graph_status": (i, [p]),
        "graph_args": (i, [p]), "graph_arg": (i, [p, i, p]), "plan_args": (i, [p]), "plan_arg": (i, [p, i, p]),
        "plan_workspace": (ctypes.c_size_t, [p]), "plan_free": (None, [p]), "error": (ctypes.c_char_p, [])}
    for name, (result, arguments) in signatures.items():
        call = getattr(lib, "coda_" + name)
        call.restype, call.argtypes = result, arguments
    return lib


def must(lib, status):
    if status:
        raise Error(lib.coda_error().decode())


def ints(dims):
    return (ctypes.c_int64 * len(dims))(*dims)


class Graph:
    """graph.add(a, b) is coda_add(g, a, b)."""

    def __init__(self, lib, g=None):
        self.lib, self.g = lib, ctypes.c_void_p(g or lib.coda_graph_new())

    def __getattr__(self, name):
        call = getattr(self.lib, "coda_" + name)
        return lambda *args: call(self.g, *args)

    def leaf(self, name, dtype, shape, weight=False):
        return (self.weight if weight else self.input)(name.encode(), dtype, len(shape), ints(shape))

    def shape(self, x):
        dims = (ctypes.c_int64 * 6)()
        return tuple(dims[:self.value_shape(x, dims, None)])

    def gradients(self, y, dy, x):
        """Of one y; None where it does not depend on an x."""
        dx = (Value * len(x))()
        self.grad((Value * 1)(y), (Value * 1)(dy), 1, (Value * len(x))(*x), len(x), dx, None)
        must(self.lib, self.lib.coda_graph_status(self.g))
        return [d if d.id else None for d in dx]

    def parts(self, outputs):
        """coda_split: forward and backward; the graph is freed."""
        part = [ctypes.c_void_p(), ctypes.c_void_p()]
        status = self.lib.coda_split(self.g, outputs, None, ctypes.byref(part[0]), ctypes.byref(part[1]))
        self.free()
        must(self.lib, status)
        return [Graph(self.lib, p.value) for p in part]

    def arguments(self):
        out = []
        for i in range(self.lib.coda_graph_args(self.g)):
            a = Argument(size=ctypes.sizeof(Argument))
            must(self.lib, self.lib.coda_graph_arg(self.g, i, ctypes.byref(a)))
            out.append((a.name.decode(), a.kind, a.dtype, tuple(a.dims[:a.rank])))
        return out

    def evaluated(self, addresses):
        must(self.lib, self.lib.coda_evaluate(self.g, (ctypes.c_void_p * len(addresses))(*addresses)))

    def free(self):
        self.lib.coda_graph_free(self.g)


class Plan:
    def __init__(self, graph, device):
        self.lib, self.p, self.arguments = graph.lib, ctypes.c_void_p(), graph.arguments()
        status = self.lib.coda_compile(ctypes.byref(self.p), graph.g, ctypes.byref(Compile(device=device)))
        graph.free()
        must(self.lib, status)
        self.workspace = self.lib.coda_plan_workspace(self.p)

    def run(self, addresses, workspace, stream=None):
        args = (ctypes.c_void_p * len(addresses))(*addresses)
        must(self.lib, self.lib.coda_run(self.p, args, None, workspace, stream))

    def __del__(self):
        if self.p:
            self.lib.coda_plan_free(self.p)
