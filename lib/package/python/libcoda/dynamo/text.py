"""text.py -- a graph under construction as lines of the text form, of which those that no result needs are left
out."""
import re


class Refuse(Exception):
    """What cannot be said in a graph, in words for the report."""


DTYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "int64": "i64", "int32": "i32", "int8": "i8", "uint8": "u8",
          "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
          "bool": "f32"}  # 1 or 0


def name(dtype):
    """The word of a dtype of torch."""
    word = DTYPES.get(str(dtype).removeprefix("torch."))
    if word is None:
        raise Refuse("a tensor of %s" % dtype)
    return word


class Node:
    __slots__ = ("id", "word", "operands", "attributes", "shape", "dtype", "scope")


def number(x):
    if isinstance(x, bool):
        return str(int(x))
    return repr(float(x)) if isinstance(x, float) else str(x)


class Text:
    def __init__(self):
        self.nodes, self.leaves, self.outputs, self.names, self.scope = [], [], [], set(), ""
        self.early, self.count = [], 0  # nodes ahead of all others, which are made of leaves alone: positions
        self.numbers, self.written = {}, []
        self.ends = []  # where gradients end: the value before it under another name

    def made(self, id, word, operands, attributes, shape, dtype):
        n = Node()
        n.id, n.word, n.operands, n.attributes = id, word, operands, attributes
        n.shape, n.dtype, n.scope = tuple(shape), dtype, self.scope
        return n

    def node(self, word, operands, shape, dtype, **attributes):
        self.nodes.append(self.made("v%d" % self.count, word, operands, attributes, shape, dtype))
        self.count += 1
        return self.nodes[-1]

    def early_node(self, word, operands, shape, dtype, **attributes):
        self.early.append(self.made("e%d" % len(self.early), word, operands, attributes, shape, dtype))
        return self.early[-1]

    def ahead(self, *of):
        """Puts these nodes, and those of which they are made, among the early ones, if leaves of theirs are inputs."""
        seen, stack = set(), list(of)
        while stack:
            n = stack.pop()
            if n is not None and n not in seen:
                seen.add(n)
                stack += n.operands
        if all(n.operands or n.word in ("input", "constant") for n in seen):
            self.early += [n for n in self.nodes if n in seen]
            self.nodes = [n for n in self.nodes if n not in seen]

    def leaf(self, kind, path, shape, dtype, strides=None):
        """An input or a weight, named after where it comes from."""
        word = re.sub(r"[^A-Za-z0-9_.]", "_", path)[-100:].strip(".") or "x"
        if not re.match(r"[A-Za-z_]", word) or re.fullmatch(r"[ve]\d+|(out|dx|dy|kept|end|ended)\.\d+", word):
            word = "_" + word
        name, k = word, 1
        while name in self.names:
            k += 1
            name = "%s.%d" % (word, k)
        self.names.add(name)
        self.leaves.append(self.made(name, kind, [], {"stride": strides}, shape, dtype))
        return self.leaves[-1]

    def constant(self, value, dtype):
        key = (float(value), dtype)
        if key not in self.numbers:
            self.numbers[key] = self.node("constant", [], (), dtype, to=dtype, value=float(value))
        return self.numbers[key]

    def reshape(self, x, shape):
        shape = tuple(shape)
        if x.shape == shape:
            return x
        while x.word == "reshape":
            x = x.operands[0]
        if x.shape == shape:
            return x
        if len(shape) > 6:
            raise Refuse("a tensor of %d dimensions" % len(shape))
        return self.node("reshape", [x], shape, x.dtype, rank=len(shape), **{"d%d" % i: d for i, d in enumerate(shape)})

    def transpose(self, x, order):
        if list(order) == list(range(len(order))):
            return x
        if len(order) > 6:
            raise Refuse("a transpose of %d dimensions" % len(order))
        return self.node("transpose", [x], [x.shape[k] for k in order], x.dtype, **{"p%d" % i: k for i, k in enumerate(order)})

    def parts_of(self, x, axis):
        """What integers are put together of along an axis, shaped as x is; None if they are not. A slice of them is
        one of its parts then, so that labels that are shifted by one have no size that is another one plus 1."""
        whole = x.operands[0] if x.word == "reshape" else x
        if whole.word != "concat" or x.dtype not in ("i32", "i64"):
            return None
        places = [[k for k, n in enumerate(shape) if n != 1] for shape in (x.shape, whole.shape)]
        along = whole.attributes["axis"]
        if [x.shape[k] for k in places[0]] != [whole.shape[k] for k in places[1]] or axis not in places[0] or \
                along not in places[1] or places[0].index(axis) != places[1].index(along):
            return None
        return [self.reshape(p, x.shape[:axis] + (p.shape[along],) + x.shape[axis + 1:]) for p in whole.operands]

    def slice_parts(self, parts, axis, start, stop):
        kept = []
        for p in parts:
            n = p.shape[axis]
            if max(start, 0) < min(stop, n):
                kept.append(self.slice(p, axis, max(start, 0), min(stop, n), 1))
            start, stop = start - n, stop - n
        shape = list(kept[0].shape)
        shape[axis] = sum(p.shape[axis] for p in kept)
        return kept[0] if len(kept) == 1 else self.node("concat", kept, shape, kept[0].dtype, axis=axis)

    def slice(self, x, axis, start, stop, step):
        shape = list(x.shape)
        if (start, stop, step) == (0, shape[axis], 1):
            return x
        parts = self.parts_of(x, axis) if step == 1 and start < stop else None
        if parts:
            return self.slice_parts(parts, axis, start, stop)
        shape[axis] = -(-(stop - start) // step)
        return self.node("slice", [x], shape, x.dtype, axis=axis, start=start, stop=stop, step=step)

    def end(self, x):
        """x, of which a gradient is 0."""
        if x.word in ("end", "constant"):
            return x
        self.ends.append(self.made("end.%d" % len(self.ends), "end", [x], {"stride": None}, x.shape, x.dtype))
        self.nodes.append(self.ends[-1])
        return self.ends[-1]

    def output(self, n):
        self.outputs.append(n)

    def write(self, n):
        """A version of a state, which is there for what it leaves behind."""
        self.written.append(n)

    # ---- As text ----

    def needed(self):
        seen, stack = set(), self.outputs + self.written
        while stack:
            n = stack.pop()
            if id(n) not in seen:
                seen.add(id(n))
                stack += [x for x in n.operands if x is not None]
        return seen

    def used_leaves(self):
        seen = self.needed()
        return [n for n in self.leaves if id(n) in seen]

    def __str__(self):
        return self.lines(False)

    def lines(self, ends):
        """As text. `ends`: each value behind which no gradient goes is an input end.K, and what it is an output
        ended.K; merged() puts them together again."""
        seen, out = self.needed(), []
        leaves = self.used_leaves() + [n for n in self.ends if ends and id(n) in seen]
        for n in leaves:
            strides = n.attributes["stride"]
            out.append("%%%s = %s %s [%s]%s" % (n.id, "input" if n.word == "end" else n.word, n.dtype,
                                                ",".join(map(str, n.shape)),
                                                " stride=[%s]" % ",".join(map(str, strides)) if strides else ""))
        for n in self.early + self.nodes:
            if id(n) in seen and n.word != "end":
                out.append(self.line(n, ends))
        out += ["output %%out.%d = %s" % (k, self.named(n, ends)) for k, n in enumerate(self.outputs)]
        out += ["output %%ended.%s = %s" % (n.id[4:], self.named(n.operands[0], ends)) for n in self.ends
                if ends and id(n) in seen]
        return "\n".join(out) + "\n"

    @staticmethod
    def named(n, ends):
        while n.word == "end" and not ends:
            n = n.operands[0]
        return "%" + n.id

    @classmethod
    def line(cls, n, ends=False):
        words = [cls.named(x, ends) if x is not None else "_" for x in n.operands]
        while words and words[-1] == "_":
            words.pop()
        keys = ["%s=%s" % (k, number(v)) for k, v in n.attributes.items()
                if not isinstance(v, int) or v]
        return "%%%s = %s%s%s%s" % (n.id, n.word, " " + ", ".join(words) if words else "",
                                    " {%s}" % ", ".join(keys) if keys else "", " @" + n.scope if n.scope else "")


def merged(text):
    """A graph's text, with the value of ended.K for each end.K."""
    known = dict(re.findall(r"^output %ended\.(\d+) = (%[\w.]+)", text, re.M))

    def value(m):
        name = m.group()
        while name.startswith("%end."):
            name = known[name[5:]]
        return name
    lines = [x for x in text.split("\n") if not re.match(r"output %ended\.\d+ |%end\.\d+ = input ", x)]
    return re.sub(r"%end\.\d+\b", value, "\n".join(lines))
