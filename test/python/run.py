#!/usr/bin/env python3
"""run.py [NAME...] -- runs the tests of the Python package, test_NAME.py beside it, each in a process of its own.
What a test lacks on this machine it says, and is skipped. The last line adds up."""
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main(names):
    passed = failed = skipped = 0
    for path in sorted(glob.glob(os.path.join(HERE, "test_*.py"))):
        name = os.path.basename(path)[5:-3]
        if names and name not in names:
            continue
        done = subprocess.run([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        out = done.stdout
        ran = re.search(r"^Ran (\d+) tests", out, re.M)
        counts = [int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", out)]
        left = sum(map(int, re.findall(r"skipped=(\d+)", out)))
        lacks = re.findall(r"^.*skipped.*$", out, re.M)
        skipped += bool(lacks)
        wrong = sum(counts) or int(done.returncode != 0)
        passed += int(ran.group(1)) - wrong - left if ran else int(not wrong and not lacks)
        failed += wrong
        print("%-10s %s" % (name, "WRONG" if wrong else "skipped: " + lacks[0].split("skipped")[-1].strip(" :'\"")
                            if lacks and not ran else "good"), flush=True)
        if wrong:
            print(out, flush=True)
        else:
            print("".join("    %s\n" % line for line in out.splitlines() if line.startswith(("note:", "  "))), end="")
    print("%d passed, %d failed%s" % (passed, failed, ", %d files skipped" % skipped if skipped else ""))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
