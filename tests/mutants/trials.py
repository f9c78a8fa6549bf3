"""Tries mutants, several at a time, each worker in a copy of the tree of its own."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tests.mutants import choosing, copies
from tests.mutants.planting import Mutant

GRACE = 8
"""Seconds of CPU time that every trial has, for imports; tests have SLOWDOWN times what they took under coverage."""

SLOWDOWN = 3


class Outcome(StrEnum):
    """What became of a mutant."""

    NOTICED = "noticed"
    """A test failed, or could not even be imported."""

    TIMED_OUT = "timed out"
    """Tests ran out of time, memory or stack, or crashed: the fault cannot be overlooked."""

    SURVIVED = "survived"
    """Every test passed."""

    UNREACHED = "unreached"
    """No test runs the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a mutant. by: the test that failed, or why there is none; tests: how many there were to run."""

    mutant: Mutant
    outcome: Outcome
    by: str
    tests: int
    seconds: float

    @property
    def is_noticed(self) -> bool:
        return self.outcome in {Outcome.NOTICED, Outcome.TIMED_OUT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Which tests and files pass in a trial without a fault, as far as that was asked. Workers add to both."""

    passing: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)

    def usable(self, tests: Iterable[str]) -> list[str]:
        """Return the tests that have not failed without a fault."""
        return [test for test in tests if not {test, test.partition("::")[0]} & self.failing]


class Worker:
    """A `tests.mutants.worker` in its copy, for one thread."""

    def __init__(self, process: "subprocess.Popen[str]", record: choosing.Record, controls: Controls) -> None:
        self._process = process
        self._record = record
        self._controls = controls

    def judge(self, mutant: Mutant) -> Result:
        """Run the tests of a mutant until one fails."""
        begun = time.monotonic()
        tests = self._record.tests_of(mutant.place)
        outcome, by = (Outcome.SURVIVED, "") if tests else (Outcome.UNREACHED, "")
        for batch in choosing.batches(tests):
            outcome, by = self._outcome(mutant, batch)
            if outcome is not Outcome.SURVIVED:
                break
        seconds = round(time.monotonic() - begun, 2)
        return Result(mutant=mutant, outcome=outcome, by=by, tests=len(tests), seconds=seconds)

    def _outcome(self, mutant: Mutant, tests: Sequence[str]) -> tuple[Outcome, str]:
        usable = self._controls.usable(tests)
        answer = self._tried(mutant.place.module, mutant.source, usable)
        match answer["code"]:
            case 0 | 5:
                # 5: no test of these names is left; nothing has failed.
                return Outcome.SURVIVED, ""
            case None:
                return Outcome.TIMED_OUT, "a limit, or a crash"
            case _ if self._is_vouched_for(answer["failed"], mutant.place.module, usable):
                return Outcome.NOTICED, answer["failed"] or " ".join(answer["log"][-300:].split())
            case _:
                left = self._controls.usable(usable)
                return self._outcome(mutant, left) if len(left) < len(usable) else (Outcome.SURVIVED, "")

    def _is_vouched_for(self, failed: str, module: str, tests: Sequence[str]) -> bool:
        """Return whether a test or file that failed with the fault passes without it, after the same tests as then."""
        if failed and failed not in self._controls.passing:
            last = tests.index(failed) if failed in tests else len(tests) - 1
            answer = self._tried(module, None, tests[: last + 1])
            known = self._controls.passing if answer["code"] == 0 else self._controls.failing
            known.add(failed)
        return failed not in self._controls.failing

    def _tried(self, module: str, source: str | None, tests: Sequence[str]) -> Any:
        """Return how the worker answers a trial; without a source, one of the code as it is."""
        if not tests:
            return {"code": 0}
        seconds = GRACE + SLOWDOWN * round(self._record.seconds(tests))
        trial = {"module": module, "source": source, "tests": tests, "seconds": seconds}
        reading, writing = self._process.stdout, self._process.stdin
        assert reading
        assert writing
        writing.write(json.dumps(trial) + "\n")
        writing.flush()
        return json.loads(reading.readline())


def run(
    mutants: Sequence[Mutant], record: choosing.Record, *, workers: int, done: Callable[[Result], None]
) -> Controls:
    """Judge all mutants, and return which tests could be relied on.

    done: called with each result as it comes, by one thread at a time.

    Raises:
        ExceptionGroup: a worker broke; the results that came before it are right.
    """
    left: SimpleQueue[Mutant] = SimpleQueue()
    for mutant in mutants:
        left.put(mutant)
    lock = threading.Lock()
    errors: list[Exception] = []
    controls = Controls()

    def work(worker: Worker) -> None:
        try:
            while True:
                result = worker.judge(left.get_nowait())
                with lock:
                    done(result)
        except Empty:
            return
        except Exception as error:  # noqa: BLE001 - raised again by who started the thread
            errors.append(error)

    with ExitStack() as stack:
        ready = [Worker(stack.enter_context(_started()), record, controls) for _ in range(workers)]
        threads = [threading.Thread(target=work, args=(worker,)) for worker in ready]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise ExceptionGroup("a worker broke", errors)
    return controls


@contextmanager
def _started() -> Iterator["subprocess.Popen[str]"]:
    command = (sys.executable, "-m", "tests.mutants.worker")
    with tempfile.TemporaryDirectory(prefix="muster-mutants-", ignore_cleanup_errors=True) as place:
        copy = copies.make(Path(place))
        environment = copies.environment(copy)
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=copy, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                yield process
            finally:
                process.terminate()
