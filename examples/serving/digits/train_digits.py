"""Trains the DiT of this folder on the digits that scikit-learn ships, and writes it as diffusers does.

    pip install torch diffusers scikit-learn
    python3 train_digits.py FOLDER [SECONDS]       # 800 s of a processor without it

The 1,797 digits are 8 x 8 pixels of 0 to 16, which become -1 to 1. The network learns v (Salimans and Ho, arXiv
2202.00512) of pixels under noise by the schedule of cosines, with every seventh label left out, so that pictures can be
guided. What is kept is the mean of its weights over the last steps, in fp16.
"""
import copy, json, math, os, sys, time

import numpy as np
import torch
from diffusers import DDIMScheduler, DiTTransformer2DModel
from sklearn.datasets import load_digits

BATCH, RATE, LEFT_OUT, CLASSES = 128, 2e-3, 1 / 7, 10


def network():
    """Blocks that begin as the identity: gates, and what comes out, are 0."""
    net = DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=32, in_channels=1, out_channels=1, num_layers=5,
                                sample_size=8, patch_size=2, num_embeds_ada_norm=CLASSES)
    with torch.no_grad():
        for block in net.transformer_blocks:
            block.norm1.linear.weight.zero_()
            block.norm1.linear.bias.zero_()
        net.proj_out_2.weight.zero_()
        net.proj_out_2.bias.zero_()
    return net.eval()  # which drops no labels of its own


def train(net, schedule, seconds):
    digits = load_digits()
    pixels = torch.tensor(digits.images / 8 - 1, dtype=torch.float32)[:, None]
    labels = torch.tensor(digits.target)
    mean = copy.deepcopy(net)
    adam = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.01, betas=(0.9, 0.99))
    began, step, loss_mean = time.process_time(), 0, 1.0
    while (passed := (time.process_time() - began) / seconds) < 1:
        for group in adam.param_groups:
            group["lr"] = RATE * min(1, step / 100) * (0.5 + 0.5 * math.cos(math.pi * passed))
        pick = torch.randint(len(pixels), (BATCH,))
        x, noise, t = pixels[pick], torch.randn(BATCH, 1, 8, 8), torch.randint(1000, (BATCH,))
        classes = torch.where(torch.rand(BATCH) < LEFT_OUT, CLASSES, labels[pick])
        noisy, wanted = schedule.add_noise(x, noise, t), schedule.get_velocity(x, noise, t)
        loss = torch.nn.functional.mse_loss(net(noisy, timestep=t, class_labels=classes).sample, wanted)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        adam.step()
        step += 1
        keep = min(0.998, 1 - 10 / (10 + step))
        with torch.no_grad():
            for a, b in zip(mean.parameters(), net.parameters()):
                a.lerp_(b, 1 - keep)
        loss_mean += 0.01 * (loss.item() - loss_mean)
        if step % 200 == 0:
            print(f"step {step}, {time.process_time() - began:.0f} s, loss {loss_mean:.4f}", flush=True)
    return mean


def write(net, schedule, folder):
    net.half().save_pretrained(os.path.join(folder, "transformer"), safe_serialization=True)
    schedule.save_pretrained(os.path.join(folder, "scheduler"))
    index = {"_class_name": "DiTPipeline", "scheduler": ["diffusers", "DDIMScheduler"],
             "transformer": ["diffusers", "DiTTransformer2DModel"], "vae": [None, None]}
    with open(os.path.join(folder, "model_index.json"), "w") as f:
        json.dump(index, f, indent=2)
        f.write("\n")


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    schedule = DDIMScheduler(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction", clip_sample=False,
                             timestep_spacing="trailing")
    net = train(network(), schedule, float(sys.argv[2]) if len(sys.argv) > 2 else 800)
    write(net, schedule, sys.argv[1])


main()
