"""Chooses the tests of a mutant from the record: those that run the mutated statement, the likeliest first."""

import ast
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from coverage import CoverageData

from tests.mutants import recording, scope
from tests.mutants.planting import Place

BATCHES = (12, 100)
"""How many tests are run first, and how many next; the rest follow. Most mutants do not live to see the second."""


class Record:
    """What was recorded of every test. It is only read."""

    def __init__(self, folder: Path, *, most_seconds: float) -> None:
        """most_seconds: recorded seconds of all tests that one mutant is given, at most."""
        recorded = json.loads((folder / recording.TIMES).read_text())
        self.failed: Sequence[str] = recorded["failed"]
        self._seconds: Mapping[str, float] = recorded["seconds"]
        self._most_seconds = most_seconds
        self._data = CoverageData(str(folder / recording.LINES))
        self._data.read()
        self._lines = cache(self._lines_of)

    def seconds(self, tests: Iterable[str]) -> float:
        return sum(self._seconds[test] for test in tests)

    def tests_of(self, place: Place) -> list[str]:
        """Return the tests that run the statement; for one that runs at import, those that run anything around it."""
        lines = self._lines(place.module)
        statement = _statement(place.module, place.line)
        near = lines.get(place.line, set())
        tests = set().union(*(lines.get(line, set()) for line in statement))
        if not tests - {""} and "" in tests:
            near = self._tests_of_module(place.module)
            tests = near.union(*(self._tests_of_module(module) for module in _importing(place.module)))
        usable = tests & self._seconds.keys() - set(self.failed)
        return list(self._affordable(self._ordered(usable, near)))

    def _ordered(self, tests: Collection[str], near: Collection[str]) -> list[str]:
        """Order tests: one of each function before a second, the exact line before its statement, fast before slow."""
        by_speed = sorted(tests, key=lambda test: (test not in near, self._seconds[test], test))
        seen: Counter[str] = Counter()
        ranked = []
        for number, test in enumerate(by_speed):
            function = test.partition("[")[0]
            ranked.append((seen[function], number, test))
            seen[function] += 1
        return [test for _, _, test in sorted(ranked)]

    def _affordable(self, tests: Iterable[str]) -> Iterator[str]:
        left = self._most_seconds
        for test in tests:
            if self._seconds[test] <= left:
                left -= self._seconds[test]
                yield test

    def _tests_of_module(self, module: str) -> set[str]:
        return set().union(*self._lines(module).values()) - {""}

    def _lines_of(self, module: str) -> Mapping[int, set[str]]:
        """Return the tests that run each line; "" stands for the import."""
        contexts = self._data.contexts_by_lineno(module)
        return {line: {name.partition("|")[0] for name in names} for line, names in contexts.items()}


def batches(tests: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split tests into those to run first, next, and at last."""
    begin = 0
    for size in (*BATCHES, len(tests)):
        if part := tests[begin : begin + size]:
            yield part
        begin += size


def _statement(module: str, line: int) -> range:
    """Return the lines of the innermost statement at a line; of one that has a body, only those before the body."""
    heads = (_head(node) for node in ast.walk(_tree(module)) if isinstance(node, ast.stmt | ast.ExceptHandler))
    around = [head for head in heads if line in head]
    return min(around, key=len, default=range(line, line + 1))


def _head(node: ast.stmt | ast.ExceptHandler) -> range:
    match node:
        case ast.Match():
            end = max(node.subject.end_lineno or 0, node.lineno) + 1
        case _ if body := getattr(node, "body", None):
            end = max(body[0].lineno, node.lineno + 1)
        case _:
            end = (node.end_lineno or node.lineno) + 1
    return range(node.lineno, end)


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse((scope.ROOT / module).read_text())


@cache
def _importing(module: str) -> list[str]:
    """Return the modules of Muster that import a module."""
    name = module.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    everyone = (str(path.relative_to(scope.ROOT)) for path in (scope.ROOT / scope.CODE).rglob("*.py"))
    return [other for other in sorted(everyone) if name in _imports(other)]


@cache
def _imports(module: str) -> set[str]:
    """Return the names of modules that a module imports, and of what it imports from them."""
    names: set[str] = set()
    for node in ast.walk(_tree(module)):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(parent), names=aliases):
                names |= {parent, *(f"{parent}.{alias.name}" for alias in aliases)}
            case _:
                pass
    return names
