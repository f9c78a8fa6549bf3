"""House rules that a machine can check: sizes, documented reasons, modules that import alone."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import get_type_hints

from admission.api.muster.status_reports import Notice, NoticeReason
from admission.api.values.reasons import DenyReason, EventReason, EvictionReason, HoldReason

ROOT = Path(__file__).parents[2]
MODULES = sorted(path for path in (ROOT / "admission").rglob("*.py") if "_shipped" not in path.parts)
NAMES = [str(path.relative_to(ROOT)) for path in MODULES]

LONGEST_FILE = 500
LONGEST_FUNCTION = 60

PRONOUNS = ("test_it_", "test_its_", "test_they_", "test_their_")


TEXTS = {name: path.read_text() for name, path in zip(NAMES, MODULES, strict=True)}


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield functions and methods; expressions, which hold most of a tree, are not walked."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body)


def _may_be_long(text: str) -> bool:
    """Tell whether a function, or a method, is so far from what opens after it that it could be too long.

    To parse every module takes seconds.
    """
    lines = text.splitlines()
    for indent in ("", "(?:    )?"):
        opening = re.compile(rf"{indent}(?:(async )?def |class |@)")
        opened = [number for number, line in enumerate(lines) if opening.match(line)]
        for number, after in pairwise([*opened, len(lines)]):
            if "def " in lines[number] and after - number > LONGEST_FUNCTION:
                return True
    return False


def test_a_module_can_be_read_at_a_glance() -> None:
    lengths = {
        f"{name}:{function.lineno} {function.name}": (function.end_lineno or 0) - function.lineno + 1
        for name, text in TEXTS.items()
        if _may_be_long(text)
        for function in _functions(ast.parse(text).body)
    }

    assert {name: lines for name, text in TEXTS.items() if (lines := text.count("\n")) > LONGEST_FILE} == {}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_the_name_of_a_test_stands_alone_in_a_report_of_failures() -> None:
    """It has its subject, and no other test has the name."""
    declared = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
    texts = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    found = Counter(name for text in texts.values() for name in declared.findall(text))

    assert [name for name in found if name.startswith(PRONOUNS)] == []
    assert [name for name, count in found.items() if count > 1] == []


def test_a_module_says_what_it_is_for() -> None:
    assert [name for name, text in TEXTS.items() if text and not text.startswith(('"""', 'r"""'))] == []


def test_every_reason_is_documented() -> None:
    text = (ROOT / "docs" / "reasons.md").read_text()

    reasons = (*HoldReason, *EvictionReason, *EventReason, *DenyReason)
    assert [reason for reason in reasons if f"`{reason}`" not in text] == []


def test_an_event_has_no_reason_but_a_documented_one() -> None:
    """Its type allows no other, and mypy judges all that is written; so none is written past it, as text."""
    trees = [ast.parse(text) for text in TEXTS.values() if "Notice(" in text]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = [call for call in calls if getattr(call.func, "id", "") == "Notice"]
    reasons = [keyword.value for call in made for keyword in call.keywords if keyword.arg == "reason"]

    assert get_type_hints(Notice)["reason"] == NoticeReason
    assert len(reasons) == len(made) > 0
    assert not any(isinstance(part, ast.Constant) for reason in reasons for part in ast.walk(reason))
