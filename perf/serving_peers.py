"""serving_peers.py -- attention of one query and recurrent states as FlashInfer and Mamba's own package compute them.

`attention(case)` and `states(case)` yield (name, formula), a formula being a function of a case's tensors. A peer
whose package is missing yields nothing.

    flashinfer, flashinfer_tensor   a plan of flashinfer's decode attention without and with its option
                                    use_tensor_cores, for keys and values that lie in pages of 16 one behind another
    mamba                           Triton kernels of mamba_ssm: chunks of a prompt, or a step of states
    triton                          triton_scan.py: Mamba's scan of a prompt
"""
import functools
import importlib.util

import torch

PAGE = 16
ROOM = 256 << 20  # bytes that flashinfer may use for parts of rows


def has(package):
    return importlib.util.find_spec(package) is not None


# ---- Attention ----

class FlashInfer:
    """Plans at its first call."""

    def __init__(self, case, tensor_cores):
        self.case, self.tensor_cores = case, tensor_cores
        batch, keys, columns = case.sizes
        self.pages = keys // PAGE
        self.q, self.kv = (batch, case.count, columns), (-1, PAGE, case.kv, columns)

    @functools.cached_property
    def plan(self):
        import flashinfer
        batch, _, columns = self.q
        ints = {"dtype": torch.int32, "device": "cuda"}
        starts, last = torch.arange(batch + 1, **ints) * self.pages, torch.full((batch,), PAGE, **ints)
        room = torch.empty(ROOM, dtype=torch.uint8, device="cuda")
        plan = flashinfer.BatchDecodeWithPagedKVCacheWrapper(room, "NHD", use_tensor_cores=self.tensor_cores)
        plan.plan(starts, torch.arange(batch * self.pages, **ints), last, self.case.count, self.case.kv, columns, PAGE,
                  q_data_type=self.case.out, kv_data_type=self.case.out)
        return plan

    def __call__(self, t):
        y = self.plan.run(t["q"].view(self.q), (t["k"].view(self.kv), t["v"].view(self.kv)))
        return y.view(t["q"].shape)


def attention(case):
    """Formulas of a serving_cases.Attention of one query."""
    if has("flashinfer"):
        yield "flashinfer", FlashInfer(case, False)
        yield "flashinfer_tensor", FlashInfer(case, True)


# ---- States ----

def ssd_prompt(case, t):
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
    x = t["x"].unflatten(-1, (case.count, case.dim))
    s = t["s"].unflatten(1, (case.count, case.dim))
    y, after = mamba_chunk_scan_combined(x, t["dt"], t["a"], t["b"][:, :, None], t["c"][:, :, None], chunk_size=256,
                                         D=t["skip"], dt_bias=t["bias"], initial_states=s, dt_softplus=True,
                                         return_final_states=True)
    return y.flatten(2), after


def ssd_step(case, t):
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update
    s, x = (t[n].unflatten(-2 if n == "s" else -1, (case.count, case.dim)) for n in ("s", "x"))
    wide = lambda v: v[..., None].expand(*v.shape, case.dim)  # the same for all columns of a head
    y = selective_state_update(s, x[:, 0], wide(t["dt"][:, 0]), wide(t["a"])[..., None].expand(-1, -1, case.n),
                               t["b"], t["c"], D=wide(t["skip"]), dt_bias=wide(t["bias"]), dt_softplus=True)
    return y.flatten(1)[:, None]


def scan(t):
    from triton_scan import selective_scan
    return selective_scan(t["x"], t["dt"], t["a"], t["b"], t["c"], t["bias"], t["skip"], t["gate"], t["s"])


def states(case):
    """Formulas of a families_states.Scan."""
    if case.dim == 1:
        if case.tokens > 1 and case.device == "cuda":
            yield "triton", scan
    elif has("mamba_ssm"):
        yield "mamba", lambda t: (ssd_step if case.tokens == 1 else ssd_prompt)(case, t)
