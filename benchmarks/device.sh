#!/usr/bin/env bash
# The whole check on a fresh machine with a GPU, within eight minutes:
#   bash benchmarks/device.sh RESULTS MNIST_FOLDER
# and, to see faults of this script without a GPU, the same commands at tiny sizes on the stand-in
# for CuPy, one after another, with made-up images:
#   bash benchmarks/device.sh --stand-in RESULTS
# Needs Python with CuPy, what the package requires, and pytest; pytest-xdist and PyTorch take part
# where they are there. What is most wanted comes first; each step writes its results at once and
# goes on where an earlier one failed. A step has its first number of seconds whatever the others
# do: these add up to 460. It may take up to its second where the steps before left some. So the
# script ends within 470 seconds, those included in which a last step that hangs is killed. Then
# come the figures to reach; the exit code is 1 where a step failed.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
note=''
size=large rows=60000 n=1000 fits=10 warm=3 seeds=3 scale=1 workers=8 tests=(--require-gpu -m gpu)
if [[ ${1:-} == --stand-in ]]; then
    note=', whose times mean nothing here'
    size=small rows=150 n=10 fits=2 warm=1 seeds=2 scale=4 workers=2
    tests=(--stand-in -m gpu tests/test_backend.py)
    images=$(mktemp -d)
    trap 'rm -rf "$images"' EXIT
    set -- "${2:?folder for the results}" "$images"
    # What names CuPy has is read from CuPy itself, once, while it can be imported.
    PYTHONPATH=tests "$python" -c 'import stand_in' || exit
    PYTHONPATH=$PWD/tests/stand_in/everywhere${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
    "$python" - "$2" "$rows" << 'END' || exit
import struct
import sys
import numpy as np

folder, m = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
y = rng.integers(3, size=m).astype(np.uint8)
X = (60 * y[:, None] + rng.integers(80, size=(m, 784))).astype(np.uint8)
for name, content in (("images-idx3", X.reshape(m, 28, 28)), ("labels-idx1", y)):
    head = struct.pack(f">HBB{content.ndim}I", 0, 8, content.ndim, *content.shape)
    for subset in ("train", "t10k"):
        with open(f"{folder}/{subset}-{name}-ubyte", "wb") as file:
            file.write(head + content.tobytes())
END
fi
: "${1:?folder for the results}" "${2:?folder with the idx files of MNIST}"
results=$(realpath -m "$1")
mnist=$(realpath -e "$2") || exit
total=$((scale * 462)) promised=$((scale * 460))
mkdir -p "$results"
failed=()

step() { # NAME SECONDS SECONDS COMMAND...: what it has in any case, and what it may take
    local name=$1 limit=$((scale * $3)) left began=$SECONDS code
    promised=$((promised - scale * $2))
    left=$((total - SECONDS - promised))
    if ((left < limit)); then limit=$left; fi
    shift 3
    printf '\n== %s (at %s s, has %s s)\n' "$name" "$SECONDS" "$limit"
    if ((limit < 3)); then
        failed+=("$name: no time left")
        return
    fi
    timeout --signal=INT --kill-after=5 "$limit" "$@" > "$results/$name.txt" 2>&1 || {
        code=$?
        failed+=("$name: exit code $code after $((SECONDS - began)) s")
    }
    tail -n 25 "$results/$name.txt" | cut -c1-220
}

bench() { # STAGE SECONDS SECONDS TIME_LIMIT OPTIONS...
    local stage=$1 least=$2 most=$3 each=$((scale * $4))
    shift 4
    step "bench-$stage" "$least" "$most" "$python" -m specialk_gpu.cli bench --stage "$stage" \
        --size "$size" --backend cuda --data "$mnist" --time-limit "$each" \
        --out "$results/bench-$stage-cuda.json" "$@"
}

on_mnist=(--folder "$mnist" --backend cuda --results "$results")
file=$(find "$mnist" -name 'train-images-idx3-ubyte*' | head -n 1)
if "$python" -c 'import xdist' 2> /dev/null; then tests+=(-n "$workers"); fi

step info 20 30 "$python" -m specialk_gpu.cli info
step tests 105 190 "$python" -m pytest "${tests[@]}" -q -p no:cacheprovider \
    --continue-on-collection-errors -o faulthandler_timeout=40
step mnist 50 90 "$python" -m benchmarks.mnist "${on_mnist[@]}" --n-components "$n" --warm "$warm" \
    --seeds "$seeds"
step first_call 50 75 "$python" -m benchmarks.first_call "${on_mnist[@]}" --rows "$rows" \
    --n-components "$n"
bench fit 50 80 40 --alone
bench eigenpairs 40 60 20
bench sweep 30 60 20
step repeat 25 40 "$python" -m benchmarks.repeat "${on_mnist[@]}" --rows "$rows" \
    --n-components "$n" --fits "$fits"
step radius 25 60 "$python" -m specialk_gpu.cli fit "$file" --affinity radius_neighbors --criterion zz_top \
    --n-components "$n" --full-path --max-clusters 11 --random-state 0 --backend cuda \
    --summary "$results/radius-cuda.json"
bench knn 40 110 20
bench spmm 25 60 15

printf '\n== figures to reach%s (at %s s)\n' "$note" "$SECONDS"
"$python" -m benchmarks.reach "$results" | tee "$results/reach.txt"
if ((promised != 0)); then failed+=("the seconds do not add up: $promised are left"); fi
for line in "${failed[@]}"; do printf 'failed: %s\n' "$line"; done | tee "$results/failed.txt"
exit $((${#failed[@]} > 0))
