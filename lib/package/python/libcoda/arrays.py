"""arrays.py -- tensors of others: what lies where, by the protocols that arrays have; and a tensor of our own.

memory(x) reads __cuda_array_interface__, __array_interface__, __dlpack__ or the buffer protocol, in this order, and
copies nothing. An Array is memory with a type, which offers the same protocols; empty() makes arrays as those given
are.
"""
import ctypes
import sys
from collections import namedtuple

from . import dlpack
from .errors import InvalidError

# strides in elements, None where dense; device ("cpu", 0) or ("cuda", n);
# stream: on which its data are in order, or None; copied: these are not the bytes that x has, but a copy of them
Memory = namedtuple("Memory", "address dtype shape strides device readonly stream keep copied", defaults=[False])

BYTES = {"f32": 4, "bf16": 2, "f16": 2, "i32": 4, "i64": 8, "f8e4m3": 1, "f8e5m2": 1, "i8": 1, "u8": 1, "f64": 8}
TYPESTR = {"f4": "f32", "f2": "f16", "f8": "f64", "i4": "i32", "i8": "i64", "i1": "i8", "u1": "u8"}
NAMED = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}  # of ml_dtypes
FORMATS = {"f": "f32", "d": "f64", "e": "f16", "i": "i32", "q": "i64", "l": "i64", "b": "i8", "B": "u8", "c": "u8"}
NUMPY = {"f32": "float32", "f16": "float16", "f64": "float64", "i32": "int32", "i64": "int64", "i8": "int8",
         "u8": "uint8", "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}  # and torch's

HINT = ", and float64 is not computed: astype(\"f4\") makes float32 of it"  # NumPy's default, so a common mistake


SHORT = {long: word for word, long in NUMPY.items()}


def short(dtype):
    """The word of a dtype: of "float32", numpy.float32, numpy.dtype("f4"), torch.float32."""
    if not isinstance(dtype, str):
        dtype = getattr(dtype, "__name__", None) or getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
    return SHORT.get(dtype, dtype)


def hint(given, wanted):
    """How to give what was asked for, to one who gave another dtype."""
    return HINT if given == "f64" else ": astype(\"%s\") converts it" % NUMPY[wanted]


def dense_strides(shape):
    out, n = [], 1
    for d in reversed(shape):
        out.append(n)
        n *= d
    return tuple(reversed(out))


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def element_strides(shape, strides, size):
    """From bytes to elements; None if dense, or if nothing is there."""
    if strides is None or 0 in shape:
        return None
    dense = dense_strides(shape)
    strides = tuple(t * size if d == 1 else s for d, s, t in zip(shape, strides, dense))  # of 1 element any will do
    if any(s < 0 for s in strides):
        raise InvalidError("negative strides are not supported, and these are %s%s: copy the array" %
                           (list(strides), " bytes" if size > 1 else ""))
    if any(s % size for s in strides):
        raise InvalidError("strides of %s bytes are not multiples of an element's %d bytes: copy the array" %
                           (list(strides), size))
    out = tuple(s // size for s in strides)
    return None if all(d == 1 or a == b for d, a, b in zip(shape, out, dense)) else out


def from_interface(x, given, device):
    """NumPy's interface, and that of CUDA arrays, versions 2 and 3."""
    kind, name = given["typestr"], getattr(getattr(x, "dtype", None), "name", "")
    dtype = NAMED.get(name) or TYPESTR.get(kind[1:])
    if kind[0] == ">":
        raise InvalidError("an array of %s is big-endian, which is not supported: astype(\"<%s\") makes a copy that "
                           "is not" % (kind, kind[1:]))
    if dtype is None:
        raise InvalidError("an array of %s: libcoda takes %s" % (name or kind, ", ".join(list(BYTES)[:-1])))
    if given.get("mask") is not None:
        raise InvalidError("an array with a mask: libcoda takes none")
    address, readonly = given["data"]
    shape = tuple(given["shape"])
    stream = given.get("stream")
    return Memory(address or 0, dtype, shape, element_strides(shape, given.get("strides"), BYTES[dtype]), device,
                  bool(readonly), stream, x)


def from_buffer(x):
    try:
        view = memoryview(x)
    except TypeError:
        raise InvalidError(
    "%s is no array: it has neither __array_interface__, __cuda_array_interface__, __dlpack__ nor "
    "a buffer" %
     type(x).__name__) from None
    if view.format[0] in ">!":
        raise InvalidError("a buffer of format %r is big-endian, which is not supported" % view.format)
    dtype = FORMATS.get(view.format.lstrip("@=<"))
    if dtype is None or BYTES[dtype] != view.itemsize:
        raise InvalidError("a buffer of format %r: libcoda takes %s" % (view.format, ", ".join(list(BYTES)[:-1])))
    if not view.contiguous:
        raise InvalidError("a buffer with strides of %s bytes is not contiguous: copy it" % list(view.strides))
    hold, copied = None, view.readonly and view.nbytes > 0
    if copied:  # ctypes gives no address of what is read-only
        hold = ctypes.create_string_buffer(view.tobytes(), view.nbytes)
    elif view.nbytes:
        hold = ctypes.c_char.from_buffer(view)
    address = ctypes.addressof(hold) if hold is not None else 0
    return Memory(address, dtype, tuple(view.shape), None, ("cpu", 0), view.readonly, None, (x, view, hold), copied)


def from_torch(x, torch):
    """A tensor of torch, without a capsule for each."""
    if x.requires_grad and torch.is_grad_enabled():
        raise InvalidError("a tensor that requires a gradient, of which a plan makes none: torch.no_grad(), or a "
                           "torch.autograd.Function of the plans of Graph.split")
    dtype = next((k for k, v in NUMPY.items() if x.dtype is getattr(torch, v, None)), None)
    if dtype is None or x.device.type not in ("cpu", "cuda") or x.layout is not torch.strided:
        raise InvalidError("a tensor of %s, %s on %s: libcoda takes %s, strided, on the host or CUDA" %
                           (x.dtype, x.layout, x.device.type, ", ".join(list(BYTES)[:-1])))
    strides = None if x.is_contiguous() else element_strides(tuple(x.shape), x.stride(), 1)
    return Memory(x.data_ptr(), dtype, tuple(x.shape), strides, (x.device.type, x.device.index or 0), False, None, x)


def memory(x, stream=None):
    """What x is. `stream`: the one on which it will be read, for producers that have to wait."""
    if isinstance(x, Array):
        return x.memory
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, getattr(torch, "Tensor", ())):
        return from_torch(x, torch)
    given = getattr(x, "__cuda_array_interface__", None)
    if given is not None:
        return from_interface(x, given, ("cuda", getattr(getattr(x, "device", None), "index", None) or 0))
    given = getattr(x, "__array_interface__", None)
    if isinstance(given, dict):
        return from_interface(x, given, ("cpu", 0))
    if hasattr(x, "__dlpack__"):
        t = dlpack.read(x, stream)
        strides = None if t.strides is None else element_strides(t.shape, t.strides, 1)
        return Memory(t.address, t.dtype, t.shape, strides, t.device, t.readonly, None, t.keep)
    return from_buffer(x)


def filled(shape, dtype, content):
    made = Array(shape, dtype)
    ctypes.memmove(made.memory.address, content, len(content))
    return made


class Array:
    """Memory with a type. Without an address it is memory of the host that the array owns, aligned to 256 bytes."""
    __slots__ = ("memory", "__weakref__")

    def __init__(self, shape, dtype="f32", address=None, device=("cpu", 0), strides=None, owner=None, readonly=False,
                 stream=None):
        if dtype not in BYTES:
            raise InvalidError("%r is no dtype: %s" % (dtype, ", ".join(BYTES)))
        shape = tuple(shape)
        if address is None:
            if device[0] != "cpu":
                raise InvalidError(
                    "memory of a device is the caller's: give an address, or a tensor of torch or cupy")
            address, owner = host(count(shape) * BYTES[dtype])
        self.memory = Memory(address, dtype, shape, strides, device, readonly, stream, owner)

    def __reduce_ex__(self, protocol):
        """A copy has memory of its own."""
        m = self.memory
        if m.device[0] != "cpu" or m.strides not in (None, dense_strides(m.shape)):
            raise TypeError("an array that is strided or on a device is neither copied nor pickled")
        return filled, (m.shape, m.dtype, ctypes.string_at(m.address, self.nbytes))

    shape = property(lambda self: self.memory.shape)
    dtype = property(lambda self: self.memory.dtype)
    device = property(lambda self: self.memory.device)
    nbytes = property(lambda self: count(self.shape) * BYTES[self.dtype])

    def __repr__(self):
        return "<libcoda.Array %s[%s] on %s>" % (self.dtype, ",".join(map(str, self.shape)), self.device[0])

    def __len__(self):
        if not self.shape:
            raise TypeError("an array of rank 0 has no length")
        return self.shape[0]

    def _interface(self, device):
        m = self.memory
        typestr = {v: "<" + k for k, v in TYPESTR.items()}.get(m.dtype)
        if m.device[0] != device or typestr is None:
            raise AttributeError("no array interface of %s on %s" % (m.dtype, m.device[0]))
        strides = None if m.strides is None else tuple(s * BYTES[m.dtype] for s in m.strides)
        return {"shape": m.shape, "typestr": typestr if BYTES[m.dtype] > 1 else "|" + typestr[1:],
                "data": (m.address, m.readonly), "strides": strides, "version": 3}

    @property
    def __array_interface__(self):
        return self._interface("cpu")

    @property
    def __cuda_array_interface__(self):
        return dict(self._interface("cuda"), stream=self.memory.stream)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy:
            raise BufferError("libcoda does not copy arrays")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("libcoda does not move arrays to device %s" % (dl_device,))
        return dlpack.write(self, max_version)

    def __dlpack_device__(self):
        return dlpack.device_of(self.device)

    def view(self):
        """A memoryview of what lies on the host, without a stride."""
        m = self.memory
        form = {v: k for k, v in FORMATS.items() if k not in "lc"}.get(m.dtype)
        if m.device[0] != "cpu" or m.strides is not None or form is None:
            raise InvalidError("no view of %r: its memory is no plain one of the host" % self)
        raw = (ctypes.c_char * self.nbytes).from_address(m.address)
        raw.owner = self
        plain = memoryview(raw).cast("B")
        return plain.cast(form, m.shape) if count(m.shape) else plain.cast(form)

    def tolist(self):
        if 0 in self.shape:
            return []
        return self.view().tolist() if self.shape else self.view()[()]


def host(size):
    """(address, what keeps it) of memory aligned to 256 bytes; (0, None) of none."""
    if not size:
        return 0, None
    buffer = (ctypes.c_char * (size + 256))()
    return (ctypes.addressof(buffer) + 255) // 256 * 256, buffer


# ---- Arrays like those that were given ----

def module_of(given):
    """The library whose arrays these are: its module, or None."""
    for name, of in (("torch", "Tensor"), ("numpy", "ndarray"), ("cupy", "ndarray")):
        module = sys.modules.get(name)
        if module is not None and any(isinstance(x, getattr(module, of, ())) for x in given):
            return module
    return None


def numpy_dtype(dtype):
    if dtype in ("bf16", "f8e4m3", "f8e5m2"):
        import ml_dtypes  # NumPy has no such type
        return getattr(ml_dtypes, NUMPY[dtype])
    return NUMPY[dtype]


def empty(module, shape, dtype, device, like):
    """An array of `module`, on the device; of our own where there is none."""
    name = getattr(module, "__name__", "")
    if name == "torch":
        where = next((x.device for x in like if isinstance(x, module.Tensor)), "cpu")
        return module.empty(shape, dtype=getattr(module, NUMPY[dtype]), device=where)
    if name == "numpy" and device[0] == "cpu":
        return module.empty(shape, numpy_dtype(dtype))
    if name == "cupy" and device[0] == "cuda":
        return module.empty(shape, numpy_dtype(dtype))
    if device[0] == "cpu":
        return Array(shape, dtype)
    raise InvalidError("results on a GPU want memory: give out=, or tensors of torch or cupy")


def contiguous(x, module):
    """A dense copy that is aligned, by the library that x is of."""
    if getattr(module, "__name__", "") == "torch" and isinstance(x, module.Tensor):
        return x.contiguous() if not x.is_contiguous() else x.clone()
    if module is not None and hasattr(module, "ascontiguousarray"):
        return module.array(x, order="C", copy=True)
    raise InvalidError("%s is strided or not aligned to 16 bytes: a dense copy is the caller's" % type(x).__name__)
