"""Arrays of the stand-in, and the functions of CuPy on them."""

import builtins
import functools
from types import SimpleNamespace

import numpy as np
import scipy.linalg

from stand_in.counts import note
from stand_in.device import Device
from stand_in.rules import KNOWN, check, public

__all__ = ["functions", "ndarray", "solve_triangular", "operand", "wrap"]

SCALARS = (builtins.bool, builtins.int, builtins.float, np.generic)
random = np.random.default_rng()  # for what has no order


def wrap(x):
    """Put what NumPy returned behind the wall."""
    if isinstance(x, tuple):
        return tuple(wrap(one) for one in x)
    if not isinstance(x, np.ndarray | np.generic):
        return x
    out = object.__new__(ndarray)
    out._a = np.asarray(x)
    return out


def operand(x):
    """Return an operand as NumPy takes it, if it is on the device or a number."""
    if isinstance(x, ndarray):
        return x._a
    if isinstance(x, SCALARS):
        return x
    msg = f"Unsupported type {type(x)}"
    raise TypeError(msg)


def argument(x):
    """Return an argument of a function as NumPy takes it; arrays of the host are refused."""
    if isinstance(x, ndarray):
        return x._a
    if isinstance(x, np.ndarray):
        msg = f"Unsupported type {type(x)}"
        raise TypeError(msg)
    if isinstance(x, list | tuple):
        return type(x)(argument(one) for one in x)
    return x


