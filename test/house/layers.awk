# layers.awk -- the law of the house: which folder may include which, and call which. Reads every source file,
# and from "-" what `nm -A` says of every object below `build`.
#
#     lib -> jit, cache, primitives      jit -> cache, primitives      cache -> libc      primitives -> nothing
#     lib: base <- pack, ranks <- graph <- eval, grad, rewrite, program <- plan <- fuse <- schedule <- emit, cpu <- exec <- tune <- coda.c <- shapes,
#          profile <- api
#     examples, perf -> include/coda.h alone. NVIDIA's headers belong to jit.
BEGIN {
    # A room of lib goes by its own name, coda.c by "lib".
    allowed["base"] = " base include jit "
    allowed["pack"] = " pack base "
    allowed["ranks"] = " ranks base "
    allowed["graph"] = " graph ranks pack base primitives "
    allowed["eval"] = " eval graph ranks pack base "
    allowed["rewrite"] = " rewrite graph pack base "
    allowed["grad"] = " grad graph pack base primitives "
    allowed["program"] = " program graph pack base primitives "
    allowed["plan"] = " plan program graph pack base "
    allowed["fuse"] = " fuse plan program rewrite graph pack base primitives "
    allowed["schedule"] = " schedule fuse plan program graph pack base primitives "
    allowed["emit"] = " emit schedule plan program graph pack base "
    allowed["cpu"] = " cpu schedule plan program graph ranks pack base primitives "
    allowed["exec"] = " exec emit cpu schedule plan program graph ranks pack base jit "
    allowed["tune"] = " tune exec schedule plan program graph pack base jit "
    allowed["lib"] = " lib tune exec schedule fuse plan program rewrite graph pack base jit "
    allowed["shapes"] = " shapes lib exec schedule plan program graph pack base jit "
    allowed["profile"] = " profile lib exec schedule plan program graph pack base jit "
    allowed["api"] = " api shapes profile lib exec eval grad graph ranks pack base include jit cache "
    allowed["jit"] = " jit include cache primitives "
    allowed["cache"] = " cache "
    allowed["primitives"] = " primitives "
    allowed["examples"] = " examples include "
    allowed["perf"] = " perf examples include "
    only["fuse", "rewrite"] = "explain.h"
    only["schedule", "fuse"] = "reasons.h"
    only["cpu", "schedule"] = "mainloop.h"
    only["api", "lib"] = "pipeline.h"
    only["api", "shapes"] = "shapes.h"
    only["api", "profile"] = "profile.h"
    only["profile", "lib"] = "pipeline.h"
    # Files of a room that may call each other in a circle: so many; elsewhere none.
    circle["jit"] = 6
    circle["cache"] = 3
    home["builders.h"] = "include" # generated of coda.h, in the output folder
    while (("find include lib jit cache primitives examples perf -path examples/serving -prune -o -name '*.h' -print -o -name '*.cuh' -print -o -name '*.def' -print" | getline path) > 0) {
        name = path
        if (path ~ /^primitives\/.*\.cuh$/) sub(/^primitives\//, "", name)
        else sub(/.*\//, "", name)
        if (name in home) complain(path, "the name is taken by " home[name])
        home[name] = room(path)
    }
}

function complain(where, what) { print where ": " what; bad++ }

function room(path, part) {
    split(path, part, "/")
    return part[1] == "lib" && part[2] !~ /\./ ? part[2] : part[1]
}

# ---- Calls: what an object wants, and who has it ----

FILENAME == "-" {
    path = $1
    sub(/:.*/, "", path)
    if (index(path, build) == 1) path = substr(path, length(build) + 1)
    if (path !~ /^(lib|jit|cache|primitives)\//) path = "primitives/" path
    if ($(NF - 1) == "U") wants[path, $NF] = 1
    else if ($(NF - 1) ~ /^[TDRBV]$/) has[$NF] = path
    next
}

FNR == 1 { folder = room(FILENAME); files++ }

/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, part, "\"")
    name = part[2]
    if (folder == "cache" && name ~ /^deps\//) next # xxHash, carried along
    from = name in home ? home[name] : "?"
    if (from == "?") complain(FILENAME ":" FNR, "\"" name "\" is in no folder of the house")
    else if (index(allowed[folder], " " from " ") == 0)
        complain(FILENAME ":" FNR, folder " may not include \"" name "\" of " from)
    else if ((folder, from) in only && index(only[folder, from], name) == 0)
        complain(FILENAME ":" FNR, folder " may include of " from " only \"" only[folder, from] "\"")
    edges++
}

/^[ \t]*#[ \t]*include[ \t]*<(cuda|nvrtc|cublas|nvToolsExt)/ && folder != "jit" {
    complain(FILENAME ":" FNR, folder " may not include NVIDIA's headers")
}

/^CODA_API/ && FILENAME !~ /^lib\/api\// && FILENAME ~ /^lib\// {
    complain(FILENAME ":" FNR, "calls of coda.h are for lib/api")
}

