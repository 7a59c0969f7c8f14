"""serving_cases.py -- what serving.py measures: attention, an encoder and a decoder, each as a graph's text for libcoda, as
PyTorch's formula, and as its peers have it. """
import ctypes
import math
import string

import pytorch as base
import serving_peers
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CTYPE = {torch.bfloat16: "bf16", torch.float16: "f16", torch.int32: "i32", torch.float32: "f32"}
BACKEND = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


# ---- libcoda, by a graph's text ----

class Plan:
    """A compiled text. A run takes the tensors of its leaves, and its outputs, by name."""

    def __init__(self, lib, case, fold=0, flags=0):
        self.lib, self.cuda = lib, case.device == "cuda"
        graph, self.p = base.c.coda_graph(), base.c.coda_plan()
        self.must(lib.coda_graph_parse(ctypes.byref(graph), case.text().encode()))
        opt = base.c.coda_compile_options(device=0 if self.cuda else 1, fold=fold, flags=flags)
        self.must(lib.coda_compile(ctypes.byref(self.p), graph, ctypes.byref(opt)))
        lib.coda_graph_free(graph)
        stats = base.c.coda_plan_stats()
        self.must(lib.coda_plan_stats_get(self.p, ctypes.byref(stats)))
        self.launches = stats.launches
        self.work = self.scratch(lib.coda_plan_workspace(self.p), case.device)
        self.prepared = {}

    def scratch(self, size, device):
        t = torch.empty(size + 512, dtype=torch.uint8, device=device)
        return t, ctypes.c_void_p((t.data_ptr() + 255) // 256 * 256)

    def must(self, status):
        if status:
            sys.exit("serving.py: " + self.lib.coda_error().decode())

    def run(self, t):
        args = (ctypes.c_void_p * len(t))(*[x.data_ptr() for x in t.values()])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream if self.cuda else None)
        if id(t) not in self.prepared:
            device = next(iter(t.values())).device
            self.prepared[id(t)] = self.scratch(self.lib.coda_plan_prepared(self.p), device)
            self.must(self.lib.coda_prepare(self.p, args, self.prepared[id(t)][1], self.work[1], stream))
        self.must(self.lib.coda_run(self.p, args, self.prepared[id(t)][1], self.work[1], stream))

    def free(self):
        self.lib.coda_plan_free(self.p)


def leaf(kind, name, t):
    return "%%%s = %s %s[%s]\n" % (name, kind, CTYPE[t.dtype], ",".join(map(str, t.shape)))


class Case:
    """tensors() makes a copy of the leaves, in their order; weights and states are told by name. formula() is
    the output in torch, of any dtype; peers() yields further sides."""
    weights, states, out, fold = (), (), torch.bfloat16, base.FOLD_NONE
    bounds = "products", "stream"  # peers that compute less, to say what time cannot be saved
    allowed = None  # the error that is good, if not eager's decides

    def __init__(self, name, device):
        self.name, self.device = "serving/" + name, device

    def random(self, *shape, by=1.0):
        return (torch.randn(shape, device=self.device) * by).to(self.out)

    def ints(self, values):
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def copy(self):
        t = self.tensors()
        t["y"] = torch.full(self.shape, math.nan, dtype=self.out, device=self.device)
        return t

    def text(self):
        t = self.tensors()
        kinds = {**dict.fromkeys(self.weights, "weight"), **dict.fromkeys(self.states, "state")}
        return "".join(leaf(kinds.get(n, "input"), n, x) for n, x in t.items()) + self.program() + \
            "output %y = %out\n"

    def peers(self):
        yield "compile", compiled(self.formula)


def compiled(formula):
    torch._dynamo.reset()
    return torch.compile(formula, dynamic=False, fullgraph=True)


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def attend(q, k, v, causal=False):
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    return y.transpose(1, 2).flatten(2)


def by(backend, formula):
    def run(t):
        with sdpa_kernel([BACKEND[backend]]):
            return formula(t)
    return run


# ---- Attention ----

