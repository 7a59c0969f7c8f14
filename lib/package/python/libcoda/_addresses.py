"""_addresses.py -- do the tensors of a call lie where they did? By a function in C (addresses.c) for all of them, in a
thirtieth of the time that each one's data_ptr() takes. """
import array
import ctypes
import os
import platform
import sys
import weakref

import torch

HEADER = tuple.__basicsize__  # of a tuple's memory: what is ahead of its elements
WORD = 8


def words(address, n):
    return (ctypes.c_uint64 * n).from_address(address)


def inside(x):
    """Bytes from the beginning of a tensor's object to its at::Tensor, which is one pointer, or None: the handle that
    PyTorch gives its compiled models is another at::Tensor with that pointer."""
    aoti = torch._C._aoti
    capsule = aoti.unsafe_alloc_void_ptr_from_tensor(x)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    handle = words(pointer(capsule, None), 1)[0]
    aoti.alloc_tensor_by_stealing_from_void_ptr(capsule)  # which frees it
    found = list(words(id(x), type(x).__basicsize__ // WORD))
    return WORD * found.index(handle) if handle in found else None


def opened():
    """unmoved(objects of a tuple, question of Places), what reads an address, and where an object has its tensor; or
    None where it would not be right."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if platform.python_implementation() != "CPython" or not locked or ctypes.sizeof(ctypes.c_void_p) != WORD:
        return None
    try:
        call = ctypes.PyDLL(os.path.join(os.path.dirname(__file__), "addresses.so")).coda_python_unmoved
        get = ctypes.cast(ctypes.CDLL(torch._C.__file__).aoti_torch_get_data_ptr, ctypes.c_void_p).value
        at = {inside(x) for x in (torch.zeros(4), torch.nn.Parameter(torch.zeros(3)))}
    except (OSError, AttributeError, ValueError, TypeError):
        return None
    if len(at) != 1 or None in at:
        return None
    call.argtypes = (ctypes.c_void_p,) * 2
    return call, get, at.pop()


class Places:
    """Where the tensors at `steady` of a call's arguments lie: good as long as all of them live. Nothing keeps them."""

    def __init__(self, arguments, steady):
        self.known, self.at = (array.array("Q", bytes(8 * len(arguments))) for _ in range(2))
        self.gone = []
        self.live = [weakref.ref(arguments[k], self.gone.append) for k in steady]
        for k in steady:
            self.known[k], self.at[k] = id(arguments[k]), arguments[k].data_ptr()
        self.n = len(arguments)
        self.asked = array.array("Q", (reader, self.known.buffer_info()[0], self.at.buffer_info()[0], self.n, within))
        self.question = self.asked.buffer_info()[0]

    def hold(self, arguments):
        """Are the arguments, a tuple, these tensors, each where it was?"""
        return not self.gone and len(arguments) == self.n and unmoved(id(arguments) + HEADER, self.question) == 1


def checked():
    """The function, if it sees in three tensors what it should."""
    global unmoved, reader, within
    found = opened()
    if found is None:
        return None
    unmoved, reader, within = found
    tensors = torch.zeros(8)[2:], torch.nn.Parameter(torch.zeros(3)), torch.zeros(4)
    places = Places(tensors, (0, 1))
    before = places.hold(tensors), places.hold((*tensors[:2], None)), places.hold((tensors[0].clone(), *tensors[1:]))
    tensors[1].data = torch.ones(3)
    return unmoved if (*before, places.hold(tensors)) == (True, True, False, False) else None


reader = within = 0
unmoved = checked()
