"""docs/reproduce.md and docs/sensitivity.md, from the files of results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import product
from statistics import median_low
from typing import Any

from benchmarks.markdown import machine, table
from benchmarks.paper import sensitivity
from benchmarks.paper.data import TABLES as FILES
from benchmarks.paper.published import CHOSEN, TABLES
from benchmarks.paper.real import MAX_K, N_SPECTACL
from benchmarks.paper.runner import read, stamps
from benchmarks.paper.shapes import DEFAULT, FIGURE3_N, SHAPES, TRUE_K, figure2_tasks
from benchmarks.stamp import RESULTS

__all__ = ["measured", "reproduce", "sensitivity_page"]

LOW_NOISE = 0.075  # up to which the paper's figure shows moons and circles apart
GRAPHS = ("W_C", "W_R")
STSC_SAYS = {
    "random": "splits it, most often into an even number",
    "blobs": "no mistake",
    "moons": "right at low noise, then right or too many by turns",
    "circles": "right at low noise, then right or too many by turns",
}
SPECIALK_SAYS = {
    "random": "no mistake",
    "blobs": "right, but for single sets",
    "moons": "erratic; right at low noise without correlated columns",
    "circles": "right at low noise, 1 at high",
}
VARIANTS = {  # of SpecialK: the key of the result, and the name
    "k": "SpecialK",
    "without_correlated": "SpecialK, drop_correlated=0.95",
    "watershed": "SpecialK, watershed",
    "eigengap": "eigengap",
}


def measured(*names: str) -> str:
    """Say where the results of experiments were measured: once for each kind of machine."""
    found = [stamp for name in names for stamp in stamps(RESULTS / f"{name}.jsonl")]
    commits = ", ".join(dict.fromkeys(stamp["commit"][:7] for stamp in found if stamp["commit"]))
    machines = " ".join(dict.fromkeys(machine(stamp) for stamp in found))
    return f"Measured on {machines} With the code of {commits}."


def results(name: str) -> list[dict[str, Any]]:
    """Return the rows of paper-NAME.jsonl that have a result."""
    return [row for row in read(RESULTS / f"paper-{name}.jsonl") if "result" in row]


def k_of(row: dict[str, Any], graph: str, rule: str = "k") -> int | None:
    """Return k with a graph by a rule; a method without a graph has one k for both."""
    return row["result"].get(graph, row["result"]).get(rule)


def right(rows: Iterable[dict[str, Any]], shape: str, graph: str, rule: str, noise: float) -> int:
    """Count how often the true k was found up to a level of noise."""
    ks = [
        k_of(row, graph, rule)
        for row in rows
        if row["task"]["shape"] == shape and row["task"]["noise"] <= noise
    ]
    return sum(k == TRUE_K[shape] for k in ks)


def figure2() -> str:
    """Count how often each method finds the true k, for all noise and for low noise."""
    rows = results("figure2")
    asked = Counter(task["method"] for task in figure2_tasks())
    lines, never = [], []
    for method, n_sets in asked.items():
        own = [row for row in rows if row["task"]["method"] == method]
        if len(own) < n_sets:
            continue
        if not any(
            k_of(row, graph) == TRUE_K[row["task"]["shape"]] for row in own for graph in GRAPHS
        ):
            never.append(method)
            continue
        graphs = ("",) if method == "STSC" else GRAPHS
        variants = VARIANTS if method == "SpecialK" else {"k": method}
        for (rule, name), graph in product(variants.items(), graphs):
            cells = [
                f"{right(own, shape, graph, rule, 1)} ({right(own, shape, graph, rule, LOW_NOISE)})"
                for shape in SHAPES
            ]
            lines.append([name, f"${graph[0]}_{graph[2]}$" if graph else "its own", *cells])
    head = ["method", "graph", *(f"{shape} (k = {TRUE_K[shape]})" for shape in SHAPES)]
    said = [
        ["*the paper on SpecialK*", "", *(SPECIALK_SAYS[shape] for shape in SHAPES)],
        ["*the paper on STSC*", "", *(STSC_SAYS[shape] for shape in SHAPES)],
    ]
    found = table(head, lines + said)
    return f"{found}\n\nNever right: {', '.join(never)}." if never else found


def figure3() -> str:
    """Count for some n in how many sets the true k is found."""
    shown = [n for n in FIGURE3_N if n in (25, 50, 100, 200, 400, 700, 1000, 1400)]
    rows = results("figure3")
    lines = []
    for graph in GRAPHS:
        for shape in SHAPES:
            own = [
                row["result"]["k"]
                for row in rows
                if (row["task"]["shape"], row["task"]["graph"]) == (shape, graph)
            ]
            found = ([ks[FIGURE3_N.index(n)] for ks in own] for n in shown)
            cells = [sum(k == TRUE_K[shape] for k in ks) for ks in found]
            lines.append([f"${graph[0]}_{graph[2]}$", f"{shape} ({TRUE_K[shape]})", *cells])
    return table(["graph", "shape (true k)", *(f"n = {n}" for n in shown)], lines)


def data_tables() -> str:
    """Say what is chosen of each data set, with a table where the paper has one."""
    rows = results("tables")
    parts = []
    for name in dict.fromkeys(row["task"]["data"] for row in rows):
        own = {row["task"]["method"]: row["result"] for row in rows if row["task"]["data"] == name}
        parts.append(f"{_about(name, own)}")
        parts += [_columns(name, own)] if name in TABLES else []
    return "\n\n".join(parts)


def _about(name: str, own: dict[str, dict[str, Any]]) -> str:
    """Say what the data are, and which k is chosen."""
    any_ = next(iter(own.values()))
    text = (
        f"**{name}**: {any_['m']:,} rows, {any_['d']} columns, {any_['classes']} classes. Chosen: "
    )
    chosen = []
    for method, result in own.items():
        if method == "STSC":
            chosen.append(f"{result['k']} by STSC")
        elif method == DEFAULT:
            chosen.append(f"{result['k']} by the default (NMI {result['nmi']:.3f})")
        elif "k" in result:
            graph = f"${method[0]}_{method[2]}$, n = {result['n']}"
            chosen.append(f"{result['k']} with {graph} (watershed {result['watershed']})")
    text += "; ".join(chosen) + "."
    if name in CHOSEN:
        text += " The paper: {} with $W_C$, {} with $W_R$, {} by STSC.".format(*CHOSEN[name])
    for graph, place in {"W_C": 0, "W_R": 2}.items():
        if name in TABLES and graph in own:
            path = {row["k"]: row["nmi"] for row in own[graph]["path"] if row["k"] in TABLES[name]}
            near = [str(k) for k, nmi in path.items() if abs(nmi - TABLES[name][k][place]) <= 0.05]
            title = f"${graph[0]}_{graph[2]}$"
            text += f" NMI with {title} is within 0.05 of the paper's for k = {', '.join(near)}."
    return text


def _columns(name: str, own: dict[str, dict[str, Any]]) -> str:
    published = TABLES.get(name, {})
    head, columns = ["k"], [[str(k) for k in range(2, MAX_K + 1)]]
    for place, method in enumerate(("W_C", "W_R", "STSC")):
        title = "STSC" if method == "STSC" else f"${method[0]}_{method[2]}$"
        second = "quality" if method == "STSC" else "log10 p"
        path = {row["k"]: row for row in own.get(method, {}).get("path", [])}
        if path:
            head += [f"{title} NMI", f"{title} {second}"]
            columns.append([f"{path[k]['nmi']:.3f}" for k in path])
            columns.append(
                [
                    f"{row['quality']:.3f}"
                    if method == "STSC"
                    else f"{row['log_p'] / math.log(10):.2f}"
                    for row in path.values()
                ]
            )
        if published:
            head += [f"*paper, {title} NMI*", f"*{second}*"]
            given = [published.get(k) for k in range(2, MAX_K + 1)]
            columns.append([f"{x[2 * place]:.3f}" if x else "" for x in given])
            columns.append(
                [
                    ""
                    if not x
                    else f"{x[5]:.3f}"
                    if method == "STSC"
                    else f"{math.log10(x[2 * place + 1]):.2f}"
                    for x in given
                ]
            )
    return table(head, [list(line) for line in zip(*columns, strict=True)])


def reproduce() -> str:
    """Return docs/reproduce.md."""
    files = "\n".join(
        f"- {name}: `{file.variable}` names `{file.file}`, features of shape "
        f"{file.shape[0]:,} x {file.shape[1]:,} beside the column `{file.label}`."
        for name, file in FILES.items()
    )
    return f"""# The paper's experiments

