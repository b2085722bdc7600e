"""Damage files of every kind at random, and check that each is read or refused in one line.

Run as `python tests/damaged_files.py 5000 [FIRST_SEED]`. Each file comes from a seed of its own,
which is printed if the reader does anything but return numbers or raise a ValueError of one line
that names the file. Files are read in processes of their own, so that a crash is seen too.
"""

import collections
import csv
import gzip
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np
import pandas
from scipy import io, sparse

from specialk_gpu.io import read_labels, read_matrix

BATCH = 50
FAILED = 3
MOST_MEMORY = 8 << 30


def idx_bytes(array):
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def valid_files(folder):
    """Write one file of each kind; return their paths."""
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(40, 3)), sparse.random_array((30, 30), density=0.2, rng=0)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    np.save(folder / "x.npy", X)
    np.savez(folder / "x.npz", x=X)
    np.savez_compressed(folder / "c.npz", x=X.round())
    for layout in ("csr", "csc", "coo", "bsr", "dia"):
        sparse.save_npz(folder / f"{layout}.npz", W.asformat(layout), compressed=layout == "csc")
    io.mmwrite(folder / "w.mtx", W)
    io.mmwrite(folder / "d.mtx", X)
    io.mmwrite(folder / "s.mtx", sparse.coo_array(W + W.T), symmetry="symmetric")
    frame.to_csv(folder / "x.csv")
    frame.to_csv(folder / "x.csv.gz", index=False)
    frame.to_csv(folder / "x.tsv", sep="\t", index=False)
    frame.to_csv(folder / "e.csv", sep=";", decimal=",", encoding="utf-8-sig")
    np.savetxt(folder / "x.txt", X)
    frame.to_csv(folder / "r.txt", sep=" ", index_label=False, quoting=csv.QUOTE_NONNUMERIC)
    (folder / "s.csv").write_text("sep=|\n" + frame.to_csv(sep="|", index=False))
    frame.to_parquet(folder / "x.parquet")
    frame.set_index("a").to_parquet(folder / "i.parquet", compression=None)
    images = rng.integers(0, 255, (5, 3, 4)).astype(np.uint8)
    (folder / "i-idx3-ubyte").write_bytes(idx_bytes(images))
    (folder / "i-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
    (folder / "w.mtx.gz").write_bytes(gzip.compress((folder / "w.mtx").read_bytes()))
    return sorted(folder.iterdir())


def damaged(content, rng):
    """Return the content with bytes flipped, cut out, put in, or appended."""
    content = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, max(1, len(content))))
        if rng.random() < 0.5:  # headers are where damage hurts
            at = min(at, int(rng.integers(0, 200)))
        length = int(rng.integers(1, 20))
        match rng.integers(0, 7):
            case 0 | 1:
                for place in rng.integers(0, max(1, len(content)), length) if content else ():
                    content[place] = int(rng.integers(0, 256))
            case 2:
                del content[at:]
            case 3:
                content += rng.bytes(length * int(rng.choice([1, 50])))
            case 4:
                content[at : at + length] = rng.bytes(length)
            case 5:
                del content[at : at + length]
            case 6:
                content[at:at] = bytes(
                    rng.choice(list(b"0123456789-.,;eE\"'({[\n\x00\xff"), length)
                )
    return bytes(content)


def check(path):
    """Read a file; return what came of it, and raise an AssertionError if that is not allowed."""
    outcomes = [_outcome(reader, path) for reader in (read_matrix, read_labels)]
    return "read" if "read" in outcomes else "refused"


def _outcome(reader, path):
    try:
        found = reader(path)
    except ValueError as error:
        text = str(error)
    else:
        if sparse.issparse(found):
            found.check_format(full_check=True)
        return "read"
    assert text.startswith("cannot read "), text
    assert str(path) in text, text
    assert text.isprintable(), repr(text)
    return "refused"


def one(seed, folder, contents):
    rng = np.random.default_rng(seed)
    name = list(contents)[int(rng.integers(len(contents)))]
    path = folder / name
    path.write_bytes(damaged(contents[name], rng))
    return name, check(path)


def run(n_files, first=0, report=print):
    """Damage and read files of these seeds; return the number of wrong ones, and the counts."""
    counts, wrong = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contents = {path.name: path.read_bytes() for path in valid_files(folder)}
        told, start, end = folder / "told", first, first + n_files
        while start < end:
            told.write_text("")
            child = os.fork()
            if not child:
                _batch(range(start, min(start + BATCH, end)), folder, contents, told)
            _, status = os.waitpid(child, 0)
            lines = told.read_text().splitlines()
            counts.update(lines)
            start += len(lines)
            if status:
                wrong += 1
                report(f"seed {start}: status {status}")
                start += 1
    return wrong, counts


def _batch(seeds, folder, contents, told):
    """Read the files of these seeds, and end the process, at the first wrong one with an error."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    code = FAILED
    try:
        with warnings.catch_warnings(), told.open("w", buffering=1) as stream:
            warnings.simplefilter("ignore")
            for seed in seeds:
                print(*one(seed, folder, contents), file=stream)
        code = 0
    finally:
        if code:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    wrong, counts = run(int(sys.argv[1]), first)
    for line, count in sorted(counts.items()):
        print(f"{count:6d} {line}")
    print(f"{sum(counts.values())} damaged files, seeds from {first}: {wrong} wrong")
    sys.exit(bool(wrong))
