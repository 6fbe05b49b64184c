"""Swizzles: `v.x`, `v.zxy`, `v.rgb = ...` on host vectors.

Every word of one to four letters over one alphabet is an attribute of the class: 1020 in all.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from quadrants.lang._values.entries import entries_of
from quadrants.lang.exception import QuadrantsRuntimeError, QuadrantsSyntaxError

ALPHABETS = ("xyzw", "rgba", "stpq")


def generate_patterns(key_group: str, required_length: int = 4) -> list[str]:
    """All words of up to required_length letters, short ones first."""
    return ["".join(w) for n in range(1, required_length + 1) for w in product(key_group, repeat=n)]


class Swizzle(str):
    """One word as an attribute. A str, so that a thousand of them cost nothing to make."""

    __slots__ = ()

    def _places(self, vector: Any) -> tuple[int, ...]:
        """The components that the letters name; raises if the vector lacks one."""
        if vector.ndim != 1:
            raise AssertionError(f"Expected {vector.ndim} indices, got 1")
        alphabet = next(letters for letters in ALPHABETS if self[0] in letters)
        places = tuple(map(alphabet.index, self))
        if max(places) >= vector.n:
            known = tuple(alphabet[: vector.n])
            raise QuadrantsSyntaxError(
                f"vec{vector.n} only has attributes={known}, got={tuple(self)}"
            )
        return places

    def __get__(self, vector: Any, owner: type | None = None) -> Any:
        if vector is None:
            return self
        places = self._places(vector)
        if len(places) == 1:
            return vector[places[0]]
        from quadrants.lang.matrix import Vector

        return Vector(entries_of([vector[p] for p in places]))

    def __set__(self, vector: Any, value: Any) -> None:
        places = self._places(vector)
        if len(places) == 1:
            vector[places[0]] = value
            return
        values = list(value)
        if len(values) != len(places):
            raise QuadrantsRuntimeError(f"value len does not match the swizzle pattern={self[:]}")
        for place, v in zip(places, values):
            vector[place] = v


def all_swizzles() -> dict[str, Swizzle]:
    """Every word of every alphabet."""
    words = [w for letters in ALPHABETS for w in generate_patterns(letters)]
    return dict(zip(words, map(Swizzle, words)))
