"""What a fitted model does by fitting again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from specialk_gpu._fitted import Fitted
from specialk_gpu._host import OnDevice, on_host
from specialk_gpu._validation import validate_input
from specialk_gpu.backend import get_backend
from specialk_gpu.backend.typing import Array, Backend, Matrix, Seed
from specialk_gpu.tables.prepared import Prepared

if TYPE_CHECKING:
    from specialk_gpu.inspection.stability import Stability

__all__ = ["Refitting"]


class Refitting(Fitted):
    """The methods of a fitted estimator that fit again."""

    _prepared: Callable[[Matrix], tuple[Any, Prepared | None]]

    def stability(
        self,
        X: Matrix | None = None,
        *,
        kinds: Sequence[str] | None = None,
        n_refits: int = 5,
        random_state: Seed = None,
        n_jobs: int | None = None,
    ) -> Stability:
        """Fit again with small changes, and say which clusters are found again.

        What changes is one of: `random_state`; the order of the rows; `n_neighbors`, by factors of
        0.7, 1.4 and 2; the rows, to a sample of 80 %. Each fit is compared with `labels_` by the
        adjusted Rand index, and cluster by cluster by the largest Jaccard index [Hen07]_. Samples
        are drawn without replacement: the copies of a bootstrap would be left out as duplicates.

        Parameters
        ----------
        X : array-like of shape (m, d), or (m, m) for a given graph
            The fitted rows, in the same order, or the fitted graph. None takes the rows that the
            model keeps; it keeps no graph, and not all rows if duplicates were left out.
        kinds : list of {"random_state", "order", "n_neighbors", "sample"}, optional
            What to change; by default all, of a given graph all but "n_neighbors".
        n_refits : int, default=5
            The number of fits of each kind; those of "n_neighbors" are three.
        random_state : int, RandomState or None
            Seed of the samples, the orders and the other seeds.
        n_jobs : int or None
            Fits at the same time, each in a process of its own with its share of the cores; None
            means 1, -1 as many as there are cores. On a GPU it is always 1.

        Returns
        -------
        Stability
            Prints as a table; has a table of HTML for notebooks, `to_frame()` with a row for each
            fit, and `jaccard`: for each cluster the mean over the fits of the kind that it bears
            least. At least 0.75 is stable, less than 0.6 is not to be trusted [Hen07]_.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.
        ValueError, TypeError
            If X has not the rows and columns of the fit, or is None and the model does not keep it,
            or a parameter is not valid.

        Notes
        -----
        The time is that of the fit for each refit, 18 by default. The parameters are those at the
        time of the fit, also `time_limit`. The seed is that of the model if it was a number,
        otherwise one that is drawn, the same for all refits but those of "random_state".

        Clusters that are found again need not be true ones: a square of even density is cut into
        the same halves again and again, if `n_clusters` asks for two.

        References
        ----------
        .. [Hen07] C. Hennig: Cluster-wise assessment of cluster stability. Computational Statistics
           & Data Analysis 52, 258-271, 2007.

        Examples
        --------
        >>> from specialk_gpu import SpecialK
        >>> from specialk_gpu.datasets import make_shape
        >>> X, _ = make_shape("blobs", noise=0.1, n_samples=300, random_state=0)
        >>> model = SpecialK(backend="numpy", random_state=0).fit(X)
        >>> result = model.stability(X, kinds=["sample"], n_refits=2, random_state=0)
        >>> [refit.k for refit in result.refits]
        [3, 3]
        """
        from specialk_gpu.inspection.stability import stability

        check_is_fitted(self, "labels_")
        given = self._kept_rows() if X is None else X
        bk = get_backend(self.backend, given)
        with bk.device_of(given):
            rows = given if X is None else self._checked_rows(bk, given)
            return stability(
                self,
                rows,
                kinds=kinds,
                n_refits=n_refits,
                random_state=random_state,
                n_jobs=n_jobs,
            )

    def _kept_rows(self) -> Array:
        """Return the rows of the fit, as they were clustered."""
        if self._fit_X is None or self._distinct is not None:
            what = "the graph" if self._fit_X is None else "duplicates among the rows"
            msg = f"X must be given, as it was fitted: the model does not keep {what}."
            raise ValueError(msg)
        return on_host(self._fit_X) if isinstance(self._fit_X, OnDevice) else self._fit_X

    def _checked_rows(self, bk: Backend, X: Matrix) -> Any:
        checker, prepared = self._prepared(X)
        rows = X if prepared is None else prepared.X
        return validate_input(checker, bk, rows, precomputed=self._fit_X is None, fitted=True)
