"""The scales of columns, and a warning if they differ a hundredfold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specialk_gpu._warnings import ScaleWarning, warn
from specialk_gpu.backend import backend_of
from specialk_gpu.backend.typing import Array

__all__ = ["unequal_scales", "warn_of_scales"]

APART, MOST_SCALED = 100, 100  # ratio of spreads that is too large, in so many columns at most
SAMPLED, CENTRED = 2**13, 0.05  # rows that are measured; the largest mean, in deviations


class ExtremeScales(NamedTuple):
    """The columns of largest and smallest standard deviation, and these deviations."""

    widest: int
    narrowest: int
    largest: float
    smallest: float


def unequal_scales(X: Array) -> ExtremeScales | None:
    """Return the extreme spreads of the columns of X (m, d) if they differ a hundredfold, or None.

    None is returned for many columns, as of images; for whole numbers from 0 on, of which most
    columns have the same maximum, as of small images; and for centred columns by decreasing spread,
    as of principal components. Constant columns do not count.
    """
    if not 2 <= X.shape[1] <= MOST_SCALED:
        return None
    bk = backend_of(X)
    with np.errstate(over="ignore", invalid="ignore"):
        whole = ((X >= 0) & (bk.xp.rint(X) == X)).all(axis=0).astype(X.dtype)
        facts = [X.std(axis=0), abs(X).max(axis=0), abs(X.mean(axis=0)), whole]
    spread, size, mean, whole = bk.to_numpy(bk.xp.stack(facts))  # host waits
    if whole.all() and 2 * np.count_nonzero(size == size.max()) > size.size:
        return None
    spread = np.where(np.isfinite(spread) & (spread > 1e-12 * size), spread, 0)  # 0 if constant
    if (np.diff(spread) <= 0).all() and (mean <= CENTRED * spread).all():
        return None
    widest, narrowest = int(np.argmax(spread)), int(np.argmin(np.where(spread > 0, spread, np.inf)))
    largest, smallest = float(spread[widest]), float(spread[narrowest])
    differ = smallest > 0 and largest > APART * smallest
    return ExtremeScales(widest, narrowest, largest, smallest) if differ else None


def warn_of_scales(X: Array) -> None:
    """Warn that the spreads of the columns of X differ a hundredfold, by a sample of the rows."""
    sample = X[:: -(-X.shape[0] // SAMPLED), : MOST_SCALED + 1]
    found = unequal_scales(sample.astype(np.float64))
    if found:
        warn(
            "the columns of X have very different spreads: a standard deviation of "
            f"{found.largest:.3g} in column {found.widest}, and of {found.smallest:.3g} in column "
            f"{found.narrowest}. The clusters are those of the widest columns alone. If the "
            "columns have different units, scale X first, for instance with "
            "sklearn.preprocessing.StandardScaler.",
            ScaleWarning,
        )
