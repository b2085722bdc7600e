"""Sparse matrices of the stand-in: three arrays on the device, and SciPy behind them."""

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from stand_in.arrays import SCALARS, array, ndarray, operand, wrap
from stand_in.counts import note
from stand_in.rules import check, public

__all__ = ["NAMES", "eigsh"]

DTYPES = "?fdFD"
PARTS = ("data", "indices", "indptr")


class Base:
    """What all sparse matrices are."""

    __array_priority__ = 101
    __module__ = "cupyx.scipy.sparse"
    ndim = 2

    @property
    def device(self):
        raise NotImplementedError  # what every CuPy 14 raises here

    def __len__(self):
        msg = "sparse matrix length is ambiguous"
        raise TypeError(msg)

    def __array__(self, *_, **__):
        msg = "Implicit conversion to a NumPy array is not allowed."
        raise TypeError(msg)


class csr_matrix(Base):  # noqa: N801 - CuPy's name
    """Compressed rows."""

    format, host = "csr", scipy.sparse.csr_matrix

    def __init__(self, arg1, shape=None, dtype=None, copy=False):  # noqa: FBT002
        if isinstance(arg1, Base):
            found, shape = getattr(arg1, f"to{self.format}")(), shape or arg1.shape
            parts = [getattr(found, part) for part in PARTS]
        elif scipy.sparse.issparse(arg1):
            found, shape = self.host(arg1), shape or arg1.shape
            parts = [array(getattr(found, part)) for part in PARTS]
        elif isinstance(arg1, ndarray):
            note("wait", "csr_matrix of a dense array")
            parts, shape = self.parts_of(self.host(operand(arg1))), arg1.shape
        elif isinstance(arg1[1], int):
            parts, shape = self.parts_of(self.host(arg1)), arg1
        elif isinstance(arg1[1], tuple):
            data, (row, column) = arg1
            note("wait", "csr_matrix of coordinates", 3)
            content = operand(data), (operand(row), operand(column))
            self.refuse(data.dtype)
            found = self.host(content, shape=shape)
            parts, shape = self.parts_of(found), found.shape
        else:
            parts = list(arg1)
            if not all(isinstance(part, ndarray) and part.ndim == 1 for part in parts):
                msg = "data, indices, and indptr should be 1-D"
                raise ValueError(msg)
            note("wait", "csr_matrix of its parts")
            ends = parts[2]._a[[0, -1]].tolist()
            if ends != [0, parts[0].size] or parts[1].size != parts[0].size:
                msg = f"indptr runs from {ends[0]} to {ends[1]}, with {parts[0].size} entries"
                raise ValueError(msg)
            shape = shape or (parts[2].size - 1, int(parts[1].max()) + 1)
        data, *places = parts
        dtype = np.dtype(dtype or data.dtype)
        self.refuse(dtype)
        index = np.int64 if max(*shape, data.size) > 2**31 - 1 else np.int32
        self.data = data.astype(dtype, copy=copy)
        self.indices, self.indptr = (part.astype(index, copy=copy) for part in places)
        self.shape = tuple(int(n) for n in shape)

    def refuse(self, dtype):
        if np.dtype(dtype).char not in DTYPES:
            msg = f"Only bool, float32, float64, complex64 and complex128 are supported, {dtype}"
            raise ValueError(msg)

    dtype = property(lambda self: self.data.dtype)
    nnz = property(lambda self: self.data.size)
    T = property(lambda self: self.transpose())

    def on_scipy(self):
        """Return SciPy's matrix of the same arrays."""
        content = tuple(getattr(self, part)._a for part in PARTS)
        return self.host(content, shape=self.shape, copy=False)

    def parts_of(self, found):
        return [wrap(getattr(found, part)) for part in PARTS]

    def like(self, found):
        """Return a matrix of SciPy's as one of these."""
        kind = {"csr": csr_matrix, "csc": csc_matrix}[found.format]
        return kind(tuple(self.parts_of(found)), shape=found.shape)

    def replace(self, found):
        self.data, self.indices, self.indptr = self.parts_of(found)

    def get(self, stream=None):  # noqa: ARG002
        return self.host(tuple(getattr(self, part).get() for part in PARTS), shape=self.shape)

    def transpose(self, axes=None, copy=False):  # noqa: ARG002, FBT002
        kind = csc_matrix if self.format == "csr" else csr_matrix
        content = self.data, self.indices, self.indptr
        return kind(content, shape=self.shape[::-1], copy=copy)

    def copy(self):
        return type(self)((self.data, self.indices, self.indptr), shape=self.shape, copy=True)

    def astype(self, *args, **kwargs):
        check("cupyx.scipy.sparse.csr_matrix", "astype", (self, *args), kwargs)
        content = self.data.astype(args[0]), self.indices.copy(), self.indptr.copy()
        return type(self)(content, shape=self.shape)

    def tocsr(self, copy=False):  # noqa: FBT002
        if self.format == "csr":
            return self.copy() if copy else self
        return self.like(self.on_scipy().tocsr())

    def tocsc(self, copy=False):  # noqa: FBT002
        if self.format == "csc":
            return self.copy() if copy else self
        return self.like(self.on_scipy().tocsc())

    def toarray(self, order=None, out=None):  # noqa: ARG002
        return wrap(self.on_scipy().toarray(order or "C"))

    def todense(self, order=None, out=None):
        return self.toarray(order, out)

    def in_place(self, name, n_waits):
        note("wait", name, n_waits)
        found = self.on_scipy().copy()
        getattr(found, name)()
        self.replace(found)

    def sum_duplicates(self):
        self.in_place("sum_duplicates", 2)

    def eliminate_zeros(self):
        self.in_place("eliminate_zeros", 2)

    def sort_indices(self):
        self.in_place("sort_indices", 1)

    def max(self, axis=None, out=None, *, explicit=False):
        assert axis is None
        assert out is None
        assert not explicit
        return wrap(np.asarray(self.on_scipy().max()))

    def sum(self, axis=None, dtype=None, out=None):
        return wrap(np.asarray(self.on_scipy().sum(axis, dtype, out)))

    def diagonal(self, k=0):
        return wrap(self.on_scipy().diagonal(k))

    def __abs__(self):
        return type(self)((abs(self.data), self.indices, self.indptr), shape=self.shape)

    def __neg__(self):
        return self * -1.0

    def added(self, other, sign):
        if not isinstance(other, Base):
            msg = f"a sparse matrix is added to sparse matrices alone, got {type(other)}"
            raise NotImplementedError(msg)  # what CuPy raises here
        note("wait", "sum of sparse matrices", 4)
        return self.like((self.on_scipy() + sign * other.on_scipy()).tocsr())

    def __add__(self, other):
        return self.added(other, 1)

    def __sub__(self, other):
        return self.added(other, -1)

    def __mul__(self, other):
        if isinstance(other, SCALARS) or (isinstance(other, ndarray) and other.ndim == 0):
            return type(self)((self.data * other, self.indices, self.indptr), shape=self.shape)
        return self @ other

    def __rmul__(self, other):
        return self * other if isinstance(other, SCALARS) else NotImplemented

    def __truediv__(self, other):
        return self * (1.0 / other) if isinstance(other, SCALARS) else NotImplemented

    def __matmul__(self, other):
        note("call", "sparse @")
        if isinstance(other, Base):
            note("wait", "product of sparse matrices", 3)
            return self.like((self.on_scipy() @ other.on_scipy()).tocsr())
        return wrap(self.on_scipy() @ operand(other))

    def __getitem__(self, key):
        key = key if isinstance(key, tuple) else (key, slice(None))
        note("wait", "part of a sparse matrix")
        note("call", "part of a sparse matrix", 6)
        key = tuple(one._a if isinstance(one, ndarray) else one for one in key)
        found = self.on_scipy()[key]
        return wrap(found) if np.isscalar(found) else self.like(found.asformat(self.format))


