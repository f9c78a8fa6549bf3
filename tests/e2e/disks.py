"""A small disk of its own, to be filled: a tmpfs, which only root may mount."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEGABYTES = 400


@contextmanager
def small(*, megabytes: int = MEGABYTES) -> Iterator[Path | None]:
    """Yield the folder of such a disk; None where we may not mount any."""
    folder = Path(tempfile.mkdtemp(prefix="muster-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "muster-tests", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path) -> Path:
    """Take all room that is left, whoever else writes meanwhile, and return the file that has it."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 12):
            with suppress(OSError):
                while True:
                    filler.write(bytes(size))
    return file
