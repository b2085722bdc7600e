"""The command line ``specialk-gpu``: cluster a file, run a demo, describe the machine.

Results go to stdout. Errors and warnings go to stderr, one line each; progress goes to stderr if
that is a terminal. Exit codes: 0 done, 1 no answer (numerical failure or out of memory), 2 wrong
usage or bad input, 130 interrupted. Each command imports NumPy, scikit-learn and the estimator
only if it needs them, so that ``--help`` is quick. The command `bench` is part of the repository
(`benchmarks.suite.command`), not of the wheel.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import specialk_gpu
from specialk_gpu._arguments import PARAMETERS, Parser, image_shape
from specialk_gpu._printing import path_rows, print_results, summary

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from specialk_gpu import SpecialK

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : list of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit code: 0 done, 1 numerical failure or out of memory, 2 wrong usage or bad input,
        130 interrupted.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for the whole process
    try:
        options = _parser().parse_args(argv)
        if getattr(options, "backend", "auto") == "cuda":
            _check_backend(options)
        with _warnings_in_one_line() as warned:
            options.command(options, warned)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader stopped reading, as `head` does; files are written by now
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except MemoryError as error:
        return _fail(f"out of memory: {error}".removesuffix(": "), 1)
    except (RuntimeError, ArithmeticError) as error:
        return _fail(str(error), 1)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)
    except (ValueError, TypeError, ImportError) as error:
        # NumPy's LinAlgError is a subclass of ValueError, but means a numerical failure.
        return _fail(str(error), 1 if type(error).__name__ == "LinAlgError" else 2)
    return 0


def _fail(message: str, code: int) -> int:
    print("specialk-gpu: error:", _one_line(message), file=sys.stderr)
    return code


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


# -- options --------------------------------------------------------------------------------------


def _parser() -> Parser:
    parser = Parser(prog="specialk-gpu", description="Cluster data, and find k.")
    version = f"specialk-gpu {specialk_gpu.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    fit = commands.add_parser("fit", help="cluster a file", allow_abbrev=False)
    fit.set_defaults(command=_fit)
    path: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    fit.add_argument("input", type=Path, metavar="INPUT", help="npy, npz, csv, parquet, mtx or idx")
    fit.add_argument("--output", **path, help="write the labels here, as .npy or .csv")
    fit.add_argument("--summary", **path, help="write path, timings and versions here, as JSON")
    fit.add_argument("--model", **path, help="save the fitted model here, as .npz, for predict")
    fit.add_argument("--report", **path, help="write a report of the result here, as .html")
    shape: dict[str, Any] = {"type": image_shape, "metavar": "HxW"}
    fit.add_argument("--image-shape", **shape, help="rows are images: show some in the report")
    fit.add_argument("--true-labels", **path, help="known labels, to compute the NMI with them")
    _add_input_options(fit)
    fit.add_argument("--quiet", action="store_true", help="print no table and no progress")
    method = fit.add_argument_group("method", "Defaults are given in brackets.")
    for name, settings in PARAMETERS.items():
        method.add_argument(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, **settings)

    predict = commands.add_parser("predict", help="label new rows by a saved model")
    predict.set_defaults(command=_predict)
    predict.add_argument("model", type=Path, metavar="MODEL", help="written by fit --model")
    predict.add_argument("input", type=Path, metavar="INPUT", help="rows with the fitted columns")
    predict.add_argument("--output", **path, help="write the labels here, as .npy or .csv")
    backends: dict[str, Any] = {"choices": ("auto", "numpy", "cuda"), "default": "auto"}
    predict.add_argument("--backend", **backends, help="where to compute (auto)")
    _add_input_options(predict)

    report = commands.add_parser("report", help="write a report of a saved model")
    report.set_defaults(command=_report)
    report.add_argument("model", type=Path, metavar="MODEL", help="written by fit --model")
    report.add_argument("output", type=Path, metavar="OUTPUT", help="the report, as .html")
    report.add_argument("--input", **path, help="the fitted rows, for --image-shape")
    report.add_argument("--image-shape", **shape, help="rows are images: show some")
    _add_input_options(report)

    demo = commands.add_parser("demo", help="cluster built-in data", allow_abbrev=False)
    demo.set_defaults(command=_demo)
    shapes = ("blobs", "moons", "circles", "random")
    demo.add_argument("--data", choices=(*shapes, "digits"), default="blobs", help="(blobs)")
    demo.add_argument("--random-state", type=int, default=0, help="seed of data and method (0)")
    demo.add_argument("--backend", **backends)
    demo.add_argument("--report", **path, help="write a report of the result here, as .html")

    _add_bench(commands)
    info = commands.add_parser("info", help="describe backends, devices and versions")
    info.set_defaults(command=_info)
    return parser


def _add_bench(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the command `bench`; outside the repository it only says where to find it."""
    try:
        from benchmarks.suite import command
    except ModuleNotFoundError:
        # Without a prefix of its own, options are taken, whatever they are.
        bench = commands.add_parser(
            "bench", help="measure against other libraries", add_help=False, prefix_chars="\0"
        )
        bench.set_defaults(command=_bench_is_missing)
        bench.add_argument("options", nargs=argparse.REMAINDER)
    else:
        command.add_command(commands)


