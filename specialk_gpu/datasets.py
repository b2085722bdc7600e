"""The paper's synthetic shapes, and loaders for MNIST and Fashion-MNIST.

Examples
--------
>>> X, y = make_shape("blobs", 0.1, random_state=0)
>>> X.shape, y.max()
((1500, 2), np.int32(2))
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.preprocessing import minmax_scale
from sklearn.utils import check_random_state

from specialk_gpu.backend.typing import Seed
from specialk_gpu.io.files import read_idx

__all__ = ["NOISE_LEVELS", "SHAPES", "load_fashion_mnist", "load_mnist", "make_shape"]

SHAPES = ("random", "blobs", "moons", "circles")
NOISE_LEVELS = tuple(level / 40 for level in range(10))  # 0, 0.025, ..., 0.225

_SUBSETS = {"train": ("train", slice(None, 60_000)), "test": ("t10k", slice(60_000, None))}


def make_shape(
    shape: str, noise: float = 0.0, *, n_samples: int = 1500, random_state: Seed = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw one of the four synthetic data sets of the experiments in [HD19].

    Parameters
    ----------
    shape : {"random", "blobs", "moons", "circles"}
        Uniform on a square (1 cluster), three Gaussian blobs of unequal width (3 clusters), two
        interleaved half circles (2 clusters), or a circle inside another of twice the radius (2).
    noise : float
        For moons and circles, the standard deviation of the Gaussian noise. The blobs have the
        standard deviations ``noise + 0.5``, ``noise + 1.25`` and ``noise + 0.25``. The uniform
        square does not depend on `noise`. [HD19] uses `NOISE_LEVELS`.
    n_samples : int
        The number m of points; [HD19] uses 1500.
    random_state : int, RandomState or None
        The seed, as in scikit-learn.

    Returns
    -------
    X : ndarray of shape (n_samples, 2), float64
        The points. After the noise is added, each column is scaled to [0, 3].
    y : ndarray of shape (n_samples,), int32
        The cluster that each point was drawn from.

    Raises
    ------
    ValueError
        If `shape` is unknown, or `noise` is negative or not finite.

    Notes
    -----
    [HD19] states m and the noise levels; the centres, the blobs' standard deviations and the
    scaling are those of the authors' published notebook.
    """
    if not (np.isfinite(noise) and noise >= 0):
        msg = f"noise must be a finite number of at least 0, got {noise!r}"
        raise ValueError(msg)
    rng = check_random_state(random_state)
    match shape:
        case "random":
            X, y = rng.uniform(size=(n_samples, 2)), np.zeros(n_samples)
        case "blobs":
            X, y = datasets.make_blobs(
                n_samples,
                centers=[[1, 1], [4, 9], [6, 4]],
                cluster_std=[noise + 0.5, noise + 1.25, noise + 0.25],
                random_state=rng,
            )
        case "moons":
            X, y = datasets.make_moons(n_samples, noise=noise, random_state=rng)
        case "circles":
            X, y = datasets.make_circles(n_samples, factor=0.5, noise=noise, random_state=rng)
        case _:
            msg = f"shape must be one of {', '.join(SHAPES)}, got {shape!r}"
            raise ValueError(msg)
    return minmax_scale(X, feature_range=(0, 3)), y.astype(np.int32)


def load_mnist(
    folder: str | Path | None = None, *, subset: str = "train"
) -> tuple[np.ndarray, np.ndarray]:
    """Load MNIST, 28 x 28 images of handwritten digits.

    Parameters
    ----------
    folder : str or path-like, optional
        A folder with the idx files ``train-images-idx3-ubyte`` and ``train-labels-idx1-ubyte``
        (for the test set ``t10k-...``), plain or ``.gz``. By default the folder is taken from the
        environment variable ``SPECIALK_MNIST``. If that is not set either, the data are downloaded
        from OpenML by `sklearn.datasets.fetch_openml`, which stores them in scikit-learn's data
        folder. If a folder is named, nothing is ever downloaded.
    subset : {"train", "test"}
        60,000 or 10,000 images.

    Returns
    -------
    X : ndarray of shape (n_samples, 784), uint8
        The pixels, 0 to 255.
    y : ndarray of shape (n_samples,), uint8
        The digit that each image shows.

    Raises
    ------
    FileNotFoundError
        If the folder lacks the files; the message says which ones, and what the folder holds.
    OSError
        If no folder was named and OpenML can't be reached.
    ValueError
        If `subset` is unknown, the files are damaged, or the images do not have 28 x 28 pixels.
    """
    return _load_dataset("mnist_784", folder, "SPECIALK_MNIST", subset)


