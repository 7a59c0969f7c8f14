#!/usr/bin/env python3
"""Makes test/model/tokenizers anew: small tokenizers of every kind, and what the package `tokenizers` does with
them. Run it in a virtual environment that has the package (pip install tokenizers==0.23.3); the C test needs no Python.
Training breaks some ties at random, so that another run makes other vocabularies, with goldens that fit.

    make_tokenizers.py [NAME]...             all of them, or these
    make_tokenizers.py --golden DIR NAME     the goldens alone, of the tokenizer in DIR, as NAME/golden.json
"""
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")

# What the tokenizers are trained on. Repeated words make merges that reach over several characters.
TEXT = """
The library takes the formula of a Transformer block, rewrites it, and writes the kernels for the exact shapes.
Every kernel is kept, so that the next process that asks for the same kernel finds it. The kernels, the kernel's.
It's what they're for: we'll see that he'd said they've done it, and I'm sure it isn't what you don't want.
A tokenizer reads a text from left to right, and the tokens are the numbers that the model reads. Hello, hello world!
hello world hello world the quick brown fox jumps over the lazy dog, 12345 67890 1234 2024 2025 3.14159 1,000,000
for (int i = 0; i < n; i++) { sum += x[i] * y[i]; }   return sum;
    if (x == NULL) { return -1; }
def main(args):\n    print("hello", args)\n\n    return 0\n
Die Straßenbahn fährt über die Brücke, und die Mädchen hören schöne Musik. Größe, Übung, Äpfel, Öl, weiß.
Les élèves français étudient à l'université. Où est la bibliothèque? Ça va très bien, merci. Le cœur, l'été.
El niño pequeño come una manzana en la montaña. ¿Dónde está el baño? ¡Qué lástima! Mañana será otro día.
Привет, мир! Это простой текст на русском языке. Привет, как дела? Хорошо, спасибо. Мир и труд.
Γειά σου Κόσμε! Αυτό είναι ένα απλό κείμενο. ΟΔΟΣ και λόγος.
今天天气很好,我们去公园玩。你好,世界!中文的文本没有空格。今天我们学习中文。
こんにちは世界。今日は良い天気ですね。カタカナとひらがな。東京都に行きます。
안녕하세요 세계! 오늘 날씨가 좋습니다. 한국어 문장입니다.
مرحبا بالعالم! هذا نص بسيط باللغة العربية. שלום עולם! नमस्ते दुनिया। สวัสดีชาวโลก
😀 😃 😄 👍 👍🏽 👨‍👩‍👧‍👦 ❤️ 🇩🇪 ✅ → ← ≤ ≥ ≠ ∑ ∫ √ ½ ² € £ ¥ © ® ™
""".strip("\n").split("\n")

