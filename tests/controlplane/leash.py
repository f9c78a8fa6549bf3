"""The process that ends a control plane when the Python that started it is gone, however it went.

Run as a script by `processes.Family`. The programs join this process's group, and their owner holds the other end of
the pipe that is its standard input. When the pipe closes (the owner stopped, crashed or was killed -9) or the owner is
no longer the parent, the rest of the group is killed and the control plane's folder removed.

Why not PR_SET_PDEATHSIG: it fires when the *thread* that started a program ends, so a control plane started by
asyncio.to_thread would die with a worker thread. Why a group and not a list of process ids: a program is in the group
from its first instruction on, so an owner that dies between starting it and writing it down leaves nothing behind.
"""

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

SECONDS_TO_END = 10.0


def main() -> None:
    folder, owner = sys.argv[1], int(sys.argv[2])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == owner:
        readable, _, _ = select.select([0], [], [], 1.0)
        if readable and not os.read(0, 64):
            break
    kill_the_others()
    shutil.rmtree(folder, ignore_errors=True)


def kill_the_others() -> None:
    """Kill at once: whoever is left here lost its owner, and what it would save goes with the folder."""
    deadline = time.monotonic() + SECONDS_TO_END
    while (left := others_in_group()) and time.monotonic() < deadline:
        for process in left:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


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


if __name__ == "__main__":
    main()
