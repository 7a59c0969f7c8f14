# layers.awk -- the law of the house: which folder may include which. Reads every source file.
#
#     lib -> jit, primitives      jit -> cache, primitives      cache -> libc      primitives -> nothing
#     examples, perf -> include/coda.h alone. NVIDIA's headers belong to jit.
BEGIN {
    allowed["lib"] = " lib include jit cache primitives "
    allowed["jit"] = " jit include cache primitives "
    allowed["cache"] = " cache "
    allowed["primitives"] = " primitives "
    allowed["examples"] = " examples include "
    allowed["perf"] = " perf examples include "
    # Generated headers, made in the output folder from the primitives.
    while (("find include lib jit cache primitives examples perf -name '*.h' -o -name '*.cuh' -o -name '*.def'" | getline path) > 0) {
        folder = path
        sub(/\/.*/, "", folder)
        name = path
        if (folder == "primitives" && path ~ /\.cuh$/) sub(/^primitives\//, "", name)
        else sub(/.*\//, "", name)
        if (name in home) complain(path, "the name is taken by " home[name])
        home[name] = folder
    }
}

function complain(where, what) { print where ": " what; bad++ }

FNR == 1 { folder = FILENAME; sub(/\/.*/, "", folder); files++ }

/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, part, "\"")
    name = part[2]
    if (folder == "cache" && name ~ /^deps\//) next # xxHash, carried along
    from = name in home ? home[name] : "?"
    if (from == "?") complain(FILENAME ":" FNR, "\"" name "\" is in no folder of the house")
    else if (index(allowed[folder], " " from " ") == 0)
        complain(FILENAME ":" FNR, folder " may not include \"" name "\" of " from)
    edges++
}

/^[ \t]*#[ \t]*include[ \t]*<(cuda|nvrtc|cublas|nvToolsExt)/ && folder != "jit" {
    complain(FILENAME ":" FNR, folder " may not include NVIDIA's headers")
}

# One file reads the environment, one opens libraries, one starts programs: what they take is judged there.
function keeps_to(pattern, home, what) {
    if (FILENAME != home && folder ~ /^(lib|jit|cache|primitives)$/ && $0 ~ "(^|[^a-zA-Z0-9_])" pattern)
        complain(FILENAME ":" FNR, what " is for " home)
}
FILENAME !~ /primitives\/embed.c/ {
    keeps_to("(getenv|secure_getenv|getauxval) *\\(", "cache/environment.c", "the environment")
    keeps_to("environ *[;,)]", "cache/environment.c", "the environment")
    keeps_to("dlm?open *\\(", "jit/library.c", "dlopen")
    keeps_to("(system|popen|exec[lv][pe]*|posix_spawnp?) *\\(", "jit/isolate.c", "starting a program")
}

END {
    printf "%d files, %d includes between them, %d against the law\n", files, edges, bad
    exit bad > 0 || edges == 0
}