Every experiment of the paper [[HD19]](references.md#hd19), on this library, beside what the paper
says. SpecialK decides by the paper's rule here, `criterion="zz_top"`; what the default rule finds,
with no limit to k, is called *the default*. The page is written by `python -m benchmarks.tables`,
its figures by `python -m benchmarks.paper.draw`. `pip install '.[bench]'` brings what the commands
need; `figure2 --no-rivals` does without ClustPy, whose PyTorch nothing here uses.

## Figure 1: the data

![The four shapes at two levels of noise](figures/figure1.svg)

`make_shape` draws them as the authors' notebook does, 1,500 points each.

## Figure 2: noise

`python -m benchmarks.paper figure2`: ten levels of noise, five sets each, $n = 200$,
$\\alpha = 0.01$, k up to 5 (ClustPy's methods go somewhat further). PGMeans and those after it see
the paper's 50 columns of D, STSC [[ZP04]](references.md#zp04) the points, the eigengap heuristic
[[Lux07]](references.md#lux07) $W_C$ and $W_R$ normalised by their degrees. An area is how often a k
was found; the band is the true one.

![k found against noise](figures/figure2.svg)

In how many of 50 sets the true k was found, and (in brackets) of the 20 with noise up to
{LOW_NOISE}:

{figure2()}

Where we differ: of moons the paper first drops columns that are correlated above 0.95, which is
`drop_correlated=0.95` here. It takes whichever optimum ten restarts of k-means end in; here swaps
lead to a lower inertia. The paper's seeds are not published.

{measured("paper-figure2")}

## Figure 3: the number of eigenvectors

`python -m benchmarks.paper figure3`: noise 0.1, five sets. In the paper, too, $W_C$ finds too few
circles and too many moons, and the other six are right.

![k found against n](figures/figure3.svg)

In how many of the five sets the true k was found:

{figure3()}

{{doc}}`sensitivity` maps what n does.

{measured("paper-figure3")}

## Tables 1 to 5: real data

`python -m benchmarks.paper tables`: k up to {MAX_K}, $n$ as `n_components="auto"` has it. The
results by k are in `benchmarks/results/paper-tables.jsonl`. MNIST and Fashion-MNIST are found by
`SPECIALK_MNIST` and `SPECIALK_FASHION_MNIST` ({{doc}}`data`). The paper's other sets have to be
fetched by hand; those that are not named below were not at hand:

{files}

The paper does not say how it scales columns; Pulsar's and Sloan's are standardised here. Its graphs
and optima are not published, so a difference in NMI may come from either. SpectACl
[[HDHM19]](references.md#hdhm19), which must be told k, is `SpecialK(n_clusters=k,
n_components={N_SPECTACL})`. As k-means runs on the 50 largest columns anyway, it finds what $W_C$
does.

{data_tables()}

{measured("paper-tables")}
"""


def false_splits() -> str:
    """Lay out the rate of false splits on data without clusters, by m and n and by both rules."""
    rows = [row for row in results("sensitivity") if row["task"]["kind"] in ("uniform", "normal")]
    lines = []
    for m in sensitivity.SETS:
        own = [row["result"] for row in rows if row["task"]["m"] == m]
        cells = []
        for i, n in enumerate(sensitivity.NS):
            have = [one for one in own if i < len(one["k"])] if n < m else []
            split = (sum(one[rule][i] > 1 for one in have) for rule in ("k", "watershed"))
            cells.append("/".join(map(str, split)) if have else "")
        lines.append([f"{m:,}", len(own), *cells])
    return table(["m", "sets", *(f"n = {n}" for n in sensitivity.NS)], lines)


def false_splits_by_kind(m: int) -> str:
    """Lay out the false splits of the first rule by the kind of data, where there are any."""
    rows = [row for row in results("sensitivity") if row["task"]["m"] == m]
    lines = []
    for kind in ("uniform", "normal"):
        for d in sensitivity.DIMENSIONS:
            own = [
                r["result"]["k"] for r in rows if (r["task"]["kind"], r["task"]["d"]) == (kind, d)
            ]
            split = [sum(k > 1 for k in ks) for ks in zip(*own, strict=True)]
            found = [f"{x} with n = {n}" for x, n in zip(split, sensitivity.NS, strict=False) if x]
            if found:
                lines.append(
                    f"of the {len(own)} {kind} sets in {d} dimensions, {' and '.join(found)}"
                )
    return "; ".join(lines)


def clustered() -> str:
    """Lay out the median k found on data with clusters, by m and n, by both rules."""
    rows = results("sensitivity")
    lines = []
    for kind, true_k in list(sensitivity.TRUE_K.items())[2:] + [("digits", 10)]:
        for m in sorted({row["task"]["m"] for row in rows if row["task"]["kind"] == kind}):
            own = [r["result"] for r in rows if (r["task"]["kind"], r["task"]["m"]) == (kind, m)]
            medians = (
                [median_low(ks) for ks in zip(*(x[rule] for x in own), strict=True)]
                for rule in ("k", "watershed")
            )
            cells = [f"{first}/{last}" for first, last in zip(*medians, strict=True)]
            cells += [""] * (len(sensitivity.NS) - len(cells))
            lines.append([f"{kind} ({true_k})", f"{m:,}", len(own), *cells])
    return table(["data (k)", "m", "sets", *(f"n = {n}" for n in sensitivity.NS)], lines)


def count(
    kinds: tuple[str, ...], n: int, rule: str, right: int | None, *, low: int, high: int, d: int = 0
) -> str:
    """Count the sets of low <= m < high rows whose k is `right`, or above 1 where that is None."""
    ks = [
        row["result"][rule][row["result"]["n"].index(n)]
        for row in results("sensitivity")
        if row["task"]["kind"] in kinds
        and low <= row["task"]["m"] < high
        and row["task"]["d"] in (d or row["task"]["d"],)
        and n in row["result"]["n"]
    ]
    return f"{sum(k > 1 if right is None else k == right for k in ks)} of {len(ks)}"


def advice() -> str:
    """Say which n to take, with the counts that support it."""
    nothing, mixture = ("uniform", "normal"), ("mixture",)
    small, large = {"low": 0, "high": 5000}, {"low": 5000, "high": 10**6}
    middle = {"low": 1001, "high": 10**6}
    return f"""- **Take the default, `criterion="cut"`, for a k that n does not decide.** The rest
  is about the paper's rule, `criterion="zz_top"`.
- **Take `"auto"` and `stopping="first"` to be rather sure of a split.** With $n = 200$ below 5,000
  rows it split {count(nothing, 200, "k", None, **small)} sets without clusters, with $n = 1000$
  from there on {count(nothing, 1000, "k", None, **large)}. It errs on the other side: of the sets
  of five normal clusters it found all five in {count(mixture, 200, "k", 5, **small)}, and in
  {count(mixture, 1000, "k", 5, **large)}. A k of 1 says that no split is certain with this n, not
  that there is none.
- **Take $n = 700$ and `stopping="watershed"` to see what may be there**, from some 2,000 rows on:
  the five clusters were found in {count(mixture, 700, "watershed", 5, **middle)} sets. The price is
  a false split in {count(nothing, 700, "watershed", None, **middle)} sets without clusters; in the
  plane in {count(nothing, 700, "watershed", None, **middle, d=2)}.
- **Data along curves have no safe n** with $W_C$. Of moons in 1,000 or 2,000 rows, from the n on
  that finds two clusters, many are found. In 5,000 rows it was right with n = 200 and 300, and
  split too often with 1,000. Try $W_R$, and read [bands](trust.md#bands).
- **Why `"auto"` is 200 below 5,000 rows and 1,000 from there on.** Below, a larger n brings false
  splits in the plane before it brings the five clusters to the first rule. From there on, 200 and
  300 made no false split and took moons apart rightly, but found none of the five clusters; 1,000
  begins to find some in 10,000 rows, and [MNIST](results.md) has six clusters with 1,000 and two
  with 200."""


def sensitivity_page() -> str:
    """Return docs/sensitivity.md."""
    return f"""# What n does

`n_components`, the number n of eigenvectors, decides how readily the paper's rule splits: the
logarithm of the bound falls in proportion to n ([why](method.md#effect)). With few eigenvectors
nothing is certain enough; with many, much is that should not be.

This page maps that. It is written by `python -m benchmarks.tables` from what
`python -m benchmarks.paper sensitivity` measured: $W_C$ with ten neighbours, $\\alpha = 0.01$, k up
to {sensitivity.MAX_K}. Each cell has two numbers: by `stopping="first"`, and by `"watershed"`.

## What to take

{advice()}

## Data without clusters

Points uniform in a cube, and normal, in 2 to 50 dimensions, all together. A false split is any
k above 1. The number of false splits:

![Rate of false splits](figures/sensitivity.svg)

{false_splits()}

Of 1,000 rows, `stopping="first"` split only these: {false_splits_by_kind(1000)}.

## Data with clusters

The paper's shapes at noise 0.1, five normal clusters in ten dimensions, 5.7 standard deviations
apart, and scikit-learn's digits. The median of the k found:

{clustered()}

{measured("paper-sensitivity")}
"""
