"""What a fitted model says of itself: a summary, a description, outlier scores and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from specialk_gpu._fitted import Fitted
from specialk_gpu._validation import output_converter
from specialk_gpu.backend.typing import Array, Matrix
from specialk_gpu.inspection.outliers import outlier_scores

if TYPE_CHECKING:
    from specialk_gpu.inspection.stability import Stability
    from specialk_gpu.inspection.summary import Summary

__all__ = ["Account"]


class Account(Fitted):
    """The methods of a fitted estimator that say what was found."""

    @property
    def outlier_scores_(self) -> Array:
        """The outlier scores; described under the attributes of `SpecialK`."""
        check_is_fitted(self, "labels_")
        return output_converter(self.labels_)(outlier_scores(self))

    def summary(self, X: Matrix | None = None) -> Summary:
        """Return the sizes of the clusters, and the columns that tell them apart.

        For each column there is an effect size, and for each cluster the median and how much it
        differs from the other clusters. These are no tests: the clusters were made from the same
        rows, so they differ even where there are no true clusters.

        Parameters
        ----------
        X : array-like, data frame or series of m rows, optional
            Any columns, also such that were not clustered, with names, text, categories and blanks.
            By default the rows of the fit. Pass X for a given graph, for metric="cosine", and if
            duplicates were left out: the model then does not hold the rows as they were given.

        Returns
        -------
        Summary
            Prints as a table; has a table of HTML for notebooks, and `to_frame()`.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.
        ValueError
            If X does not have as many rows as the fit, or holds neither numbers nor text.
        """
        from specialk_gpu.inspection.summary import summary

        check_is_fitted(self, "labels_")
        return summary(self, X)

    def describe(self) -> str:
        """Return an account of the result in at most ten lines: k, sizes, p and doubts.

        Returns
        -------
        str
            To be printed: ``print(model.describe())``.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.
        """
        from specialk_gpu.inspection.description import description

        check_is_fitted(self, "labels_")
        return description(self)

    def report(
        self,
        path: str | Path,
        *,
        X: Matrix | None = None,
        image_shape: tuple[int, int] | None = None,
        coordinates: Matrix | None = None,
        stability: Stability | None = None,
        source: str = "",
    ) -> None:
        """Write an HTML page that says how many clusters there are, why, and how clear that is.

        Parameters
        ----------
        path : str or path
            The HTML file.
        X : array-like of shape (m, d), optional
            The fitted rows, or other columns of them, also with names, text and blanks. The page
            shows in which columns the clusters differ, as `summary` does. In the picture, two
            columns are drawn as they are; of more, the two leading principal components of the
            rows as they were fitted. Without X or `coordinates`, each cluster is drawn as a disc.
            Cost: a sort of each column.
        image_shape : tuple of two int, optional
            Height and width, if rows are images: typical rows of each cluster are then shown as
            images, and X is not used for the picture.
        coordinates : array-like of shape (m, 2), optional
            Where to draw each row in the picture, such as a UMAP or places on a map.
        stability : Stability, optional
            What `stability(X)` returned, to be shown on the page.
        source : str
            A description of the data, shown at the top of the page.

        Raises
        ------
        NotFittedError
            If `fit` has not been called.
        ValueError
            If X or `coordinates` do not have a row for each fitted row, `coordinates` are not
            finite numbers, the rows of X are not images of that shape, or `stability` is that of
            another model.
        OSError
            If the file cannot be written.
        """
        from specialk_gpu.inspection.report import report

        given: dict[str, Any] = {"X": X, "image_shape": image_shape, "coordinates": coordinates}
        report(self, path, **given, stability=stability, source=source)

    def _html_repr(self) -> str:
        """Return scikit-learn's picture of an estimator; below that of a fitted one, its result."""
        from specialk_gpu.inspection.description import description_in_html

        picture: str = super()._html_repr()  # type: ignore[misc] # of BaseEstimator
        return picture + description_in_html(self) if hasattr(self, "labels_") else picture
