#!/usr/bin/env python3
"""pack_digests.py -- writes pack_digests.def: for random tensors of sizes that no file of test/golden/quant has, the SHA-256 of the fp32
weights that the formats' formulas give, in numpy. test_pack_sizes.c makes the same tensors, packs and unpacks them. And quantize_digests.def:
the tensors that random weights are rounded to, for test_quantize.c.

    python3 test/unit/pack/pack_digests.py packed > test/unit/pack/pack_digests.def
    python3 test/unit/pack/pack_digests.py quantized > test/unit/pack/quantize_digests.def

Formulas: compressed-tensors' pack_to_int32, AutoGPTQ's and AutoAWQ's pack, OCP's MX specification, ggml-quants.c of llama.cpp. They were held
against these packages' own writers, and llama.cpp's reader, bit for bit.

Rounding: calculate_qparams and quantize of compressed-tensors, in fp64.
"""
import hashlib
import sys
import numpy as np

u8, u32, f16, f32 = np.uint8, np.uint32, np.float16, np.float32

# ---- Random bytes: test_pack_sizes.c has the same generator

class Bytes:
    def __init__(self, seed): self.x = seed
    def take(self, n, mask=255):
        """n bytes, of which each is masked."""
        out = np.empty(n, u8)
        for i in range(n):
            self.x = (self.x * 1664525 + 1013904223) & 0xffffffff
            out[i] = self.x >> 24
        return out & u8(mask)
    def scales(self, kind, n):
        """n scales that are finite, as bytes."""
        size = {"f32": 4, "bf16": 2, "f16": 2, "e8m0": 1, "e4m3": 1}[kind]
        b = self.take(n * size).reshape(n, size)
        b[:, size - 1] &= {"f32": 0xbf, "bf16": 0xbf, "f16": 0xbb, "e8m0": 0xfe, "e4m3": 0xfb}[kind]
        if kind == "e8m0": b[:, 0] //= 2
        return b.reshape(-1)

def floats(kind, b):
    if kind == "f32": return b.view(f32)
    if kind == "bf16": return (b.view(np.uint16).astype(u32) << u32(16)).view(f32)
    if kind == "f16": return b.view(f16).astype(f32)
    if kind == "e8m0": return np.exp2(b.astype(np.float64) - 127).astype(f32)
    return e4m3(b)

# ---- Formulas

def e4m3(b):
    b = np.asarray(b, np.int32)
    s, e, m = np.where(b & 128, -1.0, 1.0), b >> 3 & 15, b & 7
    return (s * np.where(e == 0, m * 2.0 ** -9, (8 + m) * np.exp2(e - 10.0))).astype(f32)

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], f32)

def fields(words, bits, axis, order=None):
    """32-bit words -> their numbers along an axis."""
    w = np.moveaxis(words, axis, -1)
    n = 32 // bits
    out = np.empty(w.shape + (n,), np.int32)
    for i in range(n):
        out[..., order[i] if order else i] = w >> u32(bits * i) & u32((1 << bits) - 1)
    return np.moveaxis(out.reshape(w.shape[:-1] + (-1,)), -1, axis)

def spread(s, g, k): return np.repeat(s, g, 1)[:, :k]

def low_high(b): return np.stack([b & 15, b >> 4], -1).reshape(b.shape[:-1] + (-1,))

def halves(b): return np.concatenate([b & 15, b >> 4], -1).astype(np.int32)

def half(b): return np.ascontiguousarray(b).view(f16).astype(f32)

def fifth(b): return (np.ascontiguousarray(b).view(u32) >> np.arange(32, dtype=u32) & u32(1)).astype(np.int32) << 4

def k_scales(b):
    d, m, x = b[:, 0:4], b[:, 4:8], b[:, 8:12]
    return (np.concatenate([d & 63, x & 15 | d >> 6 << 4], 1).astype(f32), np.concatenate([m & 63, x >> 4 | m >> 6 << 4], 1).astype(f32))

def by_64(b): return np.stack([b.reshape(len(b), 4, 32) & 15, b.reshape(len(b), 4, 32) >> 4], 2).reshape(len(b), 8, 32).astype(np.int32)

def k_quant(b, q):
    sc, mn = k_scales(b[:, 4:16])
    return ((half(b[:, :2]) * sc)[..., None] * q.astype(f32) - (half(b[:, 2:4]) * mn)[..., None]).reshape(len(b), 256)

