"""Starts programs that cannot outlive us, keeps their logs, and ends them by process id."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import leash

LEASH = Path(leash.__file__)
SECONDS_TO_END = 10.0


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
        log = self.folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=self._leash.pid
            )
        return Program(name=name, process=process, log=log)

    def end(self) -> None:
        """End whoever is left and remove the folder."""
        with self._leash as held:
            assert held.stdin is not None
            held.stdin.close()
            held.wait()


class Program:
    """One running program of the family."""

    def __init__(self, *, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
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
    """Ports of 127.0.0.1 that nobody uses, all different.

    Use as a context: the ports stay bound until its end, so that two picks cannot meet. Between the end and the
    program's own bind another process can still take one; whoever starts the program has to be ready for that.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def pick(self) -> int:
        held = socket.socket()
        self._sockets.append(held)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for held in self._sockets:
            held.close()
