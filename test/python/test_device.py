#!/usr/bin/env python3
"""test_device.py -- the package on a GPU that is software, test/emulator. Arrays come and go by
__cuda_array_interface__; streams, workspace and prepared memory are the caller's."""
import array
import ctypes
import os
import random
import sys
import unittest

BUILD = os.environ.get("BUILD", "build")
EMULATOR = os.path.join(os.path.abspath(BUILD), "emulator")
if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
    print("test_device.py: skipped: %s has no emulator: `make emulator`" % BUILD)
    sys.exit(0)
os.environ.update(CODA_CUDA_LIB=EMULATOR, CODA_LIBCUDA=os.path.join(EMULATOR, "libcuda.so.1"),
                  CODA_CACHE_DIR=os.path.join(EMULATOR, "cache"))

import libcoda as coda
from libcoda import _replay, arrays, c

SEED = int(os.environ.get("CODA_SEED", 1))


class Driver:
    """Memory and streams by the driver's own calls."""

    def __init__(self):
        self.cuda = ctypes.CDLL(os.environ["CODA_LIBCUDA"])
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.must(self.cuda.cuInit(0))
        self.must(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        self.must(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self.must(self.cuda.cuCtxSetCurrent(context))

    @staticmethod
    def must(status):
        if status:
            raise RuntimeError("the driver says %d" % status)

    def memory(self, shape, dtype="f32"):
        """An Array on the device, full of bits that are no number."""
        address, size = ctypes.c_uint64(), arrays.count(shape) * arrays.BYTES[dtype]
        self.must(self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(size, 1))))
        nan = coda.Array((max(size, 1),), "u8")
        ctypes.memset(nan.memory.address, 0xff, size)
        self.must(self.cuda.cuMemcpyHtoD_v2(address, ctypes.c_void_p(nan.memory.address), ctypes.c_size_t(size)))
        self.arrive()
        return coda.Array(shape, dtype, address.value, ("cuda", 0), owner=self)

    def arrive(self):
        """A copy to the device may be under way when the call returns; streams of one's own do not wait for it."""
        self.must(self.cuda.cuCtxSynchronize())

    def to_device(self, numbers, shape):
        host, made = (ctypes.c_float * len(numbers))(*numbers), self.memory(shape)
        to, size = ctypes.c_uint64(made.memory.address), ctypes.c_size_t(ctypes.sizeof(host))
        self.must(self.cuda.cuMemcpyHtoD_v2(to, host, size))
        self.arrive()
        return made

    def to_host(self, x):
        self.must(self.cuda.cuCtxSynchronize())
        host = (ctypes.c_float * arrays.count(x.shape))()
        self.must(
    self.cuda.cuMemcpyDtoH_v2(
        host, ctypes.c_uint64(
            x.memory.address), ctypes.c_size_t(
                ctypes.sizeof(host))))
        return list(host)

    def stream(self):
        s = ctypes.c_void_p()
        self.must(self.cuda.cuStreamCreate(ctypes.byref(s), 1))
        return s.value


class Foreign:
    """Another library's array on the device."""

    def __init__(self, array, stream):
        self.keep, self.__cuda_array_interface__ = array, dict(array.__cuda_array_interface__, stream=stream)


