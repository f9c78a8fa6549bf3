"""Copies of the tree in a temporary directory. Only copies are mutated, so no fault is left behind in the tree."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.mutants import scope

PROFILE = "mutants"
"""The profile of Hypothesis in `tests/conftest.py`: the same examples in every run, none shrunk or remembered."""


def make(into: Path) -> Path:
    """Copy what git tracks or would track, with the changes that are not committed, and return the copy.

    Its bytecode is valid by the hash of the source. By time and size, as usual, a mutant that is as long as the
    original and written within the same second would run as the original.
    """
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=scope.ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (scope.ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(scope.ROOT / name, into / name)
    compiling = ("-m", "compileall", "-q", "--invalidation-mode", "checked-hash", scope.CODE, "tests")
    subprocess.run((sys.executable, *compiling), cwd=into, check=True)
    return into


def environment(copy: Path) -> Mapping[str, str]:
    """Return the environment of programs that run in a copy and import from it, not from the tree."""
    scratch = copy / ".tmp"
    scratch.mkdir(exist_ok=True)
    own = {"PYTHONPATH": str(copy), "TMPDIR": str(scratch), "HYPOTHESIS_PROFILE": PROFILE}
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | own
