"""`make mutants` looks where the deciding code is, and plants no fault that no test could notice."""

import pytest

from tests.mutants import exclusions, scope

EXCLUDED = {
    "an annotation": ("def f(a: A | B) -> A | None: ...", ["A | B", "A | None"]),
    "the annotation of a variable, not its value": ("x: A | B = 1 + 1", ["A | B"]),
    "a type alias": ("Either = A | B", ["A | B"]),
    "the arguments of a decorator": ("@dataclass(slots=True)\nclass A: ...", ["True"]),
    "that nobody changes an object": ("class A(Struct, frozen=True, tag=True): ...", ["True"]),
    "a protocol": ("class A(Protocol):\n    limit = 1", ["1"]),
    "what only type checkers read": ("if TYPE_CHECKING:\n    x = 1", ["1"]),
    "the words of an exception": ('raise ValueError(f"{1 + 1} wanted")', ["1 + 1"]),
    "the words of a log line": ("log.info('gone', left=1)", ["1"]),
    "an assertion that lengths are equal": ("list(zip(a, b, strict=True))", ["True"]),
    "the types that a value may have": ("isinstance(a, A | B)", ["A | B"]),
    "how large a cache is, or how long to wait": ("MOST = 500\nWAIT = timedelta(seconds=5)", ["500", "5)"]),
    "a bound that is computed of literals": ("LIMIT = 2**53 - 1", ["2**53", "- 1"]),
    "when a full cache is emptied": ("if len(known) >= MOST:\n    known.clear()", ["len(known) >="]),
    "whether reasons are worked out": ("plan(mute=True)", ["True"]),
}
MUTATED = {
    "a constant that decides": ("LIMIT = 1 if wide else 2", "1 if wide"),
    "a figure inside a function": ("def f():\n    most = 500", "500"),
    "a default": ("def f(a: int = 3): ...", "3"),
    "a condition after words of two bytes": ('x = "…" if a > b else c', "a > b"),
    "a tag by which messages are told apart": ("class A(Struct, tag=True): ...", "True"),
    "an argument of a call": ("f(is_open=True)", "True"),
}


def position(source: str, part: str) -> tuple[int, int]:
    before = source[: source.index(part)]
    return before.count("\n") + 1, len(before.rpartition("\n")[2])


@pytest.mark.parametrize(("source", "parts"), EXCLUDED.values(), ids=EXCLUDED)
def test_excluded_code_is_not_mutated(source: str, parts: list[str]) -> None:
    spans = exclusions.spans(source)

    assert all(exclusions.covers(spans, position(source, part)) for part in parts)


@pytest.mark.parametrize(("source", "part"), MUTATED.values(), ids=MUTATED)
def test_code_beside_the_exclusions_is_mutated(source: str, part: str) -> None:
    assert not exclusions.covers(exclusions.spans(source), position(source, part))


def test_a_negation_is_not_planted_where_a_comparison_is_turned() -> None:
    source = "a is None or b < c\nd == e\nnot f"

    assert exclusions.negations(source) == {position(source, part) for part in ("a is None", "d == e", "not f")}


def test_every_package_in_the_scope_of_mutants_exists_with_its_tests() -> None:
    for package in scope.DECIDING:
        assert scope.modules([package])
    assert all((scope.ROOT / tests).exists() for tests in scope.TESTS)


def test_a_package_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="admission/nowhere has no modules"):
        scope.modules(["nowhere"])
