#!/usr/bin/env python3
"""test_rounding.py -- casts to 16 bits that a model writes, by way of the backend on the CPU device: what PyTorch shows of a
rounding is here, too, to the last bit. And results of a plan are those for which the call has memory."""
import os
import sys
import unittest

try:
    import torch
except ImportError as e:
    print("test_rounding.py: skipped: %s" % e)
    sys.exit(0)

import libcoda.dynamo as dynamo
from libcoda.dynamo.compiled import Program, device_of
from libcoda.dynamo.lift import Lift, paths_of
from libcoda.dynamo.text import Refuse

F = torch.nn.functional
# Of x, w [64, 64] in fp32, and a cast to 16 bits.
SEEN = {
    "there and back": lambda x, w, c: c(x).float(),
    "what is lost": lambda x, w, c: x - c(x).float(),
    "through views": lambda x, w, c: x.view(8, 8, 64).mT - c(x).view(8, 8, 64).mT.float(),
    "by a sum of dtypes": lambda x, w, c: c(x) - x,
    "of a product": lambda x, w, c: c(F.linear(x, w)).float(),
    "of statistics": lambda x, w, c: (c(x).float().amax(-1), c(x).float() == c(x).float().amax(-1, keepdim=True)),
    "of what makes no digits": lambda x, w, c: (F.relu(c(x)).float() - F.relu(x), (-c(x)).float() + x, c(x).abs() - x.abs(),
                                                torch.where(x > 0, c(x), c(w)) - x, torch.cat((c(x), c(w)))[1:].float()),
    "of a parameter": lambda x, w, c: w - c(w).float(),
    "twice": lambda x, w, c: (c(x).half().float(), c(x).bfloat16().float()),
    "beyond the largest": lambda x, w, c: c(x * 1e5).float(),
    "straight through": lambda x, w, c: x + (c(x).float() - x).detach(),
    "compared": lambda x, w, c: (c(x) > 0.3, c(x) == x, c(x) >= c(w), c(x) * 0.1 == c(x) * 0.1),
    "whole numbers": lambda x, w, c: ((c(x) * 16).round(), (c(x) * 4).floor(), c(x).ceil(), c(x * 1e-7).sign(),
                                      (c(x) * 16).to(torch.int32), c(x * 1e-8).bool()),
    "stored besides": lambda x, w, c: (c(x), c(x).float(), c(x).float() - x),
}
CASTS = {"bf16": torch.Tensor.bfloat16, "f16": torch.Tensor.half}


def all_of(x):
    return x if isinstance(x, tuple) else (x,)


class Rounding(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        dynamo.reset()
        torch.manual_seed(int(os.environ.get("CODA_SEED", 1)))
        self.x, self.w = torch.randn(64, 64), torch.randn(64, 64) / 8

    def compiled(self, f):
        torch._dynamo.reset()
        return torch.compile(f, backend="coda", fullgraph=True, options={"fullgraph": True})

    def test_seen(self):
        for name, f in SEEN.items():
            for word, cast in CASTS.items():
                with self.subTest(name, cast=word), torch.no_grad():
                    for a, b in zip(*[all_of(g(self.x, self.w)) for g in
                                      (self.compiled(lambda x, w: f(x, w, cast)), lambda x, w: f(x, w, cast))]):
                        self.assertEqual(a.dtype, b.dtype)
                        # a product's sum may be another one in its last bit, and then so may what it is rounded to
                        same = float((a == b).float().mean())
                        self.assertGreaterEqual(same, 0.99 if name == "of a product" else 1, (a, b))

    def test_split(self):
        """A product of fp32 by two of what 16 bits hold: without roundings the second one would be 0."""
        def f(x, w, c=torch.Tensor.bfloat16):
            high = c(x).float()
            return F.linear(c(high), c(w)), F.linear(c(x - high), c(w))
        with torch.no_grad():
            got, want = self.compiled(f)(self.x, self.w), f(self.x, self.w)
        for a, b in zip(got, want):
            self.assertLessEqual(float((a - b).abs().max()), 2.0 ** -7 * float(b.abs().max()))

    def test_gradients(self):
        """A rounding passes them as they are; PyTorch rounds them, too."""
        grads = []
        for f in (self.compiled(lambda x: (x.bfloat16().float() * self.w).sum()), lambda x: (x.bfloat16().float() * self.w).sum()):
            x = self.x.clone().requires_grad_()
            f(x).backward()
            grads.append(x.grad)
        self.assertTrue(torch.equal(grads[0], self.w))
        self.assertTrue(torch.equal(grads[0].bfloat16().float(), grads[1]))


class Results(unittest.TestCase):
    def program(self, change):
        """Of a lift whose results were said to be others."""
        made = []

        def backend(module, example):
            lift = Lift(module, example, paths_of(module)).run()
            lift.outputs = [change(o) for o in lift.outputs]
            made.append((lift, example))
            return module
        torch._dynamo.reset()
        torch.compile(lambda x: (x * 2).bfloat16(), backend=backend, fullgraph=True)(torch.ones(4, 8))
        return Program(made[0][0], *device_of(made[0][1]))

    def test_agree(self):
        self.program(lambda o: o)
        for change, text in ((lambda o: (*o[:3], torch.float32), "is bf16"), (lambda o: (*o[:2], (4, 4), o[3]), r"\[4, 8\], where")):
            with self.assertRaisesRegex(Refuse, text):
                self.program(change)


if __name__ == "__main__":
    print("test_rounding.py: torch %s" % torch.__version__)
    unittest.main()