class Device(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver, cls.rng = Driver(), random.Random(SEED)

    def test_a_product_by_foreign_arrays(self):
        m, n, k = 32, 48, 64
        x, w = ([self.rng.gauss(0, 1) for _ in range(r * k)] for r in (m, n))
        g = coda.Graph()
        g.output("y", coda.relu(g.input("x", "f32", [m, k]) @ g.weight("w", "f32", [n, k]).T))
        plan = g.compile("gpu")
        self.assertEqual(len(plan.kernels), 1)
        dx, dw, y, stream = self.driver.to_device(
    x, (m, k)), self.driver.to_device(
        w, (n, k)), self.driver.memory(
            (m, n)), self.driver.stream()
        want = [max(0, sum(x[i * k + e] * w[j * k + e] for e in range(k))) for i in range(m) for j in range(n)]
        for given in ((dx, dw), (Foreign(dx, stream), Foreign(dw, stream)), (Foreign(dx, None), dw)):
            y = self.driver.memory((m, n))
            run = plan.bind(*given, out=y)
            self.assertEqual(run.stream, stream if getattr(given[0], "__cuda_array_interface__")["stream"] else None)
            self.assertIs(run(), y)
            got = self.driver.to_host(y)
            off = max(abs(a - b) for a, b in zip(got, want)) / max(want)
            self.assertTrue(off < 2e-6, "off by %g" % off)
        plan(dx, dw, out=y, stream=stream)
        self.assertEqual(self.driver.to_host(y), got)
        with self.assertRaisesRegex(coda.InvalidError, "results on a GPU want memory: give out="):
            plan(dx, dw)
        with self.assertRaisesRegex(coda.InvalidError, "input x: the array is on cpu, the plan on gpu"):
            plan(coda.Array((m, k)), dw, out=y)

    def test_workspace_and_prepared_memory(self):
        rows, d = 24, 32
        x, gain, w, v = ([self.rng.gauss(0, 1) / s for _ in range(r * d)]
                         for r, s in ((rows, 1), (1, 1), (d, 6), (d, 6)))
        g = coda.Graph()
        a = g.input("x", "f32", [rows, d])
        h = coda.rms_norm(a, g.weight("gain", "f32", [d]), 1e-5) @ g.weight("w", "f32", [d, d]).T
        g.output("y", coda.softmax(h) @ g.weight("v", "f32", [d, d]).T)
        plan, host = g.compile("gpu", fold="copy"), g.compile("cpu")
        on_device = [self.driver.to_device(t, s) for t, s in ((x, (rows, d)), (gain, (d,)), (w, (d, d)), (v, (d, d)))]
        y = self.driver.memory((rows, d))
        size = plan.workspace_bytes
        self.assertGreater(plan.prepared_bytes, 0)
        room = {"prepared": self.driver.memory((plan.prepared_bytes,), "u8")}
        with self.assertRaisesRegex(coda.InvalidError, "on a GPU wants memory: give (workspace|prepared)="):
            plan(*on_device, out=y)
        if size:
            room["workspace"] = self.driver.memory((size,), "u8")
        plan(*on_device, out=y, **room)
        on_host = []
        for t, s in ((x, (rows, d)), (gain, (d,)), (w, (d, d)), (v, (d, d))):
            on_host.append(coda.Array(s))
            ctypes.memmove(on_host[-1].memory.address, (ctypes.c_float * len(t))(*t), 4 * len(t))
        want = [e for row in host(*on_host).tolist() for e in row]
        off = max(abs(p - q) for p, q in zip(self.driver.to_host(y), want)) / max(map(abs, want))
        self.assertTrue(off < 1e-5, "off by %g" % off)

    def test_runs_that_come_again(self):
        """A run is recorded the second time, and its replay reads what memory holds now."""
        m, n, k = 8, 24, 16
        x, w, other = ([self.rng.gauss(0, 1) for _ in range(r * k)] for r in (m, n, m))
        g = coda.Graph()
        g.output("y", g.input("x", "f32", [m, k]) @ g.weight("w", "f32", [n, k]).T)
        plan, replays = g.compile("gpu"), _replay.Replays(lambda: True)
        dx, dw, y = self.driver.to_device(x, (m, k)), self.driver.to_device(w, (n, k)), self.driver.memory((m, n))
        room, runs = self.driver.memory((plan.workspace_bytes + 256,), "u8"), []

        def go(stream):
            runs.append(stream)
            return c.coda_run(plan.handle, pointers, None, room.memory.address, stream)

        def product(x):
            return [sum(x[i * k + e] * w[j * k + e] for e in range(k)) for i in range(m) for j in range(n)]
        for call in range(4):
            both = array.array("Q", [a.memory.address for a in (dx, dw, y)])
            pointers = (ctypes.c_void_p * 3).from_buffer(both)
            key, want = both.tobytes(), product(x if call < 3 else other)
            if call == 3:
                numbers = (ctypes.c_float * len(other))(*other)
                self.driver.must(self.driver.cuda.cuMemcpyHtoD_v2(
                    ctypes.c_uint64(dx.memory.address), numbers, ctypes.c_size_t(ctypes.sizeof(numbers))))
            self.driver.must(self.driver.cuda.cuMemsetD8_v2(
                ctypes.c_uint64(y.memory.address), ctypes.c_ubyte(0), ctypes.c_size_t(4 * m * n)))
            self.assertEqual(replays.again(key, None), call > 1)
            if call < 2:
                self.assertEqual(go(None), 0)
                replays.ran(key, go)
            got = self.driver.to_host(y)
            self.assertTrue(max(abs(a - b) for a, b in zip(got, want)) < 1e-4)
        self.assertEqual([s is None for s in runs], [True, True, False])  # the last one is recorded
        self.assertFalse(replays.again(key[:-1] + b"?", None))

    def test_recordings_in_vain(self):
        """Runs whose memory changes are recorded a few times, and then no more, until replays have paid for it."""
        replays, made = _replay.Replays(lambda: True), []
        replays.driver = type("Recorder", (), {"recorded": lambda self, go: made.append(go) or "graph"})()
        for k in range(200):
            for _ in range(2):
                replays.ran(b"%d" % k, len)
        self.assertEqual(len(made), _replay.PATIENCE)
        self.assertEqual(len(replays.graphs), _replay.GRAPHS)
        self.assertTrue(len(replays.once) <= _replay.ONCE)
        replays.hits = _replay.PAYS
        for _ in range(2):
            replays.ran(b"more", len)
        self.assertEqual(len(made), _replay.PATIENCE + 1)
        self.assertEqual(list(replays.graphs)[-1], b"more")


if __name__ == "__main__":
    print("CODA_SEED=%d" % SEED)
    unittest.main()