def poisoned(a):
    """Fill memory that nobody has written."""
    if a.dtype.kind in "fc":
        a.fill(np.nan)
    elif a.dtype.kind in "iu":
        a.fill(np.iinfo(a.dtype).max // 3)
    else:
        a.fill(1)
    return a


def index_of(index):
    """Return an index for NumPy, and whether it gathers."""
    places, gathers = [], False
    for one in index if isinstance(index, tuple) else (index,):
        if isinstance(one, ndarray):
            if one.dtype.kind == "b":
                note("wait", "boolean mask")
            elif one.dtype.kind not in "iu":
                msg = "arrays used as indices must be of integer or boolean type"
                raise IndexError(msg)
            gathers = True
            places.append(one._a)
        elif isinstance(one, list | np.ndarray):
            gathers = True
            places.append(to_device(np.asarray(one, dtype=None if len(one) else np.int64)))
        elif isinstance(one, slice):
            ends = (one.start, one.stop, one.step)
            places.append(slice(*(None if end is None else end.__index__() for end in ends)))
        elif (
            one is None
            or one is Ellipsis
            or isinstance(one, builtins.int | np.integer)
            and not isinstance(one, builtins.bool)
        ):
            places.append(one)
        else:
            msg = f"cannot index with {type(one)}"
            raise IndexError(msg)
    return tuple(places), gathers


class ndarray:  # noqa: N801 - CuPy's name
    """An array on the device: NumPy's, hidden."""

    __array_priority__ = 100
    __slots__ = ("__weakref__", "_a")
    __hash__ = None

    def __new__(cls, shape, dtype=builtins.float, memptr=None, strides=None, order="C"):
        assert memptr is None
        assert strides is None
        return wrap(poisoned(np.empty(shape, dtype, order)))

    # What is known on the host
    T = property(lambda self: wrap(self._a.T))
    device = property(lambda _: Device(0))
    data = property(lambda self: SimpleNamespace(ptr=self._a.ctypes.data))
    __cuda_array_interface__ = property(
        lambda self: {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._a.ctypes.data, False),
            "version": 3,
        }
    )

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        msg = "arrays do not cross by DLPack on the stand-in"
        raise BufferError(msg)

    def __len__(self):
        return len(self._a)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    # What waits
    def get(self, stream=None, order="C", out=None, blocking=True):  # noqa: ARG002, FBT002
        note("wait", "get")
        note("d2h", "get", n_bytes=self._a.nbytes)
        return self._a.copy(order)

    def item(self, *place):
        note("wait", "item")
        return self._a.item(*place)

    def tolist(self):
        note("wait", "tolist")
        return self._a.tolist()

    def nonzero(self):
        note("wait", "nonzero")
        return wrap(self._a.nonzero())

    def __repr__(self):
        return repr(self._a)

    def __format__(self, form):
        return format(self.item() if self.ndim == 0 else str(self._a), form)

    def __reduce__(self):
        return wrap, (self._a.copy(),)

    def __deepcopy__(self, _):
        return wrap(self._a.copy())

    # What is refused
    def __array__(self, *_, **__):
        msg = "Implicit conversion to a NumPy array is not allowed. Please use `.get()`."
        raise TypeError(msg)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if method != "__call__" or ufunc.__name__ not in FUNCTIONS:
            return NotImplemented
        return FUNCTIONS[ufunc.__name__](*inputs, **kwargs)

    def __array_function__(self, function, _, args, kwargs):
        if function.__name__ not in FUNCTIONS:
            return NotImplemented
        return FUNCTIONS[function.__name__](*args, **kwargs)

    # Parts
    def __getitem__(self, index):
        places, gathers = index_of(index)
        if not gathers:
            return wrap(self._a[places])
        note("call", "take")
        return wrap(np.array(self._a[places], order="C"))

    def __setitem__(self, index, value):
        places, gathers = index_of(index)
        note("call", "put")
        value = operand(value)
        self._a[places] = value
        if gathers:  # of several values for one place, any may win
            kept = self._a[places]
            with np.errstate(all="ignore"):
                value = np.asarray(value).astype(self.dtype)
            same = (kept == value) | ((kept != kept) & (value != value))
            if not same.all():
                msg = "two values are assigned to one place: on a device either may win"
                raise AssertionError(msg)

    # Copies
    def astype(self, *args, **kwargs):
        check("cupy.ndarray", "astype", (self, *args), kwargs)
        dtype, kwargs = np.dtype(args[0]), {"copy": True} | kwargs
        if len(args) > 1 or set(kwargs) > {"copy", "order"} or dtype.kind == "O":
            msg = f"CuPy's astype takes a dtype, copy and order, got {args} and {kwargs}"
            raise TypeError(msg)
        if dtype == self.dtype and not kwargs["copy"]:
            return self
        note("call", "astype")
        with np.errstate(all="ignore"):
            return wrap(self._a.astype(dtype, **kwargs))

    def view(self, dtype=None):
        return wrap(self._a.view(dtype) if dtype is not None else self._a.view())

    def argsort(self, axis=-1, kind=None):
        return FUNCTIONS["argsort"](self, axis=axis, kind=kind)

    def sort(self, axis=-1, kind=None):
        self._a[...] = FUNCTIONS["sort"](self, axis=axis, kind=kind)._a

    def argpartition(self, kth, axis=-1):
        return FUNCTIONS["argpartition"](self, kth, axis=axis)

    def repeat(self, repeats, axis=None):
        return FUNCTIONS["repeat"](self, repeats, axis=axis)

    def searchsorted(self, v, side="left", sorter=None):
        return FUNCTIONS["searchsorted"](self, v, side, sorter)

    def __matmul__(self, other):
        if not isinstance(other, ndarray):
            return NotImplemented
        note("call", "matmul")
        return wrap(self._a @ other._a)


def waiting(name):
    """Return a conversion of an array to a number of Python."""

    def convert(self):
        note("wait", name)
        return getattr(self._a, name)()

    return convert


def operator(name):
    """Return an operator between arrays on the device, or one and a number."""
    function = getattr(np.ndarray, name)

    def run(self, *other):
        if other and not isinstance(other[0], (ndarray, *SCALARS)):
            if isinstance(other[0], np.ndarray):
                operand(other[0])
            return NotImplemented
        note("call", name)
        with np.errstate(all="ignore"):
            found = function(self._a, *(operand(x) for x in other))
        return self if found is self._a else wrap(found)

    return run


def method(name):
    """Return a method that NumPy's arrays have too."""
    function = getattr(np.ndarray, name)

    def run(self, *args, **kwargs):
        check("cupy.ndarray", name, (self, *args), kwargs)
        note("call", name)
        args, kwargs = argument(args), {key: argument(x) for key, x in kwargs.items()}
        with np.errstate(all="ignore"):
            return wrap(function(self._a, *args, **kwargs))

    return run


