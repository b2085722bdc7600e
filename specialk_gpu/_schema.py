"""What the file of a fitted model holds; `save` and `load` both check it.

`ARRAYS` lists the arrays of the file, with their dtypes, shapes and values. `VALUES` lists the
attributes that are no arrays. Sizes in shapes have names:

======  ===========================================================================
name    number
======  ===========================================================================
m       rows of X
u       rows that were clustered: m, or the distinct rows of X
d       columns of X
n       eigenpairs
c       columns of the embedding
k       clusters
K       leaves of the tree
s       rows of the path
e       entries of the graph
======  ===========================================================================
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from specialk_gpu.backend.intact import intact_csr
from specialk_gpu.tables.preparation import Preparation

__all__ = ["check_schema"]


class SchemaField(NamedTuple):
    """An array of the file."""

    dtypes: str  # kinds and sizes in bytes, as "f4 f8"; "U" is text of any length
    shape: str  # sizes, as "m k"; "K-1" is a size less one
    least: float | None = None  # the smallest value
    below: str | None = None  # the size that all values are below
    most: float | None = None  # the largest value
    extremes: str = ""  # "nan", "-inf", if they are allowed: NaN stands for None


ARRAYS = {
    "labels_": SchemaField("i4", "m", -1, "k"),  # -1 only with `noise`
    "membership_": SchemaField("f8", "m k", 0),
    "embedding_": SchemaField("f8", "m c"),
    "eigenvalues_": SchemaField("f8", "n"),
    "residuals_": SchemaField("f8", "n", 0),
    "affinity_matrix_.indptr": SchemaField("i4 i8", "u+1", 0),
    "affinity_matrix_.indices": SchemaField("i4 i8", "e", 0, "u"),
    "affinity_matrix_.data": SchemaField("f8", "e", 0),
    "path_.labels": SchemaField("i4", "s m", 0),  # of each row below its k
    "path_.log_p": SchemaField("f8", "s", most=0, extremes="-inf"),
    "path_.log_p_level": SchemaField("f8", "s", most=0, extremes="-inf nan"),
    "path_.log_zz_top": SchemaField("f8", "s", most=0, extremes="-inf nan"),
    "path_.inertia": SchemaField("f8", "s", 0, extremes="nan"),
    "_fit_labels": SchemaField("i4", "u", 0, "k"),
    # only for some models
    "_fit_X": SchemaField("f4 f8", "u d"),  # without affinity="precomputed"
    "_spacing": SchemaField("f8", "m", 0),  # without affinity="precomputed"
    "_distinct": SchemaField("i8", "u", 0, "m"),  # if duplicates were represented by others
    "feature_names_in_": SchemaField("U", "d"),  # if X had column names
    "_tree.leaf": SchemaField("i4", "m", 0, "K"),  # the tree: with criterion="cut"
    "_tree.children": SchemaField("i8", "K-1 2", 0),
    "_tree.log_p": SchemaField("f8", "K", most=0, extremes="-inf"),
    "_tree.ratio": SchemaField("f8", "K", 0),
    "_tree.sizes": SchemaField("i8", "K", 1),
    "_tree.first": SchemaField("i8", "K", 0, "m"),
}
TREE = [name for name in ARRAYS if name.startswith("_tree.")]
STEP = {"k", "pair", "accepted", "reason"}  # of the path, in the JSON text
LONGEST = 1000  # characters of a reason
LARGEST = 1e300  # number of seconds, or radius


class SchemaMisfit(ValueError):
    """What is wrong with the content of a model."""


def _must_fit_schema(holds: object, otherwise: str) -> None:
    if not holds:
        raise SchemaMisfit(otherwise)


def _is_integer(value: object, least: int = 0) -> bool:
    return type(value) is int and value >= least


def _is_schema_number(value: object) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return 0 <= value <= LARGEST


def _is_schema_text(value: object) -> bool:
    """Return whether a value is text of printable characters alone."""
    return isinstance(value, str) and len(value) <= LONGEST and value.isprintable()


def _is_schema_name(value: str) -> bool:
    """Return whether a column may be called so: control characters are tab and line break alone."""
    return all(c in "\t\r\n" or unicodedata.category(c) not in ("Cc", "Cs") for c in value)


def _are_schema_timings(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_schema_text(stage) and _is_schema_number(spent) for stage, spent in value.items()
    )


def _is_schema_recall(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 4 or not _is_integer(value[3], 1):
        return False
    share, low, high, _ = value
    return all(map(_is_schema_number, value)) and low <= share <= high <= 1


VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n_clusters_": (lambda x: _is_integer(x, 1), "a positive integer"),
    "n_features_in_": (lambda x: _is_integer(x, 1), "a positive integer"),
    "n_graph_components_": (lambda x: _is_integer(x, 1), "a positive integer"),
    "limit_reached_": (lambda x: isinstance(x, bool), "true or false"),
    "radius_": (lambda x: x is None or _is_schema_number(x), "null or a number"),
    "eigen_solver_": (lambda x: x in ("dense", "lanczos", "chebyshev"), "a solver"),
    "recall_": (lambda x: x is None or _is_schema_recall(x), "null or three shares and a number"),
    "backend_": (lambda x: x in ("numpy", "cuda"), '"numpy" or "cuda"'),
    "timings_": (_are_schema_timings, "an object of names and seconds"),
    "_settings": (lambda x: isinstance(x, dict), "an object of parameters"),
    "preparation_": (lambda x: isinstance(x, dict), "an object"),  # only of the command line
}


def _check_schema_shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Check the names, dtypes and shapes of all arrays, and return the sizes by name."""
    optional = {"_fit_X", "_spacing", "_distinct", "feature_names_in_", *TREE}
    for name in arrays:
        _must_fit_schema(name in ARRAYS, f"it holds {name!r}, which no model has")
    sizes: dict[str, int] = {}
    for name, field in ARRAYS.items():
        if name not in arrays:
            _must_fit_schema(name in optional, f"it does not hold {name}")
            continue
        dtype, shape = arrays[name].dtype, arrays[name].shape
        kind = "U" if dtype.kind == "U" and dtype.itemsize else f"{dtype.kind}{dtype.itemsize}"
        _must_fit_schema(
            kind in field.dtypes.split(), f"{name} must be of {field.dtypes}, got {dtype.str!r}"
        )
        words = field.shape.split()
        _must_fit_schema(
            len(shape) == len(words), f"{name} must have shape ({field.shape}), got {shape}"
        )
        for word, size in zip(words, shape, strict=True):
            letter, shift = word[0], int(word[1:] or 0)
            if not letter.isdigit():
                known = sizes.setdefault(letter, size - shift)
                fits = size == known + shift and (known > 0 or letter == "e")
                _must_fit_schema(
                    fits, f"{name} has shape {shape}, but {letter} = {known} elsewhere"
                )
            else:
                _must_fit_schema(size == int(word), f"{name} must have {word} columns, got {size}")
    return sizes


