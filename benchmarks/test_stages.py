"""The cases of `specialk-gpu bench` under pytest-benchmark, in one process.

python -m pytest benchmarks --benchmark-only [--size medium] [--backend cuda] [--mnist FOLDER]
"""

import pytest

from benchmarks.suite.cases import cases, load, prepare
from benchmarks.suite.stages import STAGE
from specialk_gpu.backend import get_backend

pytest.importorskip("pytest_benchmark")
pytestmark = pytest.mark.filterwarnings("ignore")  # about the data


def pytest_generate_tests(metafunc):
    option, backend = metafunc.config.getoption, metafunc.config.getoption("backend")
    chosen = cases(option("size"), mnist=bool(option("mnist")))
    pairs = [
        pytest.param(case, contender, id=f"{case.stage}: {case}: {contender.name}")
        for case in chosen
        if case.backend in ("", backend)
        for contender in STAGE[case.stage].contenders
        if backend in contender.backends
    ]
    metafunc.parametrize(("case", "contender"), pairs)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("inputs")


def test_stage(benchmark, pytestconfig, folder, case, contender):
    backend = pytestconfig.getoption("backend")
    if not contender.installed:
        pytest.skip(f"not installed: needs {contender.modules[0]}")
    if reason := contender.refuse(case):
        pytest.skip(reason)
    prepare(case, backend, pytestconfig.getoption("mnist"), folder)
    data = load(case, get_backend("numpy" if contender.host else backend), folder)
    found = STAGE[case.stage].check(contender.name, case, data, contender.run(case, data))
    assert "wrong" not in found

    def call():
        contender.run(case, data)
        data.bk.synchronize()

    benchmark.group = f"{case.stage}: {case}"
    benchmark.extra_info.update(found)
    benchmark.pedantic(call, rounds=3)
