"""libcoda.dynamo: torch.compile(model, backend="coda").

    import torch, libcoda.dynamo
    fast = torch.compile(model, backend="coda")
    with torch.no_grad():
        y = fast(x)
    print(libcoda.dynamo.report())

A graph of Dynamo's becomes one plan, on the CPU device or on a GPU, where the tensors are. What no rule takes goes to
Inductor, by region; report() says what, and why. A call that wants gradients is two plans, forward and backward. """
from .backend import backend, last, report, reset
from .deferred import defer
from .saved import load, save

__all__ = ["backend", "defer", "last", "load", "report", "reset", "save"]
