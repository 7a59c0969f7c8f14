#!/usr/bin/env python3
"""generate.py FOLDER HEADER... -- writes what of the package is made from the headers.

    FOLDER/c.py           every function, struct, enumerator and number of the headers, by ctypes, under its name in C
    FOLDER/operations.py  calls that build graphs, as functions of values, with their comments

It needs Python's standard library alone.
"""
import keyword
import os
import re
import sys
import textwrap

import headers

MADE = " generate.py makes it of the headers: edit these."
NUMBERS = {"char": "c_char", "unsigned char": "c_ubyte", "int": "c_int", "unsigned": "c_uint", "float": "c_float",
           "double": "c_double", "size_t": "c_size_t", "int8_t": "c_int8", "uint8_t": "c_uint8", "int16_t": "c_int16",
           "uint16_t": "c_uint16", "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64",
           "uint64_t": "c_uint64"}


class Types:
    """Types of C as expressions of ctypes."""

    def __init__(self, header):
        self.header = header
        self.enums = {e.name for e in header.enums if e.name}
        self.hidden = {s.name for s in header.structs if s.members is None}

    def plain(self, t):
        """With the aliases taken out: coda_dim is int64_t, coda_stream a pointer."""
        while t.base in self.header.aliases:
            a = self.header.aliases[t.base]
            t = t._replace(base=a.base, depth=t.depth + a.depth, of=a.of)
        return t

    def text(self, t):
        t = self.plain(t)
        if t.array:
            return "%s * %d" % (self.text(t._replace(array=0)), t.array)
        if t.of:
            return "CFUNCTYPE(%s)" % ", ".join(self.text(u) for u in (t.of[0], *(p.type for p in t.of[1])))
        depth, made = t.depth, None
        if depth and t.base in self.hidden:
            depth, made = depth - 1, t.base
        elif depth and t.base in ("void", "CUstream_st"):
            depth, made = depth - 1, "c_void_p"
        elif depth and t.base == "char" and t.const:
            depth, made = depth - 1, "c_char_p"
        elif t.base == "void":
            return "None"
        elif t.base in self.enums:
            made = "c_int"
        else:
            made = NUMBERS.get(t.base, t.base)
        return "POINTER(" * depth + made + ")" * depth


def quoted(doc, indent, tail=""):
    """A comment of C as a docstring."""
    doc = doc.replace("\\", "\\\\").replace('"""', "'''")
    if doc.endswith('"'):
        doc += " "
    return textwrap.indent('"""%s%s"""' % (doc, tail), indent, lambda line: line.strip()) if doc or tail else ""


# ---- c.py ----

def wrapped(call, words, indent):
    """`call(` and words between commas `)`, in lines of 110 columns at most."""
    text = call + ", ".join(words) + ")"
    return "\n".join(
    textwrap.wrap(
        text,
        110,
        subsequent_indent=indent,
        break_long_words=False,
         break_on_hyphens=False))


def structs(header, types, out):
    for s in header.structs:
        base = "Handle" if s.members is None else "Sized" if s.members[0].name == "size" else "Struct"
        out.append("class %s(%s):\n    __slots__ = ()\n" % (s.name, base))
    for s in header.structs:
        if s.members is None:
            continue
        rows = ['    ("%s", %s),' % (m.name, types.text(m.type)) for m in s.members]
        words = {m.name: m.type.base for m in s.members if m.type.base in types.enums and not m.type.depth}
        if words:
            out.append("%s.enums = %r" % (s.name, words))
        out.append("%s._fields_ = [\n%s\n]\n" % (s.name, "\n".join(rows)))


def short_names(e):
    """The enumerators of an enum by what tells them from each other, in small letters: f32, half, in_place."""
    prefix = os.path.commonprefix([n for n, _ in e.values])
    prefix = prefix[:prefix.rfind("_") + 1] or "CODA_"
    return {n[len(prefix):].lower(): v for n, v in e.values}


