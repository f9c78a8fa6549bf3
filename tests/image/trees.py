"""The files of an image, as they lie in its store."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.image.engines import Engine


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link. content: SHA-256 of the bytes, the target of a link, empty for a folder."""

    mode: int
    owner: tuple[int, int]
    content: str


@dataclass(frozen=True, slots=True)
class Tree:
    """What is in an image, by its path without the first slash."""

    folder: Path
    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, engine: Engine, image: str) -> "Tree":
        folder = Path(engine.podman("image", "mount", image).strip())
        return cls(folder, dict(_entries(folder)))

    def below(self, place: str) -> dict[str, Entry]:
        return {path: entry for path, entry in self.entries.items() if path.startswith(f"{place}/")}


def _entries(folder: Path) -> Iterator[tuple[str, Entry]]:
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            status = path.lstat()
            entry = Entry(stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid), _content(path, status.st_mode))
            yield str(path.relative_to(folder)), entry


def _content(path: Path, mode: int) -> str:
    if stat.S_ISLNK(mode):
        return f"-> {path.readlink()}"
    if stat.S_ISREG(mode):
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    return ""