# What they are asked. Special tokens of all kinds stand among them.
STRINGS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", " \n", "\n ", " \n \n  ", "\r\n", "\r\n\r\n ", "\t\t x", "a", "A", " a",
    "a ", " a ", "  a  b  ", "hello", " hello", "hello world", "Hello, world!", "HELLO WORLD", "hello  world",
    "hello   world   ", "hello\nworld", "hello\n\nworld\n", "the the the", "The kernels, the kernel's.", "it's", "IT'S",
    "It'S they'Re we'LL he'D they'VE I'm I'M don't DON'T", "'s 't 're 've 'm 'll 'd", "''s", "' s", "l'été", "'ſ \u212a",
    "1", "12", "123", "1234", "12345", "123456", "1234567", "1234567890", "3.14159", "1,000,000", "1 2 3", " 12 345 ",
    "x1y2z3", "abc123def", "2024-11-23T17:28:03Z", "0x1F600", "½ ² ¾ ①②③", "Ⅷ ⅷ", "٣٤٥ १२३", "１２３",
    "!", "!!!", "?!", "...", "…", ". . .", "a.b.c", "a,b", "foo(bar)[baz]{qux}", "-- --- ----", "a-b_c d", "###", "##a",
    "@#$%^&*()", "<>", "<s", "</", "\"quoted\"", "`code`", "\\ \\\\ \\n", "~|^", "http://example.com/a?b=c&d=%20#e",
    "user@example.com", "for (int i = 0; i < n; i++) { sum += x[i]; }", "    indented\n        more\n\tx = 1;\n",
    "def main(args):\n    return 0\n\n\n", "a\tb\t\tc", "if (x) {\r\n  y;\r\n}\r\n",
    "Straße über Größe ÄÖÜäöüß", "élève à l'université où ça", "e\u0301le\u0300ve", "\u00e9 e\u0301 \u0065\u0301\u0323",
    "niño ¿Dónde? ¡Qué!", "A\u030angstro\u0308m \u212b", "ﬁ ﬂ ﬀ ﬃ", "ǆ ǅ Ǆ", "İstanbul ıİiI", "ẞ ß SS", "ΟΔΟΣ ὈΔΥΣΣΕΎΣ λόγος",
    "Привет, мир!", "ПРИВЕТ Ёлка йод и\u0306", "Γειά σου Κόσμε!", "今天天气很好", "你好,世界!", "中文 English 混合 text123",
    "こんにちは世界。", "カタカナ ｶﾀｶﾅ ﾊﾟ パ ハ\u309a", "東京都に行きます", "안녕하세요 세계!", "한국어 \u1112\u1161\u11ab", "مرحبا بالعالم!",
    "שלום עולם!", "שׁ\u05bc", "नमस्ते दुनिया।", "สวัสดีชาวโลก", "ཀྵ \u0f71\u0f72", "\U00020000\U0002a6d6 \uf900 \u3400",
    "😀", "😀😃", "👍🏽", "👨‍👩‍👧‍👦", "❤️", "🇩🇪🇫🇷", "a😀b", " 😀 ", "✅ done", "1️⃣", "🏴\U000e0067\U000e0062\U000e007f", "\U0001f9d1\u200d\U0001f4bb",
    "→ ← ≤ ≥", "∑ ∫ √", "€100 £5 ¥", "©®™", "𝒳𝕐𝟙𝟚", "\U0001d15e", "Ⓐ ⓐ 🄰", "x² + y³", "\u2126 \u00b5 \u03bc",
    "\u0000", "a\u0000b", "\u0001\u0002\u0003", "\u0007bell\u0008", "\u001b[31mred\u001b[0m", "\u007f\u0080\u0085\u009f", "a\u000bb\u000cc", "a\u0085b",
    "a\u00a0b", "\u00a0 \u00a0", "\u1680\u2000\u2003\u200a", "a\u2028b\u2029c", "a\u202fb\u205fc", "a\u3000b", "\u180e", "a\u180eb", "\u200b", "a\u200bb\u200cc\u200dd",
    "\ufeff", "\ufefftext", "\u2060\u00ad soft\u00adhyphen", "\u202eabc\u202c", "\ufffd", "a\ufffdb\ufffd", "\ufffe\uffff", "\ue000\uf8ff", "\U0010ffff",
    "\U000e0001", "\u0378\u0380", "\u0300", "\u0300\u0301a", "a\u0300\u0301\u0302\u0303\u0323\u0324", "q\u0323\u0307 q\u0307\u0323", "\u0488a\u0489", "\u093e\u0940", "\u20dd",
    "▁", "▁▁", "▁hello", "hello▁world", " ▁ ", "▁ a", "a▁", "Ġ", "Ġhello Ċ", "Ã©", "##", "##ing", "<0x41>", "<0xFF>", "<0x0A>", "â€™",
    "<s>", "</s>", "<unk>", "<pad>", "<mask>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "[cls]", "<S>", "<|endoftext|>", "<|im_start|>",
    "<s>hello</s>", "<s> hello </s>", "hello<s>world", "hello <s> world", "<s><s>", "</s>\n<s>", "[CLS] hello [SEP]", "a[MASK]b", "a [MASK] b",
    "  [MASK]  ", "Hello <mask> world", "Hello  <mask>  world", "<mask>", "  <mask>", "x<mask>", "<mask><mask>",
    "<|endoftext|>hello", "hello<|endoftext|>", "hello <|endoftext|> world", "<|endoftext|><|endoftext|>", "<|endoftext", "|endoftext|>",
    "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n", "<|begin_of_text|>hi<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>",
    "<start_of_turn>user\nhi<end_of_turn>\n", "<tool_call>{\"a\": 1}</tool_call>", "<tool_call", "<think>\n\n</think>\n\n", "[INST] hi [/INST]",
    "foo", "foobar", "foo bar", "a foo b", "afoo", "foo.", "FOO", "Foo foo", "foo foo", "foofoo", "éfoo", "foo_", "foo1", "left", " left right ",
    "  left  right  ", "xleftx", "x right x", "left\n\nright", "left right", "right  left", "both", "  both  both  ", "a \n both \t b", "café", "CAFÉ",
    "cafe\u0301", "un café noir", "Ünïcode", "under_score", "_", "__init__", "a b", "dog cat", "dog  cat", "do not", "I do not know , he said .",
    "is n't", "it 's", "they 've we 're I 'm", "x ' y", "a ! b ? c", "nothing ... more", "end .", "hello , world !",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab" * 40, "the" * 30, "hello" * 25,
    " " * 40, "\n" * 17, " \n" * 12, "12" * 20, "!?" * 15, "😀" * 9, "今天" * 12, "e\u0301" * 12,
]


