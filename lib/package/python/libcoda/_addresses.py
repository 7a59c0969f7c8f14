"""_addresses.py -- are the tensors of a call what they were, where they were? By a function in C (addresses.c) for all of
them, in a twentieth of the time that it takes to ask each one. """
import array
import ctypes
import os
import platform
import sys

import torch

HEADER = tuple.__basicsize__  # of a tuple's memory: what is ahead of its elements
WORD = 8
READERS = ["aoti_torch_get_" + name for name in ("data_ptr", "dtype", "dim", "sizes", "strides")]


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
    """unmoved(objects of a tuple, question of Places), note(.., room), what reads a tensor, and where an object has it; or
    None where it would not be right."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if platform.python_implementation() != "CPython" or not locked or ctypes.sizeof(ctypes.c_void_p) != WORD:
        return None
    try:
        own, theirs = ctypes.PyDLL(os.path.join(os.path.dirname(__file__), "addresses.so")), ctypes.CDLL(torch._C.__file__)
        call, write = own.coda_python_unmoved, own.coda_python_note
        get = [ctypes.cast(getattr(theirs, name), ctypes.c_void_p).value for name in READERS]
        at = {inside(x) for x in (torch.zeros(4), torch.nn.Parameter(torch.zeros(3)))}
    except (OSError, AttributeError, ValueError, TypeError):
        return None
    if len(at) != 1 or None in at:
        return None
    call.argtypes, write.argtypes = (ctypes.c_void_p,) * 2, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return call, write, get, at.pop()


class Places:
    """Where the tensors at `steady` of a call's arguments lie, and how. Each argument there is a tensor in every call; one
    that has the place of another one that is gone, in the same memory, is as good."""

    def __init__(self, arguments, steady):
        self.n, room = len(arguments), sum(3 + 2 * arguments[k].ndim for k in steady)
        self.known, self.forms = array.array("Q", bytes(8 * self.n)), array.array("q", bytes(8 * max(room, 1)))
        for k in steady:
            self.known[k] = id(arguments[k])
        self.asked = array.array("Q", (*readers, self.known.buffer_info()[0], self.forms.buffer_info()[0], self.n, within))
        self.question = self.asked.buffer_info()[0]
        self.good = note(id(arguments) + HEADER, self.question, room) == 1

    def hold(self, arguments):
        """Are the arguments, a tuple, these tensors, each where and as it was?"""
        return self.good and len(arguments) == self.n and unmoved(id(arguments) + HEADER, self.question) == 1


def checked():
    """The function, if it sees in three tensors what it should."""
    global unmoved, note, readers, within
    found = opened()
    if found is None:
        return None
    unmoved, note, readers, within = found
    tensors = torch.zeros(8)[2:], torch.nn.Parameter(torch.zeros(3, 3, dtype=torch.float16)), torch.zeros(4)
    places = Places(tensors, (0, 1))
    seen = [places.hold(tensors), places.hold((*tensors[:2], None)), places.hold((tensors[0].clone(), *tensors[1:]))]
    first = tensors[1].data
    for other in (first.t(), first[:, :2], first.view(torch.bfloat16), first.clone(), first):
        tensors[1].data = other
        seen.append(places.hold(tensors))
    return unmoved if seen == [True, True, False, False, False, False, False, True] else None


note, readers, within = None, (), 0
unmoved = checked()
