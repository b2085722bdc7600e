"""The clusters of the report: a picture, their sizes, what is closest, and typical rows."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu.backend.typing import Matrix
from specialk_gpu.inspection.charts import COLORS, OUTLIER, as_html, scatter_chart
from specialk_gpu.inspection.diagnostics import counted, images, sizes_of_clusters, typical
from specialk_gpu.inspection.places import places
from specialk_gpu.selection.walks import N_STEPS

__all__ = ["report_clusters"]

NEARNESS = {"cut": "walks that end in it", "zz_top": "log10 of the ZZ Top Bound with it"}
CLOSEST = {
    "cut": "A walk goes from a row to one of its neighbours, drawn at random, and so on for up to "
    f"{N_STEPS} steps. Of the walks that begin in a cluster, some end in others: it is closest to "
    "the one in which most end.",
    "zz_top": "The ZZ Top Bound says how likely so clear a split of two clusters would be, at "
    "most, if they were one. A cluster is closest to the one with the largest bound. Its log10 is "
    "shown: -2 means 0.01, and -3 means 0.001.",
}


def report_clusters(
    model: Fitted,
    steps: list[dict[str, Any]],
    X: Matrix | None,
    image_shape: tuple[int, int] | None,
    coordinates: Matrix | None,
) -> str:
    """Return the picture, the sizes of the clusters, and typical rows as images, as HTML.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    steps : list of dict
        What the page holds about each k.
    X, image_shape, coordinates
        See `SpecialK.report`.
    """
    if image_shape is not None and X is None:
        msg = "image_shape needs X, the images as rows."
        raise ValueError(msg)
    drawn = places(model, coordinates, X if image_shape is None else None)
    m, shown = len(model.labels_), len(drawn.rows)
    amount = counted(m, "row") if shown == m else f"{shown:,} of {m:,} rows"
    grey = ", outliers in grey" if sizes_of_clusters(model)[1] else ""
    caption = as_html(f"{amount}, coloured by cluster{grey}. {drawn.words}")
    sort = (
        '<caption class="soft screen">Select a heading to sort the table by it</caption>'
        if model.n_clusters_ > 1
        else ""
    )
    heads = ("cluster", "rows", "share", "closest to", NEARNESS[model.path_.criterion])
    ordered = ' aria-sort="ascending"'
    head = "".join(
        f'<th scope="col"{ordered if name == "cluster" else ""}>'
        f'<button type="button">{name}</button></th>'
        for name in heads
    )
    rows = "\n".join(_report_cluster_rows(model, steps))
    foot = _report_outlier_row(model)
    parts = [
        f"<figure>{scatter_chart(model, drawn)}"
        f'<figcaption class="soft">{caption}</figcaption></figure>',
        f'<table id="sizes" class="stack">{sort}\n<thead><tr>{head}</tr></thead>',
        f"<tbody>\n{rows}\n</tbody>{foot}</table>",
    ]
    if model.n_clusters_ > 1:
        parts.append(f'<p class="soft">{CLOSEST[model.path_.criterion]}</p>')
    if image_shape is not None and X is not None:
        parts.append(_report_members(model, X, image_shape))
    return "\n".join(parts)


def _report_nearness(model: Fitted, steps: list[dict[str, Any]]) -> np.ndarray | None:
    """Return how near each cluster is to each other one, (k, k): larger is nearer.

    For criterion="cut" this is the percentage of walks from the first that end in the second.
    """
    k = model.n_clusters_
    if model.path_.criterion == "zz_top":
        pairs = next(one for one in steps if one["k"] == k)["log10_zz_top"]
        return None if pairs is None else np.array(pairs)
    if k == 1:
        return None
    labels, shares = on_host(model.labels_), on_host(model.membership_)
    return np.stack([100 * shares[labels == c].mean(axis=0) for c in range(k)])


def _report_cluster_rows(model: Fitted, steps: list[dict[str, Any]]) -> list[str]:
    """Return a table row for each cluster: its size, and the cluster that it is closest to."""
    sizes, n_outliers = sizes_of_clusters(model)
    label = NEARNESS[model.path_.criterion]
    nearness, unit = _report_nearness(model, steps), " %" if model.path_.criterion == "cut" else ""
    rows = []
    for c, size in enumerate(sizes.tolist()):
        share = size / (sizes.sum() + n_outliers)
        closest, shown = "–", "–"
        place, height = c, 0.0
        if nearness is not None:
            others = nearness[c].copy()
            others[c] = -np.inf
            place, height = int(others.argmax()), float(others.max())
            if height or not unit:  # a cluster that no walk enters has none that is closest
                closest, shown = str(place), f"{height:.2f}{unit}"
        color = COLORS[c % len(COLORS)]
        rows.append(
            f'<tr><th scope="row" data-value="{c}">{_swatch(color)}{c}</th>'
            f"{_report_size_cells(size, share, color)}"
            f'<td data-value="{place}" data-label="closest to">{closest}</td>'
            f'<td data-value="{height}" data-label="{label}">{shown}</td></tr>'
        )
    return rows


def _report_outlier_row(model: Fitted) -> str:
    """Return the foot of the table: the outliers, if there are any."""
    n_outliers = sizes_of_clusters(model)[1]
    if not n_outliers:
        return ""
    share = n_outliers / len(model.labels_)
    cells, rest = _report_size_cells(n_outliers, share, OUTLIER), '<td colspan="2"></td>'
    return f'\n<tfoot><tr><th scope="row">{_swatch(OUTLIER)}outliers</th>{cells}{rest}</tr></tfoot>'


def _swatch(color: str) -> str:
    return f'<span class="swatch" style="background:{color}"></span>'


def _report_size_cells(size: int, share: float, color: str) -> str:
    """Return two cells: a number of rows, and its share of all rows."""
    return (
        f'<td data-value="{size}" data-label="rows">{size:,}</td>'
        f'<td data-value="{share}" class="left" data-label="share"><span class="bar" '
        f'style="background:{color};width:{8 * share:.2f}rem"></span> {100 * share:.1f} %</td>'
    )


def _report_members(model: Fitted, X: Matrix, shape: tuple[int, int]) -> str:
    """Return typical rows of each cluster as images."""
    X = images(model, X, shape, "image_shape")
    height, width = X.shape[1:]
    chosen = typical(model, 12)
    low = min(float(X[rows].min()) for rows in chosen)
    high = max(float(X[rows].max()) for rows in chosen)
    parts = ["<h3>Typical rows of each cluster</h3>"]
    for c, rows in enumerate(chosen):
        parts.append(f'<p class="soft">cluster {c}</p><div class="images">')
        for row in rows.tolist():
            pixels = (X[row].astype(np.float64) - low) / ((high - low) or 1) * 255
            coded = base64.b64encode(pixels.round().astype(np.uint8).tobytes()).decode()
            parts.append(
                f'<canvas width="{width}" height="{height}" role="img" '
                f'aria-label="row {row}" title="row {row}" data-pixels="{coded}"></canvas>'
            )
        parts.append("</div>")
    return "\n".join(parts)
