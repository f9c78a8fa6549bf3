"""What docs/security.md and the threat model say is shown by tests that exist, and all tests of it are named."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = frozenset(re.findall(r"`(test_\w+)`", PAGE))
WORK = frozenset(
    re.findall(r"`(test_\w+)`", PAGE.partition("## Making the webhook work too hard")[2].partition("\n## ")[0])
)


def named_in(pattern: str) -> frozenset[str]:
    """Return the names of all test functions in files of tests/ that a pattern matches."""
    found = set()
    for path in (ROOT / "tests").glob(pattern):
        found |= {*re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)}
    return frozenset(found)


WITHOUT_CLUSTER = named_in("unit/**/test_*.py") | named_in("property/test_*.py") | named_in("integration/*/test_*.py")


def test_every_test_that_the_page_names_exists() -> None:
    marked = [line for line in PAGE.splitlines() if "(unit tests)" in line]
    units = frozenset(name for line in marked for name in re.findall(r"`(test_\w+)`", line))
    pages = NAMED & named_in("integration/dashboard/test_*.py")

    held = NAMED & named_in("unit/webhook/test_*.py") | NAMED & named_in("integration/**/test_*.py")

    assert pages, "the dashboard is shown as a browser sees it"
    assert WORK
    assert WITHOUT_CLUSTER >= WORK, "shown without a cluster, since it is about one process"
    assert held, "the webhook's port is held against whoever reaches it"
    assert NAMED - units - pages - WORK - held <= named_in("e2e/test_*.py"), "shown on the real control plane"
    assert units <= WITHOUT_CLUSTER


def test_every_boundary_of_the_threat_model_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| \d ", line)]
    shown = [re.findall(r"`(test_\w+)`", row.rsplit("|", 2)[1]) for row in rows]

    assert len(rows) > 5
    assert all(shown), "each names what shows it"
    assert {name for names in shown for name in names} <= named_in("**/test_*.py")


def test_the_page_names_every_try() -> None:
    tries = named_in("e2e/test_muster_security*.py")

    assert tries
    assert tries <= NAMED


def test_every_row_of_its_tables_names_a_test() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| try", "| ---"))]

    assert len(rows) > 1
    assert [row for row in rows if "`test_" not in row.rsplit("|", 2)[1]] == []
