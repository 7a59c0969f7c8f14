"""families_cases.py -- what the cases of families.py share: graphs by libcoda's Python package, formulas by PyTorch."""
import math

import serving_cases
import torch

import libcoda as coda

EPS = 1e-6


class Case(serving_cases.Case):
    """graph() makes the outputs of the leaves, which are attributes of one object; outputs are named y, y1, ..."""

    def __init__(self, name, device):
        super().__init__(name, device)
        self.name = name

    def text(self):
        g, t = coda.Graph(), self.tensors()
        kinds = {**dict.fromkeys(self.weights, "weight"), **dict.fromkeys(self.states, "state")}
        leaves = {n: getattr(g, kinds.get(n, "input"))(n, serving_cases.CTYPE[x.dtype], tuple(x.shape)) for n, x in t.items()}
        for i, y in enumerate(self.graph(g, leaves)):
            g.output("y%s" % (i or ""), y)
        return str(g)

    def copy(self):
        t = self.tensors()
        for i, shape in enumerate(self.shapes):
            t["y%s" % (i or "")] = torch.full(shape, math.nan, dtype=self.out, device=self.device)
        return t

    def formula(self, t):
        """The first output; peers compute all."""
        return self.all(t)[0]

    def peers(self):
        yield "eager", self.all
        yield "compile", serving_cases.compiled(self.all)


def columns(x, n):
    d = x.shape[-1] // n
    return [x[..., i * d:(i + 1) * d] for i in range(n)]
