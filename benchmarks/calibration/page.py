"""docs/calibration.md and its figure, from the files of results.

python -m benchmarks.calibration.page     # draws the figure; benchmarks.tables writes the page
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.calibration.check import ALPHAS
from benchmarks.calibration.families import CHECK, LAW, STRESS
from benchmarks.calibration.law import least_log_p
from benchmarks.markdown import table
from benchmarks.paper.draw import FIGURES
from benchmarks.paper.pages import measured
from benchmarks.paper.runner import read
from benchmarks.paper.shapes import TRUE_K
from benchmarks.stamp import RESULTS
from specialk_gpu.datasets import make_shape
from specialk_gpu.selection.cut_graphs import WIDE
from specialk_gpu.selection.cuts import Cuts
from specialk_gpu.selection.fragments import RESOLUTIONS
from specialk_gpu.selection.null_distribution import null_law
from specialk_gpu.selection.parts import FEW_COLUMNS, SHORT_LENGTH, SHORTCUTS, THIN_WEIGHT
from specialk_gpu.selection.valleys import BINS, Valleys, halves
from specialk_gpu.selection.walks import prepare

__all__ = ["calibration_page", "draw"]

BESIDE = ("right", "too many", "ARI")
GROUPS: dict[str, Callable[[str], bool]] = {
    "10 to 50 clusters": lambda name: name.split()[0] in ("k10", "k20", "k50"),
    "in 10 to 30 % noise": lambda name: "noise" in name,
    "Gaussians 4 apart, d = 50": lambda name: "d50 s4" in name,
    "sizes as 1:10:100": lambda name: name.startswith("1:10:100"),
    "weak cell types": lambda name: name.startswith("scRNA") and "weak" in name,
}
SHOWN_BY_GROUP = ("SpecialK", "SpecialK, alpha = 0.01", "HDBSCAN, 5 rows", "HDBSCAN, 1 % of rows")
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
        position, cut = Cuts(prepare(model.affinity_matrix_), model.labels_, 2).profile((0, 1))
        left.plot(position, cut, label=name)
    left.axvline(0, color="0.7", zorder=0)
    left.set(xlabel="rows from the border", ylabel="weight of the cut")
    left.legend()
    for apart, name in ((4, "two Gaussians, 4 apart"), (0, "one Gaussian")):
        X = rng.standard_normal((2000, 50))
        y = (np.arange(2000) % 2).astype(np.int32)
        X[:, 0] += apart * y
        y = y if apart else (X[:, 0] > 0).astype(np.int32)
        counts = Valleys(X, halves(X), y, 2).counts(np.array([[0, 1]]), np.arange(2))
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
    """Say whether a set of the law was looked at with its rows."""
    return not row["task"].get("graph", False)


def least_by_family() -> dict[str, np.ndarray]:
    """Return log T of the sets of each family, by the law at hand."""
    laws, found = {name: null_law(name) for name in ("rows", "graph")}, {}
    for row in filter(is_of_rows, rows_of("law")):
        T = least_log_p(row["result"]["gaps"], laws)[0]
        found.setdefault(row["task"]["family"], []).append(T)
    return {family: np.array(T) for family, T in found.items()}


def least_of_small_sets() -> dict[str, np.ndarray]:
    """Return log T of the many small sets that the law was not made of, by family."""
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
    """Lay out the false splits by family and size, at the levels."""
    sizes = sorted({row["task"]["m"] for row in rows})
    lines = []
    for family in families:
        cells = []
        for m in sizes:
            own = [r for r in rows if (r["task"]["family"], r["task"]["m"]) == (family, m)]
            counts = "/".join(str(splits(own, alpha)) for alpha in ALPHAS)
            cells.append(f"{counts} of {len(own)}" if own else "")
        lines.append([family, *cells])
    return table(["family", *(f"m = {m:,}" for m in sizes)], lines)


def verdict(rows: list[dict[str, Any]]) -> str:
    """Say how many sets of the check were split, and in which cells too many."""
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["task"]["family"], row["task"]["m"]), []).append(row)
    said = []
    for alpha in ALPHAS:
        bad = [
            f"{family}, m = {m:,}"
            for (family, m), own in cells.items()
            if beyond(splits(own, alpha), len(own), alpha)
        ]
        n = splits(rows, alpha)
        said.append(
            f"At {alpha}, {n:,} of {len(rows):,} were split ({100 * n / len(rows):.1f} %); "
            f"more than {alpha}, more than by chance, in {len(bad)} of {len(cells)} cells"
            + (f": {'; '.join(bad)}." if bad else ".")
        )
    return " ".join(said)


def composites(rows: list[dict[str, Any]]) -> str:
    """Lay out how often more clusters were found than there are."""
    lines = []
    for J in sorted({row["task"]["J"] for row in rows}):
        own = [row for row in rows if row["task"]["J"] == J]
        cells = [f"{splits(own, alpha, J)} of {len(own)}" for alpha in ALPHAS]
        right = [sum(r["result"]["k"][f"{a}"] == J for r in own) for a in ALPHAS]
        lines.append([J, *cells, *(f"{n} of {len(own)}" for n in right)])
    head = [f"more than J at {alpha}" for alpha in ALPHAS] + [f"J at {alpha}" for alpha in ALPHAS]
    return table(["J", *head], lines)


def large(rows: list[dict[str, Any]]) -> str:
    """Say what was found in the large sets."""
    return "; ".join(
        f"{family}: {', '.join(f'{k} ({n})' for k, n in sorted(ks.items()))}"
        for family, ks in large_counts(rows).items()
    )


def large_counts(rows: list[dict[str, Any]]) -> dict[str, Counter[int]]:
    """Count k by family, at the largest level."""
    found: dict[str, Counter[int]] = {}
    for row in rows:
        k = row["result"]["k"][f"{max(ALPHAS)}"]
        found.setdefault(row["task"]["family"], Counter())[k] += 1
    return found


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
    names = [f"{what}, {a}" for what in (f"noise to {LOW_NOISE}", "all") for a in ALPHAS]
    return table(["graph", "set", *names], lines)


# -- beside others --------------------------------------------------------------------------------


def found_beside(part: str) -> list[dict[str, Any]]:
    """Return what benchmarks.rivals has found in one part: task and result together."""
    rows = read(RESULTS / f"rivals-{part}.jsonl")
    return [row["task"] | row["result"] for row in rows if "result" in row]


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
        lines.append([method, *cells, f"{np.mean(apart):.2f}" if apart else "", *shares(sets)[:2]])
    head = ["method", *(f"{what}: {x}" for what in ("drawn", "real") for x in BESIDE)]
    return table([*head, "ARI, not overlapping", "all real: right", "too many"], lines)


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
        lines.append([method, *(shares(rows)[0] for rows in own)])
    return table(["right", *groups], lines)


# -- the page -------------------------------------------------------------------------------------


def calibration_page() -> str:
    """Return the text of docs/calibration.md."""
    check = rows_of("check")
    members = [row for row in check if row["task"].get("family") in CHECK]
    promised = [row for row in members if row["task"]["m"] <= 3000]
    stress = [row for row in check if row["task"].get("family") in STRESS]
    great = [row for row in check if row["task"].get("m", 0) > 3000]
    joined = [row for row in check if "J" in row["task"]]
    n_law = sum(map(is_of_rows, rows_of("law")))
    signed = ", ".join(str(n) for n in sorted(one.n_fragments for one in RESOLUTIONS if one.signed))
    parts = [part for part in ("law", "check", "tail", "paper") if rows_of(part)]
    checked = (
        "Not known yet: `python -m benchmarks.calibration check`, which tries the rule on other "
        "families, has not been run since the rule was last changed."
    )
    if promised:
        checked = f"""{len(CHECK)} other families. Split at {" / ".join(map(str, ALPHAS))}:

