"""The devices of a node as a drawing: a box for each unit, in frames by PCIe root, and in it the parts that are held.

Pure: what comes out are places and words, and a template writes the SVG. Colours are never all that tells boxes apart.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from admission.dashboard.auth.rbac import Seen
from admission.dashboard.devices.inventory import Holder, Holders, Unit

BOX = 104
"""Width of a unit; all are in CSS pixels."""
TALL = 46
GAP = 8
HEAD = 20
"""Height of a frame's heading."""
PAD = 8
ACROSS = 8
"""Units side by side in a frame."""
LETTER = 6
"""Width of a letter of a heading, on average and a little more."""
LONGEST = 15
"""Characters of a label that fit into a box."""

HIDDEN = "another namespace"
"""Stands for what a visitor may not see by name."""


class State(StrEnum):
    """How a part of a unit stands."""

    FREE = "free"
    MINE = "mine"
    """Held by the gang that is looked at."""
    HELD = "held"
    PLANNED = "planned"
    """Granted, and not allocated yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a box. said: what a pointer shows, and what the table beside the drawing says."""

    x: float
    width: float
    state: State
    label: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A unit. device: its name; pieces: from left to right; tainted: whether it has a taint."""

    x: int
    y: int
    name: str
    pieces: tuple[Piece, ...]
    tainted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The units of one PCIe root, or of one driver where no root is said."""

    y: int
    height: int
    width: int
    heading: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A node. rows: the same for who cannot see it: unit, part, state, who."""

    node: str
    width: int
    height: int
    frames: tuple[Frame, ...]
    rows: tuple[tuple[str, str, State, Holder | None], ...]
    free: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitShare:
    """A part of a unit with one of its holders; of no part and nobody where the unit is free."""

    part: str
    share: Fraction
    state: State
    holder: Holder | None


def drawn(node: str, units: Sequence[Unit], holders: Holders, *, seen: Seen, mine: str = "") -> Drawing:
    """Draw the units of a node. mine: the gang that is looked at; seen: whose names may be shown."""
    frames: list[Frame] = []
    rows: list[tuple[str, str, State, Holder | None]] = []
    y, free = 0, 0
    for heading, group in itertools.groupby(units, key=_heading):
        boxes: list[Box] = []
        for at, unit in enumerate(group):
            taken = uses(unit, holders, mine=mine)
            rows += [(unit.name, one.part, one.state, shown(one.holder, seen)) for one in taken]
            free += all(one.state is State.FREE for one in taken)
            boxes.append(_box(unit, taken, seen, at=at, top=y + HEAD + PAD))
        lines = -(-len(boxes) // ACROSS)
        height = HEAD + PAD + lines * (TALL + GAP) - GAP + PAD
        frames.append(Frame(y=y, height=height, width=_width(len(boxes), heading), heading=heading, boxes=tuple(boxes)))
        y += height + GAP
    return Drawing(
        node=node,
        width=max((frame.width for frame in frames), default=0),
        height=max(0, y - GAP),
        frames=tuple(frames),
        rows=tuple(rows),
        free=free,
        total=len(units),
    )


def uses(unit: Unit, holders: Holders, *, mine: str = "") -> list[UnitShare]:
    """Return the parts of a unit that somebody holds, and what is left of it, if anything."""
    found = [
        UnitShare(part=part.id.device, share=part.share, state=_state(holder, mine), holder=holder)
        for part in unit.parts
        for holder in holders.get(part.id, ())
    ]
    # Several claims may share one device, and then each has all of it as far as counters tell.
    left = 1 - sum((one.share for one in found), Fraction(0))
    if left > 0:
        found.append(UnitShare(part="", share=left, state=State.FREE, holder=None))
    return found


def shown(holder: Holder | None, seen: Seen) -> Holder | None:
    """Return a holder without its names where the visitor may not see them."""
    if holder is None or holder.namespace in seen:
        return holder
    return Holder(claim="", gang="", planned=holder.planned, shared=holder.shared)


def who(holder: Holder | None) -> str:
    """Say who holds something."""
    if holder is None:
        return "nobody"
    return holder.gang or (f"claim {holder.claim}" if holder.claim else HIDDEN)


def _state(holder: Holder, mine: str) -> State:
    if mine and holder.gang == mine:
        return State.MINE
    return State.PLANNED if holder.planned else State.HELD


def _heading(unit: Unit) -> str:
    place = f"PCIe root {unit.root}" if unit.root else "no PCIe root said"
    return f"{unit.driver} · {place}"


def _box(unit: Unit, taken: Sequence[UnitShare], seen: Seen, *, at: int, top: int) -> Box:
    row, column = divmod(at, ACROSS)
    whole = sum((one.share for one in taken), Fraction(0))
    pieces: list[Piece] = []
    x = Fraction(0)
    for one in taken:
        width = Fraction(BOX) * one.share / whole
        pieces.append(_piece(one, seen, x=x, width=width))
        x += width
    return Box(
        x=PAD + column * (BOX + GAP),
        y=top + row * (TALL + GAP),
        name=cut(unit.name),
        pieces=tuple(pieces),
        tainted=any(part.device.taints for part in unit.parts),
    )


def _piece(one: UnitShare, seen: Seen, *, x: Fraction, width: Fraction) -> Piece:
    by = who(shown(one.holder, seen))
    what = f"{one.part}: " if one.part else ""
    planned = ", not allocated yet" if one.holder is not None and one.holder.planned else ""
    said = f"{what}{one.state}" if one.holder is None else f"{what}held by {by}{planned}"
    label = one.state.value if one.holder is None else by.rpartition("/")[2]
    return Piece(
        x=float(x),
        width=float(width),
        state=one.state,
        label=cut(label, int(width) // 7),
        said=said,
    )


def _width(boxes: int, heading: str) -> int:
    return 2 * PAD + max(min(boxes, ACROSS) * (BOX + GAP) - GAP, LETTER * len(heading))


def cut(text: str, most: int = LONGEST) -> str:
    """Return at most so many characters, and nothing where hardly any would fit."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most > 2 else ""


def ordered(units: Iterable[Unit]) -> list[Unit]:
    """Return units in the order in which they are drawn."""
    return sorted(units, key=lambda unit: (_heading(unit), unit.pool))