class Attention(Case):
    def __init__(self, kind, device, batch, queries, keys, count, kv, columns, causal):
        super().__init__("%s/%d/%dx%d/%dx%d%s" % (kind, count, kv, columns, batch, keys,
                                                  "/causal" if causal else ""), device)
        self.count, self.kv, self.causal, self.queries = count, kv, causal, queries
        self.sizes = batch, keys, columns
        self.shape = batch, queries, count * columns
        self.bytes = 4 * batch * keys * kv * columns
        self.flops = 4 * batch * queries * keys * count * columns / (2 if causal else 1)

    def tensors(self):
        batch, keys, columns = self.sizes
        return {"q": self.random(*self.shape), "k": self.random(batch, keys, self.kv * columns),
                "v": self.random(batch, keys, self.kv * columns)}

    def program(self):
        scale = 1 / math.sqrt(self.sizes[2])
        return "%%out = attention %%q, %%k, %%v {scale=%r,heads=%d,kv_heads=%d%s}\n" % (
            scale, self.count, self.kv, ",causal=1" if self.causal else "")

    def formula(self, t):
        return attend(heads(t["q"], self.count), heads(t["k"], self.kv), heads(t["v"], self.kv), self.causal)

    def peers(self):
        for name in BACKEND:
            yield name, by(name, self.formula)
        if self.queries == 1:
            yield from serving_peers.attention(self)


# ---- MiniLM ----

