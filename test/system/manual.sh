#!/bin/bash
# manual.sh -- the manual says all that coda.h declares, as it declares it: a page for each call and each type, with the
# prototype that the compiler sees; no warning of groff or mandoc; and one page of HTML that is well formed, whose links
# lead somewhere, which loads nothing, and has each call, type, constant, word of `coda ops` and variable of ENVIRONMENT.md.
# Run as: test/system/manual.sh FOLDER
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
build=${BUILD:-build}
doc=$build/doc
wrong() { echo "WRONG: $*"; exit 1; }
rm -rf "${out:?}"/*
make --no-print-directory -s doc
make --no-print-directory -s -q doc || wrong 'make doc is never done'
make -pq doc | sed -n "s|^$doc/coda.html: ||p" | tr ' ' '\n' > "$out/sources" || true
for source in include/coda.h include/coda_cache.h include/coda_grad.h include/coda_quant.h include/coda_profile.h include/coda_recurrent.h include/coda_group.h ENVIRONMENT.md lib/graph/graph_parse.c "$build/coda"; do
    grep -qx "$source" "$out/sources" || wrong "$source may change, and the manual stays"
done
for source in lib/graph/ops.def primitives/map/silu.cuh; do # by way of the tool
    make -n -W $source doc | grep -q manual.sh || wrong "$source may change, and the manual stays"
done

# ---- Pages ----
calls=$(test/house/exports.sh)
[ "$(nm -D --defined-only "$build/libcoda.so" | sed -n 's/.* T \(coda_[a-z0-9_]*\)@@.*/\1/p' | sort)" = "$calls" ] ||
    wrong 'coda.h and the library differ: make exports'
page() { # NAME: its page, also by way of a link
    [ -e "$doc/man3/$1.3" ] || wrong "there is no page of $1"
    sed -n 's/^\.so man3\///p' "$doc/man3/$1.3" | grep . || echo "$1.3"
}
${CC:-gcc} -E -P include/coda.h | tr '\n' ' ' | tr ';' '\n' | grep 'visibility("default")' |
    sed 's/.*__attribute__((visibility("default"))) *//; s/ *__attribute__((__format__.*//; s/^.*extern "C" { *//' | tr -s ' ' > "$out/prototypes"
