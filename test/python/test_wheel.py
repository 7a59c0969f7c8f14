#!/usr/bin/env python3
"""test_wheel.py -- the wheel in build/wheel: its size, what it asks of a system, what its RECORD says, and a product by
the package in it, without this tree."""
import base64
import glob
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

BUILD = os.environ.get("BUILD", "build")
MAKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib/package/python/wheel.py")
MOST = 1_000_000
OLDEST = (2, 28)
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
WITHOUT_ZOPFLI = """
import runpy, shutil, sys
which = shutil.which
shutil.which = lambda name, *args, **kw: None if name == "zopfli" else which(name, *args, **kw)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
PRODUCT = """
import libcoda as coda
g = coda.Graph("%x = input f32 [2,3]\\n%w = weight f32 [2,3]\\n%y = matmul %x, %w\\noutput %y = %y\\n")
x, w = coda.Array((2, 3), "f32"), coda.Array((2, 3), "f32")
x.view().cast("B").cast("f")[:] = memoryview(__import__("array").array("f", [1, 2, 3, 4, 5, 6]))
w.view().cast("B").cast("f")[:] = memoryview(__import__("array").array("f", [1, 0, 1, 0, 2, 0]))
print(coda.__file__, g.compile("cpu")(x, w).tolist())
"""


def needed(data):
    """DT_NEEDED of an ELF file of 64 bits, least byte first (System V ABI, chapter 5)."""
    offset, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + size * k) for k in range(count)]
    dynamic = next(s for s in sections if s[1] == 6)
    names = sections[dynamic[6]][4]
    entries = [struct.unpack_from("<qQ", data, dynamic[4] + 16 * k) for k in range(dynamic[5] // 16)]
    return {data[names + v:data.index(b"\0", names + v)].decode() for tag, v in entries if tag == 1}


def contents(z):
    return [(i.filename, i.file_size, i.CRC, i.external_attr, i.date_time) for i in z.infolist()]


class Wheel(unittest.TestCase):
    def setUp(self):
        found = glob.glob(os.path.join(BUILD, "wheel", "*.whl"))
        self.assertEqual(len(found), 1, "wheels in %s/wheel: make wheel" % BUILD)
        self.path = found[0]
        self.zip = zipfile.ZipFile(self.path)
        self.addCleanup(self.zip.close)
        self.library = self.zip.read("libcoda/libcoda.so.0")

    def test_size(self):
        if b"__asan" in self.library or b"__tsan" in self.library or b"__gcov" in self.library:
            self.skipTest("a library with instruments is large")
        if not shutil.which("zopfli"):
            self.skipTest("no zopfli, which makes it 4 % smaller")
        self.assertLessEqual(os.path.getsize(self.path), MOST)

    def made(self, zopfli):
        """Made anew of the same files in another folder: its bytes, and of each file name, length, digest, mode and date."""
        with tempfile.TemporaryDirectory() as folder:
            start = [] if zopfli else ["-c", WITHOUT_ZOPFLI]
            subprocess.run([sys.executable, *start, MAKER, os.path.join(BUILD, "python/libcoda"),
                            os.path.join(BUILD, "wheel/libcoda.so"), folder], capture_output=True, check=True)
            path = glob.glob(os.path.join(folder, "*.whl"))[0]
            with open(path, "rb") as f, zipfile.ZipFile(path) as z:
                return f.read(), contents(z)

    def test_same(self):
        """Equal files make equal bytes, at another time and in another folder. Zopfli, which takes six seconds, packs the same
        again in a full run alone; in others zlib does it twice, and of what Zopfli packed the contents are compared."""
        full = os.environ.get("CODA_FULL") == "1"
        once, again = self.made(full), self.made(full)
        self.assertEqual(hashlib.sha256(once[0]).digest(), hashlib.sha256(again[0]).digest())
        self.assertEqual(once[1], contents(self.zip))

    def test_glibc(self):
        """No symbol is younger than the system that the tag says."""
        versions = [tuple(map(int, v)) for v in re.findall(rb"GLIBC_(\d+)\.(\d+)", self.library)]
        self.assertGreater(len(versions), 3)
        self.assertLessEqual(max(versions), OLDEST, "a symbol of `objdump -T` that old_glibc.c lacks")
        tag = tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", self.path).groups()))
        self.assertLessEqual(max(versions), tag)
        self.assertLessEqual(needed(self.library), SYSTEM)

    def test_record(self):
        record = next(n for n in self.zip.namelist() if n.endswith("/RECORD"))
        lines = [x.split(",") for x in self.zip.read(record).decode().splitlines()]
        self.assertEqual(sorted(x[0] for x in lines), sorted(self.zip.namelist()))
        for name, digest, size in lines:
            data = self.zip.read(name)
            want = "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            if name != record:
                self.assertEqual((digest, size), (want, str(len(data))), name)

    def test_product(self):
        with tempfile.TemporaryDirectory() as folder:
            self.zip.extractall(folder)
            env = {k: v for k, v in os.environ.items() if not k.startswith(("CODA_", "PYTHON", "LD_"))}
            out = subprocess.run([sys.executable, "-c", PRODUCT], env=dict(env, PYTHONPATH=folder), cwd=folder,
                                 capture_output=True, text=True, check=False)
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertTrue(out.stdout.startswith(folder), out.stdout)
            self.assertIn("[[4.0, 4.0], [10.0, 10.0]]", out.stdout)


if __name__ == "__main__":
    unittest.main()
