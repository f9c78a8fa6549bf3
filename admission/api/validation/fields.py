"""Validation of one field: text, number, length of a list, labels, duplicate names; problems go to the reader."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from admission.api.values import formats, quantities
from admission.api.values.decoding import Reader
from admission.api.values.formats import Rule

LARGEST_INTEGER = 2**63 - 1
"""Kubernetes stores integers in 64 bits."""
SMALLEST_INTEGER = -(2**63)
LARGEST_INT32 = 2**31 - 1
LARGEST_ANNOTATIONS = 256 * 1024
"""The most bytes of all annotations of an object, keys and values."""


def text(reader: Reader, name: str, rule: Rule) -> None:
    """Judge a required text."""
    found = reader.required(name)
    if found:
        _check(reader, name, found, rule)


def optional(reader: Reader, name: str, rule: Rule) -> None:
    """Judge a text that may be absent, but not empty."""
    if name in reader:
        text(reader, name, rule)


def invalid(reader: Reader, name: str, why: str) -> None:
    """Note that the API server refuses a field's value. why: in its words, what the value must be."""
    reader.problem(name, f"Invalid value: {reader.raw(name)!r}: {why}")


def needed(reader: Reader, name: str, why: str = "") -> str:
    """Return a text that the API server requires; note that it is missing. why: in its words."""
    found = reader.text(name)
    if not found and reader.raw(name) in (None, ""):
        reader.problem(name, f"Required value: {why}" if why else "Required value")
    return found


def supported(reader: Reader, name: str, known: Sequence[str], default: str = "") -> str:
    """Return a text that must be a known one, or the default if absent. An empty text is not absent."""
    if name not in reader:
        return default
    found = reader.text(name)
    if isinstance(reader.raw(name), str) and found not in known:
        reader.problem(name, unsupported(found, known))
    return found


def unsupported(found: str, known: Sequence[str]) -> str:
    """Return what to say of a text that is not one of the known ones."""
    return f"Unsupported value: {found!r}: supported values: {', '.join(repr(one) for one in known)}"


def int32(reader: Reader, name: str, *, least: int, most: int, default: int = 0) -> int:
    """Return an integer within bounds, or the default if absent."""
    if name not in reader:
        return default
    before = len(reader.problems)
    found = reader.int32(name)
    if len(reader.problems) == before and not least <= found <= most:
        bounds = (
            f"greater than or equal to {least}" if most >= LARGEST_INT32 else f"between {least} and {most}, inclusive"
        )
        invalid(reader, name, f"must be {bounds}")
    return found


def between(least: int, most: int = LARGEST_INT32) -> str:
    """Return what to say of a number that is outside of bounds."""
    return f"must be between {least} and {most}, inclusive"


def not_negative(reader: Reader, *names: str) -> None:
    """Judge integers that may be absent."""
    for name in names:
        if name in reader and reader.integer(name) < 0:
            invalid(reader, name, "must be greater than or equal to 0")


def labels(reader: Reader, name: str) -> dict[str, str]:
    """Judge the keys and values of labels, and return them."""
    found = reader.pairs(name)
    for key, value in found.items():
        for message in filter(None, (formats.key(key), formats.value(value))):
            reader.problem(f"{name}.{key}", f"Invalid value: {message}")
    return found


def annotations(reader: Reader, name: str) -> None:
    """Judge the keys of annotations, which may have upper case in their domain, and their size."""
    found = reader.pairs(name)
    for key in found:
        if message := formats.key(key.lower()):
            reader.problem(f"{name}.{key}", f"Invalid value: {message}")
    if sum(len(text.encode(errors="surrogatepass")) for pair in found.items() for text in pair) > LARGEST_ANNOTATIONS:
        reader.problem(name, f"Too long: may not be more than {LARGEST_ANNOTATIONS} bytes")


def texts(reader: Reader, name: str, rule: Rule, *, most: int) -> tuple[str, ...]:
    """Judge every text of a list, and return them. most: the largest number of texts."""
    found = reader.texts(name)
    for index, item in enumerate(found):
        _check(reader, f"{name}[{index}]", item, rule)
    sized(reader, name, len(found), most)
    unique(reader, found, lambda index: f"{name}[{index}]")
    return found


def keys(reader: Reader, name: str, rule: Rule, *, most: int | None = None) -> None:
    """Judge every key of a mapping."""
    found = reader.keys(name)
    for item in found:
        _check(reader, f"{name}[{item}]", item, rule)
    if most is not None:
        sized(reader, name, len(found), most)


def one_of(reader: Reader, name: str, known: Iterable[str]) -> str:
    """Judge a text that must be a known one, or absent; return it."""
    found = reader.text(name)
    if found and found not in known:
        reader.problem(name, f"is {found!r}, one of {', '.join(known)} is expected")
    return found


def integer(reader: Reader, name: str, *, least: int = SMALLEST_INTEGER, default: int = 0) -> int:
    """Return an integer of 64 bits that is at least `least`; the default if it is a problem."""
    found = reader.integer(name, default)
    if not SMALLEST_INTEGER <= found <= LARGEST_INTEGER:
        reader.problem(name, f"is {found}, more than 64 bits hold")
        return default
    if found < least:
        reader.problem(name, f"is {found}, at least {least} is expected")
        return default
    return found


def quantity(reader: Reader, name: str) -> Fraction | None:
    """Return a quantity that is not negative; None if absent or a problem."""
    found: Fraction | None = reader.parsed(name, quantities.parse, None)
    if found is not None and found < 0:
        reader.problem(name, f"is {reader.raw(name)}, which is negative; at least 0 is expected")
        return None
    return found


def amount(reader: Reader, name: str) -> Fraction | None:
    """Return a quantity of either sign; None if absent or a problem."""
    found: Fraction | None = reader.parsed(name, quantities.parse, None)
    return found


def sized(reader: Reader, name: str, count: int, most: int) -> None:
    """Note that a list or mapping is too long."""
    if count > most:
        reader.problem(name, f"holds {count} entries, at most {most} are allowed")


def unique(reader: Reader, names: Sequence[str], field: Callable[[int], str]) -> None:
    """Note every duplicate name. field: returns the field of the name at an index."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in first:
            reader.problem(field(index), f"{name!r} stands twice: at {field(first[name])} too")
        first.setdefault(name, index)


def _check(reader: Reader, name: str, found: str, rule: Rule) -> None:
    if message := rule(found):
        reader.problem(name, message)
