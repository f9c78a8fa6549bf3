"""Records which tests run which line, how long each takes, and which fail without a fault.

`python -m tests.mutants.recording FOLDER WORKERS SOURCES TESTS` runs in a copy of the tree; SOURCES and TESTS are
separated by commas. What it writes to FOLDER is kept in the results directory, for as long as neither code nor tests
change: to record takes minutes.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants import copies, scope

LINES, TIMES = "lines.sqlite", "tests.json"


class Outcomes:
    """A plugin of pytest that notes how long each test takes, and which do not pass."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


def ensure(results: Path, modules: Sequence[str], tests: Sequence[str], *, workers: int) -> Path:
    """Return the folder of the record for this state of code and tests, which is made if it is missing."""
    folder = results / f"record-{_key(modules, tests)}"
    if not (folder / TIMES).exists():
        print(f"recording which tests run which line of {len(modules)} modules; this takes minutes", flush=True)
        for old in results.glob("record-*"):
            shutil.rmtree(old)
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="muster-mutants-") as place:
            copy = copies.make(Path(place))
            command = (sys.executable, "-m", __name__, str(folder), str(workers), ",".join(modules), ",".join(tests))
            subprocess.run(command, cwd=copy, env=copies.environment(copy), check=True)
    return folder


def _key(modules: Sequence[str], tests: Sequence[str]) -> str:
    digest = hashlib.sha256(repr((modules, tests)).encode())
    folders = [scope.ROOT / scope.CODE, *(scope.ROOT / name for name in tests)]
    files = [path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*.py"))]
    for path in sorted([*files, *(scope.ROOT / "tests").glob("*.py")]):
        digest.update(str(path.relative_to(scope.ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _record(folder: Path, workers: str, sources: str, tests: str) -> None:
    settings = folder / "coverage.ini"
    settings.write_text(f"[run]\nrelative_files = True\ndata_file = {folder / LINES}\ninclude = {sources}\n")
    outcomes = Outcomes()
    traced = ("--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report=")
    chosen = ("-k", scope.WITHOUT, *tests.split(","))
    pytest.main(["-q", "-n", workers, "-p", "no:cacheprovider", *traced, *chosen], plugins=[outcomes])
    text = json.dumps({"seconds": outcomes.seconds, "failed": sorted(outcomes.failed)})
    (folder / TIMES).write_text(text)


if __name__ == "__main__":
    _record(Path(sys.argv[1]), *sys.argv[2:])
