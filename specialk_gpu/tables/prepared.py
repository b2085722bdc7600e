"""Rows of a table that are ready to be clustered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

__all__ = ["Prepared"]


@dataclass
class Prepared:
    """Rows that are ready to be clustered.

    Attributes
    ----------
    X : ndarray or csr_array
        The rows.
    names : list of str or None
        Names of its columns, if the file has names.
    kept : ndarray of int, or None
        Which rows of the file they are; None for all.
    n_rows : int
        The number of rows in the file.
    ids : list of str or None
        The ids of all rows of the file.
    """

    X: np.ndarray | sparse.csr_array
    names: list[str] | None
    kept: np.ndarray | None
    n_rows: int
    ids: list[str] | None

    def for_all_rows(self, labels: np.ndarray) -> np.ndarray:
        """Return labels for all rows of the file: -1 for those that were dropped."""
        if self.kept is None:
            return labels
        full = np.full(self.n_rows, -1, labels.dtype)
        full[self.kept] = labels
        return full
