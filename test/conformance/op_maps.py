"""op_maps.py -- elementwise operators."""

import math

from onnx import TensorProto

from calls import Inexpressible
from mapper import FLOATS, Typed, boolean, op


def unary(onnx_name, word, *params):
    """A map whose parameters are attributes: (name, default)."""

    @op(onnx_name)
    def handler(n):
        return n.c.map(word, n.x(), params=[n.attr(a, d) for a, d in params])


for name in (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Softplus",
    "Abs",
    "Exp",
    "Log",
    "Sqrt",
    "Reciprocal",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Erf",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Softsign",
    "Mish",
):
    unary(name, name.lower())
unary("HardSwish", "hard_swish")
unary("Elu", "elu", ("alpha", 1.0))
unary("Celu", "celu", ("alpha", 1.0))
unary("Selu", "selu", ("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875))
unary("LeakyRelu", "leaky_relu", ("alpha", 0.01))
unary("ThresholdedRelu", "thresholded_relu", ("alpha", 1.0))
unary("HardSigmoid", "hard_sigmoid", ("alpha", 0.2), ("beta", 0.5))
unary("Shrink", "shrink", ("lambd", 0.5), ("bias", 0.0))
unary("Swish", "swish", ("alpha", 1.0))


@op("Neg")
def neg(n):
    return n.c.scale(n.x(), -1)


@op("Identity")
def identity(n):
    return n.x()


@op("Gelu")
def gelu(n):
    return n.c.map("gelu_tanh" if n.attr("approximate", "none") == "tanh" else "gelu_erf", n.x())


def binary(onnx_name, word, wrap=lambda v: v):
    @op(onnx_name)
    def handler(n):
        return wrap(n.c.map(word, n.x(0), n.x(1)))


for name in ("Add", "Sub", "Mul", "Pow"):
    binary(name, name.lower())
for name in ("Xor", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
    binary(
        name,
        {"GreaterOrEqual": "greater_equal", "LessOrEqual": "less_equal"}.get(name, name.lower()),
        boolean,
    )
for name in ("And", "Or"):
    binary(name, "logical_" + name.lower(), boolean)


@op("PRelu")
def prelu(n):
    x, slope = n.x(0), n.x(1)
    if slope.rank == 1 and n.m.version() < 9 and x.rank > 1:  # one for each channel
        slope = n.c.reshape(slope, -1, *[1] * (x.rank - 2))
    return n.c.map("prelu", x, slope)


@op("Binarizer")
def binarizer(n):
    return n.c.map("greater", n.x(), n.c.constant(n.attr("threshold", 0.0), "f32"))


@op("Div")
def div(n):
    return n.c.map("div_toward_zero" if n.is_int() else "div", n.x(0), n.x(1))


@op("Mod")
def mod(n):
    return n.c.map("fmod" if n.attr("fmod", 0) else "mod", n.x(0), n.x(1))


@op("Not")
def logical_not(n):
    return n.c.map("logical_not", n.x())


@op("IsNaN")
def is_nan(n):
    return boolean(n.c.map("not_equal", n.x(), n.x()))


@op("IsInf")
def is_inf(n):
    params = [n.attr("detect_negative", 1), n.attr("detect_positive", 1)]
    return boolean(n.c.map("is_inf", n.x(), params=params))


def fold(n, word):
    parts = n.all()
    y = parts[0]
    for p in parts[1:]:
        y = n.c.map(word, y, p)
    return y


@op("Max")
def maximum(n):
    return fold(n, "maximum")


@op("Min")
def minimum(n):
    return fold(n, "minimum")


@op("Sum")
def add_all(n):
    return fold(n, "add")


@op("Mean")
def mean(n):
    return n.c.scale(fold(n, "add"), 1 / len(n))


@op("Where")
def where(n):
    return Typed(n.c.where(n.x(0), n.x(1), n.x(2)), n.etype(1))


@op("Clip")
def clip(n):
    y = n.x()
    if n.has(1):
        y = n.c.map("maximum", y, n.x(1))
    if n.has(2):
        y = n.c.map("minimum", y, n.x(2))
    if "min" in n.attrs or "max" in n.attrs:  # before version 11
        y = n.c.map("clip", y, params=[n.attr("min", -math.inf), n.attr("max", math.inf)])
    return y


@op("SwiGLU")
def swiglu(n):
    if n.attr("alpha", 1.0) == 1:
        return n.c.map("swiglu", n.x(0), n.x(1))
    return n.c.map("mul", n.c.map("swish", n.x(0), params=[n.attr("alpha")]), n.x(1))


def convert(n, to):
    """To a dtype that the library has, or to integers and booleans, which fp32 holds exactly."""
    x, was = n.x(), n.etype()
    if to == was:
        return Typed(x, to)
    if to in FLOATS:
        return Typed(n.c.cast(x, "T" if to == n.m.principal else FLOATS[to]), to)
    if to == TensorProto.BOOL:
        return Typed(n.c.map("not_equal", x, n.c.constant(0, "i32")), to)
    if to in (TensorProto.INT32, TensorProto.INT64):
        if was in FLOATS:
            raise Inexpressible("casts of floats to integers")
        return Typed(x, to)
    raise Inexpressible(f"casts to {TensorProto.DataType.Name(to).lower()}")


@op("Cast")
def cast(n):
    if n.attr("to") == n.m.principal == TensorProto.DOUBLE:  # to compute in more than others would
        return Typed(n.c.cast(n.x(), "f32"), TensorProto.DOUBLE)
    return convert(n, n.attr("to"))


@op("CastLike")
def cast_like(n):
    return convert(n, n.etype(1))


@op("Dropout")
def dropout(n):
    if n.has(2) and n.known(2) and n.setting(1, 0.5) != 0:
        raise Inexpressible("random numbers")
    return n.x(), boolean(n.c.map("equal", n.x(), n.x())) if n.wants(1) else None


# ---- Steps of optimizers: one scalar rate and step count, then groups of tensors ----


def groups(n, kinds):
    rate, step = n.x(0), n.x(1)
    rest = [n.x(i) for i in range(2, len(n))]
    count = len(rest) // kinds
    return rate, step, [rest[i::count] for i in range(count)]


def gather_results(results):
    return [r[i] for i in range(len(results[0])) for r in results]


@op("Momentum")
def momentum(n):
    c, (rate, step, parts) = n.c, groups(n, 3)
    alpha, beta, norm = n.attr("alpha"), n.attr("beta"), n.attr("norm_coefficient")
    results = []
    for x, g, v in parts:
        g = c.map("add", c.scale(x, norm), g)
        later = c.map("greater", step, c.constant(0, "i32"))
        beta_now = c.where(later, c.constant(beta, "f32"), c.constant(1.0, "f32"))
        v = c.map("add", c.scale(v, alpha), c.map("mul", g, beta_now))
        d = v if n.attr("mode") == "standard" else c.map("add", g, c.scale(v, alpha))
        results.append((c.map("sub", x, c.map("mul", d, rate)), v))
    return gather_results(results)


@op("Adagrad")
def adagrad(n):
    c, (rate, step, parts) = n.c, groups(n, 3)
    rate = c.map("div", rate, c.affine(step, n.attr("decay_factor", 0.0), 1))
    results = []
    for x, g, h in parts:
        g = c.map("add", c.scale(x, n.attr("norm_coefficient", 0.0)), g)
        h = c.map("add", h, c.map("mul", g, g))
        d = c.map("div", g, c.affine(c.map("sqrt", h), 1, n.attr("epsilon", 1e-6)))
        results.append((c.map("sub", x, c.map("mul", d, rate)), h))
    return gather_results(results)


@op("Adam")
def adam(n):
    c, (rate, step, parts) = n.c, groups(n, 4)
    alpha, beta = n.attr("alpha", 0.9), n.attr("beta", 0.999)
    power = [c.map("pow", c.constant(b, "f32"), step) for b in (alpha, beta)]
    now = c.where(
        c.map("greater", step, c.constant(0, "i32")),
        c.map("div", c.map("mul", rate, c.map("sqrt", c.affine(power[1], -1, 1))), c.affine(power[0], -1, 1)),
        rate,
    )
    results = []
    for x, g, v, h in parts:
        g = c.map("add", c.scale(x, n.attr("norm_coefficient", 0.0)), g)
        v = c.map("add", c.scale(v, alpha), c.scale(g, 1 - alpha))
        h = c.map("add", c.scale(h, beta), c.scale(c.map("mul", g, g), 1 - beta))
        d = c.map("div", v, c.affine(c.map("sqrt", h), 1, n.attr("epsilon", 1e-6)))
        x = c.map("sub", x, c.map("mul", d, now))
        results.append((c.scale(x, 1 - n.attr("norm_coefficient_post", 0.0)), v, h))
    return gather_results(results)