def _check_schema_content(content: Any) -> None:
    """Check the JSON text without its arrays: what there is, and of which types."""
    _must_fit_schema(isinstance(content["parameters"], dict), "its parameters must be an object")
    state = content["state"]
    _must_fit_schema(isinstance(state, dict), "its state must be an object")
    whole = {"path_", "affinity_matrix_", "_tree", *VALUES}
    whole -= {"preparation_"}
    known = whole | {"_fit_X", "_spacing", "_distinct", "preparation_"}
    for name, told in state.items():
        _must_fit_schema(name in known, f"it holds {name!r}, which no model has")
        _must_fit_schema(
            isinstance(told, dict), f"{name} must be an object, got {type(told).__name__}"
        )
    missing = sorted(whole - state.keys())
    _must_fit_schema(not missing, f"it does not hold {', '.join(missing)}")
    for name, (holds, expected) in VALUES.items():
        if name not in state and name not in whole:
            continue
        _must_fit_schema(state[name].keys() == {"value"}, f"{name} must have a value")
        value = state[name]["value"]
        _must_fit_schema(holds(value), f"{name} must be {expected}, got {value!r}")
    for name in ("_fit_X", "_spacing", "_distinct"):
        _must_fit_schema(
            state.get(name, {"value": None}) == {"value": None}, f"{name} must be an array"
        )
    _must_fit_schema(
        state["_tree"] in ({"tree": True}, {"value": None}), "_tree must be a tree or null"
    )
    _check_schema_path(state["path_"], state["_settings"]["value"].get("criterion"))


