"""dlpack.py -- tensors of DLPack, by ctypes: https://dmlc.github.io/dlpack, versions 0.8 and 1.x."""
import ctypes
from collections import namedtuple

from .errors import InvalidError

Tensor = namedtuple("Tensor", "address dtype shape strides device readonly keep")

KINDS = {
    "f32": (
        2, 32), "f64": (
            2, 64), "f16": (
                2, 16), "bf16": (
                    4, 16), "i32": (
                        0, 32), "i64": (
                            0, 64), "i8": (
                                0, 8), "u8": (
                                    1, 8), "f8e4m3": (
                                        10, 8), "f8e5m2": (
                                            12, 8)}
DTYPES = {v: k for k, v in KINDS.items()}
DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}  # 3: pinned, 13: managed
READ_ONLY = 1


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Managed._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", Deleter), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


def python_call(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
capsule_is = python_call("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
capsule_get = python_call("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
capsule_new = python_call("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
# By address: what is being destroyed must get no new reference.
dying_is = python_call("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
dying_get = python_call("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
NAMES = (b"dltensor_versioned", b"dltensor")


def stream_word(stream, device):
    """DLPack's word for a stream: 1 is CUDA's default one."""
    return None if device == 1 else (stream or 1)


def read(x, stream=None):
    """What __dlpack__ says. The capsule stays as it is, and frees the tensor when nobody has it any more."""
    kind = x.__dlpack_device__()[0] if hasattr(x, "__dlpack_device__") else 1
    word = stream_word(stream, int(kind))
    try:
        capsule = x.__dlpack__(stream=word, max_version=(1, 1))
    except TypeError:  # of before version 1
        capsule = x.__dlpack__(stream=word)
    name = next((n for n in NAMES if capsule_is(capsule, n)), None)
    if name is None:
        raise InvalidError("__dlpack__ of %s gives no tensor, or one that was taken" % type(x).__name__)
    of = Versioned if name == NAMES[0] else Managed
    managed = of.from_address(capsule_get(capsule, name))
    if of is Versioned and managed.major != 1:
        raise InvalidError("a tensor of DLPack %d.%d: libcoda reads 1.x" % (managed.major, managed.minor))
    t = managed.tensor
    dtype = DTYPES.get((t.code, t.bits))
    if dtype is None or t.lanes != 1:
        raise InvalidError("a tensor of DLPack's type (%d, %d, %d): libcoda takes %s" %
                           (t.code, t.bits, t.lanes, ", ".join(KINDS)))
    if t.device_type not in DEVICES:
        raise InvalidError("a tensor on DLPack's device %d: libcoda reads the host and CUDA" % t.device_type)
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else None
    readonly = of is Versioned and bool(managed.flags & READ_ONLY)
    return Tensor((t.data or 0) + t.byte_offset, dtype, shape, strides,
                  (DEVICES[t.device_type], t.device_id), readonly, (x, capsule))


def device_of(device):
    return (1 if device[0] == "cpu" else 2), device[1]


exported = {}  # address of a managed tensor -> what it needs


@Deleter
def release(address):
    exported.pop(address, None)


@Destructor
def destroy(capsule):
    for name in NAMES:
        if dying_is(capsule, name):  # nobody has taken it
            release(dying_get(capsule, name))


def write(array, max_version=None):
    m = array.memory
    versioned = max_version is not None and max_version[0] >= 1
    if m.readonly and not versioned:
        raise BufferError("a read-only array: DLPack before 1.0 cannot say so")
    of = Versioned if versioned else Managed
    n = len(m.shape)
    shape, strides = (ctypes.c_int64 * n)(*m.shape), (ctypes.c_int64 * n)(*(m.strides or ()))
    managed = of(deleter=release)
    t = managed.tensor
    t.data, t.ndim, t.lanes = m.address, n, 1
    t.device_type, t.device_id = device_of(m.device)
    t.code, t.bits = KINDS[m.dtype]
    t.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    if m.strides is None:
        run = 1
        for i in reversed(range(n)):  # version 1.2 wants them written out
            strides[i], run = run, run * m.shape[i]
    t.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    if versioned:
        managed.major, managed.minor, managed.flags = 1, 0, READ_ONLY if m.readonly else 0
    address = ctypes.addressof(managed)
    exported[address] = (managed, shape, strides, array)
    return capsule_new(address, NAMES[0] if versioned else NAMES[1], ctypes.cast(destroy, ctypes.c_void_p))
