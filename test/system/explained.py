"""explained.py CODA GRAPH... -- the pages of `coda explain --html`, as a browser has them: nothing is asked of a network,
nothing is said on the console, each program and each line of the derivation is there to be read, and no word of a picture
hangs over its box. `SHOTS=folder` leaves pictures of them for those who want to look."""
import os
import re
import subprocess
import sys
import tempfile

import browser

MOST = 300000
# Words over the edge of their box, or of the picture; and boxes over the edge of the picture.
HANGING = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const all = svg.getBoundingClientRect(), wrong = [];
  const within = (r, o) => r.left >= o.left - 1 && r.right <= o.right + 1 && r.top >= o.top - 1 && r.bottom <= o.bottom + 1;
  for (const e of svg.querySelectorAll('text, rect'))
    if (!within(e.getBoundingClientRect(), all)) wrong.push('outside the picture: ' + (e.textContent || e.outerHTML));
  for (const g of svg.querySelectorAll('g'))
    for (const t of g.querySelectorAll(':scope > text')) {
      const box = g.querySelector(':scope > rect');
      if (box && !within(t.getBoundingClientRect(), box.getBoundingClientRect())) wrong.push('wider than its box: ' + t.textContent);
    }
  return wrong;
})"""
WIDTH = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


def told(coda, graph):
    return subprocess.run([coda, "explain", graph], capture_output=True, text=True, check=True).stdout


def look(b, coda, graph, path):
    """What is wrong with a graph's page, and how many programs and lines of the derivation it has."""
    subprocess.run([coda, "explain", graph, "--html", path], check=True)
    b.requests.clear(), b.messages.clear()
    b.open("file://" + path)
    b.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    text = re.sub(r"\s+", " ", b.value("document.body.innerText"))
    parts = dict(re.findall(r"^# ([a-z ]+)\n(.*?)(?=^# |\Z)", told(coda, graph), re.M | re.S))
    programs = re.findall(r"^@\d+ .*$", parts["plan"], re.M)
    rewrites = [re.sub(r"^\S+ +\S* +", "", s) for s in parts["derivation"].splitlines() if s]
    wrong = ["asks for %s" % r for r in b.requests] + ["says %s" % m for m in b.messages] + b.value(HANGING)
    wrong += ["lacks %s" % what for what in programs + rewrites if re.sub(r"\s+", " ", what).strip() not in text]
    wide, room = b.value(WIDTH)
    if wide > room:
        wrong.append("is %d pixels wide in a window of %d" % (wide, room))
    if os.path.getsize(path) > MOST:
        wrong.append("has %d bytes" % os.path.getsize(path))
    return wrong, len(programs), len(rewrites)


def main(coda, *graphs):
    shots, bad = os.environ.get("SHOTS"), 0
    with browser.Browser(browser.found()) as b, tempfile.TemporaryDirectory() as folder:
        for graph in graphs:
            name = os.path.basename(graph)[:-5]
            path = os.path.join(os.path.abspath(folder), name + ".html")
            wrong, programs, rewrites = look(b, coda, graph, path)
            for line in wrong or ():
                print("%s: the page %s" % (name, line))
            bad += bool(wrong) or not programs or not rewrites
            print("%-26s %6d bytes, %2d programs, %2d lines of the derivation" % (name, os.path.getsize(path), programs, rewrites))
            if shots:
                b.shot(os.path.join(shots, name + ".png"))
    print("%d pages in Chromium, %d wrong" % (len(graphs), bad))
    return bad > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