def _check_schema_path(path: dict[str, Any], criterion: object) -> None:
    _must_fit_schema(path.keys() == {"steps", "criterion"}, "path_ must have steps and a criterion")
    _must_fit_schema(
        path["criterion"] in ("cut", "zz_top"), "path_.criterion must be 'cut' or 'zz_top'"
    )
    _must_fit_schema(path["criterion"] == criterion, "path_.criterion must be that of the fit")
    steps = path["steps"]
    _must_fit_schema(isinstance(steps, list) and steps, "path_ must have a list of steps")
    for i, step in enumerate(steps):
        _must_fit_schema(
            isinstance(step, dict) and step.keys() == STEP, f"a step must have {sorted(STEP)}"
        )
        k, pair = step["k"], step["pair"]
        _must_fit_schema(_is_integer(k, 1), f"k must be a positive integer on the path, got {k!r}")
        _must_fit_schema(
            k == steps[0]["k"] + i, f"k must rise by one along the path, got {k} in row {i}"
        )
        _must_fit_schema(
            isinstance(step["accepted"], bool), "accepted must be true or false on the path"
        )
        _must_fit_schema(_is_schema_text(step["reason"]), "a reason on the path must be plain text")
        if pair is not None:
            two = isinstance(pair, list) and len(pair) == 2 and all(map(_is_integer, pair))
            _must_fit_schema(
                two and pair[0] < pair[1] < k, f"a pair must be two of {k} labels, got {pair!r}"
            )


def check_schema(arrays: Mapping[str, np.ndarray], content: dict[str, Any]) -> None:
    """Check the arrays and the JSON text of a file: values, and whether they agree.

    Parameters
    ----------
    arrays : mapping of str to array
    content : dict
        The JSON text.

    Raises
    ------
    ValueError
        If an array or a value does not fit; the message names it.
    """
    _check_schema_content(content)
    sizes = _check_schema_shapes(arrays)
    state, m, u = content["state"], sizes["m"], sizes["u"]
    criterion = state["path_"]["criterion"]
    given = state["_settings"]["value"].get("affinity", "").startswith("precomputed")
    distinct = u != m or "_distinct" in arrays
    needed = {
        "_fit_X": not given,
        "_spacing": not given,
        "_distinct": distinct,
    }
    needed |= {name: criterion == "cut" for name in TREE}
    for name, expected in needed.items():
        _must_fit_schema(
            (name in arrays) == expected, f"it {'lacks' if expected else 'has'} {name}"
        )
    is_null_of = {name: name in state for name in ("_fit_X", "_spacing", "_distinct")}
    is_null_of["_tree.leaf"] = state["_tree"] == {"value": None}
    for name, is_null in is_null_of.items():
        _must_fit_schema(is_null != (name in arrays), f"{name} must be an array or null, not both")
    for name, array in arrays.items():
        _check_schema_values(name, array, sizes)
    n_columns = m if given else sizes["d"]
    if "preparation_" in state:
        found = Preparation.from_json(state["preparation_"]["value"]).n_prepared
        _must_fit_schema(
            found == n_columns, f"preparation_ gives {found} columns, the fit has {n_columns}"
        )
    _must_fit_schema(
        sizes.get("d", n_columns) == n_columns, "feature_names_in_ must name each column"
    )
    for name, size in (("n_features_in_", n_columns), ("n_clusters_", sizes["k"])):
        found = state[name]["value"]
        _must_fit_schema(found == size, f"{name} must be {size} by the arrays, got {found}")
    n_parts = state["n_graph_components_"]["value"]
    _must_fit_schema(n_parts <= u, f"n_graph_components_ must be at most {u} rows, got {n_parts}")
    noise = bool(state["_settings"]["value"].get("noise"))
    _must_fit_schema(
        noise or int(arrays["labels_"].min()) >= 0, "labels_ must not be negative without noise"
    )
    shape = state["affinity_matrix_"]
    _must_fit_schema(
        shape == {"shape": [u, u]}, f"affinity_matrix_ must have shape {[u, u]}, got {shape}"
    )
    parts = tuple(arrays[f"affinity_matrix_.{part}"] for part in ("data", "indices", "indptr"))
    intact_csr(sparse.csr_matrix(parts, shape=(u, u)), "affinity_matrix_")
    _check_schema_labels(state["path_"]["steps"], arrays["path_.labels"])
    if criterion == "cut":
        _check_schema_tree(arrays, sizes)
    else:
        _must_fit_schema(
            not np.isnan(arrays["path_.inertia"]).any(), "path_.inertia must be numbers"
        )


