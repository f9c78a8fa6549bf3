import pytest

from admission.cel.core import ast, errors
from admission.cel.syntax import parser
from admission.device_cel import programs
from tests.unit.device_cel import sample_device

TRUE = {
    "an escaped quote does not end a string": r'"a\"b" == \'a"b\''.replace(r"\'", "'"),
    "a raw string ends at its first quote": r'r"a\" == "a\\"',
    "a question mark and a backtick may be escaped": r'"\?\`" == "?`"',
    "octal, hexadecimal and Unicode escapes are characters": r'"\101\x41\u0041\U00000041" == "AAAA"',
    "in bytes, octal and hexadecimal escapes are octets": r'b"\377\xff".size() == 2',
    "bytes of a character are those of UTF-8": 'b"é".size() == 2',
    "three quotes enclose lines": '"""a\n"b" """.size() == 6',
    "line ends are one character": '"""\r\n""" == "\\n"',
    "subtraction needs no spaces": "3-1 == 2",
    "a sign belongs to the number": "-5 % 3 == -2",
    "the smallest int is a literal": "-9223372036854775808 < 0",
    "even runs of signs are nothing": "--5 == 5 && !!true",
    "a number may have its sign behind exclamation marks": "!!-5 == -5",
    "keywords are fields": 'has({"package": 1}.package)',
    "numbers may start with a point": ".5 + 1e3 == 1000.5",
    "hexadecimal is lower-case only": "0x1F == 31",
    "trailing commas are ignored": '[1, 2,].size() == 2 && {"a": 1,}.size() == 1',
    "a comment ends with its line": "true // not false\n && true",
    "optional selection may have spaces": '{"a": 1}. ?a.hasValue()',
    "in binds like a comparison": "1 in [1] == true",
    "a variable of a macro hides nothing outside": "[1].all(x, [2].all(x, x == 2) && x == 1)",
}

REFUSED = {
    "an unknown escape": r'"\z"',
    "an octal escape beyond a byte": r'"\400"',
    "a surrogate": r'"\ud800"',
    "a code point beyond Unicode": r'"\U00110000"',
    "an unfinished string": '"abc',
    "a string that ends in an escape": r'"a\"',
    "a Unicode escape in bytes": r'b"\u0041"',
    "a line end in a plain string": '"a\nb"',
    "a number with a bare point": "1. == 1.0",
    "a number that is too large": "9223372036854775808 > 0",
    "digits with underscores": "1_000 == 1000",
    "a reserved word": "if == 1",
    "an unpaired brace": "{1: 2",
    "two kinds of signs": "-!true",
    "a single ampersand": "true & true",
    "adjacent strings": '"a" "b" == "ab"',
    "nothing": "",
    "a backtick": "device.`driver`",
}


@pytest.mark.parametrize("text", TRUE.values(), ids=TRUE)
def test_a_valid_expression_is_parsed(text: str) -> None:
    assert sample_device.evaluate(text) is True


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_an_invalid_expression_is_refused(text: str) -> None:
    assert isinstance(programs.compile_device(text), programs.CompileError)


def test_errors_have_line_and_column_of_the_operator() -> None:
    error = programs.compile_device("true &&\n  device.driver == 1")

    assert isinstance(error, programs.CompileError)
    assert (error.line, error.column) == (2, 17)
    assert error.message == "found no matching overload for '_==_' applied to '(string, int)'"


def test_a_chain_of_1700_terms_compiles_and_is_flat() -> None:
    text = "&&".join(["1==1"] * 1_700)
    root = parser.parse(text)

    assert len(text) <= 10 * 1024
    assert isinstance(root, ast.Logic)
    assert len(root.terms) == 1_700
    assert sample_device.evaluate(text) is True
    assert sample_device.evaluate(text.replace("&&", "||")) is True


@pytest.mark.parametrize("opening", ["(", "[", "f(", "{1:", "a[", "!("])
def test_nesting_beyond_the_limit_is_refused_without_recursion(opening: str) -> None:
    closing = {"(": ")", "[": "]", "{": "}"}
    end = "".join(closing.get(character, "") for character in reversed(opening))

    assert "recursion" in sample_device.compile_error(opening * 5_000 + "1" + end * 5_000)


def test_249_parentheses_are_read_and_250_are_not() -> None:
    assert sample_device.evaluate("(" * 249 + "true" + ")" * 249) is True
    assert "recursion" in sample_device.compile_error("(" * 250 + "true" + ")" * 250)


def test_long_sums_are_evaluated_up_to_the_limit_of_recursion() -> None:
    assert sample_device.evaluate(" + ".join(["1"] * 249) + " == 249") is True
    assert "max recursion depth exceeded" in sample_device.compile_error(" + ".join(["1"] * 260) + " == 260")


def test_a_text_beyond_100000_code_points_is_refused() -> None:
    assert "code point size" in sample_device.compile_error("true" + " " * 100_000)


def test_parentheses_keep_chains_apart() -> None:
    root = parser.parse("(a && b) && c")

    assert isinstance(root, ast.Logic)
    assert len(root.terms) == 2


def test_fields_in_backticks_come_with_release_37() -> None:
    root = parser.parse("a.`b/c`", escapes=True)

    assert isinstance(root, ast.Select)
    assert root.field == "b/c"
    with pytest.raises(errors.RefusalError):
        parser.parse("a.`b/c`")


def test_the_grammar_is_built_once() -> None:
    assert parser.parser() is parser.parser()