# One file reads the environment, one opens libraries, one starts programs: what they take is judged there.
function keeps_to(pattern, home, what) {
    if (FILENAME != home && FILENAME ~ /^(lib|jit|cache|primitives)\// && $0 ~ "(^|[^a-zA-Z0-9_])" pattern)
        complain(FILENAME ":" FNR, what " is for " home)
}
FILENAME !~ /primitives\/embed\// {
    keeps_to("(getenv|secure_getenv|getauxval) *\\(", "cache/environment.c", "the environment")
    keeps_to("environ *[;,)]", "cache/environment.c", "the environment")
    keeps_to("dlm?open *\\(", "jit/library.c", "dlopen")
    keeps_to("(system|popen|exec[lv][pe]*|posix_spawnp?) *\\(", "jit/isolate.c", "starting a program")
}

# What file `from` reaches by calls that stay in its room, or, among rooms, by any: into reached[].
function reach(from, next_of, queue, n, at, to, i, count) {
    delete reached
    queue[n = 1] = from
    for (at = 1; at <= n; at++) {
        count = split(next_of[queue[at]], to, " ")
        for (i = 1; i <= count; i++)
            if (!(to[i] in reached)) {
                reached[to[i]] = 1
                queue[++n] = to[i]
            }
    }
}

# Each is in the circle of those that it reaches and that reach it: circles[first of them] = " a b c".
function find_circles(next_of, from, to, key) {
    delete reaches
    delete circles
    for (from in next_of) {
        reach(from, next_of)
        for (to in reached) reaches[from, to] = 1
    }
    for (from in next_of) {
        if (!((from, from) in reaches)) continue
        key = from
        for (to in next_of)
            if ((from, to) in reaches && (to, from) in reaches && to < key) key = to
        circles[key] = circles[key] " " from
    }
}

function judge_calls(pair, part, from, to, a, b, n, key, seen) {
    for (pair in wants) {
        split(pair, part, SUBSEP)
        from = part[1]
        to = has[part[2]]
        if (to == "" || to == from) continue
        calls++
        a = room(from)
        b = room(to)
        if (index(allowed[a], " " b " ") == 0) complain(from, a " may not call " part[2] " of " to)
        if ((from, to) in seen) continue
        seen[from, to] = 1
        if (a == b) inside[from] = inside[from] " " to
        else between[a] = between[a] " " b
    }
    find_circles(between)
    for (key in circles) complain("rooms", "call each other in a circle:" circles[key])
    find_circles(inside)
    for (key in circles) {
        n = split(circles[key], part, " ")
        a = room(key)
        if (n > circle[a] + 0) complain(a, n " files call each other in a circle, of " circle[a] + 0 ":" circles[key])
    }
}

END {
    judge_calls()
    printf "%d files, %d includes between them, %d calls; %d against the law\n", files, edges, calls, bad
    exit bad > 0 || edges == 0 || calls == 0
}
