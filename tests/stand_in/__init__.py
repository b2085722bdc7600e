"""A strict stand-in for CuPy, for machines without a GPU: NumPy behind a wall.

`install()` puts modules `cupy` and `cupyx` in the place of CuPy's. Then:

- Only names and arguments exist that both the installed CuPy and CuPy 14.0.0 have (see surface.py).
- Arrays of the host and of the device do not mix, and nothing is converted without being asked.
- Memory that nobody has written holds NaN, or large integers.
- Kernels run from their own source, on the host (see cuda_on_host.h); a step beyond the end of an
  array ends the process, and what is written before its beginning shows.
- What adds by atomics adds in a random order.
- `counting()` counts by line what makes the host wait, calls, launches and transfers.

It cannot show: asynchrony, races between threads, how cuBLAS, cuSOLVER and cuSPARSE round and fail,
the error of tensor cores, memory pools, times, several devices, DLPack.
"""

import sys
from types import ModuleType, SimpleNamespace

from stand_in import arrays, device, sparse
from stand_in.counts import counting, note
from stand_in.rules import KNOWN, public

__all__ = ["counting", "install"]


def install():
    """Put the stand-in in the place of CuPy, before this library imports that."""
    assert "specialk_gpu.backend.gpu" not in sys.modules
    for name in list(sys.modules):  # plugins of pytest import CuPy where they find it
        if name.partition(".")[0] in ("cupy", "cupyx"):
            del sys.modules[name]
    stream = SimpleNamespace(synchronize=lambda: note("wait", "synchronize"), ptr=0)
    module("cupy", arrays.functions("cupy"), ndarray=arrays.ndarray, RawModule=device.RawModule)
    module("cupy", {}, get_default_memory_pool=lambda: device.POOL, __version__=KNOWN[0]["version"])
    module("cupy.linalg", arrays.functions("cupy.linalg"))
    module("cupy.cuda", {}, Device=device.Device, get_current_stream=lambda device_id=-1: stream)  # noqa: ARG005
    module("cupy.cuda.runtime", device.RUNTIME)
    module("cupy.cuda.cublas", device.CUBLAS, checked=False)
    module("cupy.cuda.device", {}, checked=False, get_cublas_handle=lambda: 0, Device=device.Device)
    module("cupy.cuda.nvrtc", {}, checked=False, compileProgram=lambda *_: None)  # never called
    module("cupy.cuda.compiler", {}, checked=False, CompileException=device.CompileException)
    module("cupy.cuda.memory", {}, checked=False, OutOfMemoryError=device.OutOfMemoryError)
    module("cupyx", {})
    module("cupyx.scipy", {}, checked=False)
    module("cupyx.scipy.linalg", {"solve_triangular": arrays.solve_triangular})
    module("cupyx.scipy.sparse", sparse.NAMES)
    module("cupyx.scipy.sparse.linalg", {"eigsh": sparse.eigsh})


def module(name, members, *, checked=True, **more):
    """Make a module, or add to it, of names that CuPy has."""
    made = sys.modules.get(name) or ModuleType(name)
    made.__path__ = []
    if checked:
        members = {key: value for key, value in members.items() if public(name, key)}
    vars(made).update(members | more)
    sys.modules[name] = made
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, made)
