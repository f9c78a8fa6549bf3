"""Laws that hold for all values."""

import json
import math

from hypothesis import given, settings, strategies as st

from admission.api.kubernetes import devices
from admission.cel.core import equality, values
from admission.cel.library import conversions, quantities, semver, string_format, times
from admission.device_cel import programs
from tests.unit.device_cel import sample_device

ints = st.integers(-(2**63), 2**63 - 1)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    ints,
    st.integers(0, 2**64 - 1).map(values.Uint),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
)
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
TOKENS = [*'.[]()?:1+-!,{}"', "device", "attributes", '"a"', "&&", "||", "==", "x", "map", "has"]

truths = st.lists(st.sampled_from(["true", "false", "(1 / 0 == 1)"]), min_size=2, max_size=6)


@settings(deadline=None)
@given(anything, anything)
def test_equality_is_symmetric_and_the_opposite_of_inequality(left: object, right: object) -> None:
    assert equality.equal(left, right) == equality.equal(right, left)
    assert equality.unequal(left, right) is not equality.equal(left, right)


@settings(deadline=None)
@given(anything)
def test_a_value_equals_itself_and_is_in_a_list_of_that_value(value: object) -> None:
    assert equality.equal(value, value)
    assert equality.contains(value, (value,))


@settings(deadline=None)
@given(truths)
def test_a_chain_of_booleans_has_the_same_value_in_either_order(terms: list[str]) -> None:
    for operator in (" && ", " || "):
        forwards, backwards = (sample_device.evaluate(operator.join(order)) for order in (terms, terms[::-1]))
        assert forwards == backwards


@settings(deadline=None)
@given(truths)
def test_negation_turns_conjunctions_into_disjunctions(terms: list[str]) -> None:
    left = sample_device.evaluate(f"!({' && '.join(terms)})")

    assert left == sample_device.evaluate(" || ".join(f"!{term}" for term in terms))


@settings(deadline=None)
@given(st.text(max_size=20))
def test_a_written_string_is_read_again(text: str) -> None:
    literal = json.dumps(text.encode("utf-8", "ignore").decode(), ensure_ascii=False)
    device = devices.Device(name="x", attributes={"text": text.encode("utf-8", "ignore").decode()})
    value = programs.device_value("d", device)

    assert sample_device.evaluate(f'device.attributes["d"].text == {literal}', value) is True


@settings(deadline=None)
@given(ints, ints)
def test_addition_is_exact_or_fails(left: int, right: int) -> None:
    total = left + right
    fits = -(2**63) <= total < 2**63

    assert sample_device.evaluate(f"{left} + {right} == {total if fits else 0}") == (
        True if fits else "integer overflow"
    )


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_a_written_double_is_read_again(value: float) -> None:
    text = conversions.double_text(value)

    assert math.isinf(value) or float(text) == value


@settings(deadline=None)
@given(st.integers(-(10**17), 10**17), st.sampled_from(["", "k", "M", "Ki", "Gi", "m", "n"]))
def test_adding_and_taking_away_leaves_the_quantity(number: int, suffix: str) -> None:
    quantity = quantities.parse(f"{number}{suffix}")
    one = quantities.from_int(1)
    add, sub = quantities.add, quantities.subtract

    assert sub(add(quantity, one), one).amount.nanos == quantity.amount.nanos


@settings(deadline=None)
@given(st.integers(times.SECOND * -(10**9), times.SECOND * 10**9))
def test_a_written_timestamp_is_read_again(nanoseconds: int) -> None:
    instant = values.Timestamp(nanoseconds)

    assert times.parse_timestamp(times.timestamp_text(instant)) == instant


@settings(deadline=None)
@given(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)))
def test_versions_are_ordered_as_their_numbers(numbers: tuple[int, int, int]) -> None:
    release = semver.parse(".".join(map(str, numbers)))
    before = semver.parse(".".join(map(str, numbers)) + "-rc.1")

    assert before.order < release.order
    assert release.numbers == numbers


@settings(deadline=None)
@given(st.text(max_size=30))
def test_no_text_makes_the_compiler_raise(text: str) -> None:
    compiled = programs.compile_device(text)

    assert isinstance(compiled, programs.Program | programs.CompileError)


@settings(deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=12))
def test_no_sequence_of_tokens_makes_the_compiler_raise(tokens: list[str]) -> None:
    compiled = programs.compile_device(" ".join(tokens))

    assert isinstance(compiled, programs.Program | programs.CompileError)


@settings(deadline=None)
@given(anything)
def test_a_string_quoted_by_format_has_no_raw_line_ends(value: object) -> None:
    assert "\n" not in string_format.quoted(str(value))
