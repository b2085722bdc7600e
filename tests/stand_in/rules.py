"""What CuPy takes: names and arguments, of the installed one and of the oldest that is allowed."""

import inspect
import json
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["KNOWN", "check", "public"]

FOLDER = Path(__file__).parent
PACKAGES = ("cupy-cuda12x", "cupy-cuda13x", "cupy")


def installed():
    """Return the surface of the CuPy that is installed, read in a process of its own."""
    for package in PACKAGES:
        try:
            found = version(package)
        except PackageNotFoundError:
            continue
        script = FOLDER / "surface.py"
        known = Path(tempfile.gettempdir()) / f"surface-{found}-{script.stat().st_mtime_ns}.json"
        if not known.exists():
            text = subprocess.run(
                [sys.executable, script], check=True, capture_output=True, text=True
            )
            known.with_suffix(".partial").write_text(text.stdout)
            known.with_suffix(".partial").replace(known)
        return json.loads(known.read_text())
    msg = "the stand-in needs the names of a CuPy: pip install -e '.[test,nvrtc]'."
    raise RuntimeError(msg)


KNOWN = (json.loads((FOLDER / "cupy-14.0.json").read_text()), installed())


def public(owner, name):
    """Say whether a module or class of CuPy has a name, in both versions."""
    return all(name in known[owner] for known in KNOWN)


@cache
def signatures(owner, name):
    """Return the signatures of a callable that CuPy tells of."""
    texts = {known[owner][name] for known in KNOWN if known[owner][name]}
    return [inspect.signature(eval(f"lambda {text}: 0")) for text in texts]


def check(owner, name, args, kwargs):
    """Raise TypeError for arguments that one of the two versions does not take."""
    for signature in signatures(owner, name):
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            msg = f"{owner}.{name}: {error}"
            raise TypeError(msg) from None