class Encoder(Case):
    """In 16 bits gains and biases of norms go into copies of the weights, but for few rows: there each
    product would finish the statistics of all rows again, which takes longer than the norms do."""

    def __init__(self, device, sentences, tokens, hidden=384, inner=1536, count=12, layers=6, words=30522,
                 out=torch.float16):
        super().__init__("encoder/%s%dx%d" % ("" if out == torch.float16 else "f32/", sentences, tokens), device)
        folds = out == torch.float16 and sentences * tokens > 64
        self.out, self.fold = out, base.FOLD_COPY if folds else base.FOLD_NONE
        self.shape = sentences, tokens, hidden
        self.hidden, self.inner, self.count, self.layers, self.words = hidden, inner, count, layers, words
        self.weights = [n for n in self.tensors() if n != "ids"]

    def tensors(self):
        h, f, made = self.hidden, self.inner, {}

        def linear(name, n, k):
            made["w_" + name] = self.random(n, k, by=1 / math.sqrt(k))
            made["b_" + name] = self.random(n, by=0.1)

        def norm(name):
            made["g_" + name], made["c_" + name] = 1 + self.random(h, by=0.1), self.random(h, by=0.1)

        made["ids"] = torch.randint(self.words, self.shape[:2], dtype=torch.int32, device=self.device)
        made["words"], made["places"] = self.random(self.words, h), self.random(self.shape[1], h)
        norm("e")
        for i in range(self.layers):
            linear("qkv%d" % i, 3 * h, h), linear("o%d" % i, h, h), norm("a%d" % i)
            linear("up%d" % i, f, h), linear("down%d" % i, h, f), norm("m%d" % i)
        return made

    def program(self):
        h = self.hidden
        text = "%word = embedding %words, %ids\n%sum = add %word, %places\n" \
            "%x0 = layer_norm %sum, %g_e, %c_e {eps=1e-12}\n"
        for i in range(self.layers):
            text += self.layer.substitute(
                i=i, next="out" if i + 1 == self.layers else "x%d" % (i + 1), h=h, h2=2 * h, h3=3 * h,
                count=self.count, scale=repr(1 / math.sqrt(h // self.count)))
        return text

    layer = string.Template("""%pq$i = matmul %x$i, %w_qkv$i
%qkv$i = add %pq$i, %b_qkv$i
%q$i = slice %qkv$i {axis=2,start=0,stop=$h,step=1}
%k$i = slice %qkv$i {axis=2,start=$h,stop=$h2,step=1}
%v$i = slice %qkv$i {axis=2,start=$h2,stop=$h3,step=1}
%a$i = attention %q$i, %k$i, %v$i {scale=$scale,heads=$count,kv_heads=$count}
%po$i = matmul %a$i, %w_o$i
%ob$i = add %po$i, %b_o$i
%or$i = add %ob$i, %x$i
%h$i = layer_norm %or$i, %g_a$i, %c_a$i {eps=1e-12}
%pu$i = matmul %h$i, %w_up$i
%ub$i = add %pu$i, %b_up$i
%u$i = gelu_erf %ub$i
%pd$i = matmul %u$i, %w_down$i
%db$i = add %pd$i, %b_down$i
%dr$i = add %db$i, %h$i
%$next = layer_norm %dr$i, %g_m$i, %c_m$i {eps=1e-12}
""")

    def formula(self, t):
        h, norm = self.hidden, lambda x, n: F.layer_norm(x, (self.hidden,), t["g_" + n], t["c_" + n], 1e-12)
        x = norm(F.embedding(t["ids"], t["words"]) + t["places"], "e")
        for i in range(self.layers):
            linear = lambda x, n: F.linear(x, t["w_%s%d" % (n, i)], t["b_%s%d" % (n, i)])
            a = attend(*(heads(y, self.count) for y in linear(x, "qkv").split(h, -1)))
            x = norm(linear(a, "o") + x, "a%d" % i)
            x = norm(linear(F.gelu(linear(x, "up")), "down") + x, "m%d" % i)
        return x

    def peers(self):
        yield "eager", self.formula
        yield "compile", compiled(self.formula)


# ---- LLaMA ----

class Prompt(Case):
    """Layers on the tokens of one prompt, none of which is in a cache."""

    def __init__(self, device, tokens, layers, hidden=4096, inner=11008, count=32):
        super().__init__("prompt/%dx%d" % (layers, tokens), device)
        self.hidden, self.inner, self.count, self.layers, self.tokens = hidden, inner, count, layers, tokens
        self.shape = 1, tokens, hidden
        self.weights = [n for n in self.tensors() if n[:2] in ("w_", "g_")]

    def layer_weights(self, made):
        h, f = self.hidden, self.inner
        for i in range(self.layers):
            made["g_a%d" % i] = 1 + self.random(h, by=0.1)
            made["w_qkv%d" % i] = self.random(3 * h, h, by=1 / math.sqrt(h))
            made["w_o%d" % i] = self.random(h, h, by=1 / math.sqrt(h))
            made["g_m%d" % i] = 1 + self.random(h, by=0.1)
            made["w_up%d" % i] = self.random(2 * f, h, by=1 / math.sqrt(h))
            made["w_down%d" % i] = self.random(h, f, by=1 / math.sqrt(f))
        return made

    def tensors(self):
        return self.layer_weights({"x0": self.random(*self.shape)})

    layer = """%n$i = rms_norm %x$i, %g_a$i {eps=1e-5}
%qkv$i = matmul %n$i, %w_qkv$i
%q$i = slice %qkv$i {axis=2,start=0,stop=$h,step=1}
%k$i = slice %qkv$i {axis=2,start=$h,stop=$h2,step=1}
%v$i = slice %qkv$i {axis=2,start=$h2,stop=$h3,step=1}
%qr$i = rope %q$i$positions {base=10000,head_dim=$dim,half=1}
%kr$i = rope %k$i$positions {base=10000,head_dim=$dim,half=1}
$attention%po$i = matmul %a$i, %w_o$i
%h$i = add %po$i, %x$i
%m$i = rms_norm %h$i, %g_m$i {eps=1e-5}
%gu$i = matmul %m$i, %w_up$i
%gate$i = slice %gu$i {axis=2,start=0,stop=$f,step=1}
%up$i = slice %gu$i {axis=2,start=$f,stop=$f2,step=1}
%s$i = swiglu %gate$i, %up$i
%pd$i = matmul %s$i, %w_down$i
%$next = add %pd$i, %h$i
"""
    attention = "%a$i = attention %qr$i, %kr$i, %v$i {scale=$scale,heads=$count,kv_heads=$count,causal=1}\n"
    positions = ""

    def program(self):
        h, f, text = self.hidden, self.inner, ""
        layer = string.Template(self.layer.replace("$attention", self.attention))
        for i in range(self.layers):
            last = i + 1 == self.layers and not self.head
            text += layer.substitute(
                i=i, next="out" if last else "x%d" % (i + 1), h=h, h2=2 * h, h3=3 * h, f=f, f2=2 * f,
                dim=h // self.count, count=self.count, scale=repr(1 / math.sqrt(h // self.count)),
                positions=self.positions)
        return text + self.head

    head = ""

    def turns(self, positions):
        dim = self.hidden // self.count
        by = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angle = torch.outer(positions.double().cpu(), by).to(self.device)
        return angle.cos().float(), angle.sin().float()

    def rope(self, x, cos, sin):
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def layers_of(self, t, attention):
        if not hasattr(self, "angles"):
            self.angles = self.turns(self.places())
        cos, sin = self.angles
        x = t["x0"]
        for i in range(self.layers):
            qkv = F.linear(base.rms_norm(x, t["g_a%d" % i]), t["w_qkv%d" % i])
            q, k, v = (heads(y, self.count) for y in qkv.split(self.hidden, -1))
            a = attention(t, i, self.rope(q, cos, sin), self.rope(k, cos, sin), v)
            h = F.linear(a, t["w_o%d" % i]) + x
            z = base.swiglu(F.linear(base.rms_norm(h, t["g_m%d" % i]), t["w_up%d" % i]))
            x = F.linear(z, t["w_down%d" % i]) + h
        return x

    def places(self):
        return torch.arange(self.tokens)

    def formula(self, t):
        return self.layers_of(t, lambda t, i, q, k, v: attend(q, k, v, True))

    def products(self, t):
        x = t["x0"]
        for i in range(self.layers):
            q, k, v = (heads(y, self.count) for y in F.linear(x, t["w_qkv%d" % i]).split(self.hidden, -1))
            h = F.linear(attend(q, k, v, True), t["w_o%d" % i])
            x = F.linear(F.linear(h, t["w_up%d" % i])[..., :self.inner], t["w_down%d" % i])
        return x

    def peers(self):
        self.formula(self.tensors())
        yield "products", by("cudnn", self.products)
        yield "compile", compiled(self.formula)


class Token(Prompt):
    """One more token after some in a cache: gpt-fast's way is a cache of a fixed size and a mask. Positions,
    slots and lengths stay, so that each run does the same."""

    def __init__(self, device, layers, before=1024, most=2048, words=32000, **shape):
        self.before, self.most, self.words = before, most, words
        super().__init__(device, 1, layers, **shape)
        self.name = "serving/token/%dx%d" % (layers, before)
        self.shape = 1, 1, words
        self.states = [n for n in self.tensors() if n[:2] in ("k_", "v_")]
        self.weights += ["g_f", "w_head"]
        self.weights = list(dict.fromkeys(self.weights))

    def tensors(self):
        h = self.hidden
        made = self.layer_weights({"x0": self.random(1, 1, h), "positions": self.ints([[self.before]]),
                                   "slots": self.ints([[self.before]]),
                                   "lengths": self.ints([self.before + 1])})
        for i in range(self.layers):
            made["k_%d" % i], made["v_%d" % i] = (self.random(1, self.most, h) for _ in "kv")
        made["g_f"] = 1 + self.random(h, by=0.1)
        made["w_head"] = self.random(self.words, h, by=1 / math.sqrt(h))
        return made

    positions = ", %positions"
    attention = """%kc$i = append %k_$i, %kr$i, %slots
%vc$i = append %v_$i, %v$i, %slots
%a$i = attention %qr$i, %kc$i, %vc$i, %lengths {scale=$scale,heads=$count,kv_heads=$count,causal=1,align=3}
"""
    head = ""

    def program(self):
        self.head = "%%f = rms_norm %%x%d, %%g_f {eps=1e-5}\n%%out = matmul %%f, %%w_head\n" % self.layers
        return super().program()

    def places(self):
        return torch.tensor([self.before])

    def cached(self, t, i, q, k, v):
        n = self.before
        if q.dtype == torch.float32 or self.device == "cpu":  # no write into what others read
            keys, values = (torch.cat((t[c % i][:, :n].unflatten(-1, (self.count, -1)).transpose(1, 2), x), 2)
                            for c, x in (("k_%d", k), ("v_%d", v)))
            return attend(q, keys, values)
        keys, values = (heads(t[c % i], self.count) for c in ("k_%d", "v_%d"))
        keys[:, :, self.slot], values[:, :, self.slot] = k, v
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=self.mask)
        return y.transpose(1, 2).flatten(2)

    def formula(self, t):
        if not hasattr(self, "mask"):
            self.slot = torch.tensor([self.before], device=self.device)
            self.mask = (torch.arange(self.most, device=self.device) <= self.before)[None, None, None]
        x = self.layers_of(t, self.cached)
        return F.linear(base.rms_norm(x, t["g_f"]), t["w_head"])

    def peers(self):
        self.formula(self.tensors())
        yield "compile", compiled(self.formula)
