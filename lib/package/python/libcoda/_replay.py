"""_replay.py -- runs that come again, as CUDA graphs: of the same launches in the same memory.

PyTorch's allocator gives a call the memory that the last one had, as a rule, so a run has the addresses of an earlier
one: leaves, results, workspace. The second time that it has them it is recorded, from then on it is one launch of the
driver's. Nothing is copied, no memory is held, and a call whose addresses are others is a plain run. """
import ctypes
import os
import threading

GRAPHS, ONCE = 8, 64  # that are kept of a plan; runs that were there once
PATIENCE = 8  # recordings that may be in vain, and one more for each PAYS replays
PAYS = 16
RELAXED, APART = 2, 1  # CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING
CALLS = ("cuStreamCreate", "cuStreamDestroy_v2", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
         "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy")


class Driver:
    """The driver's calls that this wants; None of them where there is no such driver."""

    def __init__(self):
        try:
            library = ctypes.CDLL(os.environ.get("CODA_LIBCUDA") or "libcuda.so.1")
            for name in CALLS:
                setattr(self, name.replace("_v2", ""), getattr(library, name))
            self.cuGraphLaunch.argtypes = self.cuStreamEndCapture.argtypes = ctypes.c_void_p, ctypes.c_void_p
            self.cuGraphExecDestroy.argtypes = self.cuGraphDestroy.argtypes = (ctypes.c_void_p,)
            self.cuStreamDestroy.argtypes = (ctypes.c_void_p,)
            self.cuStreamBeginCapture.argtypes = ctypes.c_void_p, ctypes.c_int
            self.cuGraphInstantiateWithFlags.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64
            self.there = True
        except (OSError, AttributeError):
            self.there = False

    def recorded(self, go):
        """What go(stream) launches, to be launched again; None if it cannot be recorded."""
        stream, graph, made = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        if self.cuStreamCreate(ctypes.byref(stream), APART):
            return None
        try:
            if self.cuStreamBeginCapture(stream, RELAXED):
                return None
            failed = go(stream)
            if self.cuStreamEndCapture(stream, ctypes.byref(graph)) or not graph:
                return None
            if not failed and self.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, 0):
                return None
            self.cuGraphDestroy(graph)
            return Recorded(self, made) if made else None
        finally:
            self.cuStreamDestroy(stream)


class Recorded:
    def __init__(self, driver, graph):
        self.graph, self.launch, self.free = graph, driver.cuGraphLaunch, driver.cuGraphExecDestroy

    def __del__(self):
        self.free(self.graph)  # once it has run, if it does so now


driver = None


class Replays:
    """Those of one plan, by the bytes of a run's addresses."""

    def __init__(self, may):
        """`may()`: is the current device that of the plan, and its stream none that the caller records?"""
        global driver
        driver = driver or Driver()
        self.driver, self.may, self.graphs, self.once = driver, may, {}, {}
        self.hits, self.tries, self.lock = 0, 0, threading.Lock()

    def again(self, key, stream):
        """Launches what was recorded of this run, if it was."""
        found = self.graphs.get(key)
        if found is None or not self.may():
            return False
        self.hits += 1
        return found.launch(found.graph, stream) == 0

    def ran(self, key, go):
        """A run that was not recorded is behind us."""
        if key not in self.once:
            while len(self.once) >= ONCE:
                self.once.pop(next(iter(self.once)), None)
            self.once[key] = True
        elif self.tries < PATIENCE + self.hits // PAYS and key not in self.graphs and self.may():
            if self.lock.acquire(blocking=False):
                try:
                    self.record(key, go)
                finally:
                    self.lock.release()

    def record(self, key, go):
        self.tries += 1
        made = self.driver.recorded(go)
        if made is not None:
            while len(self.graphs) >= GRAPHS:
                self.graphs.pop(next(iter(self.graphs)), None)
            self.graphs[key] = made

