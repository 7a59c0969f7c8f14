#!/usr/bin/env python3
"""make_goldens.py -- tiny networks of each kind with random weights, and the latents that diffusers draws with them.

    python3 test/picture/make_goldens.py [FOLDER [NAME]...]    writes test/picture/tiny, or FOLDER; all, or these

Made with torch 2.15.0, diffusers 0.42.1, numpy 2.4.6. Networks run in fp64, but where diffusers insists on fp32 (angles of
times); steps are those of its schedulers. Beside the folder's files are text, pooled, negative, negative_pooled and
noise, where the kind has them, and latents, which `draw` must reach; of sd3 also those with an adapter.
"""
import copy
import json
import os
import shutil
import sys

import diffusers as df
import numpy as np
import torch
from safetensors.torch import save_file

BASE = dict(num_attention_heads=2, attention_head_dim=16, num_layers=2)
PLAIN = dict(**BASE, in_channels=4, sample_size=8, patch_size=2)
STREAMS = dict(num_attention_heads=2, attention_head_dim=16, joint_attention_dim=24, pooled_projection_dim=12)
SD3 = dict(**STREAMS, num_layers=2, sample_size=8, patch_size=2, in_channels=4, out_channels=4, caption_projection_dim=32,
           pos_embed_max_size=12)
FLUX = dict(**STREAMS, num_layers=1, num_single_layers=2, in_channels=16, axes_dims_rope=(4, 6, 6))
WAN = dict(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, text_dim=24, ffn_dim=48, num_layers=2,
           rope_max_seq_len=32)
DDIM = dict(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
HALF = torch.float16

# name: network, scheduler, latents' height and width, guidance, steps, dtype of the file
CASES = {
    "dit": (df.DiTTransformer2DModel(**PLAIN, out_channels=8, num_embeds_ada_norm=10), df.DDIMScheduler(clip_sample=False),
            (8, 8), 4.0, 5, torch.bfloat16),
    "dit_v": (df.DiTTransformer2DModel(**{**PLAIN, "in_channels": 1}, num_embeds_ada_norm=3, activation_fn="gelu",
                                       attention_bias=False),
              df.DDIMScheduler(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction", timestep_spacing="trailing",
                               clip_sample_range=0.8), (8, 8), 1.0, 7, HALF),
    "pixart": (df.PixArtTransformer2DModel(**PLAIN, cross_attention_dim=32, caption_channels=24, interpolation_scale=2),
               df.DDIMScheduler(**DDIM, clip_sample=False, timestep_spacing="linspace", set_alpha_to_one=False), (8, 8), 4.5, 4,
               HALF),
    "pixart_sides": (df.PixArtTransformer2DModel(**{**PLAIN, "attention_head_dim": 24}, cross_attention_dim=48, caption_channels=24,
                                                 use_additional_conditions=True),
                     df.DDIMScheduler(**DDIM, clip_sample=False, steps_offset=1), (8, 4), 3.0, 4, torch.bfloat16),
    "sd3": (df.SD3Transformer2DModel(**SD3), df.FlowMatchEulerDiscreteScheduler(shift=3.0), (8, 8), 7.0, 5, HALF),
    "sd35": (df.SD3Transformer2DModel(**SD3, dual_attention_layers=(0,), qk_norm="rms_norm"),
             df.FlowMatchEulerDiscreteScheduler(shift=3.0), (6, 12), 3.5, 4, torch.bfloat16),
    "flux": (df.FluxTransformer2DModel(**FLUX), df.FlowMatchEulerDiscreteScheduler(shift=1.0), (8, 12), 0.0, 4, torch.float32),
    "flux_dev": (df.FluxTransformer2DModel(**FLUX, guidance_embeds=True),
                 df.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True), (8, 8), 3.5, 5, torch.bfloat16),
    "wan": (df.WanTransformer3DModel(**WAN),
            df.UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0), (8, 12), 5.0, 6,
            torch.bfloat16),
    "wan_euler": (df.WanTransformer3DModel(**{**WAN, "attention_head_dim": 14}, cross_attn_norm=False, eps=1e-5),
                  df.FlowMatchEulerDiscreteScheduler(shift=5.0), (4, 8), 3.0, 4, HALF),
}
FRAMES = {"wan": 9, "wan_euler": 5}  # of which the first is one of latents, and each 4 of the others
TOKENS, NEGATIVE = 7, 5