def write_c(header, types):
    out = ['"""c.py -- coda.h %s by ctypes, each name as in C.%s"""' % (header.constants["CODA_VERSION_STRING"], MADE),
           "from ctypes import *\n\nfrom ._library import Handle, Sized, Struct, function\n"]
    structs(header, types, out)
    for name, value in header.constants.items():
        out.append("%s = %r" % (name, value))
    out.append("\n# Of each enum its numbers by what tells their names from each other.\nENUMS = {")
    out += ['    "%s": %r,' % (e.name, short_names(e)) for e in header.enums if e.name]
    out.append("}\n\nFUNCTIONS = [")
    out += [textwrap.indent(textwrap.fill(", ".join('"%s"' % f.name for f in header.functions), 106), "    "), "]\n"]
    for f in header.functions:
        words = ['"%s"' % f.name, types.text(f.result)] + [types.text(p.type) for p in f.parameters]
        out.append(wrapped("%s = function(" % f.name, words, "    "))
    return "\n".join(out) + "\n"


# ---- operations.py ----

OPERATIONS = '''"""operations.py -- the calls of coda.h that build graphs.%s

A call coda_NAME(g, ...) is NAME(...): values stand for tensors of their graph, a number for a constant beside them, None
for CODA_NONE. Options are keyword arguments."""
from ctypes import byref as _byref

from . import c as _c
from ._convert import array as _array, bytes_of as _bytes, enum as _enum, graph_of as _graph_of, made as _made
from ._convert import operands as _operands, options_of as _options, pointer as _pointer, values as _values

'''
BY_HAND = {"coda_grad", "coda_scope_push", "coda_scope_pop", "coda_define_map"}
RENAMED = {"in": "values", "t": "dtype"}
OPTIONAL = {"lengths", "positions"}  # also where the comment is another call's
DEFAULTS = {"step": "1", "multiple": "1", "params": "None"}


