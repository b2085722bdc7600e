"""What is measured: the cases by size, and their inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits

from benchmarks.suite import SIZES
from specialk_gpu.backend import get_backend
from specialk_gpu.datasets import load_mnist, make_shape
from specialk_gpu.graph.knn import knn_graph
from specialk_gpu.spectrum.eigenpairs import eigenpairs
from specialk_gpu.spectrum.embedding import embed

__all__ = ["Case", "Inputs", "cases", "load", "prepare"]

N_NEIGHBORS = 10


class Case(NamedTuple):
    """One problem to solve.

    Attributes
    ----------
    stage : str
        One of STAGES.
    data : {"blobs", "digits", "mnist", "mixture"}
    m, d : int
        Rows and columns of the data.
    n : int
        Eigenpairs; for "spmm" the columns of the dense block.
    k : int
        Largest number of clusters.
    dtype : str
        Of the product.
    backend : str
        The only backend that this size is for; "" for both.
    """

    stage: str
    data: str
    m: int
    d: int
    n: int = 0
    k: int = 11
    dtype: str = "float64"
    backend: str = ""

    def __str__(self) -> str:
        """Describe the problem in a few words."""
        words = f"{self.data} {self.m:,} x {self.d}"
        if self.stage == "spmm":
            return f"{words}, {self.n} columns, {self.dtype}"
        words = f"{words}, n = {self.n}" if self.n else words
        return f"{words}, k = {self.k}" if self.stage == "kmeans" else words


class Inputs(NamedTuple):
    """What a contender gets; None where the stage does not need it.

    Attributes
    ----------
    bk : module
        The backend on which the arrays are.
    X : array of shape (m, d)
    W : csr_matrix of shape (m, m)
    Y : array of shape (m, n)
        The dense block of a product.
    D : array of shape (m, n)
    stop : callable
        To be called with the name of each part of the work that has ended.
    """

    bk: ModuleType
    X: Any = None
    W: Any = None
    Y: Any = None
    D: Any = None
    stop: Callable[[str], None] = str  # does nothing


def cases(size: str, *, mnist: bool = False) -> list[Case]:
    """List the cases of one size, with MNIST or with a mixture in its place."""
    images = "mnist" if mnist else "mixture"
    products = [(n, dtype) for dtype in ("float32", "float64") for n in (256, 1152)]
    match size:
        case "small":
            points = ("mixture", 1500, 32)
            return [
                Case("knn", "mixture", 5000, 32),
                Case("spmm", *points, n=256),
                Case("eigenpairs", *points, n=50),
                Case("kmeans", *points, n=50, k=10),
                Case("sweep", *points, n=50, k=3),
                Case("merging", *points),
                Case("fit", "digits", 1797, 64, n=50, k=3),
            ]
        case "medium":
            points = ("mixture", 10_000, 64)
            whole = [("blobs", 1500, 2), ("digits", 1797, 64), (images, 10_000, 784)]
            return [
                Case("knn", *points),
                *(Case("spmm", *points, n=n, dtype=dtype) for n, dtype in products),
                *(Case("eigenpairs", *points, n=n) for n in (200, 1000)),
                Case("kmeans", *points, n=200, k=10),
                Case("sweep", *points, n=200),
                Case("merging", *points),
                *(Case("fit", *data, n=n) for data in whole for n in (200, 1000)),
            ]
        case "large":
            points, many = (images, 60_000, 784), ("mixture", 1_000_000, 128)
            return [
                Case("knn", *points),
                Case("knn", *many, backend="cuda"),
                *(Case("spmm", *points, n=n, dtype=dtype) for n, dtype in products),
                *(Case("eigenpairs", *points, n=n) for n in (200, 1000)),
                Case("kmeans", *points, n=1000, k=10),
                Case("sweep", *points, n=1000),
                Case("merging", *points),
                *(Case("fit", *points, n=n) for n in (200, 1000)),
                Case("fit", *many, n=200, backend="cuda"),
            ]
    msg = f"size must be one of {', '.join(SIZES)}, got {size!r}."
    raise ValueError(msg)


def points(case: Case, mnist: str | None) -> np.ndarray:
    """Return the data of a case; MNIST's pixels in float32."""
    match case.data:
        case "blobs":
            return make_shape("blobs", 0.1, n_samples=case.m, random_state=0)[0]
        case "digits":
            return load_digits().data[: case.m]
        case "mnist":
            X, _ = load_mnist(mnist, subset="test" if case.m <= 10_000 else "train")
            return X[: case.m].astype(np.float32)
    return mixture(case.m, case.d)


def mixture(m: int, d: int) -> np.ndarray:
    """Draw from 20 overlapping Gaussians in eight dimensions, mapped to d with some noise."""
    rng = np.random.default_rng(0)
    inner = min(8, d)
    centres = 1.5 * rng.standard_normal((20, inner), dtype=np.float32)
    X = centres[rng.integers(20, size=m)] + rng.standard_normal((m, inner), dtype=np.float32)
    X = X @ rng.standard_normal((inner, d), dtype=np.float32)
    X += 0.3 * rng.standard_normal((m, d), dtype=np.float32)
    return X


def prepare(case: Case, backend: str, mnist: str | None, folder: Path) -> None:
    """Write those inputs of a case to `folder` that are not there yet."""
    bk = get_backend(backend)
    path = _paths(case, folder)
    if not path["X"].exists():
        np.save(path["X"], points(case, mnist))
    if case.stage in ("knn", "fit"):
        return
    if not path["W"].exists():
        W = knn_graph(bk.asarray(np.load(path["X"])), N_NEIGHBORS)
        sparse.save_npz(path["W"], W if bk.name == "numpy" else W.get(), compressed=False)
    if case.stage in ("kmeans", "sweep") and not path["D"].exists():
        W = bk.sparse.csr_matrix(sparse.load_npz(path["W"]))
        pairs = eigenpairs(W, case.n, random_state=0)
        np.save(path["D"], bk.to_numpy(embed(pairs.values, pairs.vectors)))


def load(case: Case, bk: ModuleType, folder: Path) -> Inputs:
    """Read the inputs that the stage of a case needs, onto a backend."""
    path = _paths(case, folder)
    if case.stage in ("knn", "fit"):
        return Inputs(bk, X=bk.asarray(np.load(path["X"])))
    if case.stage in ("kmeans", "sweep"):
        return Inputs(bk, D=bk.asarray(np.load(path["D"])))
    W = sparse.load_npz(path["W"]).astype(case.dtype)
    Y = None
    if case.stage == "spmm":
        Y = np.random.default_rng(0).standard_normal((case.m, case.n), dtype=case.dtype)
        Y = bk.asarray(Y)
    return Inputs(bk, W=bk.sparse.csr_matrix(W), Y=Y)


def _paths(case: Case, folder: Path) -> dict[str, Path]:
    name = f"{case.data}-{case.m}-{case.d}"
    names = {"X": f"X-{name}.npy", "W": f"W-{name}.npz", "D": f"D-{name}-{case.n}.npy"}
    return {key: Path(folder) / name for key, name in names.items()}
