#!/usr/bin/env python3
"""test_generate.py -- `generate` of unmodified models of transformers with a static cache, by way of the backend, on the
CPU device: positions and masks are arguments there. Tokens are PyTorch's, but where two logits of fp64 are as good as
one another."""
import sys
import unittest
import warnings

try:
    import torch
    import transformers
except ImportError as e:
    print("test_generate.py: skipped: %s" % e)
    sys.exit(0)

import families
import libcoda.dynamo as dynamo
from test_dynamo import Base, off

warnings.filterwarnings("ignore", category=FutureWarning)
TOKENS, ULPS = 6, 4
F = torch.nn.functional


class Generate(Base):
    def settings(self, ids, mask):
        return dict(inputs=ids, attention_mask=mask, cache_implementation="static", max_new_tokens=TOKENS, do_sample=False,
                    eos_token_id=None, pad_token_id=0)

    def prompts(self, sequences):
        """Of the second sequence three tokens are padding, on the left."""
        ids, mask = torch.randint(1, 128, (sequences, 7)), torch.ones(sequences, 7, dtype=torch.int64)
        mask[1:2, :3] = 0
        return ids, mask

    def close(self, model, text, mask):
        """For each sequence and new token: are the two best logits of fp64 within ULPS of fp32?"""
        whole = torch.cat((mask, mask.new_ones(len(mask), TOKENS)), 1)
        places = (whole.cumsum(1) - 1).clamp(min=0)
        logits = model.double()(input_ids=text, attention_mask=whole, position_ids=places, use_cache=False).logits
        model.float()
        best = logits[:, -TOKENS - 1:-1].topk(2).values
        ulp = torch.finfo(torch.float32).eps * torch.exp2(best[..., 0].abs().log2().floor())
        return best[..., 0] - best[..., 1] <= ULPS * ulp

    def same_tokens(self, model, ours, theirs, mask):
        """Up to the first one that may be another."""
        self.assertEqual(ours.shape, theirs.shape)
        close, new = self.close(model, theirs, mask), slice(-TOKENS, None)
        for a, b, may in zip(ours[:, new], theirs[:, new], close):
            most = int(may.nonzero()[0]) if bool(may.any()) else TOKENS
            self.assertEqual(a[:most].tolist(), b[:most].tolist())

    def generate(self, name, sequences):
        torch._dynamo.reset()
        dynamo.reset()
        model, eager = families.model_of(name), families.model_of(name)
        model.forward = torch.compile(model.forward, backend="coda", fullgraph=True, options={"fullgraph": True})
        for _ in range(2):  # the second text has the first one's cache
            ids, mask = self.prompts(sequences)
            ours = model.generate(disable_compile=True, **self.settings(ids, mask))
            theirs = eager.generate(disable_compile=True, **self.settings(ids, mask))
            self.same_tokens(eager, ours, theirs, mask)
        self.assertLessEqual(len(dynamo.last), 2)
        self.assertEqual([done.counts()[2] for done in dynamo.last], [0] * len(dynamo.last), dynamo.report())
        return [done.whole.first.plan.stats.launches for done in dynamo.last]

    def test_llama(self):
        """Five launches for a layer of a token; the tokens, the counters, the mask, the logits."""
        self.assertLessEqual(self.generate("llama", 1)[-1], 2 * 5 + 4)

    def test_padded(self):
        self.generate("llama31", 2)
        self.generate("qwen3", 2)

    def test_learned_positions(self):
        self.generate("gpt2", 2)

    def test_other_ways(self):
        """Samples, beams, a draft of another model, a cache that grows: the tokens are PyTorch's by the same random numbers."""
        ids, mask = self.prompts(2)
        one = dict(inputs=ids[:1], attention_mask=mask[:1])
        draft = families.model_of("llama")
        [p.add_(0.02 * torch.randn_like(p)) for p in draft.parameters()]
        for more in (dict(do_sample=True, top_k=20, top_p=0.9, temperature=0.8), dict(num_beams=3), dict(repetition_penalty=1.3),
                     dict(one, assistant_model=draft, cache_implementation=None), dict(cache_implementation=None)):
            with self.subTest(list(more)):
                torch._dynamo.reset()
                model, eager, made = families.model_of("llama"), families.model_of("llama"), []
                model.forward = torch.compile(model.forward, backend="coda", fullgraph=True, options={"fullgraph": True})
                for m in (model, eager):
                    torch.manual_seed(9)
                    made.append(m.generate(disable_compile=True, **dict(self.settings(ids, mask), **more)))
                self.assertEqual(*[x.tolist() for x in made])

    def test_config(self):
        """As transformers itself compiles the step."""
        model, eager = families.model_of("llama"), families.model_of("llama")
        config = transformers.CompileConfig(backend="coda", fullgraph=True)
        config._compile_all_devices = True
        ids, mask = self.prompts(1)
        ours = model.generate(compile_config=config, **self.settings(ids, mask))
        self.same_tokens(eager, ours, eager.generate(disable_compile=True, **self.settings(ids, mask)), mask)
        self.assertEqual([done.counts()[2] for done in dynamo.last], [0])


