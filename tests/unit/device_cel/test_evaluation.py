from fractions import Fraction

import pytest

from admission.api.kubernetes import devices
from admission.cel.front_end import Result
from admission.device_cel import environment, programs
from tests.unit.device_cel import sample_device
from tests.unit.device_cel.sample_device import D

ANSWERS: dict[str, tuple[str, bool | str]] = {
    # Reading a device
    "a name without a domain is the driver's": (f'{D}.model == "A100"', True),
    "a name with a domain is that domain's": (
        'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:5d"',
        True,
    ),
    "an unknown domain is empty": ('device.attributes["other"].x == 1', "no such key: x"),
    "an unknown domain seems to be there": ("has(device.attributes.other)", True),
    "an unknown domain has a value": ('device.attributes[?"other"].hasValue()', True),
    "in sees real domains only": ('"other" in device.attributes', False),
    "iteration sees real domains only": ("device.attributes.size() == 2", True),
    "a missing name fails": (f"{D}.nosuch == 1", "no such key: nosuch"),
    "a missing name can be asked for": (f"has({D}.nosuch)", False),
    "a missing name may have a default": (f"{D}.?nosuch.orValue(7) == 7", True),
    "an error within has is raised": ('has(device.attributes["gpu.example.com"].nosuch.x)', "no such key: nosuch"),
    "has of a scalar is false": (f"has({D}.model.x)", False),
    "optional selection of a scalar is none": (f"{D}.model.?x.hasValue()", False),
    "after one question mark the chain is optional": (f"{D}.?model.x.hasValue()", False),
    "capacities are quantities": (
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) == 0',
        True,
    ),
    "unset allowMultipleAllocations is false": ("device.allowMultipleAllocations", False),
    "an attribute that is no bool is no answer": (
        f"{D}.index",
        "CEL result of type int could not be converted to bool",
    ),
    # Logic absorbs errors
    "false absorbs an error after it": (f"false && {D}.nosuch", False),
    "false absorbs an error before it": (f"{D}.nosuch && false", False),
    "true absorbs an error before it": (f"{D}.nosuch || true", True),
    "true does not absorb in a conjunction": (f"{D}.nosuch && true", "no such key: nosuch"),
    "the first error wins": (f"{D}.one && {D}.two", "no such key: one"),
    "an operand that is no bool is an error": (f"{D}.index || false", "no such overload"),
    "what is no optional is its own value": (f'{D}.model.orValue("x") == "A100"', True),
    "what crashes on an error is not absorbed": (
        f"{D}.nosuch.distinct() == [] || true",
        "internal error: interface conversion of an error",
    ),
    "a list behind dyn is no set of literals": (f'{D}.driverVersion in dyn(["x"])', False),
    "an operand that is no bool is absorbed": (f"{D}.index || true", True),
    "a condition takes one branch": (f"true ? {D}.ecc : {D}.nosuch", True),
    "all absorbs errors": ("[0, 1].all(x, 4 / x == 5)", False),
    "exists absorbs errors": ("[0, 1].exists(x, 4 / x == 4)", True),
    "exists_one does not": ("[0, 1].exists_one(x, 4 / x == 4)", "division by zero"),
    "filter does not": ("[0, 1].filter(x, 4 / x == 4).size() == 1", "division by zero"),
    "a binding that is not read is not computed": ("cel.bind(x, 1 / 0 == 1, true)", True),
    "a binding's error is raised where it is read": ("cel.bind(x, 1 / 0 == 1, x || true)", True),
    "a crash is not absorbed": (
        f'{D}.driverVersion in ["x"] || true',
        "internal error: runtime error: hash of unhashable type cel.Semver",
    ),
    # Equality
    "other kinds are unequal": (f'{D}.index == "3"', False),
    "a bool is no number": (f"{D}.ecc == 1", False),
    "a bool is no number in a list": (f"{D}.ecc in [1]", False),
    "a number is no bool in a list": (f"{D}.index in [true]", False),
    "numbers compare by value": (f"{D}.index == 3u && {D}.index == 3.0", True),
    "an int beside a double is made one": (f"{D}.max == 9223372036854775808.0", True),
    "a version on the left of a text fails": (f'{D}.driverVersion == "570.86.15"', "no such overload"),
    "a version on the right of a text is unequal": (f'"570.86.15" == {D}.driverVersion', False),
    "a version is unequal to a text": (f'{D}.driverVersion != "570.86.15"', True),
    "within a list the failure counts as equal": (f'[{D}.driverVersion] == ["x"]', True),
    "build metadata is left out": ('semver("1.0.0+a") == semver("1.0.0+b")', True),
    "a computed quantity is equal on the left": ('quantity("1").add(1) == quantity("2")', True),
    "a computed quantity fails on the right": ('quantity("2") == quantity("1").add(1)', "no such overload"),
    "null is itself": ("dyn(null) == null", True),
    "a text is no bool as a key": ('true in {"true": 1}.map(k, dyn(k))', False),
    "keys 1 and true differ": ('{1: "int"}.exists(k, dyn(k) == dyn(true))', False),
    # Numbers
    "addition overflows": (f"{D}.max + 1 > 0", "integer overflow"),
    "the smallest int has no opposite": ("-(-9223372036854775807 - 1) > 0", "integer overflow"),
    "division truncates": ("-7 / 2 == -3 && -7 % 2 == -1", True),
    "division of the smallest int overflows": ("-9223372036854775808 / -1 > 0", "integer overflow"),
    "division by zero fails": ("1 / 0 == 1", "division by zero"),
    "doubles divide by zero": ("1.0 / 0.0 > 1.0e300", True),
    "NaN has no order": ("0.0 / 0.0 < 1.0", "NaN values cannot be ordered"),
    "unsigned numbers have no negative": ("1u - 2u == 0u", "unsigned integer overflow"),
    "a whole double is written without a point": ('string(1.0) == "1" && string(1e6) == "1e+06"', True),
    "negative positions fail": ("[1][-1] == 1", "index out of bounds: -1"),
    # Kinds at run time
    "iterating a text fails": (f"dyn({D}.model).exists(x, true)", "got 'types.Str', expected iterable type"),
    "a method of another kind fails": (f"{D}.index.lowerAscii() == 'x'", "no such overload: lowerAscii"),
    "2000m is no integer": ('quantity("2000m").isInteger()', False),
    "a sum of fast quantities stays an integer": ('quantity("1k").add(quantity("1")).asInteger() == 1001', True),
    "trim takes Unicode white space": ('"\\u3000a\\u001c".trim() == "a\\u001c"', True),
    "positions are code points": ('"日本".size() == 2 && "日本".charAt(2) == ""', True),
    "split of none is none": ('"a,b".split(",", 0) == []', True),
    "empty matches that touch the match before are none": ('"aab".findAll("a*") == ["aa", ""]', True),
    "optional elements may be left out": ("[?optional.none(), ?optional.of(1)] == [1]", True),
}


