"""Muster as a process of its own, as `muster serve` starts it; it dies with the demo, however the demo dies."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.demo.telling import MUSTER, StoryError

SECONDS_TO_END = 20.0

# The kernel ends the child when its parent is gone (Linux; elsewhere only an orderly end takes it along).
LEASHED = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True, slots=True)
class Muster:
    """A running Muster: its process, the ledger that it keeps, and its log."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder / 'ledger.sqlite3'}"

    @property
    def log(self) -> Path:
        return self.folder / "muster.log"

    def tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def check(self) -> None:
        """Raise when it has ended by itself."""
        if self.process.poll() is not None:
            raise StoryError(f"muster serve ended with {self.process.returncode}:\n{self.tail()}")

    def resident_mebibytes(self) -> float:
        """Return how much memory it has in use."""
        status = Path(f"/proc/{self.process.pid}/status")
        if status.exists():
            return int(status.read_text().split("VmRSS:")[1].split()[0]) / 1024
        words = ["ps", "-o", "rss=", "-p", str(self.process.pid)]
        return int(subprocess.run(words, capture_output=True, check=True).stdout) / 1024


@asynccontextmanager
async def serving(kubeconfig: str, *options: str) -> AsyncIterator[Muster]:
    """Run `muster serve` over a fresh ledger in a folder of its own, both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as folder:
        muster = _started(kubeconfig, Path(folder), options)
        try:
            yield muster
        finally:
            await asyncio.to_thread(_ended, muster.process)


def _started(kubeconfig: str, folder: Path, options: tuple[str, ...]) -> Muster:
    database = f"sqlite:///{folder / 'ledger.sqlite3'}"
    command = [sys.executable, "-c", LEASHED, str(MUSTER), "serve", "--database", database, *options]
    with (folder / "muster.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "KUBECONFIG": kubeconfig},
            start_new_session=True,
        )
    return Muster(process, folder)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
