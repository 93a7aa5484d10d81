"""Whatever stops a save, the old file or the new one is complete, and no other file stays."""

import contextlib
import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from numtape.errors import OperandError
from numtape.serialization import load, save
from numtape.serialization.replacing import SUFFIX, remove_leftovers

OLD = {"w": np.zeros(1000), "b": np.zeros(10)}
NEW = {"w": np.ones(1000), "b": np.ones(10)}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "state.safetensors"
    save(path, OLD)
    return path


def version(path):
    """Return the number that all elements of a complete file have."""
    back = load(path)
    (number,) = set(back["w"].tolist() + back["b"].tolist())
    return number


def assert_old_and_alone(path):
    assert version(path) == 0.0
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("write", range(3))
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=["full", "quota", "defect"])
def test_a_full_or_defect_disk_leaves_the_old_file(path, monkeypatch, write, number):
    """The error comes at the given write, after a part of it was taken."""
    real, calls = os.write, []

    def failing(descriptor, data):
        calls.append(len(data))
        if len(calls) <= write:
            return real(descriptor, data)
        if len(calls) == write + 1:
            return real(descriptor, data[: len(data) // 2])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.write", failing)
    with pytest.raises(OSError, match=os.strerror(number)) as error:
        save(path, NEW)
    monkeypatch.undo()
    assert error.value.__notes__ == [f"save: {path} is as it was before."]
    assert_old_and_alone(path)


def test_a_limit_on_the_size_of_files_leaves_the_old_file(path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            save(path, NEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_old_and_alone(path)


def test_short_writes_are_continued(path, monkeypatch):
    real = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: real(descriptor, data[:97]))
    save(path, NEW)
    monkeypatch.undo()
    assert version(path) == 1.0


def test_a_disk_that_takes_nothing_is_full(path, monkeypatch):
    monkeypatch.setattr("os.write", lambda descriptor, data: 0)
    with pytest.raises(OSError, match="No space left on device"):
        save(path, NEW)
    monkeypatch.undo()
    assert_old_and_alone(path)


@pytest.mark.parametrize("call", ["os.fsync", "os.replace", "os.chmod"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()], ids=["io", "ctrl-c"])
def test_an_error_in_any_call_leaves_the_old_file(path, monkeypatch, call, error):
    def failing(*_):
        raise error

    monkeypatch.setattr(call, failing)
    with pytest.raises(type(error)):
        save(path, NEW)
    monkeypatch.undo()
    assert_old_and_alone(path)


def test_the_file_is_on_the_disk_before_it_takes_the_name_and_the_directory_after(path, monkeypatch):
    calls = []

    def traced(name):
        real = getattr(os, name)

        def call(*args):
            is_directory = name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)
            calls.append("fsync of the directory" if is_directory else name)
            return real(*args)

        monkeypatch.setattr(f"os.{name}", call)

    for name in ("write", "fsync", "replace"):
        traced(name)
    save(path, NEW)
    assert calls == ["write", "write", "write", "fsync", "replace", "fsync of the directory"]


def test_a_file_system_that_cannot_flush_directories_is_accepted(path, monkeypatch):
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr("os.fsync", fsync)
    save(path, NEW)
    assert version(path) == 1.0


def test_leftovers_of_killed_processes_go_and_those_of_living_ones_stay(path):
    dead = path.parent / f".other.0123{SUFFIX}"
    dead.write_bytes(b"half")
    alive = path.parent / f".state.4567{SUFFIX}"
    script = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'wb')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(alive)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        save(path, NEW)
        assert sorted(path.parent.iterdir()) == [alive, path]
    save(path, NEW)
    assert list(path.parent.iterdir()) == [path]


def test_a_writer_whose_file_is_taken_for_a_leftover_starts_again(path, monkeypatch):
    real, taken = os.path.exists, []

    def exists(name):
        if not taken:
            taken.append(name)
            os.unlink(name)
        return real(name)

    monkeypatch.setattr("os.path.exists", exists)
    save(path, NEW)
    assert taken
    assert version(path) == 1.0
    assert list(path.parent.iterdir()) == [path]


def test_savers_and_cleaners_at_the_same_time_do_not_hinder_each_other(path):
    stop, failures = threading.Event(), []

    def clean():
        while not stop.is_set():
            remove_leftovers(str(path.parent))

    def write(number):
        try:
            for _ in range(30):
                save(path, {"w": np.full(100, number), "b": np.full(5, number)})
        except BaseException as error:
            failures.append(error)

    cleaner = threading.Thread(target=clean)
    writers = [threading.Thread(target=write, args=(float(number),)) for number in range(3)]
    for thread in [cleaner, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    cleaner.join()
    assert failures == []
    assert version(path) in (0.0, 1.0, 2.0)
    assert list(path.parent.iterdir()) == [path]


def test_permissions_stay_and_new_files_follow_the_umask(path):
    path.chmod(0o640)
    save(path, NEW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    other = path.with_name("other")
    before = os.umask(0o027)
    try:
        save(other, NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(other.stat().st_mode) == 0o640


def test_a_link_keeps_pointing_to_the_file(path):
    link = path.with_name("latest")
    link.symlink_to(path)
    save(link, NEW)
    assert link.is_symlink()
    assert version(path) == 1.0


def test_a_missing_directory_and_a_directory_are_the_usual_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        save(tmp_path / "missing" / "state", NEW)
    (tmp_path / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        save(tmp_path / "directory", NEW)
    with pytest.raises(IsADirectoryError):
        load(tmp_path / "directory")
    assert [entry.name for entry in tmp_path.iterdir()] == ["directory"]


def test_long_names_are_possible(tmp_path):
    path = tmp_path / ("é" * 120)
    save(path, NEW)
    assert version(path) == 1.0


#: Start writers that save without end, kill each at a random moment, and look at what is there. A process of its own
#: forks them, since a fork is quick and this one may have threads.
KILLS = """
import os, random, signal, sys, time
import numpy as np
from numtape.serialization import load, save
from numtape.serialization.replacing import SUFFIX

path, count = sys.argv[1], int(sys.argv[2])
directory = os.path.dirname(path)

def write(number):
    save(path, {"number": number, "w": np.full(200_000, float(number)), "b": np.full(10, number)})

def version():
    back = load(path)
    assert set(back["w"].tolist()) | set(back["b"].tolist()) == {back["number"]}
    return back["number"]

start = time.perf_counter()
write(0)
longest = 3 * (time.perf_counter() - start)
chance = random.Random(0)
last = interrupted = kills = 0
# A busy machine may let a writer sleep through its life: then more of them are needed.
while kills < count or (interrupted <= count // 5 and kills < 10 * count):
    kills += 1
    child = os.fork()
    if not child:
        number = last
        while True:
            number += 1
            write(number)
    time.sleep(chance.uniform(0.0, longest))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = version()
    assert found >= last, (found, last)
    last = found
    left = [name for name in os.listdir(directory) if name.endswith(SUFFIX)]
    assert len(left) <= 1, left
    interrupted += len(left)
write(last + 1)
assert os.listdir(directory) == [os.path.basename(path)], os.listdir(directory)
print(interrupted)
"""


def killed_while_writing(path, count):
    """Kill `count` writers and return how many were in the middle of a file."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLS, str(path), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_writer_killed_at_25_points_leaves_a_complete_file(tmp_path):
    assert killed_while_writing(tmp_path / "state", 25) > 5


@pytest.mark.soak
def test_a_writer_killed_at_500_points_leaves_a_complete_file(tmp_path):
    assert killed_while_writing(tmp_path / "state", 500) > 100


#: Kill the process at one call of the system; a write is cut in half there.
AT_CALL = """
import os, signal, sys
import numpy as np
from numtape.serialization import load, save

path = sys.argv[1]
count = wanted = 0

def dying(name):
    real = getattr(os, name)
    def call(*args):
        global count
        count += 1
        if count == wanted:
            if name == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args)
    setattr(os, name, call)

for name in ("write", "fsync", "replace", "chmod"):
    dying(name)
for wanted in range(1, 9):
    child = os.fork()
    if not child:
        save(path, {"w": np.ones(1000), "b": np.ones(10)})
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    back = load(path)
    (version,) = set(back["w"].tolist() + back["b"].tolist())
    print(os.waitstatus_to_exitcode(status), version)
"""


def test_a_writer_killed_at_each_call_of_the_system_leaves_a_complete_file(path):
    command = [sys.executable, "-c", AT_CALL, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    # Of seven calls, the last one flushes the directory: then the new file has the name. The eighth run is not killed.
    assert done.stdout.splitlines() == ["-9 0.0"] * 6 + ["-9 1.0", "0 1.0"]
    save(path, OLD)
    assert_old_and_alone(path)


def test_readers_in_other_processes_see_complete_files_only(path):
    script = (
        "import sys\n"
        "from numtape.serialization import load\n"
        "seen = set()\n"
        "print('ready', flush=True)\n"
        "while len(seen) < 5:\n"
        "    back = load(sys.argv[1])\n"
        "    (number,) = set(back['w'].tolist() + back['b'].tolist())\n"
        "    seen.add(number)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    with contextlib.closing(process.stdout):
        assert process.stdout.readline() == b"ready\n"
        number = 0.0
        while process.poll() is None:
            number += 1.0
            save(path, {"w": np.full(1000, number), "b": np.full(10, number)})
    assert process.returncode == 0
    assert Path(path).exists()


def test_two_paths_are_no_path_and_a_tree(tmp_path):
    with pytest.raises(OperandError, match="got two paths"):
        save("state.safetensors", tmp_path / "precious")
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="only a file can be replaced"):
        save(tmp_path / "pipe", {"a": 1})
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