class csc_matrix(csr_matrix):  # noqa: N801 - CuPy's name
    """Compressed columns."""

    format, host = "csc", scipy.sparse.csc_matrix


class coo_matrix(Base):  # noqa: N801 - CuPy's name
    """Coordinates. Made from what a test gives, and turned into rows; it can do nothing else."""

    format, __module__ = "coo", "cupyx.scipy.sparse"

    def __init__(self, arg1, shape=None):
        found = arg1.on_scipy() if isinstance(arg1, Base) else arg1
        self.found = scipy.sparse.coo_matrix(found, shape=shape)
        self.shape, self.dtype, self.nnz = self.found.shape, self.found.dtype, self.found.nnz
        self.data, self.row, self.col = map(wrap, (self.found.data, *self.found.coords))

    def on_scipy(self):
        return self.found

    def tocsr(self, copy=False):  # noqa: ARG002, FBT002
        note("wait", "tocsr", 3)
        return csr_matrix.like(csr_matrix(wrap(np.eye(1))), self.found.tocsr())


HELPERS = {"host", "refuse", "on_scipy", "parts_of", "like", "replace", "in_place", "added"}
for kind in (csr_matrix, csc_matrix):
    kind.__module__ = Base.__module__
    own = [name for name in vars(kind) if not name.startswith("_")]
    wrong = [n for n in own if not public(f"{Base.__module__}.{kind.__name__}", n)]
    assert set(wrong) <= {*HELPERS, "data", "indices", "indptr", "shape"}, wrong


def identity(n, dtype="d", format=None):  # noqa: A002
    assert format in (None, "csr")
    return csr_matrix(csr_matrix.host(scipy.sparse.identity(n, dtype=dtype)))


def issparse(x):
    return isinstance(x, Base)


def eigsh(a, k=6, *, which="LM", v0=None, ncv=None, maxiter=None, tol=0, return_eigenvectors=True):  # noqa: ARG001
    """Do what CuPy's does: where it does not converge it returns what it has, without a word."""
    note("wait", "eigsh")
    n, settings = a.shape[0], {"which": which, "maxiter": maxiter, "tol": tol}
    try:
        values, vectors = scipy.sparse.linalg.eigsh(a.on_scipy(), k, v0=operand(v0), **settings)
    except scipy.sparse.linalg.ArpackNoConvergence:
        block = np.linalg.qr(np.random.default_rng(0).normal(size=(n, k)))[0]
        values, rotation = np.linalg.eigh(block.T @ (a.on_scipy() @ block))
        values, vectors = values.astype(a.dtype), (block @ rotation).astype(a.dtype)
    order = np.argsort(values)
    return wrap(values[order]), wrap(np.ascontiguousarray(vectors[:, order]))


NAMES = {kind.__name__: kind for kind in (csr_matrix, csc_matrix, coo_matrix)}
NAMES |= {"spmatrix": Base, "issparse": issparse, "isspmatrix": issparse, "identity": identity}
