"""The files that users count, delete, damage and clean: chapter 51, sections 2.1 to 2.5."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import quadrants as qd

PROGRAM = """
import sys
import quadrants as qd
from quadrants._lib import core
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], **eval(sys.argv[2]))
a = qd.ndarray(qd.i32, 8)
{kernels}
for k in KERNELS:
    k(a)
compiled = core.counters()["cache_misses"]
assert [p for p in __import__("os").listdir(sys.argv[1]) if p == "kernel_compilation_manager"] == [] or FLUSHED
qd.reset()
print("compiled", compiled)
"""
KERNEL = """
@qd.kernel
def k{n}(a: qd.types.ndarray(qd.i32, 1)):
    for i in a:
        a[i] = i * {factor}
"""


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


class Cache:
    """A cache folder and programs that use it."""

    def __init__(self, tmp_path):
        self.home, self.path = tmp_path, tmp_path / "cache"
        self.folder = self.path / "kernel_compilation_manager"
        self.path.mkdir()

    def run(self, *factors, **options):
        """How many kernels a process compiles that runs one for each factor; what it logs."""
        kernels = "".join(KERNEL.format(n=n, factor=f) for n, f in enumerate(factors))
        kernels += f"KERNELS = [{', '.join(f'k{n}' for n in range(len(factors)))}]\n"
        kernels += f"FLUSHED = {self.folder.exists()}\n"
        program = self.home / f"p{abs(hash(factors))}.py"
        program.write_text(PROGRAM.format(kernels=kernels))
        env = {**os.environ, "QD_OFFLINE_CACHE": ""}
        done = subprocess.run(
            [sys.executable, program, self.path, repr(options)],
            env=env, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.log = done.stderr
        return int(done.stdout.split("compiled ")[1])

    def kernels(self):
        return sorted(self.folder.glob("T*.qdc"))

    def names(self):
        return sorted(p.name for p in self.folder.iterdir())


def test_a_file_a_kernel(cache):
    assert cache.run(3, 4, 5) == 3
    assert len(cache.kernels()) == 3 and "qdcache.qdb" in cache.names() and len(cache.names()) == 4
    assert all(len(p.name) == 69 and p.stat().st_size > 500 for p in cache.kernels())
    before = {p: p.stat().st_mtime for p in cache.kernels()}
    assert cache.run(3, 4, 5) == 0
    assert {p: p.stat().st_mtime for p in cache.kernels()} == before
    assert cache.run(3, 3, 6) == 1  # two of one body
    assert len(cache.kernels()) == 4


KEYED = dict(
    default_fp=qd.f64, default_ip=qd.i64, opt_level=0, fast_math=False, debug=True, default_cpu_block_dim=64, make_block_local=False,
    ad_stack_experimental_enabled=True, ad_stack_size=7, ad_stack_sparse_threshold_bytes=5,
    real_matrix_scalarize=False, force_scalarize_matrix=True, half2_vectorization=True,
    demote_dense_struct_fors=False, make_mesh_block_local=False, auto_mesh_local_default_occupacy=3,
)  # fmt: skip
UNKEYED = dict(
    default_fp=qd.f32, num_compile_threads=2, cuda_stack_limit=4096, device_memory_GB=0.5,
    random_seed=3, kernel_profiler=True, cpu_max_num_threads=1, raise_on_templated_floats=True, quant_opt_store_fusion=False, print_ir_dbg_info=True,
)  # fmt: skip


def test_options_that_make_entries_of_their_own(tmp_path):
    """Chapter 51, 2.2, also of options that our code does not depend on; seeds and the like make none."""

    @qd.kernel
    def k(a: qd.i32) -> qd.i32:
        return a + 5

    def hits(**options):
        qd.init(arch=qd.cpu, offline_cache_file_path=str(tmp_path), log_level="error", **options)
        assert k(1) == 6
        hit = k._primal.fe_ll_cache_observations.cache_hit
        qd.reset()
        return hit

    def files():
        return len([*(tmp_path / "kernel_compilation_manager").glob("*.qdc")])

    assert not hits()
    for n, (name, value) in enumerate(KEYED.items()):
        assert not hits(**{name: value}), name
        assert hits(**{name: value}) and hits(), name
        assert files() == n + 2, name
    for name, value in UNKEYED.items():
        assert hits(**{name: value}), name
    assert files() == len(KEYED) + 1


def test_a_program_may_flush(cache):
    kernels = KERNEL.format(n=0, factor=3) + KERNEL.format(n=1, factor=4)
    kernels += "KERNELS = [k0]\nFLUSHED = False\n"
    flush = f"""
