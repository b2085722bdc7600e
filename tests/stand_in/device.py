"""The device of the stand-in: kernels that run on the host, a product of cuBLAS, its memory."""

import ctypes
import functools
import hashlib
import mmap
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from stand_in.counts import note

__all__ = [
    "CUBLAS",
    "POOL",
    "RUNTIME",
    "CompileException",
    "Device",
    "OutOfMemoryError",
    "RawModule",
]

HEADER = Path(__file__).parents[1] / "cuda_on_host.h"
SIGNATURE = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')
DTYPES = {
    "double": np.float64,
    "float": np.float32,
    "int": np.int32,
    "long long": np.int64,
    "unsigned": np.uint32,
    "unsigned long long": np.uint64,
    "unsigned short": np.float16,
}
LIBC = ctypes.CDLL(None)
BARRIERS = ("__syncthreads", "_sync(", "atomicCAS")  # where a thread lets others go on
GRID, BLOCK = (2**31 - 1, 65535, 65535), 1024  # limits
# Products and sums are fused, as NVRTC does, where the processor of the host can.
COMPILER = ("g++", "-std=c++20", "-O2", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC")
COMPILER += ("-w",)


class Device:
    """The one device there is."""

    compute_capability = "90"

    def __init__(self, device=0):
        self.id = int(device or 0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __eq__(self, other):
        return isinstance(other, Device)

    def __hash__(self):
        return self.id

    def synchronize(self):
        note("wait", "synchronize")


class CUDARuntimeError(RuntimeError):
    """What the runtime raises."""


class CompileException(Exception):  # noqa: N818 - CuPy's name
    """What the compiler raises."""


class OutOfMemoryError(MemoryError):
    """What the pool raises."""


class Pool:
    """The memory pool, which holds nothing back."""

    def free_bytes(self):
        return 0

    used_bytes = total_bytes = get_limit = free_bytes


POOL = Pool()
RUNTIME = {
    "getDeviceCount": lambda: 1,
    "getDeviceProperties": lambda _: {
        "name": b"a stand-in for CuPy",
        "totalGlobalMem": 2**34,
        "major": 9,
        "minor": 0,
    },
    "memGetInfo": lambda: (2**33, 2**34),
    "runtimeGetVersion": lambda: 12090,
    "driverGetVersion": lambda: 12090,
    "CUDARuntimeError": CUDARuntimeError,
    "CUDA_R_16F": 2,
    "CUDA_R_32F": 0,
}


# Kernels ------------------------------------------------------------------------------------------


def launcher(name, parameters, has_barriers):
    """Write a host function that launches a kernel on a grid of blocks."""
    arguments = ", ".join(re.findall(r"(\w+)(?:,|$)", " ".join(parameters.split())))
    return (
        f'extern "C" void launch_{name}(unsigned gx, unsigned gy, unsigned gz, '
        f"unsigned bx, unsigned by, {parameters}) {{ host::launch({{gx, gy, gz}}, {{bx, by, 1}}, "
        f"{int(has_barriers)}, [&] {{ {name}({arguments}); }}); }}\n"
    )


@functools.cache
def compiled(code):
    """Compile a source for the host; return what was compiled, and its kernels' parameters."""
    if shutil.which(COMPILER[0]) is None:
        msg = "the stand-in needs g++ to run the kernels on the host."
        raise RuntimeError(msg)
    kernels = {name: " ".join(text.split()).split(", ") for name, text in SIGNATURE.findall(code)}
    source = f'#include "{HEADER}"\n{code}\n'
    has_barriers = any(word in code for word in BARRIERS)
    for name, text in kernels.items():
        source += launcher(name, ", ".join(text), has_barriers)
    key = hashlib.sha256("".join([*COMPILER, source, HEADER.read_text()]).encode()).hexdigest()[:20]
    path = Path(tempfile.gettempdir()) / f"kernels-on-host-{key}.so"
    if not path.exists():
        own, text = (path.with_suffix(f".{os.getpid()}{end}") for end in (".so", ".cpp"))
        text.write_text(source)
        subprocess.run([*COMPILER, "-o", own, text], check=True)
        own.replace(path)
        text.unlink()
    return ctypes.CDLL(str(path)), kernels


class RawModule:
    """Kernels from their source."""

    def __init__(self, *, code, options):
        assert options == ("-std=c++17",)
        self.code = code

    def get_function(self, name):
        return Kernel(self.code, name)


class Guarded:
    """A copy of an array behind a zone that gives wrong results when read and shows when written.

    After it comes a page that ends the process when it is touched.
    """

    zone = 64  # elements

    def __init__(self, a):
        self.a = a
        self.poison = np.nan if a.dtype.kind == "f" else np.iinfo(a.dtype).max // 3
        self.order = "C" if a.flags.c_contiguous else "F"
        self.written = False
        self.buffer = before_a_closed_page(a.size + self.zone, a.dtype)
        self.buffer[: self.zone] = self.poison
        self.inside = self.buffer[self.zone :]
        self.inside[:] = a.ravel(order=self.order)
        self.address = ctypes.c_void_p(self.inside.ctypes.data)

    def check_and_copy_back(self):
        before = self.buffer[: self.zone]
        np.testing.assert_array_equal(before, np.full_like(before, self.poison))
        if self.written:
            self.a[...] = self.inside.reshape(self.a.shape, order=self.order)


def before_a_closed_page(size, dtype):
    """Return an array that ends where a page begins that nobody may read or write."""
    n_bytes, page = size * dtype.itemsize, mmap.PAGESIZE
    end = -(-n_bytes // page) * page
    memory = mmap.mmap(-1, end + page)
    closed = ctypes.addressof(ctypes.c_char.from_buffer(memory, end))
    assert LIBC.mprotect(ctypes.c_void_p(closed), ctypes.c_size_t(page), 0) == 0
    return np.frombuffer(memory, dtype, size, end - n_bytes)


class Kernel:
    """A kernel, which takes what its source says and nothing else."""

    def __init__(self, code, name):
        self.host, kernels = compiled(code)
        if name not in kernels:
            msg = f"CUDA_ERROR_NOT_FOUND: named symbol not found: {name}"
            raise RuntimeError(msg)
        self.name, self.parameters = name, kernels[name]

    def __call__(self, grid, block, args, *, shared_mem=0):
        assert shared_mem == 0
        grid, block = (*grid, 1, 1)[:3], (*block, 1)[:2]
        if not all(0 < n <= most for n, most in zip(grid, GRID, strict=True)):
            msg = f"CUDA_ERROR_INVALID_VALUE: {self.name} on a grid of {grid}"
            raise RuntimeError(msg)
        if not 0 < block[0] * block[1] <= BLOCK:
            msg = f"CUDA_ERROR_INVALID_VALUE: {self.name} in blocks of {block}"
            raise RuntimeError(msg)
        note("launch", self.name)
        guarded = {}
        values = [self.value(*pair, guarded) for pair in zip(args, self.parameters, strict=True)]
        sizes = [ctypes.c_uint(int(n)) for n in (*grid, *block)]
        getattr(self.host, f"launch_{self.name}")(*sizes, *values)
        for one in guarded.values():
            one.check_and_copy_back()

    def value(self, x, parameter, guarded):
        """Return an argument as C takes it, if it is of the kind that the source says."""
        kind = re.sub(r"\b(const|volatile)\b|\w+$", "", parameter.replace("__restrict__", ""))
        dtype, is_pointer = np.dtype(DTYPES[kind.replace("*", "").strip()]), "*" in kind
        takes = hasattr(x, "_a") if is_pointer else isinstance(x, np.generic)
        if not takes or x.dtype != dtype:
            msg = f"{self.name}: {parameter} got {type(x)} of {getattr(x, 'dtype', None)}"
            raise TypeError(msg)
        if not is_pointer:
            return np.ctypeslib.as_ctypes_type(dtype)(x)
        a = x._a  # an array on the device
        if not (a.flags.c_contiguous or a.flags.f_contiguous):
            msg = f"{self.name}: {parameter} got an array with gaps"
            raise TypeError(msg)
        key = a.ctypes.data, a.size
        if key not in guarded:
            guarded[key] = Guarded(a)
        guarded[key].written |= not parameter.startswith("const ")
        return guarded[key].address


# cuBLAS -------------------------------------------------------------------------------------------


def view(address, rows, leading, kind):
    """Return a matrix of cuBLAS, by columns, as the row-major array that it is."""
    number, dtype = {2: (ctypes.c_uint16, np.float16), 0: (ctypes.c_float, np.float32)}[kind]
    pointer = ctypes.cast(address, ctypes.POINTER(number))
    return np.ctypeslib.as_array(pointer, (rows, leading)).view(dtype)


def gemm_ex(_, ta, tb, m, n, k, alpha, a, ta_, lda, b, tb_, ldb, beta, c, tc_, ldc, compute, algo):  # noqa: PLR0913
    """Do what cublasGemmEx does, in NumPy: C = alpha op(A) op(B), column-major."""
    assert (tb, compute, algo) == (0, 68, -1)
    assert max(m, n, k, lda, ldb, ldc) < 2**31
    assert view(beta, 1, 1, 0)[0, 0] == 0
    note("launch", "gemmEx_float16")
    A = view(a, m, lda, ta_)[:, :k] if ta else view(a, k, lda, ta_)[:, :m].T
    B = view(b, n, ldb, tb_)[:, :k].T
    out = view(c, n, ldc, tc_)[:, :m]
    np.matmul(B.T.astype(np.float32), A.T.astype(np.float32), out=out)
    out *= view(alpha, 1, 1, 0)[0, 0]


CUBLAS = {
    "gemmEx": gemm_ex,
    "CUBLAS_OP_N": 0,
    "CUBLAS_OP_T": 1,
    "CUBLAS_COMPUTE_32F": 68,
    "CUBLAS_GEMM_DEFAULT": -1,
}
