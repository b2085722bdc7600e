"""The names and arguments of a CuPy, read without a GPU: python tests/stand_in/surface.py > FILE.

Writes JSON: of each module its names, of each class its members. A callable has its parameters as
text, such as "self, axis=0, *, out=0" (what the defaults are does not matter), "" where CuPy does
not tell; anything else has None. cupy-14.0.json holds those of CuPy 14.0.0, the oldest that the
extras allow.
"""

import importlib
import inspect
import json
import re
import sys
import types

MODULES = ("cupy", "cupyx", "cupy.linalg", "cupy.cuda", "cupy.cuda.runtime")
MODULES += ("cupyx.scipy.sparse", "cupyx.scipy.linalg", "cupyx.scipy.sparse.linalg")
CLASSES = {"cupy": ("ndarray", "RawModule"), "cupyx.scipy.sparse": ("csr_matrix", "csc_matrix")}
LIBRARIES = ("cublas", "cusolver", "cusparse", "cufft", "curand")  # need not be installed
DOC = re.compile(r"^\w+\.\w+\(((?:[^()]|\([^()]*\))*)\)")  # of a method in Cython
UFUNC = "*args, out=0, dtype=0, casting=0"


class Library(types.ModuleType):
    """Stands for a library of CUDA, whose constants are asked for when CuPy is imported."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return 0


def provide_libraries():
    """Put an empty module in the place of each library that is not there."""
    for name in LIBRARIES:
        full = f"cupy_backends.cuda.libs.{name}"
        try:
            importlib.import_module(full)
        except ImportError:
            sys.modules[full] = Library(full)
    import cupy.cuda
    from cupy_backends.cuda import libs

    for name in LIBRARIES:
        module = sys.modules[f"cupy_backends.cuda.libs.{name}"]
        setattr(libs, name, module)
        setattr(cupy.cuda, name, module)
        sys.modules[f"cupy.cuda.{name}"] = module


def parameters(function):
    """Return the parameters of a callable as text."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        found = DOC.match(function.__doc__ or "")
        if not found:
            return ""
        words = [re.sub(r"^\w+ (?=\w)", "", word) for word in found[1].split(", ")]  # "int axis"
        return ", ".join(re.sub("=.*", "=0", word) for word in words)
    bare = [
        p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else 0)
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))[1:-1]


def names(owner, ufunc=()):
    """Describe the public names, and the operators, of a module or a class."""
    found = {}
    for name in dir(owner):
        try:
            value = getattr(owner, name)
        except (AttributeError, NotImplementedError, RuntimeError):
            continue  # some names need a device only to be looked at
        if inspect.ismodule(value) or (name.startswith("_") and not inspect.isclass(owner)):
            continue
        described = UFUNC if isinstance(value, ufunc) else parameters(value)
        found[name] = described if callable(value) else None
    return found


def surface():
    provide_libraries()
    import cupy

    found = {"version": cupy.__version__}
    for name in MODULES:
        module = importlib.import_module(name)
        found[name] = names(module, cupy.ufunc)
        for owner in CLASSES.get(name, ()):
            found[f"{name}.{owner}"] = names(getattr(module, owner))
    return found


if __name__ == "__main__":
    json.dump(surface(), sys.stdout, separators=(",", ":"), sort_keys=True)
