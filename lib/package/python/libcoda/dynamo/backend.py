"""backend.py -- the backend for torch.compile, and its report."""
import sys
import warnings

import torch

from .. import errors
from .compiled import Whole
from .lift import scope_of, word_of
from .regions import Regions
from .text import Refuse

last = []  # what was compiled since the process began, the newest at the end


class Done:
    """One graph of Dynamo's, and what came of it."""

    def __init__(self, module):
        self.nodes = sum(n.op.startswith("call") for n in module.graph.nodes)
        self.whole, self.regions, self.reason, self.refused = None, None, "", []

    @property
    def programs(self):
        if self.whole is not None:
            return [self.whole.first]
        return self.regions.programs if self.regions is not None else []

    def counts(self):
        """Nodes that were taken, folded and left."""
        of = self.whole.first if self.whole is not None else self.regions
        if of is None:
            return 0, 0, self.nodes
        left = self.regions.left if self.regions is not None else 0
        return self.nodes - of.folded - left, of.folded, left

    def __str__(self):
        out = ["%d nodes: %d taken, %d folded, %d left to PyTorch" % (self.nodes, *self.counts())]
        if self.reason:
            out.append("    %s" % self.reason)
        for scope, word, why in self.refused:
            out.append("    %s: %s: %s" % (scope or "the model", word, why))
        for name, plan in [x for p in self.programs for x in p.plans()]:
            s = plan.stats
            out.append("    %s: %d launches, %d with one for each operation; %.3f MB, %.3f" %
                       (name, s.launches, s.launches_unfused, s.bytes / 1e6, s.bytes_unfused / 1e6))
        return "\n".join(out)


def left(module, options):
    """What PyTorch compiles, or runs as it is."""
    if options.get("fallback", "inductor") == "eager":
        return module
    return torch.compile(module, backend=options.get("fallback", "inductor"))


def backend(module, example, *, options=None, mode=None):
    """options={"fallback": "eager"}: what is not taken is not compiled by Inductor. {"fullgraph": True}: it is an
    error, also of sizes that come later. {"keep": "least"}: a word of coda_keep, what forward keeps for backward.
    {"replay": False}: no run is recorded as a CUDA graph; so profilers see the range of each launch. `mode`, a word of
    Inductor's that transformers gives, says nothing here."""
    options = dict(options or {})
    done = Done(module)
    last.append(done)
    keep, replay = options.get("keep", "products"), bool(options.get("replay", True))
    kinds = {x.device.type for x in example if isinstance(x, torch.Tensor)} & {"cpu", "cuda"}
    if any(map(torch.is_autocast_enabled, kinds)):
        return give_up(module, done, options, "autocast around the call")
    try:
        done.whole = Whole(module, example, lambda m, why: give_up(m, done, options, why), keep, replay)
        return done.whole
    except (Refuse, errors.Error) as e:
        reason = str(e)
    if options.get("fullgraph"):
        return give_up(module, done, options, reason)
    if not torch.is_grad_enabled() or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in example):
        keep = None
    try:
        done.regions = Regions(module, example, lambda part: left(part, options), keep, replay)
        done.refused = [(scope_of(n), word_of(n), why) for n, why in done.regions.refused]
        warnings.warn("libcoda leaves %d of %d nodes to PyTorch: %s%s; libcoda.dynamo.report() lists them" %
                      (done.counts()[2], done.nodes, "%s: " % done.refused[0][0] if done.refused[0][0] else "",
                       done.refused[0][2]))
        return done.regions
    except (Refuse, errors.Error) as e:
        return give_up(module, done, options, "%s; %s" % (reason, e) if str(e) != reason else reason)


def give_up(module, done, options, reason):
    """All of a graph is PyTorch's, with a warning; or an error, where the whole graph is wanted."""
    done.reason = reason
    if options.get("fullgraph"):
        raise errors.UnsupportedError("libcoda does not take the whole graph: %s" % reason)
    warnings.warn("libcoda leaves a graph of %d nodes to PyTorch: %s" % (done.nodes, reason))
    made = left(module, options)
    return made.forward if made is module else made


def report():
    """What was taken, folded and left of each graph since the process began, or since reset(), and why. Until reset()
    the plans of these graphs are kept."""
    return "\n".join(map(str, last)) or "nothing was compiled"


def reset():
    """Forgets what report() says, and lets go of plans that no compiled model has any more."""
    last.clear()


def register():
    """PyTorch finds the backend by an entry point of the installed package. Without one it is told, for which it has to be
    there: importing torch._dynamo takes 1 to 4 s, and a run by a file needs none of it."""
    from importlib import metadata
    try:
        found = any(e.group == "torch_dynamo_backends" for e in metadata.distribution("libcoda").entry_points)
    except metadata.PackageNotFoundError:
        found = False
    if not found or "torch._dynamo" in sys.modules:
        torch._dynamo.register_backend(name="coda", compiler_fn=backend)


register()
