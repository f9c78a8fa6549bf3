"""A drawing of a node's devices: a box for each unit, in a frame for each PCIe root, divided into the held parts.

Pure: it computes positions and texts, from which a template writes the SVG. Boxes never differ by colour alone.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from admission.dashboard.auth.rbac import Seen
from admission.dashboard.devices.inventory import Holder, Holders, Unit

BOX = 104
"""The width of a unit; all sizes are in CSS pixels."""
TALL = 46
GAP = 8
HEAD = 20
"""The height of a frame's heading."""
PAD = 8
ACROSS = 8
"""Units side by side in a frame."""
LETTER = 6
"""The width of a letter of a heading, slightly above the average."""
LONGEST = 15
"""Characters of a label that fit into a box."""

HIDDEN = "another namespace"
"""Replaces names that a visitor may not see."""


class State(StrEnum):
    """The state of a part of a unit."""

    FREE = "free"
    MINE = "mine"
    """Held by the gang of the page."""
    HELD = "held"
    PLANNED = "planned"
    """Granted, but not allocated yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a box. said: the text of its tooltip and of the table beside the drawing."""

    x: float
    width: float
    state: State
    label: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A unit. name: shortened; pieces: from left to right; tainted: whether it has a taint."""

    x: int
    y: int
    name: str
    pieces: tuple[Piece, ...]
    tainted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The units of one PCIe root, or those of one driver without a PCIe root."""

    y: int
    height: int
    width: int
    heading: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The drawing of a node. rows: the same as a table, for visitors who cannot see it: unit, part, state, holder."""

    node: str
    width: int
    height: int
    frames: tuple[Frame, ...]
    rows: tuple[tuple[str, str, State, Holder | None], ...]
    free: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitShare:
    """A part of a unit with one of its holders; without part and holder if the unit is free."""

    part: str
    share: Fraction
    state: State
    holder: Holder | None


def drawn(node: str, units: Sequence[Unit], holders: Holders, *, seen: Seen, mine: str = "") -> Drawing:
    """Return the drawing of a node's units. mine: the gang of the page; seen: whose names may be shown."""
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
    """Return the held parts of a unit, and its free rest, if any."""
    found = [
        UnitShare(part=part.id.device, share=part.share, state=_state(holder, mine), holder=holder)
        for part in unit.parts
        for holder in holders.get(part.id, ())
    ]
    # Several claims may share one device; each then counts with the whole share of the device.
    left = 1 - sum((one.share for one in found), Fraction(0))
    if left > 0:
        found.append(UnitShare(part="", share=left, state=State.FREE, holder=None))
    return found


def shown(holder: Holder | None, seen: Seen) -> Holder | None:
    """Return a holder, without its names if the visitor may not see them."""
    if holder is None or holder.namespace in seen:
        return holder
    return Holder(claim="", gang="", planned=holder.planned, shared=holder.shared)


def who(holder: Holder | None) -> str:
    """Return the name of a holder."""
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
    """Return a text cut to so many characters; "" if hardly any would fit."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most > 2 else ""


def ordered(units: Iterable[Unit]) -> list[Unit]:
    """Return units in the order of the drawing."""
    return sorted(units, key=lambda unit: (_heading(unit), unit.pool))
