#!/usr/bin/env python3
"""test_binding.py -- libcoda.c is what the library is: its functions are those that are exported, its structs have
the sizes, members and offsets that libabigail has read from the library, its enumerators and numbers those of the C
compiler. And the reader of the headers refuses what it does not understand."""
import ctypes
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

from libcoda import c, operations
from libcoda._library import Handle, Struct

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "lib", "package", "python"))
import generate
import headers


class Abi:
    """test/abi, which `make abi` compares with the library."""

    def __init__(self):
        root = ElementTree.parse(os.path.join(ROOT, "test", "abi", "coda.xml")).getroot()
        self.symbols = {e.get("name") for e in root.iter("elf-symbol")}
        self.types = {e.get("id"): e for e in root.iter() if e.get("id")}
        self.functions = {e.get("name"): e for e in root.iter("function-decl") if e.get("elf-symbol-id")}
        self.structs = {e.get("name"): e for e in root.iter("class-decl") if e.get("size-in-bits")}
        self.enums = {e.get("name"): e for e in root.iter("enum-decl")}
        with open(os.path.join(ROOT, "test", "abi", "constants.txt"), encoding="utf-8") as f:
            lines = [line.split() for line in f]
        self.constants = {line[0]: int(line[1]) for line in lines if len(line) == 2}

    def plain(self, type_id):
        e = self.types[type_id]
        while e.tag in ("typedef-decl", "qualified-type-def"):
            e = self.types[e.get("type-id")]
        return e

    def kind(self, type_id):
        """What an argument is to a call: pointer, or a number or struct by size."""
        e = self.plain(type_id)
        if e.tag in ("pointer-type-def", "reference-type-def"):
            return "pointer"
        if e.tag == "enum-decl":
            return "int", 4
        if e.tag == "class-decl":
            return e.get("name"), int(e.get("size-in-bits")) // 8
        if e.get("name") == "void":
            return None
        return ("float" if e.get("name") in ("float", "double") else "int"), int(e.get("size-in-bits")) // 8

    def size(self, type_id):
        e = self.plain(type_id)
        if e.tag == "pointer-type-def":
            return 8
        if e.tag == "enum-decl":
            return 4
        return int(e.get("size-in-bits")) // 8


def kind(t):
    if t is None:
        return None
    if issubclass(t, (Handle, ctypes.c_void_p, ctypes.c_char_p, ctypes._Pointer, ctypes._CFuncPtr)):
        return "pointer"
    if issubclass(t, ctypes.Structure):
        return t.__name__, ctypes.sizeof(t)
    return ("float" if t in (ctypes.c_float, ctypes.c_double) else "int"), ctypes.sizeof(t)


