# guards.awk -- rewriting and planning ask numbers that a symbol may be in through lib/base/guards.h, which notes
# the answers: comparisons of such numbers by operators are refused here. Reads the sources of lib/rewrite,
# lib/program, lib/plan and lib/fuse, and lib/graph/view.c. Who compares all the same stands in `allowed`, with the reason.
BEGIN {
    made = "it looks at a plan that is made"
    allowed["plan_verify.c"] = allowed["verify_in_place.c"] = allowed["reasons_print.c"] = made
    allowed["program_work.c:is_empty"] = made
    allowed["pairs.c:pair_steps_evenly"] = allowed["pairs.c:pair_fills_spans"] = "schedules and texts ask, which are made anew for each shape"
    of_type = "type_(rows|elements|columns)[(][^;()]*([(][^()]*[)][^;()]*)*[)]"
    extent = "(" of_type "|(dim|stride)\\[[^]]*\\]|[.](sample|segment|period|table_rows|start|stop)|" \
             "(^|[^a-z_.])(rows|columns|elements|segment|extent|positions|pitch|inner|outer|each|wanted))"
    compare = "([!=<>]=|[<>%])"
}

function complain(what) { print FILENAME ":" FNR ": " what; bad++ }

FNR == 1 { file = FILENAME; sub(/.*\//, "", file); name = "" }
/^[a-z].*[a-z_0-9]\(/ && !/;$/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
/^ \*|^\/\*/ { next }
{
    line = $0
    gsub(/\/\*.*|"[^"]*"/, "", line)
    gsub(/->/, ".", line)
    gsub(/for \([^;]*;[^;]*;/, "", line)
    key = file in allowed ? file : file ":" name
    left = line ~ extent " *([*/] *[0-9]+ *)?" compare && line !~ extent " *[!=]= DIM_NONE"
    right = line ~ compare " *(([a-z0-9_]|\\[[^]]*\\])+[.]|[&*(]+|[0-9]+ [*] )*" extent "([^a-z_(.]|$)"
    if (!left && !right && line !~ /memcmp\([^;]*(dim|stride|dense)/) next
    if (key in allowed) used[key] = 1
    else complain(name "() compares an extent without a note: lib/base/guards.h")
}

END {
    for (key in allowed) if (!(key in used)) { print "guards.awk: nobody needs " key ": " allowed[key]; bad++ }
    print bad + 0 " comparisons of extents without a note"
    exit bad > 0
}
