"""Fitted models in files, and on machines without a GPU.

A file is NumPy's .npz, without pickle: the arrays by name, and `content`, a JSON text with the
version of the format, the parameters, and what is no array.
"""

from __future__ import annotations

import json
import math
import os
import warnings
import zipfile
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from specialk_gpu._result import Candidate, SelectionPath
from specialk_gpu.backend import backend_of, is_device_array
from specialk_gpu.selection.merging import Tree

__all__ = ["OnDevice", "load", "on_host", "save"]

FORMAT = 2
STEP_NUMBERS = ("log_p", "log_p_level", "log_zz_top", "inertia")  # arrays: may be infinite
PARTS = ("data", "indices", "indptr")  # of a sparse matrix


class OnDevice(NamedTuple):
    """A fitted array that is on the device, and is copied to the host when it is read."""

    array: Any
    host: Any = None  # the same, where the host has it already


def on_host(value: Any) -> Any:
    """Return a fitted attribute with its arrays on the host; what is there already is itself."""
    if isinstance(value, OnDevice):
        value = value.array if value.host is None else value.host
    if isinstance(value, SelectionPath):
        return value.with_labels(on_host)
    if isinstance(value, Tree):
        return value._replace(leaf=on_host(value.leaf))
    if not is_device_array(value):
        return value
    bk = backend_of(value)
    return value.get() if bk.sparse.issparse(value) else bk.to_numpy(bk.asarray(value))


def save(path: Any, kind: str, version: str, parameters: dict[str, Any], state: dict) -> None:
    """Write a fitted model, in one go or not at all.

    Parameters
    ----------
    path : str or path
    kind, version : str
        The class, and the version of the package, that wrote it.
    parameters : dict
        Numbers, strings and None.
    state : dict
        Fitted attributes, on the host: arrays, sparse matrices, a path, and what JSON holds.

    Raises
    ------
    TypeError
        If a parameter cannot be written.
    """
    for name, value in parameters.items():
        if value is not None and not isinstance(value, (str, Integral, Real, np.bool)):
            msg = (
                f"{name} must be a number, a string or None to be saved, got {value!r}. Set it "
                f"with set_params({name}=...), or use joblib.dump."
            )
            raise TypeError(msg)
    arrays: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, SelectionPath):
            for field in STEP_NUMBERS:
                numbers = [getattr(step, field) for step in value]
                arrays[f"{name}.{field}"] = np.array(numbers, dtype=np.float64)  # None as NaN
            arrays[f"{name}.labels"] = np.stack([step.labels for step in value])
            others = set(Candidate._fields) - {*STEP_NUMBERS, "labels"}
            steps = [{field: getattr(step, field) for field in others} for step in value]
            plain[name] = {"steps": steps, "criterion": value.criterion}
        elif isinstance(value, Tree):
            arrays |= {f"{name}.{field}": getattr(value, field) for field in Tree._fields}
            plain[name] = {"tree": True}
        elif sparse.issparse(value):
            arrays |= {f"{name}.{part}": getattr(value, part) for part in PARTS}
            plain[name] = {"shape": value.shape}
        elif isinstance(value, np.ndarray):
            arrays[name] = value.astype(str) if value.dtype == object else value
        else:
            plain[name] = {"value": value}
    header = {"format": FORMAT, "class": kind, "version": version, "parameters": parameters}
    content = json.dumps(header | {"state": plain}, allow_nan=False, default=_number)
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        msg = f"{path} must name a file in a folder that exists."
        raise OSError(msg)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            np.savez(stream, content=np.array(content), **arrays)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _number(value: Any) -> Any:
    """Return a NumPy scalar as one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    msg = f"a {type(value).__name__} cannot be saved, got {value!r}."
    raise TypeError(msg)


def load(path: Any, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what `save` wrote.

    Parameters
    ----------
    path : str or path
    kind : str
        The class that must have written it.

    Returns
    -------
    parameters, state : dict

    Raises
    ------
    ValueError
        If the file was not written by `save`, is damaged, or is of another format.
    """
    if Path(path).is_file() and not zipfile.is_zipfile(path):
        msg = f"{path} is not a model that was saved, or is damaged: it is no .npz file"
        raise ValueError(msg)
    try:
        with warnings.catch_warnings(), Path(path).open("rb") as stream:
            warnings.simplefilter("error")  # what NumPy only doubts
            with np.load(stream, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        content = json.loads(str(arrays.pop("content")))
        found = content["format"], content["class"], content["version"]
        parameters, plain = content["parameters"], content["state"]
        state = {}
        if found[:2] == (FORMAT, kind):
            state = {name: _restored(name, value, arrays) for name, value in plain.items()}
    except OSError:
        raise
    except Exception as error:  # damage shows in many ways
        msg = f"{path} is not a model that was saved, or is damaged: {error}"
        raise ValueError(msg) from error
    if found[:2] != (FORMAT, kind):
        msg = (
            f"{path} must hold a {kind} in format {FORMAT}, got a {found[1]} in format {found[0]}, "
            f"written by version {found[2]}."
        )
        raise ValueError(msg)
    state |= {name: _of_strings(array) for name, array in arrays.items() if "." not in name}
    return parameters, state


def _of_strings(array: np.ndarray) -> np.ndarray:
    """Return names as scikit-learn has them, as objects."""
    return array.astype(object) if array.dtype.kind == "U" else array


def _restored(name: str, value: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Put an attribute together again."""
    if "shape" in value:
        parts = tuple(arrays[f"{name}.{part}"] for part in PARTS)
        return sparse.csr_matrix(parts, shape=value["shape"])
    if "tree" in value:
        return Tree(*(arrays[f"{name}.{field}"] for field in Tree._fields))
    if "steps" not in value:
        return value["value"]
    labels = arrays[f"{name}.labels"]
    numbers = {
        field: [None if math.isnan(number) else number for number in column]
        for field, column in ((f, arrays[f"{name}.{f}"].tolist()) for f in STEP_NUMBERS)
    }
    steps = []
    for i, other in enumerate(value["steps"]):
        pair = None if other["pair"] is None else tuple(other["pair"])
        own = {field: numbers[field][i] for field in STEP_NUMBERS}
        steps.append(Candidate(**other | own | {"pair": pair, "labels": labels[i]}))
    return SelectionPath(steps, value["criterion"])
