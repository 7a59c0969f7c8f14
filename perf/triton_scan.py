"""triton_scan.py -- Mamba's selective scan (arXiv 2312.00752) in Triton, for lack of one in the packages of serving_peers.py.

A program has some columns and all of their states. It takes tokens by blocks: in a block, states are the associative
scan of pairs (decay, addend), (k, s) then (k', s') being (k k', k' s + s'), and the last row goes on to the next block.
"""
import torch
import triton
import triton.language as tl

SIZES = (8, 8, 4), (16, 4, 4), (16, 8, 8), (32, 2, 4), (32, 4, 8), (64, 1, 4), (64, 2, 8), (128, 1, 8)
CONFIGS = [triton.Config({"TOKENS": t, "COLUMNS": w}, num_warps=n) for t, w, n in SIZES]


@triton.jit
def joined(keep, add, keep2, add2):
    return keep * keep2, keep2 * add + add2


@triton.autotune(CONFIGS, key=["length", "width"])
@triton.jit
def walk(x, dt, a, b, c, bias, skip, gate, before, y, after, length: tl.constexpr, width, x_row, dt_row, b_row, gate_row,
         STATES: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr):
    col, n, row = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, STATES), tl.arange(0, TOKENS)
    state_at = col[:, None] * STATES + n
    rate, shift, direct = tl.load(a + state_at), tl.load(bias + col), tl.load(skip + col)
    s = tl.load(before + state_at)
    for begin in range(0, length, TOKENS):
        t = (begin + row)[:, None]
        u = tl.load(x + t * x_row + col).to(tl.float32)
        step = tl.load(dt + t * dt_row + col).to(tl.float32) + shift
        step = tl.where(step > 20.0, step, tl.log(1.0 + tl.exp(step)))
        put, ask = tl.load(b + t * b_row + n).to(tl.float32), tl.load(c + t * b_row + n).to(tl.float32)
        keep = tl.exp(step[:, :, None] * rate[None])
        keep, add = tl.associative_scan((keep, (step * u)[:, :, None] * put[:, None, :]), 0, joined)
        all_s = keep * s[None] + add
        z = tl.load(gate + t * gate_row + col).to(tl.float32)
        out = (tl.sum(all_s * ask[:, None, :], 2) + direct * u) * z / (1.0 + tl.exp(-z))
        tl.store(y + t * width + col, out.to(y.dtype.element_ty))
        s = tl.sum(tl.where(row[:, None, None] == TOKENS - 1, all_s, 0.0), 0)
    tl.store(after + state_at, s)


def selective_scan(x, dt, a, b, c, bias, skip, gate, before):
    """y and the states behind it, of x, dt and gate [1, tokens, columns], b and c [1, tokens, states]; tokens a multiple of 128."""
    length, width = x.shape[1:]
    y, after = torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.empty_like(before)
    walk[lambda meta: (width // meta["COLUMNS"],)](
        x, dt, a, b, c, bias, skip, gate, before, y, after, length, width, x.stride(1), dt.stride(1), b.stride(1),
        gate.stride(1), STATES=a.shape[1])
    return y, after