def _check_schema_labels(steps: list[dict[str, Any]], labels: np.ndarray) -> None:
    """Check that there are labels for each step of the path, below its k."""
    _must_fit_schema(
        len(steps) == len(labels), f"path_ must have {len(labels)} steps, got {len(steps)}"
    )
    last, m = steps[-1]["k"], labels.shape[1]
    _must_fit_schema(last <= m, f"k on the path must be at most {m} rows, got {last}")
    for step, own in zip(steps, labels, strict=True):
        _must_fit_schema(
            own.max() < step["k"], f"path_.labels must be below k = {step['k']}, got {own.max()}"
        )


def _check_schema_values(name: str, array: np.ndarray, sizes: dict[str, int]) -> None:
    """Check the values of one array against its line of the table."""
    field = ARRAYS[name]
    if array.dtype.kind == "U":
        _must_fit_schema(
            all(map(_is_schema_name, array.tolist())), f"{name} must have no control characters"
        )
        return
    if not array.size:
        return
    if array.dtype.kind == "f":
        wrong = ~np.isfinite(array)
        for name_of, is_so in (("nan", np.isnan), ("-inf", np.isneginf)):
            if name_of in field.extremes.split():
                wrong &= ~is_so(array)
        _must_fit_schema(not wrong.any(), f"{name} must be finite, got {array[wrong][:1]}")
    for bound, outside in ((field.least, np.less), (field.most, np.greater)):
        if bound is not None and (wrong := outside(array, bound)).any():
            msg = f"{name} must not go beyond {bound}, got {array[wrong][0]}"
            raise SchemaMisfit(msg)
    if field.below is not None:
        most, high = sizes[field.below], int(array.max())
        _must_fit_schema(high < most, f"{name} must be below {field.below} = {most}, got {high}")


def _check_schema_tree(arrays: Mapping[str, np.ndarray], sizes: dict[str, int]) -> None:
    """Check that each node but the root is in one union, made before it is united."""
    K, m = sizes["K"], sizes["m"]
    children, counts = arrays["_tree.children"], arrays["_tree.sizes"]
    early = (children < K + np.arange(K - 1)[:, None]).all()
    _must_fit_schema(early, "_tree.children must be leaves, or unions made before")
    once = np.unique(children).size == children.size
    _must_fit_schema(once, "_tree.children must have each node once")
    _must_fit_schema(
        int(counts.sum()) == m, f"_tree.sizes must add up to {m}, got {int(counts.sum())}"
    )
