"""Selectors as early walkthroughs wrote them, as they are written today."""

import pytest

from admission.conversion import selectors
from admission.conversion.findings import Level
from admission.device_cel import limits

D = "device.attributes['d.io']"
C = "device.capacity['d.io']"

CONVERTED = {
    "a text has no call": ("device.attributes['model'].string() == 'H100'", f"{D}.model == 'H100'"),
    "nor a type": ("device.attributes['model'].string == 'H100'", f"{D}.model == 'H100'"),
    "a truth value alone": ("device.attributes['nvlink'].bool && true", f"{D}.nvlink && true"),
    "a look-up without a type": ("device.attributes['n'] != 2", f"{D}.n != 2"),
    "a field of attributes": ("device.attributes.n >= 2 || device.attributes.ok", None),
    "a name with its domain": ("device.attributes['e.io/n'].int >= 2", "device.attributes['e.io'].n >= 2"),
    "a value's call behind the domain": ("device.attributes['e.io'].n.int() >= 2", "device.attributes['e.io'].n >= 2"),
    "a size behind the domain": (
        "device.attributes['e.io']['memory'].quantity().value() >= 24000000000",
        "device.capacity['e.io'].memory.compareTo(quantity('24G')) >= 0",
    ),
    "a name that is no identifier": ("device.attributes['a-b'].int == 1", f"{D}['a-b'] == 1"),
    "a size in bytes": (
        "device.attributes['memory'].quantity().value() >= 24000000000",
        f"{C}.memory.compareTo(quantity('24G')) >= 0",
    ),
    "a size as a product": (
        "device.capacity['memory'].quantity > 40*1024 * 1024*1024",
        f"{C}.memory.compareTo(quantity('40Gi')) > 0",
    ),
    "a size as a quantity": (
        "device.attributes['memory'].quantity >= quantity('80Gi')",
        f"{C}.memory.compareTo(quantity('80Gi')) >= 0",
    ),
    "a size as a text": ("device.capacity['memory'] < '80Gi'", f"{C}.memory.compareTo(quantity('80Gi')) < 0"),
    "a size that no suffix says": ("device.capacity['n'] == 1500", f"{C}.n.compareTo(quantity('1500')) == 0"),
    "a version": (
        "device.attributes['cuda'].version >= semver('12.2.0')",
        f"{D}.cuda.compareTo(semver('12.2.0')) >= 0",
    ),
    "a version of two numbers": (
        "device.attributes['cuda'].version() >= '12.2'",
        f"{D}.cuda.compareTo(semver('12.2.0')) >= 0",
    ),
    "lines": (
        "device.attributes['a'].bool() &&\n  device.attributes['b'].bool()",
        f"{D}.a &&\n  {D}.b",
    ),
}


@pytest.mark.parametrize(("before", "after"), CONVERTED.values(), ids=CONVERTED)
def test_old_look_ups_are_written_as_today(before: str, after: str | None) -> None:
    converted = selectors.convert(before, "d.io", compiles=True)

    wanted = after or before.replace("device.attributes", 'device.attributes["d.io"]')
    assert converted.text == wanted
    assert limits.check(wanted, profile=selectors.NEWEST) is None
    assert converted.remarks[0][0] is Level.CHANGED
    assert selectors.convert(wanted, "other.io", compiles=True).text == wanted


AS_TODAY = (
    "device.driver == 'd.io' && 'memory' in device.capacity['d.io'] && device.capacity['d.io'].memory.isInteger()",
    "device.attributes['d.io'].string == 'a'",
    "device.attributes['d.io']['quantity'] >= 2",
    "device.attributes['short'].model == \"device.attributes['model'].string() == 'H100'\"",
    "device.attributes.exists(domain, domain == 'x')",
)


@pytest.mark.parametrize("text", AS_TODAY)
def test_selectors_of_today_stay(text: str) -> None:
    converted = selectors.convert(text, "d.io", compiles=True)

    assert (converted.text, converted.remarks) == (text, [])


def test_a_memory_that_is_compared_with_a_number_is_told_and_stays() -> None:
    text = "device.attributes['d.io'].memory >= 40*1024*1024*1024 && device.attributes['d.io'].memoryBanks >= 2"

    converted = selectors.convert(text, None, compiles=True)

    assert converted.text == text
    assert [level for level, _ in converted.remarks] == [Level.CHECK]
    assert converted.remarks[0][1].endswith("write device.capacity['d.io'].memory.compareTo(quantity('40Gi')) >= 0")


def test_texts_in_an_order_are_told() -> None:
    (_, (level, message)) = selectors.convert("device.attributes['a'].string() >= '9.0'", "d.io", compiles=True).remarks

    assert (level, message) == (Level.CHECK, "a is compared as text with '9.0': '10.0' comes before '9.0'")


def test_a_driver_with_a_slash_gives_the_domain_and_is_told() -> None:
    text = "device.driver == 'd.io/gpu' && device.attributes['a'].bool"
    (driver,) = selectors.drivers(text)

    converted = selectors.convert(text, selectors.domain_of(driver), compiles=True)

    assert converted.text == f"device.driver == 'd.io/gpu' && {D}.a"
    assert [level for level, _ in converted.remarks] == [Level.CHANGED, Level.LEFT]


def test_a_rewritten_selector_that_does_not_compile_is_left_as_it_was() -> None:
    text = "device.attributes['memory'].quantity() * 2 > device.count"

    converted = selectors.convert(text, "d.io", compiles=False)

    assert (converted.text, [level for level, _ in converted.remarks]) == (text, [Level.LEFT])


def test_a_very_long_text_is_not_looked_at() -> None:
    text = "device.attributes['a'].bool && " * 1000 + "true"

    assert selectors.convert(text, "d.io", compiles=True).text == text


def test_looking_through_a_hostile_text_takes_no_time() -> None:
    """Each pattern ends at the first character that cannot belong to it."""
    for part in ("device.attributes['", "device.attributes['a']" + " " * 50, "1*", "device.attributes['a'] == 1*"):
        selectors.convert((part * 5000)[: selectors.MAX_LENGTH], "d.io", compiles=False)
