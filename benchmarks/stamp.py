"""Who measured: the machine, the versions and the commit, for every file of results."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def _commit() -> str:
    run = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(run, capture_output=True, text=True, check=False).stdout.strip()
    return found or os.environ.get("SPECIALK_COMMIT", "")


COMMIT = _commit()  # of the code that was loaded, whatever is committed while it runs


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")


def stamp() -> dict[str, Any]:
    """Describe this machine, the versions in use and the commit."""
    from specialk_gpu import __version__
    from specialk_gpu.backend import describe_backends

    backends = describe_backends()
    return {
        "specialk_gpu": __version__,
        "commit": COMMIT,
        "python": platform.python_version(),
        "versions": {name: v for row in backends for name, v in row["versions"].items()},
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": [device["name"] for device in backends[1]["devices"]],
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def peak_bytes() -> int:
    """Return the largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write(name: str, content: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write results/name.json with the stamp."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"stamp": stamp(), **content}, indent=1, allow_nan=False) + "\n")
    return path
