"""Fragments: parts of a graph that are smaller than any cluster of the answer should be."""

from __future__ import annotations

from typing import Any, NamedTuple

from specialk_gpu.backend import backend_of
from specialk_gpu.backend.large_arrays import large_array
from specialk_gpu.backend.typing import Array
from specialk_gpu.lloyd.kmeans import kmeans_batch
from specialk_gpu.spectrum.embedding import embed

__all__ = [
    "RESOLUTIONS",
    "FragmentResolution",
    "finer_fragment_resolutions",
    "finest_resolutions",
    "fragment_resolutions",
    "fragments",
    "n_fragment_eigenvectors",
]

ROWS_EACH = 12  # smallest mean number of rows of a fragment
COLUMNS = 50  # columns of D that are used
SPARE = 2  # with fewer fragments for each cluster, the graph is cut more finely
FINER = 4  # the most fragments for each cluster of a given number of clusters
N_INIT = 3  # starts of k-means; few, as the best cut is not that of the lowest inertia


class FragmentResolution(NamedTuple):
    """The number of fragments into which a graph is cut, and the coordinates used.

    Attributes
    ----------
    signed : bool
        If True, k-means runs on V|Λ|^½, each row scaled to length 1 (after [NJW01]). This separates
        many, small or mirrored clusters. If False, it runs on D = |V||Λ|^½ [HD19], which separates
        noisy bands.
    n_fragments : int
    n_columns : int
        If not `signed`, the number of columns of D that are used.
    """

    signed: bool
    n_fragments: int
    n_columns: int = COLUMNS

    @property
    def name(self) -> str:
        """A name for a checkpoint."""
        return f"{'signed' if self.signed else 'absolute'}-{self.n_fragments}"


RESOLUTIONS = (
    FragmentResolution(signed=True, n_fragments=8),
    FragmentResolution(signed=True, n_fragments=15),
    FragmentResolution(signed=True, n_fragments=20),
    FragmentResolution(signed=True, n_fragments=60),
    FragmentResolution(signed=False, n_fragments=30),
    FragmentResolution(signed=True, n_fragments=5),  # few: noise stays with its cluster
)


def fragment_resolutions(
    m: int, least: int = 1, exactly: int | None = None
) -> list[FragmentResolution]:
    """Return the resolutions at which m rows are cut.

    There are to be at least `least` clusters, or, if it is given, `exactly` that many.
    """
    if exactly is not None:
        if exactly == 1:
            return []
        wanted = [FragmentResolution(signed=True, n_fragments=n * exactly) for n in (1, 2, FINER)]
        columns = min(FINER * exactly, COLUMNS)
        wanted.append(FragmentResolution(signed=False, n_fragments=exactly, n_columns=columns))
    else:
        wanted = list(RESOLUTIONS)
        finest = max(one.n_fragments for one in wanted)
        while finest < SPARE * least:
            finest *= 2
            wanted.append(FragmentResolution(signed=True, n_fragments=finest))
    most = max(2, m // ROWS_EACH, least)
    wanted = [one._replace(n_fragments=min(one.n_fragments, most, m)) for one in wanted]
    return [one for one in dict.fromkeys(wanted) if max(2, least) <= one.n_fragments]


def finest_resolutions(wanted: list[FragmentResolution], n: int) -> list[FragmentResolution]:
    """Return the n signed resolutions of the most fragments, in the given order."""
    signed = [one for one in wanted if one.signed]
    finest = sorted(signed, key=lambda one: -one.n_fragments)[:n]
    return [one for one in wanted if one in finest]


def finer_fragment_resolutions(
    done: list[FragmentResolution], m: int, found: int
) -> list[FragmentResolution]:
    """Return a resolution finer than those done, if `found` clusters are too many for them."""
    finest = max(one.n_fragments for one in done)
    most = max(2, m // ROWS_EACH)
    if SPARE * found <= finest or finest >= most:
        return []
    return [FragmentResolution(signed=True, n_fragments=min(2 * finest, most))]


def n_fragment_eigenvectors(wanted: list[FragmentResolution], m: int) -> int:
    """Return how many eigenvectors of m rows the fragments of some resolutions are made from."""
    most = max((one.n_fragments if one.signed else one.n_columns for one in wanted), default=1)
    return max(1, min(most, m - 1))


def fragments(
    values: Array, vectors: Array, wanted: FragmentResolution, seed: int
) -> tuple[Array, int]:
    """Divide the rows into fragments by k-means on their leading eigenvectors.

    Parameters
    ----------
    values, vectors : arrays of shape (n,) and (m, n)
        Eigenpairs, by decreasing magnitude.
    wanted : Resolution
    seed : int

    Returns
    -------
    labels : int32 array of shape (m,)
    k : int
        The number of fragments: fewer than wanted if rows are equal in these coordinates.
    """
    bk = backend_of(vectors)
    if wanted.signed:
        n = min(wanted.n_fragments, vectors.shape[1])
        Y = large_array(bk, (vectors.shape[0], n), "float64")
        Y[...] = vectors[:, :n]
        Y *= abs(values[:n]) ** 0.5
        length = bk.xp.sqrt(bk.row_squares(Y))[:, None]
        Y /= bk.xp.where(length > 0, length, 1)
    else:
        Y = embed(values[: wanted.n_columns], vectors[:, : wanted.n_columns]).astype(
            "float64", copy=False
        )
    settings: dict[str, Any] = {"seeds": [seed], "sample_seed": seed, "n_init": N_INIT}
    (found,) = kmeans_batch(Y, [wanted.n_fragments], overwrite=True, **settings)
    return found.labels, int(found.centers.shape[0])
