"""Swizzles: `v.x`, `v.zxy`, `v.rgb = ...` on host vectors.

Every word of one to four letters over one alphabet is an attribute of the class: 1020 in all.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from quadrants.lang.exception import QuadrantsRuntimeError, QuadrantsSyntaxError

ALPHABETS = ("xyzw", "rgba", "stpq")


def generate_patterns(key_group: str, required_length: int = 4) -> list[str]:
    """All words of up to required_length letters, short ones first."""
    return ["".join(w) for n in range(1, required_length + 1) for w in product(key_group, repeat=n)]


class Swizzle:
    """One word as an attribute."""

    __slots__ = ("word", "alphabet", "places")

    def __init__(self, word: str, alphabet: str) -> None:
        self.word = word
        self.alphabet = alphabet
        self.places = tuple(map(alphabet.index, word))

    def _check(self, vector: Any) -> None:
        if vector.ndim != 1:
            raise AssertionError(f"Expected {vector.ndim} indices, got 1")
        if max(self.places) >= vector.n:
            known = tuple(self.alphabet[: vector.n])
            raise QuadrantsSyntaxError(
                f"vec{vector.n} only has attributes={known}, got={tuple(self.word)}"
            )

    def __get__(self, vector: Any, owner: type | None = None) -> Any:
        if vector is None:
            return self
        self._check(vector)
        if len(self.places) == 1:
            return vector[self.places[0]]
        from quadrants.lang.matrix import Vector

        return Vector([vector[p] for p in self.places])

    def __set__(self, vector: Any, value: Any) -> None:
        self._check(vector)
        if len(self.places) == 1:
            vector[self.places[0]] = value
            return
        values = list(value)
        if len(values) != len(self.places):
            raise QuadrantsRuntimeError(f"value len does not match the swizzle pattern={self.word}")
        for place, v in zip(self.places, values):
            vector[place] = v


def all_swizzles() -> dict[str, Swizzle]:
    """Every word of every alphabet."""
    return {w: Swizzle(w, letters) for letters in ALPHABETS for w in generate_patterns(letters)}
