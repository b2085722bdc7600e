#!/usr/bin/env bash
# The whole check on a fresh machine with a GPU, within eight minutes:
#   bash benchmarks/device.sh RESULTS MNIST_FOLDER
# Needs Python with CuPy, NumPy, SciPy, scikit-learn and pytest; PyTorch takes part where it is
# there. Each step has a limit of its own and goes on where an earlier one failed; what is most
# wanted comes first. Ends with the figures to reach, and with 1 where a step failed.
set -uo pipefail
cd "$(dirname "$0")/.."
results=$(realpath -m "${1:?folder for the results}")
mnist=$(realpath "${2:?folder with the idx files of MNIST}")
total=${3:-470}
mkdir -p "$results"
python=${PYTHON:-python3}
failed=()

step() { # NAME SECONDS COMMAND...: at most SECONDS, and no longer than there is time
    local name=$1 limit=$2 left=$((total - SECONDS))
    shift 2
    if ((left < limit)); then limit=$left; fi
    printf '\n== %s (at %s s)\n' "$name" "$SECONDS"
    if ((limit < 5)); then
        failed+=("$name: no time left")
    else
        timeout --kill-after=5 "$limit" "$@" > "$results/$name.txt" 2>&1 ||
            failed+=("$name: exit code $?")
        tail -n 25 "$results/$name.txt" | cut -c1-220
    fi
}

bench() { # STAGE SECONDS TIME_LIMIT OPTIONS...
    local stage=$1 limit=$2 each=$3
    shift 3
    step "bench-$stage" "$limit" "$python" -m specialk_gpu.cli bench --stage "$stage" --size large \
        --backend cuda --data "$mnist" --time-limit "$each" --out "$results/bench-$stage-cuda.json" "$@"
}

on_mnist=(--folder "$mnist" --backend cuda --results "$results")
images=$(find "$mnist" -name 'train-images-idx3-ubyte*' | head -n 1)

step first_call 75 "$python" -m benchmarks.first_call "${on_mnist[@]}"
step tests 120 "$python" -m pytest --require-gpu -m gpu -q -p no:cacheprovider \
    --continue-on-collection-errors
step mnist 60 "$python" -m benchmarks.mnist "${on_mnist[@]}" --warm 3 --seeds 3
step repeat 40 "$python" -m benchmarks.repeat "${on_mnist[@]}" --fits 10
bench eigenpairs 60 40
bench fit 80 60 --alone
bench sweep 60 30
step radius 60 "$python" -m specialk_gpu.cli fit "$images" --affinity radius_neighbors \
    --n-components 1000 --full-path --max-clusters 11 --random-state 0 --backend cuda \
    --summary "$results/radius-cuda.json"
bench knn 110 30
bench spmm 60 30

printf '\n== figures to reach (at %s s)\n' "$SECONDS"
"$python" -m benchmarks.reach "$results" | tee "$results/reach.txt"
for line in "${failed[@]}"; do printf 'failed: %s\n' "$line"; done | tee "$results/failed.txt"
exit $((${#failed[@]} > 0))
