"""Lint of selectors: which are warned about, at which position, with which correction."""

import pytest

from admission.api.kubernetes.devices import Device
from admission.cel import lint, programs
from admission.cel.lint import LintRule, Name

MODEL = """device.attributes["gpu.example.com"].model == "H100\""""
GUARDED_MODEL = """"model" in device.attributes["gpu.example.com"] && """ + MODEL
VERSION = Name("attributes", "d", "v")

WARNED = {
    "an attribute without a guard": (MODEL, LintRule.UNGUARDED_LOOKUP, (1, 37), GUARDED_MODEL),
    "a guard of another attribute": (
        f"'x' in device.attributes['y'] || {MODEL}",
        LintRule.UNGUARDED_LOOKUP,
        (1, 70),
        f"\"model\" in device.attributes[\"gpu.example.com\"] && ('x' in device.attributes['y'] || {MODEL})",
    ),
    "a capacity without a guard": (
        "device.capacity['d'].memory.compareTo(quantity('80Gi')) >= 0",
        LintRule.UNGUARDED_LOOKUP,
        (1, 21),
        "'memory' in device.capacity['d'] && device.capacity['d'].memory.compareTo(quantity('80Gi')) >= 0",
    ),
    "two attributes without a guard": (
        "device.attributes['d'].a == 1 &&\n device.attributes['d'].b == 2",
        LintRule.UNGUARDED_LOOKUP,
        (1, 23),
        "'a' in device.attributes['d'] && device.attributes['d'].a == 1 &&\n device.attributes['d'].b == 2",
    ),
    "a name that is computed has no correction": (
        "device.attributes[device.driver].model == 'a'",
        LintRule.UNGUARDED_LOOKUP,
        (1, 1),
        "",
    ),
    "a test for a domain": (
        "has(device.attributes.gpu)",
        LintRule.ALWAYS_TRUE,
        (1, 4),
        "'gpu' in device.attributes",
    ),
    "an optional domain": ("device.attributes[?'d'].hasValue()", LintRule.ALWAYS_TRUE, (1, 18), ""),
    "a version as text": (
        "device.driver == 'd' && device.attributes['d'].v == '1.2.3'",
        LintRule.VERSION_AS_TEXT,
        (1, 53),
        "device.driver == 'd' && device.attributes['d'].v == semver('1.2.3')",
    ),
    "a version as text on the left": (
        "device.driver == 'd' && '1.2.3' != device.attributes['d'].v",
        LintRule.VERSION_AS_TEXT,
        (1, 25),
        "device.driver == 'd' && semver('1.2.3') != device.attributes['d'].v",
    ),
}


@pytest.mark.parametrize(("text", "rule", "place", "instead"), WARNED.values(), ids=WARNED)
def test_a_trap_in_a_selector_is_reported_with_its_place_and_correction(
    text: str, rule: LintRule, place: tuple[int, int], instead: str
) -> None:
    (warning,) = lint.find(text)

    assert (warning.rule, (warning.line, warning.column), warning.instead) == (rule, place, instead)
    assert not instead or not lint.find(warning.instead)


SOUND = {
    "a guard of the driver": f'device.driver == "gpu.example.com" && {MODEL}',
    "a guard by in": GUARDED_MODEL,
    "a guard by has": "has(device.attributes['d'].x) && device.attributes['d'].x > 1",
    "a guard behind the look-up": f'{MODEL} && device.driver == "gpu.example.com"',
    "a default": "device.attributes['d'].?x.orValue(0) > 1",
    "a condition": "device.driver == 'd' ? device.attributes['d'].x : false",
    "a test for an attribute": "has(device.attributes['d'].x)",
    "text that is no version": "device.driver == 'd' && device.attributes['d'].model == '1.2'",
    "no attribute at all": "device.driver == 'd'",
    "what does not compile, which others report": "device.foo ==",
}


@pytest.mark.parametrize("text", SOUND.values(), ids=SOUND)
def test_a_sound_selector_has_no_warning(text: str) -> None:
    assert lint.find(text) == ()


def test_a_class_that_selects_its_driver_guards_the_requests() -> None:
    assert lint.find(MODEL, before=["device.driver == 'gpu.example.com'"]) == ()
    assert lint.find(MODEL, before=["true"]) != ()


def test_a_version_compared_as_text_is_reported_where_devices_publish_a_version() -> None:
    text = "device.driver == 'd' && device.attributes['d'].v == '1.2.3'"

    assert lint.find(text, types={VERSION: {"string"}}) == ()
    (warning,) = lint.find(text, types={VERSION: {"version"}})
    assert "is a version" in warning.message


TYPES = {
    "text for a number": ("'8'", {"int"}, True),
    "a number for text": ("8", {"string"}, True),
    "a bool for text": ("true", {"string", "int"}, True),
    "the same type": ("8", {"int"}, False),
    "one of the types": ("8", {"int", "string"}, False),
    "nothing is known": ("8", set(), False),
}


@pytest.mark.parametrize(("literal", "types", "warned"), TYPES.values(), ids=TYPES)
def test_another_type_is_never_equal(literal: str, types: set[str], warned: bool) -> None:
    found = lint.find(f"device.driver == 'd' && device.attributes['d'].v == {literal}", types={VERSION: types})

    assert [warning.rule for warning in found] == [LintRule.NEVER_EQUAL] * warned


def test_a_correction_selects_what_was_meant() -> None:
    (warning,) = lint.find(MODEL)
    corrected = programs.compile_device(warning.instead)
    assert isinstance(corrected, programs.Program)

    answers = [
        corrected.evaluate(programs.device_value(driver, device))
        for driver, device in (
            ("gpu.example.com", Device(name="gpu-0", attributes={"model": "H100"})),
            ("gpu.example.com", Device(name="gpu-0", attributes={"model": "A100"})),
            ("gpu.example.com", Device(name="gpu-0")),
            ("nic.example.com", Device(name="gpu-0", attributes={"model": "H100"})),
        )
    ]

    assert answers == [True, False, False, False]
