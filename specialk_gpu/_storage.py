"""Saving and loading of fitted models, also on machines without a GPU.

A file is a NumPy .npz file without pickle and without compression. It holds the arrays by name, and
`content`, a JSON text with the version of the format, the parameters, and every attribute that is
not an array. `_schema` lists both. A file is checked against that list when it is written and when
it is read, so what comes from a file is a model or a ValueError.
"""

from __future__ import annotations

import errno
import json
import math
import os
import warnings
import zipfile
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from scipy import sparse

from specialk_gpu._result import Candidate, SelectionPath
from specialk_gpu._schema import check_schema
from specialk_gpu._writing import writing_whole
from specialk_gpu.selection.merging import Tree

__all__ = ["load", "save"]

FORMAT = 5
STEP_NUMBERS = ("log_p", "log_p_level", "log_zz_top", "inertia")  # as arrays: JSON has no infinity
PARTS = ("data", "indices", "indptr")  # of a sparse matrix
MOST_ARRAYS = 100  # in a file
LONGEST = 500  # characters of a message about a damaged file

Check = Callable[[dict[str, Any], dict[str, Any]], None]  # of parameters and settings


def save(
    path: str | Path,
    kind: str,
    version: str,
    parameters: dict[str, Any],
    state: dict[str, Any],
    check: Check,
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
    check : callable
        Raises a ValueError if the parameters, or those at the time of the fit, are not valid.

    Raises
    ------
    TypeError
        If a parameter cannot be written.
    ValueError
        If the attributes are not those of a fitted model, which `load` would refuse.
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
    content = json.dumps(header | {"state": plain}, allow_nan=False, default=_number_to_store)
    try:
        _check_stored(arrays, json.loads(content), check)
    except ValueError as error:
        msg = f"the model cannot be saved: {error}"
        raise ValueError(msg) from error
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        msg = f"{path} must name a file in a folder that exists."
        raise OSError(msg)
    with writing_whole(path) as stream:
        np.savez(stream, content=np.array(content), **arrays)


def _number_to_store(value: object) -> float:
    """Return a NumPy scalar as a Python number."""
    if isinstance(value, np.generic):  # `item` of a long double is one again
        return float(value) if isinstance(value, np.floating) else value.item()
    msg = f"a {type(value).__name__} cannot be saved, got {value!r}."
    raise TypeError(msg)


def _check_stored(arrays: dict[str, np.ndarray], content: dict[str, Any], check: Check) -> None:
    check_schema(arrays, content)
    check(content["parameters"], content["state"]["_settings"]["value"])


def load(path: str | Path, kind: str, check: Check) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file that `save` wrote.

    Parameters
    ----------
    path : str or path
    kind : str
        The class that must have written it.
    check : callable
        See `save`.

    Returns
    -------
    parameters, state : dict

    Raises
    ------
    ValueError
        If the file was not written by `save`, is damaged, or has another format.
    """
    with Path(path).open("rb") as stream, warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning of NumPy also means that the file is damaged
        try:
            arrays = _stored_arrays(stream)
            content = _stored_json(str(arrays.pop("content")))
            found = content["format"], content["class"]
            if found == (FORMAT, kind):
                _check_stored(arrays, content, check)
                state = {
                    name: _restored_from_storage(name, value, arrays)
                    for name, value in content["state"].items()
                }
        except MemoryError:
            raise
        except Exception as error:  # a damaged file can raise many kinds of errors
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            told = _stored_text_in_one_line(f"{error}" or type(error).__name__)
            msg = f"{path} is not a model that was saved, or is damaged: {told}"
            raise ValueError(msg) from error
    if found != (FORMAT, kind):
        told = _stored_text_in_one_line(f"got a {found[1]} in format {found[0]}")
        version = _stored_text_in_one_line(str(content["version"]))
        msg = f"{path} must hold a {kind} in format {FORMAT}, {told}, written by version {version}."
        raise ValueError(msg)
    state |= {name: _stored_strings(array) for name, array in arrays.items() if "." not in name}
    return content["parameters"], state


def _stored_text_in_one_line(text: str) -> str:
    """Return text from a file in one line of printable characters, cut if it is long."""
    text = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _stored_json(text: str) -> dict[str, Any]:
    """Read the JSON text, which has no NaN or infinity, and check its outermost names."""

    def refuse(number: str) -> None:
        msg = f"content must be JSON, got {number}"
        raise ValueError(msg)

    content = json.loads(text, parse_constant=refuse)
    names = {"format", "class", "version", "parameters", "state"}
    if not isinstance(content, dict) or content.keys() != names:
        msg = f"content must be an object of {', '.join(sorted(names))}"
        raise ValueError(msg)
    return content


def _stored_arrays(stream: IO[bytes]) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file.

    The header of each is checked before anything is read, and together the arrays must not be
    larger than the file. So a file cannot take more memory than it is large.
    """
    if not zipfile.is_zipfile(stream):
        msg = "it is not an .npz file"
        raise ValueError(msg)
    size = stream.seek(0, os.SEEK_END)
    with zipfile.ZipFile(stream) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        if not len(archive.infolist()) == len(members) <= MOST_ARRAYS:
            msg = f"it must hold up to {MOST_ARRAYS} arrays of different names"
            raise ValueError(msg)
        if "content" not in members:
            msg = "it does not hold content, the JSON text of a model"
            raise ValueError(msg)
        promised = sum(one.file_size for one in members.values())
        if promised > size:
            msg = f"its arrays must not be larger than the file ({size} bytes), got {promised}"
            raise ValueError(msg)
        for name, one in members.items():
            with archive.open(one) as file:
                _check_stored_size(name, file, one.file_size)
        arrays = {}
        for name, one in members.items():
            with archive.open(one) as file:
                array = npy.read_array(file)
            arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return arrays


def _check_stored_size(name: str, file: IO[bytes], size: int) -> None:
    """Raise a ValueError if the header of an array promises another size than there is."""
    try:
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, _, dtype = read(file)
    except (MemoryError, RecursionError, KeyError) as error:  # of nested brackets, or a version
        msg = f"the header of {name} cannot be read"
        raise ValueError(msg) from error
    if dtype.hasobject or min(shape, default=0) < 0:
        msg = f"{name} must have no objects and no negative shape, got {dtype} and {shape}"
        raise ValueError(msg)
    promised = file.tell() + dtype.itemsize * math.prod(shape)
    if promised != size:
        msg = f"the header of {name} promises {promised} bytes, but there are {size}"
        raise ValueError(msg)


def _stored_strings(array: np.ndarray) -> np.ndarray:
    """Return an array of strings with dtype object, as scikit-learn stores names."""
    return array.astype(object) if array.dtype.kind == "U" else array


def _restored_from_storage(name: str, value: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
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
