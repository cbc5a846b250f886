#!/usr/bin/env bash
# Accuracy of the GPU engine beside llama.cpp's, by the gate: a report for every model goes into OUT.
#
#   bench/gpu/accuracy.sh SPARKINFER LLAMA_PERPLEXITY OUT MODEL.gguf…
#
# Ends with 1 if any gate fails; the others are measured all the same.
set -uo pipefail
sparkinfer=$1 peer=$2 out=$3
shift 3
here=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
failed=0
for model; do
    name=$(basename "$model" .gguf)
    "$sparkinfer" accuracy --model "$model" --device cuda --reference cpu-f32,cuda-f32 --peer "$peer" \
        --file "$here/tests/data/heldout.txt" --windows 8 --way-depth 0,256,1024 --depth 0,512,1900 --depth-kv-types bf16,q8_0 \
        --gate "$here/eval/gates/gpu.json" --json "$out/$name.json" --plot "$out/$name.svg" || failed=1
done
exit $failed
