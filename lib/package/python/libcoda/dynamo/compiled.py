"""compiled.py -- what the backend gives Dynamo: plans of a graph, or of those parts of it that a graph can say."""
import ctypes

import torch

from .. import c
from ..errors import Error, failure
from ..graph import Graph
from .lift import Lift, known, paths_of
from .text import Refuse

def device_of(arguments):
    """("cpu" or "gpu", the torch.device) of the tensors among them."""
    for x in arguments:
        if isinstance(x, torch.Tensor):
            return ("gpu" if x.device.type == "cuda" else "cpu"), x.device
    return "cpu", torch.device("cpu")


def aligned(size, device):
    """Memory at a multiple of 256 bytes: its address, and what keeps it."""
    room = torch.empty(size + 256, dtype=torch.uint8, device=device)
    return (room.data_ptr() + 255) // 256 * 256, room


class Program:
    """A lifted graph and its plan; it is called with Dynamo's arguments."""

    def __init__(self, lift, device, where):
        self.text = str(lift.g)
        used = lift.g.used_leaves()
        self.leaves, self.outputs, self.where = [lift.leaves[n] for n in used], lift.outputs, where
        self.buffers = [(k, x.data_ptr(), x._version) for k, x in lift.buffers]
        self.taken, self.folded, self.spelled = lift.taken, lift.folded, lift.spelled
        self.made = []
        for kind, *more in self.outputs:
            if kind == "made":
                stored = torch.float32 if more[2] == torch.bool else more[2]
                self.made.append((more[1], stored, more[2]))
        self.plan = None
        if self.made:
            graph = Graph(self.text)
            self.plan = graph.compile(device)
            self.workspace, self.room = aligned(self.plan.workspace_bytes, where)
        self.kept = [x.tensor.to(where) if x.tensor is not None else None for x in self.leaves]
        self.run = c.coda_run

    def fits(self, arguments):
        """Are the buffers that were folded as they were?"""
        return all(arguments[k].data_ptr() == p and arguments[k]._version == v for k, p, v in self.buffers)

    def __call__(self, arguments):
        hold = [x if x is not None else arguments[leaf.argument] for x, leaf in zip(self.kept, self.leaves)]
        for i, (x, leaf) in enumerate(zip(hold, self.leaves)):
            strides = leaf.node.attributes["stride"]
            if x.data_ptr() % 16 or (strides is None and not x.is_contiguous()):
                hold[i] = x.contiguous() if not x.is_contiguous() else x.clone()
        made = [torch.empty(shape, dtype=dtype, device=self.where) for shape, dtype, _ in self.made]
        if self.plan is not None:
            pointers = (ctypes.c_void_p * (len(hold) + len(made)))(*[x.data_ptr() for x in hold],
                                                                         *[x.data_ptr() for x in made])
            stream = torch.cuda.current_stream(self.where).cuda_stream if self.where.type == "cuda" else None
            status = self.run(self.plan.handle, pointers, None, self.workspace, stream)
            if status:
                raise failure(status)
        made = [x if x.dtype == dtype else x.to(dtype) for x, (_, _, dtype) in zip(made, self.made)]
        return tuple(made[o[1]] if o[0] == "made" else o[1] for o in self.outputs)


class Left:
    """What PyTorch does instead."""

    def __init__(self, call):
        self.call = call

    def fits(self, arguments):
        return True

    def __call__(self, arguments):
        return self.call(*arguments)


class Whole:
    """A graph as one program for each set of sizes that it is called with."""

    def __init__(self, module, example, fallback):
        self.module, self.programs, self.paths, self.fallback = module, {}, paths_of(module), fallback
        self.sizes = [k for k, x in enumerate(example) if isinstance(x, (int, torch.SymInt))]
        self.first = self.made([known(x) for x in example])

    def made(self, arguments):
        made = Program(Lift(self.module, arguments, self.paths).run(), *device_of(arguments))
        self.programs[tuple(int(arguments[k]) for k in self.sizes)] = made
        return made

    def __call__(self, *arguments):
        key = tuple(int(arguments[k]) for k in self.sizes)
        program = self.programs.get(key)
        if program is None or not program.fits(arguments):
            try:
                program = self.made(arguments)
            except (Refuse, Error) as e:  # of these sizes, or of what a buffer holds now
                program = self.programs[key] = Left(self.fallback(self.module, str(e)))
        return program(arguments)