[ "$(wc -l < "$out/prototypes")" = "$(echo "$calls" | wc -l)" ] || wrong 'the compiler sees other calls'
awk -v folder="$doc/man3/" '
    { name = $0; sub(/ *\(.*/, "", name); sub(/.*[ *]/, "", name) }
    {
        file = name ".3"
        if ((getline line < (folder file)) > 0 && line ~ /^\.so man3\//) file = substr(line, 10)
        close(folder name ".3")
        synopsis = heading = ""
        while ((getline line < (folder file)) > 0) {
            if (line ~ /^\.SH/) section = line
            if (section ~ /^\.SH NAME/) heading = heading " " line " "
            if (section ~ /^\.SH SYNOPSIS/) synopsis = synopsis line
            if (line ~ /^\.fi/) section = ""
        }
        close(folder file)
        gsub(/\\-/, "-", synopsis); gsub(/ /, "", synopsis)
        wanted = $0
        gsub(/ /, "", wanted)
        if (heading == "") { print "there is no page of " name; exit 1 }
        if (!index(synopsis, wanted ";")) { print file " does not declare " $0; exit 1 }
        if (heading !~ "[^A-Za-z0-9_]" name "[^A-Za-z0-9_]") { print file " does not name " name; exit 1 }
    }' "$out/prototypes" > "$out/undeclared" || wrong "$(cat "$out/undeclared")"
types=$(sed -n 's/^typedef \(struct\|enum\) \(coda_[a-z_]*\) {.*/\2/p' include/coda.h include/coda_cache.h include/coda_grad.h include/coda_quant.h include/coda_profile.h include/coda_recurrent.h include/coda_group.h)
[ "$(echo "$types" | wc -l)" -ge 30 ] || wrong "few types: $types"
for name in $types; do page "$name" >/dev/null; done

pages=$(cd "$doc" && grep -L '^\.so' man3/*.3; echo man7/coda.7)
(cd "$doc" && groff -man -ww -z -Tutf8 $pages) 2>"$out/groff"
[ ! -s "$out/groff" ] || wrong "groff: $(head -3 "$out/groff")"
# Pages have no date, so that equal sources make equal pages.
(cd "$doc" && mandoc -Tlint -Wwarning $pages) | grep -v 'missing date' > "$out/mandoc" || true
[ ! -s "$out/mandoc" ] || wrong "mandoc: $(head -3 "$out/mandoc")"
for page in examples/coda/*.1; do groff -man -ww -z -Tutf8 "$page" 2>&1; done > "$out/groff"
[ ! -s "$out/groff" ] || wrong "groff: $(head -3 "$out/groff")"
if command -v man >/dev/null; then
    (cd "$doc" && MANPATH=$PWD man -P cat coda_matmul_kn) > "$out/man" 2>/dev/null || true
    [ ! -s "$out/man" ] || grep -q 'coda_value coda_matmul_kn(coda_graph' "$out/man" || wrong 'man coda_matmul_kn shows another page'
fi

# ---- HTML ----
"$build/coda" ops --json > "$out/words.json"
{
    echo "$calls"
    echo "$types"
    sed 's/ .*//' test/abi/constants.txt | grep -vx CODA_API
} > "$out/names"
python3 - "$doc/coda.html" "$out/names" "$out/words.json" ENVIRONMENT.md <<'END'
import html.parser, json, re, sys
page, names, words, environment = (open(p, encoding="utf-8").read() for p in sys.argv[1:])
empty = {"meta", "br", "link", "img", "hr", "input"}

class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.text, self.wrong = [], {}, [], [], []
    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if "id" in a:
            if a["id"] in self.ids: self.wrong.append("two anchors " + a["id"])
            self.ids[a["id"]] = tag
        if tag == "script" or any(k == "src" or k.startswith("on") for k in a): self.wrong.append("it runs or loads " + tag)
        if "href" in a: self.links.append(a["href"])
        if tag not in empty: self.open.append(tag)
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag: self.wrong.append("line %d: </%s>" % (self.getpos()[0], tag))
    def handle_data(self, data): self.text.append(data)

r = Reader()
r.feed(page)
r.close()
if r.open: r.wrong.append("left open: " + " ".join(r.open))
r.wrong += ["no link may leave the page: " + l for l in r.links if not l.startswith("#")]
r.wrong += ["nothing is at " + l for l in sorted(set(r.links)) if l[1:] not in r.ids]
known = names.split()
known += ["%s-%s" % (w["kind"], w["name"]) for w in json.loads(words)]
r.wrong += ["nothing is said of " + n for n in known if n not in r.ids]
text = " ".join("".join(r.text).split())
for w in json.loads(words):
    if " ".join(w["meaning"].replace("`", "").split()) not in text: r.wrong.append("the meaning of %s is missing" % w["name"])
for v in re.findall(r"^\| `([A-Z_]+)`", environment, re.M):
    if v not in text: r.wrong.append("nothing is said of " + v)
for rule in ("prefers-color-scheme: dark", "@media print"):
    if rule not in page: r.wrong.append("no style for " + rule)
if re.search(r"@import|url\(", page): r.wrong.append("the style loads something")
if r.wrong: sys.exit("WRONG: " + "\n".join(r.wrong[:20]))
print("%d anchors, %d links" % (len(r.ids), len(r.links)), file=open(sys.argv[2] + ".counts", "w"))
END

# ---- A call of which nothing is said is refused, and so is what the reader of coda.h does not know ----
refused() { # TEXT SED...: what manual.sh says of a changed coda.h
    said=$1 && shift
    rm -rf "$out/tree"
    mkdir -p "$out/tree/lib/graph" "$out/tree/include"
    cp -r lib/package "$out/tree/lib" && cp ENVIRONMENT.md "$out/tree" && cp lib/graph/graph_parse.c "$out/tree/lib/graph"
    for header in coda.h coda_cache.h coda_grad.h coda_quant.h coda_profile.h coda_recurrent.h coda_group.h; do sed "$@" include/$header > "$out/tree/include/$header"; done
    diff -rq include "$out/tree/include" | grep -q differ || wrong "the headers stayed as they are by sed $*"
    tool=$(realpath "$build/coda")
    if (cd "$out/tree" && lib/package/manual/manual.sh "$tool" doc) 2>"$out/refused"; then wrong "taken: sed $*"; fi
    grep -q "$said" "$out/refused" || wrong "sed $*: $(cat "$out/refused")"
}
refused 'nothing is said of coda_error' '/^\/\* This thread.s last failure/d'
refused 'nothing is said of coda_cache_seal' '/^\/\* For a service that has warmed up/,/\*\/$/d'
refused 'what is this: static int' 's/^CODA_API const char \*coda_version/static int version;\n&/'

echo "manual: $(echo "$calls" | wc -l) calls and $(echo "$types" | wc -l) types on $(echo "$pages" | wc -w) pages;" \
    "coda.html has $(cat "$out/names.counts")"
