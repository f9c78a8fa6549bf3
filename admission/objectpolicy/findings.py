"""Findings about Muster's own objects, for the webhook and `muster lint`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from admission.api.values.reasons import DenyReason
from admission.device_cel import lint
from admission.device_cel.environment import Profile
from admission.device_cel.lint import LintWarning
from admission.errors import Problem

MOST_NAMED = 3
"""The most objects of one kind in a message."""

COMPILER = Profile(release=37)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFinding:
    """A finding. field: its path. denied: the reason to refuse the object; None for a warning.

    instead: the corrected text, if it is known.
    """

    field: str
    message: str
    denied: DenyReason | None = None
    instead: str = ""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}{f'; write: {self.instead}' if self.instead else ''}"


def refusals(problems: Iterable[Problem]) -> list[ObjectFinding]:
    """Return problems as reasons to refuse the object."""
    return [
        ObjectFinding(field=problem.field, message=problem.message, denied=DenyReason.MALFORMED_REQUEST)
        for problem in problems
    ]


def uncertain(problems: Iterable[Problem]) -> list[ObjectFinding]:
    """Return problems as warnings."""
    return [ObjectFinding(field=problem.field, message=problem.message) for problem in problems]


def from_lint(field: str, text: str, lint_warning: LintWarning) -> ObjectFinding:
    """Return a lint warning of an expression, with its place in the text."""
    place = (
        f"column {lint_warning.column}"
        if "\n" not in text
        else f"line {lint_warning.line}, column {lint_warning.column}"
    )
    return ObjectFinding(field=field, message=f"{place}: {lint_warning.message}", instead=lint_warning.instead)


@lru_cache(maxsize=1024)
def lint_of(text: str, before: tuple[str, ...] = ()) -> tuple[LintWarning, ...]:
    """Return the lint warnings of a selector for devices of which nothing is known."""
    return lint.find(text, before=before, profile=COMPILER)


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and the number of the others."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return `1 gang` or `3 gangs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
