# man.awk -- man pages, behind header.awk: man3 with a page for each unit of coda.h and a link for each other name
# in it, and coda.7, the overview. Run as: awk -f header.awk -f man.awk -v folder=FOLDER -v version=V FILES

function roff(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/'/, "\\(aq", text)
    gsub(/`/, "\\(ga", text)
    gsub(/\^/, "\\(ha", text)
    gsub(/~/, "\\(ti", text)
    return text
}

# No line may look like a request.
function lines_of(text) {
    text = roff(text)
    gsub(/\n\./, "\n\\\\\\&.", text)
    if (substr(text, 1, 1) == ".") text = "\\&" text
    return text
}

# Nothing parts a heading from its first paragraph.
function put(line) {
    if (line == ".PP" && last ~ /\.S[HS] [^\n]*$/) return
    print line > file
    last = line
}

function put_code(code) {
    put(".nf")
    put(lines_of(code))
    put(".fi")
}

# `paragraph` is the request between two of them: .PP, or .IP below a tag, where the first one stands.
function put_text(text, paragraph, first) {
    while (text ~ /[^ \t\n]/) {
        text = next_part(text)
        if (!first) put(paragraph)
        first = 0
        if (part_kind == "text") {
            gsub(/\n[ \t]+/, "\n", part_lines)
            put(lines_of(part_lines))
        } else put_code(part_lines)
    }
}

function title(name, section) {
    put(".\\\" Made from coda.h.")
    put(".TH " toupper(name) " " section " \"\" \"libcoda " version "\" \"libcoda\"")
}

function tagged(tag, text) {
    put(".TP")
    put("\\fB" roff(tag) "\\fR")
    put(lines_of(text))
}

function put_word(w) {
    put(".SS " (word_kind[w] == "operation" ? "Operation " : word_kind[w] == "map" ? "Map " : "Reduction ") word_name[w])
    tagged("meaning", word_meaning[w])
    if (word_operands[w] != "") tagged("operands", word_operands[w])
    if (word_attributes[w] != "") tagged("attributes", word_attributes[w])
    tagged("result", word_result[w])
    if (word_gradient[w] != "") tagged("gradient", word_gradient[w])
    put(".TP\n\\fBexample\\fR")
    sub(/\n$/, "", word_example[w])
    put_code(word_example[w])
}

# The words that the functions of a unit make, where they are few.
function put_words(u, i, j, n, list, head, seen) {
    for (i = unit_first[u]; i <= unit_last[u]; i++) {
        if (item_kind[i] != "function" || word_count[item_name[i]] > 3) continue
        n = split(words_of[item_name[i]], list, " ")
        for (j = 1; j <= n; j++) {
            if (list[j] in seen) continue
            if (!head++) put(".SH TEXT FORM")
            seen[list[j]] = 1
            put_word(list[j])
        }
    }
}

# The pages of calls that have a type of the unit in their prototypes, where these are not nearly all.
function users_of(u, i, k, list, n, seen) {
    for (i = unit_first[u]; i <= unit_last[u]; i++) {
        if (item_kind[i] !~ /struct|enum|type/ || item_name[i] == "") continue
        for (k = 1; k <= items; k++) {
            if (item_kind[k] != "function" || item_unit[k] == u || page_of(item_unit[k]) in seen) continue
            if (!match(item_code[k], "(^|[^a-z_])" item_name[i] "[^a-z_]")) continue
            seen[page_of(item_unit[k])] = 1
            list = list " " page_of(item_unit[k])
            n++
        }
    }
    return n > 12 ? "" : list
}

# Pages that the unit's texts speak of.
function put_see_also(u, i, text, name, seen, list) {
    seen[page_of(u)] = 1
    for (i = unit_first[u]; i <= unit_last[u]; i++) text = text " " item_code[i] " " item_note[i]
    text = users_of(u) " " text
    while (match(text, /coda_[a-z0-9_]+/)) {
        name = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        if (!(name in unit_of) || page_of(unit_of[name]) in seen) continue
        name = page_of(unit_of[name])
        seen[name] = 1
        list = list "\n.BR " name " (3),"
    }
    put(".SH SEE ALSO" list "\n.BR coda (7)")
}

# A text, and the names that it speaks for; of each what stands behind it, or which formula it is.
function put_run(text, from, to, i, tags, note) {
    if (text == "" && item_kind[from] != "function" && item_note[from] == "") return
    for (i = from; i <= to; i++)
        if (item_name[i] != "" && item_kind[i] != "define") {
            put(tags++ ? ".TQ" : ".TP")
            put("\\fB" roff(item_name[i]) "\\fR" (item_kind[i] == "function" ? "()" : ""))
        }
    if (!tags) {
        put_text(text, ".PP")
        return
    }
    put_text(text, ".IP", 1)
    for (i = from; i <= to; i++) {
        note = note_of(i, tags > 1 || text == "")
        if (note == "" && text == "" && item_kind[i] == "function") need_context(i, item_unit[i])
        if (note == "") continue
        if (tags > 1 || text != "") put(".IP")
        put(lines_of((tags > 1 ? item_name[i] ": " : "") note))
    }
}

# Of a function that nothing is said of: a struct beside it, or a title of the second level, may say enough.
function need_context(i, u, k) {
    if (section_level[unit_section[u]] == 2) return
    for (k = unit_first[u]; k <= unit_last[u]; k++) if (item_kind[k] == "struct") return
    print "coda.h: nothing is said of " item_name[i] > "/dev/stderr"
    failed = 1
}

function put_unit(u, page, i, names, text, from) {
    page = page_of(u)
    file = folder "/man3/" page ".3"
    title(page, 3)
    for (i = unit_first[u]; i <= unit_last[u]; i++)
        if (item_kind[i] !~ /text|define/ && item_name[i] != "") names = names (names == "" ? "" : ", ") item_name[i]
    put(".SH NAME\n" roff(names) " \\- " roff(about(u)))
    put(".SH SYNOPSIS\n.nf\n\\fB#include <coda.h>\\fR\n")
    for (i = unit_first[u]; i <= unit_last[u]; i++)
        if (item_kind[i] != "text") put(lines_of(item_code[i]) (item_kind[i] == "function" ? "" : "\n"))
    put(".fi")
    put(".SH DESCRIPTION\n" lines_of(section_level[unit_section[u]] == 2 ? section_title[unit_section[u]] "." : \
        "In coda.h under \"" section_title[unit_section[u]] "\"."))
    put_text(section_text[unit_section[u]], ".PP")
    for (i = unit_first[u]; i <= unit_last[u]; i = to + 1) {
        text = item_kind[i] == "text" ? item_code[i] : ""
        from = text == "" ? i : i + 1
        to = run_end(u, from, text)
        put_run(text, from, to)
    }
    put_words(u)
    for (i = unit_first[u]; i <= unit_last[u]; i++) {
        if (item_kind[i] != "function" || returned(item_code[i]) == "") continue
        put(".SH RETURN VALUE\n" lines_of(returned(item_code[i])))
        break
    }
    put_see_also(u)
    close(file)
    for (i = unit_first[u]; i <= unit_last[u]; i++) {
        if (item_kind[i] ~ /text|define/ || item_name[i] == "" || item_name[i] == page) continue
        file = folder "/man3/" item_name[i] ".3"
        put(".so man3/" page ".3")
        close(file)
    }
}

# ---- coda(7) ----

function put_overview(i, u, s) {
    file = folder "/man7/coda.7"
    title("coda", 7)
    put(".SH NAME\ncoda \\- the library libcoda: Transformer blocks as a few fused GPU kernels")
    put(".SH SYNOPSIS\n.nf\n\\fB#include <coda.h>\\fR\n\ncc first.c $(pkg\\-config \\-\\-cflags \\-\\-libs coda)\n.fi")
    put(".SH DESCRIPTION")
    sub(/^\n*coda\.h -- [^\n]*\n/, "", overview)
    put_text(overview, ".PP")
    put(".SH CONTRACTS")
    for (i = 1; i <= contracts; i++) {
        put(".SS " contract_name[i])
        put_text(contract_text[i], ".PP", 1)
    }
    put(".SH TEXT FORM\nA graph as text, for coda_graph_parse and the tool:")
    put_code(grammar)
    put("A word is an operation, below, or a map or a reduction, which\n.BR \"coda ops\" ,\nof\n.BR coda (1),\nlists.")
    put(".SH OPERATIONS")
    for (i = 1; i <= words; i++) if (word_kind[i] == "operation") tagged(word_name[i], word_meaning[i])
    put(".SH ENVIRONMENT")
    for (i = 1; i <= variables; i++) tagged(variable_name[i], variable_text[i])
    put(".PP\nIn a setuid program none of them counts.")
    put(".SH FUNCTIONS")
    for (u = 1; u <= units; u++) {
        if (!unit_declares[u] || page_of(u) == "") continue
        if (unit_section[u] != s) put(".SS " roff(section_title[s = unit_section[u]]))
        put(".TP\n.BR " page_of(u) " (3)\n" lines_of(about(u)))
    }
    put(".SH SEE ALSO\n.BR coda (1),\n.BR coda\\-cache (1)")
    close(file)
}

END {
    if (failed) exit 1
    split_overview()
    for (u = 1; u <= units; u++) if (unit_declares[u] && page_of(u) != "") put_unit(u)
    put_overview()
    exit failed
}
