#!/bin/sh
# help.sh -- every program and every command of the tool says how it is used: `--help` and `-h` print that to standard
# output and nothing else, and an option that is not known is one line and exit status 2. The programs are those that the
# Makefile builds, the commands those that the tool's own help lists; or the programs that are named. The tool's manual
# pages have every option of its help.
# Run as: test/system/help.sh BUILD [PROGRAM...]
set -eu
build=$1 count=0
shift
die() { echo "help: $*"; exit 1; }
out=$(mktemp) err=$(mktemp)
trap 'rm -f "$out" "$err"' EXIT

# NAME COMMAND...: the usage of NAME.
helps() {
    name=$1
    shift
    for word in --help -h; do
        "$@" $word >"$out" 2>"$err" </dev/null || die "$* $word: exit status $?: $(cat "$err")"
        head -1 "$out" | grep -q "^usage: $name" || die "$* $word prints no usage of $name: $(head -3 "$out")"
        [ ! -s "$err" ] || die "$* $word says $(cat "$err")"
    done
    if "$@" --help >/dev/full 2>"$err"; then die "$* --help: exit status 0 though nothing could be printed"; fi
    count=$((count + 1))
}
# COMMAND...: no such option.
refuses() {
    status=0
    "$@" --no-such-option >"$out" 2>"$err" </dev/null || status=$?
    [ $status = 2 ] || die "$* --no-such-option: exit status $status"
    [ "$(wc -l <"$err")" = 1 ] && grep -q -e no-such-option "$err" && [ ! -s "$out" ] ||
        die "$* --no-such-option: not one line that names it: $(cat "$err" "$out")"
}

programs=$*
[ -n "$programs" ] || programs=$(make --no-print-directory -s BUILD="$build" programs)
for program in $programs; do
    [ -x "$program" ] || die "$program is not built"
    name=$(basename "$program")
    helps "$name" "$program"
    case $program in */perf/*) ;; *) refuses "$program" ;; esac # the measurements share $PERF_ARGS
done

done_with() { echo "help: $count programs and commands say how they are used"; exit 0; }
[ $# = 0 ] || done_with

coda=$build/coda
commands=$("$coda" --help | sed -n 's/^usage: /       /; s/^       coda \([a-z][a-z-]*\)\( .*\)\?$/\1/p' | sort -u)
[ "$(echo "$commands" | wc -l)" -ge 5 ] || die "the tool lists the commands $commands"
for command in $commands; do
    helps "coda $command" "$coda" "$command"
    [ "$command" = cache ] || refuses "$coda" "$command"
done
# COMMAND...: $page, which has a backslash before each hyphen, names the options of its help.
manual_has() {
    for option in $("$@" --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' | sort -u); do
        sed 's/\\-/-/g' "$page" | grep -qwe "$option" || die "$page has no $option"
    done
}
page=examples/coda/coda.1 manual_has "$coda"
page=examples/coda/coda-cache.1 manual_has "$coda" cache
parts=$("$coda" cache --help | sed -n 's/^usage: /       /; s/^       coda cache \([a-z]*\)\( .*\)\?$/\1/p' | sort -u)
[ "$(echo "$parts" | wc -l)" -ge 8 ] || die "the tool lists the commands of the cache $parts"
for part in $parts; do
    helps "coda cache $part" "$coda" cache "$part"
    refuses "$coda" cache "$part"
done
done_with
