# header.awk -- coda.h and its parts as data, for man.awk and html.awk. It relies on their layout, and stops at a line
# that it does not understand. The heading of a part ("coda_cache.h -- ...") is not in the manual.
#
# A unit is what stands between two empty lines: declarations and comments. A comment speaks for the declarations
# below it, up to the next one; a unit without declarations is text of its section.
#
#     sections, section_title[s], section_level[s] (1, 2), section_text[s]
#     units, unit_section[u], unit_first[u], unit_last[u]                items first..last
#     items, item_kind[i]: text function struct enum type define
#            item_name[i], item_code[i]: as written, without the comment behind it: item_note[i]
#     overview: the first comment; unit_of[NAME] of functions, types and constants; kind_of[NAME]
#
# Of each word of `coda ops --json`: words, word_kind[w], word_name[w], ..., and words_of[call] = " w1 w2 ..."

function die(what) {
    print FILENAME ":" FNR ": " what > "/dev/stderr"
    failed = 1
    exit 1
}

# ---- Comments ----

# The text of "/* ... */", its lines without what the comment is drawn with.
function comment_text(raw, n, line, i, out) {
    sub(/^[ \t]*\/\*+ ?/, "", raw)
    sub(/[ \t]*\*+\/[ \t]*$/, "", raw)
    n = split(raw, line, "\n")
    out = line[1]
    for (i = 2; i <= n; i++) {
        sub(/^[ \t]*\*? ?/, "", line[i])
        out = out "\n" line[i]
    }
    return out
}

# A comment behind code keeps no indentation.
function note_text(raw, out) {
    gsub(/\n[ \t]*\*? */, " ", raw)
    out = comment_text(raw)
    gsub(/  +/, " ", out)
    return out
}

function is_closed(raw) { return raw ~ /\*\/[ \t]*$/ }

# ---- Sections, units, items ----

function add_section(line, level, text) {
    end_unit()
    sections++
    section_title[sections] = line
    section_level[sections] = level
    sub(/^\n+/, "", text)
    sub(/\n+$/, "", text)
    section_text[sections] = text
}

# "---- Title ----" with text behind it, or a rule, a title, text and a rule.
function add_banner(text, n, line, i, rest) {
    n = split(text, line, "\n")
    if (line[1] ~ /^-+$/) {
        for (i = 3; i <= n; i++) if (line[i] !~ /^-+$/) rest = rest "\n" line[i]
        add_section(line[2], 1, rest)
        return
    }
    for (i = 2; i <= n; i++) rest = rest "\n" line[i]
    sub(/^-+ /, "", line[1])
    sub(/ -+$/, "", line[1])
    add_section(line[1], 2, rest)
}

function add_item(kind, name, code, note) {
    if (kind == "define" && (name in unit_of)) { # of C++, and now of C
        for (i = 1; i <= items; i++) if (item_name[i] == name) item_code[i] = code
        return
    }
    if (!open_unit) {
        open_unit = ++units
        unit_section[units] = sections
        unit_first[units] = items + 1
    }
    items++
    unit_last[units] = items
    item_kind[items] = kind
    item_name[items] = name
    item_code[items] = code
    item_note[items] = note
    item_unit[items] = units
    if (kind == "text") return
    unit_declares[units] = 1
    if (name == "") return
    unit_of[name] = units
    kind_of[name] = kind
}

function end_unit() { open_unit = 0 }

# ---- Declarations ----

# Also says whether the last comment is left open: comment_open.
function without_comments(code, out, at, end) {
    comment_open = 0
    while ((at = index(code, "/*")) > 0) {
        out = out substr(code, 1, at - 1)
        code = substr(code, at)
        end = index(code, "*/")
        comment_open = !end
        code = end ? substr(code, end + 2) : ""
    }
    return out code
}

