#!/usr/bin/env python3
"""test_decode.py -- torch.compile(model, backend="coda") with a static cache of transformers, on the CPU device: the
prompt is one graph, each token after it another one, and both leave in the cache what PyTorch leaves there."""
import sys
import unittest
import warnings

try:
    import torch
    import transformers
    from transformers import StaticCache
except ImportError as e:
    print("test_decode.py: skipped: %s" % e)
    sys.exit(0)

import families
import libcoda.dynamo as dynamo
from test_dynamo import Base, off

warnings.filterwarnings("ignore", category=FutureWarning)
PROMPT, KEYS, TOKENS = 7, 80, 64


class Decode(Base):
    def traced(self, model):
        """The compiled model, and a list that grows with each graph of Dynamo's."""
        graphs = []

        def backend(module, example):
            graphs.append(module)
            return dynamo.backend(module, example, options={"fullgraph": True})
        return torch.compile(model, backend=backend, fullgraph=True), graphs

    def caches(self, model):
        return [StaticCache(config=model.config, max_cache_len=KEYS) for _ in range(2)]

    def step(self, call, ids, cache):
        return call(input_ids=ids, past_key_values=cache, use_cache=True).logits

    def same_caches(self, ours, theirs):
        for a, b in zip(ours.layers, theirs.layers):
            self.assertEqual(int(a.cumulative_length), int(b.cumulative_length))
            self.assertLessEqual(off(a.keys, b.keys), 1e-5)
            self.assertLessEqual(off(a.values, b.values), 1e-5)

    def decode(self, name, sequences=1, tokens=TOKENS, dtype=torch.float32, bar=1e-5):
        """Tokens are those of PyTorch wherever its two best logits differ by more than what rounding makes of them."""
        torch._dynamo.reset()
        model = families.model_of(name, dtype)
        fast, graphs = self.traced(model)
        ours, theirs = self.caches(model)
        ids = torch.randint(1, 128, (sequences, PROMPT))
        for _ in range(1 + tokens):
            a, b = self.step(fast, ids, ours), self.step(model, ids, theirs)
            self.assertLessEqual(off(a, b), bar)
            best = b[:, -1].float().topk(2).values
            sure = (best[:, 0] - best[:, 1]) > 2 * bar * b.abs().max()
            ids = b[:, -1:].argmax(-1)
            self.assertTrue(bool((a[:, -1:].argmax(-1) == ids)[sure].all()))
        self.same_caches(ours, theirs) if dtype == torch.float32 else None
        self.assertEqual(len(graphs), 2)
        self.whole()

    def test_tokens(self):
        for name in ("llama", "qwen3"):
            with self.subTest(name):
                self.decode(name)

    def test_families(self):
        for name in ("llama31", "qwen2", "gemma", "phi3", "gpt2"):
            with self.subTest(name):
                self.decode(name, tokens=3)

    def test_sequences(self):
        self.decode("llama", sequences=3, tokens=8)

    def test_16_bits(self):
        self.decode("llama", tokens=4, dtype=torch.bfloat16, bar=5e-2)

    def test_launches(self):
        """A layer of one token takes five; the token's embedding, its positions and the logits three."""
        self.decode("llama", tokens=1)
        self.assertLessEqual(dynamo.last[-1].whole.first.plan.stats.launches, 2 * 5 + 3)

    def test_reset(self):
        """A cache that begins anew is another call, and no other graph."""
        model = families.model_of("llama")
        fast, graphs = self.traced(model)
        ours, theirs = self.caches(model)
        ids = torch.randint(1, 128, (1, PROMPT))
        for _ in range(3):
            self.step(fast, ids, ours), self.step(model, ids, theirs)
            ids = torch.randint(1, 128, (1, 1))
        for cache in (ours, theirs):
            for layer in cache.layers:
                layer.cumulative_length.fill_(4)
        self.assertLessEqual(off(self.step(fast, ids, ours), self.step(model, ids, theirs)), 1e-5)
        self.same_caches(ours, theirs)
        self.assertEqual(len(graphs), 2)

    def test_refused(self):
        """Caches that roll, and keys that are stored where no counter says, are left to PyTorch, by name."""
        for name, why in (("mistral", "roll"), ("gemma2", "known when it runs|roll")):
            torch._dynamo.reset()
            model = families.model_of(name)
            fast, _ = self.traced(model)
            cache = self.caches(model)[0]
            with self.subTest(name), self.assertRaisesRegex(Exception, why):
                for tokens in (PROMPT, 1, 1, 1, 1):  # of a window of 9
                    self.step(fast, torch.randint(1, 128, (1, tokens)), cache)


class Written(Base):
    def check(self, f, *arguments):
        """f of the arguments, compiled and not: results, and what is left in them."""
        torch._dynamo.reset()
        ours = [x.clone() for x in arguments]
        got = self.compiled(f)(*ours)
        want = f(*arguments)
        self.assertLessEqual(off(got, want), 1e-5)
        for a, b in zip(ours, arguments):
            self.assertTrue(torch.allclose(a.double(), b.double(), atol=1e-5), "what is left differs")

    def refused(self, f, why, *arguments):
        torch._dynamo.reset()
        with self.assertRaisesRegex(Exception, why):
            self.compiled(f)(*[x.clone() for x in arguments])

    @staticmethod
    def attend(x, w, cache, n, mask=None, late=False):
        """Keys and values are one cache."""
        b, t, _ = x.shape
        kv = torch.nn.functional.linear(x, w).view(b, t, 2, 8).transpose(1, 2)
        at = torch.arange(t) + n
        view = cache[:, :1] if late else None
        cache.index_copy_(2, at, kv)
        seen = torch.arange(cache.shape[2])[None] <= at[:, None] if mask is None else mask
        y = torch.nn.functional.scaled_dot_product_attention(kv, cache, cache, attn_mask=seen[None, None])
        return y if view is None else y + view.sum()

    def arguments(self):
        return torch.randn(2, 3, 16), torch.randn(16, 16), torch.randn(2, 2, 10, 8), torch.tensor(4)

    def test_cache(self):
        self.check(self.attend, *self.arguments())

    def test_counter(self):
        def f(x, w, cache, n):
            y = self.attend(x, w, cache, n)
            n.add_(3)
            return y
        self.check(f, *self.arguments())

    def test_refused(self):
        x, w, cache, n = self.arguments()
        self.refused(lambda *a: self.attend(*a, late=True), "view|not causal|no rule|read later", x, w, cache, n)
        self.refused(lambda *a: self.attend(*a, mask=torch.ones(3, 10, dtype=torch.bool)), "not causal", x, w, cache, n)
        self.refused(lambda x, n: torch.nn.functional.linear(x, x) * (torch.arange(3) ** 2 + n * n), "known when it runs",
                     torch.randn(3, 4), n)


if __name__ == "__main__":
    print("test_decode.py: torch %s, transformers %s" % (torch.__version__, transformers.__version__))
    unittest.main()
