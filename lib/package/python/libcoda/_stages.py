"""_stages.py -- runs of plans over tensors of PyTorch, by their addresses."""
import array
import ctypes
import threading

import torch

from . import arrays, c
from .errors import failure

SHAPES = 64  # of which a stage keeps the sizes of its results


def aligned(size, device):
    """Memory at a multiple of 256 bytes: its address, and what keeps it."""
    room = torch.empty(size + 256, dtype=torch.uint8, device=device)
    return (room.data_ptr() + 255) // 256 * 256, room


def dense_and_aligned(x):
    """x one element behind the other, at a multiple of 16 bytes."""
    if not x.is_contiguous():
        return x.contiguous()
    return x.clone() if x.data_ptr() % 16 else x


class Scratch:
    """Workspace of runs: on the host each thread has its own, on a GPU PyTorch knows the stream."""

    def __init__(self, where):
        self.where, self.mine = where, threading.local()

    def __call__(self, size):
        if self.where.type != "cpu":
            return aligned(size, self.where)
        if getattr(self.mine, "size", -1) < size:
            self.mine.size, self.mine.room = size, aligned(size, self.where)
        return self.mine.room


def run(plan, addresses, scratch, dims):
    """A run of a plan, of one shape of it if it has symbols."""
    where = scratch.where
    if not isinstance(addresses, array.array):
        addresses = array.array("Q", addresses)
    pointers = (ctypes.c_void_p * len(addresses)).from_buffer(addresses)
    stream = torch.cuda.current_stream(where).cuda_stream if where.type == "cuda" else None
    if dims is None:
        room, hold = scratch(plan.workspace_bytes)
        status = c.coda_run(plan.handle, pointers, None, room, stream)
    else:
        size = c.coda_plan_workspace_for(plan.handle, dims)
        if size == ctypes.c_size_t(-1).value:
            raise failure(c.CODA_E_UNSUPPORTED)
        room, hold = scratch(size)
        opt = c.coda_run_options(dims=dims, dim_count=len(dims))
        status = c.coda_run_shaped(plan.handle, pointers, None, room, stream, ctypes.byref(opt))
    if status:
        raise failure(status)


class Stage:
    """A plan that is called with addresses and gives its results."""

    def __init__(self, graph, device, where):
        self.plan, self.scratch, self.sizes = graph.compile(device), Scratch(where), {}
        args = self.plan.args
        self.inputs = [args[i].name for i in self.plan.leaves]
        self.names = [args[i].name for i in self.plan.results]
        self.dtypes = [getattr(torch, arrays.NUMPY[args[i].dtype]) for i in self.plan.results]

    def shapes(self, dims):
        key = None if dims is None else tuple(dims)
        if key not in self.sizes:
            if len(self.sizes) >= SHAPES:
                self.sizes.clear()
            self.sizes[key] = [self.plan.arg_for(i, dims).dims for i in self.plan.results]
        return self.sizes[key]

    def __call__(self, addresses, dims):
        made = [torch.empty(shape, dtype=dtype, device=self.scratch.where)
                for shape, dtype in zip(self.shapes(dims), self.dtypes)]
        run(self.plan, addresses + [x.data_ptr() for x in made], self.scratch, dims)
        return made