def q5_k(b):
    high = (b[:, None, 16:48] >> np.arange(8, dtype=u8)[:, None] & 1).astype(np.int32)
    return k_quant(b, by_64(b[:, 48:]) | high << 4)

def q6_k(b):
    ql, qh, sc = b[:, :128].reshape(-1, 2, 64), b[:, 128:192].reshape(-1, 2, 32), b[:, 192:208].view(np.int8)
    low = np.concatenate([ql & 15, ql >> 4], 2).reshape(-1, 2, 4, 32)
    high = qh[:, :, None, :] >> np.array([0, 2, 4, 6], u8)[:, None] & 3
    q = (low | high << 4).astype(np.int32).reshape(-1, 16, 16) - 32
    return ((half(b[:, 208:]) * sc)[..., None] * q.astype(f32)).reshape(len(b), 256)

def gguf_nvfp4(b):
    s = np.where(b[:, :4] == 0x7f, f32(0), e4m3(b[:, :4] & 127))
    return (E2M1[halves(b[:, 4:].reshape(-1, 4, 8))] * s[..., None]).reshape(len(b), 64)

# elements, bytes, places of f16 in a block, its values
GGUF = {
    "q4_0": (32, 18, [0], lambda b: (halves(b[:, 2:]) - 8) * half(b[:, :2])),
    "q4_1": (32, 20, [0, 2], lambda b: halves(b[:, 4:]) * half(b[:, :2]) + half(b[:, 2:4])),
    "q5_0": (32, 22, [0], lambda b: ((halves(b[:, 6:]) | fifth(b[:, 2:6])) - 16) * half(b[:, :2])),
    "q5_1": (32, 24, [0, 2], lambda b: (halves(b[:, 8:]) | fifth(b[:, 4:8])) * half(b[:, :2]) + half(b[:, 2:4])),
    "q8_0": (32, 34, [0], lambda b: b[:, 2:].view(np.int8).astype(np.int32) * half(b[:, :2])),
    "q4_k": (256, 144, [0, 2], lambda b: k_quant(b, by_64(b[:, 16:]))),
    "q5_k": (256, 176, [0, 2], q5_k),
    "q6_k": (256, 210, [208], q6_k),
    "mxfp4": (32, 17, [], lambda b: E2M1[halves(b[:, 1:])] * floats("e8m0", b[:, :1])),
    "nvfp4": (64, 36, [], gguf_nvfp4),
}

# ---- Cases: each draws codes, then scales, then zeros

