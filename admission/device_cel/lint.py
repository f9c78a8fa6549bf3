"""Lint of device selectors that compile but fail on some devices, or do not mean what they seem to.

An unguarded look-up is found by evaluating the selector on a device of another driver, so that any guard prevents the
warning. A correction is offered only if it succeeds on the same device.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from admission.api.kubernetes.devices import Device
from admission.api.values.work_budget import Work, WorkBudget
from admission.cel.core import ast
from admission.cel.core.errors import EvaluationError
from admission.cel.library import semver
from admission.cel.syntax import lexer, parser
from admission.device_cel import environment, programs
from admission.device_cel.programs import Analysis


class LintRule(StrEnum):
    """The rule that a selector breaks."""

    UNGUARDED_LOOKUP = "UnguardedLookup"
    """It fails on a device of another driver, which stops the scheduling of the pod."""

    ALWAYS_TRUE = "AlwaysTrue"
    """It tests for a domain, which is always present."""

    VERSION_AS_TEXT = "VersionAsText"
    """It compares an attribute with a version literal that is a string."""

    NEVER_EQUAL = "NeverEqual"
    """It compares an attribute with a value of another type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintWarning:
    """A finding. line and column count from 1. instead: the whole corrected selector, empty if unknown."""

    rule: LintRule
    line: int
    column: int
    message: str
    instead: str = ""


class Name(NamedTuple):
    """A look-up in a device: in `attributes` or `capacity`, by domain and name."""

    map: str
    domain: str
    name: str

    def __str__(self) -> str:
        return f"device.{self.map}[{self.domain!r}].{self.name}"


Types = Mapping[Name, Collection[str]]
"""The types of an attribute in the devices: string, int, bool, version, or a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintResult:
    """What lint finds out about one selector. admits_foreign: whether it selects a device of another driver.

    unguarded: warnings that hold unless a selector before it excludes devices of other drivers. others: all others.
    complete: whether all corrections were tried.
    """

    admits_foreign: bool = False
    unguarded: tuple[LintWarning, ...] = ()
    others: tuple[LintWarning, ...] = ()
    complete: bool = True

    def warnings(self, *, guarded: bool) -> tuple[LintWarning, ...]:
        """Return the warnings by their place. guarded: whether devices of other drivers are excluded before."""
        found = self.others if guarded else (*self.unguarded, *self.others)
        return tuple(sorted(found, key=lambda warning: (warning.line, warning.column)))


MAX_COST = 20_000
"""The static cost of the most expensive selector that is evaluated here: a hundred times that of a usual one."""

_FOREIGN = Device(name="of-another-driver")
_DRIVER = "another-driver.invalid"
_MISSING = "no such key: "
_MAX_GUARDS = 16
_STRING = re.compile(r"""[rR]?("{3}.*?"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.DOTALL)


def find(
    text: str,
    *,
    before: Sequence[str] = (),
    types: Types | None = None,
    profile: environment.Profile = environment.DEFAULT,
) -> tuple[LintWarning, ...]:
    """Return the warnings of a selector; none for one that does not compile, which is reported elsewhere.

    before: selectors that are evaluated first, such as those of a class, which may exclude devices of other drivers.
    types: the known types of devices' attributes.
    """
    analysis = programs.analyze(text, profile=profile)
    if not isinstance(analysis, Analysis):
        return ()
    guarded = not all(_foreign_value(other, profile) is True for other in before)
    return check(analysis, types=types, profile=profile, guarded=guarded).warnings(guarded=guarded)


def check(
    analysis: Analysis,
    *,
    types: Types | None = None,
    profile: environment.Profile = environment.DEFAULT,
    guarded: bool = False,
    work: WorkBudget | None = None,
) -> LintResult:
    """Return what there is to say of a selector that compiles.

    guarded: leave out warnings about look-ups. work: its spare units are taken for the corrections that are tried; None
    offline.
    """
    text, root = analysis.program.text, analysis.root
    nodes = list(_nodes(root))
    others: list[LintWarning] = []
    for node in nodes:
        others += _always_true(text, node)
        others += _comparison(text, node, types or {})
    outcome = _value(analysis, profile)
    corrections = _Corrections(profile, work)
    unguarded: tuple[LintWarning, ...] = ()
    if not guarded and isinstance(outcome, str):
        unguarded = tuple(_unguarded(text, root, nodes, outcome, corrections))
    return LintResult(
        admits_foreign=outcome is True, unguarded=unguarded, others=tuple(others), complete=corrections.complete
    )


