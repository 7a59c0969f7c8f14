"""Is a page of `coda explain --html` whole? page.py PAGE TEXT, where TEXT is what `coda explain` prints: every element
is closed, nothing is loaded, there is no script, and each program and each line of the derivation stands in it."""
import html.parser
import re
import sys

VOID = {"meta", "br"}
SELF = {"rect", "path"}  # of SVG, which close themselves


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.text, self.boxes, self.ids = [], [], [], 0, {}

    def handle_startendtag(self, tag, attrs):
        if tag not in SELF:
            self.wrong.append("<%s/>" % tag)
        self.look(tag, attrs)

    def handle_starttag(self, tag, attrs):
        self.look(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append("</%s> at %s closes something else" % (tag, self.getpos()))

    def look(self, tag, attrs):
        if tag in ("script", "link", "img", "iframe", "object", "image", "use", "a", "base", "form"):
            self.wrong.append("there is a <%s>" % tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "action") or name.startswith("on"):
                self.wrong.append("%s has %s=%s" % (tag, name, value))
            if re.search(r"url\(|NaN|inf|nan", value or "") and name != "content":
                self.wrong.append("%s=%s" % (name, value))
        self.boxes += tag == "rect"

    def handle_data(self, data):
        self.text.append(data)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        source = f.read()
    with open(sys.argv[2], encoding="utf-8") as f:
        told = f.read()
    page = Page()
    page.feed(source)
    page.close()
    text, wrong = "".join(page.text), page.wrong
    if page.open:
        wrong.append("open at the end: %s" % page.open)
    if len(source.encode()) > 300000:
        wrong.append("%d bytes" % len(source.encode()))
    if re.search(r"@import|https?:|//[a-z]", source):
        wrong.append("it names another place")
    parts = dict(re.findall(r"^# ([a-z ]+)\n(.*?)(?=^# |\Z)", told, re.M | re.S))
    heads = re.findall(r"^@\d+ .*$", parts["plan"], re.M)
    lines = [re.sub(r"^\S+ +\S* +", "", s) for s in parts["derivation"].splitlines() if s]
    for what in heads + lines:
        if what not in text:
            wrong.append("it lacks %s" % what)
    if page.boxes < 2 * len(heads) or not heads or not lines:
        wrong.append("%d boxes for %d programs, %d lines" % (page.boxes, len(heads), len(lines)))
    for line in wrong:
        print(line)
    print("page: %d bytes, %d programs, %d lines of the derivation" % (len(source), len(heads), len(lines)))
    sys.exit(bool(wrong))


main()