def complete():
    """Give the class what NumPy's arrays and CuPy's both have."""
    for name in ("__bool__", "__int__", "__float__", "__index__"):
        setattr(ndarray, name, waiting(name))
    words = [
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and",
        "or",
        "xor",
        "lshift",
        "rshift",
    ]
    names = [f"__{form}{word}__" for word in words for form in ("", "r", "i")]
    names += [
        f"__{word}__"
        for word in ["lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "abs", "invert"]
    ]
    for name in names:
        setattr(ndarray, name, operator(name))
    for name in KNOWN[0]["cupy.ndarray"]:
        if name.startswith("_") or name in vars(ndarray) or not hasattr(np.ndarray, name):
            continue
        if callable(getattr(np.ndarray, name)):
            setattr(ndarray, name, method(name))
        else:
            setattr(ndarray, name, property(lambda self, name=name: getattr(self._a, name)))
    extra = [name for name in vars(ndarray) if not (name[0] == "_" or public("cupy.ndarray", name))]
    assert not extra, extra


complete()
ndarray.__module__ = "cupy"


# Functions ----------------------------------------------------------------------------------------


def to_device(x, dtype=None, order=None):
    """Return a copy, for the device, of what is on the host; what is there already as it is."""
    if isinstance(x, ndarray):
        return np.asarray(x._a, dtype=dtype, order=order)
    if isinstance(x, list | tuple):
        x = [to_device(one) if isinstance(one, ndarray | list | tuple) else one for one in x]
    a = np.array(x, dtype=dtype, order=order or "K")
    if a.dtype.kind not in "biufc":
        msg = f"Unsupported dtype {a.dtype}"
        raise ValueError(msg)
    if not isinstance(x, SCALARS):
        note("h2d", "copy", n_bytes=a.nbytes)
    return a


def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):  # noqa: ARG001, FBT002
    found = to_device(a, dtype, order)
    return a if isinstance(a, ndarray) and found is a._a else wrap(found)


def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):  # noqa: ARG001, FBT002
    return wrap(np.array(to_device(obj, dtype), copy=copy or None, order=order, ndmin=ndmin))


def ascontiguousarray(a, dtype=None):
    found = np.ascontiguousarray(to_device(a, dtype))
    return a if isinstance(a, ndarray) and found is a._a else wrap(found)


def asfortranarray(a, dtype=None):
    found = np.asfortranarray(to_device(a, dtype))
    return a if isinstance(a, ndarray) and found is a._a else wrap(found)


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):  # noqa: ARG001
    return a.get(order=order) if isinstance(a, ndarray) else np.asarray(a)


def empty(shape, dtype=builtins.float, order="C"):
    return wrap(poisoned(np.empty(shape, dtype, order)))


def empty_like(prototype, dtype=None, order="K", subok=None, shape=None):  # noqa: ARG001
    return wrap(poisoned(np.empty_like(operand(prototype), dtype, order, shape=shape)))


def bincount(x, weights=None, minlength=None):
    x, weights = operand(x), None if weights is None else operand(weights)
    note("wait", "bincount", 2)  # smallest and largest
    if weights is not None:  # by atomics
        order = random.permutation(x.size)
        x, weights = x[order], weights[order]
    return wrap(np.bincount(x, weights, minlength or 0))


def unique(ar, return_index=False, return_inverse=False, return_counts=False, **kwargs):  # noqa: FBT002
    if kwargs.get("axis") is not None:
        msg = "the stand-in does not know unique along an axis: teach it, if the library needs it"
        raise AssertionError(msg)
    note("wait", "unique")
    return wrap(np.unique(operand(ar), return_index, return_inverse, return_counts))


def searchsorted(a, v, side="left", sorter=None):
    if not isinstance(a, ndarray) or not isinstance(v, ndarray | builtins.int | builtins.float):
        msg = f"searchsorted of {type(v)} in {type(a)}"
        raise NotImplementedError(msg)  # what CuPy raises here
    return wrap(np.searchsorted(a._a, operand(v), side, sorter))


def lexsort(keys):
    if not isinstance(keys, ndarray) or keys.ndim != 2:
        msg = f"lexsort of {type(keys)}"
        raise NotImplementedError(msg)  # what CuPy raises here
    return wrap(np.lexsort(keys._a))


def repeat(a, repeats, axis=None):
    if isinstance(repeats, ndarray | np.ndarray):
        msg = "repeat takes numbers of the host"
        raise TypeError(msg)
    return wrap(np.repeat(operand(a), repeats, axis))


