"""Named formats of strings: k8s.io/apiserver pkg/cel/library/format.go over apimachinery's validation and strfmt."""

import datetime as dt
import re
from collections.abc import Callable
from types import MappingProxyType

from admission.cel.core import values
from admission.cel.core.declarations import Implementation, Overload, function, member
from admission.cel.core.values import NamedFormat
from admission.cel.library import urls

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_BASE64 = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")

Check = Callable[[str], list[str]]


def _matching(shape: re.Pattern[str], longest: int, kind: str) -> Check:
    """Return a check of length and pattern, each with its own message, as apimachinery reports them."""

    def check(text: str) -> list[str]:
        problems = [] if len(text.encode()) <= longest else [f"must be no more than {longest} bytes"]
        if not shape.fullmatch(text):
            problems.append(f"{kind}; regex used for validation is '{shape.pattern}'")
        return problems

    return check


def _as_prefix(check: Check) -> Check:
    """Return the check of a name prefix, which may end in a dash."""
    return lambda text: check(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


_label = _matching(_LABEL, 63, "a lowercase RFC 1123 label")
_subdomain = _matching(_SUBDOMAIN, 253, "a lowercase RFC 1123 subdomain")
_label_1035 = _matching(_LABEL_1035, 63, "a DNS-1035 label")
_name = _matching(_NAME, 63, "name part must consist of alphanumeric characters, '-', '_' or '.'")


def _label_value(text: str) -> list[str]:
    return _name(text) if text else []


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.partition("/")
    if "/" in name:
        return ["a qualified name must consist of a prefix and a name"]
    if not slash:
        prefix, name = "", text
    problems: list[str] = []
    if slash:
        problems += (
            ["prefix part must be non-empty"] if not prefix else [f"prefix part {f}" for f in _subdomain(prefix)]
        )
    return [*problems, *([] if name else ["name part must be non-empty"]), *_name(name)]


def _simple(test: Callable[[str], bool], message: str) -> Check:
    return lambda text: [] if test(text) else [message]


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        # Go has a year 0, a leap year like 2000.
        dt.date(int(match[1]) or 2000, int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    day, mark, clock = text.lower().partition("t")
    match = _CLOCK.fullmatch(clock.partition("t")[0])
    if not mark or match is None or not _is_date(day):
        return False
    return match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


_CHECKS: dict[str, Check] = {
    "dns1123Label": _label,
    "dns1123Subdomain": _subdomain,
    "dns1035Label": _label_1035,
    "dns1123LabelPrefix": _as_prefix(_label),
    "dns1123SubdomainPrefix": _as_prefix(_subdomain),
    "dns1035LabelPrefix": _as_prefix(_label_1035),
    "qualifiedName": _qualified_name,
    "labelValue": _label_value,
    "uri": _simple(urls.is_url, "invalid URI"),
    "uuid": _simple(lambda text: _UUID.fullmatch(text) is not None, "does not match the UUID format"),
    "byte": _simple(lambda text: _BASE64.fullmatch(text) is not None, "invalid base64"),
    "date": _simple(_is_date, "invalid date"),
    "datetime": _simple(_is_datetime, "invalid datetime"),
}

_PATTERN_SIZES = {
    "dns1123Subdomain": 60,
    "dns1123SubdomainPrefix": 60,
    "qualifiedName": 60,
    "labelValue": 40,
    "uri": 1_103,
    "uuid": 70,
    "byte": 84,
    "date": 71,
    "datetime": 71,
}
FORMATS = MappingProxyType(
    {name: NamedFormat(name, _PATTERN_SIZES.get(name, 30), check) for name, check in _CHECKS.items()}
)


def _named(name: str) -> values.Optional:
    return values.some(FORMATS[name]) if name in FORMATS else values.NONE


def _validate(named: NamedFormat, text: str) -> values.Optional:
    problems = named.validate(text)
    return values.some(tuple(problems)) if problems else values.NONE


def _constant(named: NamedFormat) -> Implementation:
    return lambda: named


OVERLOADS: tuple[Overload, ...] = (
    *(function(f"format.{name}", "-> NamedFormat", _constant(named)) for name, named in FORMATS.items()),
    function("format.named", "string -> optional(NamedFormat)", _named),
    member("validate", "NamedFormat, string -> optional(list(string))", _validate),
)
