"""headers.py -- the declarations of coda.h and its parts as data.

read(paths) gives a Header. It takes the subset of C that these headers keep to, and raises SyntaxError with file and
line at anything else, so that nothing of an interface is lost without a word. A comment speaks for the declarations
below it, up to the next comment or empty line; one behind a declaration, or a member, is of that alone.
"""
import re
from collections import namedtuple

# `base` is a word of C, or "function" with its result and parameters in `of`; `const`: what a pointer leads to is.
Type = namedtuple("Type", "base depth const array of", defaults=(0, False, 0, None))
Parameter = namedtuple("Parameter", "type name")
Function = namedtuple("Function", "name result parameters variadic doc")
Member = namedtuple("Member", "type name doc")
Struct = namedtuple("Struct", "name members doc")  # members None: its inside is not known
Enum = namedtuple("Enum", "name values doc")       # values: (name, number); name None: of constants alone


class Header:
    def __init__(self):
        self.functions, self.structs, self.enums, self.aliases, self.constants = [], [], [], {}, {}
        self.marked = 0  # occurrences of CODA_API

    def names(self):
        return {s.name for s in self.structs} | {e.name for e in self.enums} | set(self.aliases)


TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)|(?P<blank>\n[ \t]*(?=\n))
    |(?P<string>"(?:\\.|[^"\\])*")|(?P<word>[A-Za-z_]\w*)|(?P<number>0[xX][0-9a-fA-F]+|\d+)|(?P<more>\.\.\.)
    |(?P<sign><<|[-+{}()\[\];,=*|<>])|(?P<space>[ \t\n]+)|(?P<other>.)""", re.X | re.S | re.M)
CONDITIONS = {"ifdef __cplusplus": False, "if defined(_WIN32)": False, "if defined(__GNUC__)": True}
SKIPPED = re.compile(r"#\s*(include|define \w+_H\b|define \w+\()")


def comment_text(raw):
    lines = [re.sub(r"^[ \t]*\*? ?", "", line).rstrip() for line in raw[2:].removesuffix("*/").split("\n")]
    return "\n".join(lines).strip()


def tokens(path):
    """(kind, text, line): comments and empty lines among them, directives but #define NAME VALUE obeyed."""
    with open(path, encoding="utf-8") as f:
        source = f.read()
    on, line = [], 1
    for m in TOKEN.finditer(source):
        kind, text = m.lastgroup, m.group()
        here, line = line, line + text.count("\n")
        if kind == "directive":
            text = re.sub(r"\s+", " ", text.replace("\\\n", " ")).strip()
            word = text[1:].strip()
            if word.startswith("if"):
                if word not in CONDITIONS and not word.startswith("ifndef "):
                    raise SyntaxError("%s:%d: which way does `%s` go?" % (path, here, text))
                on.append(CONDITIONS.get(word, True))
            elif word == "else":
                on[-1] = not on[-1]
            elif word == "endif":
                on.pop()
            elif all(on) and not SKIPPED.match(text):
                yield kind, text, here
        elif all(on) and kind != "space":
            if kind == "other":
                raise SyntaxError("%s:%d: what is `%s`?" % (path, here, text))
            yield kind, text, here


