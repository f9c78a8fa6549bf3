"""A process that tests mutants in its own copy of the tree: `python -m tests.mutants.worker`, in the copy.

It reads a trial of JSON a line and answers with a line each. Libraries are imported once, here; each trial is a fork
that imports Muster and the tests afresh, the mutated module among them, so nothing of one mutant reaches the next. A
trial has a limit on CPU time, which does not depend on how busy the machine is, and one on time, for whatever sleeps.
"""

import ast
import importlib
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

LOG = Path(".tmp") / "trial.log"
MEMORY = 8 << 30
SLOWER = 10
"""How much longer than its CPU time a trial may take."""


class Chosen:
    """A plugin of pytest that runs the chosen tests in their order, and notes which one failed."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._ranks = {test: rank for rank, test in enumerate(tests)}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._ranks), key=lambda item: self._ranks[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def main() -> None:
    """Answer trials until there are no more."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    for name in sorted(_libraries(Path("admission"))):
        with suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(_tried(json.loads(line))), flush=True)


def _libraries(folder: Path) -> set[str]:
    """Return the modules that Muster imports from elsewhere, and the one that every test imports."""
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    froms = {node.module for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name for name in froms if name and name.partition(".")[0] not in {folder.name, "tests"}} | {"hypothesis"}


def _tried(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Plant the fault, run the tests in a fork, and take the fault away again."""
    path = Path(trial["module"])
    original = path.read_text()
    path.write_text(trial["source"] or original)
    try:
        return _forked(trial["tests"], trial["seconds"])
    finally:
        path.write_text(original)


def _forked(tests: Sequence[str], seconds: int) -> dict[str, Any]:
    """Return the exit code of pytest in a fork, the test or file that failed, and the end of what was printed.

    Without a code the fork was ended by a limit or a crash.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        _run(tests, seconds, writing)
    os.close(writing)
    waiting = os.pidfd_open(process)
    try:
        is_over, _, _ = select.select([waiting], [], [], seconds * SLOWER)
    finally:
        _end(process)
    answer = os.read(reading, 65536) if is_over else b""
    os.close(waiting)
    os.close(reading)
    found: dict[str, Any] = json.loads(answer or b"{}")
    return {"code": None, "failed": "", "log": LOG.read_text()[-2000:]} | found


def _end(process: int) -> None:
    """End a fork, with all that its tests have started, whether it is over or not."""
    for kill in (os.kill, os.killpg):
        with suppress(ProcessLookupError):
            kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def _run(tests: Sequence[str], seconds: int, writing: int) -> None:
    """Run tests in the fork, with limits, and leave."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chosen = Chosen(tests)
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    # The plugins of pytest are libraries, too, and imported before pytest could rewrite their assertions.
    options = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
    code = pytest.main([*options, *files], plugins=[chosen])
    os.write(writing, json.dumps({"code": int(code), "failed": chosen.failed}).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
