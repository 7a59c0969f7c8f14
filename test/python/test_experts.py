#!/usr/bin/env python3
"""test_experts.py -- models of which a part writes in place, as mixtures of experts do: that part is PyTorch's, by name, and
the rest is plans. Whatever memory it writes to is nobody else's."""
import os
import sys
import unittest
import warnings

try:
    import torch
except ImportError as e:
    print("test_experts.py: skipped: %s" % e)
    sys.exit(0)

import libcoda.dynamo as dynamo

F = torch.nn.functional
warnings.filterwarnings("ignore")


class Parts(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        dynamo.reset()
        torch.manual_seed(int(os.environ.get("CODA_SEED", 1)))

    def near(self, got, want):
        got, want = ((x if isinstance(x, (tuple, list)) else (x,)) for x in (got, want))
        for g, w in zip(got, want):
            self.assertEqual((g.shape, g.dtype), (w.shape, w.dtype))
            self.assertLessEqual(float((g.double() - w.double()).abs().max()), 1e-5 * max(1, float(w.double().abs().max())))

    def parts(self, f, *inputs, grads=False):
        """What was made of the last graph, whose results are PyTorch's, also in a second call with other numbers."""
        fast = torch.compile(f, backend="coda", options={"fallback": "eager"})
        with torch.set_grad_enabled(grads):
            for k in range(2):
                given = [x if x.dtype == torch.int64 else x * (k + 1) for x in inputs]
                self.near(fast(*[x.clone() for x in given]), f(*[x.clone() for x in given]))
        return dynamo.last[-1]

    def test_written_by_other_words(self):
        """`out=`, keywords, and constants that were read before they are written to."""
        a, b = torch.randn(16, 16) / 4, torch.randn(16, 16) / 4

        def out_of_sum(x):
            z = torch.zeros(8, 16)
            torch.add(F.linear(x, a), x, out=z)
            return F.linear(z, b)

        def out_of_cat(x):
            z = torch.zeros(16, 16)
            torch.cat([F.linear(x, a), x], out=z)
            return F.linear(z, b)

        def constant(x):
            c = torch.arange(16.0)
            y = F.linear(x + c, a)
            c[3] = 100.0
            return y, F.linear(x + c, b)

        def like(x):
            h = F.linear(x, a)
            m = torch.ones_like(h)
            m[0] = 0
            return F.linear(h * m, b).sort(0)[0]

        def keyword(x):
            h = F.linear(x, a)
            F.relu(input=h, inplace=True)
            return F.linear(h, b).cumsum(0)
        for f in (out_of_sum, out_of_cat, constant, like, keyword):
            with self.subTest(f.__name__):
                torch._dynamo.reset()
                self.parts(f, torch.randn(8, 16))

    def test_buffers_are_written_in_each_call(self):
        class Counts(torch.nn.Module):
            def __init__(self, write):
                super().__init__()
                self.register_buffer("n", torch.full((16,), 1000.0))
                self.w, self.write = torch.nn.Linear(16, 16), write

            def forward(self, x):
                self.write(self.n)
                return self.w(x) + self.n
        for write in (lambda n: torch.add(n, 1, out=n), lambda n: torch._foreach_add_([n], 1.0), lambda n: n.__ifloordiv__(2)):
            torch._dynamo.reset()
            ours, theirs = Counts(write).eval(), Counts(write).eval()
            theirs.load_state_dict(ours.state_dict())
            fast = torch.compile(ours, backend="coda", options={"fallback": "eager"})
            with torch.no_grad():
                for _ in range(3):
                    x = torch.randn(8, 16)
                    self.near((fast(x), ours.n), (theirs(x), theirs.n))

    def test_written_in_place(self):
        """Every tensor that shares the memory is PyTorch's, and is read when PyTorch reads it."""
        a, b = torch.randn(16, 16) / 4, torch.randn(16, 16) / 4

        def scattered(x):
            h = F.linear(x, a)
            made = torch.zeros(8, 16)
            made[h[:, 0].argsort()] = h
            return F.linear(made, b)

        def before_and_after(x):
            h = F.linear(x, a).sort(-1)[0]
            view, sum_ = h[1:], h.sum(0, keepdim=True)
            y = F.linear(sum_, b).cumsum(-1)
            h.masked_fill_(y > 0, 3.0)
            return F.linear(view.cumsum(0), a), F.linear(h * 1.0, b), sum_

        def ahead(x):
            h = F.linear(x, a)
            early = h.cumsum(0)
            late = F.linear(early, b).sort(0)[0]
            h.copy_(late)
            return F.linear(h, a) + early, h.sort(0)[0]

        def folded(x):
            shift = torch.zeros(16)
            shift[F.linear(x, a)[0].argmax().unsqueeze(0).sort()[0]] = 5.0
            more = shift * 2 + 1
            return F.linear(x + more, b), F.linear(x, a) - shift.cos()

        def assigned(x):
            h = F.linear(x, a)
            flags = h.sort(-1)[0] > 0
            flags |= h.sort(-1)[1] > 3
            F.relu(h, inplace=True)
            return F.linear(h, b), F.linear(flags.float(), a)

        def given(x):
            h = torch.zeros(8, 16)
            torch.cumsum(F.linear(x, a), 0, out=h)
            return F.linear(h, b)
        for f in (scattered, before_and_after, ahead, folded, assigned, given):
            with self.subTest(f.__name__):
                torch._dynamo.reset()
                self.parts(f, torch.randn(8, 16))

    def test_parts_and_whole(self):
        """Plans around it; and none where an argument is written to, or memory that is."""
        a, b = torch.randn(16, 16) / 4, torch.randn(16, 16) / 4

        def sorted_(x):
            h = F.linear(x, a)
            places = h[:, 0].sort()[1]
            back = torch.empty_like(places)
            back[places] = torch.arange(8)
            return F.linear(h.cumsum(0)[back], b)
        done = self.parts(sorted_, torch.randn(8, 16))
        self.assertEqual(len(done.programs), 2, str(done))
        self.assertIn("setitem", str(done))

        def argument(x):
            y = x.view(4, 32)
            y.cumsum_(0)
            return F.linear(x, a)
        torch._dynamo.reset()
        self.assertEqual(self.parts(argument, torch.randn(8, 16)).programs, [])

    def test_gradients(self):
        model = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(2)])

        def f(x):
            h = F.silu(model[0](x))
            more = h.cumsum(0)
            h += more
            return model[1](h)
        x = torch.randn(8, 16)
        both = []
        for call in (torch.compile(f, backend="coda", options={"fallback": "eager"}), f):
            model.zero_grad()
            y = call(x)
            y.square().sum().backward()
            both.append([y.detach(), *(p.grad.clone() for p in model.parameters())])
        self.near(*both)

    def test_families(self):
        try:
            import transformers
        except ImportError as e:
            return print("  note: no families: %s" % e)
        transformers.logging.set_verbosity_error()
        size = dict(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, max_position_embeddings=64, num_experts_per_tok=2)
        for word, more in (("Mixtral", dict(num_local_experts=4)),
                           ("Qwen3Moe", dict(head_dim=16, num_experts=4, moe_intermediate_size=32))):
            torch._dynamo.reset()
            config = getattr(transformers, word + "Config")(**size, **more)
            model, ids = getattr(transformers, word + "ForCausalLM")(config).eval(), torch.randint(0, 128, (2, 24))
            fast = torch.compile(model, backend="coda", options={"fallback": "eager"})
            with torch.no_grad():
                for k in ids, ids.flip(1):
                    self.near(fast(input_ids=k, use_cache=False).logits, model(input_ids=k, use_cache=False).logits)
            done = dynamo.last[-1]
            self.assertEqual(len(done.programs), 3, str(done))  # of each attention, and of the head
            self.assertIn("model.layers.1.mlp.experts: ", str(done))
            self.assertFalse([s for s, _, _ in done.refused if ".mlp." not in s], str(done))


if __name__ == "__main__":
    print("test_experts.py: torch %s" % torch.__version__)
    unittest.main()
