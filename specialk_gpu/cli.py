"""The command line ``specialk-gpu``: cluster a file, run a demo, describe the machine.

Results go to stdout. Errors and warnings go to stderr, one line each; progress goes to stderr, as a
bar if that is a terminal, otherwise as a line a minute. Exit codes: 0 done, 1 no answer (numerical
failure, out of memory or of time), 2 wrong usage or bad input, 130 interrupted. NumPy, scikit-learn
and the estimator are imported only if needed. The command `bench` is in the repository
(`benchmarks.suite.command`), not in the wheel.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import specialk_gpu
from specialk_gpu._affinities import is_graph
from specialk_gpu._command_files import (
    STANDARD_INPUT,
    check_outputs,
    chosen_columns,
    input_as_file,
    reading_of_file,
)
from specialk_gpu._commands import add_bench, add_compare, add_estimate, add_info
from specialk_gpu._options import (
    PARAMETERS,
    OptionsParser,
    add_column_options,
    add_input_options,
    image_shape_option,
    in_words_of_options,
)
from specialk_gpu._printable import printable
from specialk_gpu._printing import (
    path_for_printing,
    print_results,
    printed_line,
    summary_for_printing,
    warnings_in_one_line,
)

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from specialk_gpu import SpecialK
    from specialk_gpu.tables.preparation import Preparation
    from specialk_gpu.tables.prepared import Prepared

__all__ = ["main"]

READ = "npy, npz, csv, parquet, mtx or idx; - reads csv from standard input"
NEW = "rows with the fitted columns; - reads csv from standard input"


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : list of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit code: 0 done, 1 numerical failure, out of memory or of time, 2 wrong usage or bad
        input, 130 interrupted.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for the whole process
    try:
        options = _cli_parser().parse_args(argv)
        if getattr(options, "backend", "auto") == "cuda":
            _check_cli_backend(options)
        with warnings_in_one_line(in_words_of_options) as warned:
            options.command(options, warned)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader stopped reading, as `head` does; files are written by now
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return _fail_cli("interrupted", 130)
    except MemoryError as error:
        return _fail_cli(f"out of memory: {error}".removesuffix(": "), 1)
    except (RuntimeError, ArithmeticError, TimeoutError) as error:
        return _fail_cli(str(error), 1)
    except OSError as error:
        place = printable(error.filename) if error.filename else ""
        return _fail_cli(f"{place}: {error.strerror}" if place else str(error), 2)
    except (ValueError, TypeError, ImportError) as error:
        # NumPy's LinAlgError is a subclass of ValueError, but means a numerical failure.
        return _fail_cli(str(error), 1 if type(error).__name__ == "LinAlgError" else 2)
    return 0


def _fail_cli(message: str, code: int) -> int:
    print("specialk-gpu: error:", printed_line(in_words_of_options(message)), file=sys.stderr)
    return code


# -- options --------------------------------------------------------------------------------------


def _cli_parser() -> OptionsParser:
    parser = OptionsParser(prog="specialk-gpu", description="Cluster data, and find k.")
    version = f"specialk-gpu {specialk_gpu.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    fit = commands.add_parser("fit", help="cluster a file", allow_abbrev=False)
    fit.set_defaults(command=_cli_fit)
    path: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    fit.add_argument("input", type=Path, metavar="INPUT", help=READ)
    fit.add_argument("--output", **path, help="write the labels here, as .npy or .csv")
    fit.add_argument("--summary", **path, help="write path, timings and versions here, as JSON")
    fit.add_argument("--model", **path, help="save the fitted model here, as .npz, for predict")
    fit.add_argument("--report", **path, help="write a report of the result here, as .html")
    shape: dict[str, Any] = {"type": image_shape_option, "metavar": "HxW"}
    steady = "fit again with small changes: how steady are the clusters? Also in the report"
    fit.add_argument("--stability", action="store_true", help=steady)
    fit.add_argument("--image-shape", **shape, help="rows are images: show some in the report")
    fit.add_argument("--true-labels", **path, help="known labels, to compute the NMI with them")
    add_input_options(fit)
    add_column_options(fit)
    fit.add_argument("--quiet", action="store_true", help="print no table and no progress")
    method = fit.add_argument_group("method", "Defaults are given in brackets.")
    for name, settings in PARAMETERS.items():
        method.add_argument(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, **settings)

    predict = commands.add_parser("predict", help="label new rows by a saved model")
    predict.set_defaults(command=_cli_predict)
    predict.add_argument("model", type=Path, metavar="MODEL", help="written by fit --model")
    predict.add_argument("input", type=Path, metavar="INPUT", help=NEW)
    predict.add_argument("--output", **path, help="write the labels here, as .npy or .csv")
    backends: dict[str, Any] = {"choices": ("auto", "numpy", "cuda"), "default": "auto"}
    predict.add_argument("--backend", **backends, help="where to compute (auto)")
    add_input_options(predict)

    report = commands.add_parser("report", help="write a report of a saved model")
    report.set_defaults(command=_cli_report)
    report.add_argument("model", type=Path, metavar="MODEL", help="written by fit --model")
    report.add_argument("output", type=Path, metavar="OUTPUT", help="the report, as .html")
    report.add_argument("--input", **path, help="the fitted rows, to show their columns or images")
    report.add_argument("--image-shape", **shape, help="rows are images: show some")
    add_input_options(report)

    demo = commands.add_parser("demo", help="cluster built-in data", allow_abbrev=False)
    demo.set_defaults(command=_cli_demo)
    shapes = ("blobs", "moons", "circles", "random")
    demo.add_argument("--data", choices=(*shapes, "digits"), default="blobs", help="(blobs)")
    demo.add_argument("--random-state", type=int, default=0, help="seed of data and method (0)")
    demo.add_argument("--backend", **backends)
    demo.add_argument("--report", **path, help="write a report of the result here, as .html")

    for add in (add_compare, add_estimate, add_bench, add_info):
        add(commands)
    return parser


# -- commands -------------------------------------------------------------------------------------


def _cli_fit(options: argparse.Namespace, warned: list[str]) -> None:
    import numpy as np

    from specialk_gpu._warnings import ScaleWarning
    from specialk_gpu._writing import write_text
    from specialk_gpu.io import files
    from specialk_gpu.io.rows import read_rows, rows_to_show

    inputs = options.input, options.true_labels
    check_outputs(options, inputs, ("output", "summary", "model", "report"))
    if options.image_shape and not options.report:
        msg = "--image-shape is for the report, so it needs --report"
        raise ValueError(msg)
    parameters = {name: value for name, value in vars(options).items() if name in PARAMETERS}
    choice, graph = chosen_columns(options), is_graph(parameters.get("affinity", ""))
    with input_as_file(options.input) as path:
        preparation, rows_read = read_rows(path, choice, graph=graph, **reading_of_file(options))
    X = rows_read.X
    if options.image_shape and math.prod(options.image_shape) != X.shape[1]:
        msg = f"--image-shape must have as many pixels as the rows have columns ({X.shape[1]})"
        raise ValueError(msg)
    true_labels = None
    if options.true_labels:
        true_labels = files.read_labels(options.true_labels)
        if len(true_labels) != rows_read.n_rows:
            n_rows, n_labels = rows_read.n_rows, len(true_labels)
            msg = f"{options.true_labels} must hold {n_rows} labels, got {n_labels}"
            raise ValueError(msg)
        if rows_read.kept is not None:
            true_labels = true_labels[rows_read.kept]
    with warnings.catch_warnings():
        if preparation:  # `read_rows` has warned by name
            warnings.simplefilter("ignore", ScaleWarning)
        model, seconds = _cli_model(X, parameters, quiet=options.quiet)
    stability = None
    if options.stability:
        with _cli_progress(quiet=options.quiet):
            stability = model.stability(X, random_state=model.random_state)
    if rows_read.names:
        model.feature_names_in_ = np.array(rows_read.names, dtype=object)
    prepared = preparation.to_json() if preparation else None
    if prepared:
        model.preparation_ = prepared
    rows = path_for_printing(model, true_labels)
    try:
        if options.output:
            _write_cli_labels(options.output, model.labels_, rows_read, choice.id_column)
        if options.summary:
            content = summary_for_printing(model, rows, seconds, warned)
            content["n_rows_dropped"] = rows_read.n_rows - X.shape[0]
            content["preparation"] = prepared
            write_text(options.summary, json.dumps(content, indent=2, allow_nan=False) + "\n")
        if options.model:
            model.save(options.model)
        if options.report:
            shown = rows_to_show(rows_read, preparation, options.image_shape, graph=graph)
            given: dict[str, Any] = {"X": shown, "image_shape": options.image_shape}
            piped = options.input == STANDARD_INPUT
            source = "standard input" if piped else printable(options.input.name)
            model.report(options.report, **given, stability=stability, source=source)
    finally:  # print the answer even if a file cannot be written
        print_results(model, rows, seconds, table=not options.quiet)
        if stability is not None:
            print(stability)


def _write_cli_labels(path: Path, labels: np.ndarray, rows: Prepared, id_name: str | None) -> None:
    """Write one label for each row of the file that was read, with the ids if it has them."""
    from specialk_gpu.io.files import write_labels

    write_labels(path, rows.for_all_rows(labels), ids=rows.ids, id_name=id_name or "")


def _cli_new_rows(
    options: argparse.Namespace, model: SpecialK
) -> tuple[Prepared, Preparation | None]:
    """Return rows of a file, prepared as the fitted ones were, and that preparation."""
    from specialk_gpu.io.rows import read_new_rows
    from specialk_gpu.tables.preparation import Preparation

    names = model.__dict__.pop("feature_names_in_", None)  # compared by the preparation
    kept = model.__dict__.pop("preparation_", None)
    preparation = None
    if kept is not None:
        preparation = Preparation.from_json(kept)
    elif names is not None:  # a model that Python has fitted to a data frame
        preparation = Preparation(order=names.tolist(), header=True, columns=names.tolist())
    with input_as_file(options.input) as path:
        return read_new_rows(path, preparation, **reading_of_file(options)), preparation


def _cli_predict(options: argparse.Namespace, _warned: list[str]) -> None:
    import numpy as np

    from specialk_gpu import SpecialK
    from specialk_gpu.inspection.diagnostics import counted

    check_outputs(options, (options.model, options.input), ("output",))
    model = SpecialK.load(options.model).set_params(backend=options.backend)
    rows, preparation = _cli_new_rows(options, model)
    if rows.ids is not None and options.output and options.output.suffix.lower() != ".csv":
        rows.ids = None
    labels = model.predict(rows.X) if rows.X.shape[0] else np.empty(0, np.int32)
    if options.output:
        id_name = preparation.id_column if preparation else None
        _write_cli_labels(options.output, labels, rows, id_name)
    for cluster in range(-1 if (labels < 0).any() else 0, model.n_clusters_):
        name = f"cluster {cluster}" if cluster >= 0 else "outliers (label -1)"
        print(f"{name}: {counted(int((labels == cluster).sum()), 'row')}")


def _cli_report(options: argparse.Namespace, _warned: list[str]) -> None:
    import numpy as np

    from specialk_gpu import SpecialK
    from specialk_gpu.io.rows import rows_to_show

    check_outputs(options, (options.model, options.input), ("output",), labels=False)
    if not options.input and (options.image_shape or options.key or options.header != "auto"):
        msg = "--image-shape, --key and --header are about --input, which was not given"
        raise ValueError(msg)
    model = SpecialK.load(options.model)
    X, graph = None, is_graph(model.affinity)
    if options.input:
        kept = getattr(model, "preparation_", None)
        rows, preparation = _cli_new_rows(options, model)
        if rows.names:
            model.feature_names_in_ = np.array(rows.names, dtype=object)
        X = rows_to_show(rows, preparation, options.image_shape, graph=graph)
        if kept is not None:
            model.preparation_ = kept  # to be told
    source = printable(options.model.name)
    model.report(options.output, X=X, image_shape=options.image_shape, source=source)


def _cli_demo(options: argparse.Namespace, _warned: list[str]) -> None:
    from sklearn.datasets import load_digits

    from specialk_gpu.datasets import make_shape

    check_outputs(options, (), ("report",))
    if options.data == "digits":
        X, y = load_digits(return_X_y=True)
        print(f"digits: {len(X)} images of 8 x 8 pixels, ten digits")
    else:
        X, y = make_shape(options.data, 0.1, random_state=options.random_state)
        print(f"{options.data}: {len(X)} points in the plane, true k = {y.max() + 1}")
    parameters = {"backend": options.backend, "random_state": options.random_state}
    model, seconds = _cli_model(X, parameters, quiet=False)
    try:
        if options.report:
            shape = (8, 8) if options.data == "digits" else None
            model.report(options.report, X=X, image_shape=shape, source=options.data)
    finally:
        print_results(model, path_for_printing(model, y), seconds, table=True)


def _check_cli_backend(options: argparse.Namespace) -> None:
    """Raise a ValueError (exit code 2: wrong usage) if the backend cannot run here."""
    from specialk_gpu.backend import get_backend

    try:
        get_backend(options.backend)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _cli_model(
    X: np.ndarray | sparse.csr_array,
    parameters: dict[str, Any],
    *,
    quiet: bool,
) -> tuple[SpecialK, float]:
    """Fit the estimator; return it and the seconds it took."""
    from specialk_gpu import SpecialK

    start = time.perf_counter()
    with _cli_progress(quiet=quiet):
        model = SpecialK(**parameters).fit(X)
    return model, time.perf_counter() - start


def _cli_progress(*, quiet: bool) -> AbstractContextManager[None]:
    """Show progress on stderr: as suits a terminal, or as suits a file."""
    from specialk_gpu._progress import show_progress_by_minute, show_progress_by_stage

    if quiet:
        return nullcontext()
    return show_progress_by_stage() if sys.stderr.isatty() else show_progress_by_minute()


if __name__ == "__main__":
    sys.exit(main())
