"""Where the seconds of a fresh process go: imports, the backend, the first and the second fit.

    python -m benchmarks.first_call --folder FOLDER --backend cuda

Every step is a process of its own. On CUDA the fits are done with an empty kernel cache and then
with the one that they left; compilations are counted where CuPy hands a source to NVRTC. Writes
results/first_call-BACKEND.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.stamp import RESULTS, write

ROOT = Path(__file__).parents[1]


def run(*command: str, **environment: str) -> tuple[float, str]:
    """Return the seconds and the output of a fresh Python process."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return time.perf_counter() - began, done.stdout


def count_compilations() -> list[float]:
    """Keep the seconds of each compilation by NVRTC from now on."""
    from cupy.cuda import nvrtc

    spent: list[float] = []
    compile_program = nvrtc.compileProgram

    def timed(*arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return compile_program(*arguments)
        finally:
            spent.append(time.perf_counter() - began)

    nvrtc.compileProgram = timed
    return spent


def fits(backend: str, folder: str | None, rows: int, n_components: int) -> dict[str, Any]:
    """Import, start the backend and fit twice, in this process."""
    clock = time.perf_counter
    marks = [clock()]
    from specialk_gpu import SpecialK

    marks.append(clock())
    from specialk_gpu.backend import get_backend

    compilations = count_compilations() if backend == "cuda" else []  # imports CuPy
    get_backend(backend)
    marks.append(clock())
    from benchmarks.suite.cases import Case, points

    data, d = ("mnist", 784) if folder else ("mixture", 64)
    X = points(Case("fit", data, rows, d), folder)
    content: dict[str, Any] = {
        "data": f"{data}, {X.shape[0]} x {X.shape[1]}",
        "n_components": n_components,
        "import_seconds": marks[1] - marks[0],
        "backend_seconds": marks[2] - marks[1],
        "backend_compilations": len(compilations),
        "fits": [],
    }
    for _ in range(2):
        before, began = len(compilations), clock()
        model = SpecialK(
            n_components=n_components,
            max_clusters=11,
            full_path=True,
            criterion="zz_top",
            backend=backend,
            random_state=0,
        ).fit(X)
        row = {"seconds": clock() - began, "stages": model.timings_}
        if backend == "cuda":
            new = compilations[before:]
            row |= {"compilations": len(new), "compilation_seconds": sum(new)}
        content["fits"].append(row)
    first = content["fits"][0]["seconds"]
    content["to_first_answer"] = content["import_seconds"] + content["backend_seconds"] + first
    return content


def main() -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="folder with MNIST's idx files; a mixture without")
    parser.add_argument("--backend", default="numpy", choices=("numpy", "cuda"))
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--n-components", type=int, default=1000)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = (arguments.rows, arguments.n_components)
    if arguments.here:
        print(json.dumps(fits(arguments.backend, arguments.folder, *size)))
        return
    steps = {
        "python": ["-c", "pass"],
        "import numpy, scipy.sparse": ["-c", "import numpy, scipy.sparse"],
        "import specialk_gpu": ["-c", "import specialk_gpu"],
        "from specialk_gpu import SpecialK": ["-c", "from specialk_gpu import SpecialK"],
        "specialk-gpu --help": ["-m", "specialk_gpu.cli", "--help"],
    }
    content: dict[str, Any] = {"processes": {}}
    for name, command in steps.items():
        content["processes"][name] = sorted(run(*command)[0] for _ in range(3))[1]
        print(f"{name}: {content['processes'][name]:.2f} s", flush=True)
    write(f"first_call-{arguments.backend}", content, arguments.results)
    command = ["-m", "benchmarks.first_call", "--here", "--backend", arguments.backend]
    command += ["--rows", str(size[0]), "--n-components", str(size[1])]
    command += ["--folder", arguments.folder] if arguments.folder else []
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty cache", "warm cache") if arguments.backend == "cuda" else ("",):
            wall, out = run(*command, CUPY_CACHE_DIR=cache)
            found = json.loads(out.splitlines()[-1]) | {"process_seconds": wall}
            content[name.replace(" ", "_") or "fresh"] = found
            print(name, json.dumps(found), flush=True)
            write(f"first_call-{arguments.backend}", content, arguments.results)


if __name__ == "__main__":
    main()