def _bench_is_missing(_options: argparse.Namespace, _warned: list[str]) -> None:
    msg = (
        "the benchmarks are not in the installed package: clone the repository, run "
        "pip install -e '.[bench]' in it, and call specialk-gpu bench again."
    )
    raise ValueError(msg)


def _add_input_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--key", help="the array to read from an .npz file with several")
    header = "whether a csv or tsv file begins with a row of names (auto)"
    command.add_argument("--header", choices=("auto", "yes", "no"), default="auto", help=header)


# -- commands -------------------------------------------------------------------------------------


def _fit(options: argparse.Namespace, warned: list[str]) -> None:
    import numpy as np

    from specialk_gpu.io import files

    inputs = options.input, options.true_labels
    _check_outputs(options, inputs, ("output", "summary", "model", "report"))
    if options.image_shape and not options.report:
        msg = "--image-shape is for the report, so it needs --report"
        raise ValueError(msg)
    parameters = {name: value for name, value in vars(options).items() if name in PARAMETERS}
    X, names = _read(options, options.input)
    if options.image_shape and math.prod(options.image_shape) != X.shape[1]:
        msg = f"--image-shape must have as many pixels as the rows have columns ({X.shape[1]})"
        raise ValueError(msg)
    true_labels = None
    if options.true_labels:
        true_labels = files.read_labels(options.true_labels)
        if len(true_labels) != X.shape[0]:
            msg = f"{options.true_labels} must hold {X.shape[0]} labels, got {len(true_labels)}"
            raise ValueError(msg)
    model, seconds = _cluster(X, parameters, quiet=options.quiet)
    if names and parameters.get("affinity") != "precomputed":
        model.feature_names_in_ = np.array(names, dtype=object)
    rows = path_rows(model, true_labels)
    try:
        if options.output:
            files.write_labels(options.output, model.labels_)
        if options.summary:
            text = json.dumps(summary(model, rows, seconds, warned), indent=2, allow_nan=False)
            options.summary.write_text(f"{text}\n", encoding="utf-8")
        if options.model:
            model.save(options.model)
        if options.report:
            shown = X if options.image_shape else None
            source = options.input.name
            model.report(options.report, X=shown, image_shape=options.image_shape, source=source)
    finally:  # print the answer even if a file cannot be written
        print_results(model, rows, seconds, table=not options.quiet)


def _read(
    options: argparse.Namespace, path: Path
) -> tuple[np.ndarray | sparse.csr_array, list[str] | None]:
    """Return the matrix in a file, and the names of its columns (or None)."""
    from specialk_gpu.io.files import read_table

    header = {"yes": True, "no": False}.get(options.header)
    return read_table(path, key=options.key, header=header)


def _predict(options: argparse.Namespace, _warned: list[str]) -> None:
    import numpy as np

    from specialk_gpu import SpecialK
    from specialk_gpu.inspection.diagnostics import counted
    from specialk_gpu.io.files import write_labels

    _check_outputs(options, (options.model, options.input), ("output",))
    model = SpecialK.load(options.model).set_params(backend=options.backend)
    X, given = _read(options, options.input)
    fitted = model.__dict__.pop("feature_names_in_", None)
    if fitted is not None and given and given != fitted.tolist():
        msg = f"the columns must be those of the fit, {', '.join(fitted)}, got {', '.join(given)}"
        raise ValueError(msg)
    labels = model.predict(X)
    if options.output:
        write_labels(options.output, labels)
    counts = np.bincount(labels, minlength=model.n_clusters_).tolist()
    for cluster, count in enumerate(counts):
        print(f"cluster {cluster}: {counted(count, 'row')}")


def _report(options: argparse.Namespace, _warned: list[str]) -> None:
    from specialk_gpu import SpecialK

    _check_outputs(options, (options.model, options.input), ("output",), labels=False)
    if bool(options.input) != bool(options.image_shape):
        msg = "--input and --image-shape go together: give both, or neither"
        raise ValueError(msg)
    if not options.input and (options.key or options.header != "auto"):
        msg = "--key and --header are for reading --input, which was not given"
        raise ValueError(msg)
    model = SpecialK.load(options.model)
    X = _read(options, options.input)[0] if options.input else None
    source = options.model.name
    model.report(options.output, X=X, image_shape=options.image_shape, source=source)


