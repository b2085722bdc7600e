"""The error that is raised if eigenpairs were not found."""

from __future__ import annotations

__all__ = ["ConvergenceError"]


class ConvergenceError(RuntimeError):
    """An iterative method ended without a usable result; the message says why and what helps."""
