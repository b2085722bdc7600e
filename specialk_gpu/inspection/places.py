"""Where the rows of a fitted model are drawn in a picture of two dimensions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.stats import rankdata

from specialk_gpu._affinities import is_graph
from specialk_gpu._fitted import Fitted
from specialk_gpu._host import on_host
from specialk_gpu.inspection.diagnostics import fitted_rows, settings
from specialk_gpu.tables.frames import table_of_rows
from specialk_gpu.tables.table import no_text

__all__ = ["MOST_ROWS", "Places", "is_graph_of_fit", "places", "places_of_discs"]

MOST_ROWS = 5000  # about as many are drawn
MOST_DISCS = 400  # the largest k for which discs are placed by their nearness
GAP = 1.12  # distance of two discs that touch, as a multiple of the sum of their radii
FEWEST_WALKS = 1e-4  # smaller shares of walks count as this one
ROUNDS = 300  # in which discs push each other apart


class Places(NamedTuple):
    """The rows that are drawn, and where.

    Attributes
    ----------
    rows : int array of shape (q,)
        Some rows of each cluster.
    points : float64 array of shape (q, 2)
        Their coordinates.
    words : str
        What the coordinates mean.
    to_scale : bool
        Whether one unit is the same length in both directions.
    """

    rows: np.ndarray
    points: np.ndarray
    words: str
    to_scale: bool


def _clusters_to_place(model: Fitted) -> np.ndarray:
    """Return the cluster of each row, also of outliers."""
    labels = on_host(model.labels_)
    if (labels >= 0).all():
        return labels
    return on_host(next(step.labels for step in model.path_ if step.k == model.n_clusters_))


def places(model: Fitted, coordinates: Any = None, X: Any = None) -> Places:
    """Choose coordinates for a picture: those given, else the columns of X, else discs.

    Parameters
    ----------
    model : SpecialK
        A fitted model.
    coordinates : array-like of shape (m, 2), optional
        Coordinates of the caller's.
    X : array-like of shape (m, d), optional
        Columns of the fitted rows. Two are drawn as they are. Of more, the two leading principal
        components are drawn: of the rows as they were fitted, if the model has them. Blanks count
        as the mean of their column, text is left out.

    Returns
    -------
    Places

    Raises
    ------
    ValueError
        If `coordinates` or `X` are not of that shape, or `coordinates` are not finite.
    """
    labels = _clusters_to_place(model)
    rows = _some_of_each(labels, model.n_clusters_)
    if coordinates is not None:
        return Places(
            rows,
            _given_places(coordinates, len(labels))[rows],
            "Coordinates as given.",
            to_scale=False,
        )
    columns = None if X is None else _columns_for_places(model, X)
    if columns is not None:
        values, names = columns
        shown, words = _places_of_columns(values[rows], names)
        return Places(rows, shown, words, to_scale=len(names) > 2)
    centers, radii = places_of_discs(model)
    D, points = on_host(model.embedding_)[rows], np.empty((rows.size, 2))
    for c in range(model.n_clusters_):
        inside = labels[rows] == c
        points[inside] = centers[c] + radii[c] * _places_in_disc(D[inside])
    near = ""
    if model.n_clusters_ > 1:
        near = " Discs are near each other if walks lead from one cluster to the other, or if "
        near += "the means of their rows are near."
    words = "Each cluster is a disc whose area shows its number of rows." + near
    words += " Rows that differ from the mean of their cluster are at its edge."
    return Places(rows, points, words, to_scale=True)


def _some_of_each(labels: np.ndarray, k: int) -> np.ndarray:
    """Return every row, or so many of each cluster that about `MOST_ROWS` are left."""
    step = -(-len(labels) // MOST_ROWS)
    return np.concatenate([np.flatnonzero(labels == c)[::step] for c in range(k)])


def _given_places(coordinates: Any, m: int) -> np.ndarray:
    """Return coordinates as float64 (m, 2)."""
    points = np.asarray(on_host(coordinates))
    if points.shape != (m, 2) or points.dtype.kind not in "buif":
        found = f"shape {points.shape} and dtype {points.dtype}"
        msg = f"coordinates must be numbers of shape ({m}, 2), a point for each row, got {found}."
        raise ValueError(msg)
    if not np.isfinite(points).all():
        bad = int((~np.isfinite(points)).any(axis=1).argmax())
        msg = f"coordinates must be finite, got {points[bad].tolist()} in row {bad}."
        raise ValueError(msg)
    return points.astype(np.float64)


def is_graph_of_fit(model: Fitted, X: Any) -> bool:
    """Return whether X is the graph that a model was fitted to."""
    m = len(model.labels_)
    return is_graph(settings(model).affinity) and getattr(X, "shape", None) == (
        m,
        m,
    )


def _columns_for_places(model: Fitted, X: Any) -> tuple[np.ndarray, list[str]] | None:
    """Return the columns of numbers of X as float64 (m, d), and their names; None if X has none.

    A graph has no columns.
    """
    m = len(model.labels_)
    if sparse.issparse(X) or is_graph_of_fit(model, X):
        return None
    try:
        table = table_of_rows(on_host(X), no_text)
    except ValueError as error:
        msg = f"X must hold the fitted rows as a table: {error}."
        raise ValueError(msg) from error
    if table.X.shape[0] != m:
        msg = f"X must hold the {m} fitted rows, got {table.X.shape[0]} rows."
        raise ValueError(msg)
    values = table.X.astype(np.float64)
    values[~np.isfinite(values)] = np.nan
    kept = ~np.isnan(values).all(axis=0)
    fitted = list(getattr(model, "feature_names_in_", ()))
    named = table.names if table.header or len(fitted) != len(table.names) else fitted
    values, names = values[:, kept], [named[i] for i in np.flatnonzero(kept)]
    if not names:
        return None
    clustered = fitted_rows(model)
    if len(names) > 2 and clustered is not None:  # the picture shows them as they were scaled
        values = clustered.astype(np.float64)
        if len(names) != values.shape[1]:
            numbered = [f"column {j}" for j in range(values.shape[1])]
            names = fitted or numbered
    values = values / (np.nanmax(np.abs(values)) or 1)  # so that no square leaves float64
    return np.where(np.isnan(values), np.nanmean(values, axis=0), values), names


def _places_of_columns(values: np.ndarray, names: list[str]) -> tuple[np.ndarray, str]:
    """Return points (q, 2) of columns, and what they are."""
    if len(names) == 1:
        return np.column_stack([values, np.zeros(len(values))]), f"Column {names[0]}."
    if len(names) == 2:
        return values, f"Columns {names[0]} (to the right) and {names[1]} (upwards)."
    words = f"The two leading principal components of {len(names)} columns. Clusters that overlap "
    return _places_by_leading_components(
        values
    ), words + "here may be separate in other directions."


def _places_by_leading_components(values: np.ndarray) -> np.ndarray:
    """Return the two leading principal components of rows: (q, 2)."""
    centred = values - values.mean(axis=0)
    if values.shape[1] == 1:
        return np.column_stack([centred, np.zeros(len(values))])
    return centred @ np.linalg.eigh(centred.T @ centred)[1][:, :-3:-1]


def _places_in_disc(D: np.ndarray) -> np.ndarray:
    """Spread the rows of one cluster evenly over the unit disc, by leading components.

    The direction from the mean is kept; of the distance, only the rank is.
    """
    x, y = _places_by_leading_components(D).T
    distance = np.hypot(x, y)
    scale = np.sqrt((rankdata(distance) - 0.5) / len(D)) / np.where(distance > 0, distance, 1)
    return np.column_stack([x * scale, y * scale])


def places_of_discs(model: Fitted) -> tuple[np.ndarray, np.ndarray]:
    """Return centres (k, 2) and radii (k,) of discs that do not overlap, one for each cluster.

    Areas are proportional to numbers of rows. Centres begin at a multidimensional scaling of the
    clusters, and then push each other apart.
    """
    k = model.n_clusters_
    labels = _clusters_to_place(model)
    sizes = np.bincount(labels, minlength=k)
    radii = np.sqrt(np.maximum(sizes, 1) / len(labels))
    wide = np.ceil(np.sqrt(k))
    grid = np.column_stack([np.arange(k) % wide, -(np.arange(k) // wide)])
    if k == 1 or k > MOST_DISCS:
        return grid * 2 * GAP * radii.max(), radii
    points = _places_at_distances(_distances_of_places(model, labels))
    points += 0.01 * (grid - grid.mean(axis=0)) / wide  # for clusters that all are equally far
    points *= 1.3 / np.sqrt((points**2).sum(axis=1).mean())
    needed = GAP * (radii[:, None] + radii)
    for _ in range(ROUNDS):
        apart = points[:, None] - points
        distance = np.hypot(*apart.T) + np.where(np.eye(k), np.inf, 1e-12)
        lack = np.maximum(needed - distance, 0)
        if not lack.any():
            break
        points = points + 0.4 * (apart * (lack / distance)[..., None]).sum(axis=1)
    distance = np.hypot(*(points[:, None] - points).T) + np.where(np.eye(k), np.inf, 0)
    return points * max(1, (needed / distance).max()), radii


def _distances_of_places(model: Fitted, labels: np.ndarray) -> np.ndarray:
    """Return distances of clusters (k, k), by the walks between them and the means of their rows.

    Both count alike, and each is at most 1.
    """
    k = model.n_clusters_
    walks = _means_to_place(on_host(model.membership_), labels, k)
    walks = np.clip((walks + walks.T) / 2, FEWEST_WALKS, 1)
    distance = np.log(walks) / np.log(FEWEST_WALKS)
    if model._fit_X is not None:
        rows = on_host(model._fit_X)
        means = _means_to_place(rows / (np.abs(rows).max() or 1), on_host(model._fit_labels), k)
        sq = (means**2).sum(axis=1)
        between = np.sqrt(np.maximum(sq[:, None] + sq - 2 * means @ means.T, 0))
        distance = distance + between / (between.max() or 1)
    np.fill_diagonal(distance, 0)
    return distance


def _means_to_place(values: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Return the mean of the rows of each cluster: (k, columns)."""
    ones = np.ones(len(labels))
    members = sparse.csr_array((ones, (labels, np.arange(len(labels)))), shape=(k, len(labels)))
    return (members @ values) / np.maximum(np.bincount(labels, minlength=k), 1)[:, None]


def _places_at_distances(distance: np.ndarray) -> np.ndarray:
    """Return points (k, 2) with about these distances, by classical multidimensional scaling."""
    sq = distance**2
    centred = sq - sq.mean(axis=0) - sq.mean(axis=1)[:, None] + sq.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    return vectors[:, :-3:-1] * np.sqrt(np.maximum(values[:-3:-1], 0))