def draw_weights(net, dtype):
    for name, p in net.named_parameters():
        x = torch.randn_like(p)
        if p.dim() > 1 and "table" not in name:
            x = x / p[0].numel() ** 0.5
        else:
            x = 0.3 * x + (1 if "norm_" in name and name.endswith("weight") else 0)
        p.data = x.to(dtype).double()
    if isinstance(net, df.SD3Transformer2DModel):  # whose table of positions is in the file, too
        net.pos_embed.pos_embed = net.pos_embed.pos_embed.to(dtype).double()


def packed(x):  # latents as FLUX has them: rows of 2 x 2 patches
    b, c, h, w = x.shape
    return x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h // 2 * (w // 2), 4 * c)


def unpacked(x, c, h, w):
    return x.view(1, h // 2, w // 2, c, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(1, c, h, w)


def predict(net, x, t, label, text, pooled, guidance):
    """What the network makes of latents, without guidance."""
    t = t.double().reshape(1)
    if isinstance(net, df.DiTTransformer2DModel):
        return net(x, timestep=t, class_labels=torch.tensor([label])).sample[:, :x.shape[1]]
    if isinstance(net, df.PixArtTransformer2DModel):
        high, wide = 8.0 * x.shape[2], 8.0 * x.shape[3]
        sides = {"resolution": torch.tensor([[high, wide]]).double(), "aspect_ratio": torch.tensor([[high / wide]]).double()}
        return net(x, encoder_hidden_states=text, timestep=t, added_cond_kwargs=sides).sample[:, :x.shape[1]]
    if isinstance(net, df.SD3Transformer2DModel):
        return net(x, encoder_hidden_states=text, pooled_projections=pooled, timestep=t).sample
    if isinstance(net, df.WanTransformer3DModel):
        return net(x, encoder_hidden_states=text, timestep=t).sample
    b, c, h, w = x.shape
    at = torch.zeros(h // 2, w // 2, 3)
    at[..., 1], at[..., 2] = torch.arange(h // 2)[:, None], torch.arange(w // 2)[None]
    strength = torch.tensor([guidance]).double() if net.config.guidance_embeds else None
    y = net(packed(x), encoder_hidden_states=text, pooled_projections=pooled, timestep=t / 1000, img_ids=at.reshape(-1, 3),
            txt_ids=torch.zeros(text.shape[1], 3), guidance=strength).sample
    return unpacked(y, c, h, w)


def times(net, scheduler, steps, patches):
    if isinstance(net, df.FluxTransformer2DModel):
        s = scheduler.config
        slope = (s.max_shift - s.base_shift) / (s.max_image_seq_len - s.base_image_seq_len)
        mu = s.base_shift + slope * (patches - s.base_image_seq_len)
        scheduler.set_timesteps(sigmas=np.linspace(1, 1 / steps, steps), mu=mu)
    else:
        scheduler.set_timesteps(steps)
    return scheduler.timesteps


def loop(net, scheduler, arrays, guidance, steps):
    get = {k: v.double() for k, v in arrays.items()}.get
    x = get("noise")
    guided = guidance > 1 and not isinstance(net, df.FluxTransformer2DModel)
    for t in times(net, scheduler, steps, x.shape[2] // 2 * (x.shape[3] // 2)):
        y = predict(net, x, t, 2, get("text"), get("pooled"), guidance)
        if guided:
            away = predict(net, x, t, getattr(net.config, "num_embeds_ada_norm", 0), get("negative"), get("negative_pooled"), 0)
            y = away + guidance * (y - away)
        x = scheduler.step(y, t, x, return_dict=False)[0]
    return x


# Products that an adapter of rank 3 changes, as PEFT names them.
ADAPTED = ["transformer_blocks.0.attn.to_k", "transformer_blocks.0.attn.to_v", "transformer_blocks.1.attn.add_q_proj",
           "transformer_blocks.0.ff.net.0.proj", "transformer_blocks.0.norm1.linear", "context_embedder"]


def adapt(net, at):
    """Writes an adapter, and adds what it is to the network's weights."""
    pairs = {}
    for name in ADAPTED:
        w = net.get_submodule(name).weight
        a, b = torch.randn(3, w.shape[1]) / w.shape[1] ** 0.5, 0.3 * torch.randn(w.shape[0], 3)
        pairs["base_model.model.%s.lora_A.weight" % name], pairs["base_model.model.%s.lora_B.weight" % name] = a, b
        w += 2 * (b @ a).double()  # lora_alpha / r
    os.makedirs(at)
    save_file(pairs, os.path.join(at, "adapter_model.safetensors"))
    with open(os.path.join(at, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": ADAPTED}, f)
        f.write("\n")


@torch.no_grad()
def make(folder, name):
    net, scheduler, (high, wide), guidance, steps, dtype = CASES[name]
    torch.manual_seed(1 + list(CASES).index(name))
    net = net.double().eval()
    draw_weights(net, dtype)
    flux, dit = isinstance(net, df.FluxTransformer2DModel), isinstance(net, df.DiTTransformer2DModel)
    pixart, c = isinstance(net, df.PixArtTransformer2DModel), net.config.in_channels // (4 if flux else 1)
    at = os.path.join(folder, name)
    shutil.rmtree(at, ignore_errors=True)
    wan = isinstance(net, df.WanTransformer3DModel)
    frames = ((FRAMES[name] - 1) // 4 + 1,) if wan else ()
    arrays = {"noise": torch.randn(1, c, *frames, high, wide)}
    if not dit:
        config = net.config
        columns = config.caption_channels if pixart else config.text_dim if wan else config.joint_attention_dim
        arrays["text"] = torch.randn(1, TOKENS, columns)
        if not flux:
            arrays["negative"] = torch.randn(1, NEGATIVE if pixart else TOKENS, columns)
        if not pixart and not wan:
            arrays["pooled"] = torch.randn(1, net.config.pooled_projection_dim)
        if not pixart and not flux and not wan:
            arrays["negative_pooled"] = torch.randn(1, net.config.pooled_projection_dim)
    arrays["latents"] = loop(net, scheduler, arrays, guidance, steps)
    os.makedirs(at)
    write(copy.deepcopy(net).to(dtype), scheduler, at, decoder=name != "dit_v")
    if name == "sd3":
        adapt(net, os.path.join(at, "adapter"))
        arrays["adapted"] = loop(net, scheduler, arrays, guidance, steps)
    for k, v in arrays.items():
        np.save(os.path.join(at, k + ".npy"), v.numpy().astype(np.float32))
    with open(os.path.join(at, "arguments.json"), "w") as f:
        video = {"frames": FRAMES[name]} if wan else {}
        json.dump({"guidance": guidance, "steps": steps, "height": high, "width": wide, **video}, f)
        f.write("\n")
    print(name, "rms", float(arrays["latents"].square().mean().sqrt()))


def write(net, scheduler, at, decoder):
    net.save_pretrained(os.path.join(at, "transformer"))
    scheduler.save_pretrained(os.path.join(at, "scheduler"))
    index = {"_class_name": "Pipeline", "scheduler": ["diffusers", type(scheduler).__name__],
             "transformer": ["diffusers", type(net).__name__], "vae": ["diffusers", "AutoencoderKL"] if decoder else [None, None]}
    with open(os.path.join(at, "model_index.json"), "w") as f:
        json.dump(index, f, indent=2)
        f.write("\n")
    if decoder:  # of which nothing but the sides of pixels is read: 8 for a latent
        os.makedirs(os.path.join(at, "vae"))
        with open(os.path.join(at, "vae", "config.json"), "w") as f:
            if isinstance(net, df.WanTransformer3DModel):
                f.write('{"_class_name": "AutoencoderKLWan", "dim_mult": [1, 2, 4, 4], "temperal_downsample": [false, true, true]}\n')
            else:
                f.write('{"_class_name": "AutoencoderKL", "block_out_channels": [1, 1, 1, 1]}\n')


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny")
    for name in sys.argv[2:] or CASES:
        make(folder, name)


main()
