"""Every test body takes both backends: the fixture `bk` is the backend module."""

import os
from pathlib import Path

import pytest

from specialk_gpu.backend import get_backend
from specialk_gpu.backend.driver import driver_verdict

LEFT_OUT = pytest.StashKey[int]()  # how many tests marked 'gpu' are not run


def pytest_addoption(parser):
    parser.addoption(
        "--require-gpu",
        action="store_true",
        help="tests marked 'gpu' fail, instead of being left out, where CUDA cannot run",
    )
    parser.addoption(
        "--stand-in",
        action="store_true",
        help="tests marked 'gpu' run on a strict stand-in for CuPy, on the host",
    )


def pytest_configure(config):
    if config.getoption("--stand-in"):
        import stand_in

        stand_in.install()


def asks_for_gpu(config):
    """Return the option that asks for the tests marked 'gpu', or None."""
    options = ("--require-gpu", "--stand-in")
    return next((option for option in options if config.getoption(option)), None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out the tests marked 'gpu' where CUDA cannot run and no option asks for them."""
    if asks_for_gpu(config) or not driver_verdict().reason:
        return
    left_out = [item for item in items if item.get_closest_marker("gpu")]
    items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=left_out)
    config.stash[LEFT_OUT] = len(left_out)
    if hasattr(config, "workeroutput"):  # of pytest-xdist: the summary is another process's
        config.workeroutput["left_out"] = len(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter, config):
    if left_out := config.stash.get(LEFT_OUT, 0):
        reason = driver_verdict().reason
        terminalreporter.write_line(f"LEFT OUT [{left_out}] tests marked 'gpu': {reason}")


def pytest_runtest_setup(item):
    if not item.get_closest_marker("gpu"):
        return
    option, reason = asks_for_gpu(item.config), driver_verdict().reason
    unseen = item.get_closest_marker("unseen_by_stand_in")
    if unseen and option == "--stand-in":
        pytest.skip(f"the stand-in cannot show it: {unseen.kwargs['reason']}")
    if reason:
        pytest.fail(f"{option}, but {reason}", pytrace=False)


@pytest.fixture(params=["numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def bk(request):
    return get_backend(request.param)


@pytest.fixture
def waits(request):
    """Return a context that counts what makes the host wait for the device, and transfers."""
    if not request.config.getoption("--stand-in"):
        pytest.skip("waits are counted on the stand-in alone")
    from stand_in import counting

    return counting


@pytest.fixture(scope="session")
def mnist_folder():
    folder = os.environ.get("SPECIALK_MNIST")
    if not folder:
        pytest.skip("SPECIALK_MNIST does not name the folder of MNIST's idx files")
    return Path(folder)
