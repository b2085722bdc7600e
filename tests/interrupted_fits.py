"""Interrupt fits of 60,000 rows at random moments, and measure how long after it they end.

Run as `python tests/interrupted_fits.py 6 [SEED]`: so many interruptions of each of several fits,
each in a process of its own, as by Ctrl-C. Prints the slowest by stage. The exit code is 1 if a fit
takes longer than a second to end, or changes the model that it was called on.
"""

import re
import signal
import subprocess
import sys
import time

import numpy as np

M = 60_000
LONGEST = 1.0  # seconds
FITS = {  # columns of X, centres, and parameters
    "cut, tree": (5, 15, {}),
    "cut, 10 columns": (10, 15, {}),
    "cut, 50 columns": (50, 15, {}),
    "cut, one cluster": (10, 1, {}),
    "zz_top": (10, 15, {"criterion": "zz_top", "n_components": 300, "max_clusters": 12}),
    "zz_top, full path": (
        10,
        1,
        {"criterion": "zz_top", "n_components": 200, "max_clusters": 8, "full_path": True},
    ),
}
INTERRUPTED = "interrupted"


def child(name):
    """Fit; if it is interrupted, print the stage, and the moment when the interruption ended."""
    import logging
    import warnings

    from specialk_gpu import SpecialK
    from specialk_gpu._progress import logger

    d, n_centers, parameters = FITS[name]
    rng = np.random.default_rng(0)
    X = 10 * rng.normal(size=(n_centers, d))[np.arange(M) % n_centers] + rng.normal(size=(M, d))
    SpecialK(random_state=0).fit(X[:500])  # loads and compiles all that is needed
    messages = []
    logger.setLevel(logging.INFO)
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger.addHandler(handler)
    warnings.simplefilter("ignore")
    model = SpecialK(random_state=0, **parameters)
    print("ready", flush=True)
    try:
        model.fit(X)
    except KeyboardInterrupt:
        ended, changed = time.time(), any(own.endswith("_") for own in vars(model))
        last = re.split(r"[:,]", messages[-1])[0] if messages else "the start"
        print(INTERRUPTED, ended, int(changed), last, flush=True)
    else:
        print("ended", time.time(), 0, "", flush=True)


def interrupt(name, moment):
    """Interrupt a fit after `moment` seconds.

    Returns the seconds until it ended and until its process did, the stage before the one that was
    interrupted, and whether the model changed; or, if the fit was done before, None.
    """
    command = [sys.executable, __file__, "--child", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            sent = time.time()
            process.send_signal(signal.SIGINT)
        else:
            return None
        said, ended, changed, *stage = process.stdout.readline().split()
        process.wait()
        whole = time.time() - sent
    if said != INTERRUPTED:
        return None
    return float(ended) - sent, whole, " ".join(stage), changed == "1"


def duration(name):
    """Return the seconds that a fit takes if nobody interrupts it."""
    command = [sys.executable, __file__, "--child", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        start = time.time()
        return float(process.stdout.readline().split()[1]) - start


def run(n_interruptions, seed=0):
    """Print the slowest interruption after each stage of each fit; return how many are wrong."""
    rng, wrong = np.random.default_rng(seed), 0
    for name in FITS:
        lasts = duration(name)
        slowest = {}
        moments = lasts * (np.arange(n_interruptions) + rng.uniform(size=n_interruptions))
        for moment in moments / n_interruptions:
            found = interrupt(name, moment)
            if found is None:
                continue
            seconds, whole, stage, changed = found
            wrong += seconds > LONGEST or changed
            n, before = slowest.get(stage, (0, (0.0, 0.0)))
            slowest[stage] = n + 1, max(before, (seconds, whole))
        for stage, (n, (seconds, whole)) in slowest.items():
            print(
                f"{name} ({lasts:.0f} s), after {stage}: {n} interrupted, slowest {seconds:.2f} s, "
                f"its process {whole:.2f} s",
                flush=True,
            )
    return wrong


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2])
    else:
        sys.exit(run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0) > 0)
