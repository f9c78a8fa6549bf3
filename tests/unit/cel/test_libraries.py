"""Functions at their edges. Each answer was compared with cel-go's (Kubernetes 1.36.3)."""

import pytest

from tests.unit.device_cel import sample_device
from tests.unit.device_cel.sample_device import D

TEN = 10 * "a"
LEAST = "-9223372036854775808"

TRUE = {
    "a URL without a scheme has a host all the same": 'url("//host/p").getHost() == "host"',
    "a path may begin with three slashes": 'url("///a").getEscapedPath() == "///a"',
    "a path is escaped anew only where it was written wrongly": 'url("http://h/a b").getEscapedPath() == "/a%20b"',
    "brackets may stand in a path": 'url("http://h/[x]").getEscapedPath() == "/[x]"',
    "unreadable parts of a query are left out": 'url("http://h?x=1;y&z=%zz&w=a+b").getQuery() == {"w": ["a b"]}',
    "a zone is part of an address's name": 'url("http://[fe80::1%25en0]:1/").getHostname() == "fe80::1%en0"',
    "a user has no space, and no broken escape": '!isURL("http://a b@h/") && !isURL("http://a%zz@h/")',
    "a port must be digits": '!isURL("http://a:80x/")',
    "an instant keeps the zone it was written in": (
        'string(timestamp("2024-01-01T00:00:00+02:00") + duration("1s")) == "2024-01-01T00:00:01+02:00"'
    ),
    "a zone may lead into the year 0": 'timestamp("0001-01-01T00:00:00Z").getFullYear("-08:00") == 0',
    "the week begins on Sunday": 'timestamp("2024-03-10T00:00:00Z").getDayOfWeek() == 0',
    "days of the year count from 0": 'timestamp("2024-12-31T00:00:00Z").getDayOfYear() == 365',
    "seconds before 1970 count on": "timestamp(-1).getSeconds() == 59",
    "parts of a duration are truncated": 'duration("-90s").getMinutes() == -1',
    "a duration is written in seconds": 'string(duration("1ns")) == "0.000000001s"',
    "an empty text is found at its offset": '"abc".indexOf("", 5) == 5',
    "an offset beyond the end finds nothing": '"abc".indexOf("c", 5) == -1',
    "an empty separator splits characters": '"abc".split("", 2) == ["a", "bc"]',
    "replacing counts": '"aaa".replace("a", "b", 2) == "bba"',
    "a text that was replaced counts no more": (
        f'"{TEN}".replace("a", "{100 * TEN}").replace("a", "{6 * TEN}").replace("a", "b").size() == 600000'
    ),
    "the least integer has no rest": f"{LEAST} % 1 == 0",
    "doubles are written as Go writes them": 'string(123456789.0) == "1.23456789e+08" && string(0.0001) == "0.0001"',
    "doubles are read as Go reads them": 'double(dyn("0x1.8p1")) == 3.0 && double(dyn("1_0")) == 10.0',
    "a double in a written list is its exact int": "!(dyn(9223372036854775807) in [9223372036854775808.0])",
    "an int in a written list is found by its double": "dyn(9223372036854775808.0) in [9223372036854775807]",
    "keys are numbers, whatever their kind": '{1: "a"}[dyn(1.0)] == "a" && {1: "a"}[dyn(1u)] == "a"',
    "empty lists are keys by what they are, not by what they hold": "{[]: 1, []: 2}.size() == 2",
    "fixed numbers are grouped": '"%.1f".format([1234567.0]) == "1,234,567.0"',
    "a scientific precision is a width": '"%.2e".format([0.00012]) == "1.200000\N{MULTIPLICATION SIGN}10⁻⁰⁴"',
    "a number may be the name of what has no digits": (
        '"%.1f %.1e %f".format(["Infinity", "-Infinity", "NaN"]) == "\N{INFINITY} -\N{INFINITY} NaN"'
    ),
    "behind the end of a list is nothing": "[7][?0].hasValue() && ![7][?1].hasValue() && ![7][?-1].hasValue()",
    "strings in lists are quoted": '"%s".format([["a", "b"]]) == "[\\"a\\", \\"b\\"]"',
    "maps are written in the order of their keys": '"%s".format([{"b": 1, "a": 2}]) == \'{"a":2, "b":1}\'',
    "quantities may lack digits": 'quantity("k") == quantity("0")',
    "quantities round up to 10^-9": 'quantity("0.1n") == quantity("1n") && quantity("-0.1n") == quantity("-1n")',
    "a quantity beyond doubles is infinite": (
        f'quantity("{40 * "1234567890"}").asApproximateFloat() == 1.0 / 0.0'
        f' && quantity("-{40 * "1234567890"}").asApproximateFloat() == -1.0 / 0.0'
    ),
    "numbers before a release are numbers": '!isSemver("1.2.3-18446744073709551616")',
    "a tolerant version is completed": 'semver("v01.2", true) == semver("1.2.0")',
    "IPv4 addresses in IPv6 are refused": '!isIP("::ffff:1.2.3.4") && isIP("::1.2.3.4")',
    "bits behind a prefix stay": 'cidr("10.0.0.5/8") != cidr("10.0.0.0/8")',
    "a block contains itself": 'cidr("10.0.0.0/8").containsCIDR("10.0.0.0/8")',
    "shared address space is global": 'ip("100.64.0.1").isGlobalUnicast()',
    "has does not look into an optional that a map holds": '!has({"a": optional.of({"b": 1})}.a.b)',
    "has looks into an optional chain": 'has({"a": {"b": 1}}.?a.b)',
    "the first extreme stays among what has no order": "[0.0 / 0.0, 1.0].max() != 1.0",
    "label prefixes may end in a dash": '!format.dns1123LabelPrefix().validate("abc-").hasValue()',
    "a label may have 63 characters": (
        f'!format.dns1123Label().validate("{6 * TEN}aaa").hasValue()'
        f' && format.dns1123Label().validate("{6 * TEN}aaaa").hasValue()'
    ),
    "every flaw is told": (
        'format.dns1123Label().validate("-" + "a"'
        '.replace("a", "aaaaaaaa").replace("a", "aaaaaaaaa")).value().size() == 2'
    ),
}


@pytest.mark.parametrize("text", TRUE.values(), ids=TRUE)
def test_a_library_function_gives_the_documented_result(text: str) -> None:
    assert sample_device.evaluate(text) is True


ERRORS = {
    "a short version has nothing before a release": (
        'semver("1.2-rc", true) == semver("1.2.0")',
        "Short version cannot contain PreRelease/Build meta data",
    ),
    "a short version has no build": (
        'semver("1.2+b", true) == semver("1.2.0")',
        "Short version cannot contain PreRelease/Build meta data",
    ),
    "the least integer is not divided by -1": (f"{D}.index > 0 && {LEAST} % -1 == 0", "integer overflow"),
}


@pytest.mark.parametrize(("text", "message"), ERRORS.values(), ids=ERRORS)
def test_what_a_function_cannot_answer_is_an_error_that_says_why(text: str, message: str) -> None:
    assert sample_device.evaluate(text) == message