def names(text: str) -> frozenset[Name]:
    """Return the look-ups by literal names of a selector that compiles."""
    return frozenset(name for node in _nodes(parser.parse(text, escapes=True)) if (name := _lookup(node)))


def _nodes(root: ast.Node) -> Iterator[ast.Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(ast.children(node)))


# Look-ups without a guard.


@dataclass(slots=True)
class _Corrections:
    """Tries corrected selectors. complete: whether none was left out."""

    profile: environment.Profile
    work: WorkBudget | None
    complete: bool = True

    def value(self, candidate: str) -> bool | int | str | None:
        """Return the value on a device of another driver; None if there is no work left for trying it."""
        if self.work is not None and not self.work.affords(Work.TOKEN, lexer.measure(candidate).tokens):
            self.complete = False
            return None
        return _foreign_value(candidate, self.profile)


def _unguarded(
    text: str, root: ast.Node, nodes: Sequence[ast.Node], outcome: str, corrections: _Corrections
) -> Iterator[LintWarning]:
    if not outcome.startswith(_MISSING):
        return
    lookups = [(node.at, name) for node in nodes if (name := _lookup(node))]
    at, name = next(((at, name) for at, name in lookups if outcome == f"{_MISSING}{name.name}"), (0, None))
    lookup_text = str(name) if name is not None else "a look-up"
    message = (
        f"{lookup_text} has no guard: on a device that lacks it, such as one of another driver, the selector fails with"
        f" {outcome!r}, and the pod is not scheduled at all"
    )
    yield _warning(
        LintRule.UNGUARDED_LOOKUP, text, at, message, _with_guards(text, root, lookups, outcome, corrections)
    )


def _with_guards(
    text: str, root: ast.Node, lookups: Sequence[tuple[int, Name]], outcome: str, corrections: _Corrections
) -> str:
    """Return the selector with a guard for each missing name, or "" if guards do not help."""
    quote = '"' if '"' in text else "'"
    body = text.strip()
    if isinstance(root, ast.Conditional) or (isinstance(root, ast.Logic) and not root.conjunction):
        body = f"({body})"
    guards: list[str] = []
    for _ in range(_MAX_GUARDS):
        missing = [name for _, name in lookups if outcome == f"{_MISSING}{name.name}"]
        new = [_guard(name, quote) for name in dict.fromkeys(missing)]
        if not set(new) - set(guards):
            return ""
        guards += [guard for guard in new if guard not in guards]
        candidate = " && ".join((*guards, body))
        value = corrections.value(candidate)
        if not isinstance(value, str):
            return candidate if value is not None else ""
        outcome = value
    return ""


def _guard(name: Name, quote: str) -> str:
    return f"{quote}{name.name}{quote} in device.{name.map}[{quote}{name.domain}{quote}]"


def _foreign_value(text: str, profile: environment.Profile) -> bool | int | str | None:
    """Return a selector's value on an empty device of another driver, or the message of its error."""
    analysis = programs.analyze(text, profile=profile)
    return _value(analysis, profile) if isinstance(analysis, Analysis) else str(analysis)


def _value(analysis: Analysis, profile: environment.Profile) -> bool | int | str | None:
    """Return a selector's value on the device, or the message of its error; None for one that costs too much."""
    if analysis.cost > MAX_COST or _compiles_in_a_loop(analysis):
        return None
    foreign = programs.device_value(_DRIVER, _FOREIGN, lists=profile.reads_lists)
    try:
        return analysis.program.evaluate(foreign, steps=MAX_COST)
    except EvaluationError as error:
        return str(error)


def _compiles_in_a_loop(analysis: Analysis) -> bool:
    """Whether evaluating may compile many regular expressions, which CEL's cost does not cover."""
    has_loop = any(isinstance(node, ast.Comprehension) for node in _nodes(analysis.root))
    return has_loop and lexer.measure(analysis.program.text).patterns > 0


