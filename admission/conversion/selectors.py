"""CEL selectors as early walkthroughs wrote them, in the words of `resource.k8s.io/v1`.

`device.attributes["memory"].quantity().value() >= 24000000000` was never valid, in any version: attributes stand below
their domain, their values need no call, and sizes are capacities. What is no such look-up is left as it is, and a
changed selector has to compile.
"""

import re
from dataclasses import dataclass, field

from admission.cel.limits import Problem
from admission.conversion.findings import Level
from admission.device_cel import limits
from admission.device_cel.environment import Profile

NEWEST = Profile(release=37, lists=True)

MAX_LENGTH = 10 * 1024
"""The longest expression that the API server takes (resource.CELSelectorExpressionMaxLength), in characters."""

_STRING = r"""(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
_NUMBER = r"\d+(?:\s*\*\s*\d+)*"
_COMPARED = rf"\s*(?P<op>==|!=|>=|<=|>|<)\s*(?P<right>{_STRING}|(?:quantity|semver)\s*\(\s*{_STRING}\s*\)|{_NUMBER}\b)"
_TYPES = "string|int|bool|version|quantity"
_TOKEN = re.compile(
    rf"""device\.(?P<map>attributes|capacity)
    (?:\[\s*(?P<key>{_STRING})\s*\]|\.(?P<bare>[A-Za-z_]\w*))
    (?:(?:\.(?P<inner>[A-Za-z_]\w*)|\[\s*(?P<quoted>{_STRING})\s*\])(?=\.(?:{_TYPES})\b))?
    (?:\.(?P<type>{_TYPES})\b(?:\(\s*\))?(?P<value>\.value\(\s*\))?|(?=\s*(?:[=!<>]=|[<>]|&&|\|\||\)|$)))
    (?:{_COMPARED})?
    |{_STRING}""",
    re.VERBOSE,
)
_SIZE = re.compile(
    rf"device\.attributes\[\s*(?P<key>{_STRING})\s*\]\.(?P<name>\w*[mM]em\w*)\s*(?P<op>>=|<=|==|>|<)\s*(?P<right>{_NUMBER})\b"
)
_DRIVER = re.compile(rf"device\.driver\s*==\s*(?P<name>{_STRING})|(?P<left>{_STRING})\s*==\s*device\.driver\b")
_DOMAIN = re.compile(r"""device\.(?:attributes|capacity)\[\s*["']([^"'/]+\.[^"'/]+)["']\s*\]""")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_SUFFIXES = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("T", 10**12), ("G", 10**9), ("M", 10**6))
_LONGEST_NUMBER = 40
SMALLEST_SIZE = 10**6
"""Numbers from here on that a memory is compared with are bytes."""


@dataclass(slots=True)
class Converted:
    """A selector as it is written today. remarks: what to say of it."""

    text: str
    remarks: list[tuple[Level, str]] = field(default_factory=list)


def drivers(text: str) -> list[str]:
    """Return the drivers that a selector asks for by name."""
    return [_unquoted(found["name"] or found["left"]) for found in _DRIVER.finditer(text)]


def domains(text: str) -> list[str]:
    """Return the domains in which a selector looks things up."""
    return _DOMAIN.findall(text)


def domain_of(driver: str) -> str:
    """Return the domain of a driver's attributes: its name, or what is before a slash, which no driver's name has."""
    return driver.partition("/")[0]


def convert(text: str, domain: str | None, *, compiles: bool) -> Converted:
    """Return a selector as it is written today.

    domain: that of names without one; None if it is not known. compiles: whether a selector in which nothing changes
    has to compile, too.
    """
    found = Converted(text)
    if len(text) > MAX_LENGTH:
        return found
    unknown: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        if match["map"] is None:
            return match[0]
        return _lookup(match, domain, unknown, found)

    changed = _TOKEN.sub(replaced, text)
    if unknown:
        names = ", ".join(dict.fromkeys(unknown))
        message = f"{names} need a domain, which is not known here: write device.attributes['<driver>'].{unknown[0]}"
        return Converted(text, [(Level.LEFT, message)])
    for driver in drivers(text):
        if "/" in driver:
            found.remarks.append((Level.LEFT, _no_driver(driver)))
    if changed != text or compiles:
        problem = limits.check(changed, profile=NEWEST)
        if problem is not None and problem.problem is not Problem.TOO_LONG:
            written = f" Written as `{changed}`, it" if changed != text else ""
            return Converted(
                text, [(Level.LEFT, f"{written} is no CEL that Kubernetes takes: {problem.message}".lstrip())]
            )
    found.text = changed
    if changed != text:
        found.remarks.insert(0, (Level.CHANGED, f"is written {_one_line(changed)}"))
    found.remarks += [(Level.CHECK, message) for message in _sizes(changed)]
    return found