# Enumerators are constants of the unit.
function add_constants(code, name) {
    code = without_comments(code)
    sub(/^[^{]*[{]/, "", code)
    while (match(code, /CODA_[A-Z0-9_]+/)) {
        name = substr(code, RSTART, RLENGTH)
        if (!(name in unit_of)) {
            unit_of[name] = units
            kind_of[name] = "constant"
            constants[items] = constants[items] " " name
        }
        code = substr(code, RSTART + RLENGTH)
    }
}

function add_function(raw, at, code, note, name) {
    at = index(raw, "/*")
    code = at ? substr(raw, 1, at - 1) : raw
    note = at ? note_text(substr(raw, at)) : ""
    sub(/^CODA_API /, "", code)
    gsub(/\n         /, "\n", code) # as deep as "CODA_API "
    sub(/([ \t\n]+CODA_[A-Z]+\([0-9, ]*\))?[ \t]*;[ \t]*$/, ";", code) # an attribute of the compiler's
    name = code
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    if (name !~ /^coda_/) die("no name in " code)
    add_item("function", name, code, note)
}

function add_type(raw, kind, name, at, note) {
    if (raw ~ /^typedef (struct|enum) [a-z_]+ [{]/) {
        split(raw, part, " ")
        add_item(part[2], part[3], raw, "")
        if (part[2] == "enum") add_constants(raw)
        return
    }
    if (raw ~ /^enum [{]/) {
        add_item("enum", "", raw, "")
        add_constants(raw)
        return
    }
    at = index(raw, "/*")
    note = at ? note_text(substr(raw, at)) : ""
    if (at) raw = substr(raw, 1, at - 1)
    sub(/[ \t]+$/, "", raw)
    name = raw
    sub(/;$/, "", name)
    sub(/.*[ *]/, "", name)
    add_item("type", name, raw, note)
}

function add_define(raw, name) {
    if (raw ~ /^#define [A-Z_]+\(/) return # for the header itself
    name = raw
    sub(/^#define /, "", name)
    sub(/[^A-Za-z0-9_].*/, "", name)
    if (name ~ /^CODA(_[A-Z]+)?_H$/ || name == "CODA_API") return
    add_item("define", name, raw, "")
}

# Is the declaration whole? Its code ends in `;`, and a comment behind that is closed.
function is_whole(raw, code) {
    code = without_comments(raw)
    return !comment_open && code ~ /;[ \t\n]*$/ && (code !~ /[{]/ || code ~ /[}][^}]*;[ \t\n]*$/)
}

function take(raw) {
    if (raw ~ /^\/\*/) {
        text = comment_text(raw)
        if (overview == "") overview = text
        else if (text ~ /^\n?coda_[a-z]+\.h -- /) return
        else if (text ~ /^---/) add_banner(text)
        else add_item("text", "", text, "")
    } else if (raw ~ /^#define/) add_define(raw)
    else if (raw ~ /^CODA_API/) add_function(raw)
    else add_type(raw)
}

function header_line(line) {
    if (raw == "") {
        if (line == "") end_unit()
        if (line == "" || line ~ /^(#if|#ifdef|#ifndef|#else|#endif|#include|extern "C"|[}]$)/) return
        if (line !~ /^(\/\*|#define|CODA_API|typedef|enum)/) die("what is this: " line)
        raw = line
    } else raw = raw "\n" line
    if (raw ~ /^\/\*/ ? !is_closed(raw) : raw ~ /^#define/ ? line ~ /\\$/ : !is_whole(raw)) return
    take(raw)
    raw = ""
}

# ---- Words: one object a line ----

function json_field(line, key, at, end) {
    at = index(line, "\"" key "\": \"")
    if (!at) die("a word without " key)
    line = substr(line, at + length(key) + 5)
    if (!match(line, /[^\\]"(, "|[}])/) && substr(line, 1, 1) != "\"") die("a string without an end")
    if (substr(line, 1, 1) == "\"") return ""
    line = substr(line, 1, RSTART)
    gsub(/\\n/, "\n", line)
    gsub(/\\"/, "\"", line)
    gsub(/\\\\/, "\\", line)
    return line
}

function word_line(line, n, i, call) {
    if (line !~ /"kind"/) return
    words++
    word_kind[words] = json_field(line, "kind")
    word_name[words] = json_field(line, "name")
    word_operands[words] = json_field(line, "operands")
    word_attributes[words] = json_field(line, "attributes")
    word_result[words] = json_field(line, "result")
    word_meaning[words] = json_field(line, "meaning")
    word_calls[words] = json_field(line, "calls")
    word_gradient[words] = json_field(line, "gradient")
    word_example[words] = json_field(line, "example")
    n = split(word_calls[words], call, ", ")
    for (i = 1; i <= n; i++) {
        words_of[call[i]] = words_of[call[i]] " " words
        word_count[call[i]]++
    }
}

# ---- Pages of Markdown and the grammar ----

# The rows of a table: variables, variable_name[v], variable_text[v].
function table_line(line, part) {
    if (line !~ /^\| `/) return
    split(line, part, / *\| */)
    variables++
    variable_name[variables] = part[2]
    variable_text[variables] = part[3]
    gsub(/`/, "", variable_name[variables])
    gsub(/`/, "", variable_text[variables])
}

# The first comment of graph_parse.c, its deeper lines.
function grammar_line(line) {
    if (grammar_done) return
    if (line ~ /\*\//) grammar_done = 1
    if (line ~ /^ \*     /) grammar = grammar substr(line, 8) "\n"
}

BEGIN {
    sections = 0
    section_title[0] = "Version and limits" # what stands ahead of the first one
    section_level[0] = 1
}
FILENAME ~ /coda(_[a-z]+)?\.h$/ { header_line($0) }
FILENAME ~ /words\.json$/ { word_line($0) }
FILENAME ~ /ENVIRONMENT\.md$/ { table_line($0) }
FILENAME ~ /graph_parse\.c$/ { grammar_line($0) }

# ---- What both pages need ----

# The first sentence of a text, or "".
function first_sentence(text) {
    sub(/^[ \n]+/, "", text)
    gsub(/\n/, " ", text)
    if (match(text, /[^.][.:;]( |$)/)) return substr(text, 1, RSTART)
    return text
}

# What a unit is about: the beginning of its only text if that is short, else its section.
function about(u, i, line, texts) {
    for (i = unit_first[u]; i <= unit_last[u]; i++) {
        if (item_kind[i] == "text" && !texts++) line = first_sentence(item_code[i])
        else if (item_note[i] != "" && unit_first[u] == unit_last[u]) line = first_sentence(item_note[i])
    }
    sub(/^[ \n]+/, "", line)
    if (line !~ /^[A-Z][^`=[]+$/ || length(line) < 12 || length(line) > 90 || texts > 1) {
        line = short_title(unit_section[u])
    }
    return line
}

# What is ahead of the title's details.
function short_title(s, line) {
    line = section_title[s]
    sub(/ *[;:.(].*/, "", line)
    return line
}

# The last item that a text speaks for: up to the next one. Without a text each stands by itself.
function run_end(u, from, text) {
    if (text == "") return from
    while (from <= unit_last[u] && item_kind[from] != "text") from++
    return from - 1
}

# What is said of an item itself: the comment behind it; or, where others stand beside it, its formula.
function note_of(i, formula) {
    if (item_note[i] != "" || !formula || word_count[item_name[i]] != 1) return item_note[i]
    return word_meaning[substr(words_of[item_name[i]], 2)]
}

# Its page: the first function, or the first type.
function page_of(u, i) {
    for (i = unit_first[u]; i <= unit_last[u]; i++) if (item_kind[i] == "function") return item_name[i]
    for (i = unit_first[u]; i <= unit_last[u]; i++)
        if (item_kind[i] ~ /struct|enum|type/ && item_name[i] != "") return item_name[i]
    return ""
}

# What a call that returns this says by it.
function returned(code, name) {
    if (code ~ /^coda_status /) return "CODA_OK, or a negative status, with its text in coda_error()."
    if (code ~ /^coda_value /) return "A value of the graph, or CODA_NONE after a mistake: see coda_graph_status()."
    return ""
}

# The next part of a text: into part_kind ("code", "text") and part_lines; returns what is left. Code is
# indented by four columns or more.
function next_part(text, n, line, i, code, out) {
    n = split(text, line, "\n")
    i = 1
    while (i <= n && line[i] ~ /^[ \t]*$/) i++
    code = line[i] ~ /^    /
    for (; i <= n; i++) {
        if (line[i] ~ /^[ \t]*$/ && !(code && line[i + 1] ~ /^    /)) break
        if ((line[i] ~ /^    /) != code && line[i] !~ /^[ \t]*$/) break
        out = out (out == "" ? "" : "\n") line[i]
    }
    part_kind = code ? "code" : "text"
    part_lines = out
    text = ""
    for (; i <= n; i++) text = text (text == "" ? "" : "\n") line[i]
    return text
}

# The contracts of the overview: contracts, contract_name[c], contract_text[c]; overview keeps what is ahead of them.
function split_overview(n, line, i, head, inside) {
    n = split(overview, line, "\n")
    for (i = 1; i <= n; i++) {
        if (line[i] == "CONTRACTS") inside = 1
        else if (line[i] ~ /^SPDX/) continue
        else if (!inside) head = head line[i] "\n"
        else if (match(line[i], /^[A-Z][a-z]+\. +/)) {
            contracts++
            contract_name[contracts] = substr(line[i], 1, index(line[i], ".") - 1)
            contract_text[contracts] = substr(line[i], RLENGTH + 1)
        } else contract_text[contracts] = contract_text[contracts] "\n" substr(line[i], 12)
    }
    overview = head
}
