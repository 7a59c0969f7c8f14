# together.awk -- C files as few that include them: `awk -v most=16 -v to=FOLDER/NAME -f together.awk HEADER... FILE...` writes
# FOLDER/NAME1.c, NAME2.c, ..., those that are not there as they should be, and prints their names. In one of them no name means
# two things at file scope, be they of its files or of the headers that these include, so that each file says what it says
# alone; macros are forgotten behind the file that defines them. Names are read off the layout that clang-format gives; where
# one is missed, the compiler says so.

# `own`: it is defined here, and others that have the name mean something else.
function name(x, own)
{
    if (x ~ /^(struct|union|enum)?$/ || (file, x) in known) return
    known[file, x] = own
    of[file, ++names[file]] = x
}
function last_word(s)
{
    sub(/[^A-Za-z0-9_]+$/, "", s)
    return match(s, /[A-Za-z_][A-Za-z0-9_]*$/) ? substr(s, RSTART) : ""
}
function before(s, marks) { return match(s, marks) ? substr(s, 1, RSTART - 1) : s }
function constants(s,    n, i, part) # of an enum, with its braces
{
    while (match(s, /\/\*([^*]|\*[^\/])*\*\//)) s = substr(s, 1, RSTART - 1) substr(s, RSTART + RLENGTH)
    sub(/^[^{]*{/, "", s)
    n = split(s, part, ",")
    for (i = 1; i <= n; i++)
        if (match(part[i], /[A-Za-z_][A-Za-z0-9_]*/)) name(substr(part[i], RSTART, RLENGTH), 1)
}
FNR == 1 {
    file = FILENAME
    within = 0
    short = file
    sub(/.*\//, "", short)
    header = short ~ /\.h$/
    header_of[file] = header
    if (header) path_of[short] = file
    else order[++files] = file
}
/^#include "/ { split($2, part, "\""); sub(/.*\//, "", part[2]); includes[file, ++included[file]] = part[2]; next }
/^#define / { split($2, part, "("); name(part[1], !header); macros[file] = macros[file] "\n#undef " part[1]; next }
within {
    block = block " " $0
    within = $0 !~ /}/
    if (!within) constants(block)
    next
}
/^(static |typedef )*enum.*{/ {
    if ($2 != "{") name($2, 1)
    if ($2 != "{") tag[$2]
    block = $0
    within = $0 !~ /}/
    if (!within) constants(block)
    next
}
/^}/ { name(last_word(before(substr($0, 2), "[[=;]")), 1); next }
/^END_TEST/ { next }
/^[A-Z_]+\(/ { split($0, part, /[(,)] */); name(part[2], 1); next } # START_TEST(name)
/^[A-Za-z_]/ {
    line = $0
    sub(/ *\/\*.*/, "", line)
    own = line ~ /^static / || line ~ /^typedef / && !header
    if (match(line, /(struct|union) [A-Za-z0-9_]+ {/)) name(last_word(substr(line, RSTART, RLENGTH)), 1)
    else if (match(line, /\(\*[A-Za-z0-9_]+\)/)) name(substr(line, RSTART + 2, RLENGTH - 3), own)
    else if (line ~ /\(/) name(last_word(before(line, "[[=(;{]")), own)
    else {
        n = split(line, part, ",")
        for (i = 1; i <= n; i++) name(last_word(before(part[i], "[[=;{]")), own)
    }
}

# What group g has: `owned` by one of its files, `shared` by a header that defines it, or `public`, as it occurs in one. A tag of
# an enum may elsewhere be one of a struct.
function clash(file, x, g)
{
    if ((g, x) in owned || known[file, x] && (g, x) in shared) return 1
    return (g, x) in public && (x in tag || known[file, x] && !header_of[file])
}
# Visits the headers that a file includes, and theirs: do they clash with group g? With `join` they become its.
function clashing(file, g, join,    i, k, h, x)
{
    for (i = 1; i <= included[file]; i++) {
        h = path_of[includes[file, i]]
        if (h == "" || (g, h) in has || (h in seen)) continue
        seen[h]
        if (join) has[g, h]
        for (k = 1; k <= names[h]; k++) {
            x = of[h, k]
            if (!join && clash(h, x, g)) return 1
            if (join) public[g, x]
            if (join && known[h, x]) shared[g, x]
        }
        if (clashing(h, g, join)) return 1
    }
    return 0
}
function fits(file, g,    k)
{
    if (size[g] >= most) return 0
    for (k = 1; k <= names[file]; k++)
        if ((g, of[file, k]) in taken || clash(file, of[file, k], g)) return 0
    split("", seen)
    return !clashing(file, g, 0)
}
END {
    for (i = 1; i <= files; i++) {
        file = order[i]
        for (g = 1; !fits(file, g);) g++
        size[g]++
        if (g > groups) groups = g
        text[g] = text[g] "#include \"" file "\"" macros[file] "\n"
        for (k = 1; k <= names[file]; k++) {
            taken[g, of[file, k]]
            if (known[file, of[file, k]]) owned[g, of[file, k]]
        }
        split("", seen)
        clashing(file, g, 1)
    }
    for (g = 1; g <= groups; g++) {
        path = to g ".c"
        was = ""
        while ((getline line < path) > 0) was = was line "\n"
        close(path)
        if (was != text[g]) printf "%s", text[g] > path
        print path
    }
}
