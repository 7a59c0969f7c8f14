#!/usr/bin/env python3
"""test_operations.py -- torch.ops.coda: a graph by its text and four operations by name, on the CPU device: values and
gradients beside PyTorch's own in fp64, fake kernels, torch.library.opcheck, torch.compile, torch.export."""
import os
import sys
import unittest
import warnings

try:
    import torch
except ImportError as e:
    print("test_operations.py: skipped: %s" % e)
    sys.exit(0)

import libcoda as coda
import libcoda.torch

F, OPS = torch.nn.functional, torch.ops.coda
warnings.filterwarnings("ignore", category=DeprecationWarning)
TEXT = """dim %T = 1..64
%x = input f32 [2,T,8]
%w = weight f32 [6,8]
%n = rms_norm %x {eps=1e-6}
%p = matmul %n, %w
%s = silu %p
%r = sum %p
%f = reshape %s {rank=2, d0=2*T, d1=6}
output %y = %f
output %sums = %r
"""


def text_in_pytorch(x, w):
    p = F.linear(F.rms_norm(x, (8,), eps=1e-6), w)
    return [F.silu(p).reshape(-1, 6), p.sum(-1, keepdim=True)]


def norm_linear(x, gain, w, bias, eps=1e-6):
    return F.linear(F.rms_norm(x, x.shape[-1:], gain, eps), w, bias)


def mlp(x, gate, up, down):
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def loss(x, w, targets, ignore_index=-100, reduction="mean", softcap=0.0):
    z = F.linear(x, w)
    z = softcap * torch.tanh(z / softcap) if softcap else z
    return F.cross_entropy(z.flatten(0, -2), targets.flatten(), ignore_index=ignore_index,
                           reduction=reduction).reshape(targets.shape if reduction == "none" else ())


def attend(q, k, v, k_cache, v_cache, lengths, scale=None):
    """The same, written into copies of the caches, sequence by sequence."""
    k_cache, v_cache, out = k_cache.clone(), v_cache.clone(), []
    for b, n in enumerate(lengths.tolist()):
        t, keys, times = q.shape[1], k_cache.shape[1], q.shape[2] // k.shape[2]
        room = max(0, min(t, keys - n))
        k_cache[b, n:n + room], v_cache[b, n:n + room] = k[b, :room], v[b, :room]
        seen = torch.arange(keys)[None] <= n + torch.arange(t)[:, None]
        both = [c[b].transpose(0, 1).repeat_interleave(times, 0) for c in (k_cache, v_cache)]
        out.append(F.scaled_dot_product_attention(q[b].transpose(0, 1), *both, attn_mask=seen, scale=scale).transpose(0, 1))
    return torch.stack(out), k_cache, v_cache


