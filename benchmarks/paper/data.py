"""The data sets of the paper's tables, and others of the kind.

MNIST, Fashion-MNIST and digits come from the library's loaders. The others are CSV files that the
user has to fetch, and names by an environment variable:

    SPECIALK_PULSAR  pulsar_stars.csv, 17,898 rows, eight features and `target_class`
                     (Kaggle, pavanraj159/predicting-pulsar-star-in-the-universe)
    SPECIALK_SLOAN   Skyserver_SQL2_27_2018 6_51_39 PM.csv, 10,000 rows, eighteen columns with
                     `class` (Kaggle, lucidlenn/sloan-digital-sky-survey)
    SPECIALK_HMNIST  hmnist_64_64_L.csv, 5,000 rows, 4,096 pixels and `label`
                     (Kaggle, kmader/colorectal-histology-mnist)

Their SHA-256 is kept with every result. The paper does not say how it scales the columns: those of
Pulsar and Sloan, whose units differ, are standardised here; pixels are left as they are.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import scale

from specialk_gpu.datasets import load_fashion_mnist, load_mnist

__all__ = ["DATA", "Table", "load", "missing", "read_table", "sha256"]


class Table(NamedTuple):
    """A CSV file with a header: which column has the classes, and what is not a feature."""

    variable: str  # of the environment, with the path
    file: str
    label: str
    shape: tuple[int, int]  # of the features
    dropped: tuple[str, ...] = ()
    standardised: bool = True


TABLES = {
    "Pulsar": Table("SPECIALK_PULSAR", "pulsar_stars.csv", "target_class", (17_898, 8)),
    "Sloan": Table(
        "SPECIALK_SLOAN",
        "Skyserver_SQL2_27_2018 6_51_39 PM.csv",
        "class",
        (10_000, 16),
        dropped=("objid",),
    ),
    "HMNIST": Table(
        "SPECIALK_HMNIST", "hmnist_64_64_L.csv", "label", (5_000, 4_096), standardised=False
    ),
}
FOLDERS = {"MNIST": "SPECIALK_MNIST", "Fashion-MNIST": "SPECIALK_FASHION_MNIST"}
DATA = ("digits", *FOLDERS, *TABLES)


def missing(name: str) -> str:
    """Return which environment variable would name the data, or "" where they are at hand."""
    variable = FOLDERS.get(name) or (TABLES[name].variable if name in TABLES else "")
    return "" if not variable or os.environ.get(variable) else variable


def load(name: str) -> tuple[Any, Any]:
    """Load the features (m, d) and the classes (m,) of a data set."""
    match name:
        case "digits":
            return load_digits(return_X_y=True)
        case "MNIST":
            return load_mnist()
        case "Fashion-MNIST":
            return load_fashion_mnist()
    table = TABLES[name]
    X, y = read_table(Path(os.environ[table.variable]), table)
    if X.shape != table.shape:
        msg = f"{name} must have features of shape {table.shape}, got {X.shape}."
        raise ValueError(msg)
    return X, y


def sha256(name: str) -> str | None:
    """Return the checksum of a data set's file, or None where it is not a single one."""
    if name not in TABLES:
        return None
    return hashlib.sha256(Path(os.environ[TABLES[name].variable]).read_bytes()).hexdigest()


def read_table(path: Path, table: Table) -> tuple[Any, Any]:
    """Read the features (m, d), float64, and the classes (m,), numbered from 0.

    Raises
    ------
    ValueError
        If a column that should be there is not, or a feature is no number.
    """
    import pandas as pd

    frame = pd.read_csv(path)
    absent = {table.label, *table.dropped} - set(frame.columns)
    if absent:
        msg = f"{path.name} must have the columns {sorted(absent)}, got {list(frame.columns)[:30]}."
        raise ValueError(msg)
    y = np.unique(frame.pop(table.label), return_inverse=True)[1]
    X = frame.drop(columns=list(table.dropped)).to_numpy(dtype=np.float64)
    return scale(X) if table.standardised else X, y
