"""mapper.py -- from an ONNX model to coda_* calls, node by node.

A handler gets a Node: its operands as values of the graph, its attributes, and what is known when the graph
is made: constants, shapes, and integer inputs, which ONNX passes as tensors where coda has arguments (axes,
shapes, positions of slices). What depends on constants alone is computed here, by ONNX's own reference.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from calls import Calls, Inexpressible

HANDLERS = {}
FAMILIES = {
    name: why
    for why, names in {
        "strings": "StringNormalizer StringSplit StringConcat RegexFullMatch TfIdfVectorizer LabelEncoder",
        "sequences and optionals": """SequenceMap SequenceAt SequenceEmpty SequenceInsert SequenceLength
            SequenceConstruct SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement""",
        "images and geometry": """Resize Upsample GridSample AffineGrid RoiAlign NonMaxSuppression ImageDecoder
            DeformConv Col2Im MaxUnpool ConvTranspose""",
        "quantised numbers": """QuantizeLinear DequantizeLinear QLinearMatMul QLinearConv ConvInteger
            MatMulInteger DynamicQuantizeLinear""",
        "bits of numbers": "BitShift BitCast BitwiseAnd BitwiseOr BitwiseXor BitwiseNot",
        "random numbers": "Bernoulli RandomUniformLike RandomNormalLike Multinomial",
        "loops": "Loop",
        "shapes that depend on values": "Unique NonZero Range",
        "transforms of signals": "DFT STFT MelWeightMatrix",
        "trees, gradients, selections of features": "TreeEnsemble Gradient ArrayFeatureExtractor",
        "results known when the graph is made": """EyeLike ConstantOfShape BlackmanWindow HammingWindow
            HannWindow""",
    }.items()
    for name in names.split()
}
FLOATS = {TensorProto.FLOAT: "f32", TensorProto.FLOAT16: "f16", TensorProto.BFLOAT16: "bf16"}
EXACT = {TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL}


def op(*names):
    def register(f):
        for name in names:
            HANDLERS[name] = f
        return f

    return register


def type_name(t):
    return "unknown" if t is None else TensorProto.DataType.Name(t).lower()


def element_type(array):
    if not isinstance(array, np.ndarray) and not np.isscalar(array):
        return None
    try:
        return helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
    except (KeyError, ValueError):
        return None


def is_data(array):
    """Is a constant of the model a weight, which runs round, and no number of the formula?"""
    return array.size > 1 and element_type(array) in FLOATS


class Entry:
    """What a name of the model stands for."""

    def __init__(self, etype=None, array=None, constant=False, value=None, why=None, given=None):
        self.etype = etype  # TensorProto's
        self.array = array  # if it is known when the graph is made
        self.constant = constant  # by the model alone, not by an input
        self.value = value  # of the graph, once it is asked for
        self.why = why  # there can be none
        self.given = array if given is None else given  # what an input holds in this case

    @property
    def dims(self):
        return self.value.dims if self.value else np.asarray(self.array).shape


class Node:
    def __init__(self, mapper, proto):
        self.m, self.c, self.proto = mapper, mapper.calls, proto
        self.attrs = {a.name: helper.get_attribute_value(a) for a in proto.attribute}

    def entry(self, i):
        inputs = self.proto.input
        return self.m.env[inputs[i]] if i < len(inputs) and inputs[i] else None

    def has(self, i):
        return self.entry(i) is not None

    def __len__(self):
        return len(self.proto.input)

    def x(self, i=0):
        """Operand i, None if it is absent."""
        e = self.entry(i)
        return e and self.m.value(e)

    def all(self):
        return [self.x(i) for i in range(len(self))]

    def etype(self, i=0):
        return self.entry(i).etype

    def is_int(self, i=0):
        return self.etype(i) in (TensorProto.INT32, TensorProto.INT64)

    def known(self, i, default=None):
        """Operand i as an array; the case is not expressible if it is data."""
        e = self.entry(i)
        if e is None:
            return default
        if e.array is None:
            raise Inexpressible(f"{self.proto.op_type} with a shape or an axis as data")
        return np.asarray(e.array)

    def setting(self, i, default=None):
        """A float operand that is no data but a setting: a ratio, the value of padding."""
        e = self.entry(i)
        if e is not None and e.given is None:
            raise Inexpressible(f"{self.proto.op_type} with a setting as data")
        self.m.settings.add(self.proto.input[i])
        return default if e is None else e.given

    def attr(self, name, default=None):
        v = self.attrs.get(name, default)
        return v.decode() if isinstance(v, bytes) else v

    def wants(self, i):
        """Is output i used?"""
        return i < len(self.proto.output) and self.proto.output[i] != ""

    def axes(self, i=1, rank=None):
        """Axes as operand i or as an attribute, sorted; None if there are none."""
        axes = self.known(i) if self.has(i) else self.attr("axes")
        return None if axes is None else sorted(int(a) % rank for a in np.ravel(axes))


class Typed:
    """A result whose element type is not that of operand 0."""

    def __init__(self, value, etype):
        self.value, self.etype = value, etype


def boolean(v):
    return Typed(v, TensorProto.BOOL)


def integer(v):
    return Typed(v, TensorProto.INT64)


def typed_array(array, etype):
    return array if etype is None else array.astype(helper.tensor_dtype_to_np_dtype(etype))


def in_double(proto):
    wide = onnx.NodeProto()
    wide.CopyFrom(proto)
    for a in wide.attribute:
        if a.name == "to" and a.i in FLOATS:
            a.i = TensorProto.DOUBLE
    return wide


class Mapper:
    def __init__(self, graph, feeds, principal, opsets):
        self.calls, self.principal, self.opsets = Calls(), principal, opsets
        self.settings = set()  # inputs that are no data
        self.env = {}
        self.constants(graph)
        for name, array in feeds.items():
            self.env[name] = self.fed(array)

    def constants(self, graph, data=True):
        for i in graph.initializer:
            array = numpy_helper.to_array(i)
            if data and is_data(array):
                self.env[i.name] = self.fed(array, weight=True)
            else:
                self.env[i.name] = Entry(element_type(array), array, constant=True)

    def fed(self, array, weight=False):
        etype = element_type(array) if isinstance(array, np.ndarray) else None
        if etype is None:
            return Entry(why="sequences and optionals")
        known = array if etype not in FLOATS and etype != self.principal else None
        e = Entry(etype, known, given=array)
        try:
            dtype = self.dtype(etype)
            e.value = self.calls.leaf(self.plain(array), dtype, weight)
        except Inexpressible as why:
            e.why = str(why)
        return e

    def dtype(self, etype):
        if etype == self.principal:
            return "T"
        if etype in FLOATS:
            return FLOATS[etype]
        if etype in EXACT:
            return "i64" if etype == TensorProto.INT64 else "i32"
        name = type_name(etype)
        raise Inexpressible("strings" if name == "string" else f"tensors of {name}")

    @staticmethod
    def plain(array):
        kind = np.asarray(array).dtype.kind
        return np.asarray(array).astype(np.int64 if kind in "biu" else np.float64)

    def version(self):
        return next((o.version for o in self.opsets if o.domain in ("", "ai.onnx")), 13)

    def value(self, e):
        if e.value is None:
            if e.why or e.array is None:
                raise Inexpressible(e.why or "an absent value")
            dtype = "f32" if e.etype == self.principal else self.dtype(e.etype)
            e.value = self.calls.constant(self.plain(e.array), dtype)
        return e.value

    # ---- Nodes ----

    def fold(self, proto):
        """The results as (type, array), if they are known: by the shapes, or by reference from known
        operands; and whether by the model alone."""
        inputs = [self.env[i] for i in proto.input if i]
        if proto.op_type in ("Shape", "Size") and not inputs[0].why:
            dims = list(inputs[0].dims)
            attrs = {a.name: a.i for a in proto.attribute}
            dims = dims[attrs.get("start", 0) : attrs.get("end", len(dims))]
            return [
                (TensorProto.INT64, np.array(dims if proto.op_type == "Shape" else np.prod(dims), np.int64))
            ], True
        if proto.op_type == "CastLike" and inputs[0].array is not None and inputs[1].etype:
            return [(inputs[1].etype, np.asarray(inputs[0].array))], inputs[0].constant
        if (
            any(e.array is None for e in inputs)
            or proto.op_type.startswith("Random")
            or proto.op_type == "Bernoulli"
        ):
            return None, False
        if any(a.type == onnx.AttributeProto.GRAPH for a in proto.attribute):
            return None, False
        return self.compute(proto), all(e.constant for e in inputs)

    def compute(self, proto):
        """By ONNX's reference; floats of the principal type in double, as the formula has them."""
        names = list(dict.fromkeys(i for i in proto.input if i))
        typed = {n: np.asarray(self.env[n].array) for n in names}
        feeds = {n: typed_array(a, self.env[n].etype) for n, a in typed.items()}
        results = self.run_reference(proto, feeds)
        if results is None or not all(isinstance(r, (np.ndarray, np.generic)) for r in results):
            return None
        types = [element_type(r) for r in results]
        if any(t in FLOATS for t in types) and names:
            wide = {n: a.astype(np.float64) if self.env[n].etype in FLOATS else a for n, a in typed.items()}
            results = self.run_reference(in_double(proto), wide) or results
        return list(zip(types, results))

    def run_reference(self, proto, feeds):
        graph = helper.make_graph(
            [proto],
            "node",
            [helper.make_empty_tensor_value_info(n) for n in feeds],
            [helper.make_empty_tensor_value_info(o) for o in proto.output if o],
        )
        model = helper.make_model(graph, opset_imports=self.opsets, ir_version=10)
        try:
            return ReferenceEvaluator(model).run(None, feeds)
        except Exception:  # whatever the reference does not do is not known
            return None

    def node(self, proto):
        folded, constant = self.fold(proto)
        outputs = [o for o in proto.output if o]
        for name, (etype, array) in zip(outputs, folded or [(None, None)] * len(outputs)):
            self.env[name] = Entry(etype, array, constant, why=None if array is not None else "?")
        if folded and constant:
            return
        try:
            self.emit(proto)
        except Inexpressible as why:
            for name in outputs:
                self.env[name].why = str(why)
                if self.env[name].array is not None:  # may still shape what follows
                    self.env[name].value = None

    def emit(self, proto):
        if proto.op_type not in HANDLERS:
            raise Inexpressible(
                f"operator {proto.op_type}" if proto.op_type not in FAMILIES else FAMILIES[proto.op_type]
            )
        n = Node(self, proto)
        for i in proto.input:
            if i and self.env[i].why and self.env[i].array is None:
                raise Inexpressible(self.env[i].why)
        results = HANDLERS[proto.op_type](n)
        results = results if isinstance(results, (list, tuple)) else [results]
        first = n.etype() if len(n) and n.has(0) else None
        for i, r in enumerate(results):
            if r is None or not n.wants(i):
                continue
            e = self.env[proto.output[i]]
            e.value, e.why = (r.value if isinstance(r, Typed) else r), None
            e.etype = r.etype if isinstance(r, Typed) else first

    def subgraph(self, graph, entries):
        """Maps a body whose inputs are these entries; returns those of its outputs."""
        outer = dict(self.env)
        self.constants(graph, data=False)
        for i, e in zip(graph.input, entries):
            self.env[i.name] = e
        for proto in graph.node:
            self.node(proto)
        results = [self.env[o.name] for o in graph.output]
        self.env = outer
        return results


def principal_type(model, feeds):
    """The float type that stands for any: the model's only one, unless it converts between several."""
    floats = set(FLOATS) | {TensorProto.DOUBLE}
    types = {element_type(a) for a in feeds.values() if isinstance(a, np.ndarray)} & floats
    if len(types) == 1:
        t = types.pop()
        casts = {a.i for n in model.graph.node if n.op_type == "Cast" for a in n.attribute if a.name == "to"}
        return t if t == TensorProto.FLOAT or not casts & floats - {t, TensorProto.FLOAT} else None
    return TensorProto.FLOAT


def map_model(model, feeds):
    m = Mapper(model.graph, feeds, principal_type(model, feeds), model.opset_import)
    for proto in model.graph.node:
        m.node(proto)
    entries = [m.env[o.name] for o in model.graph.output]
    if all(e.constant for e in entries):
        raise Inexpressible("results known when the graph is made")
    for e in entries:
        m.calls.output(m.value(e))
    if all(c.word in ("weight", "constant") for c in m.calls.live()):
        raise Inexpressible("results known when the graph is made")
    return m.calls, m.settings
