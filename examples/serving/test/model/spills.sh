#!/bin/sh
# spills.sh EMBED SIZES -- kernels of encoders in their real sizes (sizes/NAME/config.json), compiled by NVRTC: none
# spills a register. ViT's in bf16; with $CODA_FULL all, in both 16-bit types.
set -eu
embed=$1 sizes=$2 kernels=0
which=vit
[ -z "${CODA_FULL:-}" ] || which="minilm siglip vit"
for name in $which; do
    folder=$sizes/$name
    for dtype in bf16 ${CODA_FULL:+f16}; do
        page=$("$embed" --random --gpu --dtype $dtype --plan "$folder" 2>/dev/null) || { echo "$folder: no plan" && exit 1; }
        if echo "$page" | grep ' bytes spilled,' | grep -v ' 0 bytes spilled,'; then
            echo "$folder in $dtype: kernels spill" && exit 1
        fi
        n=$(echo "$page" | grep -c ' 0 bytes spilled,')
        [ "$n" -gt 9 ] || { echo "$folder in $dtype: $n kernels" && exit 1; }
        kernels=$((kernels + n))
    done
done
echo "$kernels kernels of encoders, without spills"
