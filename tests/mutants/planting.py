"""Makes the mutants: every place where an operator applies, less what is excluded, and a random sample of them."""

import ast
import difflib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from tests.mutants import exclusions, operators


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """Where an operator applies. module: relative to the root; line: from 1; occurrence: as cosmic-ray counts."""

    module: str
    line: int
    column: int
    operator: str
    occurrence: int

    @property
    def begin(self) -> operators.Position:
        return self.line, self.column


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module with one fault. source: its whole text; diff: unified, without context."""

    place: Place
    source: str
    diff: str


def sampled(root: Path, modules: Sequence[str], *, size: int, seed: int) -> list[Mutant]:
    """Return so many mutants, or all of them where size is 0; the same for the same code and seed."""
    places = [place for module in modules for place in places_in(module, (root / module).read_text())]
    random.Random(seed).shuffle(places)  # noqa: S311 - a sample, not a secret
    found: list[Mutant] = []
    for place in places:
        if size and len(found) == size:
            break
        if mutant := planted(place, (root / place.module).read_text()):
            found.append(mutant)
    return found


def places_in(module: str, source: str) -> list[Place]:
    """Return every place of a module where an operator applies, in order."""
    excluded, negations = exclusions.spans(source), exclusions.negations(source)
    places = (place for place in _applying(module, source) if not exclusions.covers(excluded, place.begin))
    return sorted(place for place in places if place.operator not in operators.NEGATING or place.begin not in negations)


def planted(place: Place, source: str) -> Mutant | None:
    """Return the mutant, or None where the text that results is no Python, or means the same."""
    mutated = mutate_code(source, operators.by_name()[place.operator], place.occurrence)
    if mutated is None or _meaning(mutated) in {None, _meaning(source)}:
        return None
    return Mutant(place=place, source=mutated, diff=_diff(source, mutated))


def _applying(module: str, source: str) -> Iterator[Place]:
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in operators.by_name().items():
        begins = (begin for node in nodes for begin, _ in operator.mutation_positions(node))
        for occurrence, (line, column) in enumerate(begins):
            yield Place(module=module, line=line, column=column, operator=name, occurrence=occurrence)


@lru_cache(maxsize=512)
def _meaning(source: str) -> str | None:
    """Return what two texts have in common that mean the same; None where a text is no Python."""
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return None


def _diff(source: str, mutated: str) -> str:
    lines = difflib.unified_diff(source.splitlines(), mutated.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