def gguf(r, word, n, k):
    elements, size, places, formula = GGUF[word]
    b = r.take(n * (k // elements) * size).reshape(-1, size)
    for at in places: b[:, at + 1] &= 0xbb
    if word == "mxfp4": b[:, 0] = (b[:, 0] & 0xfe) // 2
    if word == "nvfp4": b[:, :4] &= 127
    return formula(b).astype(f32).reshape(n, k)

def parts(word):
    p = word.split("_")
    return {"int4": 4, "int8": 8}.get(p[0], 8), 0 if p[1] == "row" else int(p[1][1:]), p[2], len(p) > 3

def act_order(k, g): return (np.arange(k) * 37 % k) // g

def compressed(r, word, n, k, order):
    bits, g, kind, zeros = parts(word)
    g, w, mid = g or k, 32 // bits, 1 << bits - 1
    G = -(-k // g)
    q = fields(r.take(n * -(-k // w) * 4).view(u32).reshape(n, -1), bits, 1)[:, :k] - mid
    s = floats(kind, r.scales(kind, n * G)).reshape(n, G)
    z = fields(r.take(-(-n // w) * G * 4).view(u32).reshape(-1, G), bits, 0)[:n] - mid if zeros else np.zeros((n, G), np.int32)
    i = act_order(k, g) if order else np.arange(k) // g
    return (q - z[:, i]).astype(f32) * s[:, i]

def gptq(r, word, n, k, order, version):
    bits, g, kind, zeros = parts(word)
    g, w = g or k, 32 // bits
    G = -(-k // g)
    q = fields(r.take(k // w * n * 4).view(u32).reshape(-1, n), bits, 0)
    s = floats(kind, r.scales(kind, n * G)).reshape(G, n)
    z = fields(r.take(G * (n // w) * 4).view(u32).reshape(G, -1), bits, 1)
    z = z + (version == 1) & (1 << bits) - 1
    i = act_order(k, g) if order else np.arange(k) // g
    return ((q - z[i]).astype(f32) * s[i]).T

def awq(r, word, n, k):
    bits, g, kind, zeros = parts(word)
    g = g or k
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    q = fields(r.take(k * (n // 8) * 4).view(u32).reshape(k, -1), 4, 1, order)
    s = floats(kind, r.scales(kind, n * (k // g))).reshape(-1, n)
    z = fields(r.take(k // g * (n // 8) * 4).view(u32).reshape(k // g, -1), 4, 1, order)
    i = np.arange(k) // g
    return ((q - z[i]).astype(f32) * s[i]).T

def nibbles(r, word, n, k):
    g, kind = (32, "e8m0") if word == "mxfp4" else (16, "e4m3")
    q = E2M1[low_high(r.take(n * k // 2).reshape(n, -1))]
    return q * spread(floats(kind, r.scales(kind, n * k // g)).reshape(n, -1), g, k)

def codes(r, word, n, k, block):
    """A byte a code: e4m3 and int8."""
    bits, g, kind, zeros = parts(word)
    g = g or k
    G = -(-k // g)
    b = r.take(n * k, 0xfb).reshape(n, k)
    s = floats(kind, r.scales(kind, -(-n // block) * G)).reshape(-1, G)
    s = spread(np.repeat(s, block, 0)[:n], g, k)
    z = spread(r.take(n * G).view(np.int8).astype(np.int32).reshape(n, G), g, k) if zeros else 0
    return e4m3(b) * s if word.startswith("e4m3") else (b.view(np.int8) - z).astype(f32) * s

# ---- Rounding

def bf16(x):
    u = x.astype(f32).view(u32).astype(np.uint64)
    return ((u + 0x7fff + (u >> 16 & 1)) >> 16).astype(np.uint16)

def stored(kind, s):
    """As the scales' type has them: bytes, and values."""
    b = {"f32": lambda: s.astype(f32), "bf16": lambda: bf16(s), "f16": lambda: s.astype(f32).astype(f16)}[kind]()
    return b.tobytes(), floats(kind, np.frombuffer(b.tobytes(), u8)).reshape(s.shape).astype(np.float64)

def nearest(values, x):
    """Index of the nearest of ascending values, of two as near the even one."""
    i = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    low, high = x - values[i - 1], values[i] - x
    return np.where((low < high) | ((low == high) & (i % 2 == 1)), i - 1, i)

def weights(r, n, k, t):
    """Multiples of 2^-15 in each row's own range; a row of zeros, a column of large ones; as float64, and the bytes do not matter."""
    x = r.take(2 * n * k).view(np.int16).reshape(n, k).astype(np.float64) * 2.0 ** -15 * 4.0 ** -(np.arange(n) % 5)[:, None]
    x[n // 2] = 0
    x[:, k // 3] *= 8
    return {"F32": lambda: x, "BF16": lambda: floats("bf16", bf16(x).view(u8).reshape(-1)).reshape(n, k).astype(np.float64),
            "F16": lambda: x.astype(f16).astype(np.float64)}[t]()

def words(q, bits, axis):
    """Numbers into 32-bit words along an axis, the last filled up with 0."""
    q = np.moveaxis(q, axis, -1).astype(u32)
    n = 32 // bits
    q = np.pad(q, [(0, 0)] * (q.ndim - 1) + [(0, -q.shape[-1] % n)]).reshape(q.shape[:-1] + (-1, n))
    return np.moveaxis((q << (np.arange(n, dtype=u32) * u32(bits))).sum(-1).astype(u32), -1, axis)

def quantize(r, kind, word, n, k, block, t, search=0):
    bits, g, scales, zeros = parts(word)
    g, block = g or k, max(block, 1)
    N, G = -(-n // block), -(-k // g)
    x = weights(r, n, k, t)
    padded = np.pad(x, [(0, N * block - n), (0, G * g - k)]).reshape(N, block, G, g)
    low, high = np.minimum(padded.min((1, 3)), 0), np.maximum(padded.max((1, 3)), 0)
    largest = {"e4m3": 448, "e5m2": 57344, "int4": 7.5, "int8": 127.5}[word[:4]]
    wide = lambda a: np.repeat(np.repeat(a, block, 0)[:n], g, 1)[:, :k]
    def scale(part):
        lo, hi = low * part, high * part
        s = (hi - lo) / (2 * largest) if zeros else np.maximum(hi, -lo) / largest
        b, s = stored(scales, np.where(s == 0, 1, s))
        return s, np.minimum(np.rint(-lo / s), 2 * largest) if zeros else np.zeros_like(s)
    s, z = scale(1)
    half = 1 << bits - 1
    codes = lambda s, z: np.clip(np.rint(x / wide(s) + wide(z)), 0 if zeros else -half, (2 * half if zeros else half) - 1)
    if search:
        def lost(s, z):
            d = np.pad(x - (codes(s, z) - wide(z)) * wide(s), [(0, N * block - n), (0, G * g - k)]).reshape(N, block, G, g)
            return (d * d).sum((1, 3))
        least = lost(s, z)
        for i in range(1, 8):
            other = scale(1 - 0.05 * i)
            l = lost(*other)
            s, z, least = np.where(l < least, other[0], s), np.where(l < least, other[1], z), np.minimum(l, least)
    b = stored(scales, s)[0]
    if word[0] == "e":
        size = e4m3(np.arange(127)) if word[:4] == "e4m3" else (np.arange(124, dtype=np.uint16) << 8).view(f16).astype(f32)
        v = x / wide(s)
        return [np.where(np.signbit(v), 128, 0) + nearest(size.astype(np.float64), np.abs(v)), b]
    q = codes(s, z).astype(np.int64)
    z = z.astype(np.int64)
    if kind == "COMPRESSED_TENSORS":
        return [words(q if zeros else q + half, bits, 1), b] + ([words(z, bits, 0)] if zeros else [])
    if bits == 8 and zeros: q, z = q - 128, z - 128
    return [q, b] + ([z] if zeros else [])

def digest_of(tensors):
    h = hashlib.sha256()
    for a in tensors: h.update(a if isinstance(a, bytes) else np.ascontiguousarray(a.astype(u32 if a.dtype == u32 else u8)).tobytes())
    return h.hexdigest()

def print_quantized():
    cases = [("CODES", "e4m3_row_f32", 37, 300, 0, "BF16"), ("CODES", "e4m3_row_bf16", 16, 128, 0, "F32"), ("CODES", "e4m3_row_f32", 20, 77, 20, "F16"),
             ("CODES", "e4m3_g128_f32", 200, 300, 128, "BF16"), ("CODES", "e4m3_g128_bf16", 129, 256, 128, "F32"), ("CODES", "e5m2_g128_f32", 140, 129, 128, "BF16"),
             ("CODES", "e5m2_row_f16", 7, 1000, 0, "F32"), ("CODES", "int8_row_f32", 33, 200, 0, "BF16"), ("CODES", "int8_row_bf16_zeros", 33, 200, 0, "F16"),
             ("CODES", "int8_g128_f32", 64, 400, 0, "F32"), ("CODES", "int4_g32_f16", 9, 160, 0, "BF16"), ("CODES", "int4_g64_f16_zeros", 9, 160, 0, "F32")]
    for word in ("int4_g128_bf16", "int4_g128_bf16_zeros", "int4_g32_f16", "int4_g32_f32_zeros", "int8_g64_bf16", "int8_g64_f16_zeros"):
        cases += [("COMPRESSED_TENSORS", word, n, k, 0, t) for n, k, t in ((37, 384, "BF16"), (8, 128, "F32"), (5, 640, "F16"))]
    cases += [("COMPRESSED_TENSORS", w, 13, 100, 0, "BF16") for w in ("int4_row_bf16", "int4_row_f32_zeros", "int8_row_bf16_zeros", "int8_row_f32")]
    cases += [("COMPRESSED_TENSORS", "int4_row_bf16_zeros", 30, 603, 0, "F32")]
    cases = [c + (0,) for c in cases] + [c + (1,) for c in cases if c[1].startswith("int")]
    print("/* quantize_digests.def -- made by pack_digests.py: QUANTIZED(kind, format, rows, columns, block_rows, dtype,\n"
          " * search, digest): of codes, scales, zeros. The seed of the weight's bytes is the number of the case, from\n * 1 on. */")
    for i, (kind, word, n, k, block, t, search) in enumerate(cases):
        tensors = quantize(Bytes(i + 1), kind, word, n, k, block, t, search)
        print(f'QUANTIZED({kind}, "{word}", {n}, {k}, {block}, {t}, {search},\n          "{digest_of(tensors)}")')

def print_packed():
    cases = [("GGUF", w, n, k, 0) for w in GGUF for n, k in (((37, 768), (16, 256), (1, 1280)) if GGUF[w][0] == 256 else ((37, 448), (48, 64), (1, 1088)))]
    for word in ("int4_g32_bf16", "int4_g128_f16_zeros", "int4_g16_f32_zeros", "int8_g64_bf16_zeros", "int8_g32_f16"):
        cases += [("COMPRESSED_TENSORS", word, n, k, o) for n, k, o in ((37, 384, 0), (16, 128, 0), (5, 640, 37))]
    cases += [("COMPRESSED_TENSORS", w, n, k, 0) for w in ("int4_row_bf16_zeros", "int8_row_f16_zeros", "int8_row_f32", "int4_row_f16") for n, k in ((19, 77), (64, 333))]
    for word in ("int4_g32_f16_zeros", "int4_g128_f16_zeros", "int8_g64_f16_zeros"):
        cases += [(kind, word, n, k, o) for kind in ("GPTQ", "GPTQ_V2") for n, k, o in ((40, 384, 0), (24, 256, 37), (8, 1024, 0))]
    cases += [("GPTQ", "int4_row_bf16_zeros", 24, 136, 0), ("GPTQ", "int4_g128_f16_zeros", 24, 200, 0), ("GPTQ_V2", "int4_g256_f16_zeros", 24, 768, 0)]
    cases += [("AWQ", w, n, k, 0) for w, n, k in (("int4_g128_f16_zeros", 40, 384), ("int4_g32_f16_zeros", 24, 96), ("int4_g64_bf16_zeros", 8, 640))]
    cases += [("NIBBLES", w, n, k, 0) for w in ("mxfp4", "nvfp4") for n, k in ((37, 352), (16, 128), (1, 608))]
    cases += [("CODES", w, n, k, b) for w, n, k, b in (("e4m3_g128_f32", 200, 300, 128), ("e4m3_g128_bf16", 129, 129, 128), ("e4m3_g128_f32", 17, 127, 1),
              ("e4m3_row_f32", 37, 77, 37), ("e4m3_g64_f16", 33, 200, 1), ("int8_row_f32_zeros", 21, 150, 1), ("int8_g32_f16", 21, 150, 1), ("int8_g128_f32", 150, 400, 64))]
    # Groups with gaps between them in the records.
    cases += [("COMPRESSED_TENSORS", w, n, k, o) for w, n, k, o in (("int8_g125_bf16_zeros", 30, 250, 0), ("int4_g125_f16_zeros", 37, 375, 0),
              ("int4_g100_bf16", 21, 300, 0), ("int4_g24_f16_zeros", 18, 240, 37), ("int4_g8_f32", 33, 264, 0), ("int8_g300_f16", 17, 600, 37), ("int4_g65_f16_zeros", 5, 390, 0))]
    cases += [("GPTQ", w, n, k, o) for w, n, k, o in (("int4_g24_f16_zeros", 24, 264, 37), ("int8_g100_f16_zeros", 8, 1040, 0), ("int4_g200_f16_zeros", 16, 1000, 37))]
    cases += [("AWQ", "int4_g40_f16_zeros", 24, 360, 0)]
    cases += [("CODES", w, n, k, b) for w, n, k, b in (("e4m3_g100_f32", 130, 230, 100), ("int8_g33_f32_zeros", 20, 150, 1), ("e4m3_g200_bf16", 20, 500, 1))]
    print("/* pack_digests.def -- made by pack_digests.py: PACKED(kind, format, rows, columns, extra, digest).\n"
          " * extra: rows of a block of CODES; else not 0: g_idx[k] is the group of 37 k modulo columns. The seed\n"
          " * of the tensors' bytes is the number of the case, from 1 on. */")
    for i, (kind, word, n, k, extra) in enumerate(cases):
        r = Bytes(i + 1)
        w = {"GGUF": lambda: gguf(r, word, n, k), "COMPRESSED_TENSORS": lambda: compressed(r, word, n, k, extra), "GPTQ": lambda: gptq(r, word, n, k, extra, 1),
             "GPTQ_V2": lambda: gptq(r, word, n, k, extra, 2), "AWQ": lambda: awq(r, word, n, k), "NIBBLES": lambda: nibbles(r, word, n, k),
             "CODES": lambda: codes(r, word, n, k, extra)}[kind]()
        assert w.dtype == f32 and w.shape == (n, k) and np.isfinite(w).all(), (kind, word)
        digest = hashlib.sha256(np.ascontiguousarray(w).tobytes()).hexdigest()
        print(f'PACKED({kind}, "{word}", {n}, {k}, {extra},\n     "{digest}")')

if __name__ == "__main__":
    {"packed": print_packed, "quantized": print_quantized}[sys.argv[1]]()
