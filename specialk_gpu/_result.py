"""The selection path: one row for each number of clusters k, with its p and the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from specialk_gpu._printable import printable_html_table

if TYPE_CHECKING:
    import pandas as pd

    from specialk_gpu.backend.typing import Array

__all__ = [
    "NO_POWER",
    "TIME_IS_UP",
    "Candidate",
    "SelectionPath",
]

NO_POWER = "rejected: the test has no power on these data"
MOST_IN_HTML = 50  # candidates
TIME_IS_UP = "; time_limit reached"  # the end of a reason
SMALL = -3 * math.log(10)  # log p below which the cut test's p is printed as "< 0.001"


class Candidate(NamedTuple):
    """One row of the path: a clustering into k clusters, and its test.

    Attributes
    ----------
    k : int
        Number of clusters.
    log_p : float
        Natural logarithm of the p that decides; -inf for k = 1, which has no pair to test. For the
        cut test, p is the smallest p of all clusterings into k or more clusters that were tested;
        for the ZZ Top Bound, it is the largest bound over the pairs.
    pair : tuple of two int, or None
        The labels of the least separate pair.
    accepted : bool
        Whether the decision is for k clusters, or more.
    reason : str
        The reason in words.
    labels : int32 array of shape (m,)
        Labels 0, ..., k - 1; cluster 0 is the largest.
    log_p_level : float or None
        For the cut test: natural logarithm of the p of this clustering alone.
    log_zz_top : float or None
        The largest ZZ Top Bound over the pairs, as a natural logarithm, if it was computed.
    inertia : float or None
        For criterion="zz_top": the inertia of the best k-means restart.
    """

    k: int
    log_p: float
    pair: tuple[int, int] | None
    accepted: bool
    reason: str
    labels: Array
    log_p_level: float | None = None
    log_zz_top: float | None = None
    inertia: float | None = None

    def renumbered(self, labels: Array, number: Sequence[int]) -> Candidate:
        """Return the candidate with other labels, where cluster c is now number[c]."""
        if self.pair is None:
            return self._replace(labels=labels)
        pair = sorted(int(number[c]) for c in self.pair)
        old, new = (f"clusters {a} and {b}" for a, b in (self.pair, pair))
        reason = self.reason.replace(old, new)
        return self._replace(labels=labels, pair=(pair[0], pair[1]), reason=reason)

    def __eq__(self, other: object) -> bool:
        """Return whether all fields are equal, the labels of every row included."""
        if not isinstance(other, Candidate):
            return NotImplemented
        one, two = self._asdict(), other._asdict()
        mine, others = one.pop("labels"), two.pop("labels")
        if mine is others or one != two:
            return one == two
        return mine.shape == others.shape and bool((mine == others).all())

    def __ne__(self, other: object) -> bool:
        """Return the opposite of `==`."""
        return not self == other

    def __repr__(self) -> str:
        """Return the fields of one line, without the labels of all rows."""
        fields = f"k={self.k}, log_p={self.log_p:.4g}, pair={self.pair}, accepted={self.accepted}"
        return f"Candidate({fields}, reason={self.reason!r})"


class SelectionPath(tuple[Candidate, ...]):
    """The candidates of a search, by rising k; `criterion` is the rule that decided."""

    criterion: str

    def __new__(cls, steps: Iterable[Candidate], criterion: str) -> SelectionPath:
        """Make a path of candidates."""
        path = super().__new__(cls, steps)
        path.criterion = criterion
        return path

    def __reduce__(self) -> tuple[type[SelectionPath], tuple[tuple[Candidate, ...], str]]:
        """Pickle the candidates and the rule."""
        return SelectionPath, (tuple(self), self.criterion)

    def with_labels(self, function: Callable[[Array], Array]) -> SelectionPath:
        """Return a path in which `function` has been applied to the labels of each candidate."""
        steps = (step._replace(labels=function(step.labels)) for step in self)
        return SelectionPath(steps, self.criterion)

    def with_reason(self, k: int, addition: str) -> SelectionPath:
        """Return a path in which the reason for k has an addition."""
        longer = (s._replace(reason=s.reason + addition) if s.k == k else s for s in self)
        return SelectionPath(longer, self.criterion)

    @property
    def is_cut_short(self) -> bool:
        """Whether the search ended at `time_limit`; the reason of a k then says so."""
        return any(step.reason.endswith(TIME_IS_UP) for step in self)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one row per k, without the labels; this needs pandas.

        Returns
        -------
        DataFrame
            `log_p` decides; `log10_p` is the same number to base 10. Columns that the rule does not
            use are left out. ``frame.attrs["criterion"]`` is the rule.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from specialk_gpu import SpecialK
        >>> X, _ = make_blobs(300, centers=[(0, 0), (9, 0), (0, 9)], random_state=0)
        >>> model = SpecialK(backend="numpy", random_state=0).fit(X)
        >>> model.path_.to_frame()["k"].tolist()[:4]
        [1, 2, 3, 4]
        """
        import pandas as pd

        frame = pd.DataFrame([step._asdict() for step in self], columns=Candidate._fields)
        frame = frame.drop(columns="labels")
        frame.insert(2, "log10_p", frame["log_p"] / math.log(10))
        frame = frame.drop(columns=[c for c in Candidate._fields[6:] if frame[c].isna().all()])
        frame.attrs["criterion"] = self.criterion
        return frame

    def __str__(self) -> str:
        """Return the path as a table whose header names the rule."""
        widths = (4, 9, 9, 9, 9) if self.criterion == "cut" else (4, 9, 12, 9, 9)
        lines = []
        for *cells, reason in (self._head(), *map(self._cells, self)):
            columns = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
            lines.append(f"{' '.join(columns)}  {reason}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return the table, because the labels of all candidates would fill many pages."""
        return str(self)

    def _repr_html_(self) -> str:
        """Return a table of HTML for notebooks, of at most `MOST_IN_HTML` candidates."""
        table = printable_html_table(self._head(), map(self._cells, self[:MOST_IN_HTML]))
        left = len(self) - MOST_IN_HTML
        return f"{table}\n<p>and {left} more: print(model.path_)</p>" if left > 0 else table

    def _head(self) -> list[str]:
        cut = self.criterion == "cut"
        columns = ["p", "own p"] if cut else ["log10 p", "inertia"]
        rule = "cut test" if cut else "ZZ Top Bound [HD19]"
        return ["k", *columns, "pair", "accepted", f"reason ({rule})"]

    def _cells(self, step: Candidate) -> list[str]:
        if self.criterion == "cut":
            values = [_p(step.log_p, step.k), _p(step.log_p_level, step.k)]
        else:
            values = [f"{step.log_p / math.log(10):.2f}", f"{step.inertia:.6g}"]
        pair = "" if step.pair is None else f"{step.pair[0]}, {step.pair[1]}"
        return [str(step.k), *values, pair, "yes" if step.accepted else "no", step.reason]


def _p(log_p: float | None, k: int) -> str:
    """Format a p of the cut test; its null distribution is not known far out in the tail."""
    if k == 1 or log_p is None:
        return ""
    return "< 0.001" if log_p < SMALL else f"{math.exp(log_p):.3f}"
