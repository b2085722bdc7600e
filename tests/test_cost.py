"""Expected seconds and memory: the laws are those of the measured fits, and say when to wait."""

import json
import logging
import math
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import growth
from specialk_gpu import SpecialK, _cost, estimate
from specialk_gpu._progress import logger
from specialk_gpu._units import size_in_units
from specialk_gpu.backend import get_backend

FITS = growth.measured()


def test_the_laws_are_those_of_the_results():
    shipped = json.loads(files("specialk_gpu").joinpath("cost.json").read_text(encoding="utf-8"))
    assert shipped["laws"].keys() == growth.laws(FITS).keys()
    for name, law in growth.laws(FITS).items():
        assert law == pytest.approx(shipped["laws"][name], abs=2e-4)
    for speed, rate in shipped["rates"].items():
        assert rate == np.median([fit["rates"][speed] for fit in FITS])


def test_laws_are_found_again():
    fits = [
        {
            "m": m,
            "d": d,
            "n": n,
            "stages": {
                "merging": 2e-5 * m**1.5 * d**0.5,
                "eigenpairs": 1e-6 * m**1.25 * n,
                "graph": 1e-8 * m**2 * d,
            },
        }
        for m in (1000, 3000)
        for d in (10, 20, 40)
        for n in (60, 200)
    ]
    found = growth.laws(fits)
    assert found["merging"] == pytest.approx(
        {"rows": 1.5, "columns": 0.5, "log_seconds": math.log(2e-5)}, abs=1e-3
    )
    assert found["eigenpairs"] == pytest.approx(
        {"rows": 1.25, "eigenvectors": 1, "log_seconds": math.log(1e-6)}, abs=1e-3
    )
    assert found["graph, many columns"] == pytest.approx(
        {"rows": 2, "columns": 1, "log_seconds": math.log(1e-8)}, abs=1e-3
    )


def test_measured_fits_are_expected_within_a_factor_of_two():
    seconds, memory = np.array(growth.ratios(FITS)).T
    cut = np.array([fit["criterion"] == "cut" for fit in FITS])
    assert ((seconds > 0.5) & (seconds < 2))[cut].all()
    large = cut & np.array([fit["m"] >= 4000 for fit in FITS])
    assert ((memory > 0.5) & (memory < 2))[large].all()


def test_a_machine_of_half_the_speed_takes_twice_as_long(monkeypatch):
    rates = _cost.measured_costs()["rates"]
    monkeypatch.setattr(_cost, "machine_rates", lambda: rates)
    here = estimate(20_000, 30)
    monkeypatch.setattr(_cost, "machine_rates", lambda: {x: rate / 2 for x, rate in rates.items()})
    there = estimate(20_000, 30)
    assert there.seconds == pytest.approx(2 * here.seconds)
    assert there.peak_bytes == here.peak_bytes
    assert set(here.stages) == {"graph", "eigenpairs", "fragments", "merging", "polishing"}


@pytest.mark.parametrize("criterion", ["cut", "zz_top"])
def test_numbers_of_eigenvectors_and_stages_are_those_of_a_fit(criterion):
    X = np.random.default_rng(0).normal(size=(150, 3))
    model = SpecialK(criterion=criterion, backend="numpy", random_state=0).fit(X)
    found = estimate(150, 3, criterion=criterion)
    assert found.n_components == model.eigenvalues_.size
    assert set(found.stages) == set(model.timings_)
    assert estimate(150, 3, criterion=criterion, n_components=7).n_components == 7


def test_calibration_measures_work_by_the_clock():
    ticks = iter(range(100))
    rates = _cost.machine_rates(clock=lambda: next(ticks))
    assert rates == {"product": 2 * 512**3, "memory": 2 * 2**25}  # each takes one tick


def test_the_table_names_stages_and_units():
    lines = str(estimate(5000, 4)).splitlines()
    assert lines[0].startswith("5,000 rows, 4 columns, 60 eigenvectors")
    assert [line.split()[0] for line in lines[1:-2]] == list(estimate(5000, 4).stages)
    assert estimate(5000, 4)._repr_html_().count("<tr>") == 8
    units = [_cost.cost_in_units(x) for x in (0.25, 5.0, 120.0, 7200.0, 3_000_000, 2_500_000_000)]
    assert units == ["0.25 s", "5 s", "2 min", "2.0 h", "3 MB", "2.5 GB"]


@pytest.mark.parametrize(
    ("n_bytes", "written"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (10**6, "1 MB"),
        (12_345_678_901, "12.3 GB"),
    ],
)
def test_sizes_are_written_in_a_unit_that_suits_them(n_bytes, written):
    assert size_in_units(n_bytes) == written


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_rows": 1}, "n_rows must be .*got 1"),
        ({"n_columns": 0}, "n_columns must be .*got 0"),
        ({"criterion": "gap"}, "criterion must be 'cut' or 'zz_top', got 'gap'"),
        ({"n_components": 0}, "n_components must be .*got 0"),
    ],
)
def test_wrong_arguments_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        estimate(**{"n_rows": 100, "n_columns": 2, **settings})


@pytest.mark.parametrize(("factor", "n_lines"), [(1, 0), (1e5, 1)])
def test_a_long_fit_says_so_at_its_beginning(monkeypatch, caplog, factor, n_lines):
    laws = _cost.measured_costs()
    slow = {
        x: law | {"log_seconds": law["log_seconds"] + math.log(factor)}
        for x, law in laws["laws"].items()
    }
    monkeypatch.setattr(_cost, "measured_costs", lambda: laws | {"laws": slow})
    X = np.random.default_rng(0).normal(size=(100, 3))
    with caplog.at_level(logging.INFO, logger.name):
        SpecialK(backend="numpy", random_state=0).fit(X)
    told = [record.getMessage() for record in caplog.records]
    assert len([text for text in told if text.startswith("this fit may take ")]) == n_lines
    assert told[0].startswith("this fit may take ") == bool(n_lines)


def test_graphs_and_devices_are_not_estimated(caplog):
    given = {"criterion": "cut", "n_components": "auto", "min_clusters": 1, "n_clusters": None}
    rows = SimpleNamespace(affinity="nearest_neighbors", **given)
    radius = SimpleNamespace(affinity="radius_neighbors", **given)
    numpy, cuda = get_backend("numpy"), SimpleNamespace(name="cuda")
    with caplog.at_level(logging.INFO, logger.name):
        _cost.foretell_cost(radius, numpy, 10**9, 10)
        _cost.foretell_cost(rows, cuda, 10**9, 10)
        _cost.foretell_cost(rows, numpy, 10**9, None)
        assert not caplog.records
        _cost.foretell_cost(rows, numpy, 10**9, 10)
        assert len(caplog.records) == 1
