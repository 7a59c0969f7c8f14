"""suite.py -- the cases of the package `onnx`, and what must come of each in every precision."""

import copy
import glob
import os
import warnings

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from mapper import element_type, is_data

warnings.filterwarnings("ignore")
FOLDERS = ("pytorch-operator", "pytorch-converted", "simple")
ROUND = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
NARROW = {TensorProto.FLOAT16: "f16", TensorProto.BFLOAT16: "bf16"}


class Case:
    def __init__(self, name, kind, model, inputs, outputs):
        self.name, self.kind, self.model, self.inputs, self.outputs = name, kind, model, inputs, outputs
        names = [i.name for i in model.graph.input]
        self.feeds, self.settings = dict(zip(names, inputs)), set()


def plain(x):
    """The operator cases hold some tensors as protos."""
    if isinstance(x, TensorProto):
        return numpy_helper.to_array(x)
    return np.asarray(x) if isinstance(x, np.generic) else x


def stored(folder):
    def load(kind):
        for i in range(len(glob.glob(os.path.join(folder, "test_data_set_0", kind + "_*.pb")))):
            with open(os.path.join(folder, "test_data_set_0", f"{kind}_{i}.pb"), "rb") as f:
                yield numpy_helper.to_array(TensorProto.FromString(f.read()))

    model = onnx.load(os.path.join(folder, "model.onnx"))
    return model, list(load("input")), list(load("output"))


def cases():
    from onnx.backend.test.case.node import collect_testcases

    for t in collect_testcases(None):
        inputs, outputs = t.data_sets[0]
        kind = "expanded" if "_expanded" in t.name else "node"
        yield Case(t.name, kind, t.model, [plain(x) for x in inputs], [plain(x) for x in outputs])
    data = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
    for kind in FOLDERS:
        for folder in sorted(glob.glob(os.path.join(data, kind, "test_*"))):
            try:
                yield Case(os.path.basename(folder), kind, *stored(folder))
            except Exception:  # inputs that are no tensors
                yield Case(
                    os.path.basename(folder), kind, onnx.load(os.path.join(folder, "model.onnx")), [None], []
                )


# ---- What must come out ----


def is_float(x):
    return isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)


def round_to(mode, x):
    return x.astype(np.float64).astype(ROUND[mode]).astype(np.float64)


def in_double(model, narrow, mode):
    """The model with its floats, also those of `narrow`, as doubles; its weights are rounded first."""
    m = copy.deepcopy(model)
    types = {TensorProto.FLOAT} | ({narrow} if narrow else set())

    def widen(t):
        if t.data_type in types:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float64), t.name))

    for i in m.graph.initializer:
        array = numpy_helper.to_array(i)
        if i.data_type in types and is_data(array):
            i.CopyFrom(numpy_helper.from_array(round_to(mode, array), i.name))

    def visit(graph):
        for i in graph.initializer:
            widen(i)
        for v in list(graph.input) + list(graph.output) + list(graph.value_info):
            if v.type.tensor_type.elem_type in types:
                v.type.tensor_type.elem_type = TensorProto.DOUBLE
        for n in graph.node:
            for a in n.attribute:
                if a.type == onnx.AttributeProto.TENSOR:
                    widen(a.t)
                elif a.type == onnx.AttributeProto.GRAPH:
                    visit(a.g)
                elif a.name in ("to", "dtype", "softmax_precision", "stash_type") and a.i in types:
                    a.i = TensorProto.DOUBLE
                elif a.name == "value_float":
                    t = numpy_helper.from_array(np.float64(a.f))
                    a.Clear()
                    a.name, a.type = "value", onnx.AttributeProto.TENSOR
                    a.t.CopyFrom(t)

    visit(m.graph)
    return m


def reference(case, mode, feeds, narrow):
    """What ONNX's reference makes of the inputs, in double where it can; None if it cannot at all."""
    tries = [
        (in_double(case.model, narrow, mode), np.float64),
        (case.model, np.float64),
        (case.model, np.float32),
        (case.model, None),
    ]
    for model, kind in tries:
        typed = {
            k: v.astype(kind or case.feeds[k].dtype) if is_float(case.feeds[k]) else v
            for k, v in feeds.items()
        }
        try:
            results = ReferenceEvaluator(model).run(None, typed)
        except Exception:
            continue
        if all(isinstance(r, (np.ndarray, np.generic)) for r in results):
            return [np.asarray(r) for r in results], kind is np.float64
    return None, False


def rounded(case, mode, narrow):
    """Inputs as a run in this mode has them: those of the principal type rounded."""
    out = {}
    for name, x in case.feeds.items():
        if name in case.settings:
            out[name] = x
        elif is_float(x) and (narrow is None or element_type(x) == narrow):
            out[name] = round_to(mode, x)
        else:
            out[name] = x.astype(np.float64) if is_float(x) else x
    return out
