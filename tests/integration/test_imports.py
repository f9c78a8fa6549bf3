"""Every package can be imported first."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.architecture.test_shape import MODULES, ROOT


def test_every_package_imports_alone() -> None:
    """In a fresh interpreter each, so that no import relies on another one having run before it."""
    packages = sorted({".".join(path.relative_to(ROOT).with_suffix("").parts[:2]) for path in MODULES})
    names = [name for name in packages if not name.endswith(("__init__", "__main__"))]
    code = "import importlib, sys; importlib.import_module(sys.argv[1])"

    def imported(name: str) -> str:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, name], capture_output=True, text=True, check=False, cwd=ROOT
        )
        return result.stderr[-300:] if result.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        failed = {name: error for name, error in zip(names, threads.map(imported, names), strict=True) if error}

    assert failed == {}
