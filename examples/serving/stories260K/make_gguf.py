#!/usr/bin/env python3
"""make_gguf.py MODEL.bin TOKENIZER.bin OUT.gguf -- a checkpoint in the format of llama2.c, version 0, as a GGUF file.

MODEL.bin is seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len) and the weights in fp32, tensor
after tensor, each for all layers. Both formats rotate neighbouring columns of q and k, so that no weight is permuted. TOKENIZER.bin
is an int32 and, of each token, its score as float, its length as int32, and its bytes. Wants numpy and gguf==0.19.0.
"""
import struct
import sys

import gguf
import numpy

UNKNOWN, CONTROL, BYTE, NORMAL = 2, 3, 6, 1
FIRST_BYTE = 3  # tokens 0, 1 and 2 are <unk>, <s> and </s>; then the 256 bytes


def vocabulary(path):
    data = open(path, "rb").read()
    tokens, scores, at = [], [], 4
    while at < len(data):
        score, length = struct.unpack_from("fi", data, at)
        tokens.append(data[at + 8:at + 8 + length].decode().replace(" ", "\u2581"))
        scores.append(score)
        at += 8 + length
    tokens[:FIRST_BYTE] = ["<unk>", "<s>", "</s>"]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    return tokens, scores, kinds + [NORMAL] * (len(tokens) - len(kinds))


def main(model, tokenizer, out):
    data = open(model, "rb").read()
    dim, inner, layers, heads, kv_heads, words, context = struct.unpack_from("7i", data)
    numbers, at = numpy.frombuffer(data, "<f4", offset=28), 0

    def take(*shape):
        nonlocal at
        size = int(numpy.prod(shape))
        at += size
        return numbers[at - size:at].reshape(shape)

    w = gguf.GGUFWriter(out, "llama")
    w.add_name("stories260K")
    w.add_license("mit")
    w.add_context_length(context)
    w.add_embedding_length(dim)
    w.add_block_count(layers)
    w.add_feed_forward_length(inner)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(dim // heads)
    w.add_rope_freq_base(10000.0)
    tokens, scores, kinds = vocabulary(tokenizer)
    assert len(tokens) == words
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores(scores)
    w.add_token_types(kinds)
    w.add_bos_token_id(1)
    w.add_eos_token_id(1)  # what the model was trained to write between two stories
    w.add_unk_token_id(0)
    kv = dim // heads * kv_heads
    w.add_tensor("token_embd.weight", take(words, dim))
    for name, shape in (("attn_norm", (dim,)), ("attn_q", (dim, dim)), ("attn_k", (kv, dim)), ("attn_v", (kv, dim)),
                        ("attn_output", (dim, dim)), ("ffn_norm", (dim,)), ("ffn_gate", (inner, dim)), ("ffn_down", (dim, inner)),
                        ("ffn_up", (inner, dim))):
        for layer in range(layers):
            w.add_tensor(f"blk.{layer}.{name}.weight", take(*shape))
    w.add_tensor("output_norm.weight", take(dim))
    assert at + context * (dim // heads) == len(numbers)  # tables of cosines and sines follow
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main(*sys.argv[1:])
