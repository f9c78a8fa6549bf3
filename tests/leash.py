"""The process that ends what tests have started when the Python that started it is gone, however it went.

Run as a script by `controlplane.processes.Family` and `postgres.serving.Server`: their folder, the owner's process id,
and the name of a signal to try first, if any. The owner holds the other end of the pipe that is its standard input.
When the pipe closes (the owner stopped, crashed or was killed -9) or the owner is no longer the parent, every process
of this one's group, and every one whose working directory lies in the folder, is ended, and the folder removed.

Why a group and not a list of process ids: a program is in the group from its first instruction on, so an owner that
dies between starting it and writing it down leaves nothing behind. Why the folder too: PostgreSQL's processes start
sessions of their own, but all of them work in their data directory. Why not PR_SET_PDEATHSIG: it fires when the
*thread* that started a program ends, so what was started by asyncio.to_thread would die with a worker thread.
"""

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

SECONDS_TO_LISTEN = 5.0
SECONDS_TO_END = 10.0


def main() -> None:
    folder, owner, *first = sys.argv[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == int(owner):
        readable, _, _ = select.select([0], [], [], 1.0)
        if readable and not os.read(0, 64):
            break

    def left() -> list[int]:
        return [*others_in_group(), *working_in(folder)]

    # First for those that still listen, stopped ones too, then for those that do not.
    for name in first:
        end(left, (signal.Signals[name], signal.SIGCONT), SECONDS_TO_LISTEN)
    end(left, (signal.SIGKILL,), SECONDS_TO_END)
    shutil.rmtree(folder, ignore_errors=True)


def end(left: Callable[[], list[int]], signals: tuple[signal.Signals, ...], seconds: float) -> None:
    """Send signals to all who are left until nobody is, or for some seconds."""
    deadline = time.monotonic() + seconds
    while (processes := left()) and time.monotonic() < deadline:
        for process in processes:
            for number in signals:
                tell(process, number)
        time.sleep(0.02)


def tell(process: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return


def others_in_group() -> list[int]:
    """List living processes of this group; a zombie that nobody reaps must not keep us waiting."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, _, group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == os.getpgrp() and state != "Z" and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def working_in(folder: str) -> list[int]:
    """List processes whose working directory lies in a folder; zombies have none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            place = (process / "cwd").readlink()
        except OSError:
            continue
        if place.is_relative_to(folder) and int(process.name) != os.getpid():
            found.append(int(process.name))
    return sorted(found)


if __name__ == "__main__":
    main()
