#!/usr/bin/env python3
"""test_drawn.py -- random modules of drawn.py by torch.compile(backend="coda") on the CPU device, beside eager and the same
in fp64: results, gradients, sizes that change. What a plan does not take is PyTorch's, so that all must be right. 500
modules with CODA_FULL, else a share that the seed draws; CODA_TEST_CASE is one of them, or several by commas."""
import collections
import copy
import math
import os
import re
import sys
import unittest
import warnings

try:
    import torch
except ImportError as e:
    print("test_drawn.py: skipped: %s" % e)
    sys.exit(0)

import drawn
import libcoda.dynamo as dynamo

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
ALL, SHARE, MOVED = 500, 16, 16
SEED = int(os.environ.get("CODA_SEED") or 1)


def cases():
    given = os.environ.get("CODA_TEST_CASE")
    if given:
        return [int(k) for k in given.split(",")]
    return range(ALL) if os.environ.get("CODA_FULL") else [(SEED * 131 + 31 * k) % ALL for k in range(SHARE)]


def distance(got, want):
    """Relative to all of it; and the largest error relative to the largest value."""
    got, want = got.double(), want.double()
    size, top = float(want.norm()), float(want.abs().max())
    d = (got - want).abs()
    return float(d.norm()) / (size or 1), float(d.max()) / (top or 1)


def all_of(x):
    return x if isinstance(x, tuple) else (x,)


def exactly(module):
    """The same in fp64, whose norms add what they do in 16 and 32 bits where no eps is given."""
    exact = copy.deepcopy(module).double()
    for m in exact.modules():
        if isinstance(m, torch.nn.RMSNorm) and m.eps is None:
            m.eps = torch.finfo(torch.float32).eps
    return exact


class FarGradient(AssertionError):
    """A gradient that is no NaN, has its shape and dtype, and is too far from fp64's."""