def mixed(count):
    """More strings, of pieces that meet in no usual text."""
    draw = random.Random(7)
    pieces = ["hello", "world", " ", "  ", "\n", "'s", "'LL", "12", "7", "é", "e\u0301", "ß", "ПР", "今", "世界", "😀", "\u200d", "!", "...", "▁", "Ġ",
              "<s>", "</s>", "<|im_end|>", "[SEP]", "foo", "left", "right", "<mask>", "\t", "\r\n", "\u00a0", "\u3000", "\ufffd", "\u0000", "_", "-", "İ", "the",
              "kernel", "한", "\U00020000", "\u0301", "<0x0A>", "##", "don't", "A", "z"]
    return ["".join(draw.choices(pieces, k=draw.randint(2, 9))) for _ in range(count)]


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def special(*names, **flags):
    return [AddedToken(n, special=True, normalized=False, **flags) for n in names]


def train_bytes(pre, size, normalizer=None, names=(), **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=list(names)))
    return t


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior)


def gpt2():
    t = train_bytes(pre_tokenizers.ByteLevel(add_prefix_space=False), 420, names=special("<|endoftext|>"))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t, {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}


def roberta():
    names = special("<s>", "<pad>", "</s>", "<unk>") + special("<mask>", lstrip=True)
    t = train_bytes(pre_tokenizers.ByteLevel(add_prefix_space=True), 380, names=names)
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t, {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True, "cls_token": "<s>", "sep_token": "</s>"}


def llama3():
    t = train_bytes(pre_tokenizers.Sequence([split(LLAMA3), BYTES]), 420, ignore_merges=True)
    t.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"))
    begin = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)])])
    return t, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": None}


def qwen2():
    t = train_bytes(pre_tokenizers.Sequence([split(QWEN2), BYTES]), 400, normalizers.NFC())
    t.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    t.add_tokens([AddedToken(n, special=False, normalized=False) for n in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t, {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}}


def o200k():
    t = train_bytes(pre_tokenizers.Sequence([split(O200K), BYTES]), 400, names=special("<|endoftext|>"))
    return t, {}


def deepseek():
    pre = [split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), BYTES]
    return train_bytes(pre_tokenizers.Sequence(pre), 400, names=special("<s>", "</s>")), {}


def digits():
    pre = [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=True),
           split(r"\w+|[^\w\s]+", "merged_with_previous"), pre_tokenizers.ByteLevel(add_prefix_space=True)]
    t = train_bytes(pre_tokenizers.Sequence(pre), 360, normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()]))
    return t, {}


def tekken():
    names = special("<unk>", "<s>", "</s>")
    t = train_bytes(pre_tokenizers.Sequence([split(TEKKEN), BYTES]), 400, names=names, ignore_merges=True)
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t, {"bos_token": "<s>", "eos_token": "</s>"}


def smollm():
    pre = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    return train_bytes(pre_tokenizers.Sequence(pre), 400, names=special("<|endoftext|>", "<|im_start|>", "<|im_end|>")), {}


def sentencepiece(t, size, names, bytes_=True):
    """BPE over characters, and tokens for the bytes of all others."""
    names = list(names) + [AddedToken(f"<0x{b:02X}>", normalized=False) for b in range(256 if bytes_ else 0)]
    t.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=names, limit_alphabet=90))
    file = json.loads(t.to_str())
    file["added_tokens"] = [a for a in file["added_tokens"] if not a["content"].startswith("<0x")]
    file["model"].update(byte_fallback=bytes_, fuse_unk=True, unk_token="<unk>")
    return Tokenizer.from_str(json.dumps(file))


def around_bos(t, text="<s>:0 $A:0"):
    t.post_processor = processors.TemplateProcessing(single=text, special_tokens=[(n, t.token_to_id(n)) for n in ("<s>", "</s>")])
    return t


def llama2():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = split("▁[^▁]*", "isolated")  # while it is trained: no token reaches over two words
    t = sentencepiece(t, 600, special("<unk>", "<s>", "</s>"))
    t.pre_tokenizer = None
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return around_bos(t), {"bos_token": {"content": "<s>"}, "eos_token": {"content": "</s>"}, "unk_token": "<unk>"}


