"""docs/calibration.md and its figure, from the files of results.

python -m benchmarks.calibration.page     # draws the figure; benchmarks.tables writes the page
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.calibration.check import ALPHAS
from benchmarks.calibration.families import CHECK, LAW, STRESS
from benchmarks.calibration.law import LEVELS, SETS, STEP, least_log_p
from benchmarks.markdown import table
from benchmarks.paper.draw import FIGURES
from benchmarks.paper.pages import measured
from benchmarks.paper.runner import read
from benchmarks.paper.shapes import TRUE_K
from benchmarks.stamp import RESULTS
from specialk_gpu.datasets import make_shape
from specialk_gpu.selection.cuts import Cuts
from specialk_gpu.selection.null_distribution import null_law
from specialk_gpu.selection.parts import FEW_COLUMNS
from specialk_gpu.selection.valleys import BINS, Valleys, halves_for_valleys
from specialk_gpu.selection.walks import prepare_walks

__all__ = ["calibration_page", "draw"]

BESIDE = ("right", "too many", "ARI")
UNEQUAL, WEAK_TYPES = "sizes as 1:10:100", "simulated cell types, weak differences"
GROUPS: dict[str, Callable[[str], bool]] = {
    "10 to 50 clusters": lambda name: name.split()[0] in ("k10", "k20", "k50"),
    "10 to 30 % noise added": lambda name: "noise" in name,
    "Gaussians 4 deviations apart, d = 50": lambda name: "d50 s4" in name,
    UNEQUAL: lambda name: name.startswith("1:10:100"),
    WEAK_TYPES: lambda name: name.startswith("scRNA") and "weak" in name,
}
NAMES_OF_OURS = ("SpecialK", "SpecialK, alpha = 0.01")  # in the files of results
SHOWN_BY_GROUP = (*NAMES_OF_OURS, "HDBSCAN, 5 rows", "HDBSCAN, 1 % of rows")
SURE = 0.999  # of the one-sided bound below which a share of false splits lies by chance
LOW_NOISE = 0.1  # up to which two moons, or circles, are two


def rows_of(part: str) -> list[dict[str, Any]]:
    """Return the rows of a part that have a result."""
    path = RESULTS / f"calibration-{part}.jsonl"
    return [row for row in read(path) if "result" in row]


# -- the figure -----------------------------------------------------------------------------------


def draw() -> Any:
    """Draw cuts of four sets, rows along the line between two means, and T beside its level."""
    import matplotlib.pyplot as plt

    from specialk_gpu import SpecialK

    fig, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    rng = np.random.default_rng(0)
    sets = {
        "moons": make_shape("moons", 0.1, random_state=0)[0],
        "circles": make_shape("circles", 0.1, random_state=0)[0],
        "square": rng.random((1500, 2)),
        "band": rng.random((1500, 2)) * [20, 1],
    }
    for name, X in sets.items():
        settings = {"criterion": "zz_top", "backend": "numpy", "random_state": 0}
        model = SpecialK(n_clusters=2, **settings).fit(X)
        position, cut = Cuts(prepare_walks(model.affinity_matrix_), model.labels_, 2).profile(
            (0, 1)
        )
        left.plot(position, cut, label=name)
    left.axvline(0, color="0.7", zorder=0)
    left.set(xlabel="rows from the border", ylabel="weight of the cut")
    left.legend()
    for apart, name in ((4, "two Gaussians, 4 apart"), (0, "one Gaussian")):
        X = rng.standard_normal((2000, 50))
        y = (np.arange(2000) % 2).astype(np.int32)
        X[:, 0] += apart * y
        y = y if apart else (X[:, 0] > 0).astype(np.int32)
        counts = Valleys(X, halves_for_valleys(X), y, 2).counts(np.array([[0, 1]]), np.arange(2))
        place = (np.arange(3 * BINS) + 0.5) / BINS - 1
        middle.step(place, counts[0].sum(axis=0), where="mid", label=name)
    middle.set(xlabel="place between the two means", ylabel="rows, 50 dimensions")
    middle.legend()
    T = least_by_family()
    level = np.geomspace(1e-4, 0.5, 60)
    shares = np.array([[np.mean(own <= math.log(x)) for x in level] for own in T.values()])
    everything = np.concatenate(list(T.values()))
    right.loglog(level, [np.mean(everything <= math.log(x)) for x in level], label="all families")
    right.loglog(level, shares.max(axis=0), label="the worst of them")
    tail = np.concatenate([*least_of_small_sets().values(), [0.0]])
    right.loglog(level, [np.mean(tail <= math.log(x)) for x in level], label="small sets")
    right.loglog(level, level, "--", color="0.5", label="level")
    right.set(xlabel="level", ylabel="sets of one cluster with T at most that")
    right.legend()
    FIGURES.mkdir(exist_ok=True)
    fig.savefig(FIGURES / "calibration.svg", metadata={"Date": None})
    return fig


def is_of_rows(row: dict[str, Any]) -> bool:
    """Say whether a set of the fit was looked at with its rows."""
    return not row["task"].get("graph", False)


def least_by_family() -> dict[str, np.ndarray]:
    """Return log T of the sets of each family, by the null distribution at hand."""
    laws, found = {name: null_law(name) for name in ("rows", "graph")}, {}
    for row in filter(is_of_rows, rows_of("law")):
        T = least_log_p(row["result"]["gaps"], laws)[0]
        found.setdefault(row["task"]["family"], []).append(T)
    return {family: np.array(T) for family, T in found.items()}


def least_of_small_sets() -> dict[str, np.ndarray]:
    """Return log T of the many small sets that the null distribution was not fitted to."""
    found: dict[str, list[float]] = {}
    for row in rows_of("tail"):
        found.setdefault(row["task"]["family"], []).extend(row["result"]["log10_T"])
    return {family: np.array(T) * math.log(10) for family, T in found.items()}


def tail_table() -> str:
    """Lay out how often T is at most a level in small sets."""
    levels, rows = (0.1, 0.01, 0.001, 0.0001), []
    for family, T in least_of_small_sets().items():
        rows.append([family, f"{T.size:,}", *(int((math.log(x) >= T).sum()) for x in levels)])
    return table(["family", "sets", *(f"T at most {x:g}" for x in levels)], rows)


# -- the tables -----------------------------------------------------------------------------------


def splits(rows: list[dict[str, Any]], alpha: float, most: int = 1) -> int:
    """Count the sets in which more than so many clusters were found."""
    return sum(row["result"]["k"][f"{alpha}"] > most for row in rows)


def beyond(n_split: int, n: int, alpha: float) -> bool:
    """Say whether the one-sided 99.9 % lower bound of a share exceeds alpha."""
    return n > 0 and binom.sf(n_split - 1, n, alpha) < 1 - SURE


def by_family(rows: list[dict[str, Any]], families: dict[str, Any]) -> str:
    """Lay out the false splits by family and size, at the levels, and name families without any."""
    sizes = sorted({row["task"]["m"] for row in rows})
    lines, never = [], []
    for family in families:
        if not splits([r for r in rows if r["task"]["family"] == family], max(ALPHAS)):
            never.append(family)
            continue
        cells = []
        for m in sizes:
            own = [r for r in rows if (r["task"]["family"], r["task"]["m"]) == (family, m)]
            counts = "/".join(str(splits(own, alpha)) for alpha in ALPHAS)
            cells.append(f"{counts} of {len(own)}" if own else "")
        lines.append([family, *cells])
    found = table(["family", *(f"m = {m:,}" for m in sizes)], lines)
    none = filled(f"No set was split of these: {'; '.join(never)}.")
    return f"{found}\n\n{none}" if never else found


def by_cell(rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return the sets of the check by family and size."""
    cells: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["task"]["family"], row["task"]["m"]), []).append(row)
    return cells