def load_fashion_mnist(
    folder: str | Path | None = None, *, subset: str = "train"
) -> tuple[np.ndarray, np.ndarray]:
    """Load Fashion-MNIST, 28 x 28 images of ten kinds of clothes.

    Parameters
    ----------
    folder : str or path-like, optional
        As in `load_mnist`, with the environment variable ``SPECIALK_FASHION_MNIST``. On Debian
        and Ubuntu, the package ``dataset-fashion-mnist`` installs the files in
        ``/usr/share/datasets/fashion-mnist``.
    subset : {"train", "test"}
        60,000 or 10,000 images.

    Returns
    -------
    X : ndarray of shape (n_samples, 784), uint8
        The pixels, 0 to 255.
    y : ndarray of shape (n_samples,), uint8
        The kind of clothes that each image shows.

    Raises
    ------
    FileNotFoundError, OSError, ValueError
        As in `load_mnist`.
    """
    return _load_dataset("Fashion-MNIST", folder, "SPECIALK_FASHION_MNIST", subset)


def _load_dataset(
    name: str, folder: str | Path | None, variable: str, subset: str
) -> tuple[np.ndarray, np.ndarray]:
    if subset not in _SUBSETS:
        msg = f"subset must be one of {', '.join(_SUBSETS)}, got {subset!r}"
        raise ValueError(msg)
    if folder is not None:
        return _dataset_from_folder(Path(folder), f"folder={str(folder)!r}", subset)
    if variable in os.environ:
        folder = os.environ[variable]
        return _dataset_from_folder(Path(folder), f"{variable}={folder!r}", subset)
    return _dataset_from_openml(name, variable, subset)


def _dataset_from_folder(folder: Path, origin: str, subset: str) -> tuple[np.ndarray, np.ndarray]:
    prefix, _ = _SUBSETS[subset]
    expected = [f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"]
    found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else None
    paths = []
    for name in expected:
        present = [entry for entry in (name, f"{name}.gz") if entry in (found or [])]
        if not present:
            holds = "is not a folder" if found is None else f"holds {', '.join(found) or 'nothing'}"
            msg = f"{origin} must hold {' and '.join(expected)}, plain or .gz; it {holds:.500}"
            raise FileNotFoundError(msg)
        paths.append(folder / present[0])
    X, y = map(read_idx, paths)
    if X.shape != (len(y), 28, 28) or X.dtype != np.uint8 or y.shape != X.shape[:1]:
        msg = f"{origin} must hold images of shape (m, 28, 28) and m labels, "
        msg += f"got {X.dtype} {X.shape} and {y.dtype} {y.shape}"
        raise ValueError(msg)
    return X.reshape(len(X), 784), y


def _dataset_from_openml(name: str, variable: str, subset: str) -> tuple[np.ndarray, np.ndarray]:
    parser = "pandas" if importlib.util.find_spec("pandas") else "liac-arff"
    try:
        X, y = datasets.fetch_openml(
            name, version=1, return_X_y=True, as_frame=False, parser=parser
        )
    except OSError as error:
        msg = f"{name} can't be fetched from OpenML ({error}); "
        msg += f"name a folder that holds its idx files by folder= or by {variable}"
        raise OSError(msg) from error
    _, rows = _SUBSETS[subset]
    return X[rows].astype(np.uint8), y[rows].astype(np.uint8)