@pytest.mark.parametrize(("text", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_a_selector_evaluates_to_the_expected_value_or_error(text: str, answer: bool | str) -> None:
    assert sample_device.evaluate(text) == answer


REFUSALS = {
    "unknown field": ("device.foo", "undefined field 'foo'"),
    "unknown variable": ("foo == 1", "undeclared reference to 'foo'"),
    "unknown function": ("foo(1)", "undeclared reference to 'foo'"),
    "a number as a domain": ("1 in device.attributes", "no matching overload for '@in'"),
    "mixed list": ('[1, "a"].size() == 2', "expected type 'int' but found 'string'"),
    "mixed map": ('{"a": 1, "b": "c"}.size() == 2', "expected type 'int' but found 'string'"),
    "a text that is no pattern, where cel-go looks for one": (r"""matches("\\", "a")""", "invalid matches argument"),
    "bad pattern": ('"a".matches("[")', "error parsing regexp"),
    "a pattern with single bytes": ('"a".matches("\\\\C")', "error parsing regexp"),
    "bad conversion of a literal": ('true || int("x") == 1', "program instantiation failed"),
    "a macro over an attribute": (f"{D}.model.exists(x, true)", "cannot be range of a comprehension"),
    "an optional as the answer": (f"{D}.?ecc", "must evaluate to bool or the unknown type"),
    "a number as the answer": ("1", "must evaluate to bool or the unknown type, not int"),
    "a duration of letters": (f'duration("{"a" * 60}") > duration("1s")', "invalid duration argument"),
}


@pytest.mark.parametrize(("text", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_selector_that_does_not_compile_is_refused_with_the_reason(text: str, message: str) -> None:
    assert message in sample_device.compile_error(text)


MESSAGES: dict[str, tuple[str, bool | str]] = {
    "a wrapper is its value": ("google.protobuf.Int64Value{value: 5} > 4", True),
    "an empty wrapper is zero": ('google.protobuf.StringValue{} == ""', True),
    "a wrapper may be compared with null": ("google.protobuf.BoolValue{value: true} == null", False),
    "numbers of 32 bits overflow": ("google.protobuf.Int32Value{value: 5000000000} == 5", "integer overflow"),
    "floats of 32 bits are rounded": ("google.protobuf.FloatValue{value: 0.1} == 0.1", False),
    "a field may be optional": ("google.protobuf.Int64Value{?value: optional.none()} == 0", True),
    "numbers in a struct are doubles": ('google.protobuf.Struct{fields: {"a": 1}} == {"a": 1.0}', True),
    "large numbers in a list are texts": (
        'google.protobuf.ListValue{values: [9007199254740993]} == ["9007199254740993"]',
        True,
    ),
    "an empty value is null": ("google.protobuf.Value{} == null", True),
    "a duration has two parts": ('google.protobuf.Duration{seconds: 1, nanos: 5} > duration("1s")', True),
    "an instant has two parts": ("google.protobuf.Timestamp{seconds: 1} == timestamp(1)", True),
    "empty messages are equal": ("google.protobuf.Empty{} == google.protobuf.Empty{}", True),
    "packed messages are not read": (
        "google.protobuf.Any{} == null",
        "unsupported conversion: Muster reads no packed messages",
    ),
    "a device cannot be built": (
        'kubernetes.DRADevice{driver: "a"}.driver == "a"',
        "unknown type 'kubernetes.DRADevice'",
    ),
}


@pytest.mark.parametrize(("text", "answer"), MESSAGES.values(), ids=MESSAGES)
def test_protobuf_messages_evaluate_to_the_expected_value(text: str, answer: bool | str) -> None:
    assert sample_device.evaluate(text) == answer


NO_MESSAGES = {
    "a field of another type": ('google.protobuf.Int64Value{value: "a"} == 1', "expected type of field 'value'"),
    "an unknown field": ("google.protobuf.Int64Value{foo: 1} == 1", "undefined field 'foo'"),
    "a type that is no message": ("int{} == 1", "'int' is not a message type"),
    "an unknown message": ("foo.Bar{} == 1", "undeclared reference to 'foo.Bar'"),
    "a message of a value": ("(1){} == 1", "Syntax error"),
    "a field of a wrapper": ("google.protobuf.Int64Value{value: 5}.value == 5", "does not support field selection"),
}


@pytest.mark.parametrize(("text", "message"), NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_an_invalid_protobuf_message_is_refused_with_the_reason(text: str, message: str) -> None:
    assert message in sample_device.compile_error(text)


def test_a_selector_may_be_a_wrapped_bool_from_release_37_on() -> None:
    text = "google.protobuf.BoolValue{value: true}"

    assert "not wrapper(bool)" in sample_device.compile_error(text)
    assert isinstance(programs.compile_device(text, profile=environment.Profile(release=37)), programs.Program)


ZONES: dict[str, tuple[str, bool | str]] = {
    "a zone's name": ('timestamp("2024-07-01T12:00:00Z").getHours("America/New_York") == 8', True),
    "its winter": ('timestamp("2024-01-01T12:00:00Z").getHours("America/New_York") == 7', True),
    "the first year": ('timestamp("0001-01-01T00:00:00Z").getFullYear("America/New_York") == 0', True),
    "the last year": ('timestamp("9999-12-31T23:59:59Z").getFullYear("Asia/Kolkata") == 10000', True),
    "an unknown name": ('timestamp(0).getHours("No/Such") == 0', "unknown time zone No/Such"),
    "a path": ('timestamp(0).getHours("../zones") == 0', "unknown time zone ../zones"),
    "the machine's zone": ('timestamp(0).getHours("Local") == 0', "unknown time zone Local"),
}


@pytest.mark.parametrize(("text", "answer"), ZONES.values(), ids=ZONES)
def test_timestamps_are_read_in_the_given_time_zone(text: str, answer: bool | str) -> None:
    assert sample_device.evaluate(text) == answer


def test_a_price_is_an_int() -> None:
    price = sample_device.program(f"{D}.index * 10", result=Result.INT)

    assert isinstance(sample_device.VALUE, programs.DeviceValue)
    assert price.evaluate(sample_device.VALUE) == 30
    assert isinstance(programs.compile_device("true", result=Result.INT), programs.CompileError)


def test_an_attribute_that_is_no_int_is_no_price() -> None:
    price = sample_device.program(f"{D}.ecc", result=Result.INT)

    with pytest.raises(programs.EvaluationError, match="could not be converted to int"):
        price.evaluate(sample_device.VALUE)


@pytest.mark.parametrize("value", [None, devices.Version("1.2"), ("a", "b")], ids=["none", "version", "list"])
def test_a_device_with_an_unreadable_attribute_fails_every_text(value: devices.AttributeValue | None) -> None:
    broken = programs.device_value("d", devices.Device(name="x", attributes={"broken": value}))

    assert isinstance(broken, programs.UnreadableDevice)
    assert str(sample_device.evaluate("true", broken)).startswith("attribute broken: ")


def test_lists_are_read_behind_their_gate() -> None:
    value = programs.device_value("d", devices.Device(name="x", attributes={"all": (1, 2)}), lists=True)
    program = sample_device.program(
        'device.attributes["d"].all.exists(x, x == 2)', profile=environment.Profile(lists=True)
    )

    assert isinstance(value, programs.DeviceValue)
    assert program.evaluate(value) is True


def test_the_api_server_does_not_know_includes_yet() -> None:
    text = f'{D}.model.includes("A100")'

    assert sample_device.evaluate(text) is True
    assert "undeclared reference to 'includes'" in sample_device.compile_error(text, environment.Profile(stored=False))


def test_what_one_evaluation_does_to_a_capacity_no_other_sees() -> None:
    most = devices.Capacity(value=Fraction(2**63 - 1), text="9223372036854775807")
    small = devices.Capacity(value=Fraction(8), text="8")
    device = programs.device_value("a", devices.Device(name="x", capacity={"most": most, "small": small}))
    capacity = 'device.capacity["a"]'
    added = f"{capacity}.most.add(1).isGreaterThan(quantity('9223372036854775808'))"
    compared = f"{capacity}.small.isLessThan({capacity}.most)"
    whole = f"{capacity}.small.isInteger()"

    assert [sample_device.evaluate(text, device) for text in (added, added, compared, whole)] == [
        False,
        False,
        True,
        True,
    ]
    assert sample_device.evaluate(f"{compared} && {whole}", device) is False


def test_a_sum_at_the_limit_of_64_bits_is_that_of_the_release() -> None:
    most = devices.Capacity(value=Fraction(2**63 - 1), text="9223372036854775807")
    device = programs.device_value("a", devices.Device(name="x", capacity={"most": most}))
    text = 'device.capacity["a"].most.add(1).isGreaterThan(device.capacity["a"].most)'

    answers = {
        release: sample_device.program(text, profile=environment.Profile(release=release)).evaluate(device)
        for release in (36, 37)
    }

    assert answers == {36: False, 37: True}
