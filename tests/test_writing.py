"""Files are written whole or not at all."""

import errno
import os
import stat
import subprocess
import sys
import threading

import pytest

from specialk_gpu import _writing
from specialk_gpu._printable import printable
from specialk_gpu._writing import write_text, writing_whole
from specialk_gpu.io import read_labels, write_labels

POSIX = pytest.mark.skipif(os.name != "posix", reason="permissions, links and forks of POSIX")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_error_without_a_file_names_the_target_alone(tmp_path):
    path = tmp_path / "x.txt"

    def fill():
        with writing_whole(path):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space") as caught:
        fill()
    assert str(caught.value) == f"[Errno 28] No space left on device: {str(path)!r}"


def test_a_file_that_cannot_take_its_place_names_the_target_alone(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    monkeypatch.setattr(_writing.Path, "replace", lambda old, new: old.rename(new / "in a file"))
    path.write_text("old")
    with pytest.raises(OSError, match="x.txt") as caught:
        write_text(path, "new")
    assert str(caught.value).endswith(f": {str(path)!r}")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_goes_wrong_within_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "x.txt"
    path.write_text("old")

    def fill():
        with writing_whole(path) as stream:
            stream.write(b"half")
            stream.flush()
            assert path.read_text() == "old"
            raise error

    with pytest.raises(type(error)):
        fill()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_a_full_disk_is_told_of_by_the_name_of_the_target(tmp_path, monkeypatch):
    def full(_number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_writing.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_labels(tmp_path / "l.csv", [0, 1])
    assert caught.value.filename == str(tmp_path / "l.csv")
    assert names(tmp_path) == []


def test_a_folder_that_does_not_exist_is_told_of_by_the_name_of_the_target(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_text(tmp_path / "no" / "x.txt", "a")
    assert caught.value.filename == str(tmp_path / "no" / "x.txt")
    assert str(caught.value).endswith(f": {str(tmp_path / 'no' / 'x.txt')!r}")


def test_what_cannot_be_replaced_is_told_of_by_its_own_error(tmp_path, monkeypatch):
    path = tmp_path / "x.txt"
    path.write_text("old")
    monkeypatch.setattr(_writing.os, "access", lambda asked, mode: mode != os.W_OK or asked != path)
    for place, kind, number in (
        (tmp_path, IsADirectoryError, errno.EISDIR),
        (path, PermissionError, errno.EACCES),
    ):
        with pytest.raises(kind) as caught:
            write_text(place, "new")
        assert (caught.value.errno, caught.value.filename) == (number, str(place))
        assert str(caught.value) == f"[Errno {number}] {os.strerror(number)}: {str(place)!r}"
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.txt"]


def test_a_folder_that_may_not_be_written_is_told_of_by_its_own_error(tmp_path, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(_writing.os, "open", refuse)
    with pytest.raises(PermissionError) as caught:
        write_text(tmp_path / "x.txt", "new")
    assert caught.value.filename == str(tmp_path / "x.txt")
    assert names(tmp_path) == []


def test_an_error_about_another_folder_keeps_its_name(tmp_path):
    other = tmp_path / "other" / "y.txt"

    def fill():
        with writing_whole(tmp_path / "x.txt"):
            other.read_text()

    with pytest.raises(FileNotFoundError) as caught:
        fill()
    assert caught.value.filename == str(other)
    assert names(tmp_path) == []


@POSIX
def test_the_content_is_on_the_disk_before_it_gets_its_name_and_then_the_name(
    tmp_path, monkeypatch
):
    path, synced, sync = tmp_path / "x.txt", [], os.fsync

    def record(number):
        found = os.fstat(number)
        size = "folder" if stat.S_ISDIR(found.st_mode) else found.st_size
        synced.append((size, path.exists()))
        sync(number)
        if size == "folder":
            raise OSError(22, "Invalid argument")  # as file systems do that cannot

    monkeypatch.setattr(_writing.os, "fsync", record)
    write_text(path, "0123456789")
    assert synced == [(10, False), ("folder", True)]
    if os.path.isdir("/proc/self/fd"):
        links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
        assert str(tmp_path) not in [os.readlink(link) for link in links if os.path.islink(link)]


@POSIX
def test_permissions_are_those_of_a_plain_open(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "new.txt", "a")
        (tmp_path / "plain.txt").write_text("a")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {0o640}
    (tmp_path / "new.txt").chmod(0o705)
    write_text(tmp_path / "new.txt", "b")
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o705


@POSIX
def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "target.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("target.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "target.txt").read_text() == "new"
    assert names(tmp_path) == ["link.txt", "target.txt"]


@POSIX
def test_a_pipe_is_written_to_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    found = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_text(tmp_path / "pipe", "through")
    reader.join()
    assert found == ["through"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/stdout of Linux")
def test_standard_output_is_written_to_by_its_name():
    code = "from specialk_gpu._writing import write_text; write_text('/dev/stdout', 'through')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"through"


def test_several_writers_of_one_path_do_not_meet(tmp_path):
    errors = []

    def write(value):
        try:
            for _ in range(20):
                write_labels(tmp_path / "l.npy", [value] * 1000)
        except OSError as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(value,)) for value in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert errors == []
    found = read_labels(tmp_path / "l.npy")
    assert len(found) == 1000
    assert len(set(found.tolist())) == 1
    assert names(tmp_path) == ["l.npy"]


@POSIX
@pytest.mark.filterwarnings("ignore:This process")  # of forks and threads, in new Pythons
def test_a_kill_leaves_the_old_file_or_the_whole_new_one():
    from killed_writers import run

    wrong, _ = run(3, seed=1)
    assert wrong == {
        "labels.csv": 0,
        "labels.npy": 0,
        "summary.json": 0,
        "report.html": 0,
        "model.npz": 0,
    }


def test_what_utf_8_cannot_hold_is_written_as_an_escape(tmp_path):
    write_text(tmp_path / "x.txt", "é\udcff")
    assert (tmp_path / "x.txt").read_bytes() == "é\\udcff".encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Größe µ 漢", "Größe µ 漢"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\r\t\0", r"a\nb\r\t\x00"),
        ("\udcff", r"\xff"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_what_could_steer_a_terminal_is_shown_as_an_escape(text, shown):
    assert printable(text) == shown
    assert shown.encode(sys.getfilesystemencoding())
