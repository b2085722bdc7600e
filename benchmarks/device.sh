#!/usr/bin/env bash
# The check on a machine with a GPU: the CUDA half of the tests, then MNIST cold and warm.
#   bash benchmarks/device.sh RESULTS MNIST_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
results=${1:?folder for the results} mnist=${2:?folder with the idx files of MNIST}
mkdir -p "$results"
failed=0
python3 -m pytest --require-gpu -m gpu -q -p no:cacheprovider > "$results/pytest.txt" 2>&1 || failed=1
tail -n 30 "$results/pytest.txt"
timeout 200 python3 -m benchmarks.mnist --folder "$mnist" --backend cuda --warm 2 --seeds 3 \
    --results "$results" || failed=1
exit $failed
