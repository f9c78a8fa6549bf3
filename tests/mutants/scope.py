"""Which packages are mutated, and which tests have to notice. Change these two tables when packages or tests move."""

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = "admission"

DECIDING = (
    "quota",
    "accounting",
    "dra",
    "workloads",
    "podpolicy",
    "claimpolicy",
    "lifecycle",
    "scheduling",
    "status",
    "review",
    "cycle",
)
"""Packages of `admission` that decide. An entry may also be one module, as `dra/inventory/pools.py`."""

TESTS = ("tests/unit", "tests/property", "tests/conformance")
"""Tests that need neither a cluster nor a database.

Which of them belong to a mutant is not listed anywhere: they are those that run its line.
"""


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
