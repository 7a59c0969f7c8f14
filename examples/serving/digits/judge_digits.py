"""Judges what draw makes of this folder: which digit a classifier of scikit-learn's sees in each picture.

    python3 judge_digits.py DRAW FOLDER [--write]      # --write: classifier.npy, for the tests, which have no scikit-learn

Two classifiers learn from the digits, and from nothing that is drawn: a support vector machine, and a linear one, whose
weights are what --write keeps, [10, 64 pixels and a constant].
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC


def drawn(program, folder, seed, steps, guidance):
    """Six pictures of each digit."""
    with tempfile.TemporaryDirectory() as at:
        path = os.path.join(at, "latents.npy")
        subprocess.run([program, "--cpu", "--class", "0,1,2,3,4,5,6,7,8,9", "--count", "6", "--seed", str(seed), "--steps", str(steps),
                        "--guidance", str(guidance), "--latents", path, folder], check=True, stderr=subprocess.DEVNULL)
        return np.load(path).reshape(60, 64), np.repeat(np.arange(10), 6)


def main():
    program, folder = sys.argv[1:3]
    digits = load_digits()
    x, y = digits.data / 8 - 1, digits.target
    some, others, named, other_names = train_test_split(x, y, test_size=0.3, random_state=0)
    machine, linear = SVC(gamma=0.02, C=10), LogisticRegression(max_iter=5000, C=0.1)
    for c in machine, linear:
        print(type(c).__name__, "names %.1f %% of digits that it has not seen" % (100 * c.fit(some, named).score(others, other_names)))
        c.fit(x, y)
    if "--write" in sys.argv:
        np.save(os.path.join(folder, "classifier.npy"), np.ascontiguousarray(np.hstack([linear.coef_, linear.intercept_[:, None]]), np.float32))
    for steps, guidance in (6, 2), (12, 1), (12, 2), (25, 2), (50, 4):
        sheets = [drawn(program, folder, seed, steps, guidance) for seed in range(1, 6)]
        pixels, names = np.concatenate([s[0] for s in sheets]), np.concatenate([s[1] for s in sheets])
        near = [((x - p) ** 2).sum(1).min() ** 0.5 for p in pixels]
        apart = [np.sort(((x - p) ** 2).sum(1))[1] ** 0.5 for p in x[:300]]
        print("%2d steps, guidance %g: %d pictures, named rightly: SVC %.1f %%, linear %.1f %%; a digit of the data is %.2f away,"
              " of another one %.2f" % (steps, guidance, len(names), 100 * machine.score(pixels, names),
                                        100 * linear.score(pixels, names), np.mean(near), np.mean(apart)))


main()
