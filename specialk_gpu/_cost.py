"""How long a fit will take, and how much memory, before it begins.

cost.json holds a power law of rows, columns and eigenvectors for each stage, and the speed of the
machine where it was measured (`python -m benchmarks.growth`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from specialk_gpu._checks import checked_integer
from specialk_gpu._parameters import Parameters
from specialk_gpu._printable import printable_html_table
from specialk_gpu._progress import announce_with_progress, expect_progress
from specialk_gpu._units import size_in_units
from specialk_gpu.backend import get_backend
from specialk_gpu.backend.typing import Backend
from specialk_gpu.graph.neighbor_search import FEW_COLUMNS, FEW_ROWS_COLUMNS, PAIRS_ROWS
from specialk_gpu.selection.fragments import fragment_resolutions, n_fragment_eigenvectors
from specialk_gpu.spectrum.memory import needed_memory

__all__ = ["Estimate", "cost_in_seconds", "estimate", "foretell_cost", "machine_rates", "n_wanted"]

# the paper's rule, if not told otherwise: eigenpairs for few rows and for many
FEW_PAIRS, MANY_PAIRS, MANY_ROWS = 200, 1000, 5000
PRODUCT_SIDE, PASS_BYTES, REPEATS = 512, 2**25, 3  # of the calibration: under 0.3 s
LONG = 60  # seconds of a fit that says so at its beginning
LITTLE = 2**24  # bytes of a fit of few rows
WIDE = 30  # neighbours of a row that are kept
ENTRIES = 60  # of a row in both graphs, about
COPIES = 2  # of both graphs that are in memory while they are made
STAGES = {
    "cut": ("graph", "eigenpairs", "fragments", "merging", "polishing"),
    "zz_top": ("graph", "eigenpairs", "embedding", "kmeans", "bounds"),
}


@dataclass(frozen=True)
class Estimate:
    """What ``estimate`` returns. Printed, it is a table; in a notebook, too.

    Attributes
    ----------
    n_rows, n_columns, n_components : int
        The size of the fit, and its number of eigenvectors.
    stages : dict
        Expected seconds by the names of `timings_`.
    peak_bytes : int
        Expected memory beyond the data and the libraries.
    """

    n_rows: int
    n_columns: int
    n_components: int
    stages: dict[str, float]
    peak_bytes: int

    @property
    def seconds(self) -> float:
        """The expected seconds of the fit."""
        return sum(self.stages.values())

    def __str__(self) -> str:
        """Return a line on the size, and a line for each stage."""
        lines = [f"{name:<12} {cost_in_units(x):>9}" for name, x in self._rows()]
        return "\n".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        """Return a table of HTML, for notebooks."""
        rows = [(name, cost_in_units(x)) for name, x in self._rows()]
        return f"<p>{self._title()}</p>\n{printable_html_table(['stage', 'expected'], rows)}"

    def _title(self) -> str:
        n = f"{self.n_components} eigenvectors"
        return f"{self.n_rows:,} rows, {self.n_columns:,} columns, {n}; within a factor of 2 or so"

    def _rows(self) -> list[tuple[str, float | int]]:
        return [*self.stages.items(), ("whole fit", self.seconds), ("memory", self.peak_bytes)]


def cost_in_units(x: float) -> str:
    """Write seconds (float) or bytes (int) in a unit that suits them, to two digits or so."""
    if isinstance(x, int):
        return size_in_units(x)
    if x < 1:
        return f"{x:.2f} s"
    if x < 100:
        return f"{x:.0f} s"
    return f"{x / 60:.0f} min" if x < 6000 else f"{x / 3600:.1f} h"


def estimate(
    n_rows: int,
    n_columns: int,
    *,
    criterion: str = "cut",
    n_components: int | str = "auto",
) -> Estimate:
    """Estimate how long a fit will take on this machine's CPU, and how much memory.

    The seconds are those of fits of Gaussian data on one thread, scaled by the speed of this
    machine, which is measured in less than 0.3 s. They are meant to be within a factor of 2 up to
    60,000 rows. More threads make a fit faster; clusters that are hard to tell apart make it
    slower; beyond the sizes that were measured, the estimate is less certain.

    Parameters
    ----------
    n_rows, n_columns : int
        The shape of X.
    criterion : {"cut", "zz_top"}
        The rule that decides.
    n_components : int or "auto"
        The number of eigenvectors.

    Returns
    -------
    Estimate
        Prints as a table: `seconds` in all, `stages`, and `peak_bytes`, the memory beyond the data
        and the libraries.

    Raises
    ------
    ValueError, TypeError
        If a parameter is not valid.

    Notes
    -----
    A GPU is not estimated: no fit has been measured on one.

    Examples
    --------
    >>> from specialk_gpu import estimate
    >>> estimate(60_000, 50).n_components
    60
    """
    m, d = checked_integer("n_rows", n_rows, 2), checked_integer("n_columns", n_columns, 1)
    if criterion not in STAGES:
        msg = f"criterion must be 'cut' or 'zz_top', got {criterion!r}."
        raise ValueError(msg)
    n = _number(criterion, n_components, m)
    rates = machine_rates()
    return Estimate(
        m,
        d,
        n,
        cost_in_seconds(m, d, n, criterion, rates),
        cost_in_bytes(get_backend("numpy"), m, d, n),
    )


def _number(criterion: str, n_components: int | str, m: int) -> int:
    """Return the number of eigenvectors of m rows."""
    if n_components != "auto":
        return max(1, min(checked_integer("n_components", n_components, 1), m - 1))
    if criterion == "zz_top":
        return max(1, min(FEW_PAIRS if m < MANY_ROWS else MANY_PAIRS, m - 1))
    return n_fragment_eigenvectors(fragment_resolutions(m), m)


def n_wanted(parameters: Parameters, m: int) -> int:
    """Return the number of eigenpairs that a fit of m rows begins with."""
    n_components, criterion = parameters.n_components, parameters.criterion
    if n_components != "auto" or criterion == "zz_top":
        return _number(criterion, n_components, m)
    return n_fragment_eigenvectors(
        fragment_resolutions(m, parameters.min_clusters, parameters.n_clusters), m
    )


@cache
def measured_costs() -> dict[str, Any]:
    """Return the laws, and the speed of the machine where they were measured."""
    text = files("specialk_gpu").joinpath("cost.json").read_text(encoding="utf-8")
    return json.loads(text)


def cost_law(stage: str, d: int) -> str:
    """Return the name of the law of a stage; the graph of few columns has its own."""
    if stage != "graph":
        return stage
    return "graph, few columns" if d <= FEW_COLUMNS else "graph, many columns"


def cost_rate(law: str) -> str:
    """Return which speed of a machine the seconds of a stage depend on."""
    return "product" if law == "graph, many columns" else "memory"


def cost_in_seconds(
    m: int,
    d: int,
    n: int,
    criterion: str,
    rates: dict[str, float] | None = None,
    laws: dict[str, dict[str, float]] | None = None,
) -> dict[str, float]:
    """Return the expected seconds of each stage, on one thread of the measured machine, or here.

    Parameters
    ----------
    m, d, n : int
        Rows, columns, eigenvectors.
    criterion : {"cut", "zz_top"}
    rates : dict, optional
        What `machine_rates` has measured here.
    laws : dict, optional
        By default those of cost.json.
    """
    laws = measured_costs()["laws"] if laws is None else laws
    size = {"rows": math.log(m), "columns": math.log(d), "eigenvectors": math.log(n)}
    found = {}
    for stage in STAGES[criterion]:
        name = cost_law(stage, d)
        law = laws[name]
        seconds = math.exp(law["log_seconds"] + sum(law[x] * size[x] for x in size if x in law))
        if rates is not None:
            speed = cost_rate(name)
            seconds *= measured_costs()["rates"][speed] / rates[speed]
        found[stage] = seconds
    return found


def cost_in_bytes(bk: Backend, m: int, d: int, n: int) -> int:
    """Return the bytes that a fit of m rows and d columns needs beyond X.

    There is a copy of the rows and one in float32, the neighbours with their distances, and the two
    graphs; then either a tile of distances, where the search makes such tiles, or the eigenpairs
    (see `needed_memory`) and the embedding.
    """
    rows, neighbors, graphs = 12 * m * d, 32 * WIDE * m, 12 * ENTRIES * COPIES * m
    tile = min(bk.tile_bytes, 4 * m * m) if d > FEW_ROWS_COLUMNS and m < PAIRS_ROWS else 0
    return (
        LITTLE + rows + neighbors + graphs + max(tile, needed_memory(bk, m, n, "auto") + 8 * m * n)
    )


def machine_rates(clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Measure the machine: products of matrices, and passes over memory.

    Parameters
    ----------
    clock : callable
        Returns seconds.

    Returns
    -------
    dict
        "product", multiplications and additions a second; "memory", bytes read and written.
    """

    def least(work: Callable[[], Any]) -> float:
        seconds = []
        for _ in range(REPEATS):
            began = clock()
            work()
            seconds.append(clock() - began)
        return max(min(seconds), 1e-9)

    A = np.full((PRODUCT_SIDE, PRODUCT_SIDE), 0.5)
    source = np.zeros(PASS_BYTES // 8)
    target = np.zeros_like(source)
    return {
        "product": 2 * PRODUCT_SIDE**3 / least(lambda: A @ A),
        "memory": 2 * PASS_BYTES / least(lambda: np.copyto(target, source)),
    }


def foretell_cost(parameters: Parameters, bk: Backend, m: int, d: int | None) -> None:
    """Tell the progress how long each stage may take; on the CPU, announce more than a minute.

    d is None for a given graph, whose time is not known.
    """
    n, criterion = n_wanted(parameters, m), parameters.criterion
    stages = cost_in_seconds(m, d or 1, n, criterion)
    expect_progress(stages if d else stages | {"graph": 0.0})
    if d is None or bk.name != "numpy" or parameters.affinity != "nearest_neighbors":
        return
    seconds = sum(stages.values())
    if seconds > LONG / 4:  # worth to measure this machine
        seconds = sum(cost_in_seconds(m, d, n, criterion, machine_rates()).values())
    if seconds > LONG:
        memory = cost_in_units(cost_in_bytes(bk, m, d, n))
        announce_with_progress(f"this fit may take {cost_in_units(seconds)} and {memory} of memory")