def is_of_walkthroughs(text: str) -> bool:
    """Return whether a selector looks things up as early walkthroughs did, and is CEL once that is converted."""
    converted = convert(text, "example.com", compiles=False)
    return converted.text != text


def _no_driver(driver: str) -> str:
    return (
        f"no device has the driver {driver!r}, since names of drivers have no slash: write the name under which the"
        " driver publishes its ResourceSlices (kubectl get resourceslices)"
    )


def _lookup(match: re.Match[str], domain: str | None, unknown: list[str], found: Converted) -> str:
    """Return a look-up as it is written today, with what it is compared with."""
    key = _unquoted(match["key"]) if match["key"] else match["bare"]
    before, slash, after = key.partition("/")
    inner = match["inner"] or (_unquoted(match["quoted"]) if match["quoted"] else "")
    if "." in key and not slash and not inner:
        # A domain, with an attribute that has the name of a type.
        return match[0]
    name, of = (inner, key) if inner else (after, before) if slash else (key, domain)
    if of is None:
        unknown.append(name)
        return match[0]
    quote = (match["key"] or '"')[0]
    is_size = match["map"] == "capacity" or match["type"] == "quantity"
    selected = f".{name}" if _IDENTIFIER.fullmatch(name) else f"[{quote}{name}{quote}]"
    lookup = f"device.{'capacity' if is_size else 'attributes'}[{quote}{of}{quote}]{selected}"
    operator, right = match["op"], match["right"]
    if operator is None:
        return lookup
    if is_size:
        return f"{lookup}.compareTo({_quantity(right, quote)}) {operator} 0"
    if match["type"] == "version":
        return f"{lookup}.compareTo({_version(right, found)}) {operator} 0"
    if right[0] in "'\"" and operator not in ("==", "!="):
        found.remarks.append((Level.CHECK, f"{name} is compared as text with {right}: '10.0' comes before '9.0'"))
    return f"{lookup} {operator} {right}"


def _quantity(right: str, quote: str) -> str:
    if right[0].isdigit():
        return f"quantity({quote}{_size(_product(right))}{quote})"
    return f"quantity({right})" if right[0] in "'\"" else right


def _version(right: str, found: Converted) -> str:
    if right[0] not in "'\"":
        return right
    text, quote = _unquoted(right), right[0]
    whole = ".".join([*text.split("."), "0", "0"][: max(3, text.count(".") + 1)]) if text[:1].isdigit() else text
    if whole != text:
        found.remarks.append((Level.CHECK, f"versions have three numbers: {text} is taken for {whole}"))
    return f"semver({quote}{whole}{quote})"


def _sizes(text: str) -> list[str]:
    """Return what to say of memory that is compared with a number, which is valid for attributes that are integers."""
    found = []
    for match in _SIZE.finditer(text):
        number = _product(match["right"])
        if number >= SMALLEST_SIZE:
            key, quote = match["key"], match["key"][0]
            lookup = f"device.capacity[{key}].{match['name']}"
            written = f"{lookup}.compareTo(quantity({quote}{_size(number)}{quote})) {match['op']} 0"
            found.append(f"most drivers publish {match['name']} as a capacity; for those write {written}")
    return found


def _product(text: str) -> int:
    """Return the value of a product of numbers, 0 for one that no device has."""
    if len(text) > _LONGEST_NUMBER:
        return 0
    value = 1
    for part in text.split("*"):
        value *= int(part)
    return value


def _size(number: int) -> str:
    """Return a number of bytes with the largest suffix that says it exactly."""
    return next(
        (f"{number // unit}{suffix}" for suffix, unit in _SUFFIXES if number and number % unit == 0), str(number)
    )


def _unquoted(text: str) -> str:
    return text[1:-1]


def _one_line(text: str) -> str:
    return " ".join(text.split())
