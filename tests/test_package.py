"""The package: public names, what importing loads, and who imports whom."""

import ast
import graphlib
import importlib
import importlib.metadata
import itertools
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import specialk_gpu

PACKAGE = Path(specialk_gpu.__file__).parent
SOURCES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
OURS = "specialk_gpu."
PUBLIC = [name for name in specialk_gpu.__all__ if name != "__version__"]
# The floors of the house: a room imports from rooms on the floors below it, and from itself.
FLOORS = [
    {"_affinities", "_memory_limit", "_time_limit", "_units", "_workers"},
    {"_checks", "_matrix", "_printable", "_progress", "_version", "_warnings", "_writing"},
    {"backend", "tables"},
    {"_checkpoint"},
    {"graph", "spectrum", "lloyd", "_result"},
    {"selection", "_environment", "_scales", "_schema"},
    {"_host", "_parameters", "_dask_rows", "_dask_workers"},
    {"_storage", "_validation", "_prediction", "_fitted", "_cost", "_callbacks"},
    {"inspection"},
    {"_account", "_fit", "_fit_limits"},
    {"_graph_of_fit"},
    {"_model"},
    {"_estimator", "io", "_options", "_printing"},
    {"tl", "dask", "datasets", "_command_files"},
    {"_commands"},
    {"cli"},
    {"__main__"},
]


FRESH = """
import sys, warnings, specialk_gpu
def loaded():
    heavy = {"anndata", "cupy", "dask", "matplotlib", "numpy", "pandas", "polars", "scanpy"}
    return " ".join(sorted((heavy | {"scipy", "sklearn"}) & set(sys.modules))) or "nothing"
print("import:", loaded())
import specialk_gpu.lloyd.kmeans
from specialk_gpu import kmeans
print("kmeans is a", type(kmeans).__name__)
import numpy as np
warnings.simplefilter("ignore")
for name in specialk_gpu.__all__:
    getattr(specialk_gpu, name)
specialk_gpu.tl.specialk
specialk_gpu.SpecialK(backend="numpy").fit(np.eye(30))
print("fit:", loaded())
"""


@pytest.fixture(scope="module")
def fresh_process():
    """What the package has loaded in a process of its own, step by step."""
    command = [sys.executable, "-c", FRESH]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def imports(path):
    """Return the dotted names of all modules that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


# -- names ----------------------------------------------------------------------------------------


def test_public_names_are_there_and_no_modules():
    assert len(set(specialk_gpu.__all__)) == len(specialk_gpu.__all__)
    for name in PUBLIC:
        value = getattr(specialk_gpu, name)
        assert callable(value)
        assert not isinstance(value, ModuleType)
        assert value.__module__.startswith("specialk_gpu.")
        assert name in dir(specialk_gpu)
    with pytest.raises(AttributeError, match="module 'specialk_gpu' has no attribute 'cluster'"):
        specialk_gpu.cluster  # noqa: B018


def test_a_function_is_not_shadowed_by_the_module_of_its_name():
    module = importlib.import_module("specialk_gpu.lloyd.kmeans")
    assert isinstance(module, ModuleType)
    assert specialk_gpu.kmeans is module.kmeans


def test_a_function_is_not_shadowed_by_its_module_that_was_imported_first(fresh_process):
    assert "kmeans is a function" in fresh_process


@pytest.mark.parametrize("name", [name for name in SOURCES if not name.startswith("backend.gpu.")])
def test_names_in_all_are_defined(name):
    module = importlib.import_module(f"specialk_gpu.{name}".removesuffix(".__init__"))
    for public in getattr(module, "__all__", ()):
        assert hasattr(module, public)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name):
    doc = getattr(specialk_gpu, name).__doc__
    first, *rest = doc.strip().splitlines()
    assert first.endswith(".")
    assert not rest or rest[0] == ""


def test_version_is_that_of_the_project():
    project = PACKAGE.parent / "pyproject.toml"
    if not project.exists():
        pytest.skip("not run from a checkout")
    settings = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    assert settings["version"] == specialk_gpu.__version__
    assert settings["scripts"] == {"specialk-gpu": "specialk_gpu.cli:main"}
    assert {"cuda12", "cuda13", "plot", "dask", "bench", "test", "docs"} <= set(
        settings["optional-dependencies"]
    )
    for version in ("12", "13"):  # CuPy's wheels come without CUDA's libraries but for `ctk`
        (cupy,) = settings["optional-dependencies"][f"cuda{version}"]
        assert cupy.startswith(f"cupy-cuda{version}x[ctk]>=14")


def test_types_and_kernels_are_shipped():
    assert (PACKAGE / "py.typed").is_file()
    kernels = {path.stem for path in (PACKAGE / "backend" / "kernels").glob("*.cu")}
    assert kernels == {
        "bins",
        "center",
        "components",
        "distance",
        "draw",
        "hash",
        "maximum",
        "segment",
        "select",
        "split",
        "spmm",
        "step",
    }


# -- imports --------------------------------------------------------------------------------------


def test_importing_loads_nothing_heavy(fresh_process):
    assert "import: nothing" in fresh_process


def test_fitting_on_numpy_loads_no_optional_package(fresh_process):
    (loaded,) = (line for line in fresh_process if line.startswith("fit: "))
    assert "sklearn" in loaded
    assert not set(loaded.split()) & {"anndata", "cupy", "dask", "matplotlib", "polars", "scanpy"}


def test_cupy_is_imported_in_one_folder():
    found = [
        name
        for name, path in SOURCES.items()
        if any(module.partition(".")[0] in ("cupy", "cupyx") for module in imports(path))
    ]
    assert found
    assert all(name.startswith("backend.gpu.") for name in found)


def room_of(module):
    return module.removeprefix(OURS).partition(".")[0]


ROOMS = {room_of(source) for source in SOURCES} - {"__init__"}


def test_every_room_has_a_floor():
    assert set().union(*FLOORS) == ROOMS
    assert sum(map(len, FLOORS)) == len(ROOMS)


@pytest.mark.parametrize("name", sorted(set(SOURCES) - {"__init__"}))
def test_modules_import_only_from_the_floors_below(name):
    own = room_of(name)
    below = set().union(*itertools.takewhile(lambda floor: own not in floor, FLOORS))
    met = {room_of(module) for module in imports(SOURCES[name]) if module.startswith(OURS)}
    assert met & ROOMS <= below | {own}


def test_no_circles_of_modules():
    sources = {name.removesuffix(".__init__"): path for name, path in SOURCES.items()}
    found = {}
    for name in set(sources) - {"__init__"}:
        ours = {x for x in imports(sources[name]) if x.startswith(OURS)}  # not the library dask
        met = {x.removeprefix(OURS) for x in ours} & set(sources) - {name}
        found[name] = {x for x in met if not any(y.startswith(f"{x}.") for y in met)}
    assert len(list(graphlib.TopologicalSorter(found).static_order())) >= len(found)


def test_no_drawer_modules():
    drawers = {"utils", "helpers", "common", "types", "constants", "exceptions"}
    assert not drawers & {name.rpartition(".")[2] for name in SOURCES}
    assert not [name for name in SOURCES if name.endswith(("_gpu", "_cpu"))]


def test_every_public_name_has_a_home():
    assert set(specialk_gpu.__all__) == {"__version__", *specialk_gpu._HOME}
