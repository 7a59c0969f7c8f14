#!/usr/bin/env python3
"""make_settings.py -- what the files beside tokenizer.json change: ids that transformers makes.

    python3 test/model/make_settings.py    writes test/model/tokenizers/settings.json

Made with transformers 5.24.0, and the same with 4.51.3. A case has the tokenizer of a folder beside it, members of tokenizer.json
that are others (`replace`), whether vocab.json and merges.txt stand in its place (`legacy`), the other files, and the ids of `texts`.
"""
import json
import os
import shutil
import tempfile

import transformers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
TEXTS = ["Hello world the <x> ab", "  The QUICK fox", "the[MASK] the", "<|endoftext|>hello", "hello <think> a </think>b", ""]


def file_of(base):
    with open(os.path.join(HERE, base, "tokenizer.json")) as f:
        return json.load(f)


def write(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f)


def ids(case):
    folder, file = tempfile.mkdtemp(), dict(file_of(case["base"]), **case.get("replace", {}))
    if case.get("legacy"):
        write(folder, "vocab.json", file["model"]["vocab"])
        with open(os.path.join(folder, "merges.txt"), "w") as f:
            f.write("#version: 0.2\n" + "".join((m if isinstance(m, str) else " ".join(m)) + "\n" for m in file["model"]["merges"]))
    else:
        write(folder, "tokenizer.json", file)
    for name, value in case["files"].items():
        write(folder, name, value)
    t = transformers.AutoTokenizer.from_pretrained(folder)
    shutil.rmtree(folder)
    return [t(s)["input_ids"] for s in TEXTS]


def main():
    gpt2 = dict(tokenizer_class="GPT2Tokenizer", bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    fast = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<|endoftext|>")
    bert = dict(tokenizer_class="BertTokenizer", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", pad_token="[PAD]",
                mask_token="[MASK]")
    end = len(file_of("gpt2")["model"]["vocab"])
    uncased = file_of("bert_uncased")["normalizer"]
    think = dict(content="<think>", lstrip=False, rstrip=False, normalized=False, single_word=False, special=True)
    wide = dict(think, lstrip=True, rstrip=True)
    there = file_of("gpt2")["added_tokens"] + [dict(think, id=end, special=False)]
    two = {"<think>": end, "</think>": end + 1}

    def case(what, base, config, **more):
        return dict(what=what, base=base, files=dict({"tokenizer_config.json": config}, **more.pop("files", {})), **more)
    cases = [
        case("as it is", "gpt2", gpt2),
        case("a special token that is a word", "gpt2", gpt2, replace={"added_tokens": []}),
        case("the same of no class", "gpt2", fast, replace={"added_tokens": []}),
        case("added_tokens.json", "gpt2", fast, files={"added_tokens.json": two}),
        case("added_tokens_decoder", "gpt2", dict(fast, added_tokens_decoder={str(end): think})),
        case("blanks that it takes", "gpt2", dict(fast, added_tokens_decoder={str(end): wide})),
        case("flags in place of tokenizer.json's", "gpt2", dict(fast, added_tokens_decoder={str(end): wide}),
             replace={"added_tokens": there}),
        case("add_prefix_space", "gpt2", dict(gpt2, add_prefix_space=True)),
        case("do_lower_case", "bert_uncased", dict(bert, do_lower_case=True), replace={"normalizer": dict(uncased, lowercase=False)}),
        case("no do_lower_case", "bert_uncased", dict(bert, do_lower_case=False)),
        case("strip_accents", "bert_uncased", dict(bert, do_lower_case=True, strip_accents=False)),
        case("vocab.json and added_tokens.json", "gpt2", gpt2, files={"added_tokens.json": two}, legacy=True),
    ]
    for c in cases:
        c["ids"] = ids(c)
    with open(os.path.join(HERE, "settings.json"), "w") as f:
        f.write(json.dumps({"texts": TEXTS, "cases": []})[:-2] + "\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")


main()
