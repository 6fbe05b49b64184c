"""`make quick`: which tests a change asks for."""

import pathlib
import runpy

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
quick = runpy.run_path(str(ROOT / "tools" / "quick.py"))
python_tests, cpp_tests = quick["python_tests"], quick["cpp_tests"]
SMOKE = {f"tests/python/test_{word}.py" for word in quick["SMOKE"].split()}


def test_rows_name_what_there_is():
    tests = {file.stem[5:] for file in (ROOT / "tests" / "python").glob("test_*.py")}
    assert {*quick["SLOW"].split(), *quick["SMOKE"].split()} <= tests
    for path, row in quick["TABLE"].items():
        assert (ROOT / path).exists(), path
        assert {*row.python.split()} <= tests | {"quick"}, path
        assert set(row.cpp.split()) <= set(quick["CPP"]), path
    for folder in (ROOT / "src").iterdir():
        assert f"src/{folder.name}" in quick["TABLE"], folder


@pytest.mark.parametrize(
    "path, words, programs",
    [
        ("src/pass/licm.cpp", ["reductions", "arithmetic"], ["qd_codegen_tests", "qd_tests"]),
        ("src/frontend/facts/purity.cpp", ["purity", "guards"], []),
        ("python/quadrants/algorithms/_scan.py", ["algorithms"], []),
        ("tests/cpp/codegen/kernel_test.cpp", [], ["qd_codegen_tests"]),
        ("tests/python/test_atomics.py", ["atomics"], []),
        ("unheard/of", [], []),
    ],
)
def test_a_path_asks_for(path, words, programs):
    files = set(python_tests([path]))
    assert files >= SMOKE | {f"tests/python/test_{word}.py" for word in words}
    assert all((ROOT / file).exists() for file in files)
    if not words:
        assert files == SMOKE
    commands = cpp_tests([path])
    assert (
        sorted({p for p in ("qd_codegen_tests", "qd_tests") for c in commands if f"./{p} " in c})
        == programs
    )


def test_the_longest_row_counts():
    assert "tests/python/test_same_bits.py" not in python_tests(["src/runtime/fork.h"])
    row = quick["row_of"]("src/frontend/source/ast.cpp")
    assert row == quick["TABLE"]["src/frontend/source"]
    assert quick["row_of"]("src/frontend/diag.cpp") == quick["TABLE"]["src/frontend"]


def test_shards_are_the_whole():
    lines = cpp_tests(["src/session/door.h"])
    assert [line.split()[:2] for line in lines] == [
        [f"GTEST_TOTAL_SHARDS={len(lines)}", f"GTEST_SHARD_INDEX={n}"] for n in range(len(lines))
    ]