import os
flush, count = qd.lang.impl.get_runtime().prog.dump_cache_data_to_disk, lambda: len(os.listdir({str(cache.folder)!r}))
flush()
assert count() == 2
k1(a)
flush(), flush()
assert count() == 3
qd.reset()"""
    program = cache.home / "p.py"
    program.write_text(PROGRAM.format(kernels=kernels).replace("qd.reset()", flush))
    subprocess.run([sys.executable, program, cache.path, "{}"], check=True)
    assert len(cache.names()) == 3


def test_what_is_deleted_is_compiled_again(cache):
    cache.run(3, 4)
    cache.kernels()[0].unlink()
    assert cache.run(3, 4) == 1 and len(cache.kernels()) == 2
    (cache.folder / "qdcache.qdb").unlink()
    assert cache.run(3, 4) == 2 and len(cache.names()) == 3
    for p in cache.folder.iterdir():
        p.unlink()
    cache.folder.rmdir()
    assert cache.run(3, 4) == 2 and len(cache.names()) == 3


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "other"])
def test_a_damaged_file_is_replaced(cache, damage):
    cache.run(3, 4)
    first, second = cache.kernels()
    good = first.read_bytes()
    bad = {
        "truncate": good[:-5],
        "flip": good[:-1] + bytes([good[-1] ^ 1]),
        "empty": b"",
        "other": second.read_bytes(),
    }[damage]
    first.write_bytes(bad)
    assert cache.run(3, 4) == 1
    assert first.read_bytes() != bad and cache.run(3, 4) == 0


@pytest.mark.parametrize("content", [b"", b"garbage", "release"])
@pytest.mark.parametrize("policy, kept", [("lru", 1), ("fifo", 1), ("version", 1), ("never", 3)])
def test_another_release_or_damaged_metadata(cache, content, policy, kept):
    """Ignored on reading; at the flush all policies but never begin anew."""
    cache.run(3, 4)
    index = cache.folder / "qdcache.qdb"
    if content == "release":
        content = index.read_bytes().replace(b"1.3.3", b"1.2.9")
    index.write_bytes(content)
    assert cache.run(5, offline_cache_cleaning_policy=policy) == 1
    assert len(cache.kernels()) == kept
    assert cache.run(5) == 0


def test_a_program_that_changes_its_folder(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import os
import quadrants as qd
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path="kept")

@qd.kernel
def one() -> qd.i32:
    return 1

@qd.kernel
def two() -> qd.i32:
    return 2

one()
os.chdir("elsewhere")
two()
"""
    )
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, str(program)]
    env = {**os.environ, "QD_COMPILE_REPORT": "1"}
    runs = [
        subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert "cold" in runs[0].stderr and "cold" not in runs[1].stderr
    assert not any((tmp_path / "elsewhere").iterdir()) and (tmp_path / "kept").is_dir()


def test_a_lock_that_stays(cache):
    cache.run(3)
    lock = cache.folder / "qdcache.lock"
    lock.touch()
    begin = time.monotonic()
    assert cache.run(4) == 1
    assert f"Lock {lock} failed. Please run 'qd cache clean -p {cache.folder}' and try" in cache.log
    assert len(cache.kernels()) == 1 and time.monotonic() - begin > 0.2
    assert cache.run(3) == 1 and f"Lock {lock} failed" in cache.log, "it counts as empty"
    lock.unlink()
    assert cache.run(4) == 0, "what was made under the lock is not lost"
    assert len(cache.kernels()) == 2 and "failed" not in cache.log


def test_a_lock_whose_process_was_killed(cache):
    """It says that it was held open, and nobody does: workers that a pool terminates leave such."""
    import fcntl

    cache.run(3)
    lock = cache.folder / "qdcache.lock"
    for held in (False, True):
        lock.write_text("held open by a process\n")
        with open(lock) as file:
            if held:
                fcntl.flock(file, fcntl.LOCK_EX)
            assert cache.run(4 + held) == 1
        assert lock.exists() is held is (f"Lock {lock} failed" in cache.log)
    lock.unlink()
    assert len(cache.kernels()) == 2 and cache.run(4) == 0


def test_no_lock_is_waited_for_where_none_can_be_made(cache):
    """Full and read-only disks; here: no more files."""
    kernels = KERNEL.format(n=0, factor=3) + "KERNELS = [k0]\nFLUSHED = True\n"
    limited = """import resource
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
qd.reset()
resource.setrlimit(resource.RLIMIT_NOFILE, limits)"""
    program = cache.home / "p.py"
    program.write_text(PROGRAM.format(kernels=kernels).replace("qd.reset()", limited))
    command = [sys.executable, program, cache.path, "{}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "Lock" not in done.stderr and cache.names() == []
    assert "compiled 0" in subprocess.run(command, capture_output=True, text=True).stdout


FULL = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"


@pytest.mark.parametrize(
    "place, prefix, why", [("file", "", "Not a directory"), ("new", FULL, "File too large")]
)
def test_what_cannot_be_kept_is_told_once(cache, place, prefix, why):
    (cache.home / "file").touch()
    kernels = "".join(KERNEL.format(n=n, factor=n + 2) for n in range(3))
    program = cache.home / "p.py"
    again = "qd.reset(); qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1]); a = qd.ndarray(qd.i32, 8); k0(a); k1(a); qd.reset()"
    text = PROGRAM.format(kernels=kernels + "KERNELS = [k0, k1, k2]\nFLUSHED = True\n")
    program.write_text(prefix + text.replace("assert", "#").replace("qd.reset()", again))
    folder = cache.home / place
    done = subprocess.run([sys.executable, program, folder, "{}"], capture_output=True, text=True)
    told = f"The kernel cache at {folder} cannot be written ({why}): later processes will compile again."
    assert done.stdout.endswith("compiled 3\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("[W ") and line.endswith(told)


@pytest.mark.parametrize("fastcache", [False, True])
def test_no_path_is_no_cache(cache, fastcache):
    """The empty path is not the working directory."""
    program = cache.home / "p.py"
    program.write_text(LOGGED.replace("@qd.kernel", f"@qd.kernel(fastcache={fastcache})"))
    command = [sys.executable, program, "", "info"]
    in_root = set(Path("/").iterdir())
    subprocess.run(command, check=True, cwd=cache.path)
    assert list(cache.path.iterdir()) == []
    assert set(Path("/").iterdir()) == in_root


def test_a_folder_that_is_a_file(cache):
    cache.run(3)
    native = cache.path / "native"
    shutil.rmtree(native)
    native.touch()
    program = cache.home / "p.py"
    program.write_text(
        PROGRAM.format(kernels=KERNEL.format(n=0, factor=3) + "KERNELS = [k0]\nFLUSHED = True\n")
    )
    command = [sys.executable, program, cache.path, "{}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert f"The kernel cache ignores {native}: it is no folder." in done.stderr
    assert "belong to you" not in done.stderr


def test_metadata_that_is_a_folder(cache):
    index = cache.folder / "qdcache.qdb"
    cache.run(3)
    index.unlink()
    index.mkdir()
    for _ in range(2):
        assert cache.run(3) == 1
        assert cache.log.count(f"The kernel cache ignores {index}: it is a folder.") == 1
    index.rmdir()
    cache.run(3)
    assert cache.run(3) == 0 and "ignores" not in cache.log


@pytest.mark.parametrize("offline", [True, False])
def test_no_layer_uses_a_folder_that_others_may_write_to(cache, offline):
    program = cache.home / "p.py"
    pure = LOGGED.replace("@qd.kernel", "@qd.kernel(fastcache=True)")
    told = "one._primal.src_ll_cache_observations.cache_validated"
    pure = pure.replace("qd.reset()", f"print({told})\nqd.reset()")
    program.write_text(pure.replace("log_level", f"offline_cache={offline}, log_level"))

    def run():
        command = [sys.executable, program, cache.path, "info"]
        return subprocess.run(command, check=True, capture_output=True, text=True)

    run()
    cache.path.chmod(0o777)
    done = run()
    assert done.stdout.endswith("False\n")
    assert done.stderr.count(f"The kernel cache ignores {cache.path}: it must belong to you") == 1
    shutil.rmtree(cache.path)
    cache.path.mkdir()
    cache.path.chmod(0o777)
    assert "ignores" in run().stderr and not list(cache.path.iterdir())


def age(path, seconds):
    os.utime(path, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("policy", ["lru", "fifo", "version", "never", "nonsense"])
def test_policies(cache, policy):
    """Full: a share goes, before the new ones come."""
    made = {}
    for n, factor in enumerate((3, 4, 5, 6)):
        cache.run(factor)
        (new,) = set(cache.kernels()) - set(made.values())
        made[factor] = new
        age(new, 1000 - n)
    assert cache.run(3) == 0  # which is use
    options = {
        "offline_cache_cleaning_policy": policy,
        "offline_cache_max_size_of_files": 1,
        "offline_cache_cleaning_factor": 0.5,
    }
    assert cache.run(7, **options) == 1
    gone = {factor for factor, path in made.items() if not path.exists()}
    assert gone == {"lru": {4, 5}, "fifo": {3, 4}}.get(policy, set())
    assert len(cache.kernels()) == 5 - len(gone)


def test_the_share_that_goes(cache):
    cache.run(3, 4, 5)
    small = {"offline_cache_max_size_of_files": 1}
    cache.run(3, offline_cache_cleaning_factor=0.3, **small)  # less than one
    assert len(cache.kernels()) == 3
    cache.run(3, offline_cache_cleaning_factor=1.0, **small)
    assert not cache.folder.exists() or cache.names() == []


POLICIES = [("lru", True), ("fifo", True), ("version", False), ("never", False)]


@pytest.mark.parametrize("policy, cleans", POLICIES)
def test_a_session_that_compiled_nothing_cleans(cache, policy, cleans):
    cache.run(3, 4, 5, 6)
    options = {"offline_cache_cleaning_policy": policy, "offline_cache_max_size_of_files": 1}
    assert cache.run(offline_cache_cleaning_factor=0.5, **options) == 0
    assert len(cache.kernels()) == (2 if cleans else 4)
    assert cache.run(offline_cache_cleaning_factor=1.0, offline_cache=False, **options) == 0
    assert len(cache.kernels()) == (2 if cleans else 4)
    assert cache.run(offline_cache_cleaning_factor=1.0, **options) == 0
    assert len(cache.names()) == (0 if cleans else 5)


@pytest.mark.parametrize("policy, kept", [("lru", 0), ("fifo", 0), ("version", 0), ("never", 2)])
def test_a_session_that_compiled_nothing_drops_what_another_release_left(cache, policy, kept):
    cache.run(3, 4)
    index = cache.folder / "qdcache.qdb"
    index.write_bytes(index.read_bytes().replace(b"1.3.3", b"1.2.9"))
    cache.run(offline_cache_cleaning_policy=policy)
    assert len(cache.kernels()) == kept and index.exists() == (policy == "never")


def test_a_session_that_compiled_nothing_makes_nothing(cache):
    cache.run()
    assert not list(cache.path.iterdir())


def test_cleaning_leaves_no_empty_folders(cache):
    small = {"offline_cache_max_size_of_files": 1, "offline_cache_cleaning_factor": 0.5}
    cache.run(3, 4, 5, 6)
    recipes = cache.path / "native" / "kernels"
    assert len([*recipes.iterdir()]) == 4
    for k in range(3):
        cache.run(7 + k, **small)
    left = [*recipes.iterdir()]
    assert 0 < len(left) < 5 and all(any(key.iterdir()) for key in left)


def test_a_folder_that_vanishes_is_made_again(tmp_path):
    """Another process cleans while this one writes."""
    from quadrants._lib import core

    name = f"kernels/{'0' * 32}/{'1' * 32}"
    file = tmp_path / "native" / name
    removes = """
import os, sys, time
while True:
    time.sleep(0.0001)
    try: os.rmdir(sys.argv[1])
    except OSError: pass
"""
    other = subprocess.Popen([sys.executable, "-c", removes, file.parent])
    try:
        vanished, missed, end = 0, 0, time.monotonic() + 60
        while vanished < 300 and time.monotonic() < end:
            if not core.cache_write(str(tmp_path), name, b"content"):
                missed += 1  # it vanished at each try
                continue
            file.unlink()
            time.sleep(0.0002)
            vanished += not file.parent.exists()
        assert vanished > 10 and missed <= vanished // 50 + 1
    finally:
        other.kill()
        other.wait()


def test_nothing_is_touched_without_the_cache(cache):
    cache.run(3)
    before = {p: p.read_bytes() for p in cache.path.rglob("*") if p.is_file()}
    options = {"offline_cache": False, "offline_cache_max_size_of_files": 1}
    assert cache.run(3, 4, offline_cache_cleaning_factor=1.0, **options) == 2
    assert {p: p.read_bytes() for p in cache.path.rglob("*") if p.is_file()} == before


def test_a_killed_process_loses_nothing(cache):
    program = cache.home / "killed.py"
    kernels = KERNEL.format(n=0, factor=3) + "KERNELS = [k0]\nFLUSHED = False\n"
    text = PROGRAM.format(kernels=kernels).replace("qd.reset()", "import os; os._exit(0)")
    program.write_text(text)
    subprocess.run([sys.executable, program, cache.path, "{}"], check=True, capture_output=True)
    assert not cache.folder.exists()
    program.write_text(PROGRAM.format(kernels=kernels))
    done = subprocess.run(
        [sys.executable, program, cache.path, "{}"], capture_output=True, text=True
    )
    assert "compiled 0" in done.stdout and len(cache.kernels()) == 1


def test_many_processes_at_once(cache):
    program = cache.home / "p.py"
    kernels = "".join(KERNEL.format(n=n, factor=n + 2) for n in range(4))
    kernels += "import random\nKERNELS = random.sample([k0, k1, k2, k3], 2)\nFLUSHED = True\n"
    program.write_text(PROGRAM.format(kernels=kernels))
    running = [
        subprocess.Popen(
            [sys.executable, program, cache.path, "{}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(12)
    ]
    assert [p.wait() for p in running] == [0] * 12
    assert 2 <= len(cache.kernels()) <= 4
    assert set(cache.names()) == {p.name for p in cache.kernels()} | {"qdcache.qdb"}


pytestmark = pytest.mark.oracle_differs(
    "it loses what it made under a lock, and keeps damaged files"
)


LOGGED = """
import sys
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=sys.argv[2])
@qd.kernel
def one(n: qd.i32) -> qd.i32:
    return n + 1
@qd.kernel
def same(n: qd.i32) -> qd.i32:
    return n + 1
one(1); same(1)
qd.reset()
"""


def test_a_level_changed_amid_a_program(tmp_path, capfd):
    qd.init(arch=qd.cpu, offline_cache_file_path=str(tmp_path))
    told = []
    for level in ("info", "debug", "info"):
        qd.set_logging_level(level)

        @qd.kernel
        def k(n: qd.i32) -> qd.i32:
            return n + qd.static(len(told))

        k(1)
        told.append("Cache kernel 'k_c" in capfd.readouterr().err)
    assert told == [False, True, False]


def test_what_the_log_tells(cache):
    def run(level):
        program = cache.home / "logged.py"
        program.write_text(LOGGED)
        command = [sys.executable, program, cache.path, level]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [line.split("] ", 2)[2] for line in done.stderr.splitlines() if line[:3] == "[D "]

    first = run("debug")
    (file,) = cache.folder.glob("*.qdc")
    key = f"(key='{file.stem}')"
    assert first[:2] == [
        f"Cache kernel 'one_c0_0' {key}",
        f"Create kernel 'same_c1_0' from in-memory cache {key}",
    ]
    assert "Dumping 1 cached kernels to disk" in first
    second = run("debug")
    assert f"Create kernel 'one_c0_0' from cache {key}" in second
    assert not any("Dumping" in line for line in second)
    assert run("info") == []
    file.write_bytes(file.read_bytes()[:-5])
    third = run("debug")
    assert third[0] == f"Load cache file {file} failed: it is damaged, or another program's"
    assert f"Cache kernel 'one_c0_0' {key}" in third


EDITED = """
import quadrants as qd
qd.init(arch=qd.cpu, log_level="warn")
@qd.func
def g(x):
    return x {edit}
@qd.kernel
def k(n: qd.i32) -> qd.i32:
    s = 0
    for i in range(n):
        s += g(i)
    return s
try:
    print(k(10))
except qd.QuadrantsTypeError as e:
    print("told:", str(e).splitlines()[-1])
"""


def test_a_warning_of_the_cache_leaves_the_programs_error(tmp_path):
    env = dict(os.environ, QD_OFFLINE_CACHE_FILE_PATH=str(tmp_path / "cache"))
    env.pop("QD_OFFLINE_CACHE", None)
    told = []
    for edit in ("+ 1", "& 1.5"):
        (tmp_path / "prog.py").write_text(EDITED.format(edit=edit))
        command = [sys.executable, tmp_path / "prog.py"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        told.append(done.stdout.splitlines()[-1])
        for root, _, files in os.walk(tmp_path / "cache"):
            for name in files:
                os.chmod(os.path.join(root, name), 0o666)
    assert told[0] == "55"
    assert told[1].startswith("told:"), done.stderr
    assert "[W " in done.stdout + done.stderr  # else nothing was pending
