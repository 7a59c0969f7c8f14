"""_library.py -- opens libcoda, and says how its calls and structs look to ctypes."""
import ctypes
import os

HERE = os.path.dirname(os.path.abspath(__file__))


def open_library():
    """$CODA_LIBRARY; else the one in the package; else the one that the loader finds."""
    path = os.environ.get("CODA_LIBRARY") or os.path.join(HERE, "libcoda.so.0")
    if not os.environ.get("CODA_LIBRARY") and not os.path.exists(path):
        path = "libcoda.so.0"
    try:
        return ctypes.CDLL(path)
    except OSError as e:
        raise ImportError("libcoda cannot be opened: %s; $CODA_LIBRARY may name the file" % e) from None


library = open_library()


def function(name, result, *arguments):
    try:
        call = getattr(library, name)
    except AttributeError:
        raise ImportError("%s has no %s: it is older than this package" % (library._name, name)) from None
    call.restype, call.argtypes = result, arguments
    return call


class Handle(ctypes.c_void_p):
    """A pointer to an object of the library, of a type of its own: a plan is no graph. It has one owner, who frees it."""
    __slots__ = ()

    def __reduce_ex__(self, protocol):
        raise TypeError("a %s is of this process and of one owner: neither copied nor pickled" % type(self).__name__)


class Struct(ctypes.Structure):
    """A struct. A field that it does not have is an AttributeError."""
    __slots__ = ()
    enums = {}

    @classmethod
    def kinds(cls):
        """The types of its fields, by name."""
        return dict(cls._fields_)

    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" %
                   (f[0], getattr(self, f[0])) for f in self._fields_))


class Sized(Struct):
    """A struct whose first field is its size, which is set."""
    __slots__ = ()

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(self), **fields)
