"""A drawing of a node's devices: a box for each unit, in a frame for each PCIe root, divided into the held parts.

Pure: it computes positions and texts, from which a template writes the SVG. Boxes never differ by colour alone.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from admission.dashboard.auth.rbac import VisibleNamespaces
from admission.dashboard.devices.inventory import Holder, Holders, Unit

BOX_WIDTH = 104
"""The width of a unit; all sizes are in CSS pixels."""
BOX_HEIGHT = 46
GAP = 8
HEADING_HEIGHT = 20
"""The height of a frame's heading."""
PADDING = 8
BOXES_PER_ROW = 8
"""Units side by side in a frame."""
LETTER_WIDTH = 6
"""The width of a letter of a heading, slightly above the average."""
MAX_LABEL = 15
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
    """A part of a box. tooltip: the text of its tooltip and of the table beside the drawing."""

    x: float
    width: float
    state: State
    label: str
    tooltip: str


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


def draw(
    node: str, units: Sequence[Unit], holders: Holders, *, visible: VisibleNamespaces, own_gang: str = ""
) -> Drawing:
    """Return the drawing of a node's units. own_gang: the gang of the page; visible: whose names may be shown."""
    frames: list[Frame] = []
    rows: list[tuple[str, str, State, Holder | None]] = []
    y, free = 0, 0
    for heading, group in itertools.groupby(units, key=_heading):
        boxes: list[Box] = []
        for at, unit in enumerate(group):
            shares = unit_shares(unit, holders, own_gang=own_gang)
            rows += [(unit.name, part.part, part.state, redacted(part.holder, visible)) for part in shares]
            free += all(part.state is State.FREE for part in shares)
            boxes.append(_box(unit, shares, visible, at=at, top=y + HEADING_HEIGHT + PADDING))
        lines = -(-len(boxes) // BOXES_PER_ROW)
        height = HEADING_HEIGHT + PADDING + lines * (BOX_HEIGHT + GAP) - GAP + PADDING
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


def unit_shares(unit: Unit, holders: Holders, *, own_gang: str = "") -> list[UnitShare]:
    """Return the held parts of a unit, and its free rest, if any."""
    found = [
        UnitShare(part=part.id.device, share=part.share, state=_state(holder, own_gang), holder=holder)
        for part in unit.parts
        for holder in holders.get(part.id, ())
    ]
    # Several claims may share one device; each then counts with the whole share of the device.
    free = 1 - sum((unit_share.share for unit_share in found), Fraction(0))
    if free > 0:
        found.append(UnitShare(part="", share=free, state=State.FREE, holder=None))
    return found


def redacted(holder: Holder | None, visible: VisibleNamespaces) -> Holder | None:
    """Return a holder, without its names if the visitor may not see them."""
    if holder is None or holder.namespace in visible:
        return holder
    return Holder(claim="", gang="", planned=holder.planned, shared=holder.shared)


def holder_name(holder: Holder | None) -> str:
    """Return the name of a holder."""
    if holder is None:
        return "nobody"
    return holder.gang or (f"claim {holder.claim}" if holder.claim else HIDDEN)


def _state(holder: Holder, own_gang: str) -> State:
    if own_gang and holder.gang == own_gang:
        return State.MINE
    return State.PLANNED if holder.planned else State.HELD


def _heading(unit: Unit) -> str:
    place = f"PCIe root {unit.root}" if unit.root else "no PCIe root said"
    return f"{unit.driver} · {place}"


def _box(unit: Unit, shares: Sequence[UnitShare], visible: VisibleNamespaces, *, at: int, top: int) -> Box:
    row, column = divmod(at, BOXES_PER_ROW)
    total = sum((unit_share.share for unit_share in shares), Fraction(0))
    pieces: list[Piece] = []
    x = Fraction(0)
    for unit_share in shares:
        width = Fraction(BOX_WIDTH) * unit_share.share / total
        pieces.append(_piece(unit_share, visible, x=x, width=width))
        x += width
    return Box(
        x=PADDING + column * (BOX_WIDTH + GAP),
        y=top + row * (BOX_HEIGHT + GAP),
        name=cut(unit.name),
        pieces=tuple(pieces),
        tainted=any(part.device.taints for part in unit.parts),
    )


def _piece(unit_share: UnitShare, visible: VisibleNamespaces, *, x: Fraction, width: Fraction) -> Piece:
    name = holder_name(redacted(unit_share.holder, visible))
    what = f"{unit_share.part}: " if unit_share.part else ""
    planned = ", not allocated yet" if unit_share.holder is not None and unit_share.holder.planned else ""
    tooltip = f"{what}{unit_share.state}" if unit_share.holder is None else f"{what}held by {name}{planned}"
    label = unit_share.state.value if unit_share.holder is None else name.rpartition("/")[2]
    return Piece(
        x=float(x),
        width=float(width),
        state=unit_share.state,
        label=cut(label, int(width) // 7),
        tooltip=tooltip,
    )


def _width(boxes: int, heading: str) -> int:
    return 2 * PADDING + max(min(boxes, BOXES_PER_ROW) * (BOX_WIDTH + GAP) - GAP, LETTER_WIDTH * len(heading))


def cut(text: str, most: int = MAX_LABEL) -> str:
    """Return a text cut to so many characters; "" if hardly any would fit."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most > 2 else ""


def ordered(units: Iterable[Unit]) -> list[Unit]:
    """Return units in the order of the drawing."""
    return sorted(units, key=lambda unit: (_heading(unit), unit.pool))