def mistral():
    """The newer form of llama2: a Metaspace, and tokens that are looked for in what was normalized."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    t = sentencepiece(t, 560, special("<unk>", "<s>", "</s>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.add_tokens([AddedToken("[INST]", normalized=False), AddedToken("[/INST]", normalized=True)])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return around_bos(t), {"bos_token": "<s>", "eos_token": "</s>"}


def gemma():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), "merged_with_next")
    t = sentencepiece(t, 560, special("<pad>", "</s>", "<s>", "<unk>"))
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_special_tokens(special("<start_of_turn>", "<end_of_turn>"))
    t.add_tokens([AddedToken(n, normalized=False) for n in ("\n\n", "▁▁", "  ")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return around_bos(t), {"bos_token": "<s>", "pad_token": "<pad>"}


def metaspace():
    """No bytes to fall back on, each unknown character a token, suffixes at words' ends."""
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(TEXT, trainers.BpeTrainer(
        vocab_size=400, show_progress=False, special_tokens=special("<unk>", "<s>", "</s>"), limit_alphabet=60, end_of_word_suffix="</w>"))
    t.decoder = decoders.BPEDecoder()
    return around_bos(t, "<s> $A </s>"), {}


def flags():
    """Every flag of an added token, over a Metaspace that always stands in front."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t = sentencepiece(t, 420, special("<unk>", "<s>", "</s>"), bytes_=False)
    t.add_tokens([AddedToken("foo", single_word=True, normalized=False), AddedToken("left", lstrip=True, normalized=False),
                  AddedToken("right", rstrip=True, normalized=False), AddedToken("both", lstrip=True, rstrip=True, normalized=True),
                  AddedToken("cafe\u0301", normalized=True), AddedToken("dog  cat", normalized=True), AddedToken("dog", normalized=False),
                  AddedToken("left right", normalized=False)])
    t.add_special_tokens(special("<mask>", lstrip=True, rstrip=True))
    t.decoder = decoders.Metaspace()
    return t, {}


def bert(lowercase, size):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(TEXT, trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, special_tokens=special("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")))
    t.decoder = decoders.WordPiece()
    return t


def bert_uncased():
    t = bert(True, 900)
    t.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return t, {"do_lower_case": True, "tokenizer_class": "BertTokenizer", "cls_token": "[CLS]"}


def bert_cased():
    t = bert(False, 900)
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t, {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}


ALL = [gpt2, roberta, llama3, qwen2, o200k, deepseek, tekken, smollm, digits, llama2, mistral, gemma, metaspace, flags, bert_uncased, bert_cased]


def write(path, value):
    with open(path, "w") as f:
        f.write(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def write_strings(path, strings):
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(s) for s in strings) + "\n]\n")


def rows(values):
    return "[\n" + ",\n".join(json.dumps(v, separators=(",", ":")) for v in values) + "]"


def golden(t, strings, folder):
    """Ids; the text of them without special tokens and with them, null where it is the string itself."""
    t.no_truncation()
    t.no_padding()
    ids = [t.encode(s).ids for s in strings]
    bare = [t.encode(s, add_special_tokens=False).ids for s in strings]
    around = len(ids[0])  # of the empty string
    before = next(k for k in range(around + 1) if all(i[k:len(i) - around + k] == b for i, b in zip(ids, bare)))
    after = around - before
    some = [t.decode(i) for i in ids]
    whole = [t.decode(i, skip_special_tokens=False) for i in ids]
    some = [None if a == s else a for a, s in zip(some, strings)]
    whole = [None if a == s else a for a, s in zip(whole, strings)]
    with open(os.path.join(folder, "golden.json"), "w") as f:
        f.write('{"before":%d,"after":%d,"ids":%s,\n"text":%s,\n"all":%s}\n' % (before, after, rows(ids), rows(some), rows(whole)))


def main():
    strings = STRINGS + mixed(40)
    if sys.argv[1:2] == ["--golden"]:
        folder = os.path.join(HERE, sys.argv[3])
        os.makedirs(folder, exist_ok=True)
        golden(Tokenizer.from_file(os.path.join(sys.argv[2], "tokenizer.json")), strings, folder)
        return
    os.makedirs(HERE, exist_ok=True)
    write_strings(os.path.join(HERE, "strings.json"), strings)
    for make in ALL:
        if sys.argv[1:] and make.__name__ not in sys.argv[1:]:
            continue
        t, config = make()
        folder = os.path.join(HERE, make.__name__)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "tokenizer.json")
        write(path, json.loads(t.to_str()))
        write(os.path.join(folder, "tokenizer_config.json"), config)
        golden(Tokenizer.from_file(path), strings, folder)
        print(make.__name__, t.get_vocab_size(), os.path.getsize(path))


if __name__ == "__main__":
    main()
