"""Podman with a store of its own: what it builds and runs is in one folder, and gone with it."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

CGROUPS = Path("/sys/fs/cgroup")
LIMIT = 4096


class CommandFailed(Exception):  # noqa: N818 named by what happened
    """A command ended with an error; the message ends with what it wrote."""


class Engine:
    """Use as a context. Nothing of the machine's own images or containers is seen or changed."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="muster-image-"))

    @property
    def command(self) -> tuple[str, ...]:
        """What every call of podman begins with.

        runc and cgroupfs, since both know the old cgroups beside the new ones, and need no systemd.
        """
        places = ((f"--{name}", str(self.folder / name)) for name in ("root", "runroot", "tmpdir"))
        settled = ("--storage-driver=overlay", "--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=none")
        return ("podman", *(word for place in places for word in place), *settled)

    @property
    def running(self) -> tuple[str, ...]:
        """What every container is run with. A machine's own limits may be lower than those that Podman would set."""
        limits = (f"--ulimit={name}={LIMIT}:{LIMIT}" for name in ("nofile", "nproc"))
        return ("run", "--rm", "--pull=never", f"--cgroup-parent=/{self.folder.name}", *limits)

    def podman(self, *words: str) -> str:
        """Run a command of podman to its end, and return what it prints. Raises CommandFailed."""
        return self.asked(*words).stdout

    def asked(self, *words: str, ends: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
        """Run a command of podman that may end with any of these codes. Raises CommandFailed."""
        return run(*self.command, *words, ends=ends)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what still runs, and remove everything."""
        self.podman("rm", "--all", "--force", "--time=0")
        self.podman("image", "unmount", "--all", "--force")
        for group in sorted(CGROUPS.glob(f"**/{self.folder.name}/**/"), reverse=True):
            group.rmdir()
        shutil.rmtree(self.folder)


def run(*command: str, ends: Sequence[int] = (0,)) -> subprocess.CompletedProcess[str]:
    """Run any command to its end. Raises CommandFailed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode not in ends:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise CommandFailed(f"`{' '.join(command)}` ended with {done.returncode}:\n{last}")
    return done
