#!/usr/bin/env python3
"""Makes test/model/tokenizers_gguf anew: vocabularies that the package `sentencepiece` trains, as llama.cpp's converter
writes them into a GGUF file's metadata, and the package's ids of the strings in tokenizers/strings.json. Run it in a virtual
environment that has the package (pip install sentencepiece==0.2.3 gguf==0.19.0) and the one of make_tokenizers.py; the C tests
need no Python.
"""
import io
import json
import os
import re

import gguf
import sentencepiece

from make_tokenizers import HERE, TEXT, rows, write

THERE = os.path.join(os.path.dirname(HERE), "tokenizers_gguf")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
MARK = "\u2581"


def trained(size, prefix, users, bytes_=True):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, vocab_size=size, model_type="bpe", byte_fallback=bytes_,
        normalization_rule_name="identity", add_dummy_prefix=prefix, remove_extra_whitespaces=False, user_defined_symbols=users,
        character_coverage=0.98, minloglevel=2, num_threads=1)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def kind(sp, i):
    return UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else BYTE if sp.is_byte(i) else UNUSED if sp.is_unused(i) else NORMAL


def metadata(sp, prefix, users):
    tokens = [sp.id_to_piece(i) for i in range(len(sp))]
    kinds = [USER_DEFINED if t in users else kind(sp, i) for i, t in enumerate(tokens)]
    all_ = {"model": "llama", "pre": "default", "tokens": tokens, "scores": [sp.get_score(i) for i in range(len(sp))],
            "token_type": kinds, "bos_token_id": sp.bos_id(), "eos_token_id": sp.eos_id(), "unknown_token_id": sp.unk_id()}
    if not prefix:
        all_["add_space_prefix"] = False
    return {"tokenizer.ggml." + k: v for k, v in all_.items()}


def save_gguf(path, meta):
    """The metadata alone, without a model."""
    w = gguf.GGUFWriter(path, "llama")
    for key, v in meta.items():
        if isinstance(v, bool):
            w.add_bool(key, v)
        elif isinstance(v, int):
            w.add_uint32(key, v)
        elif isinstance(v, str):
            w.add_string(key, v)
        else:
            w.add_array(key, v)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def ids_of(sp, text):
    """Special tokens that are written out are their ids, as llama.cpp and `tokenizers` have it; what is between is the package's."""
    special = {sp.id_to_piece(i): i for i in range(len(sp)) if sp.is_control(i) or sp.is_unknown(i)}
    ids = [sp.bos_id()]
    for part in re.split("(" + "|".join(map(re.escape, special)) + ")", text):
        ids += [special[part]] if part in special else sp.encode(part)
    return ids


def text_of(sp, ids, prefix):
    """The tokens' text, special ones as they are written."""
    out = b""
    for i in ids:
        piece = sp.id_to_piece(i)
        out += bytes([int(piece[3:5], 16)]) if sp.is_byte(i) else piece.replace(MARK, " ").encode()
    return out[1 if prefix and out[:1] == b" " else 0:].decode(errors="replace")


def golden(sp, prefix, strings, folder):
    ids = [ids_of(sp, s) for s in strings]
    whole = [text_of(sp, i, prefix) for i in ids]
    some = [text_of(sp, [t for t in i if not sp.is_control(t) and not sp.is_unknown(t)], prefix) for i in ids]
    some = [None if a == s else a for a, s in zip(some, strings)]
    whole = [None if a == s else a for a, s in zip(whole, strings)]
    with open(os.path.join(folder, "golden.json"), "w") as f:
        f.write('{"before":1,"after":0,"ids":%s,\n"text":%s,\n"all":%s}\n' % (rows(ids), rows(some), rows(whole)))


def main():
    with open(os.path.join(HERE, "strings.json")) as f:
        strings = json.load(f)
    users = ["\n\n", "\n", MARK * 2, MARK * 3, "<start>"]
    for name, size, prefix, own, bytes_ in (("llama", 640, True, [], True), ("gemma", 640, False, users, True),
                                            ("no_bytes", 400, True, [], False)):
        folder = os.path.join(THERE, name)
        os.makedirs(folder, exist_ok=True)
        sp = trained(size, prefix, own, bytes_)
        write(os.path.join(folder, "metadata.json"), metadata(sp, prefix, own))
        save_gguf(os.path.join(folder, "words.gguf"), metadata(sp, prefix, own))
        golden(sp, prefix, strings, folder)
        print(name, len(sp))


if __name__ == "__main__":
    main()
