#!/usr/bin/env bash
# What must hold on a GPU and cannot be seen without one; tells in one line for each, with the seconds that it took, and
# leaves the details in OUT.
#
#   bench/gpu/checks.sh PROGRAMS OUT [LLAMA_CPP] [MODELS] [REFERENCE]
#
# PROGRAMS is a folder with `sparkinfer`, `gpu-tests` and `mmvq_stream`, LLAMA_CPP one with llama.cpp's programs and libraries
# (`-` for none), MODELS one with model files whose tokens the GPU and the CPU must agree on (`-` for none; `cut-models` makes some),
# REFERENCE the f32 reference behind 40,000 tokens, which takes a CPU minutes; on any machine, with two.gguf as made below:
#
#   sparkinfer accuracy --model two.gguf --file tests/data/heldout.txt --windows 1 --ctx 34 --depth 40000 --tokens-at-depth 8 \
#       --write 0 --no-hash --record REFERENCE
#
# Needs 4 GB of /tmp or of the tmpfs that TMPDIR names. The short checks come first; none may take longer than its limit.
set -uo pipefail
programs=$(cd "$1" && pwd) out=$2 peer=${3:--} models=${4:--} reference=${5:-}
here=$(cd "$(dirname "$0")/../.." && pwd)
sparkinfer=$programs/sparkinfer
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# check NAME LIMIT COMMAND…: output to OUT/NAME.txt, a verdict to standard output. LIMIT is in seconds.
check() {
    local name=$1 limit=$2 before=$SECONDS verdict
    shift 2
    timeout "$limit" "$@" >"$out/$name.txt" 2>&1
    case $? in
    0) verdict="PASS $name" ;;
    124) verdict="FAIL $name, not done" failed=1 ;;
    *) verdict="FAIL $name, see $name.txt: $(tail -n 1 "$out/$name.txt")" failed=1 ;;
    esac
    echo "$verdict ($((SECONDS - before)) of $limit s)"
}

# Greedy tokens of a file, three times the same, each time by a process of its own.
repeats() {
    local first='' ids
    for _ in 1 2 3; do
        ids=$("$1" generate --model "$2" --prompt "The river" -n 512 --temp 0 --ignore-eos --show-tokens --quiet) || return 1
        [ "$ids" = "${first:=$ids}" ] || { echo "other tokens"; return 1; }
    done
    sha256sum <<<"$first"
}
export -f repeats

# Two layers of Qwen3-30B-A3B's shapes: every kernel of the fused path at its real sizes.
two=$work/two.gguf
text=$here/tests/data/heldout.txt
accuracy=("$sparkinfer" accuracy --device cuda --file "$text" --windows 1 --write 0 --way-depth 0)
long=("${accuracy[@]}" --model "$two" --tokens-at-depth 8 --no-hash --gate "$here/eval/gates/deep.json")
check synth 10 "$sparkinfer" synth --arch qwen3-30b-a3b --quant q4_k_m --layers 2 --out "$two"
check repeats 15 bash -c 'repeats "$@"' repeats "$sparkinfer" "$two"
check repeat 30 "$sparkinfer" repeat --device cuda --model "$two" --no-hash --json "$out/repeat-two-layers.json"
# Near the first token, around a page's edge (64 tokens), and far: the f32 kernels against the CPU's f32.
check reference 15 "${accuracy[@]}" --f32 --reference cpu-f32 --ctx 128 --depth 1,63,64,65,1900 --tokens-at-depth 8 \
    --gate "$here/eval/gates/reference.json" --json "$out/accuracy-reference.json"
if [ "$models" != - ]; then
    check models 15 "$programs/gpu-tests" --models "$models" --json "$out/models.json"
fi
if [ "$peer" != - ]; then
    LD_LIBRARY_PATH=$peer check accuracy 30 "$here/bench/gpu/accuracy.sh" "$sparkinfer" "$peer/llama-perplexity" "$out" \
        "$here/models/tiny-qwen3moe-q4_k_m.gguf"
fi
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        check $tool 30 compute-sanitizer --error-exitcode 1 --tool $tool \
            "$sparkinfer" generate --model "$two" --prompt "The river" -n 2 --temp 0 --ignore-eos
    done
fi
check kernels 40 "$programs/gpu-tests" --program "$sparkinfer" --json "$out/gpu-tests.json"
for depth in 4096 16384; do
    check deep-$depth 40 "${long[@]}" --reference cpu-f32 --ctx 64 --depth $depth \
        --json "$out/accuracy-two-layers-$depth.json"
done
if [ -n "$reference" ]; then
    check deep-40000 40 "${long[@]}" --reference-file "$reference" --ctx 34 --depth 40000 \
        --json "$out/accuracy-two-layers-40000.json"
fi
check products 40 "$programs/mmvq_stream" --rows 1048576 --repeats 5 --out "$out/mmvq.json"
exit $failed
