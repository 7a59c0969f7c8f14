# pages.sh -- what tests of pages share (readme.sh, and that of examples/serving): $build is the library's output folder,
# $root a folder of their own; they run at the top of the tree.
wrong() { echo "WRONG: $*"; exit 1; }

# PAGE FOLDER: its blocks as files 01, 02, ... without fences and the blanks that make them blocks.
blocks() {
    mkdir -p "$2"
    awk -v to="$2" '
        function begin() { if (file) close(file); file = sprintf("%s/%02d", to, ++n) }
        /^```/ { if (fenced) { fenced = 0; file = "" } else { fenced = 1; begin() } next }
        fenced { print > file; next }
        /^    / { if (!inside && !blank) next # goes on what a list has begun
                  if (!inside) begin()
                  inside = 1; print substr($0, 5) > file; next }
        { inside = 0; blank = $0 == "" }' "$1"
}
# BLOCK [SED]: a block of commands, whose output is kept in BLOCK.said; SED makes it run anywhere.
commands() {
    sed "s|build/|$build/|g; ${2:-}" "$1" > "$1.sh"
    bash -eu -o pipefail "$1.sh" > "$1.said" 2>&1 || wrong "$(cat "$1"): $(tail -5 "$1.said")"
}
said() { grep -q -e "$2" "$1.said" || wrong "$(cat "$1") does not print $2: $(cat "$1.said")"; }
# A command of a $page that is not run, and why.
skip() { not_run="$not_run
    $page: $command ($1)"; }
# PAGE: its commands: lines of code that begin with one of these words.
commands_of() { sed -n 's/^    \(\(make\|coda\|build\/\|man\|echo\|curl\|CODA_[A-Z]*=\|gnuplot\).*\)/\1/p' "$1"; }
# [SED]: $command, with files of ours where it has names for the reader's.
run_line() {
    eval "$(echo "$command" | sed "s|build/|$build/|g; s|model.bundle|$root/line.bundle|g; ${1:-}")" > "$root/line" 2>"$root/error" ||
        wrong "$page: $command: $(cat "$root/error")"
    count=$((count + 1))
}
