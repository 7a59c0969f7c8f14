#!/usr/bin/env python3
"""wheel.py PACKAGE LIBRARY FOLDER -- the package as a wheel, for every CPython 3 from 3.10 of this kind of machine.
wheel.py PACKAGE -- beside the package, what an installation says of it: by that PyTorch finds the backend there, too.

A wheel is a zip file (packaging.python.org, "Binary distribution format"). This writes one (PKWARE's APPNOTE.TXT), since
zipfile takes no streams of others: Zopfli's, where it is installed, are 4 % shorter than zlib's. Equal sources make equal
bytes. The tag has the least glibc that the library's symbols ask for; old_glibc.c sees to it that it is old. """
import ast
import base64
import hashlib
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

NAME, OLDEST = "libcoda", "3.10"
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
DATE = (2020 - 1980) << 9 | 1 << 5 | 1  # the first of January 2020
RELA, RELATIVE = 4, (8, 1027)  # a kind of section; of relocation, on x86-64 and aarch64
PUBLIC = ("backend", "load", "report", "reset", "save")  # of libcoda/dynamo


def metadata(version):
    with open(os.path.join(HERE, "README.md"), encoding="utf-8") as f:
        text = f.read().split("\n## How it is made")[0]  # which is for who has the tree
    return """Metadata-Version: 2.1
Name: %s
Version: %s
Summary: Transformer blocks as fused kernels: graphs, a CPU device, GPUs through NVRTC
License: Apache-2.0
Requires-Python: >=%s
Provides-Extra: cuda
Requires-Dist: nvidia-cuda-nvrtc<14,>=13; extra == "cuda"
Requires-Dist: nvidia-cublas<14,>=13; extra == "cuda"
Provides-Extra: torch
Requires-Dist: torch>=2.11; extra == "torch"
Description-Content-Type: text/markdown

%s""" % (NAME, version, OLDEST, text)


def glibc(library):
    """The newest version of glibc that a symbol has."""
    out = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    return max(tuple(map(int, v)) for v in re.findall(r"@GLIBC_(\d+)\.(\d+)", out))


def stripped(library, folder):
    path = os.path.join(folder, "libcoda.so.0")
    subprocess.run([os.environ.get("OBJCOPY") or "objcopy", "--strip-unneeded", library, path], check=True)
    with open(path, "rb") as f:
        data = bytearray(f.read())
    os.remove(path)
    return unapplied(data)


def unapplied(data):
    """An ELF file of 64 bits (System V ABI, chapter 4) without what pointers are before it is loaded, as lld links it: the
    loader takes that from the table of relocations alone. GNU ld writes it twice, which is 11 kB of a wheel."""
    at, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, at + size * k)[1:] for k in range(count)]
    loaded = [(address, offset, n) for kind, _, address, offset, n in sections if address and kind == 1]  # PROGBITS
    for _, _, _, offset, n in (s for s in sections if s[0] == RELA):
        for k in range(offset, offset + n, 24):
            place, kind = struct.unpack_from("<QI", data, k)
            for address, begins, length in loaded if kind in RELATIVE else ():
                if address <= place < address + length:
                    struct.pack_into("<Q", data, begins + place - address, 0)
    return bytes(data)


def undocumented(data, public):
    """A module without docstrings but those of public functions, each line where it was: so tracebacks are those of the tree."""
    lines = data.decode().split("\n")
    for node in ast.walk(ast.parse(data)):
        body = getattr(node, "body", None)
        if getattr(node, "name", "") in public or not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) or len(body) < 2 or ast.get_docstring(node) is None:
            continue
        for k in range(body[0].lineno - 1, body[0].end_lineno):
            lines[k] = ""
    return "\n".join(lines).encode()


def shipped(name, data):
    """Docstrings of what nobody calls are for who has the tree: of the backend's parts, and names with an underscore."""
    folder, base = os.path.split(name)
    inner = base != "__init__.py" and (base.startswith("_") or folder == "dynamo")
    return undocumented(data, PUBLIC if folder else ()) if inner and base.endswith(".py") else data


