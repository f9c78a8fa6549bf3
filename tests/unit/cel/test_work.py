"""How much work it is to compile an expression, known before it is done; and what compiling it does at most."""

import sys
from types import FrameType

import pytest

from admission.cel.core import ast, errors, types
from admission.cel.core.types import Type, Unifier
from admission.cel.library import regex
from admission.cel.syntax import lexer, parser
from admission.cel.syntax.lexer import Size
from admission.device_cel import programs

FIXED = lexer.measure("").tokens

SIZES: dict[str, tuple[str, Size]] = {
    "tokens, whatever lies between": ("a && b // a comment", Size(FIXED + 3)),
    "a text is one token": ("device.driver == 'a b c && d'", Size(FIXED + 5)),
    "a long text is more": (f"'{'a' * 6_400}'", Size(FIXED + 1 + 100)),
    "what comes after no token is not compiled": ("a && # b && c && d", Size(FIXED + 2)),
    "a pattern": ("device.driver.matches('^gpu')", Size(FIXED + 8 + 1, 1)),
    "a pattern with a repetition": ("device.driver.matches('a{9}')", Size(FIXED + 8 + 1, 1, 1)),
    "a pattern with a class": (r"device.driver.matches('\\pL')", Size(FIXED + 8 + 1, 1, 1)),
    "a pattern that is put together": ("'a'.find('b' + 'c')", Size(FIXED + 8 + 1, 1, 1)),
    "a name like a function's in a text": ("'matches'", Size(FIXED + 1)),
}


@pytest.mark.parametrize(("text", "size"), SIZES.values(), ids=SIZES)
def test_the_size_of_an_expression_is_known_without_parsing_it(text: str, size: Size) -> None:
    assert lexer.measure(text) == size


def test_a_pattern_of_many_classes_of_unicode_is_too_large_before_it_is_compiled() -> None:
    assert regex.compile_pattern("\\p{Greek}" * 10).search("x") is None
    with pytest.raises(errors.EvaluationError, match="pattern too large"):
        regex.compile_pattern("\\pL" * 3_000)


def nested(depth: int, inner: Type) -> Type:
    return inner if not depth else types.list_of(nested(depth - 1, inner))


def test_types_without_variables_are_resolved_at_once() -> None:
    deep, unifier = nested(200, types.INT), Unifier()

    assert unifier.resolved(deep) is deep
    assert unifier.assignable(deep, deep)


def test_types_that_share_parts_are_resolved_once() -> None:
    unifier = Unifier()
    levels = [unifier.fresh()]
    for _ in range(300):
        levels.append(types.list_of(levels[-1]))

    found = unifier.all_resolved(dict(enumerate(levels)))

    assert found[0] == types.DYN
    assert found[300].parameters[0] is found[299]
    assert str(found[2]) == "list(list(dyn))"


def test_types_that_are_compared_too_often_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "cel.bind(x," + "[" * 50 + "]" * 50 + ",[" + ",".join(["x == x"] * 100) + "].all(y, y))"
    assert isinstance(programs.analyze(text), programs.Analysis)

    monkeypatch.setattr(types, "MAX_STEPS", 100)

    assert "types are too deep" in str(programs.analyze(text))


def calls_to_find_names(terms: int) -> int:
    chain = parser.parse(" && ".join(["device"] * terms), escapes=True)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert ast.names(chain) == {"device"}
    finally:
        sys.setprofile(before)
    return calls


def test_the_names_in_a_chain_are_found_with_work_that_grows_with_its_length() -> None:
    assert calls_to_find_names(800) <= 4.1 * calls_to_find_names(200)
