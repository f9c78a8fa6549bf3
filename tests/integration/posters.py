"""A process that posts as fast as it can and says what was acknowledged, to be killed, or to lose its database.

Run as `python -m tests.integration.posters URL EPOCH FIRST`: entry FIRST, FIRST + 1, … in SQL transactions of three.
Each number is printed once the ledger has acknowledged its entry; when the ledger is away, the same entries are posted
again, as the flow does.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from admission.api.muster.ledger_entries import Entry
from admission.errors import LedgerUnavailableError
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import AT, CLUSTER, a_grant

ROOT = Path(__file__).parents[2]
BATCH = 3


def entry(number: int) -> Entry:
    """Return the entry of a number: it grants one GPU more, so that the balance counts the entries."""
    return a_grant(1, at=AT + timedelta(seconds=number))


async def post_forever(url: str, epoch: int, first: int) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        while True:
            numbers = range(first, first + BATCH)
            try:
                await ledger.post_all([entry(number) for number in numbers], epoch=epoch)
            except LedgerUnavailableError:
                continue
            first = numbers.stop
            print(*numbers, sep="\n", flush=True)


class Poster:
    """The process, seen from the test."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.acknowledged: list[int] = []

    def wait_for(self, more: int) -> None:
        """Return after so many more acknowledgements."""
        assert self._process.stdout is not None
        for _ in range(more):
            line = self._process.stdout.readline()
            assert line, "the poster has ended"
            self.acknowledged.append(int(line))

    def kill(self) -> None:
        """Kill it -9, and take what it had said."""
        self._process.kill()
        rest, _ = self._process.communicate()
        # A line is written by one call, so none of them is cut.
        self.acknowledged += [int(line) for line in rest.split()]


@contextmanager
def posting(url: str, *, epoch: int = 1, first: int = 1) -> Iterator[Poster]:
    """Yield a process that posts, killed at the end if it still runs."""
    command = [sys.executable, "-m", "tests.integration.posters", url, str(epoch), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        poster = Poster(process)
        try:
            yield poster
        finally:
            if process.poll() is None:
                poster.kill()


if __name__ == "__main__":
    asyncio.run(post_forever(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
