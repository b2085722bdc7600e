"""The arguments of the command line."""

from __future__ import annotations

import argparse
import csv
import difflib
import re
from collections.abc import Callable, Collection
from typing import Any, NoReturn

from specialk_gpu._affinities import AFFINITIES

__all__ = [
    "PARAMETERS",
    "OptionsParser",
    "add_column_options",
    "add_input_options",
    "image_shape_option",
]
__all__ += ["in_words_of_options"]


class OptionsParser(argparse.ArgumentParser):
    """A parser whose errors are of one line, in plain words, with the option that was meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is unknown here, where the options of the command are known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        message = message.replace("invalid int value:", "expected a whole number, got")
        message = message.replace("invalid float value:", "expected a number, got")
        msg = f"{message}{self._meant(message)} (see {self.prog} --help)"
        raise ValueError(msg)

    def _meant(self, message: str) -> str:
        """Return a question for the option, command or choice that may have been meant."""
        choice = re.search(r"invalid choice: '([^']+)' \(choose from (.*)\)$", message)
        option = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        known: Collection[str] = ()
        if choice:
            given, known = choice[1], re.findall(r"[\w-]+", choice[2])
        elif option:
            given, known = option[1], self._option_string_actions
        near = difflib.get_close_matches(given, known, 1) if known else []
        return f"; did you mean {near[0]}?" if near else ""


def integer_option(word: str, meaning: str | None) -> Callable[[str], int | str | None]:
    def parse(text: str) -> int | str | None:
        if text == word:
            return meaning
        try:
            return int(text)
        except ValueError:
            msg = f"expected an integer or {word!r}, got {text!r}"
            raise argparse.ArgumentTypeError(msg) from None

    return parse


def image_shape_option(text: str) -> tuple[int, int]:
    try:
        height, width = map(int, text.lower().split("x"))
    except ValueError:
        height = width = 0
    if min(height, width) < 1:
        msg = f"expected height x width, such as 28x28, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return height, width


def noise_option(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        msg = f"expected a number, got {text!r}: write --noise last to give none"
        raise argparse.ArgumentTypeError(msg) from None


def names_option(text: str) -> tuple[str, ...]:
    """Split names at commas; a name with a comma is written in quotes, as in a csv file."""
    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))


def add_input_options(command: argparse.ArgumentParser) -> None:
    """Add the options that say how to read the file of rows."""
    command.add_argument("--key", help="the array to read from an .npz file with several")
    header = "whether a csv, tsv or txt file begins with a row of names (auto)"
    command.add_argument("--header", choices=("auto", "yes", "no"), default="auto", help=header)


def add_column_options(command: argparse.ArgumentParser) -> None:
    """Add the options that say what to do with the columns of a table."""
    group = command.add_argument_group(
        "columns", "By name, or by number from 1 if the file has no names; applied by predict too."
    )
    names: dict[str, Any] = {"type": names_option, "metavar": "A,B", "default": ()}
    group.add_argument("--columns", **names, help="use these columns only")
    group.add_argument("--drop", **names, help="leave these columns out")
    group.add_argument("--one-hot", **names, help="replace each by a column of 0 and 1 per value")
    group.add_argument("--id-column", metavar="NAME", help="ids, written beside the labels")
    missing = "rows with blanks: leave out, or fill by the median of the column (an error)"
    group.add_argument("--missing", choices=("drop", "median"), help=missing)
    scale = "scale columns by mean and standard deviation, or median and quartiles (as they are)"
    group.add_argument("--scale", choices=("standard", "robust"), help=scale)


_INTEGER: dict[str, Any] = {"type": int, "metavar": "N"}
_NUMBER: dict[str, Any] = {"type": float, "metavar": "X"}
# The parameters of SpecialK that `fit` offers. An option that is not given is not passed on, so
# that defaults and checks stay in one place, the estimator.
PARAMETERS: dict[str, dict[str, Any]] = {
    "affinity": {
        "choices": AFFINITIES,
        "help": "graph to build, or what INPUT is: 'precomputed', a graph of similarities, or "
        "'precomputed_nearest_neighbors', one of distances (nearest_neighbors)",
    },
    "neighbors": {
        "choices": ("exact", "approximate"),
        "help": "search for neighbours; approximate needs pynndescent (exact)",
    },
    "min_recall": _NUMBER | {"help": "warn if an approximate search finds a smaller share (0.95)"},
    "n_neighbors": _INTEGER | {"help": "neighbours of each point in the graph (10)"},
    "coverage": _NUMBER | {"help": "radius graph: share of points with N neighbours (0.99)"},
    "metric": {"choices": ("euclidean", "cosine"), "help": "distance between points (euclidean)"},
    "normalize": {"action": "store_true", "help": "precomputed graph: divide by root degrees"},
    "weights": {"choices": ("connectivity", "distance"), "help": "edge weights (connectivity)"},
    "n_components": {
        "type": integer_option("auto", "auto"),
        "metavar": "{N,auto}",
        "help": "number of eigenvectors (auto: one for each fragment; zz_top: 200 or 1000)",
    },
    "alpha": _NUMBER | {"help": "level: a split with p above it is rejected (0.05; zz_top: 0.01)"},
    "n_clusters": _INTEGER | {"help": "find exactly this many clusters, without a test"},
    "min_clusters": _INTEGER | {"help": "smallest number of clusters (1)"},
    "max_clusters": _INTEGER | {"help": "largest number of clusters (no limit; zz_top: 50)"},
    "full_path": {"action": "store_true", "help": "show the whole path, beyond the decision"},
    "criterion": {
        "choices": ("cut", "zz_top"),
        "help": "rule that decides: the cut test, or the paper's ZZ Top Bound (cut)",
    },
    "stopping": {"choices": ("first", "watershed"), "help": "zz_top: stopping rule (first)"},
    "n_init": _INTEGER | {"help": "zz_top: restarts of k-means (10)"},
    "noise": {
        "type": noise_option,
        "metavar": "X",
        "nargs": "?",
        "const": True,
        "help": "label rows -1 if their outlier score exceeds X >= 1; 4 without a number (none)",
    },
    "eigen_solver": {"metavar": "NAME", "help": "solver for the eigenvectors (auto)"},
    "drop_correlated": _NUMBER
    | {"help": "drop eigenvectors whose correlation exceeds this (drop none)"},
    "n_kmeans_components": {
        "type": integer_option("all", None),
        "metavar": "{N,all}",
        "help": "zz_top: columns of the embedding that k-means uses (50)",
    },
    "n_pairs": _INTEGER | {"help": "zz_top: test only the N pairs of highest cut (all)"},
    "tol": _NUMBER | {"help": "largest residual of an eigenpair (1e-8)"},
    "backend": {"choices": ("auto", "numpy", "cuda"), "help": "where to compute (auto)"},
    "time_limit": {
        "type": float,
        "metavar": "SECONDS",
        "help": "end the fit then, with what is known (no limit)",
    },
    "memory_limit": {
        "metavar": "SIZE",
        "help": "such as 4GB: keep arrays that take much of it in temporary files (no limit)",
    },
    "checkpoint": {
        "metavar": "FOLDER",
        "help": "keep finished steps there; a fit that is killed goes on from them (none)",
    },
    "random_state": _INTEGER | {"help": "seed; the same seed gives the same result"},
}


_RANGE = re.compile(r"an? (int|float) in the range ([\[(])([\d.-]+), ([\w.]+)([\])])")
# What the library says to those who write Python, and what it means on the command line.
_WORDS = [
    (r"The '(\w+)' parameter of \w+ must", r"\1 must"),
    (r",? (?:or )?an instance of '[\w.]+'", ""),
    (r" or None\. Got", ". Got"),
    (r"a str among \{'(\w+)'\}", r"'\1'"),
    (r"must be None\b", "must not be given"),
    (r" \(True means [\d.]+\)", ""),
    (r"key='([^']*)' picks", r"--key \1 picks"),
    (r"header=\w+ is for", "--header is for"),
    (r"with key= \(--key on the command line\)", "by --key"),
    (r"labels of shape \(n_samples,\)", "one label for each row"),
    (r"an array of shape \(n_samples, n_features\)", "an array of rows and columns"),
    (r"Found array with (\d+) sample\(s\).* a minimum of (\d+) is required by \w+\.",
     r"INPUT must have at least \2 rows, got \1."),
    (r"densify it with X\.toarray\(\)", "save it as a dense array"),
    (r"Convert it with X\.toarray\(\)", "Save it as a dense array"),
    (r", for instance with sklearn\.decomposition\.TruncatedSVD", ""),
    (r"scale X first, for instance with sklearn\.preprocessing\.StandardScaler",
     "add --scale standard"),
    (r"specialk_gpu\.estimate says", "the command estimate says"),
    (r"\bn_rows must", "ROWS must"),
    (r"\bn_columns must", "COLUMNS must"),
    (r"\bX(?= must\b| of shape\b)", "INPUT"),
    (r"\bof X(?= have\b)", "of INPUT"),
]  # fmt: skip


def _range_in_words(found: re.Match[str]) -> str:
    """Return an interval of scikit-learn's messages in words."""
    kind, opened, low, high, closed = found.groups()
    noun, low = "whole number" if kind == "int" else "number", f"{float(low):g}"
    least = f"of at least {low}" if opened == "[" else f"above {low}"
    if high == "inf":
        return f"a {noun} {least}"
    high = high if kind == "int" else f"{float(high):g}"
    return f"a {noun} {least} and {'at most' if closed == ']' else 'below'} {high}"


def _choices_in_words(found: re.Match[str]) -> str:
    return f"one of {', '.join(sorted(found[1].split(', ')))}"


def in_words_of_options(message: str) -> str:
    """Return a message of the library with its parameters named as options of the command line.

    Names that are also words, such as alpha, are taken for parameters only where a value or a
    sentence about a parameter follows.
    """
    message = _RANGE.sub(_range_in_words, message)
    for pattern, words in _WORDS:
        message = re.sub(pattern, words, message)
    message = re.sub(r"a str among \{(.*)\}", _choices_in_words, message)
    for name in sorted(PARAMETERS, key=len, reverse=True):
        option = f"--{name.replace('_', '-')}"
        message = re.sub(rf"(?<![\w-]){name}=None\b", f"no {option}", message)
        message = re.sub(rf"(?<![\w-]){name}=True\b", option, message)
        message = re.sub(rf"(?<![\w-]){name}=(['\"]?)([\w.+-]*\w)\1", rf"{option} \2", message)
        end = r"(?!\w)" if "_" in name else r"(?= must\b)"
        message = re.sub(rf"(?<![\w-]){name}{end}", option, message)
    return message