class Parts(Base):
    def check(self, f, *arguments, text=""):
        """f of two sets of arguments, by one plan."""
        torch._dynamo.reset()
        fast = self.compiled(f)
        for x in arguments:
            got = fast(*[y.clone() for y in x])
            self.assertTrue(bool(torch.isfinite(got).all()))
            self.assertLessEqual(off(got, f(*[y.clone() for y in x])), 1e-5)
        self.whole()
        self.assertIn(text, dynamo.last[-1].whole.first.text)

    def turned(self, dim):
        """Heads [B, H, T, D] or [B, T, H, D] by tables of positions."""
        turns = torch.nn.Module()
        turns.register_buffer("f", 100.0 ** -(torch.arange(0, 8, 2) / 8))

        class Turn(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.turns = turns

            def forward(self, x, places):
                angle = places[..., None].float() * self.turns.f
                angle = torch.cat((angle, angle), -1).unsqueeze(dim)
                half = torch.cat((-x[..., 4:], x[..., :4]), -1)
                return x * (angle.cos() * 0.5) + half * (angle.sin() * 0.5)
        return Turn()

    def test_positions(self):
        """In any order; of each sequence, or of all; of one token or more; heads before tokens, or behind."""
        for dim, shape in ((1, (2, 3, 5, 8)), (1, (2, 3, 1, 8)), (2, (2, 5, 3, 8)), (2, (1, 1, 3, 8)), (1, (1, 3, 1, 8))):
            for b in {1, shape[0]}:
                with self.subTest(shape=shape, b=b):
                    t = shape[3 - dim]
                    self.check(self.turned(dim), *[(torch.randn(shape), torch.randint(0, 900, (b, t))) for _ in range(2)],
                               text="= rope ")

    def test_counted_heads(self):
        """One token whose heads lie behind it, at a place that a counter says."""
        turn = self.turned(2)
        self.check(lambda x, n: turn(x, (torch.arange(1) + n)[None]), *[(torch.randn(2, 1, 3, 8), torch.tensor(n))
                   for n in (4, 77)], text="= rope ")

    def test_no_positions(self):
        """Tables by something else than positions are no rotation that is known."""
        turn = self.turned(1)
        with self.assertRaisesRegex(Exception, "no rule for cos"):
            self.check(lambda x, p: turn(x, p.float() * 1.5), (torch.randn(1, 3, 5, 8), torch.arange(5)[None]))

    @staticmethod
    def attend(x, w, cache, n, mask):
        b, t, _ = x.shape
        kv = F.linear(x, w).view(b, t, 2, 8).transpose(1, 2)
        cache.index_copy_(2, torch.arange(t) + n, kv)
        return F.scaled_dot_product_attention(kv, cache, cache, attn_mask=mask)

    def test_masks(self):
        """Masks with holes, of each query and of all; what lies behind the last key that is seen is not read."""
        for t, rows, kind in ((1, 1, "bool"), (3, 3, "bool"), (3, 1, "bool"), (1, 1, "float")):
            with self.subTest(t=t, rows=rows, kind=kind):
                self.check(self.attend, *[self.masked(t, rows, kind, last) for last in (9, 7)], text="= attention ")

    def masked(self, t, rows, kind, last):
        mask = torch.rand(2, 1, rows, 12) > 0.4
        mask[..., 2], mask[..., last], mask[..., last + 1:] = True, True, False
        cache = torch.randn(2, 2, 12, 8)
        if kind == "float":
            mask = torch.where(mask, torch.rand(mask.shape), torch.finfo(torch.float32).min)
        return torch.randn(2, t, 16), torch.randn(16, 16), cache, torch.tensor(4), mask

    def test_unseen(self):
        """The plan reads no key behind the last one that is seen: there may be NaN, of which PyTorch makes NaN."""
        x, w, cache, n, mask = self.masked(1, 1, "bool", 7)
        want = self.attend(x, w, cache.clone(), n, mask)
        cache[:, :, 8:] = float("nan")
        self.assertLessEqual(off(self.compiled(self.attend)(x, w, cache, n, mask), want), 1e-5)


if __name__ == "__main__":
    print("test_generate.py: torch %s, transformers %s" % (torch.__version__, transformers.__version__))
    unittest.main()