# Tests that are always true.


def _always_true(text: str, node: ast.Node) -> Iterator[LintWarning]:
    match node:
        case ast.Has(operand=operand, field=domain) if (map_ := _map(operand)) is not None:
            call = re.compile(r"has\s*\([^()]*\)").search(text, max(text.rfind("has", 0, node.at + 1), 0))
            written, instead = f"has(device.{map_}.{domain})", f"'{domain}' in device.{map_}"
            corrected = text[: call.start()] + instead + text[call.end() :] if call is not None else ""
            message = f"{written} is always true: a domain that is not there reads as an empty one; write {instead}"
            yield _warning(LintRule.ALWAYS_TRUE, text, node.at, message, corrected)
        case ast.Index(operand=operand, optional=True) if (map_ := _map(operand)) is not None:
            message = f"device.{map_}[?…] always has a value: a domain that is not there reads as an empty one"
            yield _warning(LintRule.ALWAYS_TRUE, text, node.at, message)
        case _:
            pass


# Comparisons with another type.

_LITERALS = {str: "string", bool: "bool", int: "int"}


def _comparison(text: str, node: ast.Node, types: Types) -> Iterator[LintWarning]:
    if not isinstance(node, ast.Call) or node.function not in ("_==_", "_!=_"):
        return
    for one, other in (node.arguments, reversed(node.arguments)):
        name = _lookup(one)
        if name is None or name.map != "attributes" or not isinstance(other, ast.Literal):
            continue
        yield from _compared(text, name, other, types.get(name, ()))


def _compared(text: str, name: Name, literal: ast.Literal, attribute_types: Collection[str]) -> Iterator[LintWarning]:
    literal_type = _LITERALS.get(type(literal.value), "")
    is_version = isinstance(literal.value, str) and _is_version(literal.value)
    if is_version and (not attribute_types or "version" in attribute_types):
        certainty = "is a version" if attribute_types else "may be a version"
        message = (
            f"{name} {certainty}, and a version is never equal to text: with the attribute on the left the selector"
            f" fails, on the right it is false; write semver('{literal.value}')"
        )
        span = _STRING.match(text, literal.at)
        corrected = f"{text[: span.start()]}semver({span.group()}){text[span.end() :]}" if span is not None else ""
        yield _warning(LintRule.VERSION_AS_TEXT, text, literal.at, message, corrected)
    elif attribute_types and literal_type and literal_type not in attribute_types:
        listed = " or ".join(sorted(attribute_types))
        message = f"{name} is of type {listed} on every device of the input, and is compared with a {literal_type}"
        yield _warning(LintRule.NEVER_EQUAL, text, literal.at, message)


def _is_version(text: str) -> bool:
    try:
        semver.parse(text)
    except EvaluationError:
        return False
    return True


# Patterns of nodes.


def _lookup(node: ast.Node) -> Name | None:
    """Return the look-up that a node expresses (`device.attributes[domain].name`, in any notation), or None."""
    name = _selection(node)
    if name is None:
        return None
    domain = _selection(name[0])
    if domain is None:
        return None
    map_ = _map(domain[0])
    return None if map_ is None else Name(map_, domain[1], name[1])


def _selection(node: ast.Node) -> tuple[ast.Node, str] | None:
    match node:
        case ast.Select(operand=operand, field=name, optional=False):
            return operand, name
        case ast.Index(operand=operand, key=ast.Literal(value=str() as name), optional=False):
            return operand, name
        case _:
            return None


def _map(node: ast.Node) -> str | None:
    """Return `attributes` or `capacity` for a node that is one of the two maps of the device, else None."""
    match node:
        case ast.Select(operand=ast.Identifier(name="device"), field="attributes" | "capacity" as name):
            return name
        case _:
            return None


def _warning(rule: LintRule, text: str, at: int, message: str, instead: str = "") -> LintWarning:
    before = text[:at]
    return LintWarning(
        rule=rule, line=before.count("\n") + 1, column=at - before.rfind("\n"), message=message, instead=instead
    )
