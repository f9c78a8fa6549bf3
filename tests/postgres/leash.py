"""The process that ends PostgreSQL when the Python that started it is gone, however it went.

Run as a script by `serving.Server`, which holds the other end of the pipe that is its standard input. When the pipe
closes (the owner stopped, crashed or was killed -9) or the owner is no longer the parent, every process whose working
directory lies in the server's folder is ended, and the folder removed.

Why not by process group, as the control plane's leash does: PostgreSQL's processes start sessions of their own. But
all of them work in their data directory. They get SIGQUIT first, PostgreSQL's immediate shutdown: killed -9, it would
leave its System V segment of shared memory behind.
"""

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

SECONDS_TO_QUIT = 5.0
SECONDS_TO_END = 10.0


def main() -> None:
    folder, owner = sys.argv[1], int(sys.argv[2])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == owner:
        readable, _, _ = select.select([0], [], [], 1.0)
        if readable and not os.read(0, 64):
            break
    # Once for those that still listen, stopped ones too, and once for those that do not.
    end(folder, (signal.SIGQUIT, signal.SIGCONT), SECONDS_TO_QUIT)
    end(folder, (signal.SIGKILL,), SECONDS_TO_END)
    shutil.rmtree(folder, ignore_errors=True)


def end(folder: str, signals: tuple[signal.Signals, ...], seconds: float) -> None:
    """Send signals to all who work in a folder until nobody is left there, or for some seconds."""
    deadline = time.monotonic() + seconds
    while (left := working_in(folder)) and time.monotonic() < deadline:
        for process in left:
            for number in signals:
                tell(process, number)
        time.sleep(0.05)


def tell(process: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return


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
