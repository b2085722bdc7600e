"""Environment of a result: the machine, the versions and the commit."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from specialk_gpu._version import __version__

__all__ = [
    "COMMIT",
    "describe_environment",
    "optional_versions",
    "package_versions",
    "peak_bytes",
    "write_with_environment",
]

OPTIONAL = ("matplotlib", "tqdm", "anndata", "pandas", "polars", "pyarrow", "networkx", "igraph")


def _commit_of_environment() -> str:
    """Return the commit of this checkout; outside of one, the value of SPECIALK_COMMIT."""
    here = Path(__file__)
    for command in (["ls-files", "--error-unmatch", here.name], ["rev-parse", "HEAD"]):
        try:
            done = subprocess.run(
                ["git", *command], cwd=here.parent, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return os.environ.get("SPECIALK_COMMIT", "")
    return done.stdout.strip()


COMMIT = (
    _commit_of_environment()
)  # at import, so that a commit made during a run does not change it


def _processor_of_environment() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")


def package_versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of the required packages."""
    versions = {"specialk_gpu": __version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", "scikit-learn"):
        versions[package] = importlib.metadata.version(package)
    return versions


def optional_versions() -> dict[str, str]:
    """Return the versions of the optional packages; "" for those that are not installed."""
    versions = {}
    for package in OPTIONAL:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = ""
    return versions


def describe_environment() -> dict[str, Any]:
    """Return a description of this machine, the versions in use and the commit."""
    from specialk_gpu.backend import describe_backends
    from specialk_gpu.backend.cpu.threads import n_threads

    backends = describe_backends()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = package_versions()
    return {
        "specialk_gpu": versions.pop("specialk_gpu"),
        "commit": COMMIT,
        "python": versions.pop("python"),
        "versions": versions | {k: v for row in backends for k, v in row["versions"].items()},
        "processor": _processor_of_environment(),
        "cores": cores,
        "gpu": [device["name"] for device in backends[1]["devices"]],
        "threads": n_threads(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def peak_bytes() -> int | None:
    """Return the peak host memory of this process; None if the system does not record it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def write_with_environment(path: Path, content: dict[str, Any]) -> Path:
    """Write `content` and the environment as JSON, atomically: no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    text = json.dumps({"stamp": describe_environment(), **content}, indent=1, allow_nan=False)
    part.write_text(f"{text}\n", encoding="utf-8")
    return part.replace(path)