class Parser:
    def __init__(self, path, header):
        self.path, self.header = path, header
        self.list, self.at = list(tokens(path)), 0
        self.doc = ""

    # ---- Tokens ----

    def fail(self, what):
        line = self.list[min(self.at, len(self.list) - 1)][2]
        raise SyntaxError("%s:%d: %s" % (self.path, line, what))

    def peek(self):
        """The next word or sign; comments and empty lines are passed."""
        while self.at < len(self.list) and self.list[self.at][0] in ("comment", "blank"):
            self.at += 1
        return self.list[self.at][1] if self.at < len(self.list) else ""

    def take(self, want=None):
        got = self.peek()
        if not got or (want and got != want):
            self.fail("`%s` where `%s` was wanted" % (got, want or "a word"))
        self.at += 1
        return got

    def took(self, sign):
        if self.peek() != sign:
            return False
        self.at += 1
        return True

    def word(self):
        if not re.match(r"[A-Za-z_]", self.peek()):
            self.fail("`%s` where a name was wanted" % self.peek())
        return self.take()

    def behind(self):
        """The comment on the line of the last token, or ""."""
        if self.at < len(self.list) and self.list[self.at][0] == "comment" and \
                self.list[self.at][2] == self.list[self.at - 1][2]:
            self.at += 1
            return re.sub(r"\s+", " ", comment_text(self.list[self.at - 1][1]))
        return ""

    # ---- Types ----

    def base(self):
        const = self.took("const")
        word = self.word()
        if word in ("struct", "enum"):
            word = self.word()
        elif word in ("unsigned", "signed"):
            word += " " + self.take() if self.peek() in ("char", "int", "long") else ""
        return Type(word, 0, const or self.took("const"))

    def pointers(self, t):
        while self.took("*"):
            t = t._replace(depth=t.depth + 1)
            self.took("const")
        return t

    def declarator(self, t):
        """What stands behind the base of a declaration: (type, name)."""
        t = self.pointers(t)
        if self.took("("):
            self.take("*")
            name = self.word()
            self.take(")")
            return Type("function", of=(t, self.parameters()[0])), name
        name = self.word() if self.peek() not in (",", ")") else ""
        if self.took("["):
            size = self.take()
            self.take("]")
            t = t._replace(array=self.number(size))
        return t, name

    def parameters(self):
        self.take("(")
        out, variadic = [], False
        while not self.took(")"):
            if out:
                self.take(",")
            if self.took("..."):
                variadic = True
            else:
                out.append(Parameter(*self.declarator(self.base())))
        return ([] if out == [Parameter(Type("void"), "")] else out), variadic

    # ---- Numbers ----

    def number(self, word):
        if re.match(r"[0-9]", word):
            return int(word, 0)
        if word not in self.header.constants:
            self.fail("the number of `%s` is not known" % word)
        return self.header.constants[word]

    def expression(self):
        """Numbers and constants with - << | between, up to `,` or `}`."""
        text = []
        while self.peek() not in (",", "}"):
            text.append(self.take())
        return eval("".join(t if t in ("-", "+", "<<", "|", "(", ")") else str(self.number(t)) for t in text), {})

    # ---- Declarations ----

    def members(self):
        self.take("{")
        out = []
        while not self.took("}"):
            first = self.base()
            while True:
                t, name = self.declarator(first)
                out.append(Member(t, name, ""))
                if self.took(";"):
                    break
                self.take(",")
            out[-1] = out[-1]._replace(doc=self.behind())
        return out

    def enumerators(self):
        self.take("{")
        out, value = [], -1
        while not self.took("}"):
            name = self.word()
            value = self.expression() if self.took("=") else value + 1
            out.append((name, value))
            self.header.constants[name] = value
            if not self.took(",") and self.peek() != "}":
                self.fail("`%s` behind an enumerator" % self.peek())
        return out

    def enum(self):
        name = None if self.peek() == "{" else self.word()
        return Enum(name, self.enumerators(), self.doc)

    def typedef(self):
        kind = self.peek()
        if kind in ("struct", "enum"):
            mark = self.at
            self.take()
            name = self.word()
            if self.peek() == "{":
                made = Struct(name, self.members(), self.doc) if kind == "struct" else \
                    Enum(name, self.enumerators(), self.doc)
                if self.word() != name:
                    self.fail("a typedef of another name than its %s" % kind)
                self.take(";")
                (self.header.structs if kind == "struct" else self.header.enums).append(made)
                return
            self.at = mark
        t, name = self.declarator(self.base())
        self.take(";")
        if t == Type(name):
            self.header.structs.append(Struct(name, None, self.doc))
        else:
            self.header.aliases[name] = t

    def function(self):
        result = self.pointers(self.base())
        name = self.word()
        parameters, variadic = self.parameters()
        while self.peek() != ";":  # an attribute of the compiler's
            if not re.fullmatch(r"[A-Z_]+|\d+|[(),]", self.peek()):
                self.fail("`%s` behind the parameters of %s" % (self.peek(), name))
            self.take()
        self.take(";")
        self.header.functions.append(Function(name, result, parameters, variadic, self.behind() or self.doc))

    def define(self, text):
        m = re.fullmatch(r"# ?define (\w+) ?(.*)", text)
        if not m:
            self.fail("what is `%s`?" % text)
        name, value = m.groups()
        if re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", value):
            self.header.constants[name] = int(value, 0)
        elif re.fullmatch(r'"[^"\\]*"', value):
            self.header.constants[name] = value[1:-1]
        elif value and not value.startswith(("{", "((coda_value)", "__attribute__")):
            self.fail("`%s` is neither a number nor a text" % value)

    def all(self):
        while self.at < len(self.list):
            kind, text, _ = self.list[self.at]
            self.at += 1
            if kind == "comment":
                self.doc = comment_text(text)
            elif kind == "blank":
                self.doc = ""
            elif kind == "directive":
                self.define(text)
            elif text == "CODA_API":
                self.header.marked += 1
                self.function()
            elif text == "typedef":
                self.typedef()
            elif text == "enum":
                self.header.enums.append(self.enum())
                self.take(";")
            else:
                self.at -= 1
                self.fail("what is `%s`?" % text)


def check(header):
    """Each type that is used is known, and each CODA_API was the beginning of a function."""
    known = header.names() | {
    "function",
    "void",
    "char",
    "int",
    "unsigned",
    "float",
    "double",
    "size_t",
    "unsigned char",
    "int8_t",
    "uint8_t",
    "int16_t",
    "uint16_t",
    "int32_t",
    "uint32_t",
    "int64_t",
    "uint64_t",
     "CUstream_st"}

    def walk(t, where):
        if t.base not in known:
            raise SyntaxError("%s: the type `%s` is not known" % (where, t.base))
        if t.of:
            for u in (t.of[0], *(p.type for p in t.of[1])):
                walk(u, where)
    for f in header.functions:
        for t in (f.result, *(p.type for p in f.parameters)):
            walk(t, f.name)
    for s in header.structs:
        for m in s.members or ():
            walk(m.type, s.name)
    if header.marked != len(header.functions):
        raise SyntaxError("%d CODA_API, %d functions" % (header.marked, len(header.functions)))
    return header


def read(paths):
    header = Header()
    for path in paths:
        Parser(path, header).all()
    return check(header)
