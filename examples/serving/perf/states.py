"""states.py -- for generate.py: one token of Mamba and of Qwen 3.5 as formulas, whose layers carry a state.

Both are generate.Model with other layers: rows of a convolution and the state of a scan, or of the gated delta rule,
are tensors that a step writes over, and that rewind() clears.
"""
import torch
import torch.nn.functional as F


def with_states(Model):
    class States(Model):
        """Sizes of a config.json, weights of random numbers, states."""

        def begin_model(self, opt, device, eps):
            import json
            with open(opt.config, encoding="utf-8") as f:
                c = json.load(f)
            self.c, self.device, self.length, self.first = c, device, opt.prompt + opt.tokens, opt.prompt
            self.hidden, self.eps = c["hidden_size"], eps
            return c

        def end_model(self, layers, tied):
            c = self.c
            self.layers, self.table, self.g = layers, self.matrix(c["vocab_size"], self.hidden), self.gain()
            self.head = self.table if tied else self.matrix(c["vocab_size"], self.hidden)
            self.token = torch.ones(1, dtype=torch.int64, device=self.device)
            self.place = torch.full((1,), self.first, dtype=torch.int64, device=self.device)
            self.text = torch.zeros(self.length + 1, dtype=torch.int64, device=self.device)

        def numbers(self, *dims):
            return torch.rand(*dims, device=self.device)

        def zeros(self, *dims, dtype=torch.float32):
            return torch.zeros(*dims, device=self.device, dtype=dtype)

        def norm(self, x, g, eps=None):
            return F.rms_norm(x.float(), (x.shape[-1],), g.float(), self.eps if eps is None else eps).to(g.dtype)

        def convolve(self, x, w):
            """silu of the last rows with weights each; the rows go on by one."""
            rows = torch.cat((w["rows"], x), 0)
            w["rows"].copy_(rows[1:])
            y = (rows.float() * w["taps"].float()).sum(0, keepdim=True)
            return F.silu(y + w["bias"].float() if "bias" in w else y).to(x.dtype)

        def rewind(self):
            super().rewind()
            for w in self.layers:
                for name in ("rows", "state"):
                    if name in w:
                        w[name].zero_()

        def bytes(self):
            """States are read and written; keys and values not counted."""
            read = [x for w in self.layers for n, x in w.items() if n not in ("k", "v")] + [self.head]
            written = [w[n] for w in self.layers for n in ("rows", "state") if n in w]
            return sum(x.numel() * x.element_size() for x in read + written)

        def exact(self):
            x, cos, sin, mask = self.begin(self.token, self.place)
            x = x.float()
            for w in self.layers:
                x = self.layer(x, {n: t.float().clone() for n, t in w.items()}, self.place, cos, sin, mask, "grouped")
            return F.linear(self.norm(x, self.g.float()), self.head.float())

        def choose(self, x):
            return F.linear(self.norm(x, self.g), self.head)

    class Mamba(States):
        """What layers add up is fp32."""

        def __init__(self, opt, device):
            c = self.begin_model(opt, device, 1e-5)
            d, n, r = c["intermediate_size"], c["state_size"], c["time_step_rank"]
            self.rank = r
            self.end_model([{"g": self.gain(), "in": self.matrix(2 * d, self.hidden), "taps": self.matrix(c["conv_kernel"], d),
                             "bias": self.numbers(d).bfloat16(), "x": self.matrix(r + 2 * n, d), "dt": self.matrix(d, r),
                             "dt_bias": self.numbers(d), "rates": -self.numbers(d, n), "skip": self.numbers(d),
                             "out": self.matrix(self.hidden, d),
                             "rows": self.zeros(c["conv_kernel"] - 1, d, dtype=torch.bfloat16), "state": self.zeros(d, n)}
                            for _ in range(c["num_hidden_layers"])], True)

        def begin(self, token, place):
            return F.embedding(token, self.table).float(), None, None, None

        def layer(self, h, w, place, cos, sin, mask, way):
            n = w["state"].shape[1]
            x, z = F.linear(self.norm(h, w["g"]), w["in"]).chunk(2, -1)
            u = self.convolve(x, w)
            r, b, c = F.linear(u, w["x"]).split((self.rank, n, n), -1)
            dt = F.softplus(F.linear(r, w["dt"]).float() + w["dt_bias"])
            s = w["state"] * torch.exp(dt.t() * w["rates"]) + (dt * u.float()).t() * b.float()
            w["state"].copy_(s)
            y = ((s * c.float()).sum(-1)[None] + w["skip"] * u.float()) * F.silu(z.float())
            return h + F.linear(y.to(u.dtype), w["out"]).float()

    class Qwen35(States):
        """Three layers of four by the delta rule, one with attention and a gate."""

        def __init__(self, opt, device):
            c = self.begin_model(opt, device, 1e-6)
            self.inner, self.count, self.kv, self.dim = (c[n] for n in ("intermediate_size", "num_attention_heads",
                                                                        "num_key_value_heads", "head_dim"))
            self.heads, self.key_heads = c["linear_num_value_heads"], c["linear_num_key_heads"]
            each = c["full_attention_interval"]
            self.end_model([(self.delta_weights if (l + 1) % each else self.attention_weights)(c)
                            for l in range(c["num_hidden_layers"])], c["tie_word_embeddings"])
            by = c["rope_parameters"]["rope_theta"] ** (-torch.arange(0, self.dim // 4, 2, dtype=torch.float64) / (self.dim // 4))
            angle = torch.outer(torch.arange(self.length + 1, dtype=torch.float64), by).to(device)
            self.cos, self.sin = angle.cos().float(), angle.sin().float()
            self.seen = torch.ones(self.length, self.length, dtype=torch.bool, device=device).tril()

        def mlp_weights(self):
            return {"g": self.gain(), "g_m": self.gain(), "up": self.matrix(2 * self.inner, self.hidden),
                    "down": self.matrix(self.hidden, self.inner)}

        def delta_weights(self, c):
            h, k, v = self.heads, c["linear_key_head_dim"], c["linear_value_head_dim"]
            mixed, taps = 2 * self.key_heads * k + h * v, c["linear_conv_kernel_dim"]
            return {**self.mlp_weights(), "in": self.matrix(mixed + h * v + 2 * h, self.hidden), "taps": self.matrix(taps, mixed),
                    "rates": -self.numbers(h), "dt_bias": self.numbers(h), "g_o": torch.ones(v, device=self.device).bfloat16(),
                    "out": self.matrix(self.hidden, h * v), "rows": self.zeros(taps - 1, mixed, dtype=torch.bfloat16),
                    "state": self.zeros(h, k, v)}

        def attention_weights(self, c):
            q, k = self.count * self.dim, self.kv * self.dim
            one = torch.ones(self.dim, device=self.device).bfloat16()
            return {**self.mlp_weights(), "qkv": self.matrix(2 * q + 2 * k, self.hidden), "g_q": one, "g_k": one.clone(),
                    "o": self.matrix(self.hidden, q), "k": self.cache(), "v": self.cache()}

        def begin(self, token, place):
            return F.embedding(token, self.table), self.cos[place], self.sin[place], self.seen[place][None, None]

        def part_turned(self, x, cos, sin):
            n = 2 * cos.shape[-1]
            return torch.cat((self.turn(x[..., :n], cos, sin), x[..., n:]), -1)

        def delta(self, x, w):
            h, k, v = w["state"].shape
            wide = self.key_heads * k
            mixed, z, b, a = F.linear(x, w["in"]).split((2 * wide + h * v, h * v, h, h), -1)
            u = self.convolve(mixed, w).float()
            q, key, value = u[0, :wide].view(-1, k), u[0, wide:2 * wide].view(-1, k), u[0, 2 * wide:].view(h, v)
            q, key = (y * torch.rsqrt((y * y).sum(-1, keepdim=True) + 1e-6) for y in (q, key))
            q, key = (y.repeat_interleave(h // self.key_heads, 0) for y in (q * k ** -0.5, key))
            beta, g = torch.sigmoid(b.float())[0], (w["rates"] * F.softplus(a.float() + w["dt_bias"]))[0]
            s = w["state"] * torch.exp(g)[:, None, None]
            e = beta[:, None] * (value - (s * key[:, :, None]).sum(1))
            s = s + key[:, :, None] * e[:, None]
            w["state"].copy_(s)
            o = self.norm((s * q[:, :, None]).sum(1), w["g_o"].float()) * F.silu(z.float().view(h, v))
            return F.linear(o.to(x.dtype).view(1, -1), w["out"])

        def attend(self, x, w, place, cos, sin, mask):
            q, k, v = F.linear(x, w["qkv"]).split((2 * self.count * self.dim, self.kv * self.dim, self.kv * self.dim), -1)
            q, gate = q.view(self.count, 2 * self.dim).split(self.dim, -1)
            q, k = self.norm(q, w["g_q"]), self.norm(k.view(self.kv, self.dim), w["g_k"])
            w["k"][0, :, place], w["v"][0, :, place] = self.part_turned(k, cos, sin)[:, None], v.view(self.kv, 1, self.dim)
            a = F.scaled_dot_product_attention(self.part_turned(q, cos, sin)[None, :, None], w["k"], w["v"], attn_mask=mask,
                                               enable_gqa=True)
            return F.linear((a[0, :, 0] * torch.sigmoid(gate)).view(1, -1), w["o"])

        def layer(self, x, w, place, cos, sin, mask, way):
            n = self.norm(x, w["g"])
            x = x + (self.delta(n, w) if "state" in w else self.attend(n, w, place, cos, sin, mask))
            gate, up = F.linear(self.norm(x, w["g_m"]), w["up"]).chunk(2, -1)
            return x + F.linear(F.silu(gate) * up, w["down"])

    return {"mamba": Mamba, "qwen3_5_text": Qwen35}
