#!/usr/bin/env python3
"""families.py -- blocks of diffusion transformers and operations with states, beside PyTorch, in one process, in turns.

    families.py [--quick] [--seconds N] [--profile] [--out FILE] [--cpu] [PATTERN...]

    picture    a block of SD3 (arXiv 2403.03206) of 512 x 512 and 1024 x 1024, batch 2; FLUX.1's single block of
               1024 x 1024; a block of DiT-XL/2, batch 8. Modulations are inputs of both sides
    latent     what is ahead of DeepSeek-V3's attention (2412.19437): three products, two norms of latent vectors
    head       attention of 4,096 tokens to all, heads of 64 to 96 columns; SD3's at its own two lengths
    delta      the gated delta rule (2412.06464) of Qwen3.5-35B-A3B's shape: prompts, and a step of some sequences
    scan       Mamba's scan of the 2.8B shape (2312.00752), and SSD of Mamba-2 2.7B (2405.21060)
    recurrent  a layer of each of these models, from its norm to the residual; of the delta rule's one token, too

Sides: "coda"; "compile" (torch.compile) and "eager"; "cudnn" and "flash" for attention; "fla" (the Triton kernels
of the package flash-linear-attention, where it is installed), "mamba" and "triton" (serving_peers.py), "stream" (a copy
of as many bytes as a step's states are read and written). A layer's peers are torch.compile's with these kernels. All is measured and checked as serving.py does; results go to
perf/results/CARD/families.json.
"""
import sys

import serving
import serving_cases
from families_layers import DeltaLayer, Mamba2Layer, MambaLayer
from families_pictures import SD3, DiT, Flux, Latent
from families_states import Delta, Scan


def all_cases(opt):
    if opt.cpu:
        return [SD3("cpu", 16, text=7, hidden=128, count=2), Flux("cpu", 16, hidden=256, count=2),
                DiT("cpu", 2, tokens=16, hidden=144, count=2),
                Latent("cpu", 9, hidden=128, q=384, c=320, heads=2), Delta("cpu", 2, 9, 2, 4, 16),
                Scan("cpu", 2, 9, 8, 1, 4), Scan("cpu", 2, 9, 4, 8, 4),
                DeltaLayer("cpu", 2, 9, 64, 2, 4, 16), MambaLayer("cpu", 2, 9, 32, 64, 16, 4), Mamba2Layer("cpu", 2, 9, 64, 4, 32, 16)]
    heads = [serving_cases.Attention("head", "cuda", 2, t, t, 24, 24, 64, False) for t in (1357, 4429)]
    heads += [serving_cases.Attention("head", "cuda", 2, 4096, 4096, 16, 16, n, False) for n in (64, 72, 80, 96, 128)]
    for case in heads:
        case.name = case.name.replace("serving/", "")
    return [SD3("cuda", 1024), SD3("cuda", 4096), Flux("cuda", 4608), DiT("cuda", 8)] + heads + [
        Latent("cuda", 16), Latent("cuda", 4096),
        Delta("cuda", 1, 8192), Delta("cuda", 8, 2048), Delta("cuda", 1, 65536), Delta("cuda", 64, 1), Delta("cuda", 1, 1),
        Scan("cuda", 1, 8192, 5120, 1, 16), Scan("cuda", 1, 8192, 80, 64, 128), Scan("cuda", 64, 1, 80, 64, 128),
        DeltaLayer("cuda", 1, 8192), DeltaLayer("cuda", 1, 1), DeltaLayer("cuda", 64, 1), MambaLayer("cuda", 1, 8192),
        Mamba2Layer("cuda", 1, 8192)]


if __name__ == "__main__":
    sys.exit(serving.main("families", all_cases, __doc__))
