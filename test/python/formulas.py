"""formulas.py -- blocks of models, each written once over operations `o`: libcoda's, JAX's or PyTorch's.

A case has the shapes of its leaves, in order, those of integers with what they are below, and its formula. Operations
that are not the arithmetic of their tensors: linear(x, w) = x w', norm, layer_norm, swiglu, geglu (stacked: gate, up),
gelu_tanh, gelu_erf, softmax, rope(x, heads), attention(q, k, v, heads, kv_heads, **how), table(w, ids), loss(logits,
target), columns(x, from, to), heads(x, n), together(x).
"""
import libcoda as coda

EPS, T, D, F, HEADS, KV, HEAD, V = 1e-5, 24, 64, 96, 4, 2, 16, 40
IGNORED = -100


class Arithmetic:
    """That of tensors, of JAX or of PyTorch."""
    def add(self, a, b):
        return a + b

    def mul(self, a, b):
        return a * b

    def bias(self, x, b):
        return x + b

    def scale(self, x, by):
        return x * by


class Case:
    def __init__(self, name, formula, integers=(), **shapes):
        self.name, self.formula, self.shapes, self.integers = name, formula, shapes, dict(integers)

    def floats(self):
        return [n for n in self.shapes if n not in self.integers]


def split(o, qkv, kv=KV):
    q, k = HEADS * HEAD, kv * HEAD
    return o.columns(qkv, 0, q), o.columns(qkv, q, q + k), o.columns(qkv, q + k, q + 2 * k)


def llama(o, t):
    q, k, v = split(o, o.linear(o.norm(t["x"], t["gain0"]), t["qkv"]))
    a = o.attention(o.rope(q, HEADS), o.rope(k, KV), v, HEADS, KV, causal=True)
    x = o.add(o.linear(a, t["out"]), t["x"])
    return o.add(o.linear(o.swiglu(o.linear(o.norm(x, t["gain1"]), t["up"])), t["down"]), x)


def qwen3(o, t):
    q, k, v = split(o, o.linear(o.norm(t["x"], t["gain0"]), t["qkv"]))
    q = o.together(o.norm(o.heads(q, HEADS), t["gain_q"]))
    k = o.together(o.norm(o.heads(k, KV), t["gain_k"]))
    a = o.attention(o.rope(q, HEADS), o.rope(k, KV), v, HEADS, KV, causal=True)
    x = o.add(o.linear(a, t["out"]), t["x"])
    return o.add(o.linear(o.swiglu(o.linear(o.norm(x, t["gain1"]), t["up"])), t["down"]), x)


def gpt2(o, t):
    h = o.layer_norm(t["x"], t["gain0"], t["shift0"])
    a = o.attention(*split(o, o.bias(o.linear(h, t["qkv"]), t["b_qkv"]), HEADS), HEADS, HEADS, causal=True)
    x = o.add(o.bias(o.linear(a, t["out"]), t["b_out"]), t["x"])
    h = o.gelu_tanh(o.bias(o.linear(o.layer_norm(x, t["gain1"], t["shift1"]), t["up"]), t["b_up"]))
    return o.add(o.bias(o.linear(h, t["down"]), t["b_down"]), x)


def bert(o, t):
    a = o.attention(*split(o, o.bias(o.linear(t["x"], t["qkv"]), t["b_qkv"]), HEADS), HEADS, HEADS)
    x = o.layer_norm(o.add(o.bias(o.linear(a, t["out"]), t["b_out"]), t["x"]), t["gain0"], t["shift0"])
    h = o.gelu_erf(o.bias(o.linear(x, t["up"]), t["b_up"]))
    return o.layer_norm(o.add(o.bias(o.linear(h, t["down"]), t["b_down"]), x), t["gain1"], t["shift1"])


def gemma(o, t):
    q, k, v = split(o, o.linear(o.norm(t["x"], t["gain0"]), t["qkv"]))
    a = o.attention(o.rope(q, HEADS), o.rope(k, KV), v, HEADS, KV, causal=True, window=7, softcap=2.0)
    x = o.add(o.norm(o.linear(a, t["out"]), t["gain_a"]), t["x"])
    m = o.linear(o.geglu(o.linear(o.norm(x, t["gain1"]), t["up"])), t["down"])
    return o.add(o.norm(m, t["gain_m"]), x)


