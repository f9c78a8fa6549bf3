"""Gangs whose devices have more memory in use than claims asked for: `status.memory` of a Gang."""

from dataclasses import dataclass
from datetime import UTC, datetime

from admission.api.values import quantities
from admission.api.values.decoding import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryExceeded:
    """That more memory of a device of a gang was in use than its claims asked for. All amounts are bytes.

    claim: its name. sharers: how many claims had the device. asked: by all of them together. peak: the most in use at
    once between `start` and `end`, a recorded time.
    """

    claim: str
    sharers: int
    asked: int
    peak: int
    start: datetime
    end: datetime

    @property
    def message(self) -> str:
        """Return it as a sentence, as conditions have it. It names no other claim."""
        times = f"between {_time(self.start)} and {_time(self.end)}"
        used = f"up to {_mebibytes(self.peak)} of memory were in use on a device of claim {self.claim} {times}"
        if self.sharers == 1:
            return f"{used}, and the claim asked for {_mebibytes(self.asked)} of it"
        return f"{used}, and the {self.sharers} claims that shared it asked for {_mebibytes(self.asked)} of it together"


def decode_status(reader: Reader) -> MemoryExceeded | None:
    """Decode `status.memory`; None if it lacks its times."""
    start, end = reader.time("start"), reader.time("end")
    if start is None or end is None:
        return None
    return MemoryExceeded(
        claim=reader.text("claim"),
        sharers=reader.integer("sharers", 1),
        asked=reader.parsed("asked", quantities.parse_amount, 0),
        peak=reader.parsed("peak", quantities.parse_amount, 0),
        start=start,
        end=end,
    )


def _mebibytes(amount: int) -> str:
    return f"{-(-amount // 2**20)} MiB"


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
