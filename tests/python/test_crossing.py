"""Every kind of value source meets every kind of use at every kind of place.

`tests/differential/crossing.py` makes the programs, runs them on each tier, with one and two threads
and in debug mode, and computes what they leave by a model that shares no code with the compiler. Here
are samples of some hundred each that contain all pairs of kinds; `crossing.py` alone runs all triples.
A failure names its case: `crossing.py --only 'NAME'` repeats it, with `--show` its text.
"""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "differential"))

import crossing  # noqa: E402
import crossing_cases  # noqa: E402


@pytest.mark.parametrize("t", crossing_cases.DTYPES)
def test_sample(t, established):
    if established:
        pytest.skip("compares this implementation's tiers")
    cases = [case for case in crossing_cases.sample() if case[3] == t]
    third = crossing.OTHERS[crossing_cases.DTYPES.index(t) % len(crossing.OTHERS)]
    failures, stats, _ = crossing.run(cases, [*crossing.MAIN, third])
    assert not failures, "\n".join(f"{kind}: {case}: {text}" for case, kind, text in failures)
    assert stats["cases"] == len(cases)
    assert stats["modelled"] > 0.9 * len(cases)


def test_cases_cover_what_they_should():
    """All parts and dtypes occur in a sample; triples that the language has occur once in the whole."""
    tables = (
        crossing_cases.parts.sources("i32"),
        crossing_cases.parts.uses(),
        crossing_cases.parts.places(),
        crossing_cases.DTYPES,
    )
    sample = crossing_cases.sample()
    for k, table in enumerate(tables):
        assert {case[k] for case in sample} == set(table)
    whole = list(crossing_cases.everything())
    assert len(whole) == len({case[:3] for case in whole}) > 100_000
    found = crossing_cases.pairs()
    for i, j in crossing_cases.PAIRS:
        assert {(case[i], case[j]) for case in whole} <= {(case[i], case[j]) for case in found}