def beyond_chance(rows: list[dict[str, Any]], alpha: float) -> list[str]:
    """Name the families and sizes in which more were split than alpha says, and by chance."""
    return [
        f"{family} with {m:,} rows"
        for (family, m), own in by_cell(rows).items()
        if beyond(splits(own, alpha), len(own), alpha)
    ]


def verdict(rows: list[dict[str, Any]]) -> str:
    """Say how many sets of the check were split, and in which cells too many."""
    said, n_cells = [], len(by_cell(rows))
    for alpha in ALPHAS:
        bad, n = beyond_chance(rows, alpha), splits(rows, alpha)
        said.append(
            f"At {alpha}, {n:,} of {len(rows):,} sets were split ({100 * n / len(rows):.1f} %). In "
            f"{len(bad)} of {n_cells} families and sizes, the share is above {alpha} by more "
            "than chance" + (f": {'; '.join(bad)}." if bad else ".")
        )
    return "\n".join(f"- {filled(one)}".replace("\n", "\n  ") for one in said)


def composites(rows: list[dict[str, Any]]) -> str:
    """Lay out how often more clusters were found than there are."""
    lines = []
    for J in sorted({row["task"]["J"] for row in rows}):
        own = [row for row in rows if row["task"]["J"] == J]
        cells = [f"{splits(own, alpha, J)} of {len(own)}" for alpha in ALPHAS]
        right = [sum(r["result"]["k"][f"{a}"] == J for r in own) for a in ALPHAS]
        lines.append([J, *cells, *(f"{n} of {len(own)}" for n in right)])
    head = [f"more than k found at {alpha}" for alpha in ALPHAS]
    head += [f"exactly k found at {alpha}" for alpha in ALPHAS]
    return table(["k", *head], lines)


