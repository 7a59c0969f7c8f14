"""libcoda: Transformer blocks as fused kernels; on the CPU device without a GPU.

    import numpy as np, libcoda as coda
    x, w, d = (np.random.randn(*s).astype("f") / 16 for s in ((64, 256), (1376, 256), (256, 688)))
    @coda.jit(device="cpu", weights=("w", "d"))
    def mlp(x, w, d):
        return coda.swiglu(coda.rms_norm(x, None, 1e-5) @ w.T, "stacked") @ d.T + x
    y = mlp(x, w, d)

Graph, Value and Plan are the objects of coda.h, the functions its operations, Array memory with a type. libcoda.c has
every call of the headers under its name in C.
"""
from . import c
from .arrays import Array
from .errors import (CompileError, DeviceError, Error, FileError, InvalidError, OutOfMemoryError, UnsupportedError)
from .graph import Graph, Value
from .operations import *
from .plan import Cache, Plan, jit

__version__ = c.CODA_VERSION_STRING
if c.coda_version().decode().split(".")[:2] != __version__.split(".")[:2]:
    raise ImportError("this package is of libcoda %s, and the library %s" % (__version__, c.coda_version().decode()))


def __getattr__(name):
    from .graph import instead_of
    raise AttributeError("libcoda has no %s%s" % (name, instead_of(name)))


def info():
    """Lines on library, device, driver, NVRTC and cache: what is there, what is missing and why."""
    from ._convert import text_of
    return text_of(c.coda_info_print)
