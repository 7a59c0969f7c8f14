#!/usr/bin/env python3
"""make_minilm.py [MODEL] -- what transformers makes of sentences.txt by all-MiniLM-L6-v2 (`make embed-data`), in fp64.

Writes minilm.safetensors beside itself: the tokens of all lines, 256 at most each, how many each line has, the first
8 of the mean of its tokens' states, and the norm of that. Made with torch 2.15.0 and transformers 5.23.0.
"""
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

FIRST = 8


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    folder = sys.argv[1] if len(sys.argv) > 1 else "../../build/minilm"
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.no_padding()  # tokenizer.json pads to 128
    with open(os.path.join(here, "sentences.txt"), encoding="utf-8") as f:
        lines = f.read().split("\n")[:-1]
    ids = [tokenizer(line, truncation=True, max_length=256)["input_ids"] for line in lines]
    with torch.no_grad():
        means = torch.stack([model(torch.tensor([i])).last_hidden_state[0].mean(0) for i in ids])
    save_file({"ids": torch.tensor(sum(ids, [])).int(), "counts": torch.tensor([len(i) for i in ids]).int(),
               "first": means[:, :FIRST].float().contiguous(), "norms": means.norm(dim=1).float()},
              os.path.join(here, "minilm.safetensors"))
    print(len(lines), "sentences of", min(map(len, ids)), "to", max(map(len, ids)), "tokens,", sum(map(len, ids)), "in all")


main()
