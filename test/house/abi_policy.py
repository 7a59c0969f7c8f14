#!/usr/bin/env python3
"""abi_policy.py OLD NEW -- may the interface that OLD describes become that of NEW? Folders of abi.sh.

Programs that were built with OLD go on working, so nothing may change but this:
  - calls, types, enumerators and macros are added;
  - a struct that begins with its `size` gets fields at its end, behind its old size: not into padding there.
What CHANGELOG.md says under "The interface". Before 1.0 a new minor version may change all. Fields are compared here,
all the rest by abidiff, which is told of structs that have grown as they may.
"""
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree


class Corpus:
    def __init__(self, folder):
        self.path = os.path.join(folder, "coda.xml")
        root = tree.parse(self.path).getroot()
        self.types = {e.get("id"): e for e in root.iter() if e.get("id")}
        self.structs = {e.get("name"): e for e in root.iter("class-decl")
                        if e.get("name") and e.find("data-member") is not None}
        with open(os.path.join(folder, "constants.txt"), encoding="ascii") as f:
            self.constants = f.read().splitlines()

    def version(self):
        return [next((c for c in self.constants if c.startswith(n + " ")), "")
                for n in ("CODA_VERSION_MAJOR", "CODA_VERSION_MINOR")]

    def name(self, type_id):
        """A type as C would write it, by names alone: ids are another dump's."""
        e = self.types.get(type_id)
        if e is None:
            return "void"
        below = self.name(e.get("type-id")) if e.get("type-id") and e.tag != "typedef-decl" else ""
        if e.tag == "pointer-type-def":
            return below + " *"
        if e.tag == "qualified-type-def":
            return below + " const"
        if e.tag == "array-type-def":
            return below + "".join("[%s]" % s.get("length") for s in e.iter("subrange"))
        if e.tag == "function-type":
            return "%s(%s)" % (self.name(e.find("return").get("type-id")),
                               ", ".join(self.name(p.get("type-id")) for p in e.iter("parameter")))
        return e.get("name")

    def fields(self, struct):
        """(offset in bits, name, type) of each."""
        out = []
        for member in self.structs[struct].iter("data-member"):
            var = member.find("var-decl")
            out.append((int(member.get("layout-offset-in-bits")), var.get("name"), self.name(var.get("type-id"))))
        return out

    def size(self, struct):
        return int(self.structs[struct].get("size-in-bits"))


def grown(old, new, struct):
    """Has it fields at its end and is else as it was? Complaints, or None if nothing changed."""
    before, after = old.fields(struct), new.fields(struct)
    if before == after and old.size(struct) == new.size(struct):
        return None
    if before[0][:2] != (0, "size"):
        return ["%s changes, and does not begin with its size" % struct]
    kept = after[:len(before)]
    wrong = ["%s.%s was %s at bit %d and is %s %s at bit %d" % (struct, b[1], b[2], b[0], a[2], a[1], a[0])
             for b, a in zip(before, kept) if a != b]
    wrong += ["%s.%s is gone" % (struct, b[1]) for b in before[len(kept):]]
    wrong += ["%s.%s lies in the padding of the old struct, which callers do not clear" % (struct, a[1])
              for a in after[len(before):] if a[0] < old.size(struct)]
    return wrong


def judge(old, new):
    wrong, allowed = [], []
    for line in old.constants:
        if line not in new.constants and not line.startswith("CODA_VERSION_"):
            name = line.split()[0]
            now = next((c for c in new.constants if c.split()[0] == name), name + " is gone")
            wrong.append("%s has become %s" % (line, now) if now.startswith(name + " ") and "gone" not in now else now)
    for struct in sorted(old.structs):
        if struct not in new.structs:
            wrong.append("struct %s is gone" % struct)
            continue
        complaints = grown(old, new, struct)
        if complaints == []:
            allowed.append(struct)
        wrong += complaints or []
    with tempfile.NamedTemporaryFile("w", suffix=".abignore") as rules:
        for struct in allowed:
            rules.write("[suppress_type]\ntype_kind = struct\nname = %s\nhas_data_member_inserted_at = end\n"
                        "has_size_change = yes\n\n" % struct)
        rules.flush()
        diff = subprocess.run(["abidiff", "--no-added-syms", "--suppressions", rules.name, old.path, new.path],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if diff.returncode:
        wrong.append("abidiff: " + re.sub(r"\n\s*\n", "\n", diff.stdout.strip()))
    return wrong, allowed


def main():
    old, new = Corpus(sys.argv[1]), Corpus(sys.argv[2])
    if old.version() != new.version() and old.version()[0].endswith(" 0"):
        print("abi: another minor version before 1.0 may change what it wants")
        return 0
    wrong, allowed = judge(old, new)
    for line in wrong:
        print("abi: " + line)
    if not wrong:
        print("abi: what was there goes on working" + (", and there is more in " + ", ".join(allowed) if allowed else ""))
    return 1 if wrong else 0


sys.exit(main())