def _demo(options: argparse.Namespace, _warned: list[str]) -> None:
    from sklearn.datasets import load_digits

    from specialk_gpu.datasets import make_shape

    _check_outputs(options, (), ("report",))
    if options.data == "digits":
        X, y = load_digits(return_X_y=True)
        print(f"digits: {len(X)} images of 8 x 8 pixels, ten digits")
    else:
        X, y = make_shape(options.data, 0.1, random_state=options.random_state)
        print(f"{options.data}: {len(X)} points in the plane, true k = {y.max() + 1}")
    parameters = {"backend": options.backend, "random_state": options.random_state}
    model, seconds = _cluster(X, parameters, quiet=False)
    try:
        if options.report:
            images: dict[str, Any] = (
                {"X": X, "image_shape": (8, 8)} if options.data == "digits" else {}
            )
            model.report(options.report, source=options.data, **images)
    finally:
        print_results(model, path_rows(model, y), seconds, table=True)


def _info(_options: argparse.Namespace, _warned: list[str]) -> None:
    from specialk_gpu._environment import optional_versions, package_versions
    from specialk_gpu.backend import describe_backends
    from specialk_gpu.backend.cpu.threads import n_threads
    from specialk_gpu.backend.driver import driver_text

    def listed(versions: Mapping[str, object]) -> str:
        return ", ".join(f"{name} {version}".rstrip() for name, version in versions.items())

    optional = optional_versions()
    print(f"system: {platform.platform()}")
    print("versions:", listed(package_versions()))
    print("optional:", listed({name: found for name, found in optional.items() if found}) or "none")
    print("not installed:", ", ".join(name for name in optional if not optional[name]) or "none")
    print(f"threads: {n_threads()}, OMP_NUM_THREADS {os.environ.get('OMP_NUM_THREADS', 'not set')}")
    print(f"NVIDIA driver: {driver_text()}")
    for row in describe_backends():
        if not row["available"]:
            print(f"backend {row['name']}: not available: {_one_line(row['reason'])}")
            continue
        print(f"backend {row['name']}: available ({listed(row['versions'])})")
        for device in row["devices"]:
            capability = device.get("compute_capability")
            suffix = f", compute capability {capability}" if capability else ""
            print(f"  device: {device['name']}, {device['memory'] / 2**30:.1f} GiB{suffix}")


def _check_backend(options: argparse.Namespace) -> None:
    """Raise a ValueError (exit code 2: wrong usage) if the backend cannot run here."""
    from specialk_gpu.backend import get_backend

    try:
        get_backend(options.backend)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _check_outputs(
    options: argparse.Namespace,
    inputs: Iterable[Path | None],
    names: Iterable[str],
    *,
    labels: bool = True,
) -> None:
    """Check, before any work is done, that the results can be written."""
    from specialk_gpu.io.files import LABEL_FORMATS

    output = getattr(options, "output", None)
    if labels and output and output.suffix.lower() not in LABEL_FORMATS:
        msg = f"--output must end in {' or '.join(LABEL_FORMATS)}, got {output}"
        raise ValueError(msg)
    taken = {path.resolve() for path in inputs if path}
    for name in names:
        flag, path = f"--{name}" if labels else name.upper(), getattr(options, name)
        if path is None:
            continue
        if path.is_dir() or not path.parent.is_dir():
            msg = f"{flag} must name a file in a folder that exists, got {path}"
            raise ValueError(msg)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            msg = f"{flag} must name a file that can be written, got {path}"
            raise ValueError(msg)
        if path.resolve() in taken:
            msg = f"{flag} would overwrite another file of this command, got {path}"
            raise ValueError(msg)
        taken.add(path.resolve())


def _cluster(
    X: np.ndarray | sparse.csr_array, parameters: dict[str, Any], *, quiet: bool
) -> tuple[SpecialK, float]:
    """Fit the estimator; return it and the seconds it took."""
    from specialk_gpu import SpecialK

    verbose = int(not quiet and sys.stderr.isatty())
    start = time.perf_counter()
    model = SpecialK(**parameters, verbose=verbose).fit(X)
    return model, time.perf_counter() - start


# -- stderr ---------------------------------------------------------------------------------------


@contextmanager
def _warnings_in_one_line() -> Iterator[list[str]]:
    """Print each warning for users once, as one line; yield the list of printed warnings."""
    warned: list[str] = []

    def show(message: object, *_args: object, **_kwargs: object) -> None:
        text = _one_line(message)
        if text not in warned:
            warned.append(text)
            print("specialk-gpu: warning:", text, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = show
        yield warned


if __name__ == "__main__":
    sys.exit(main())
