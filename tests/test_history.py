"""Small fits do no more work than the last version whose counts were kept."""

import json

import pytest

from benchmarks import counts, history
from benchmarks.paper.runner import read
from benchmarks.stamp import RESULTS
from specialk_gpu import kmeans

SHARE = 0.1  # by which a count may grow before it has to be looked at
QUICK = [name for name in history.FITS if "1,500" in name]


def last():
    """Return the counts of the last version, by fit."""
    return list(history.versions(read(RESULTS / history.NAME)).values())[-1]


@pytest.mark.parametrize("name", QUICK)
def test_no_count_grows_by_more_than_a_tenth(name):
    """If it must, `python -m benchmarks.history` keeps the new counts."""
    found, kept = history.count(name), last()[name]
    grown = {key: (kept[key], x) for key, x in found.items() if x > (1 + SHARE) * kept[key]}
    assert not grown
    assert set(found) == set(history.COUNTS) < set(kept)


def test_the_last_version_has_all_fits():
    assert set(last()) == set(history.FITS)


def test_work_counts_rows_and_centres(monkeypatch):
    """Of 40 rows and two centres."""
    X = history.points(40, 3, 2)

    def run():
        work = history.Work()
        history.sys.setprofile(work)
        try:
            kmeans(X, 2, n_init=1, random_state=0)
        finally:
            history.sys.setprofile(None)
        return work.found

    found = run()
    assert found["products"] == 0
    assert found["distances"] > 0
    assert found["distances"] % 40 == 0
    assert found["calls"] > 10
    assert run() == found  # no less the second time
    monkeypatch.setitem(history.FITS, "tiny", {"shape": (40, 3, 2)})
    counts = history.count("tiny")
    assert counts["distances"] >= 40 * 10  # the neighbours of each row
    assert counts["products"] > 0
    assert 8 * 40 * 3 < counts["peak_bytes"] < 2**24


def test_page_has_a_row_for_each_fit_and_version(tmp_path):
    assert history.page(tmp_path) == "Not measured yet."
    stamp = {"versions": {}, "gpu": [], "processor": "P", "cores": 1, "python": "3", "date": "d"}
    result = dict.fromkeys(history.COUNTS, 1_000_000) | {"cpu_seconds": 0.5}
    rows = [{"stamp": stamp}]
    for version, commit in (("1.0", "a" * 40), ("1.1", "b" * 40)):
        for name in list(history.FITS)[:2]:
            task = {"version": version, "commit": commit, "fit": name}
            rows.append({"task": task, "result": result})
    (tmp_path / history.NAME).write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = history.page(tmp_path)
    assert text.count("| 1,000,000 | 1,000,000 | 1,000,000 | 1.0 MB | 0.5 s |") == 4
    assert f"| {list(history.FITS)[1]} | 1.1, bbbbbbb |" in text
    figure = history.figure(tmp_path)
    assert len(figure.axes) == len(history.COUNTS)
    assert figure.axes[0].lines[0].get_ydata().tolist() == [1.0, 1.0]


@pytest.mark.gpu
@pytest.mark.parametrize("stage", ["50 eigenpairs, 1,500 rows", "k-means, k = 10, 1,500 x 32"])
def test_waits_and_calls_of_a_device_grow_by_no_more_than_a_tenth(stage, waits):
    """If they must, `python -m benchmarks.counts` keeps the new counts."""
    assert callable(waits)
    rows = [row for row in read(RESULTS / "counts.jsonl") if row["task"]["stage"] == stage]
    kept = rows[-1]["result"]
    found = counts.count({"stage": stage})
    keys = ("waits", "calls", "launches", "h2d_bytes", "d2h_bytes")
    assert not {
        key: (kept[key], found[key]) for key in keys if found[key] > (1 + SHARE) * kept[key]
    }
