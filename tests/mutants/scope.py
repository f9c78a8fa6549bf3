"""Which packages are mutated, and which tests have to notice. Change these two tables when packages or tests move."""

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = "admission"

DECIDING = (
    "incremental.py",
    "cel",
    "device_cel",
    "quota",
    "accounting",
    "filters",
    "dra",
    "workloads",
    "podpolicy",
    "claimpolicy",
    "objectpolicy",
    "lifecycle",
    "scheduling",
    "status",
    "review",
    "webhook",
    "heads",
    "conversion",
    "cycle",
    "ledger",
)
"""Packages of `admission` that decide. An entry may also be one module, as `dra/inventory/pools.py`."""

_LEDGER = (
    "append_only",
    "bulk",
    "closing",
    "exports",
    "faults",
    "histories",
    "kept_heads",
    "migrations",
    "reconcile",
    "replay",
    "reports",
    "shares",
    "statement",
    "urls",
    "usage",
    "verify",
    "writers",
)
TESTS = (
    "tests/unit",
    "tests/property",
    "tests/conformance",
    "tests/integration/test_ledger.py",
    *(f"tests/integration/test_ledger_{name}.py" for name in _LEDGER),
    "tests/integration/test_dashboard_books.py",
    *(f"tests/integration/{folder}" for folder in ("cli", "dashboard", "kube", "telemetry", "webhook")),
)
"""Tests that need neither a cluster nor a server of databases; of the ledger's those on SQLite (`WITHOUT`).

Which of them belong to a mutant is not listed anywhere: they are those that run its line.
"""


WITHOUT = "not postgresql"
"""Which of the tests, as `pytest -k` has it."""


def modules(packages: Sequence[str]) -> list[str]:
    """Return the modules of some packages, as sorted paths relative to the root of the tree.

    Raises:
        ValueError: a package or module does not exist, or has no code.
    """
    found: set[str] = set()
    for package in packages:
        path = ROOT / CODE / package
        files = [path] if path.suffix == ".py" and path.is_file() else path.rglob("*.py")
        names = {str(file.relative_to(ROOT)) for file in files if file.stat().st_size}
        if not names:
            raise ValueError(f"{CODE}/{package} has no modules; tests/mutants/scope.py lists the packages")
        found |= names
    return sorted(found)
