"""Semantic versions: k8s.io/apiserver pkg/cel/library/semverlib.go over blang/semver v4, strict x.y.z."""

import re
from typing import Any

from admission.cel.core import errors, literals
from admission.cel.core.declarations import Overload, function, member
from admission.cel.core.values import Semver

_MAX_DIGITS = 20
_VERSION = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)


def parse(text: str) -> Semver:
    """Parse a version strictly. Raises EvaluationError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise errors.EvaluationError(_problem(text))
    major, minor, patch = (_number(match[place], text) for place in (1, 2, 3))
    before = tuple(map(_identifier, match[4].split("."))) if match[4] else ()
    # A release sorts after all its pre-releases.
    return Semver((major, minor, patch, not before, before), (major, minor, patch))


def parse_tolerant(text: str, tolerant: bool) -> Semver:  # noqa: FBT001 - CEL's own argument
    return parse(normalized(text) if tolerant else text)


def normalized(text: str) -> str:
    """Drop one v, add missing parts, strip leading zeros, as the library's normalizeAndParse does."""
    text = text.removeprefix("v")
    parts = text.split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped and stripped[0] not in "+-" else f"0{stripped}"
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise errors.EvaluationError("Short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _identifier(text: str) -> tuple[Any, ...]:
    if text.isdigit():
        if len(text) > 1 and text[0] == "0":
            raise errors.EvaluationError(f"Numeric PreRelease version must not contain leading zeroes {text[:40]!r}")
        return (0, _number(text, text), "")
    return (1, 0, text)


def _number(digits: str, text: str) -> int:
    """Parse a number without leading zeros. Too many digits are out of range without converting them."""
    if len(digits) > _MAX_DIGITS or int(digits) > literals.UINT_MAX:
        raise errors.EvaluationError(f"number out of range in version {text[:40]!r}")
    return int(digits)


def _problem(text: str) -> str:
    if not text:
        return "Version string empty"
    if text.count(".") < 2:
        return "No Major.Minor.Patch elements found"
    return f"Invalid character(s) found in version {text[:40]!r}"


def _signed(number: int) -> int:
    return number if number <= literals.INT_MAX else number - 2**64


def _is_semver(text: str, tolerant: bool = False) -> bool:  # noqa: FBT001, FBT002 - CEL's own argument
    try:
        parse_tolerant(text, tolerant)
    except errors.EvaluationError:
        return False
    return True


def _compare(left: Semver, right: Semver) -> int:
    return (left.order > right.order) - (left.order < right.order)


OVERLOADS: tuple[Overload, ...] = (
    function("semver", "string -> Semver", parse),
    function("semver", "string, bool -> Semver", parse_tolerant),
    function("isSemver", "string -> bool", _is_semver),
    function("isSemver", "string, bool -> bool", _is_semver),
    member("major", "Semver -> int", lambda v: _signed(v.numbers[0])),
    member("minor", "Semver -> int", lambda v: _signed(v.numbers[1])),
    member("patch", "Semver -> int", lambda v: _signed(v.numbers[2])),
    member("isGreaterThan", "Semver, Semver -> bool", lambda v, w: v.order > w.order),
    member("isLessThan", "Semver, Semver -> bool", lambda v, w: v.order < w.order),
    member("compareTo", "Semver, Semver -> int", _compare),
)
