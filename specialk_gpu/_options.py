"""The arguments of the command line."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable
from typing import Any, NoReturn

from specialk_gpu._parameters import AFFINITIES

__all__ = [
    "PARAMETERS",
    "OptionsParser",
    "add_column_options",
    "add_input_options",
    "image_shape_option",
]
__all__ += ["in_words_of_options"]


class OptionsParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        msg = f"{message} (see {self.prog} --help)"
        raise ValueError(msg)


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
    "noise": _NUMBER | {"help": "label rows -1 if their outlier score exceeds X >= 1 (none)"},
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
    "random_state": _INTEGER | {"help": "seed; the same seed gives the same result"},
}


def in_words_of_options(message: str) -> str:
    """Return a message of the library with its parameters named as options of the command line.

    Names that are also words, such as alpha, are taken for parameters only where a value or a
    sentence about a parameter follows.
    """
    message = re.sub(r"The '(\w+)' parameter of \w+ must", r"\1 must", message)
    message = message.replace(" or None. Got", ". Got")
    for name in sorted(PARAMETERS, key=len, reverse=True):
        option = f"--{name.replace('_', '-')}"
        message = re.sub(rf"(?<![\w-]){name}=None\b", f"no {option}", message)
        message = re.sub(rf"(?<![\w-]){name}=True\b", option, message)
        message = re.sub(rf"(?<![\w-]){name}=(['\"]?)([\w.+-]*\w)\1", rf"{option} \2", message)
        end = r"(?!\w)" if "_" in name else r"(?= must\b)"
        message = re.sub(rf"(?<![\w-]){name}{end}", option, message)
    return message