def described(version):
    """What PyTorch and other programs read of an installation."""
    return [("METADATA", metadata(version).encode()),
            ("entry_points.txt", b"[torch_dynamo_backends]\ncoda = libcoda.dynamo:backend\n")]


def files(package, library, folder, version, tag):
    """(name, bytes, mode) of all but RECORD."""
    for root, folders, names in os.walk(package):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".so")):
                path = os.path.join(root, name)
                inside = os.path.relpath(path, package)
                with open(path, "rb") as f:
                    yield os.path.join(NAME, inside), shipped(inside, f.read()), 0o755 if name.endswith(".so") else 0o644
    yield NAME + "/libcoda.so.0", stripped(library, folder), 0o755
    info = "%s-%s.dist-info/" % (NAME, version)
    wheel = "Wheel-Version: 1.0\nGenerator: coda\nRoot-Is-Purelib: false\nTag: %s\n" % tag
    for name, data in (*described(version), ("WHEEL", wheel.encode())):
        yield info + name, data, 0o644
    with open(os.path.join(ROOT, "LICENSE"), "rb") as f:
        yield info + "LICENSE", f.read(), 0o644


def deflated(data):
    """One stream of deflate (RFC 1951)."""
    zopfli = shutil.which("zopfli")
    if not zopfli:
        pack = zlib.compressobj(9, zlib.DEFLATED, -15)
        return pack.compress(data) + pack.flush()
    with tempfile.NamedTemporaryFile() as f:
        f.write(data)
        f.flush()
        packed = subprocess.run([zopfli, "--deflate", "--i5", "-c", f.name], capture_output=True, check=True).stdout
    if zlib.decompress(packed, -15) != data:
        sys.exit("%s: what it packed is read back as something else" % zopfli)
    return packed


class Zip:
    """A zip file in memory: local headers and data, and the directory behind them."""

    def __init__(self):
        self.data, self.directory, self.count = bytearray(), bytearray(), 0

    def add(self, name, data, mode):
        name, packed = name.encode(), deflated(data)
        sizes = struct.pack("<5H3L2H", 20, 0, 8, 0, DATE, zlib.crc32(data), len(packed), len(data), len(name), 0)
        self.directory += struct.pack("<4sH", b"PK\1\2", 3 << 8 | 20) + sizes  # made by Unix, whose modes follow
        self.directory += struct.pack("<3H2L", 0, 0, 0, (0o100000 | mode) << 16, len(self.data)) + name
        self.data += b"PK\3\4" + sizes + name + packed
        self.count += 1

    def whole(self):
        return self.data + self.directory + struct.pack(
            "<4s4H2LH", b"PK\5\6", 0, 0, self.count, self.count, len(self.directory), len(self.data), 0)


def version_of():
    with open(os.path.join(ROOT, "include", "coda.h"), encoding="utf-8") as f:
        return re.search(r'CODA_VERSION_STRING "(.*)"', f.read()).group(1)


def describe(package):
    version = version_of()
    folder = "%s-%s.dist-info" % (package, version)
    os.makedirs(folder, exist_ok=True)
    for name, data in described(version):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


def main(package, library, folder):
    version = version_of()
    tag = "py3-none-manylinux_%d_%d_%s" % (*max(glibc(library), (2, 17)), platform.machine())
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "%s-%s-%s.whl" % (NAME, version, tag))
    record, info = [], "%s-%s.dist-info/" % (NAME, version)
    z = Zip()
    for name, data, mode in files(package, library, folder, version, tag):
        z.add(name, data, mode)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append("%s,sha256=%s,%d\n" % (name, digest, len(data)))
    z.add(info + "RECORD", "".join([*record, info + "RECORD,,\n"]).encode(), 0o644)
    with open(path + ".part", "wb") as f:
        f.write(z.whole())
    os.replace(path + ".part", path)
    print("%s: %d kB" % (path, os.path.getsize(path) // 1000))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    (main if len(sys.argv) == 4 else describe)(*sys.argv[1:])
