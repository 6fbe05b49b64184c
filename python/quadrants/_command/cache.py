"""`cache list|verify|clear|export|import`."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable

from quadrants._command import declared
from quadrants._lib import core

_FOLDERS = ("native", "kernel_compilation_manager", "python_side_cache")
# What the files in them are called; another's file may lie there as well.
_OURS = re.compile(
    r"(T[0-9a-f]{64}\.(qdc|ptx)|[0-9a-f]{32}|[0-9a-f]{64}\.cache\.txt(\.\d+)?|(qd|ptx)cache\.(qdb|lock)|total)"
    r"(\..*tmp)?"
)
_MANIFEST = "quadrants-cache.json"
_LARGEST = 1 << 30  # bytes of an entry
# What zipfile raises for damaged archives, besides its own.
_DAMAGED = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, RuntimeError)


def folder_of(args: argparse.Namespace) -> str:
    """The cache folder that is meant: the given one, else that of programs started here."""
    usual = os.path.join(core.get_repo_dir(), "qdcache")
    path: str = args.path or os.environ.get("QD_OFFLINE_CACHE_FILE_PATH") or usual
    return path


def entries_of(folder: str) -> list[tuple[str, str, int, float, bool]]:
    return core.cache_entries(folder) + declared.entries(folder)


def _read(folder: str, name: str) -> bytes | None:
    if name.startswith(declared.PREFIX):
        return declared.read(folder, name)
    return core.cache_read(folder, name)


def size_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def show(args: argparse.Namespace) -> int:
    folder = folder_of(args)
    entries = entries_of(folder)
    print(f"folder   {folder}")
    for title, begin in (
        ("code", "code/"),
        ("recipes", "kernels/"),
        ("syntax", "trees/"),
        ("parts", "parts/"),
        ("declared", declared.PREFIX),
    ):
        some = [e for e in entries if e[0].startswith(begin)]
        print(f"{title:9}{len(some)} entries, {size_text(sum(e[2] for e in some))}")
    damaged = sum(not whole for *_, whole in entries)
    if damaged:
        print(f"unusable {damaged}: damaged, or of another version (see cache verify)")
    if args.entries:
        for name, _, count, used, whole in sorted(entries, key=lambda e: -e[3]):
            when = datetime.datetime.fromtimestamp(used).isoformat(" ", "seconds")
            print(f"{when}  {size_text(count):>10}  {name}{'' if whole else '  damaged'}")
    return 0


def verify(args: argparse.Namespace) -> int:
    folder = folder_of(args)
    entries = entries_of(folder)
    damaged = [path for _, path, _, _, whole in entries if not whole]
    index = core.cache_index(folder)
    if index and not index[1]:  # what is in the folder counts for nothing
        damaged.append(index[0])
    for path in damaged:
        print(f"{'removed' if args.remove and _gone(os.unlink, path) else 'damaged'}  {path}")
    print(f"{len(entries)} entries, {len(damaged)} damaged or of another version")
    if damaged and not args.remove:
        print("Such entries are never used, and replaced when their kernel is compiled again.")
    return 1 if damaged and not args.remove else 0


def clear(args: argparse.Namespace) -> int:
    folder = folder_of(args)
    removed, left, stuck = 0, [], ""
    tops = [os.path.join(folder, name) for name in _FOLDERS]
    tops = [top for top in tops if os.path.isdir(top) and not os.path.islink(top)]
    for top in tops:
        for where, _, names in os.walk(top, topdown=False):
            for name in names:
                path = os.path.join(where, name)
                if not _OURS.fullmatch(name):
                    left.append(path)
                elif _gone(os.unlink, path):
                    removed += 1
                elif os.path.lexists(path):
                    stuck = path
            _gone(os.rmdir, where)
    if stuck:
        return _fail(f"cannot delete {stuck}")
    for path in left:
        print(f"left     {path}, which is not of the cache")
    print(f"cleared {folder}" if removed or (tops and not left) else f"{folder} holds no cache")
    return 0


def _gone(remove: Callable[[str], None], path: str) -> bool:
    """False if something stays: a program may be writing there, another clearing it."""
    try:
        remove(path)
    except OSError:
        return False
    return True


def export(args: argparse.Namespace) -> int:
    folder = folder_of(args)
    abi, build, features = core.cache_identity()
    count = 0
    file = os.path.realpath(args.file)  # a link stays one
    if os.path.lexists(file) and not os.path.isfile(file):
        return _fail(f"cannot write {args.file}: not a regular file")
    partial = f"{file}.{os.getpid()}.tmp"
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            entries: dict[str, str] = {}
            for name, *_ in entries_of(folder):
                if name.startswith("parts/"):  # for who edits
                    continue
                content = _read(folder, name)
                if content is not None:
                    archive.writestr(name, content)
                    entries[name] = _digest(content)
                    count += 1
            manifest = {"abi": abi, "build": build, "cpu": features, "entries": entries}
            archive.writestr(_MANIFEST, json.dumps(manifest))
        os.replace(partial, file)
    except OSError as e:
        if os.path.exists(partial):
            os.unlink(partial)
        return _fail(f"cannot write {args.file}: {e.strerror or e}")
    print(f"{count} entries in {args.file}, {size_text(os.path.getsize(args.file))}")
    return 0


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def take(args: argparse.Namespace) -> int:
    """`cache import`: each entry becomes a file of this user, under a checksum of its own."""
    folder = folder_of(args)
    try:
        with zipfile.ZipFile(args.file) as archive:
            return _take(archive, args.file, folder)
    except (OSError, *_DAMAGED) as e:
        return _fail(f"cannot read {args.file}: {getattr(e, 'strerror', None) or e}")


def _take(archive: zipfile.ZipFile, file: str, folder: str) -> int:
    names = archive.namelist()
    if _MANIFEST not in names or archive.getinfo(_MANIFEST).file_size > 64 << 20:
        return _fail(f"{file} was not written by `cache export`")
    try:
        manifest = json.loads(archive.read(_MANIFEST))
        theirs = (manifest["abi"], manifest["build"], manifest["cpu"])
        digests = dict(manifest["entries"])
    except (ValueError, KeyError, TypeError):
        return _fail(f"{file} was not written by `cache export`")
    mine = core.cache_identity()
    # Code first: what others name is there then.
    names = sorted((n for n in names if n != _MANIFEST), key=lambda n: not n.startswith("code/"))
    try:
        for name in names:  # all of them before the first is written
            _entry(archive, name, digests)
    except (ValueError, *_DAMAGED) as e:
        return _fail(f"{file}: {e}; nothing was taken")
    count = 0
    for name in names:
        write = declared.write if name.startswith(declared.PREFIX) else core.cache_write
        if not write(folder, name, _entry(archive, name, digests)):
            return _fail(
                f"cannot write to {folder}: it must be a folder of yours, not writable by "
                f"others, on a disk with room; {count} entries were taken before"
            )
        count += 1
    print(f"{count} entries taken into {folder}")
    for what, a, b in zip(("format", "build of Quadrants", "CPU"), mine, theirs):
        if a != b:
            print(
                f"They were made for another {what}: kernels compile here as if they were not there."
            )
    return 0


def _entry(archive: zipfile.ZipFile, name: str, digests: dict[str, str]) -> bytes:
    """The content of an entry; ValueError if it is none that was exported."""
    is_declared = name.startswith(declared.PREFIX)
    (declared.check_name if is_declared else core.cache_check_name)(name)
    if archive.getinfo(name).file_size > _LARGEST:
        raise ValueError(f"{name} is larger than any entry")
    content = archive.read(name)
    if digests.get(name) != _digest(content):
        raise ValueError(f"{name} is not what was exported under that name")
    if is_declared:
        declared.check(name, content)
    return content


def _fail(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 1
