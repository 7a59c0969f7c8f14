# html.awk -- the reference as one page of HTML, behind header.awk: no network, no script, light and dark, paper.
# Run as: awk -f header.awk -f html.awk -v version=V FILES > coda.html

function escape(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    gsub(/"/, "\\&quot;", text)
    return text
}

# Every name that the page has is a link, but in its own unit.
function linked(text, own, out, name) {
    text = escape(text)
    while (match(text, /[A-Za-z_][A-Za-z0-9_]*/)) {
        name = substr(text, RSTART, RLENGTH)
        out = out substr(text, 1, RSTART - 1)
        if (name in unit_of && unit_of[name] != own) out = out "<a href=\"#" name "\">" name "</a>"
        else out = out name
        text = substr(text, RSTART + RLENGTH)
    }
    return out text
}

# Code with an anchor at each constant that it declares.
function code_of(i, out, n, name, k, at, done) {
    out = linked(item_code[i], item_unit[i])
    n = split(constants[i], name, " ")
    for (k = 1; k <= n; k++) {
        done = ""
        while (match(out, name[k])) { # not the beginning of a longer one
            at = RSTART + RLENGTH
            if (substr(out, at, 1) !~ /[A-Z0-9_]/) break
            done = done substr(out, 1, at - 1)
            out = substr(out, at)
        }
        out = done substr(out, 1, at - RLENGTH - 1) "<b id=\"" name[k] "\">" name[k] "</b>" substr(out, at)
    }
    return out
}

# What stands between back quotes is code.
function quoted(html, out) {
    while (match(html, /`[^`]+`/)) {
        out = out substr(html, 1, RSTART - 1) "<code>" substr(html, RSTART + 1, RLENGTH - 2) "</code>"
        html = substr(html, RSTART + RLENGTH)
    }
    return out html
}

function pre(html) { print "<pre>" html "</pre>" }

function put_text(text, own) {
    while (text ~ /[^ \t\n]/) {
        text = next_part(text)
        if (part_kind == "code") {
            sub(/^    /, "", part_lines)
            gsub(/\n    /, "\n", part_lines)
            pre(linked(part_lines, own))
        } else print "<p>" quoted(linked(part_lines, own)) "</p>"
    }
}

function put_style() {
    print "<style>"
    print ":root { color-scheme: light dark; --line: #8884; --code: #8881; }"
    print "body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }"
    print "a { color: #0a58ca; text-decoration: none; } a:hover { text-decoration: underline; }"
    print "pre, code { font: 13px/1.45 ui-monospace, monospace; }"
    print "pre { background: var(--code); padding: .6rem .8rem; overflow-x: auto; border-radius: 4px; }"
    print "pre a { color: inherit; border-bottom: 1px dotted; }"
    print "h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; } h3 { margin-top: 2rem; }"
    print ".unit { border-top: 1px solid var(--line); margin-top: 1.5rem; }"
    print "dt { font: 600 14px/1.45 ui-monospace, monospace; margin-top: .8rem; } dd { margin-left: 1.5rem; }"
    print "table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;"
    print "  border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; }"
    print "nav ul { columns: 2; } .index { columns: 3; font: 13px/1.6 ui-monospace, monospace; }"
    print ":target { background: #ffd54a55; }"
    print "@media (prefers-color-scheme: dark) { a { color: #79b8ff; } }"
    print "@media print { nav { display: none; } pre { white-space: pre-wrap; } a { color: inherit; }"
    print "  body { max-width: none; font-size: 10pt; } .unit, tr { break-inside: avoid-page; } }"
    print "</style>"
}

# ---- Functions, structs, constants ----

# Declarations, and the text that speaks for them.
function put_run(text, from, to, own, i, note, several) {
    several = to > from
    if (to >= from) {
        for (i = from; i <= to; i++) if (item_name[i] != "") printf "<a id=\"%s\"></a>", item_name[i]
        printf "<pre>"
        for (i = from; i <= to; i++) print code_of(i)
        print "</pre>"
    }
    put_text(text, own)
    for (i = from; i <= to; i++) {
        note = note_of(i, several || text == "")
        if (note == "") continue
        print "<p>" (several ? "<code>" item_name[i] "</code>: " : "") quoted(linked(note, own)) "</p>"
    }
}

# Declarations without a text stand together.
function run_of(u, from, text) {
    if (text != "") return run_end(u, from, text)
    while (from < unit_last[u] && item_kind[from + 1] != "text") from++
    return from
}

function put_unit(u, i, text, from, to) {
    print "<div class=\"unit\">"
    for (i = unit_first[u]; i <= unit_last[u]; i = to + 1) {
        text = item_kind[i] == "text" ? item_code[i] : ""
        from = text == "" ? i : i + 1
        to = run_of(u, from, text)
        put_run(text, from, to, u)
    }
    put_words_of(u)
    print "</div>"
}

# "In the text form: silu." Where a call makes a few words.
function put_words_of(u, i, j, n, list, out, seen) {
    for (i = unit_first[u]; i <= unit_last[u]; i++) {
        if (item_kind[i] != "function" || word_count[item_name[i]] > 3) continue
        n = split(words_of[item_name[i]], list, " ")
        for (j = 1; j <= n; j++) {
            if (list[j] in seen) continue
            seen[list[j]] = 1
            out = out (out == "" ? "" : ", ") "<a href=\"#" word_id(list[j]) "\">" word_name[list[j]] "</a>"
        }
    }
    if (out != "") print "<p>In the text form: " out ".</p>"
}

function put_sections(u, s) {
    for (s = 0; s <= sections; s++) {
        print "<h" section_level[s] + 1 " id=\"section-" s "\">" escape(section_title[s]) "</h" section_level[s] + 1 ">"
        put_text(section_text[s], 0)
        for (u = 1; u <= units; u++) if (unit_section[u] == s) put_unit(u)
    }
}

# ---- Words ----

function word_id(w) { return word_kind[w] "-" word_name[w] }

function put_row(name, text) { if (text != "") print "<tr><th>" name "</th><td>" quoted(linked(text, 0)) "</td></tr>" }

function put_words(kind, title, w) {
    print "<h2 id=\"words-" kind "\">" title "</h2>"
    for (w = 1; w <= words; w++) {
        if (word_kind[w] != kind) continue
        print "<div class=\"unit\"><h3 id=\"" word_id(w) "\">" word_name[w] "</h3><table>"
        put_row("meaning", word_meaning[w])
        put_row("operands", word_operands[w])
        put_row("attributes", word_attributes[w])
        put_row("result", word_result[w])
        put_row("gradient", word_gradient[w])
        put_row("in C", word_calls[w])
        print "</table>"
        sub(/\n$/, "", word_example[w])
        if (word_example[w] != "") pre(escape(word_example[w]))
        print "</div>"
    }
}

# ---- The whole ----

function put_contents(s) {
    print "<nav><h2>Contents</h2><ul><li><a href=\"#contracts\">Contracts</a></li>"
    for (s = 0; s <= sections; s++)
        print "<li><a href=\"#section-" s "\">" escape(short_title(s)) "</a></li>"
    print "<li><a href=\"#grammar\">The text form</a></li><li><a href=\"#words-operation\">Operations</a></li>"
    print "<li><a href=\"#words-map\">Maps</a></li><li><a href=\"#words-reduction\">Reductions</a></li>"
    print "<li><a href=\"#words-function\">Functions of maps</a></li><li><a href=\"#environment\">Environment</a></li>"
    print "<li><a href=\"#index\">Index</a></li></ul></nav>"
}

function put_overview(c) {
    sub(/^\n*coda\.h -- [^\n]*\n/, "", overview)
    put_text(overview, 0)
    put_contents()
    print "<h2 id=\"contracts\">Contracts</h2>"
    for (c = 1; c <= contracts; c++) {
        print "<h3>" contract_name[c] "</h3>"
        put_text(contract_text[c], 0)
    }
}

function put_environment(v) {
    print "<h2 id=\"environment\">Environment</h2><table>"
    for (v = 1; v <= variables; v++)
        print "<tr><td><code>" escape(variable_name[v]) "</code></td><td>" linked(variable_text[v], 0) "</td></tr>"
    print "</table><p>In a setuid program none of them counts.</p>"
}

# By name; the few hundred are sorted by insertion.
function put_index(name, n, i, list) {
    for (name in unit_of) {
        for (i = n++; i > 0 && list[i] > name; i--) list[i + 1] = list[i]
        list[i + 1] = name
    }
    print "<h2 id=\"index\">Index</h2><div class=\"index\">"
    for (i = 1; i <= n; i++) print "<a href=\"#" list[i] "\">" list[i] "</a><br>"
    print "</div>"
}

END {
    if (failed) exit 1
    split_overview()
    print "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    print "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    print "<title>libcoda " version "</title>"
    put_style()
    print "</head><body><h1>libcoda " version "</h1>"
    put_overview()
    put_sections()
    print "<h2 id=\"grammar\">The text form</h2>"
    pre(escape(grammar))
    put_words("operation", "Operations")
    put_words("map", "Maps")
    put_words("reduction", "Reductions")
    put_words("function", "Functions of maps, in their source as math::NAME")
    put_environment()
    put_index()
    print "</body></html>"
}