{by_family(promised, CHECK)}

{verdict(promised)}

"More than by chance" means that the one-sided 99.9 % lower bound of the share exceeds the level: of
100 sets, 14 or more at 0.05, and 6 or more at 0.01. An earlier version of the rule was seen on the
composites, on these families with 300 rows, and on 59 sets of 1,000 rows. It split cylinders, and
the test for bent pairs was changed; so was the count of rows in valleys, for another reason."""
    if joined:
        checked += f"\n\nJ far-apart members of these, of mixed sizes:\n\n{composites(joined)}"
    if great:
        checked += f"\n\nLarge sets, clusters found at {max(ALPHAS)}: {large(great)}."
    if stress:
        checked += f"\n\nStress, of which nothing is promised:\n\n{by_family(stress, STRESS)}"
    if rows_of("tail"):
        checked += (
            f"\n\nThe tail, in sets of 300 rows that the law was not made of:\n\n{tail_table()}"
        )
    if found_beside("designs"):
        seeds = sorted({row["seed"] for row in found_beside("designs")})
        checked += f"""

## Beside others

Right numbers of clusters, too many, and the mean ARI, on sets drawn with seeds that nothing was
chosen by ({", ".join(map(str, seeds))}), and on real sets: first the half, by a hash of the name,
that was kept for this, then all. `python -m benchmarks.rivals` says how each method was used.

{others()}

{by_group()}

{measured("rivals-designs")}"""
    if rows_of("paper"):
        checked += f"\n\n## The paper's sets\n\nHow often k is right:\n\n{paper_sets()}"
    small = ", and in small sets to $10^{-4}$" if rows_of("tail") else ""
    return f"""# What alpha means

