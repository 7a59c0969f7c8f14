"""_stages.py -- runs of plans over tensors of PyTorch, by their addresses."""
import array
import contextlib
import ctypes
import threading

import torch

from . import arrays, c
from ._library import library
from ._replay import Replays
from .errors import failure

SHAPES = 64  # of which a stage keeps the sizes of its results
HERE = contextlib.nullcontext()
# coda_run and coda_run_shaped, which are given addresses as a number: ctypes takes that in a tenth of the time of an array.
RUN, RUN_SHAPED = library["coda_run"], library["coda_run_shaped"]
RUN.argtypes, RUN_SHAPED.argtypes = (ctypes.c_void_p,) * 5, (ctypes.c_void_p,) * 6


def on(where):
    """A context in which this device is the current one."""
    if where.type != "cuda" or where.index == torch._C._cuda_getDevice():
        return HERE
    return torch.cuda.device(where)


def emptier(where):
    """A call (shape, strides, dtype) that gives a new tensor of this device, dense, whose strides are these: what
    Inductor's programs allocate by, in a fourth of the time of torch.empty."""
    def usual(shape, strides, dtype):
        return torch.empty(shape, dtype=dtype, device=where)
    short = getattr(torch._C._dynamo.guards, "_empty_strided_" + where.type, usual)
    if where.type != "cuda" or short is usual:
        return short
    current, index = torch._C._cuda_getDevice, where.index
    return lambda shape, strides, dtype: (short if current() == index else usual)(shape, strides, dtype)


def aligned(size, empty):
    """Memory at a multiple of 256 bytes: its address, and what keeps it."""
    room = empty((size + 256,), (1,), torch.uint8)
    return (room.data_ptr() + 255) // 256 * 256, room


def dense_and_aligned(x):
    """x one element behind the other, at a multiple of 16 bytes."""
    if not x.is_contiguous():
        return x.contiguous()
    return x.clone() if x.data_ptr() % 16 else x


class Scratch:
    """Workspace of runs: on the host each thread has its own, on a GPU PyTorch knows the stream."""

    def __init__(self, where):
        self.where, self.mine, self.exact = where, threading.local(), None
        self.host, self.empty = where.type == "cpu", emptier(where)

    def size(self, plan, dims):
        if dims is None:
            if self.exact is None:
                self.exact = plan.workspace_bytes
            return self.exact
        size = c.coda_plan_workspace_for(plan.handle, dims)
        if size == ctypes.c_size_t(-1).value:
            raise failure(c.CODA_E_UNSUPPORTED)
        return size

    def __call__(self, plan, dims=None):
        """The address, and what keeps it."""
        size = self.size(plan, dims)
        if not self.host:
            return aligned(size, self.empty)
        mine = self.mine
        if getattr(mine, "size", -1) < size:
            mine.size, mine.room = size, aligned(size, self.empty)
        return mine.room


def raw_stream(index):
    """The address of PyTorch's current stream of a GPU."""
    return torch._C._cuda_getCurrentRawStream(torch.cuda.current_device() if index is None else index)


def replays_of(where):
    """What is recorded of a plan's runs there; None where nothing is, as on the host."""
    if where.type != "cuda":
        return None
    index = where.index if where.index is not None else torch.cuda.current_device()
    made = Replays(lambda: torch._C._cuda_getDevice() == index and not torch.cuda.is_current_stream_capturing())
    return made if made.driver.there else None


def run(plan, addresses, scratch, dims, replays=None):
    """A run of a plan, of one shape of it if it has symbols. `replays`: what was recorded of its runs."""
    there = HERE if scratch.host else on(scratch.where)
    if there is HERE:
        return run_here(plan, addresses, scratch, dims, replays)
    with there:
        return run_here(plan, addresses, scratch, dims, replays)


def run_here(plan, addresses, scratch, dims, replays):
    if not isinstance(addresses, array.array):
        addresses = array.array("Q", addresses)
    stream = None if scratch.host else raw_stream(scratch.where.index)
    room, hold = scratch(plan, dims)
    if replays is None:
        status = coda_run(plan, addresses, room, stream, dims)
    else:
        key = addresses.tobytes(), room, dims and tuple(dims)
        if replays.again(key, stream):
            return
        status = coda_run(plan, addresses, room, stream, dims)
        if not status:
            replays.ran(key, lambda s: coda_run(plan, addresses, room, s, dims))
    if status:
        raise failure(status)


def coda_run(plan, addresses, room, stream, dims):
    """`addresses`: an array of them."""
    pointers = addresses.buffer_info()[0]
    if dims is None:
        return RUN(plan.handle, pointers, None, room, stream)
    opt = c.coda_run_options(dims=dims, dim_count=len(dims))
    return RUN_SHAPED(plan.handle, pointers, None, room, stream, ctypes.addressof(opt))


class Stage:
    """A plan that is called with addresses and gives its results."""

    def __init__(self, graph, device, where):
        with on(where):
            self.plan, self.scratch, self.sizes = graph.compile(device), Scratch(where), {}
        args = self.plan.args
        self.inputs = [args[i].name for i in self.plan.leaves]
        self.names = [args[i].name for i in self.plan.results]
        self.dtypes = [getattr(torch, arrays.NUMPY[args[i].dtype]) for i in self.plan.results]

    def shapes(self, dims):
        """Of each result (shape, strides)."""
        key = None if dims is None else tuple(dims)
        if key not in self.sizes:
            if len(self.sizes) >= SHAPES:
                self.sizes.clear()
            shapes = [self.plan.arg_for(i, dims).dims for i in self.plan.results]
            self.sizes[key] = [(shape, arrays.dense_strides(shape)) for shape in shapes]
        return self.sizes[key]

    def __call__(self, addresses, dims):
        made = [self.scratch.empty(*shape, dtype) for shape, dtype in zip(self.shapes(dims), self.dtypes)]
        run(self.plan, addresses + [x.data_ptr() for x in made], self.scratch, dims)
        return made