class Modules(unittest.TestCase):
    def near(self, got, eager, want, dtype, what, beside=()):
        """As near to fp64 as PyTorch is, but for luck in rounding a tensor, which one of few elements has more of; of all
        tensors the mean has to be. Or as near as fp64's own of `beside`, the same of other numbers that round to these."""
        self.assertEqual((got.shape, got.dtype, got.device), (eager.shape, eager.dtype, eager.device), what)
        self.assertTrue(bool(torch.isfinite(got).all()), "%s is not finite" % what)
        unit, (ours, most), (theirs, their_most) = torch.finfo(dtype).eps, distance(got, want), distance(eager, want)
        luck = 2.5 + 6 / want.numel() ** 0.5
        least = 8 * unit if dtype == torch.float32 else 2 * unit
        far = ours > max(luck * theirs, least) or most > max(1.6 * luck * their_most, 2 * least)
        if far and beside:
            moved = [distance(y, want) for y in beside]
            far = ours > 2 * max(m[0] for m in moved) or most > 2 * max(m[1] for m in moved)
        if far:
            raise (FarGradient if what.startswith("gradient") and not beside else AssertionError)(
                "%s: off by %.2g, %.2g at most, and PyTorch by %.2g, %.2g" % (what, ours, most, theirs, their_most))
        if theirs > unit / 8:
            self.ratios[dtype].append(math.log(max(ours, unit / 64) / theirs))

    def one(self, seed):
        module, d = drawn.module(seed)
        dtype = drawn.DTYPES[seed % len(drawn.DTYPES)]
        exact = exactly(module.to(dtype))
        fast = torch.compile(module, backend="coda", options={"fallback": "eager"})
        grads = seed % 4 == 3
        torch.set_grad_enabled(grads)
        for b, t in drawn.sizes(seed):
            x = drawn.given(seed, d, b, t, dtype)
            before = x.clone()
            try:
                self.compare(module, fast, exact, x, dtype, grads, "B %d, T %d" % (b, t))
            except FarGradient:
                if dtype == torch.float32:
                    raise
                self.turned.append(seed)
                self.beside_kinks(seed, module, fast, exact, x, dtype, "B %d, T %d" % (b, t))
            self.assertTrue(torch.equal(x, before), "the input is another one")

    def beside_kinks(self, seed, module, fast, exact, x, dtype, what):
        """A gradient in 16 bits where a value is beside a kink, as relu's or a maximum's: on which side it is is luck, but
        fp64's moves as much where input and parameters are others by their last bits; and that of fp32 is right."""
        self.compare(module, fast, exact, x, dtype, True, what, [self.moved(exact, x, dtype, k) for k in range(MOVED)])
        single, _ = drawn.module(seed)
        fast = torch.compile(single, backend="coda", options={"fallback": "eager"})
        self.compare(single, fast, exactly(single), x.float(), torch.float32, True, what)

    def moved(self, exact, x, dtype, k):
        """What fp64 makes of numbers that differ from these by two units of their last place at most, where what each layer
        makes differs so, too."""
        made = torch.Generator().manual_seed(k)

        def other(y):
            return y * (1 + 2 * torch.finfo(dtype).eps * (2 * torch.rand(y.shape, generator=made, dtype=torch.float64) - 1))
        near = copy.deepcopy(exact)
        with torch.no_grad():
            for p in near.parameters():
                p.copy_(other(p))
        for m in list(near.modules())[1:]:
            m.register_forward_hook(lambda m, given, y: other(y))
        return self.made(near, near, other(x.detach().double()), torch.float64, True)

    def made(self, f, module, x, dtype, grads):
        """Results, and gradients of what is summed of them."""
        leaf = x.detach().to(dtype) if x.dtype != dtype else x.detach()
        leaf.requires_grad_(grads)
        module.zero_grad()
        y = all_of(f(leaf))
        if grads:
            torch.manual_seed(5)
            loss = sum((r.to(torch.float64) * torch.randn(r.shape, dtype=torch.float64)).sum() for r in y)
            loss.backward()
            y = y + (leaf.grad, *(p.grad for p in module.parameters()))
        return [r if r is None else r.detach().clone() for r in y]

    def compare(self, module, fast, exact, x, dtype, grads, what, beside=()):
        runs = [self.made(fast, module, x, dtype, grads), self.made(module, module, x, dtype, grads),
                self.made(exact, exact, x, torch.float64, grads)]
        names = ["result"] * (len(runs[0]) - grads * (1 + len(list(module.parameters()))))
        if grads:
            names += ["gradient of x"] + ["gradient of " + n for n, _ in module.named_parameters()]
        for k, (name, got, eager, want) in enumerate(zip(names, *runs)):
            if eager is None or want is None:
                self.assertTrue(got is None or not got.any(), "%s, where PyTorch has none" % name)
            else:
                self.near(got, eager, want, dtype, "%s of %s" % (name, what), [m[k] for m in beside])

    def test_modules(self):
        self.ratios, self.turned = collections.defaultdict(list), []
        whole, parts, left, why = 0, 0, 0, collections.Counter()
        for seed in cases():
            torch._dynamo.reset()
            dynamo.reset()
            with self.subTest(seed, module=str(drawn.module(seed)[0]), dtype=drawn.DTYPES[seed % len(drawn.DTYPES)]):
                self.one(seed)
            for done in dynamo.last:
                whole += done.whole is not None
                parts += done.regions is not None
                left += done.whole is None and done.regions is None
                why.update(re.sub(r"\d+", "N", reason) for _, _, reason in done.refused)
                why.update([re.sub(r"\d+", "N", done.reason)] if done.reason and done.regions is None else [])
        print("  %d modules: %d graphs are plans, %d in part, %d are left" % (len(list(cases())), whole, parts, left))
        for dtype, logs in self.ratios.items():
            mean = math.exp(sum(logs) / len(logs))
            print("  %s: %.2f of PyTorch's distance from fp64, the mean of %d tensors" % (str(dtype)[6:], mean, len(logs)))
            self.assertLessEqual(mean, 1 + 2 / math.sqrt(len(logs)))
        if os.environ.get("CODA_TEST_VERBOSE"):
            print("\n".join("  %4d %s" % (n, w) for w, n in why.most_common()))
        torch.set_grad_enabled(True)
        if len(list(cases())) >= 8:
            self.assertGreater(whole, left + parts)  # or this says nothing
            self.assertLessEqual(len(set(self.turned)), 1 + len(list(cases())) // 50, self.turned)


if __name__ == "__main__":
    print("test_drawn.py: torch %s, CODA_SEED %d" % (torch.__version__, SEED))
    unittest.main()