def large(rows: list[dict[str, Any]]) -> str:
    """Say how many of the large sets were split."""
    sizes = " or ".join(f"{m:,}" for m in sorted({row["task"]["m"] for row in rows}))
    found = _listed([f"{splits(rows, alpha)} at {alpha}" for alpha in ALPHAS])
    return f"Of {len(rows)} sets of {sizes} rows, the rule split {found}."


def paper_sets() -> str:
    """Lay out how often k is right in the sets of the paper's Figure 2."""
    rows, lines = rows_of("paper"), []
    for graph in ("W_C", "W_R"):
        for shape, k in TRUE_K.items():
            cells = []
            for most in (LOW_NOISE, 1.0):
                own = [
                    row["result"][graph]["k"]
                    for row in rows
                    if row["task"]["shape"] == shape and row["task"]["noise"] <= most
                ]
                cells += [f"{sum(x[f'{a}'] == k for x in own)} of {len(own)}" for a in ALPHAS]
            lines.append([f"${graph[0]}_{graph[2]}$", f"{shape} ({k})", *cells])
    amounts = f"noise up to {LOW_NOISE}", "all noise"
    names = [f"{amount}, alpha = {a}" for amount in amounts for a in ALPHAS]
    return table(["graph", "set", *names], lines)


# -- beside others --------------------------------------------------------------------------------


def found_beside(part: str) -> list[dict[str, Any]]:
    """Return what benchmarks.rivals has found in one part: task and result together."""
    rows = read(RESULTS / f"rivals-{part}.jsonl")
    return [row["task"] | row["result"] for row in rows if "result" in row]


def shown(method: str) -> str:
    """Return the name of a method on the page: SpecialK is the paper's, and not meant there."""
    return method.replace("SpecialK", "cut test") if method in NAMES_OF_OURS else method


def shares(rows: list[dict[str, Any]]) -> list[str]:
    """Write how many are right, how many have too many clusters, and the mean ARI."""
    if not rows:
        return ["", "", ""]
    counts = Counter(row["verdict"] for row in rows)
    known = [row["ari"] for row in rows if "ari" in row]
    ari = f"{np.mean(known):.2f}" if known else ""
    return [f"{counts['right']} of {len(rows)}", str(counts["too many"]), ari]


def others() -> str:
    """Lay out other methods beside the default, on drawn sets and on real ones."""
    designs, real = found_beside("designs"), found_beside("sets")
    lines = []
    for method in dict.fromkeys(row["method"] for row in designs + real):
        own = [row for row in designs if row["method"] == method]
        sets = [row for row in real if row["method"] == method]
        unseen = [row for row in sets if row["unseen"]]
        apart = [row["ari"] for row in unseen if "ari" in row and row.get("tier") != "overlap"]
        cells = [*shares(own), *shares(unseen)]
        cells.append(f"{np.mean(apart):.2f}" if apart else "")
        lines.append([shown(method), *cells, *shares(sets)[:2]])
    head = ["method", *(f"{what}: {x}" for what in ("drawn", "real") for x in BESIDE)]
    return table([*head, "ARI, no overlap", "all real: right", "too many"], lines)


def by_group() -> str:
    """Lay out groups of drawn sets, by the default and by HDBSCAN."""
    designs, lone = found_beside("designs"), found_beside("isolated")
    groups = {
        name: [row for row in designs if belongs(row["set"])] for name, belongs in GROUPS.items()
    }
    groups["isolated clusters of 15 to 30 rows"] = lone
    lines = []
    for method in SHOWN_BY_GROUP:
        own = [[row for row in rows if row["method"] == method] for rows in groups.values()]
        lines.append([shown(method), *(shares(rows)[0] for rows in own)])
    return table(["method", *groups], lines)


