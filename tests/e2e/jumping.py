"""`python -m tests.e2e.jumping FILE serve …`: `muster`, whose clock is wrong by the seconds that a file says.

The time of day alone: how much time passes is asked of another clock, which no jump touches (`CLOCK_MONOTONIC`).
"""

import sys
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from types import ModuleType

from admission import app, cli
from admission.kube import fence_controller, leader_election
from admission.kube.writers import claims, pods, status
from admission.webhook import server

ASKS: tuple[ModuleType, ...] = (claims, app, fence_controller, leader_election, pods, status, server)
"""Whoever asks for the time of day."""


def main() -> None:
    file = Path(sys.argv.pop(1))

    class Jumping(datetime):
        """The time of day, as it is said to be."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=float(file.read_text()))

    for module in ASKS:
        module.__dict__["datetime"] = Jumping
    cli.main()


def set_wrong(file: Path, seconds: float) -> None:
    """Say by how much the clocks that read this file are wrong; at no moment is it half written."""
    fresh = file.with_suffix(".fresh")
    fresh.write_text(str(seconds))
    fresh.replace(file)


if __name__ == "__main__":
    main()
