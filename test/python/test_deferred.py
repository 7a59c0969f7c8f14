#!/usr/bin/env python3
"""test_deferred.py -- libcoda.dynamo.defer: torch._dynamo is imported when it is wanted, and is then what it always is. Each
test is a process of its own."""
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

try:
    import torch
    import transformers
except ImportError as e:
    print("test_deferred.py: skipped: %s" % e)
    sys.exit(0)

import families
import libcoda as coda
import libcoda.dynamo as dynamo
from test_dynamo import Base, off

START = """
import sys, types, torch, libcoda.dynamo
def there():
    return "torch._dynamo.eval_frame" in sys.modules
assert libcoda.dynamo.defer() and libcoda.dynamo.defer()
"""


# Packages of which transformers takes names, as little of them as there may be.
OTHERS = {
    "sklearn/__init__.py": "from .metrics import roc_curve",
    "sklearn/metrics.py": """
        def roc_curve(x):
            return 2 * x
        """,
    "scipy/__init__.py": "__version__ = '1'",
    "scipy/optimize.py": """
        def linear_sum_assignment(x):
            return x + 1
        """,
    "accelerate/__init__.py": """
        class PartialState:
            def method(self):
                return 9

        def dispatch_model(x):
            return 2 * x
        """}


class Deferred(Base):
    def process(self, code, *arguments):
        path = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(coda.__file__)))]
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(path))
        done = subprocess.run([sys.executable, "-c", START + textwrap.dedent(code), *arguments], env=env, capture_output=True,
                              text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done.stdout

    def test_saved(self):
        """A model of transformers makes a file's calls without it; a call that the file does not have is compiled by it."""
        for name in ("llama", "bert"):
            model, inputs = families.model_of(name), families.inputs_of(name)
            with tempfile.TemporaryDirectory() as folder:
                path, made = os.path.join(folder, "model.coda"), os.path.join(folder, "made")
                dynamo.save(model, path, inputs)
                self.process("""
                    import families
                    model, inputs = families.model_of(sys.argv[3]), families.inputs_of(sys.argv[3])
                    fast = libcoda.dynamo.load(model, sys.argv[1])
                    with torch.no_grad():
                        y = fast(**inputs)[0]
                        assert not there() and "torch._inductor" not in sys.modules
                        torch.save(y, sys.argv[2])
                        few = {k: x[:, :5] for k, x in inputs.items() if isinstance(x, torch.Tensor)}
                        rest = {k: x for k, x in inputs.items() if k not in few}
                        fast(**few, **rest)
                        assert there() and len(libcoda.dynamo.last) == 1
                    """, path, made, name)
                self.assertLessEqual(off(torch.load(made), model(**inputs)[0]), 1e-5)

    def test_module(self):
        """It is the real module from the first name on; a name that it does not have is an error."""
        self.process("""
            import torch._dynamo, importlib
            from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
            m = sys.modules["torch._dynamo"]
            assert not there() and torch._dynamo is m and m.__path__ and not hasattr(m, "__wrapped__") and not there()
            try:
                m.nothing_of_it
                raise SystemExit("a name that is not there")
            except AttributeError as e:
                assert "nothing_of_it" in str(e)
            assert there() and type(m) is types.ModuleType and torch._dynamo is m and callable(m.explain)
            assert type(m.__loader__).__name__ == "SourceFileLoader"
            assert not any(type(x).__name__ == "Deferred" for n, x in sys.modules.items() if n.startswith("torch._dynamo"))
            assert torch.compile(lambda x: x * 2, backend="eager", fullgraph=True)(torch.ones(2)).tolist() == [2, 2]
            """)
        self.process("""
            from torch._dynamo import config, optimize
            assert there() and config.recompile_limit > 0 and callable(optimize)
            """)
        self.process("""
            import torch._dynamo.utils
            from torch._dynamo import utils
            assert not there() and utils is torch._dynamo.utils
            assert torch._dynamo.utils.counters is not None and there() and callable(torch._dynamo.reset)
            """)
        self.process("""
            import torch._dynamo.config
            torch._dynamo.config.recompile_limit = 3
            assert there() and torch._dynamo.config.recompile_limit == 3
            with torch._dynamo.config.patch(recompile_limit=5):
                assert torch._dynamo.config.recompile_limit == 5
            try:
                torch._dynamo.config.nothing_of_it = 1
                raise SystemExit("a setting that is not there")
            except AttributeError:
                pass
            """)
        self.process("""
            mine = lambda: 7
            import torch._dynamo
            torch._dynamo.reset = mine
            assert there() and torch._dynamo.reset is mine
            """)

    def test_functions(self):
        """A function of a submodule that a package takes, as torchvision does, asks at its call and is the real one then; a
        class and a number are there at once."""
        self.process("""
            from torch._dynamo.utils import is_compile_supported, clone_input
            first, other = is_compile_supported, clone_input
            assert not there() and other(torch.ones(2)).tolist() == [1, 1] and there()
            real = torch._dynamo.utils
            assert is_compile_supported is real.is_compile_supported and first is real.is_compile_supported
            assert clone_input is real.clone_input
            """)
        self.process("""
            from torch._dynamo.exc import Unsupported
            assert there() and issubclass(Unsupported, Exception) and Unsupported is torch._dynamo.exc.Unsupported
            """)

    def test_marks(self):
        """Decorators that name functions for it do so when it is there, in graphs, too."""
        self.process("""
            graphs = []
            def backend(module, example):
                graphs.append([n.target for n in module.graph.nodes if n.op == "call_function"])
                return module
            @torch._dynamo.allow_in_graph
            def whole(x):
                return x + 1
            @torch._dynamo.assume_constant_result
            def number():
                return 3
            @torch.compiler.disable(reason="a test")
            def apart(x):
                return x.sum() * 5
            @torch.compiler.disable
            def other(x):
                return x.max()
            y, z = torch.ones(3), torch.ones(3)
            torch._dynamo.mark_static_address(y)
            assert not there() and whole(y).tolist() == [2, 2, 2] and number() == 3 and not there()
            torch._dynamo.mark_static_address(z, guard=True)
            gone = torch.ones(3)
            torch._dynamo.mark_static_address(gone)
            del gone
            kept = torch._dynamo.allow_in_graph
            f = torch.compile(lambda x: whole(x) * number(), backend=backend, fullgraph=True)
            assert f(y).tolist() == [6, 6, 6] and there() and whole in graphs[0] and len(graphs[0]) == 2, graphs
            assert number._dynamo_marked_constant
            assert (y._dynamo_static_input_type, z._dynamo_static_input_type) == ("unguarded", "guarded")
            del graphs[:]
            f = torch.compile(lambda x: apart(x * 2) + other(x) + x, backend=backend)
            assert f(y).tolist() == [32, 32, 32]
            assert graphs and not any("sum" in str(t) or "max" in str(t) for g in graphs for t in g), graphs
            @kept
            def second(x):
                return x - 1
            del graphs[:]
            assert torch.compile(lambda x: second(x), backend=backend, fullgraph=True)(y).tolist() == [0, 0, 0]
            assert second in graphs[0]
            """)

    def test_threads(self):
        """Many ask at once, by names and by imports of what is in it."""
        self.process("""
            import importlib, threading
            wrong, begin = [], threading.Barrier(12)
            import torch._dynamo
            def ask(k):
                try:
                    begin.wait()
                    if k % 3 == 0:
                        assert callable(torch._dynamo.explain)
                    elif k % 3 == 1:
                        assert torch._dynamo.config.recompile_limit
                    else:
                        assert importlib.import_module("torch._dynamo." + ("config", "exc", "utils", "guards")[k // 3])
                except BaseException as e:
                    wrong.append(repr(e))
            threads = [threading.Thread(target=ask, args=(k,)) for k in range(12)]
            [t.start() for t in threads]
            [t.join(120) for t in threads]
            assert not wrong and not any(t.is_alive() for t in threads), wrong
            assert torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2)).tolist() == [2, 2]
            """)

    def test_others(self):
        """Of packages that transformers takes a name of it gets what asks; everybody else gets the package."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in OTHERS.items():
                os.makedirs(os.path.join(folder, os.path.dirname(name)), exist_ok=True)
                with open(os.path.join(folder, name), "w") as f:
                    f.write(textwrap.dedent(text))
            self.process("""
                sys.path.insert(0, sys.argv[1])
                here = lambda name: name in sys.modules and type(sys.modules[name]).__name__ == "module"

                def of(name, text):
                    m = sys.modules[name] = types.ModuleType(name)
                    exec(text, vars(m))
                    return m
                t = of("transformers.one", "from sklearn.metrics import roc_curve as f\\n"
                       "from accelerate import PartialState as C, dispatch_model as g")
                assert not here("sklearn") and not here("sklearn.metrics") and not here("accelerate")
                assert not isinstance(3, t.C) and not issubclass(int, t.C) and (t.C | None) and (None | t.C)
                assert hasattr(t.C, "method")
                assert not here("accelerate")
                (first, kind), method = handed = (t.f, t.C), t.C.method
                assert t.f(2) == 4 and here("sklearn.metrics") and here("sklearn") and t.f is sys.modules["sklearn.metrics"].roc_curve
                first, kind = handed[0]  # a variable of a module is the real one now
                assert type(first).__name__ == "LazyName" and first(3) == 6 and not here("accelerate")
                class Mine(t.C):
                    pass
                assert here("accelerate") and t.C is sys.modules["accelerate"].PartialState and issubclass(Mine, t.C)
                kind = handed[0][1]
                assert type(kind).__name__ == "LazyName" and isinstance(Mine(), kind) and issubclass(Mine, kind) and not isinstance(3, kind) and method(Mine()) == 9
                kind.number = 7
                assert t.C.number == 7 and kind().number == 7 and t.g(5) == 10
                import copy, pickle
                assert copy.copy(first) is t.f and copy.deepcopy(kind) is t.C and pickle.loads(pickle.dumps(kind)) is t.C
                import scipy
                assert not here("scipy") and scipy.__version__ == "1" and here("scipy")
                u = of("others.one", "import accelerate; from scipy.optimize import linear_sum_assignment as f")
                assert here("scipy.optimize") and u.f(1) == 2 and type(u.f) is types.FunctionType
                """, folder)

    def test_sizes(self):
        """What PyTorch's shards want of sizes that are symbols is there as soon as Dynamo is."""
        self.process("""
            import torch.distributed.tensor
            from torch.distributed.tensor import _decompositions as d, Shard, DTensor
            assert "sympy" not in sys.modules and Shard(1).dim == 1 and not isinstance(torch.ones(1), DTensor)
            early = [d.GuardOnDataDependentSymNode]
            assert issubclass(early[0], Exception)
            torch.compile(lambda x: x * 2, backend="eager", dynamic=True)(torch.ones(3))
            import torch.fx.experimental.symbolic_shapes as real
            assert d.GuardOnDataDependentSymNode is real.GuardOnDataDependentSymNode is not early[0]
            """)

    def test_errors(self):
        """An import that fails is tried again by the next name; one that has been made is not put off."""
        self.process("""
            import torch._dynamo
            sys.modules["torch._dynamo.aot_compile"] = None
            for _ in range(2):
                try:
                    torch._dynamo.explain
                    raise SystemExit("imported")
                except ImportError as e:
                    assert "aot_compile" in str(e), e
            del sys.modules["torch._dynamo.aot_compile"]
            assert callable(torch._dynamo.explain) and not libcoda.dynamo.defer()
            """)


if __name__ == "__main__":
    print("test_deferred.py: torch %s, transformers %s" % (torch.__version__, transformers.__version__))
    unittest.main()