# -- the page -------------------------------------------------------------------------------------


def calibration_page() -> str:
    """Return the text of docs/calibration.md."""
    check = rows_of("check")
    members = [row for row in check if row["task"].get("family") in CHECK]
    promised = [row for row in members if row["task"]["m"] <= 3000]
    parts = [part for part in ("law", "check", "tail", "paper") if rows_of(part)]
    sections = [
        _promise(promised),
        _null_distribution(),
        _one_cluster(check, promised),
        _beside() if found_beside("designs") else "",
        _paper() if rows_of("paper") else "",
        _failures(),
    ]
    content = "\n\n".join(section for section in sections if section)
    return f"""# What alpha means

`alpha` is meant to be the largest share of data sets of one cluster that the default rule splits.
This page says what is promised, what was tried, and where it fails. It is written by
`python -m benchmarks.tables` from what `python -m benchmarks.calibration` measured.

{content}

{measured(*(f"calibration-{part}" for part in parts))}
"""


def _promise(promised: list[dict[str, Any]]) -> str:
    """Say what is promised, and where that was not kept."""
    broken = [f"{cell} (at {alpha})" for alpha in ALPHAS for cell in beyond_chance(promised, alpha)]
    kept = "The first table below shows no exception."
    if not promised:
        kept = "Whether it is kept is not known yet."
    elif broken:
        number = "one exception" if len(broken) == 1 else f"{len(broken)} exceptions"
        kept = f"The first table below shows {number}: {'; '.join(broken)}."
    return f"""## The promise

"One cluster" is a distribution without a gap whose rows are drawn independently. Three classes of
data sets were named before the null distribution was fitted:

- **Promised**: convex, skewed, heavy-tailed with a variance, curved, discrete with one mode in all
  columns, high-dimensional. At most a share `alpha` of such sets shall be split. If a set consists
  of k of them, far apart, the probability of finding more than k clusters shall be at most `alpha`.
  {kept}
- **Stress**: shapes with a neck (cross, dumbbell), thin bent ones (U, moon, S-curve, Swiss roll),
  values so rounded that many are equal, densities that rise at their corners, tails without a
  variance (Cauchy), exact grids, one-hot columns. A dense core in a wide halo was added later.
  Nothing is promised.
- **Out of scope**: rows that depend on each other, such as random walks, near-copies, or the
  colours of an image. Discrete columns beside continuous ones were added later, when it was found
  that they are split ({{doc}}`trust`)."""


def _null_distribution() -> str:
    """Say how the null distribution was fitted."""
    sizes, sets = (_listed([f"{x:,}" for x in own]) for own in (SETS, SETS.values()))
    allowed = [
        f"at {level}, {_listed([f'{math.ceil(level * n)} of {n}' for n in SETS.values()])} sets"
        for level in LEVELS
    ]
    small = ", and in small sets to $10^{-4}$" if rows_of("tail") else ""
    said = filled(
        "The null distribution is that of the whole search ({doc}`method` describes the rule). It "
        "was fitted to T, the least p over all resolutions and over 2, 3 and 4 clusters, before "
        f"rows move to other clusters. {sets} sets of {sizes} rows were searched of each of "
        f"{len(LAW)} families, from segments and cubes to rings, heavy tails and spirals (`LAW` in "
        "`benchmarks/calibration/families.py`). The scale of the half-normal distribution grows "
        f"with the length of a pair. It was raised in steps of {100 * (STEP - 1):.0f} % until, in "
        "each family and size, T was at most 0.05, or 0.01, in no more than this share of the "
        f"sets, rounded up: {'; '.join(allowed)}. Given graphs have a null distribution of their "
        "own, fitted in the same way. T of all families together was measured down to about "
        f"$10^{{-3}}${small}. For smaller p the half-normal distribution is only assumed. So "
        "`print(model.path_)` shows no p below 0.001."
    )
    n_law = sum(map(is_of_rows, rows_of("law")))
    return f"""## The null distribution

{said}

```{{figure}} figures/calibration.svg
:alt: Cuts and valleys between clusters, and the least p of searches beside their level.

Left: the weights of the cuts from one cluster to the other. Middle: rows along the line between two
means. Right: the share of {n_law:,} sets of one cluster in which T is at most the value on the
other axis ("level").
```"""


def _listed(words: list[str]) -> str:
    """Write words as a list with commas and "and"."""
    return f"{', '.join(words[:-1])} and {words[-1]}"


