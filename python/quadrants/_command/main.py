"""Arguments of the command line."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

from quadrants._command import bench, cache, doctor, info

_EPILOG = """\
examples:
  python -m quadrants info                     what this installation can do here, and why not
  python -m quadrants cache list               how large the cache of compiled kernels is
  python -m quadrants cache export warm.zip    so that another machine's first start is warm:
  python -m quadrants cache import warm.zip    ... there
  python -m quadrants bench                    a minute of measurements
  python -m quadrants doctor                   what is wrong with this installation, and what to do
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m quadrants",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    info_parser = commands.add_parser("info", help="version, devices, why a backend is missing")
    info_parser.set_defaults(run=lambda args: info.run())

    cache_parser = commands.add_parser("cache", help="the cache of compiled kernels")
    actions = cache_parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, text, run in (
        ("list", "number and size of its entries", cache.show),
        ("verify", "look for damaged entries; exit status 1 if there are any", cache.verify),
        ("clear", "delete it", cache.clear),
        ("export", "write its entries to a file", cache.export),
        ("import", "take entries from such a file", cache.take),
    ):
        sub = actions.add_parser(action, help=text, description=text)
        sub.add_argument(
            "--path",
            help="folder of the cache (offline_cache_file_path; default: the one that programs "
            "started here use)",
        )
        if action == "list":
            sub.add_argument("--entries", action="store_true", help="a line for each")
        if action == "verify":
            sub.add_argument("--remove", action="store_true", help="delete the damaged ones")
        if action in ("export", "import"):
            sub.add_argument("file", help="a zip archive")
        sub.set_defaults(run=run)

    bench_parser = commands.add_parser("bench", help="measure start-up, launches and throughput")
    bench_parser.set_defaults(run=lambda args: bench.run())
    doctor_parser = commands.add_parser("doctor", help="look for what is wrong, and say what to do")
    doctor_parser.set_defaults(run=lambda args: doctor.run())
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; its exit status."""
    args = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # paths of other encodings
    status: int = args.run(args)
    return status