class Binding(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.abi = Abi()
        cls.facts = 0

    @classmethod
    def tearDownClass(cls):
        print("note: %d functions, %d structs, %d facts compared, 0 differ" %
              (len(c.FUNCTIONS), len(cls.abi.structs), cls.facts))

    def same(self, got, want, what):
        type(self).facts += 1
        self.assertEqual(got, want, what)

    def test_functions_are_the_exported_ones(self):
        self.same(sorted(c.FUNCTIONS), sorted(self.abi.symbols), "functions")
        listed = subprocess.run([os.path.join(ROOT, "test", "house", "exports.sh")],
                                cwd=ROOT, capture_output=True, text=True)
        self.same(sorted(c.FUNCTIONS), sorted(listed.stdout.split()), "functions that the compiler sees")

    def test_arguments(self):
        for name in c.FUNCTIONS:
            call, e = getattr(c, name), self.abi.functions[name]
            want = [self.abi.kind(p.get("type-id")) for p in e.iter("parameter") if p.get("is-variadic") != "yes"]
            self.same([kind(t) for t in call.argtypes], want, name)
            returned = e.find("return")
            self.same(kind(call.restype), None if returned is None else self.abi.kind(returned.get("type-id")), name)

    def test_structs(self):
        made = {
    n: t for n, t in vars(c).items() if isinstance(
        t, type) and issubclass(
            t, Struct) and t.__module__ == c.__name__}
        self.same(sorted(made), sorted(self.abi.structs), "structs")
        for name, e in self.abi.structs.items():
            self.same(ctypes.sizeof(made[name]) * 8, int(e.get("size-in-bits")), name)
            members = [(m.find("var-decl").get("name"), int(m.get("layout-offset-in-bits")) // 8,
                        self.abi.size(m.find("var-decl").get("type-id"))) for m in e.findall("data-member")]
            fields = [(f[0], getattr(made[name], f[0]).offset, getattr(made[name], f[0]).size)
                       for f in made[name]._fields_]
            self.same(fields, members, name)

    def test_a_struct_has_its_size_and_no_other_field(self):
        for name in self.abi.structs:
            t = getattr(c, name)
            if t._fields_[0][0] == "size":
                self.same(t().size, ctypes.sizeof(t), name)
            with self.assertRaises(AttributeError):
                t(no_such_field=1)

    def test_enumerators(self):
        for name, e in self.abi.enums.items():
            for v in e.findall("enumerator"):
                self.same(getattr(c, v.get("name")), int(v.get("value")), v.get("name"))
            if name in c.ENUMS:
                self.same(sorted(c.ENUMS[name].values()), sorted(int(v.get("value"))
                          for v in e.findall("enumerator")), name)
        numbers = {n: v for n, v in vars(c).items() if n.startswith("CODA_") and isinstance(v, int)}
        self.same(numbers, self.abi.constants, "constants")

    def test_builders(self):
        """Each call that makes a value is a function of the package, or a method of Graph."""
        built = {n.removeprefix("coda_") for n in c.FUNCTIONS if getattr(c, n).restype is c.coda_value}
        lacking = built - set(operations.__all__) - set(vars(operations.Calls)) - {"graph_find"}  # Graph.find
        self.same(lacking, set(), "builders without a function")
        self.assertGreater(len(built), 70)


class Reader(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.h")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            return headers.read([path])

    def test_it_reads(self):
        h = self.read("""/* Of all. */
typedef struct a a;
typedef enum e { E_ONE, E_FOUR = 1 << 2, E_FIVE } e; /* numbers */
typedef struct s { size_t size; int64_t n, m[4]; const char *const *names; int (*f)(void *, const a *x); } s;

/* Adds. */
CODA_API int coda_f(a *x, const s *const *y, e z, ...) CODA_PRINTF(1, 2);
""")
        f, s = h.functions[0], h.structs[1]
        self.assertEqual(
    (f.name, f.doc, f.variadic, [
        p.name for p in f.parameters]), ("coda_f", "Adds.", True, [
            "x", "y", "z"]))
        self.assertEqual([(m.name, m.type.array, m.type.depth) for m in s.members],
                         [("size", 0, 0), ("n", 0, 0), ("m", 4, 0), ("names", 0, 2), ("f", 0, 0)])
        self.assertEqual(h.constants, {"E_ONE": 0, "E_FOUR": 4, "E_FIVE": 5})

    def test_it_refuses(self):
        for text, what in (("CODA_API long double coda_f(void);", "where"),
                           ("CODA_API other coda_f(void);", "not known"),
                           ("union u { int a; };", "what is"), ("#if SOMETHING\n#endif\n", "which way"),
                           ("CODA_API int coda_f(int a)", "behind"), ("CODA_API int coda_f(int a", "wanted"),
                           ("CODA_API int coda_f(int a) [[x]];", "behind"),
                           ("#define CODA_X sizeof(int)\n", "neither"), ("enum { A = B };", "not known"),
                           ("CODA_API int coda_f(int a : 3);", "what is"),
                           ("typedef struct s { int a; } t;", "another name"),
                           ("CODA_API int coda_a(void); int coda_b(void);", "what is")):
            with self.assertRaises(SyntaxError, msg=text) as e:
                self.read(text)
            self.assertIn(what, str(e.exception), text)

    def test_a_new_header_is_in_the_binding(self):
        """Whatever a header adds is generated without an edit: a struct, an enum, a leaf and an operation."""
        with tempfile.TemporaryDirectory() as folder:
            extra = os.path.join(folder, "coda_extra.h")
            with open(extra, "w", encoding="utf-8") as f:
                f.write("""typedef enum coda_kind { CODA_KIND_A = 0, CODA_KIND_B = 1 } coda_kind;
typedef struct coda_extra_options { size_t size; coda_kind kind; coda_value bias; } coda_extra_options;

/* A leaf. */
CODA_API coda_value coda_extra(coda_graph *g, const char *name, coda_kind kind, int64_t rows);
/* x; bias may be CODA_NONE. */
CODA_API coda_value coda_more(coda_graph *g, coda_value x, coda_value bias, const coda_extra_options *opt);
""")
            paths = [os.path.join(ROOT, "include", n) for n in ("coda.h", "coda_cache.h", "coda_grad.h")]
            generate.main(folder, *paths, extra)
            texts = []
            for name in ("c.py", "operations.py"):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    texts.append(f.read())
            for text, want in ((texts[0], 'coda_extra_options._fields_ = ['), (texts[0], "CODA_KIND_B = 1"),
                               (texts[0], 'coda_more = function("coda_more", coda_value, coda_graph'),
                               (texts[1], "def more(x, bias=None, **options):"),
                               (texts[1], "    def extra(g, name, kind, rows):")):
                self.assertTrue(want in text, want)


if __name__ == "__main__":
    unittest.main()
