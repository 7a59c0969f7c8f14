#!/bin/sh
# linear.sh -- four times the layers, forward and backward, are planned in at most five times the instructions, which
# valgrind counts: no time is measured.
# Run as: test/system/linear.sh FOLDER
set -eu
out=$1
coda=${BUILD:-build}/coda
mkdir -p "$out"
command -v valgrind >/dev/null || { echo 'linear: there is no valgrind: .ci/deps installs what is missing'; exit 1; }

# A gated MLP behind an RMSNorm; its derivatives as books have them. # is the layer's number, + the next one's.
forward() {
    sed "s/#/$1/g; s/+/$(($1 + 1))/g" <<'END'
%g# = weight bf16[256]
%w# = weight bf16[1408,256]
%v# = weight bf16[256,704]
%n# = rms_norm %x#, %g# {eps=1e-05}
%z# = matmul %n#, %w#
%a# = slice %z# {axis=1, start=0, stop=704, step=1}
%b# = slice %z# {axis=1, start=704, stop=1408, step=1}
%h# = swiglu %a#, %b#
%p# = matmul %h#, %v#
%x+ = add %p#, %x#
END
}
backward() {
    sed "s/#/$1/g; s/+/$(($1 + 1))/g" <<'END'
%yt# = transpose %dx+ {p0=1, p1=0}
%dv# = matmul %yt#, %h# {kn=1, f32=1}
%dh# = matmul %dx+, %v# {kn=1}
%s# = sigmoid %a#
%t# = mul %a#, %s#
%c# = sub %one, %s#
%i# = mul %t#, %c#
%j# = add %s#, %i#
%k# = mul %dh#, %b#
%da# = mul %k#, %j#
%db# = mul %dh#, %t#
%dz# = concat %da#, %db# {axis=1}
%zt# = transpose %dz# {p0=1, p1=0}
%dw# = matmul %zt#, %n# {kn=1, f32=1}
%dn# = matmul %dz#, %w# {kn=1}
%q# = sum_sq %x#
%r# = rsqrt_mean %q# {inv_n=0.00390625, eps=1e-05}
%e# = mul %dn#, %g#
%o# = mul %e#, %x#
%f# = sum %o#
%l# = mul %r#, %r#
%m# = mul %l#, %r#
%u# = mul %f#, %m#
%ua# = scale %u# {alpha=-0.00390625}
%ub# = mul %e#, %r#
%uc# = mul %x#, %ua#
%ud# = add %ub#, %uc#
%ga# = mul %dn#, %x#
%gb# = mul %ga#, %r#
%dg# = sum %gb# {columns=1}
%dx# = add %dx+, %ud#
output %dv# = %dv#
output %dw# = %dw#
output %dg# = %dg#
END
}
graph() {
    echo "%x0 = input bf16[512,256]"
    echo "%dx$1 = input bf16[512,256]"
    echo "%one = constant {to=f32, value=1.0}"
    l=0
    while [ $l -lt "$1" ]; do forward $l; l=$((l + 1)); done
    while [ $l -gt 0 ]; do l=$((l - 1)); backward $l; done
    echo "output %dx0 = %dx0"
}

# Instructions of one `coda explain`; cachegrind counts them in a third of callgrind's time.
count() {
    graph "$1" > "$out/$1.coda"
    valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file="$out/$1.count" "$coda" explain "$out/$1.coda" > "$out/$1.plan" 2> "$out/$1.log" ||
        { tail -5 "$out/$1.log"; exit 1; }
    sed -n 's/^==.* I *refs: *\([0-9,]*\)$/\1/p' "$out/$1.log" | tr -d ,
}

few=$(count 8)
many=$(count 32)
echo "linear: 8 layers take $few instructions, 32 layers $many"
[ "$many" -le $((5 * few)) ] || { echo 'linear: those are more than five times as many'; exit 1; }