def joining(name):
    """Return `concatenate` or `stack`, which take arrays on the device alone."""

    def join(tup, axis=0, out=None, *, dtype=None, casting="same_kind"):
        parts = list(tup)
        if not all(isinstance(part, ndarray) for part in parts) or out is not None:
            msg = "Only cupy arrays can be concatenated"
            raise TypeError(msg)
        parts = [part._a for part in parts]
        return wrap(getattr(np, name)(parts, axis=axis, dtype=dtype, casting=casting))

    return join


def sorting(name):
    """Return `sort` or `argsort`, which know one kind."""

    def run(a, axis=-1, kind=None):
        if kind not in (None, "stable"):
            msg = f"CuPy sorts with kind=None or 'stable', got {kind!r}"
            raise ValueError(msg)
        return wrap(getattr(np, name)(operand(a), axis=axis, kind="stable"))

    return run


def seeking(name):
    """Return a function whose result is as long as the data say."""

    def run(a):
        note("wait", name)
        return wrap(getattr(np, name)(operand(a)))

    return run


def where(condition, x=None, y=None):
    if x is None:
        note("wait", "where")
        return wrap(np.where(operand(condition)))
    return wrap(np.where(operand(condition), operand(x), operand(y)))


def from_dlpack(x, device=None, copy=None):  # noqa: ARG001
    if isinstance(x, ndarray):
        return x
    msg = "arrays do not cross by DLPack on the stand-in"
    raise BufferError(msg)


def cholesky(a, upper=False):  # noqa: ARG001, FBT002
    try:
        return wrap(np.linalg.cholesky(operand(a)))
    except np.linalg.LinAlgError:  # CuPy says nothing
        factor = np.tril(operand(a)).copy()
        factor[..., -1, -1] = np.nan
        return wrap(factor)


def eigh(a, UPLO="L"):  # noqa: N803
    if a.dtype.char not in "fd":
        msg = f"eigh of {a.dtype}"
        raise TypeError(msg)
    values, vectors = np.linalg.eigh(operand(a), UPLO)
    if a.ndim == 2:
        vectors = np.asfortranarray(vectors)  # as the library leaves them
    return wrap(values), wrap(vectors)


def solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False, **_):  # noqa: FBT002
    note("call", "solve_triangular")
    settings = {"trans": trans, "lower": lower, "unit_diagonal": unit_diagonal}
    return wrap(scipy.linalg.solve_triangular(operand(a), operand(b), **settings))


OWN = {
    "cupy": {
        "array": array,
        "asarray": asarray,
        "ascontiguousarray": ascontiguousarray,
        "asfortranarray": asfortranarray,
        "asnumpy": asnumpy,
        "bincount": bincount,
        "empty": empty,
        "empty_like": empty_like,
        "from_dlpack": from_dlpack,
        "lexsort": lexsort,
        "repeat": repeat,
        "searchsorted": searchsorted,
        "unique": unique,
        "where": where,
    }
    | {name: joining(name) for name in ("concatenate", "stack")}
    | {name: sorting(name) for name in ("sort", "argsort")}
    | {name: seeking(name) for name in ("nonzero", "flatnonzero", "argwhere")},
    "cupy.linalg": {"cholesky": cholesky, "eigh": eigh},
}
NUMPY = {"cupy": np, "cupy.linalg": np.linalg}


def function(owner, name):
    """Return a function of CuPy: our own, or NumPy's on what is behind the wall."""
    own, numpys = OWN[owner].get(name), getattr(NUMPY[owner], name, None)

    @functools.wraps(own or numpys)
    def run(*args, **kwargs):
        check(owner, name, args, kwargs)
        note("call", name)
        with np.errstate(all="ignore"):
            if own:
                return own(*args, **kwargs)
            out = kwargs.get("out")
            args, kwargs = argument(args), {key: argument(x) for key, x in kwargs.items()}
            found = numpys(*args, **kwargs)
        return wrap(found) if out is None else out

    return run


def functions(owner):
    """Return the functions, dtypes and numbers of a module that NumPy has too, or that are ours."""
    found = {}
    for name in KNOWN[0][owner]:
        value = OWN[owner].get(name, getattr(NUMPY[owner], name, None))
        if isinstance(value, type) or not callable(value):
            if value is not None or name == "newaxis":
                found[name] = value
        elif public(owner, name):
            found[name] = function(owner, name)
    found.pop("ndarray", None)
    return found


FUNCTIONS = functions("cupy")
