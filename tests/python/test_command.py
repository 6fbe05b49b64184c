"""The command line: `python -m quadrants`."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from quadrants._command import bench, cache, doctor
from quadrants._command.main import main

pytestmark = pytest.mark.oracle_differs("it has no command line")

PROGRAM = """
import quadrants as qd
from quadrants._lib import core
qd.init(arch=qd.cpu)
x = qd.field(qd.f32, 16)
@qd.kernel
def k(n: qd.i32):
    for i in x:
        x[i] = i * n
k(3)
assert x[5] == 15
print("lowered", core.counters()["lowered"])
"""


@pytest.fixture
def folder(tmp_path):
    """A cache with one kernel and a reader of x; `run()` says how many kernels a process lowers with a cache."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    path = tmp_path / "cache"
    assert run(program, path) == 1 and run(program, path) == 0
    return path


def run(program, path):
    env = {**os.environ, "QD_OFFLINE_CACHE_FILE_PATH": str(path)}
    done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split("lowered ")[1])


def entries(path):
    return [
        *path.glob("kernel_compilation_manager/*.qdc"),
        *path.glob("native/*/*/*"),
        *path.glob("native/code/*"),
    ]


def test_list(folder, capsys):
    assert main(["cache", "list", "--entries", "--path", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "code     2 entries" in out and "recipes  1 entries" in out and "unusable" not in out
    assert all(p.name in out for p in entries(folder))
    assert main(["cache", "list", "--path", str(folder / "nowhere")]) == 0
    assert "code     0 entries, 0 B" in capsys.readouterr().out


def test_paths_that_the_terminal_has_no_letters_for(tmp_path):
    path = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\xfe")
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "quadrants", "cache", "list", "--path", path]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "\\udcff" in done.stdout, done.stderr


def test_verify(folder, capsys):
    args = ["cache", "verify", "--path", str(folder)]
    assert main(args) == 0
    victim = entries(folder)[0]
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    assert main(args) == 1
    assert f"damaged  {victim}" in capsys.readouterr().out
    assert main([*args, "--remove"]) == 0 and not victim.exists()
    assert main(args) == 0
    index = (
        folder / "kernel_compilation_manager" / "qdcache.qdb"
    )  # without it the rest counts for nothing
    with open(index, "a") as f:
        f.write("zz")
    assert main(args) == 1
    assert f"damaged  {index}" in capsys.readouterr().out
    assert main([*args, "--remove"]) == 0 and not index.exists()
    assert main(args) == 0


def test_clear_takes_nothing_else(folder, capsys):
    (folder / "mine.txt").write_text("keep")
    assert main(["cache", "clear", "--path", str(folder)]) == 0
    assert [p.name for p in folder.iterdir()] == ["mine.txt"]
    capsys.readouterr()
    assert main(["cache", "clear", "--path", str(folder)]) == 0
    assert "holds no cache" in capsys.readouterr().out
    assert run(folder.parent / "program.py", folder) == 1


def test_files_of_others_stay(folder, capsys):
    """`native` is what many projects call a folder of their own."""
    mine = [folder / "native" / "src" / "a.c", folder / "native" / "code" / "b.c"]
    mine += [folder / "kernel_compilation_manager" / "T1.qdc"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    where = ["--path", str(folder)]
    assert main(["cache", "verify", "--remove", *where]) == 0
    assert main(["cache", "clear", *where]) == 0
    assert sorted(p for p in folder.rglob("*") if p.is_file()) == sorted(mine)
    out = capsys.readouterr().out
    assert all(f"left     {path}" in out for path in mine)


def test_clear_while_programs_write(folder, monkeypatch):
    """What is removed under our hands, and what is made in a folder that was just emptied."""
    rmdir, unlink = os.rmdir, os.unlink
    monkeypatch.setattr(os, "unlink", lambda path: (unlink(path), unlink(path)))
    monkeypatch.setattr(os, "rmdir", lambda path: (os.mkdir(os.path.join(path, "x")), rmdir(path)))
    assert main(["cache", "clear", "--path", str(folder)]) == 0
    assert not [p for p in folder.rglob("*") if p.is_file()]


def test_clear_says_what_it_cannot_delete(folder, monkeypatch, capsys):
    def read_only(path):
        raise OSError(30, "Read-only file system", path)

    monkeypatch.setattr(os, "unlink", read_only)
    assert main(["cache", "clear", "--path", str(folder)]) == 1
    assert f"cannot delete {folder}" in capsys.readouterr().err


def test_export_and_import_make_a_first_start_warm(folder, tmp_path, capsys):
    archive, other = str(tmp_path / "warm.zip"), tmp_path / "other"
    assert main(["cache", "export", archive, "--path", str(folder)]) == 0
    assert main(["cache", "import", archive, "--path", str(other)]) == 0
    out = capsys.readouterr().out
    assert "3 entries in" in out and "3 entries taken" in out and "another" not in out
    assert run(tmp_path / "program.py", other) == 0
    assert all(p.stat().st_mode & 0o077 == 0 for p in entries(other))


DECLARED = """
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu)
@qd.kernel(fastcache=True)
def k(a: qd.types.ndarray(), n: qd.i32):
    for i in a:
        a[i] = i * n
a = qd.ndarray(qd.i32, 8)
k(a, 3)
assert a[5] == 15
o = k._primal.src_ll_cache_observations
print([o.cache_key_generated, o.cache_validated, o.cache_loaded, o.cache_stored])
"""
STORED, LOADED = [True, False, False, True], [True, True, True, False]


@pytest.fixture
def declared(tmp_path):
    """A program with a declared kernel, a cache that it filled, and what it says of one."""
    program = tmp_path / "declared.py"
    program.write_text(DECLARED)

    def run(path):
        env = {**os.environ, "QD_OFFLINE_CACHE_FILE_PATH": str(path)}
        done = subprocess.run([sys.executable, program], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1].lower())

    assert run(tmp_path / "full") == STORED and run(tmp_path / "full") == LOADED
    return tmp_path / "full", run


def test_entries_of_declared_kernels_travel(declared, tmp_path, capsys):
    folder, run = declared
    archive, other = str(tmp_path / "warm.zip"), tmp_path / "other"
    (folder / "python_side_cache" / "mine.txt").write_text("of somebody else")
    assert main(["cache", "export", archive, "--path", str(folder)]) == 0
    assert main(["cache", "import", archive, "--path", str(other)]) == 0
    (mine,) = (folder / "python_side_cache").glob("*.cache.txt")
    (theirs,) = (other / "python_side_cache").iterdir()
    assert theirs.name == mine.name and theirs.read_text() == mine.read_text()
    assert run(other) == LOADED
    source = tmp_path / "declared.py"  # an entry is of its source alone, wherever it came from
    source.write_text(source.read_text().replace("i * n", "n * i"))
    assert run(other) == STORED


def test_entries_of_declared_kernels_are_listed_and_verified(declared, tmp_path, capsys):
    folder, run = declared
    args = ["--path", str(folder)]
    (entry,) = (folder / "python_side_cache").glob("*.cache.txt")
    assert main(["cache", "list", "--entries", *args]) == 0
    out = capsys.readouterr().out
    assert "declared 1 entries" in out and f"declared/{entry.name[:64]}" in out
    assert "unusable" not in out and main(["cache", "verify", *args]) == 0
    entry.write_text(entry.read_text()[:-9])
    assert main(["cache", "verify", *args]) == 1
    assert f"damaged  {entry}" in capsys.readouterr().out
    archive = tmp_path / "warm.zip"
    assert main(["cache", "export", str(archive), *args]) == 0
    assert not [n for n in zipfile.ZipFile(archive).namelist() if n.startswith("declared/")]
    assert main(["cache", "verify", "--remove", *args]) == 0 and not entry.exists()
    assert run(folder) == STORED


def _other_field(entry):
    del entry["frontend_cache_key"]


def _other_place(entry):
    entry["hashed_function_source_infos"][0]["function_source_info"]["start_lineno"] = "1"


def _other_rows(entry):
    entry["hashed_function_source_infos"] = [3]


@pytest.mark.parametrize("change", [_other_field, _other_place, _other_rows, None])
def test_what_is_no_entry_of_a_declared_kernel_is_not_taken(declared, tmp_path, capsys, change):
    folder, _ = declared
    archive, bad, other = tmp_path / "warm.zip", tmp_path / "bad.zip", tmp_path / "other"
    assert main(["cache", "export", str(archive), "--path", str(folder)]) == 0

    def damage(entries, manifest):
        (name,) = (n for n in entries if n.startswith("declared/"))
        entry = json.loads(entries[name])
        if change:
            change(entry)
        entries[name] = json.dumps(entry).encode() if change else b"\xff" + entries[name]

    repack(archive, bad, damage)
    assert main(["cache", "import", str(bad), "--path", str(other)]) == 1
    assert "is no entry of a declared kernel; nothing was taken" in capsys.readouterr().err
    for name in ("declared/../../escape", "declared/" + "0" * 63, "declared/" + "0" * 64 + "/x"):
        repack(archive, bad, lambda entries, _, n=name: entries.update({n: b"{}"}))
        assert main(["cache", "import", str(bad), "--path", str(other)]) == 1
        assert "is no name of a cache entry" in capsys.readouterr().err
    assert not other.exists()


def repack(archive, to, change, digests=True):
    """A copy of an archive with what `change` makes of its entries, said to be what was exported."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(to, "w") as new:
        entries = {n: old.read(n) for n in old.namelist()}
        manifest = json.loads(entries.pop("quadrants-cache.json"))
        change(entries, manifest)
        if digests:
            manifest["entries"] = {n: hashlib.sha256(c).hexdigest() for n, c in entries.items()}
        for name, content in entries.items():
            new.writestr(name, content)
        new.writestr("quadrants-cache.json", json.dumps(manifest))


def test_swapped_entries_are_not_taken(folder, tmp_path, capsys):
    archive, bad = tmp_path / "warm.zip", tmp_path / "bad.zip"
    main(["cache", "export", str(archive), "--path", str(folder)])

    def swap(entries, manifest):
        a, b = [n for n in entries if n.startswith("code/")][:2]
        entries[a], entries[b] = entries[b], entries[a]

    repack(archive, bad, swap, digests=False)
    assert main(["cache", "import", str(bad), "--path", str(tmp_path / "other")]) == 1
    assert "is not what was exported under that name" in capsys.readouterr().err
    assert not list((tmp_path / "other").rglob("*"))
    repack(archive, bad, lambda entries, manifest: manifest.pop("entries"), digests=False)
    assert main(["cache", "import", str(bad), "--path", str(tmp_path / "other")]) == 1
    assert "was not written by" in capsys.readouterr().err


def test_what_is_no_export_is_not_taken(folder, tmp_path, capsys):
    archive, other = tmp_path / "warm.zip", tmp_path / "other"
    take = ["cache", "import", str(archive), "--path", str(other)]
    assert main(take) == 1
    archive.write_text("no archive")
    assert main(take) == 1
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("code/" + "0" * 32, b"x")
    assert main(take) == 1
    errors = capsys.readouterr().err
    assert errors.count("error: cannot read") == 2 and "was not written by" in errors
    main(["cache", "export", str(archive), "--path", str(folder)])
    for name in ("../escape", "code/../../escape", "code/" + "0" * 31, "kernels/x", "/etc/x"):
        repack(archive, tmp_path / "bad.zip", lambda entries, _, n=name: entries.update({n: b"x"}))
        assert main(["cache", "import", str(tmp_path / "bad.zip"), "--path", str(other)]) == 1
        assert "is no name of a cache entry" in capsys.readouterr().err
    assert not list(tmp_path.rglob("escape"))


def test_damaged_archives(folder, tmp_path, capsys):
    archive = tmp_path / "warm.zip"
    main(["cache", "export", str(archive), "--path", str(folder)])
    whole = archive.read_bytes()
    capsys.readouterr()
    for at in range(0, len(whole), 7):
        archive.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        other = tmp_path / str(at)
        done = main(["cache", "import", str(archive), "--path", str(other)])
        assert done == 0 or "error: " in capsys.readouterr().err, at
        assert done == 0 or not other.exists(), at
        assert main(["cache", "verify", "--path", str(other)]) == 0


def test_entries_of_another_machine_are_named(folder, tmp_path, capsys):
    archive = tmp_path / "warm.zip"
    main(["cache", "export", str(archive), "--path", str(folder)])
    theirs = {"abi": 1, "build": "x", "cpu": "y"}
    repack(archive, tmp_path / "other.zip", lambda _, manifest: manifest.update(theirs))
    assert (
        main(["cache", "import", str(tmp_path / "other.zip"), "--path", str(tmp_path / "o")]) == 0
    )
    assert capsys.readouterr().out.count("They were made for another") == 3


def test_unwritable_places(folder, tmp_path, capsys):
    assert main(["cache", "export", str(tmp_path / "no" / "x.zip"), "--path", str(folder)]) == 1
    assert "error: cannot write" in capsys.readouterr().err
    archive = tmp_path / "warm.zip"
    main(["cache", "export", str(archive), "--path", str(folder)])
    (tmp_path / "file").write_text("")
    assert main(["cache", "import", str(archive), "--path", str(tmp_path / "file")]) == 1
    assert "cannot write to" in capsys.readouterr().err


def test_export_writes_through_links_and_replaces_files_alone(folder, tmp_path, capsys):
    target, link, fifo = (tmp_path / name for name in ("target.zip", "link.zip", "fifo"))
    link.symlink_to(target)
    for _ in range(2):  # the first makes the target
        assert main(["cache", "export", str(link), "--path", str(folder)]) == 0
        assert link.is_symlink() and zipfile.is_zipfile(target)
    os.mkfifo(fifo)
    for place in (fifo, tmp_path):
        before = os.stat(place).st_mode
        assert main(["cache", "export", str(place), "--path", str(folder)]) == 1
        assert f"cannot write {place}: not a regular file" in capsys.readouterr().err
        assert os.stat(place).st_mode == before
    assert not list(tmp_path.glob("*.tmp"))


def test_info_says_why_a_backend_is_missing(capsys, monkeypatch):
    monkeypatch.setenv("QD_ENABLE_CUDA", "0")
    assert main(["info"]) == 0
    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    assert rows["arch cuda"] == "no: QD_ENABLE_CUDA=0" and rows["QD_ENABLE_CUDA"] == "0"
    assert "yes" in (rows["arch x64"], rows["arch arm64"])
    assert "arch vulkan" in rows and not {"arch js", "arch opencl"} & set(rows)  # names alone


def test_doctor(capsys, monkeypatch, folder):
    monkeypatch.setenv("QD_OFFLINE_CACHE_FILE_PATH", str(folder))
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.count(": ok") == len(doctor.CHECKS)
    for name, value, problem in (
        ("QD_DEBUGG", "1", "is no variable that Quadrants reads"),
        ("QD_DEBUG", "yes", "invalid literal"),
        ("QD_DEFAULT_FP", "16", "use 32 or 64"),
        ("QD_DEFAULT_UP", "32", "TypeError"),
        ("QD_CPU_MAX_NUM_THREADS", "-1", "takes int in [0, 65535]"),
    ):
        with monkeypatch.context() as m:
            m.setenv(name, value)
            m.setattr(doctor, "CHECKS", doctor.CHECKS[1:2])
            assert main(["doctor"]) == 1
            assert problem in capsys.readouterr().out
    entries(folder)[0].write_bytes(b"")
    monkeypatch.setattr(doctor, "CHECKS", doctor.CHECKS[2:3])
    assert main(["doctor"]) == 1
    assert "1 entries" in capsys.readouterr().out


def test_doctor_knows_why_a_folder_is_ignored(capsys, monkeypatch, folder):
    monkeypatch.setenv("QD_OFFLINE_CACHE_FILE_PATH", str(folder))
    monkeypatch.setattr(doctor, "CHECKS", doctor.CHECKS[2:3])
    for path, mode, found in (
        (folder, 0o777, True),
        (folder, 0o1777, False),
        (folder, 0o775, False),
        (folder / "native", 0o770, True),
        (folder / "kernel_compilation_manager", 0o707, True),
    ):
        path.chmod(mode)
        assert (main(["doctor"]) == 1) is found, (path, oct(mode))
        assert (f"{path} is writable by others" in capsys.readouterr().out) is found
        assert (run(folder.parent / "program.py", folder) == 1) is found, "as the store has it"
        path.chmod(0o700)
    lock = folder / "kernel_compilation_manager" / "qdcache.lock"
    lock.touch()
    assert main(["doctor"]) == 0
    os.utime(lock, (1e9, 1e9))
    assert main(["doctor"]) == 1 and str(lock) in capsys.readouterr().out


def test_doctor_knows_the_variables_that_the_sources_read():
    """What is read and not known would be called a mistake."""
    import re

    from quadrants.lang._config import table

    root = pathlib.Path(__file__).parents[2]
    read = set()
    for path in [*(root / "src").rglob("*.cpp"), *(root / "python").rglob("*.py")]:
        if "_command" not in path.parts:
            read |= set(re.findall(r'"(QD_[A-Z_]+[A-Z])"', path.read_text()))
    known = doctor._KNOWN | {f"QD_{name.upper()}" for name in table()}
    assert read <= known, read - known


def test_bench(capsys, monkeypatch):
    monkeypatch.setattr(bench, "_STEADY", bench._STEADY.replace("seconds=1.5", "seconds=0.01"))
    assert main(["bench"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 9 and rows[5].startswith("launch of a tiny kernel")
    monkeypatch.setattr(bench, "_START", "raise SystemExit(3)")
    assert main(["bench"]) == 1
    assert "quadrants doctor" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["cache"], ["nothing"], ["cache", "export"]])
def test_usage(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: python -m quadrants" in capsys.readouterr().err


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "quadrants", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("info", "cache", "bench", "doctor", "examples:"))


def test_sizes():
    assert [cache.size_text(n) for n in (0, 1023, 1024, 5 << 20, 3 << 30)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.0 GiB",
    ]  # fmt: skip
