"""Tasks for the runner of the paper's experiments: their processes import nothing else."""

import os
import signal
import sys
import time


def square(task):
    if task["x"] < 0:
        msg = "x is negative"
        raise ValueError(msg)
    return {"square": task["x"] ** 2, "threads": os.environ.get("OMP_NUM_THREADS")}


def useless(task):
    if task["x"] == 3:
        sys.exit(1)
    return {"value": float("nan") if task["x"] == 1 else {1} if task["x"] == 2 else 0}


def killed(task):
    if task["x"] == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return {"value": 0}


def sleep(task):
    time.sleep(0.2)
    return {"pid": os.getpid(), "x": task["x"]}
