"""Choices of a random world: what is drawn for one seed is drawn again for it."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """A source of choices, all by integers of one seed."""

    def __init__(self, seed: int) -> None:
        # Not for secrets: what is asked of these numbers is that they come again.
        self._random = Random(seed)  # noqa: S311

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def chance(self, percent: int) -> bool:
        return self.number(1, 100) <= percent

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.number(0, len(choices) - 1)]

    def some(self, choices: Sequence[T], *, least: int = 0, most: int | None = None) -> list[T]:
        """Choose between least and most of the choices, in their order."""
        wanted = self.number(least, len(choices) if most is None else min(most, len(choices)))
        chosen = set(self._random.sample(range(len(choices)), wanted))
        return [each for at, each in enumerate(choices) if at in chosen]

    def shuffled(self, choices: Sequence[T]) -> list[T]:
        """Return the choices in any order."""
        return self._random.sample(choices, len(choices))

    def weighted(self, choices: Sequence[tuple[T, int]]) -> T:
        """Choose one of several, each with its weight."""
        left = self.number(1, sum(weight for _, weight in choices))
        for choice, weight in choices:
            left -= weight
            if left <= 0:
                return choice
        raise AssertionError