def model(o, t):
    """Table of tokens and head are one matrix, of which a soft cap bounds the logits."""
    x = o.table(t["embed"], t["ids"])
    h = o.norm(o.add(o.mul(x, o.softmax(o.linear(x, t["gate"]))), x), t["gain"])
    return o.loss(o.scale(o.tanh(o.scale(o.linear(h, t["embed"]), 0.25)), 4.0), t["target"])


def layers(**more):
    return dict(x=(2, T, D), gain0=(D,), qkv=((HEADS + 2 * KV) * HEAD, D), out=(D, HEADS * HEAD), gain1=(D,),
                up=(2 * F, D), down=(D, F), **more)


def old(**more):
    return dict(x=(2, T, D), gain0=(D,), shift0=(D,), qkv=(3 * D, D), b_qkv=(3 * D,), out=(D, D), b_out=(D,),
                gain1=(D,), shift1=(D,), up=(F, D), b_up=(F,), down=(D, F), b_down=(D,), **more)


CASES = [Case("llama", llama, **layers()),
         Case("qwen3", qwen3, **layers(gain_q=(HEAD,), gain_k=(HEAD,))),
         Case("gpt2", gpt2, **old()),
         Case("bert", bert, **old()),
         Case("gemma", gemma, **layers(gain_a=(D,), gain_m=(D,))),
         Case("model", model, (("ids", V), ("target", V)), embed=(V, D), gate=(D, D), gain=(D,), ids=(2, T),
              target=(2, T))]


def size_of(name, shape):
    """A normal deviate of a leaf is multiplied by the first and added to the second."""
    if name.startswith("gain"):
        return 0.2, 1.0
    return (1.0 if name == "x" else shape[-1] ** -0.5 if len(shape) == 2 else 0.2), 0.0


class Coda:
    """The operations of libcoda."""
    add, mul, bias, scale = map(staticmethod, (coda.add, coda.mul, coda.bias, coda.scale))
    gelu_tanh, gelu_erf, softmax, tanh = map(staticmethod, (coda.gelu_tanh, coda.gelu_erf, coda.softmax, coda.tanh))
    table = staticmethod(coda.embedding)

    def linear(self, x, w):
        return x @ w.T

    def norm(self, x, gain):
        return coda.rms_norm(x, gain, EPS)

    def layer_norm(self, x, gain, shift):
        return coda.layer_norm(x, gain, shift, EPS)

    def swiglu(self, x):
        return coda.swiglu(x, "stacked")

    def geglu(self, x):
        return coda.geglu(x, "stacked")

    def columns(self, x, a, b):
        return x[:, :, a:b]

    def heads(self, x, n):
        return x.reshape(2, T, n, HEAD)

    def together(self, x):
        return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])

    def rope(self, x, heads):
        return coda.rope(x, head_dim=HEAD)

    def attention(self, q, k, v, heads, kv_heads, causal=False, window=0, softcap=0.0):
        return coda.attention(q, k, v, heads=heads, kv_heads=kv_heads, causal=causal, window=window, softcap=softcap)

    def loss(self, logits, target):
        return coda.cross_entropy(logits, target, ignore_index=IGNORED)


def graph_of(case, dtype, weights=True):
    """The case's result y, and its gradients d.NAME by all floats for the cotangent dy."""
    g = coda.Graph()
    leaf = {n: g.weight if weights and n not in ("x", "ids", "target") else g.input for n in case.shapes}
    t = {n: leaf[n](n, "i32" if n in case.integers else dtype, s) for n, s in case.shapes.items()}
    y = case.formula(Coda(), t)
    g.output("y", y)
    dy = g.input("dy", "f32" if case.name == "model" else dtype, y.shape)
    for name, d in zip(case.floats(), g.grad(y, [t[n] for n in case.floats()], dy)):
        g.output("d." + name, d)
    return g
