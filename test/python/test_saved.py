#!/usr/bin/env python3
"""test_saved.py -- libcoda.dynamo.save and load: calls of a model from a file, on the CPU device, without a graph of
Dynamo's; calls that the file does not have; files and models that do not fit, by name."""
import dataclasses
import os
import sys
import tempfile
import unittest
import warnings

try:
    import torch
    import transformers
    from transformers import StaticCache
except ImportError as e:
    print("test_saved.py: skipped: %s" % e)
    sys.exit(0)

import families
import libcoda as coda
import libcoda.dynamo as dynamo
from test_dynamo import Base, off

EAGER = {"fallback": "eager"}


@dataclasses.dataclass
class Result:
    values: torch.Tensor
    items: torch.Tensor
    y: torch.Tensor


class Saved(Base):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "model.coda")

    def saved(self, model, *calls, other=None):
        """The file of these calls, for a model that was made anew, whose weights are others."""
        dynamo.save(model, self.path, *calls)
        torch._dynamo.reset()
        dynamo.reset()
        other = other or model
        for p in other.parameters():
            p.mul_(1.25)
        return dynamo.load(other, self.path, options=EAGER)

    def same(self, fast, model, *args, **kwargs):
        """As the model, and nothing is compiled."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got, want = fast(*args, **kwargs), model(*args, **kwargs)
        self.assertIs(type(got), type(want))
        self.assertEqual(list(got), list(want))
        self.assertLessEqual(off(got[0], want[0]), 1e-5)
        self.assertEqual(dynamo.last, [])

    def compiles(self, fast, why, *args, **kwargs):
        """A warning says why, once."""
        with warnings.catch_warnings(record=True) as list_:
            warnings.simplefilter("always")
            got = fast(*args, **kwargs)
        said = [str(w.message) for w in list_ if "libcoda compiles" in str(w.message)]
        self.assertEqual(len(said), 1, said)
        self.assertIn(why, said[0])
        self.assertNotIn("\n", said[0])
        fast.compiled = None
        torch._dynamo.reset()
        dynamo.reset()
        return got

    # ---- Calls ----

    def test_families(self):
        for name in ("llama", "qwen3", "gemma2", "gpt2", "bert", "vit"):
            with self.subTest(name):
                inputs, model = families.inputs_of(name), families.model_of(name)
                fast = self.saved(families.model_of(name), inputs, other=model)
                self.same(fast, model, **inputs)
                self.assertIs(fast.config, model.config)

    def test_masks(self):
        inputs = families.inputs_of("bert", padded=True)
        model = families.model_of("bert")
        fast = self.saved(model, inputs)
        for rows in (5, 9):
            inputs["attention_mask"][0, -rows:] = 0
            self.assertLessEqual(off(fast(**inputs)[0][:, :-9], model(**inputs)[0][:, :-9]), 1e-5)
        self.assertEqual(dynamo.last, [])

    def test_lengths(self):
        model = families.model_of("llama")
        inputs = families.inputs_of("llama")
        torch._dynamo.mark_dynamic(inputs["input_ids"], 1)
        fast = self.saved(model, inputs)
        for tokens in (24, 2, 33, 47, 2):
            self.same(fast, model, **families.inputs_of("llama", tokens=tokens))
        why = "was saved"
        self.compiles(fast, why, **families.inputs_of("llama", sequences=3))

    def test_decode(self):
        """The prompt and tokens with a static cache, as its owner made it."""
        model = families.model_of("qwen3")

        def cache():
            made = StaticCache(config=model.config, max_cache_len=32)
            made.early_initialization(1, 2, 16, torch.float32, torch.device("cpu"))
            return made
        prompt, token = torch.randint(1, 128, (1, 7)), torch.randint(1, 128, (1, 1))
        fast = self.saved(model, *[dict(input_ids=x, past_key_values=cache(), use_cache=True) for x in (prompt, token)])
        ours, theirs, ids = cache(), cache(), prompt
        for _ in range(6):
            got = fast(input_ids=ids, past_key_values=ours, use_cache=True)
            want = model(input_ids=ids, past_key_values=theirs, use_cache=True)
            self.assertIs(got.past_key_values, ours)
            self.assertLessEqual(off(got.logits, want.logits), 1e-5)
            ids = want.logits[:, -1:].argmax(-1)
        for a, b in zip(ours.layers, theirs.layers):
            self.assertEqual(int(a.cumulative_length), 12)
            self.assertLessEqual(off(a.keys, b.keys), 1e-5)
        self.assertEqual(dynamo.last, [])

    def test_structure(self):
        """Of arguments and results, of any module."""
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w, self.scale = torch.nn.Linear(8, 8), 3.0

            def forward(self, x, pair, *, more=None, flag=False):
                y = self.w(x) * self.scale
                return {"y": y, "both": [y + pair[0], (x, pair[1]["z"] if flag else None)]}, more, 7, "word"
        model, x, z = Model().eval(), torch.randn(3, 8), torch.randn(3, 8)
        given = (x, (z, {"z": z}))
        fast = self.saved(model, given)
        got, want = fast(*given), model(*given)
        self.assertLessEqual(off(got[0]["y"], want[0]["y"]), 1e-5)
        self.assertIs(got[0]["both"][1][0], x)
        self.assertEqual((got[0]["both"][1][1], got[1:]), (None, want[1:]))
        self.assertEqual(dynamo.last, [])
        self.compiles(fast, "again", x, (z, {"z": z + 1}))  # where the saved call has one tensor twice
        got = self.compiles(fast, "", x, (z, {"z": z}), flag=True)
        self.assertIs(got[0]["both"][1][1], z)

    def test_threads(self):
        import threading
        model, wrong = families.model_of("llama"), []
        several = [families.inputs_of("llama", sequences=k + 1) for k in range(2)]
        fast = self.saved(model, *several)
        want = [fast(**i)[0] for i in several]

        def work(k):
            with torch.no_grad():
                for n in range(20):
                    if not torch.equal(fast(**several[(k + n) % 2])[0], want[(k + n) % 2]):
                        wrong.append(k)
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(wrong, [])

    def test_copies(self):
        import copy
        import pickle
        model, inputs = families.model_of("llama"), families.inputs_of("llama")
        fast = self.saved(model, inputs)
        other = copy.deepcopy(fast)
        other.model.lm_head.weight.mul_(2)
        self.assertFalse(torch.equal(fast(**inputs)[0], other(**inputs)[0]))
        self.same(other, other.model, **inputs)
        with self.assertRaisesRegex(TypeError, "pickle the model"):
            pickle.dumps(fast)

    def test_weights_alone(self):
        """A process with neither the model nor its package: by the weights' names."""
        import subprocess
        for name in ("llama", "bert"):
            model, inputs = families.model_of(name), families.inputs_of(name)
            self.saved(model, inputs)
            given, made = (os.path.join(self.folder.name, n) for n in ("given", "made"))
            torch.save((dict(model.state_dict()), inputs), given)
            code = """if True:
                import sys, torch, libcoda.dynamo
                weights, inputs = torch.load(sys.argv[2])
                with torch.no_grad():
                    y = libcoda.dynamo.load(weights, sys.argv[1])(**inputs)
                there = [m for m in ("transformers", "torch._dynamo", "sympy") if m in sys.modules]
                assert not there, there
                torch.save((dict(y), y.%s), sys.argv[3])
                """ % ("logits" if name == "llama" else "last_hidden_state")
            subprocess.run([sys.executable, "-c", code, self.path, given, made], check=True)
            got, want = torch.load(made), model(**inputs)
            self.assertEqual(list(got[0])[:1], list(want)[:1])
            self.assertLessEqual(off(got[1], want[0]), 1e-5)
        weights = dict(model.state_dict())
        fast = dynamo.load(weights, self.path)
        with self.assertRaisesRegex(coda.UnsupportedError, "there is no model to compile: input_ids"):
            fast(input_ids=inputs["input_ids"][:, :5])
        w = weights.pop("encoder.layer.0.output.dense.weight")
        with self.assertRaisesRegex(coda.InvalidError, "no encoder.layer.0.output.dense.weight among the weights"):
            dynamo.load(weights, self.path)
        for other in (w.bfloat16(), w[:, :8]):
            with self.assertRaisesRegex(coda.InvalidError, "output.dense.weight is .*, and the file's is f32"):
                dynamo.load({**weights, "encoder.layer.0.output.dense.weight": other}, self.path)

    def test_ties(self):
        """A tensor of several names is taken by any of them, and they agree."""
        class Model(torch.nn.Module):
            def __init__(self, head_first):
                super().__init__()
                if head_first:
                    self.head, self.embed = torch.nn.Linear(8, 16, bias=False), torch.nn.Embedding(16, 8)
                else:
                    self.embed, self.head = torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16, bias=False)
                self.head.weight = self.embed.weight

            def forward(self, ids):
                return self.head(self.embed(ids))
        for head_first in (False, True):
            model, ids = Model(head_first).eval(), torch.randint(0, 16, (2, 5))
            self.saved(model, (ids,))
            w, want = model.embed.weight.detach(), model(ids)
            for weights in ({"embed.weight": w}, {"head.weight": w}, {"embed.weight": w, "head.weight": w.clone()}):
                self.assertLessEqual(off(dynamo.load(weights, self.path)(ids), want), 1e-5)
            for other in (w + 1, w.bfloat16(), w[:, :4]):
                for weights in ({"embed.weight": w, "head.weight": other}, {"embed.weight": other, "head.weight": w}):
                    with self.assertRaisesRegex(coda.InvalidError, "^(embed.weight and head|head.weight and embed)"
                                                ".weight are one tensor in the file, and here they differ$"):
                        dynamo.load(weights, self.path)
            with self.assertRaisesRegex(coda.InvalidError, "there is no (embed|head).weight among the weights"):
                dynamo.load({}, self.path)

    def test_fields(self):
        """Of a result whose class is not there, be they named as a dict's methods are."""
        model, x = torch.nn.Linear(8, 8).eval(), torch.randn(3, 8)

        class Named(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = model

            def forward(self, x):
                y = self.w(x)
                return Result(y, y * 2, y + 1)
        named = Named().eval()
        self.saved(named, (x,))
        got, y = dynamo.load(dict(named.state_dict()), self.path)(x), model(x)
        for a, b in ((got.values, y), (got.items, y * 2), (got.y, y + 1), (got["values"], y), (dict(got)["y"], y + 1)):
            self.assertLessEqual(off(a, b), 1e-5)
        with self.assertRaisesRegex(AttributeError, "none"):
            got.none

    def test_given(self):
        """Weights by name, of whatever kind, beside what the file does not read."""
        import collections
        model, x = torch.nn.Linear(8, 8).eval(), torch.randn(4, 8)
        self.saved(model, (x,))
        weights = dict(model.state_dict())
        for given in ({"epoch": 3, "none": None, **weights}, collections.UserDict(weights),
                      {"q": torch.empty(2, device="meta"), **weights}):
            self.assertLessEqual(off(dynamo.load(given, self.path)(x), model(x)), 1e-5)
        w = weights["weight"]
        for other in (w.numpy(), None, 3, w.to_sparse(), w.to("meta"), w.double(), w.to(torch.complex64)):
            with self.assertRaisesRegex(coda.InvalidError, "^weight is [^\n]*$"):
                dynamo.load({**weights, "weight": other}, self.path)
        with self.assertRaisesRegex(coda.UnsupportedError, "argument 0 on axis 0 is 5, and 4 was saved"):
            dynamo.load(weights, self.path)(x.new_zeros(5, 8))

    # ---- What changes behind load ----

    def test_weights(self):
        model, inputs = families.model_of("llama"), families.inputs_of("llama")
        fast = self.saved(model, inputs)
        model.load_state_dict({k: v + 0.01 for k, v in model.state_dict().items()})
        self.same(fast, model, **inputs)
        model.load_state_dict({k: v * 1.5 for k, v in model.state_dict().items()}, assign=True)
        self.same(fast, model, **inputs)
        weight = model.model.layers[1].mlp.down_proj.weight
        weight.data = weight * 2
        self.same(fast, model, **inputs)
        weight = model.model.layers[0].self_attn.q_proj.weight
        weight.data = weight.data.t()  # square, and at the same address
        self.same(fast, model, **inputs)
        model.model.layers[0].mlp.up_proj.weight = torch.nn.Parameter(torch.randn(96, 64))
        self.same(fast, model, **inputs)

    def test_others(self):
        """What the graph depends on and is otherwise now: compiled, and right."""
        model, inputs = families.model_of("llama"), families.inputs_of("llama")
        fast = self.saved(model, inputs)
        self.compiles(fast, "input_ids", **families.inputs_of("llama", tokens=11))
        self.compiles(fast, "saved", **dict(inputs, logits_to_keep=1))
        model.train()
        self.compiles(fast, "training", **inputs)
        model.eval()
        with torch.enable_grad():
            loss = self.compiles(fast, "gradients are wanted", **inputs)[0].square().mean()
            loss.backward()
        self.assertGreater(float(model.lm_head.weight.grad.abs().max()), 0)
        with torch.autocast("cpu", torch.bfloat16):
            self.compiles(fast, "autocast", **inputs)
        hook = model.model.layers[0].register_forward_hook(lambda m, i, o: o * 2)
        got = self.compiles(fast, "hooks", **inputs)
        self.assertLessEqual(off(got[0], model(**inputs)[0]), 1e-5)
        hook.remove()
        self.same(fast, model, **inputs)
        model.model.rotary_emb.inv_freq.mul_(0.5)
        got = self.compiles(fast, "a buffer", **inputs)
        self.assertLessEqual(off(got[0], model(**inputs)[0]), 1e-5)
        model, inputs = families.model_of("bert"), families.inputs_of("bert")
        fast = self.saved(model, inputs)
        model.bfloat16()
        self.assertEqual(self.compiles(fast, "is torch.bfloat16", **inputs)[0].dtype, torch.bfloat16)

    # ---- What is refused ----

    def test_models(self):
        model, inputs = families.model_of("llama"), families.inputs_of("llama")
        self.saved(model, inputs)

        def differs(what, name):
            other = families.model_of("llama")
            what(other)
            with self.assertRaisesRegex(coda.InvalidError, "differ in %s$" % name):
                dynamo.load(other, self.path)
        differs(lambda m: setattr(m.model.norm, "variance_epsilon", 1e-5), "model.norm")
        differs(lambda m: setattr(m.model.layers[1].mlp.down_proj, "weight", torch.nn.Parameter(torch.ones(64, 95))),
                "model.layers.1.mlp.down_proj")
        differs(lambda m: setattr(m.lm_head, "weight", m.model.embed_tokens.weight), "lm_head")
        differs(lambda m: setattr(m.model.layers[0].mlp, "act_fn", torch.nn.GELU()), "model.layers.0.mlp.act_fn")
        differs(lambda m: m.double(), "model.embed_tokens")
        other = families.model_of("llama")
        other.model.rotary_emb.inv_freq.mul_(0.5)
        with self.assertRaisesRegex(coda.InvalidError, "inv_freq is not what it was"):
            dynamo.load(other, self.path)
        with self.assertRaisesRegex(coda.InvalidError, "another model"):
            dynamo.load(families.model_of("mistral"), self.path)
        model.model.layers[0].register_forward_hook(lambda *_: None)
        for call in (lambda: dynamo.load(model, self.path), lambda: dynamo.save(model, self.path, inputs)):
            with self.assertRaisesRegex(coda.UnsupportedError, "hooks"):
                call()

    def test_files(self):
        model, inputs = families.model_of("llama"), families.inputs_of("llama")
        self.saved(model, inputs)
        with open(self.path, "rb") as f:
            whole = f.read()
        for bad in (b"", whole[:len(whole) // 2], b"text\n", whole[:-40]):
            with open(self.path, "wb") as f:
                f.write(bad)
            with self.assertRaisesRegex(coda.InvalidError, "^[^\n]*model.coda is no file of [^\n]*$"):
                dynamo.load(model, self.path)
        with self.assertRaises(FileNotFoundError):
            dynamo.load(model, self.path + ".none")
        torch.save({"libcoda": 0}, self.path)
        with self.assertRaisesRegex(coda.InvalidError, "is no file of"):
            dynamo.load(model, self.path)
        with open(self.path, "wb") as f:
            f.write(whole)
        saved = torch.load(self.path, weights_only=True)
        saved["versions"]["transformers"] = "1.0"
        torch.save(saved, self.path)
        with self.assertRaisesRegex(coda.InvalidError, "made with transformers 1.0, and here is %s" %
                                    transformers.__version__):
            dynamo.load(model, self.path)

    def test_calls(self):
        """That no file can hold."""
        model = families.model_of("llama")
        ids = families.inputs_of("llama")["input_ids"]

        def refused(why, call, model=model):
            torch._dynamo.reset()
            with self.assertRaisesRegex(Exception, why):
                dynamo.save(model, self.path, call)
            self.assertFalse(os.path.exists(self.path))
        refused("the call changes its arguments", dict(input_ids=ids, past_key_values=StaticCache(
            config=model.config, max_cache_len=32), use_cache=True))
        refused("grow|returns a|takes|refuse|cache", dict(input_ids=ids, use_cache=True))
        refused("input_ids of a call is a", dict(input_ids=iter([ids]), use_cache=False))
        linear = torch.nn.Linear(8, 8)
        refused("is a parameter", (linear.weight,), linear)
        with self.assertRaisesRegex(TypeError, "a call"):
            dynamo.save(model, self.path)


if __name__ == "__main__":
    print("test_saved.py: torch %s, transformers %s" % (torch.__version__, transformers.__version__))
    unittest.main()