`alpha` is meant to be the largest share of sets of one cluster that the default rule splits. This
page says what is promised, what the rule does to keep it, what was tried, and where it fails. It is
written by `python -m benchmarks.tables` from what `python -m benchmarks.calibration` measured.

## The promise

"One cluster" is a distribution without a gap whose rows are drawn independently. Three classes were
named before the law was made:

- **Promised**: convex, skewed, heavy-tailed with a variance, curved, discrete with one mode,
  high-dimensional. At most a share `alpha` of sets like these shall be split. Where J of them lie
  far apart, at most a share `alpha` shall have more than J clusters. The check below says in which
  cells this was not kept.
- **Stress**: necks, rolls, heaped values, densities that rise at their corners, exact grids,
  one-hot. They are reported one by one, and nothing is promised.
- **Out of scope**: rows that depend on each other, as random walks, near-copies, or the colours of
  an image.

## The rule

1. The graph of 10 neighbours is cut into {signed} fragments by k-means on its signed eigenvectors,
   and into 30 on $D$.
2. At each resolution the two least separate fragments are merged, again and again, until one is
   left. A pair's p is that of its cut; where a valley is looked for, twice the smaller p of the
   two.
3. *The cut.* Walks on the graph order the rows of two clusters. Where the two are one, the weight
   of the cut at the border, *between*, is about that of the lighter of the heaviest cuts on its two
   sides, *within*. $z = 2\\,(\\sqrt{{0.7\\,\\text{{within}}}} - \\sqrt{{\\text{{between}}}})$ is
   compared with a half-normal law. Its scale depends on the length of the two clusters: their rows
   divided by *within*. Below a *within* of {THIN_WEIGHT} the graph of {WIDE} neighbours decides;
   where it has shortcut edges, the scale is {SHORTCUTS} times as large.
4. *The valley.* Rows are divided into halves. Along the line between the means of one half, the
   rows of the other are counted half-way and on both sides. If there is one peak, p is binomial. It
   is asked for where the pair is short, of a length up to {SHORT_LENGTH}, as in many dimensions;
   and, of rows with up to {FEW_COLUMNS} columns, for longer pairs whose border is light and that
   are not bent.
5. *Isolation.* A part that no edge joins to others has a gap around it: $m\\,2^{{-rd}}$, for r rows
   that are nearer, in the local dimension d, which counts up to 1.5.
6. Among k clusters p is multiplied by k − 1, but for isolation; the largest over all pairs decides.
   The answer is the largest k whose p, the least over all resolutions, is at most `alpha`, and
   still is when each row has gone to the cluster where most walks from it end.
7. *Jumps.* Where k clusters pass though fewer do not, they count only if one piece of what was cut
   is apart from all the others together, or valleys may be between all of them.

```{{figure}} figures/calibration.svg
:alt: Cuts and valleys between clusters, and the least p of searches beside their level.

Left: the weights of the cuts from one cluster to the other. Middle: rows along the line between two
means. Right: the share of {n_law:,} sets of one cluster whose least p in a whole search, T, is at
most a level.
```

**The law is of the whole search**: of T, the least p over all resolutions and over 2, 3 and 4
clusters, in sets of {len(LAW)} families ({", ".join(LAW)}) of 300 to 10,000 rows
(60, 50, 24 and 2 sets of 300, 1,000, 3,000 and 10,000 rows). T is taken before polishing.
The scale is the least, rising with the length, with which in no family and size T is below 0.05,
or 0.01, in more sets than that, rounded up: so 1 of 24, and of the largest sets 1 of 2, are
allowed. Graphs that are given have a law of their own. T of all families
together was measured down to about $10^{{-3}}${small}; from there on the half-normal law goes on by
itself, and `print(model.path_)` shows no p below 0.001.

## Where there is one cluster

{checked}

## Where it fails

- It finds no clusters that overlap: along the line of their means the rows half-way must be fewer
  than on both sides, or the graph thinner.
- A cluster that shares all its fragments with others is not found, nor one with no more rows than
  neighbours. Isolated ones of s rows in m, more than neighbours, are found if $m\\,2^{{-1.5(s-1)}}$
  is at most `alpha`, or more rows where they lie along a line.
- Valleys are looked for between means: of long or bent clusters, and of clusters in noise in more
  than {FEW_COLUMNS} dimensions, only the cut is known.
- A thick ring (the noisy circle above) is thinnest straight across its hole. This is no chance,
  and the promise is not kept there. A dense core in a wide halo, as in a mixture of two Gaussians
  of one centre and very different deviations, is split into these.
- Sets with a neck are split more often than `alpha` says, and so are random walks.
- Below 0.001, p says how thin a border is, and is not a probability.

{measured(*(f"calibration-{part}" for part in parts))}
"""


if __name__ == "__main__":
    draw()