class Builder:
    """A call on a graph as a function of Python: its parameters, and what each argument of the call is."""

    def __init__(self, f, types):
        self.f, self.name = f, f.name.removeprefix("coda_")
        self.parameters, self.arguments, self.before, self.results = [], [], [], []
        self.operands, self.lists, self.options = [], [], False
        rest, at = f.parameters[1:], 0
        while at < len(rest):
            at += self.take(types, rest[at:])
        if types.text(f.result) == "coda_value":
            self.results.insert(0, None)

    def python_name(self, p):
        name = RENAMED.get(p.name, p.name)
        return name + "_" if keyword.iskeyword(name) else name

    def plain(self, p, form="%s"):
        name = self.python_name(p)
        self.parameters.append(name)
        self.arguments.append(form % name)
        return name

    def counted(self, p, of):
        """A list, of which the call wants an array."""
        self.plain(p, "_array(%s, %%s)" % of)

    def take(self, types, rest):
        """How many parameters of C are one of Python's."""
        p, t = rest[0], types.plain(rest[0].type)
        then = types.plain(rest[1].type) if len(rest) > 1 else None
        if t.base == "coda_value":
            return self.take_value(p, t, then)
        if t == headers.Type("int") and then and p.name == "rank" and then.depth == 1:
            name = self.python_name(rest[1])
            self.parameters.append(name)
            self.arguments += ["len(%s)" % name, "_array(_c.%s, %s)" % (types.text(then._replace(depth=0)), name)]
            if len(rest) > 2 and rest[2].name == "strides":
                self.counted(rest[2], "_c.c_int64")
                return 3
            return 2
        if p.name == "opt" or t.base.endswith("_options"):
            self.options = True
            self.arguments.append("_options(g, _c.%s, options)" % t.base)
        elif t.base in types.enums and not t.depth:
            self.plain(p, '_enum("%s", %%s)' % t.base)
        elif t.base == "char" and t.depth == 1:
            self.plain(p, "_bytes(%s)")
        elif t.depth == 1 and t.base in NUMBERS:
            self.counted(p, "_c." + NUMBERS[t.base])
        elif t.depth:
            self.plain(p, "_pointer(%s)")
        else:
            self.plain(p)
        return 1

    def take_value(self, p, t, then):
        if t.depth == 0:
            self.operands.append(self.plain(p))
            return 1
        if t.const and then == headers.Type("int"):
            name = self.plain(p, "_values(g, %s)")
            self.lists.append(name)
            self.arguments.append("len(%s)" % name)
            return 2
        self.before.append("    %s = _c.coda_value()\n" % p.name)
        self.arguments.append("_byref(%s)" % p.name)
        self.results.append(p.name)
        return 1

    def signature(self):
        """What stands at the end is absent by default, if the comment says of it that it may be."""
        words = list(self.parameters)
        for i in range(len(words) - 1, 0, -1):
            if words[i] not in DEFAULTS and not (words[i] in self.operands and self.optional(words[i])):
                break
            words[i] += "=" + DEFAULTS.get(words[i], "None")
        return words + ["**options"] * self.options

    def optional(self, name):
        said = re.search(r"\b%s\b.{0,200}CODA_NONE" % name, self.f.doc, re.S)
        return (len(name) > 1 and said) or (self.options and name in OPTIONAL)

    def text(self):
        free = bool(self.operands or self.lists) and not self.name.startswith("output")
        indent = "    " if free else "        "
        head = self.signature() if free else ["g"] + self.signature()
        out = [textwrap.indent("def %s(%s):" % (self.name, ", ".join(head)), indent[4:])]
        out.append(quoted(self.f.doc, indent))
        names = self.operands
        if free and self.lists and not names:
            out.append(indent + "g = _graph_of(%s)" % self.lists[0])
        elif names:
            known = "None" if free else "g"
            out.append(indent + "g, %s = _operands(%s, %s)" % (", ".join(names), known, ", ".join(names)))
        out += [textwrap.indent(b.rstrip("\n"), indent[4:]) for b in self.before]
        call = "_c.coda_%s(%s)" % (self.name, ", ".join(["g.handle"] + self.arguments))
        result = self.f.result.base
        if self.results == [None]:
            out.append(indent + "return _made(g, %s)" % call)
        elif self.results and self.results[0] is None:
            out.append(indent + "made = " + call)
            out.append(indent + "return _made(g, made), %s" % ", ".join("_made(g, %s)" % r for r in self.results[1:]))
        elif self.results:
            out += [indent + call, indent + "return %s" % ", ".join("_made(g, %s)" % r for r in self.results)]
        elif result == "void":
            out += [indent + call, indent + "g.check()"]
        else:
            out.append(indent + "return g.checked(%s)" % call)
        return free, "\n".join(line for line in out if line) + "\n\n"


def write_operations(header, types):
    free, methods = [], []
    for f in header.functions:
        first = types.plain(f.parameters[0].type) if f.parameters else None
        if not first or first.base != "coda_graph" or first.depth != 1 or first.const or f.name in BY_HAND \
                or f.name.startswith("coda_graph_") or f.name.startswith("coda_dim_print"):
            continue
        is_free, text = Builder(f, types).text()
        (free if is_free else methods).append((f.name.removeprefix("coda_"), text))
    names = [n for n, _ in free]
    listed = textwrap.indent(textwrap.fill(", ".join('"%s"' % n for n in names), 106), "    ")
    return "".join([
        OPERATIONS % MADE, "__all__ = [\n%s\n]\n\n\n" % listed, "\n".join(t for _, t in free),
        '\nclass Calls:\n    """Calls on a graph without a value among their operands, and its outputs."""\n\n',
        "\n".join(t for _, t in methods).rstrip("\n"), "\n"])


def main(folder, *paths):
    header = headers.read(paths)
    types = Types(header)
    os.makedirs(folder, exist_ok=True)
    for name, text in (("c.py", write_c(header, types)), ("operations.py", write_operations(header, types))):
        compile(text, name, "exec")
        with open(os.path.join(folder, name + ".part"), "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(os.path.join(folder, name + ".part"), os.path.join(folder, name))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