class Operations(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(int(os.environ.get("CODA_SEED", 1)))

    def leaf(self, *shape, scale=0.5, dtype=torch.float32):
        return (torch.randn(shape) * scale).to(dtype).requires_grad_()

    def cases(self):
        """(operation, the same by PyTorch, arguments)"""
        targets = torch.randint(0, 11, (2, 5))
        targets[0, 1] = -100
        x, wide = self.leaf(2, 5, 8), self.leaf(2, 5, 16, scale=1)
        yield OPS.rms_norm_linear.default, norm_linear, (x, self.leaf(8), self.leaf(12, 8), self.leaf(12))
        yield OPS.rms_norm_linear.default, norm_linear, (x, None, self.leaf(12, 8), None, 1e-3)
        yield OPS.swiglu_mlp.default, mlp, (x, self.leaf(24, 8), self.leaf(24, 8), self.leaf(8, 24))
        for how in ((), (9,), (0, "sum"), (-100, "none"), (-100, "mean", 3.0)):
            yield OPS.linear_cross_entropy.default, loss, (wide, self.leaf(11, 16), targets.where(
                targets >= 0, how[0] if how else -100), *how)
        yield OPS.graph.default, lambda text, leaves: text_in_pytorch(*leaves), (TEXT, [x, self.leaf(6, 8)])

    def flat(self, x):
        return [y for v in x for y in self.flat(v)] if isinstance(x, (list, tuple)) else [x]

    def outcome(self, call, arguments, double=False):
        def fresh(x):
            if isinstance(x, list):
                return [fresh(y) for y in x]
            if not torch.is_tensor(x):
                return x
            return (x.detach().double() if double and x.is_floating_point() else x.detach().clone()).requires_grad_(
                x.requires_grad)
        given = [fresh(x) for x in arguments]
        made = self.flat([call(*given)])
        sum((y.double() * (k + 2)).sin().sum() for k, y in enumerate(made)).backward()
        return made, [x.grad for x in self.flat(given) if torch.is_tensor(x) and x.requires_grad]

    def close(self, got, want, bar=1e-5):
        self.assertEqual(tuple(got.shape), tuple(want.shape))
        got, want = got.detach().double(), want.detach()
        self.assertLessEqual(float((got - want).abs().max()), bar * max(float(want.abs().max()), 1e-3))

    def same(self, got, want):
        for g, w in zip(got[0] + got[1], want[0] + want[1]):
            self.close(g, w)
        self.assertEqual(len(got[1]), len(want[1]))

    def test_values(self):
        """Results and gradients; compiled, too, for sizes that change."""
        for op, reference, given in self.cases():
            with self.subTest(op.name(), more=given[3:]):
                want = self.outcome(reference, given, double=True)
                self.same(self.outcome(op, given), want)
                for dynamic in (False, True):
                    torch._dynamo.reset()
                    fast = torch.compile(lambda *a: op(*a), backend="aot_eager", fullgraph=True, dynamic=dynamic)
                    self.same(self.outcome(fast, given), want)

    def test_opcheck(self):
        for op, _, given in self.cases():
            with self.subTest(op.name(), more=given[3:]):
                torch.library.opcheck(op, given)
        torch.library.opcheck(OPS.attention_append.default, self.cached())

    def test_sixteen_bits(self):
        """A gradient has its tensor's dtype."""
        given = [self.leaf(2, 5, 8, dtype=torch.bfloat16)] + [self.leaf(*s, dtype=torch.bfloat16) for s in ((24, 8), (24, 8), (8, 24))]
        got, want = self.outcome(OPS.swiglu_mlp, given), self.outcome(mlp, given, double=True)
        self.assertEqual({x.dtype for x in got[0] + got[1]}, {torch.bfloat16})
        for g, w in zip(got[0] + got[1], want[0] + want[1]):
            self.close(g, w, 2e-2)

    def test_export(self):
        class Model(torch.nn.Module):
            def __init__(self, leaf):
                super().__init__()
                self.gate, self.up, self.down = (torch.nn.Parameter(leaf(*s)) for s in ((24, 8), (24, 8), (8, 24)))
                self.w = torch.nn.Parameter(leaf(6, 8))

            def forward(self, x):
                return OPS.graph(TEXT, [x + OPS.swiglu_mlp(x, self.gate, self.up, self.down), self.w])[0]
        model, x = Model(self.leaf), self.leaf(2, 5, 8).detach()
        length = torch.export.Dim("length", min=2, max=64)
        program = torch.export.export(model, (x,), dynamic_shapes={"x": {1: length}})
        self.assertIn("coda.graph", program.graph_module.code)
        for t in (5, 9):
            x = torch.randn(2, t, 8)
            self.assertTrue(torch.equal(program.module()(x), model(x)))

    def test_strides(self):
        """Arguments that are views."""
        x, w = torch.randn(8, 5, 2).permute(2, 1, 0), torch.randn(8, 12).t()
        self.close(OPS.rms_norm_linear(x, None, w), norm_linear(x.double(), None, w.double(), None))

    def cached(self, t=3, heads=4, kv_heads=2, keys=10):
        q, k, v = (torch.randn(3, t, h, 8) for h in (heads, kv_heads, kv_heads))
        return q, k, v, torch.randn(3, keys, kv_heads, 8), torch.randn(3, keys, kv_heads, 8), torch.tensor([4, 0, 7], dtype=torch.int32)

    def test_attention_append(self):
        for t in (1, 3):
            given = self.cached(t)
            want = attend(*[x.double() if x.is_floating_point() else x for x in given])
            for call in (OPS.attention_append, torch.compile(lambda *a: OPS.attention_append(*a), backend="aot_eager",
                                                             fullgraph=True)):
                caches = [x.clone() for x in given[3:5]]
                got = call(*given[:3], *caches, given[5])
                for g, w in zip((got, *caches), want):
                    self.close(g, w)

    def test_full_cache(self):
        """What has no room is not stored, and goes to no other sequence."""
        q, k, v, k_cache, v_cache, lengths = self.cached()
        want = attend(q, k, v, k_cache, v_cache, torch.tensor([8, 10, 0]))
        OPS.attention_append(q, k, v, k_cache, v_cache, torch.tensor([8, 10, 0]))
        self.assertTrue(torch.equal(k_cache, want[1]) and torch.equal(v_cache, want[2]))

    def test_refused(self):
        x, w = torch.randn(2, 5, 8), torch.randn(6, 8)
        for call, text in (
                (lambda: OPS.graph(TEXT, [x]), "1 tensors for 2 leaves: x, w"),
                (lambda: OPS.graph(TEXT, [x, w[:5].contiguous()]), r"weight w: shape \[5, 8\] was given for \[6, 8\]"),
                (lambda: OPS.graph(TEXT, [x, w.half()]), "weight w: torch.float16"),
                (lambda: OPS.graph("%s = state f32[2]\n%a = add %s, %s\n%b = assign %s, %a\n", [x]), "state s: inputs"),
                (lambda: OPS.graph("%s = stat f32[2]\n", [x]), "line 1: .*stat"),
                (lambda: OPS.rms_norm_linear(x, None, w[:, :7].contiguous()), r"x \[2, 5, 8\] by a weight of \[6, 7\]"),
                (lambda: OPS.rms_norm_linear(x, torch.ones(7), w), r"gain is torch.float32 \[7\]"),
                (lambda: OPS.swiglu_mlp(x, w, w[:4].contiguous(), w), r"gate is \[6, 8\] and up \[4, 8\]"),
                (lambda: OPS.linear_cross_entropy(x, w, torch.zeros(2, 4, dtype=torch.int64)), r"targets are torch.int64 \[2, 4\]"),
                (lambda: OPS.linear_cross_entropy(x, w, torch.zeros(2, 5, dtype=torch.int64), -100, "max"), "reduction is 'max'"),
                (lambda: OPS.rms_norm_linear(x.double(), None, w.double()), "a tensor of torch.float64"),
                (lambda: OPS.attention_append(*[y.requires_grad_() if y.is_floating_point() else y for y in self.cached()]),
                 "a gradient is wanted of what is stored in a cache")):
            with self.assertRaisesRegex(coda.Error, text):
                call()
        x.requires_grad_()
        dx, = torch.autograd.grad(OPS.rms_norm_linear(x, None, w).sum(), x, create_graph=True)
        with self.assertRaisesRegex(coda.UnsupportedError, "a gradient of a gradient"):
            dx.sum().backward()

    def test_plans_are_kept(self):
        """Calls of known shapes make no plan."""
        x, w = self.leaf(2, 5, 8), self.leaf(12, 8)
        for _ in range(3):
            OPS.rms_norm_linear(x, None, w).sum().backward()
            made = libcoda.torch.forward_of.cache_info().misses, libcoda.torch.backward_of.cache_info().misses
        self.assertEqual((libcoda.torch.forward_of.cache_info().misses, libcoda.torch.backward_of.cache_info().misses), made)
        before = made
        OPS.rms_norm_linear(x, None, w)
        self.assertEqual(libcoda.torch.forward_of.cache_info().misses, before[0])


if __name__ == "__main__":
    print("test_operations.py: torch %s" % torch.__version__)
    unittest.main()
