"""_addresses.py -- do the tensors of a call lie where they did? By a function in C (addresses.c) for all of them, in a
fifth of the time that each one's data_ptr() takes. """
import array
import ctypes
import os
import platform
import sys
import weakref

import torch

HEADER = tuple.__basicsize__  # of a tuple's memory: what is ahead of its elements
DLTENSOR = 5  # dltensor_from_py_object_no_sync, among the eight words of DLPackExchangeAPI


def table():
    """The words of the table that PyTorch gives, or None."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    api = ctypes.pythonapi.PyCapsule_GetPointer
    api.restype, api.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    words = (ctypes.c_uint64 * 8).from_address(api(capsule, b"dlpack_exchange_api"))
    return words if words[0] & 0xffffffff == 1 and words[DLTENSOR] else None  # DLPack 1


def opened():
    """unmoved(objects of a tuple, known objects, addresses, how many), or None where it would not be right."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if platform.python_implementation() != "CPython" or not locked or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    try:
        words = table()
        call = ctypes.PyDLL(os.path.join(os.path.dirname(__file__), "addresses.so")).coda_python_unmoved
    except (OSError, AttributeError, ValueError):
        return None
    if words is None:
        return None
    call.argtypes = (ctypes.c_uint64,) * 4 + (ctypes.c_int64,)
    read = words[DLTENSOR]

    def unmoved(objects, known, at, n):
        try:
            return call(read, objects, known, at, n) == 1
        except (RuntimeError, BufferError):  # of a tensor that the protocol cannot say
            return False
    return unmoved


class Places:
    """Where the tensors at `steady` of a call's arguments lie: good as long as all of them live. Nothing keeps them."""

    def __init__(self, arguments, steady):
        self.known, self.at = (array.array("Q", bytes(8 * len(arguments))) for _ in range(2))
        self.gone = []
        self.live = [weakref.ref(arguments[k], self.gone.append) for k in steady]
        for k in steady:
            self.known[k], self.at[k] = id(arguments[k]), arguments[k].data_ptr()
        self.n, self.addresses = len(arguments), (self.known.buffer_info()[0], self.at.buffer_info()[0])

    def hold(self, arguments):
        """Are the arguments, a tuple, these tensors, each where it was?"""
        return not self.gone and len(arguments) == self.n and unmoved(id(arguments) + HEADER, *self.addresses, self.n)


def checked():
    """The function, if it sees in three tensors what it should."""
    global unmoved
    unmoved = opened()
    if unmoved is None:
        return None
    tensors = torch.zeros(8)[2:], torch.nn.Parameter(torch.zeros(3)), torch.zeros(4)
    places = Places(tensors, (0, 1))
    before = places.hold(tensors), places.hold((*tensors[:2], None)), places.hold((tensors[0].clone(), *tensors[1:]))
    tensors[1].data = torch.ones(3)
    return unmoved if (*before, places.hold(tensors)) == (True, True, False, False) else None


unmoved = checked()
