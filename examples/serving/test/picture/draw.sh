#!/bin/sh
# draw.sh BUILD LIBRARY -- draw from its command line: what it draws on the CPU device it draws on the SM in software, by
# replays of one captured step; and what makes no sense is an exit status and a line.
set -eu
build=$1 library=$(cd "$2" && pwd)
tiny=test/picture/tiny
out=$build/drawn
mkdir -p "$out"
draw=$build/draw
emulated() {
    env CODA_CACHE_DIR="$build/emulated" CODA_CUDA_LIB="$library/emulator" CODA_LIBCUDA="$library/emulator/libcuda.so.1" \
        LD_LIBRARY_PATH="$library/emulator" "$@"
}
fail() { echo "$*"; exit 1; }
quiet() { "$@" 2>"$out/said" || { cat "$out/said" >&2 && return 1; }; }

# STATUS TEXT COMMAND...: the command fails so, and says that in one line.
refused() {
    wanted=$1 text=$2 status=0
    shift 2
    said=$("$@" 2>&1 </dev/null) || status=$?
    [ $status = "$wanted" ] || fail "$*: status $status, not $wanted"
    case $said in *"$text"*) ;; *) fail "$*: '$said' does not say '$text'" ;; esac
}
refused 2 'there is no FOLDER; see draw --help' "$draw"
refused 2 'there is neither -o FILE.png nor --latents FILE.npy' "$draw" "$tiny/dit"
refused 2 '--steps cannot be "0"' "$draw" --steps 0 "$tiny/dit"
refused 2 '--steps cannot be "1001"' "$draw" --steps 1001 "$tiny/dit"
refused 2 '--class cannot be "1,,2"' "$draw" --class 1,,2 "$tiny/dit"
refused 2 '--class cannot be "-1"' "$draw" --class -1 "$tiny/dit"
refused 2 '--guidance cannot be "nan"' "$draw" --guidance nan "$tiny/dit"
refused 2 '--size cannot be "64x"' "$draw" --size 64x "$tiny/dit"
refused 2 '--seed needs a value' "$draw" "$tiny/dit" --seed
refused 2 'there is no option --foo' "$draw" --foo 1 "$tiny/dit"
refused 2 '"b" is one argument too many' "$draw" a b
refused 2 '80 pictures; 64 are the most' "$draw" --class 1,2 --count 40 -o "$out/p.png" "$tiny/dit"
refused 1 'class 10 is none of 0 to 9' "$draw" --cpu --class 10 -o "$out/p.png" "$tiny/dit"
refused 1 '/nowhere/p.png: No such file or directory' "$draw" --cpu --steps 1 -o /nowhere/p.png "$tiny/dit"
refused 1 '/nowhere/l.npy: No such file or directory' "$draw" --cpu --steps 1 --latents /nowhere/l.npy "$tiny/dit"
refused 1 'No such file or directory; examples/serving/digits' "$draw" --cpu -o "$out/p.png" "$tiny/none"
refused 1 'No such file or directory' "$draw" --cpu -o "$out/none/p.png" "$tiny/none" # before the folder is read
[ ! -w /dev/full ] || refused 1 'it cannot be written' "$draw" --cpu --steps 1 --zoom 20 -o /dev/full "$tiny/dit"
refused 1 'is [1, 4, 8, 8], and [5, 3] is wanted' "$draw" --cpu --steps 1 -o "$out/p.png" --map "$tiny/dit/noise.npy" "$tiny/dit"

# WHAT ONE OTHER MOST: two arrays of floats are off by no more than that of their size.
near() {
    python3 - "$@" <<'END' || fail "$1"
import struct, sys
what, one, other, most = sys.argv[1:]
def read(path):
    d = open(path, "rb").read()
    at = 10 + d[8] + 256 * d[9]
    return struct.unpack("<%df" % ((len(d) - at) // 4), d[at:])
a, b = read(one), read(other)
off = (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b)) ** 0.5
if len(a) != len(b) or not off <= float(most):
    sys.exit("%s: off by %g" % (what, off))
END
}
of() { # KIND: its files as options
    for file in text pooled negative negative_pooled noise; do
        [ ! -e "$tiny/$1/$file.npy" ] || echo "--$(echo $file | tr _ -) $tiny/$1/$file.npy"
    done
}
# The file has a picture's sides, and equal seeds write equal files.
quiet "$draw" --cpu --class 1,2 --count 2 --seed 3 --steps 2 --zoom 3 -o "$out/a.png" "$tiny/dit_v"
quiet "$draw" --cpu --class 1,2 --count 2 --seed 3 --steps 2 --zoom 3 -o "$out/b.png" "$tiny/dit_v"
cmp "$out/a.png" "$out/b.png" || fail 'draw --seed: equal seeds write other files'
python3 - "$out/a.png" <<'END' || fail 'draw -o: no picture'
import struct, sys, zlib
d = open(sys.argv[1], "rb").read()
wide, high = struct.unpack(">II", d[16:24])
at = d.index(b"IDAT")
rows = zlib.decompress(d[at + 4:at + 4 + struct.unpack(">I", d[at - 4:at])[0]])
sys.exit((wide, high, len(rows)) != (4 * 8 * 3, 8 * 3, high * (wide + 1)))
END
# README's picture, as it is kept.
quiet "$draw" --cpu --class 0,1,2,3,4,5,6,7,8,9 --seed 1 --steps 12 --guidance 2 --zoom 6 -o "$out/digits.png" digits
python3 - "$out/digits.png" digits/digits.png <<'END' || fail 'draw: other digits than README shows'
import sys, zlib
def rows(path):
    d = open(path, "rb").read()
    at = d.index(b"IDAT")
    return zlib.decompress(d[at + 4:])
a, b = map(rows, sys.argv[1:])
sys.exit(len(a) != len(b) or max(abs(x - y) for x, y in zip(a, b)) > 2) # of 255: sums of other processors
END
kinds='dit sd3'
[ -z "${CODA_FULL:-}" ] || kinds=$(ls "$tiny")
for kind in $kinds; do
    size=$(sed 's/.*"height": \([0-9]*\), "width": \([0-9]*\).*/\2 \1/' "$tiny/$kind/arguments.json")
    scale=$([ -d "$tiny/$kind/vae" ] && echo 8 || echo 1)
    frames=$(sed -n 's/.*"frames": \([0-9]*\).*/--frames \1/p' "$tiny/$kind/arguments.json")
    size=$(echo "$size" | awk -v s="$scale" '{ print $1 * s "x" $2 * s }')
    for device in cpu gpu; do
        on=$([ $device = cpu ] || echo emulated)
        # shellcheck disable=SC2046
        quiet $on "$draw" --$device --dtype f32 --steps 2 --guidance 3 --size "$size" $frames --class 2 $(of "$kind") --latents "$out/$device.npy" "$tiny/$kind"
    done
    near "draw: $kind on the emulator" "$out/gpu.npy" "$out/cpu.npy" 1e-4
done
# A shape without its weights.
quiet "$draw" --cpu --random --seed 1 --steps 2 --guidance 1 --latents "$out/a.npy" "$tiny/dit/transformer/config.json"
quiet "$draw" --cpu --random --seed 2 --steps 2 --guidance 1 --latents "$out/b.npy" "$tiny/dit/transformer/config.json"
! cmp -s "$out/a.npy" "$out/b.npy" || fail 'draw --random: seeds do not matter'
"$draw" --cpu --plan "$tiny/dit" 2>/dev/null | grep -q '^    state   latents  *1 x f32 \[1 16 16\]' || fail 'draw --plan: no latents'
echo "draw: on the CPU device and on the emulator"
