"""Starts programs that cannot outlive us, keeps their logs, and ends them by process id."""

import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tests import leash

LEASH = Path(leash.__file__)
SECONDS_TO_END = 10.0

PICKED = (20_000, 32_768)
"""Where ports are picked: below those that Linux and others choose from (net.ipv4.ip_local_port_range), so that none of
the servers and connections of other tests gets one between a pick and its use."""

_CHANCE = random.SystemRandom()


class Family:
    """A group of processes in one folder that end together, at the latest when this Python does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        owner = str(os.getpid())
        # Isolated (-I -S): the leash must start fast and must not depend on the caller's environment.
        self._leash = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LEASH), str(folder), owner],
            stdin=subprocess.PIPE,
            # Its own group, so that Ctrl-C reaches our programs through us alone; our session, or none could join it.
            process_group=0,
        )

    def start(self, name: str, command: Sequence[str]) -> "Program":
        log = self._log(name)
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=self._leash.pid
            )
        return Program(name=name, process=process, log=log)

    def fork(self, name: str, main: Callable[[], None], words: Sequence[str], *, imported: Sequence[str]) -> "Program":
        """Start a Python program in a fork of a process that has imported its modules.

        words: its command line. imported: the modules, the same in all calls of a test run.
        """
        log = self._log(name)
        process = _fork(main, words, imported, streams=(log, log), group=self._leash.pid)
        return Program(name=name, process=_Forked(process), log=log)

    def _log(self, name: str) -> Path:
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        log.touch()
        return log

    def end(self) -> None:
        """End whoever is left and remove the folder."""
        with self._leash as held:
            assert held.stdin is not None
            held.stdin.close()
            held.wait()


_FORKS = multiprocessing.get_context("forkserver")


def run_forked(
    main: Callable[[], None], words: Sequence[str], *, environment: Mapping[str, str], imported: Sequence[str]
) -> "subprocess.CompletedProcess[str]":
    """Run a Python program to its end as `subprocess.run` does, in a fork as `Family.fork` makes them."""
    with tempfile.TemporaryDirectory() as folder:
        streams = output, errors = Path(folder, "output"), Path(folder, "errors")
        process = _fork(main, words, imported, streams=streams, environment=environment)
        process.join()
        code = process.exitcode
        assert code is not None
        process.close()
        return subprocess.CompletedProcess(words, code, output.read_text(), errors.read_text())


def _fork(
    main: Callable[[], None],
    words: Sequence[str],
    imported: Sequence[str],
    *,
    streams: tuple[Path, Path],
    environment: Mapping[str, str] = os.environ,
    group: int = 0,
) -> ForkServerProcess:
    """Start a fork. streams: the files that its output and its errors are added to. group: 0 is our own."""
    _FORKS.set_forkserver_preload([*imported])
    process = _FORKS.Process(target=_forked, args=(main, [*words], dict(environment), streams, group or os.getpgrp()))
    with _no_main():
        process.start()
    return process


def _forked(
    main: Callable[[], None], words: list[str], environment: dict[str, str], streams: tuple[Path, Path], group: int
) -> None:
    """Become the program, as one that was started anew: in its group, with its environment, and its output in files."""
    os.setpgid(0, group)
    output, errors = streams
    with output.open("ab") as printed, errors.open("ab") as complained, Path(os.devnull).open("rb") as nothing:
        for stream, number in ((nothing, 0), (printed, 1), (complained, 2)):
            os.dup2(stream.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    sys.argv = words
    main()


@contextmanager
def _no_main() -> Iterator[None]:
    """Keep a fork from importing the main module of the tests, as it would to find classes of it."""
    main = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.update(dict.fromkeys(before))
    try:
        yield
    finally:
        main.update(before)


class Process(Protocol):
    """A process, as `subprocess` has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class _Forked:
    """A forked process, as `subprocess` has one."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Program:
    """One running program of the family."""

    def __init__(self, *, name: str, process: Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        """What it ended with, None while it runs; a signal that ended it is a negative number."""
        return self._process.poll()

    def end(self, *, hard: bool = False) -> None:
        """Ask it to end and insist after a while; `hard` is kill -9, the way machines fail."""
        self._process.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def tail(log: Path, lines: int) -> str:
    """Return the last lines of a log, or a word that there is none."""
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


class FreePorts:
    """Ports of 127.0.0.1 that nobody uses, all different, and none that the system gives to whoever asks for any.

    Use as a context: the ports stay bound until its end, so that two picks cannot meet. Between the end and the
    program's own bind another pick can still take one; whoever starts the program has to be ready for that.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def pick(self) -> int:
        while True:
            held, port = socket.socket(), _CHANCE.randrange(*PICKED)
            try:
                held.bind(("127.0.0.1", port))
            except OSError:  # somebody uses it, or did a moment ago
                held.close()
            else:
                self._sockets.append(held)
                return port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for held in self._sockets:
            held.close()
