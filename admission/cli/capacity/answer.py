"""What `muster capacity` answers, as tables and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from admission.cli import terminal
from admission.cli.capacity.copies import Capacity
from admission.cli.terminal import Number
from admission.scheduling.fragments import Fragments

_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Answer:
    """How many gangs of each shape start. waited: by shape from the books, for how long gangs of it have, in seconds.

    others: for how long gangs of all other shapes have waited; None if the books were not asked. fragments: None if
    they were not asked for.
    """

    found: Sequence[Capacity]
    waited: Mapping[str, int]
    others: int | None
    fragments: Fragments | None

    def show(self) -> None:
        """Print tables."""
        headings = ("shape", Number("starts"), "what stops the next one", "instead of")
        hours = () if self.others is None else (Number("gang-hours"),)
        terminal.table("Capacity", (*headings, *hours), [self._row(one) for one in self.found])
        if self.others:
            terminal.note(f"gangs of other shapes, or of none, have waited for {_hours(self.others)} gang-hours")
        if self.fragments is not None:
            self._show_fragments(self.fragments)

    def json(self) -> dict[str, Any]:
        """Return it for programs."""
        more = {} if self.others is None else {"otherWaitedSeconds": self.others}
        return {"shapes": [self._shape(one) for one in self.found], **more, **self._fragments()}

    def _row(self, one: Capacity) -> tuple[str, ...]:
        starts = f"{one.starts} or more" if one.is_bound else f"{one.starts}"
        stopped = f"{one.reason}: {one.message}" if one.reason else ""
        hours = () if self.others is None else (_hours(self.waited[one.shape]) if one.shape in self.waited else "",)
        return one.shape, starts, stopped, ", ".join(one.instead_of), *hours

    def _shape(self, one: Capacity) -> dict[str, Any]:
        more = {} if self.others is None else {"waitedSeconds": self.waited.get(one.shape)}
        return {
            "shape": one.shape,
            "starts": one.starts,
            "atLeast": one.is_bound,
            "reason": one.reason or None,
            "message": one.message,
            "details": dict(one.details),
            "insteadOf": [*one.instead_of],
            **more,
        }

    def _fragments(self) -> dict[str, Any]:
        if self.fragments is None:
            return {}
        return {
            "free": [
                {
                    "node": one.node,
                    "driver": one.driver,
                    "free": one.free,
                    "devices": one.total,
                    "usable": dict(one.usable),
                }
                for one in self.fragments.free()
            ],
            "moves": [
                {
                    "shape": one.kind,
                    "gang": one.gang,
                    "devices": one.devices,
                    "from": [*one.source],
                    "to": [*one.target],
                    "starts": one.starts,
                }
                for one in self.fragments.moves()
            ],
        }

    def _show_fragments(self, fragments: Fragments) -> None:
        shapes = [one.shape for one in self.found]
        rows = [
            (one.node, one.driver, f"{one.free} of {one.total}", *(one.usable[shape] for shape in shapes))
            for one in fragments.free()
        ]
        headings = ("node", "driver", "free", *(Number(f"for {shape}") for shape in shapes))
        terminal.table("Free devices", headings, rows, empty="no device is free")
        moves = [
            (one.gang, one.devices, ", ".join(one.source), ", ".join(one.target), f"{one.starts} of {one.kind}")
            for one in fragments.moves()
        ]
        columns = ("gang", Number("devices"), "from", "to", "then start")
        terminal.table("If one gang were moved", columns, moves, empty="moving no single gang makes room for more")


def _hours(seconds: int) -> str:
    return f"{seconds / _HOUR:.1f}"