def filled(text: str) -> str:
    """Divide a paragraph into lines."""
    whole = text.replace(" = ", "\0=\0")  # is not broken
    lines = textwrap.fill(whole, 100, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def _one_cluster(check: list[dict[str, Any]], promised: list[dict[str, Any]]) -> str:
    """Lay out what was found in sets of one cluster, and in several such sets far apart."""
    stress = [row for row in check if row["task"].get("family") in STRESS]
    great = [row for row in check if row["task"].get("m", 0) > 3000]
    joined = [row for row in check if "J" in row["task"]]
    checked = (
        "Not known yet: `python -m benchmarks.calibration check`, which tries the rule on other "
        "families, has not been run since the rule was last changed."
    )
    if promised:
        least = [next(n for n in range(101) if beyond(n, 100, alpha)) for alpha in ALPHAS]
        many = ", or ".join(f"{n} or more at {x}" for n, x in zip(least, ALPHAS, strict=True))
        chance = filled(
            '"More than chance" means that the one-sided 99.9 % lower bound of the share exceeds '
            f"`alpha`: of 100 sets, {many} were split. These sets are not fully independent of the "
            "rule. An earlier version split cylinders, so the test for bent pairs was changed; and "
            "it split sparse bits, so discrete columns were given a rule of their own."
        )
        levels = " / ".join(map(str, ALPHAS))
        checked = f"""The null distribution was not fitted to these {len(CHECK)} families.
Each cell has the number of sets that were split at `alpha` = {levels}:

{by_family(promised, CHECK)}

{verdict(promised)}

{chance}"""
    if joined:
        checked += (
            f"\n\nSets of k such members, far apart and of mixed sizes:\n\n{composites(joined)}"
        )
    if great:
        checked += f"\n\n{large(great)}"
    if stress:
        checked += f"\n\nStress, of which nothing is promised:\n\n{by_family(stress, STRESS)}"
    if rows_of("tail"):
        checked += (
            "\n\nThe tail, in sets of 300 rows that the null distribution was not fitted to:\n\n"
            f"{tail_table()}"
        )
    return f"## Where there is one cluster\n\n{checked}"


def _beside() -> str:
    """Lay out other methods beside the default rule."""
    designs, sets = found_beside("designs"), found_beside("sets")
    seeds = ", ".join(map(str, sorted({row["seed"] for row in designs})))
    n_sets, n_unseen = (
        len({row["set"] for row in own}) for own in (sets, [row for row in sets if row["unseen"]])
    )
    said = filled(
        "How often the number of clusters is right, how often it is too large, and the mean ARI "
        f"(adjusted Rand index). *Drawn* sets use a seed ({seeds}) that was never used in "
        f"development. {n_unseen} of the {n_sets} *real* sets, chosen by a hash of their names, "
        f"were kept out of development; the last two columns show all {n_sets}. *ARI, no overlap* "
        "leaves out the real sets whose known classes overlap. `python -m benchmarks.rivals` says "
        "how each method was used."
    )
    return f"""## Beside others

{said}

{others()}

How often the number is right in some groups of drawn sets:

{by_group()}

{measured("rivals-designs")}"""


def _paper() -> str:
    """Lay out the sets of the paper."""
    return f"""## The paper's sets

How often k is right in the sets of the paper's Figure 2; the right k is in brackets.

{paper_sets()}"""


def _failures() -> str:
    """Say where the rule fails."""
    groups = ""
    own = [row for row in found_beside("designs") if row["method"] == NAMES_OF_OURS[0]]
    if own:
        unequal, weak = (
            shares([row for row in own if GROUPS[name](row["set"])])[0]
            for name in (UNEQUAL, WEAK_TYPES)
        )
        groups = f"""
- If sizes are as 1:10:100, the smallest clusters are mostly joined to others: k was right in
  {unequal} drawn sets.
- Of simulated cell types that differ weakly, too few are found: k was right in {weak} sets."""
    return f"""## Where it fails

{{doc}}`trust` lists what the cut test does not see. Measured here:
{groups}
- A thick ring (the noisy circle above) is thinnest straight across its hole, so the promise is not
  kept there.
- Sets with a neck are split more often than `alpha` says, and so are random walks. A dense core in
  a wide halo is split into these two.
- In up to {FEW_COLUMNS} dimensions, bent clusters and very long ones are found by the cut alone; in
  more dimensions, all that are not short."""


if __name__ == "__main__":
    draw()
