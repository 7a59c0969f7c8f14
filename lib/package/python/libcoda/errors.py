"""errors.py -- what the library refuses, as exceptions: a class for each status, the text is the library's line."""
from . import c


class Error(Exception):
    """A call has failed: `status` is its coda_status."""
    status = None


class InvalidError(Error, ValueError):
    """The caller's mistake: a shape, a dtype, a name."""
    status = c.CODA_E_INVALID


class UnsupportedError(Error, NotImplementedError):
    """Well-formed, but not on this device or in this version."""
    status = c.CODA_E_UNSUPPORTED


class OutOfMemoryError(Error, MemoryError):
    """Host memory has run out."""
    status = c.CODA_E_MEMORY


class CompileError(Error, RuntimeError):
    """NVRTC has rejected a kernel."""
    status = c.CODA_E_COMPILE


class DeviceError(Error, RuntimeError):
    """There is no driver, no GPU or no NVRTC, or a call of CUDA has failed."""
    status = c.CODA_E_DEVICE


class FileError(Error, OSError):
    """A file could not be read or written."""
    status = c.CODA_E_IO


CLASSES = {
    e.status: e for e in (
        InvalidError,
        UnsupportedError,
        OutOfMemoryError,
        CompileError,
        DeviceError,
         FileError)}


def failure(status):
    """The exception of a status, with this thread's coda_error()."""
    error = CLASSES.get(status, Error)(c.coda_error().decode("utf-8", "replace"))
    error.status = status
    return error


def must(status):
    if status < 0:
        raise failure(status)
    return status
