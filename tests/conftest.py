"""Every test body takes both backends: the fixture `bk` is the backend module."""

import os
from pathlib import Path

import pytest

from specialk_gpu.backend import get_backend
from specialk_gpu.backend.driver import cuda_verdict


def pytest_addoption(parser):
    parser.addoption(
        "--require-gpu",
        action="store_true",
        help="tests marked 'gpu' fail, instead of being skipped, where CUDA cannot run",
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


def pytest_runtest_setup(item):
    unseen = item.get_closest_marker("unseen_by_stand_in")
    if unseen and item.config.getoption("--stand-in") and item.get_closest_marker("gpu"):
        pytest.skip(f"the stand-in cannot show it: {unseen.kwargs['reason']}")
    if item.get_closest_marker("gpu"):
        reason = cuda_verdict().reason
        for option in ("--require-gpu", "--stand-in"):
            if reason and item.config.getoption(option):
                pytest.fail(f"{option}, but {reason}", pytrace=False)
        if reason:
            pytest.skip(reason)


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
