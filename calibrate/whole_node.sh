#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Calibrates and judges a whole node in two calls of at most ten minutes each, for machines that are rented by the minute.
#
#     calibrate/whole_node.sh predict OUT   what the runs will show, without a GPU; commit it before the second call
#     calibrate/whole_node.sh probes OUT    probes of all GPUs, and the check of every method
#     calibrate/whole_node.sh run OUT       one and two blocks of Llama-3-8B at 512K, 1M and 2M tokens; what would end after
#                                           ten minutes is recorded as left out
#
# HEADROOM names the program (default: headroom), GPUS the GPUs (default: 8), CALIBRATION the constants of the prediction.
set -uo pipefail
part=${1:?predict, probes or run} out=${2:?a folder for the results}
headroom=${HEADROOM:-headroom} gpus=${GPUS:-8}
mkdir -p "$out"
constants=(${CALIBRATION:+--calibration "$CALIBRATION"})
begin=$SECONDS

# budget SECONDS -> what is left of it since the script began, but never nothing
left() { echo $(($1 > SECONDS - begin ? $1 - (SECONDS - begin) : 1)); }

# Ulysses as large as the node, its half beside a ring, a ring of all.
runs() {
    local layers=$1 contexts=$2 suffix=$3
    shift 3
    common=(--gpus "$gpus" --layers "$layers" --context "$contexts" "${constants[@]}" "$@")
    "$headroom" calibrate run --method ulysses,ring,upipe,fpdt --heads-per-stage 8,16,32 --chunk-tokens 16K,64K \
        "${common[@]}" ${suffix:+-o "$out/runs-$suffix.jsonl"} || failed=1
    "$headroom" calibrate run --method usp --ulysses $((gpus / 2)) --ring 2 \
        "${common[@]}" ${suffix:+-o "$out/runs-usp-$suffix.jsonl"} || failed=1
}

failed=0
case $part in
predict)
    for layers in 1 2; do runs $layers 512K,1M,2M "" --dry-run; done | tee "$out/predictions.txt"
    ;;
probes)
    "$headroom" calibrate probes --budget 180 -o "$out/probes.jsonl" || failed=1
    "$headroom" calibrate fit "$out/probes.jsonl" -o "$out/node.yaml" || failed=1
    "$headroom" calibrate check --ranks "1,$((gpus / 2)),$gpus" -o "$out/check.jsonl" || failed=1
    ;;
run)
    runs 1 512K 1-block-512k --steps 2 --warm 1 --budget "$(left 180)"
    runs 2 512K 2-blocks-512k --steps 1 --warm 1 --budget "$(left 330)"
    runs 1 1M 1-block-1m --steps 1 --warm 1 --budget "$(left 480)"
    runs 1 2M 1-block-2m --steps 1 --warm 0.1 --budget "$(left 570)"
    ;;
*)
    echo "whole_node.sh: '$part' is not predict, probes or run" >&2
    exit 2
    ;;
esac
exit "$failed"
