"""Saving and loading of fitted models, also on machines without a GPU.

A file is a NumPy .npz file without pickle. It holds the arrays by name, and `content`, a JSON text
with the version of the format, the parameters, and every attribute that is not an array.
"""

from __future__ import annotations

import json
import math
import warnings
import zipfile
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from specialk_gpu._result import Candidate, SelectionPath
from specialk_gpu._writing import replacing
from specialk_gpu.backend import backend_of, is_device_array
from specialk_gpu.selection.merging import Tree

__all__ = ["OnDevice", "load", "on_host", "save"]

FORMAT = 3
STEP_NUMBERS = ("log_p", "log_p_level", "log_zz_top", "inertia")  # as arrays: JSON has no infinity
PARTS = ("data", "indices", "indptr")  # of a sparse matrix


class OnDevice(NamedTuple):
    """A fitted array on the device, which is copied to the host when it is read."""

    array: Any
    host: Any = None  # its copy on the host, if there is one already


def on_host(value: Any) -> Any:
    """Return a fitted attribute with its arrays on the host; host arrays are not copied."""
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


def save(
    path: str | Path, kind: str, version: str, parameters: dict[str, Any], state: dict[str, Any]
) -> None:
    """Write a fitted model to a file, completely or not at all.

    Parameters
    ----------
    path : str or path
    kind, version : str
        The class that writes the file, and the version of the package.
    parameters : dict
        Numbers, strings and None.
    state : dict
        Fitted attributes, on the host: arrays, sparse matrices, a path, and values for JSON.

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
            plain[name] = {"shape": state[name].shape}
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
    with replacing(path) as stream:
        np.savez(stream, content=np.array(content), **arrays)


def _number(value: object) -> float:
    """Return a NumPy scalar as a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    msg = f"a {type(value).__name__} cannot be saved, got {value!r}."
    raise TypeError(msg)


def load(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file that `save` wrote.

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
        If the file was not written by `save`, is damaged, or has another format.
    """
    if Path(path).is_file() and not zipfile.is_zipfile(path):
        msg = f"{path} is not a model that was saved, or is damaged: it is not an .npz file"
        raise ValueError(msg)
    try:
        with warnings.catch_warnings(), Path(path).open("rb") as stream:
            warnings.simplefilter("error")  # a NumPy warning also means that the file is damaged
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
    except Exception as error:  # a damaged file can raise many kinds of errors
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
    """Return an array of strings with dtype object, as scikit-learn stores names."""
    return array.astype(object) if array.dtype.kind == "U" else array


def _restored(name: str, value: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Rebuild a fitted attribute."""
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
