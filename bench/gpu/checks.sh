#!/usr/bin/env bash
# What must hold on a GPU and cannot be seen without one; tells in one line for each, and leaves the details in OUT.
#
#   bench/gpu/checks.sh PROGRAMS OUT [LLAMA_CPP]
#
# PROGRAMS is a folder with `sparkinfer`, `gpu-tests` and `mmvq_stream`, LLAMA_CPP one with llama.cpp's programs and libraries.
# Needs 4 GB of /tmp or of the tmpfs that TMPDIR names. About three minutes on an H200.
set -uo pipefail
programs=$(cd "$1" && pwd) out=$2 peer=${3:-}
here=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# check NAME COMMAND…: output to OUT/NAME.txt, a verdict to standard output.
check() {
    local name=$1 before=$SECONDS
    shift
    if "$@" >"$out/$name.txt" 2>&1; then
        echo "PASS $name ($((SECONDS - before)) s)"
    else
        echo "FAIL $name, see $name.txt: $(tail -n 1 "$out/$name.txt")"
        failed=1
    fi
}

sparkinfer() { "$programs/sparkinfer" "$@"; }

# Greedy text of the file, twice more the same.
repeats() {
    local first next
    first=$(sparkinfer generate --model "$1" --prompt "The river" -n 512 --temp 0 --ignore-eos --quiet | sha256sum) || return 1
    for _ in 1 2; do
        next=$(sparkinfer generate --model "$1" --prompt "The river" -n 512 --temp 0 --ignore-eos --quiet | sha256sum) || return 1
        [ "$first" = "$next" ] || return 1
    done
    echo "$first"
}

# Two layers of Qwen3-30B-A3B's shapes: every kernel of the fused path at its real sizes.
two=$work/two.gguf
check synth sparkinfer synth --arch qwen3-30b-a3b --quant q4_k_m --layers 2 --out "$two"
check kernels "$programs/gpu-tests" --program "$programs/sparkinfer" --json "$out/gpu-tests.json"
if command -v compute-sanitizer >/dev/null; then
    check memcheck compute-sanitizer --error-exitcode 1 --tool memcheck \
        "$programs/sparkinfer" generate --model "$two" --prompt "The river" -n 4 --temp 0 --ignore-eos
    check racecheck compute-sanitizer --error-exitcode 1 --tool racecheck \
        "$programs/sparkinfer" generate --model "$two" --prompt "The river" -n 2 --temp 0 --ignore-eos
fi
check repeats repeats "$two"
text=$here/tests/data/heldout.txt
# Near the first token, around a page's edge (64 tokens), and far: the f32 kernels against the CPU's f32.
check reference sparkinfer accuracy --device cuda --f32 --reference cpu-f32 --file "$text" --ctx 128 --windows 1 --write 0 \
    --way-depth 0 --depth 1,63,64,65,1900 --tokens-at-depth 8 \
    --gate "$here/eval/gates/reference.json" --json "$out/accuracy-reference.json"
check deep_cpu sparkinfer accuracy --model "$two" --device cuda --reference cpu --file "$text" --ctx 64 --windows 1 --write 0 \
    --way-depth 0 --depth 4096 --tokens-at-depth 8 --no-hash \
    --gate "$here/eval/gates/deep.json" --json "$out/accuracy-two-layers-cpu.json"
check deep sparkinfer accuracy --model "$two" --device cuda --reference cuda-f32 --file "$text" --ctx 64 --windows 1 --write 0 \
    --way-depth 0 --depth 40000 --tokens-at-depth 16 --no-hash \
    --gate "$here/eval/gates/deep.json" --json "$out/accuracy-two-layers-40k.json"
if [ -n "$peer" ]; then
    LD_LIBRARY_PATH=$peer check accuracy "$here/bench/gpu/accuracy.sh" "$programs/sparkinfer" "$peer/llama-perplexity" "$out" \
        "$here/models/tiny-qwen3moe-q4_k_m.gguf"
fi
check products "$programs/mmvq_stream" --rows 1048576 --repeats 5 --out "$out/mmvq.json"
exit $failed
