"""A heat map of all devices: one square for each unit, a block for each node, coloured by the queue that has it.

Pure: positions and classes, from which a template writes the SVG. Squares of one colour in a block are one path, so
that a page of ten thousand devices stays small.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from admission.api.kubernetes.devices import Device
from admission.api.values import quantities
from admission.dashboard.devices.inventory import SHARED, Unit

WIDTH = 1_280
COLUMNS = 8
"""Squares side by side in a block."""
FEW_NODES = 60
"""With at most so many nodes, squares are large and blocks have names."""
SERIES = 7
"""The most queues with a colour of their own."""

FREE, CLOSED, OUTSIDE, HIDDEN = "free", "closed", "no queue", "another namespace"
OTHERS = "other queues"
FIXED: Mapping[str, str] = {FREE: "free", CLOSED: "closed", OUTSIDE: "outside", HIDDEN: "hidden", OTHERS: "others"}
"""Groups that are no queue, with the class of their colour. A queue may be called so, too."""

MODELS = ("productName", "model", "type")
"""Attributes in which drivers say what a device is, the most telling first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """A unit on the map. group: a queue, or one of `FIXED`. model, memory: as the driver says; "" if it does not."""

    node: str
    device: str
    driver: str
    model: str
    memory: str
    group: str
    is_queue: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A node on the map. paths: by class of the colour. title: what it has in words."""

    node: str
    x: int
    y: int
    width: int
    height: int
    paths: tuple[tuple[str, str], ...]
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table beside the map, which is its legend: the devices of a group by model."""

    group: str
    style: str
    total: int
    by_model: Mapping[str, int]
    is_queue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """The map and the same as a table."""

    width: int
    height: int
    named: bool
    blocks: tuple[Block, ...]
    rows: tuple[Row, ...]
    models: tuple[str, ...]
    total: int


def squares(nodes: Mapping[str, Sequence[Unit]], group_of: Callable[[str, Unit], tuple[str, bool]]) -> list[Square]:
    """Return a square for each unit. group_of: of a node's unit, its group, and whether that is a queue."""
    found: list[Square] = []
    for node, units in nodes.items():
        for unit in units:
            group, is_queue = group_of(node, unit)
            device = max(unit.parts, key=lambda part: part.share).device
            found.append(
                Square(
                    node=node,
                    device=unit.name,
                    driver=unit.driver,
                    model=model(device),
                    memory=memory(device),
                    group=group,
                    is_queue=is_queue,
                )
            )
    return found


def model(device: Device) -> str:
    """Return what a device is, as its driver says; "" if it does not."""
    named = {name.rpartition("/")[2]: value for name, value in device.attributes.items() if isinstance(value, str)}
    return next((str(named[name]) for name in MODELS if name in named), "")


def memory(device: Device) -> str:
    """Return the memory of a device; "" if its driver does not say it."""
    found = next((one for name, one in device.capacity.items() if name.rpartition("/")[2] == "memory"), None)
    return quantities.render(int(found.value)) if found is not None else ""


def kind(square: Square) -> str:
    """Return model and memory in words."""
    return " ".join(filter(None, (square.model, square.memory))) or "no model"


def heat_map(found: Sequence[Square]) -> HeatMap:
    """Return the map of squares, which are in the order of their nodes."""
    counts = Counter((square.group, square.is_queue) for square in found)
    queues = sorted((name for name, is_queue in counts if is_queue), key=lambda name: (-counts[name, True], name))
    styles = {(name, True): f"series-{at}" for at, name in enumerate(queues[:SERIES])}
    styles |= {(name, True): FIXED[OTHERS] for name in queues[SERIES:]} | {
        (name, False): style for name, style in FIXED.items()
    }
    by_node: dict[str, list[Square]] = {}
    for square in found:
        by_node.setdefault(square.node, []).append(square)
    named = len(by_node) <= FEW_NODES
    blocks = tuple(_blocks(by_node, styles, named=named))
    return HeatMap(
        width=WIDTH,
        height=max((block.y + block.height for block in blocks), default=0),
        named=named,
        blocks=blocks,
        rows=tuple(_rows(found, styles)),
        models=tuple(sorted({kind(square) for square in found})),
        total=len(found),
    )


def _blocks(
    by_node: Mapping[str, Sequence[Square]], styles: Mapping[tuple[str, bool], str], *, named: bool
) -> Iterable[Block]:
    size, gap, heading = (18, 14, 18) if named else (7, 5, 0)
    x = y = line = 0
    for node, units in by_node.items():
        columns = min(COLUMNS, len(units)) if not named else COLUMNS
        width, height = columns * size, heading + -(-len(units) // COLUMNS) * size
        if x + width > WIDTH:
            x, y, line = 0, y + line + gap, 0
        paths: dict[str, list[str]] = {}
        for at, square in enumerate(units):
            row, column = divmod(at, COLUMNS)
            side = size - 1
            path = f"M{x + column * size} {y + heading + row * size}h{side}v{side}h-{side}z"
            paths.setdefault(styles[square.group, square.is_queue], []).append(path)
        yield Block(
            node=node,
            x=x,
            y=y,
            width=width,
            height=height,
            paths=tuple((style, "".join(parts)) for style, parts in sorted(paths.items())),
            title=_title(node, units),
        )
        x, line = x + width + gap, max(line, height)


def _title(node: str, units: Sequence[Square]) -> str:
    kinds = Counter(map(kind, units))
    groups = Counter(square.group for square in units)
    has = ", ".join(f"{count} {name}" for name, count in kinds.most_common())
    held = ", ".join(f"{name} {count}" for name, count in groups.most_common())
    return f"{node if node != SHARED else 'reached by several nodes'}: {has}; {held}"


def _rows(found: Sequence[Square], styles: Mapping[tuple[str, bool], str]) -> Iterable[Row]:
    """Yield the queues, the largest first, and then what is no queue."""
    by_group: dict[tuple[str, bool], Counter[str]] = {}
    for square in found:
        by_group.setdefault((square.group, square.is_queue), Counter())[kind(square)] += 1
    for (group, is_queue), by_model in sorted(
        by_group.items(), key=lambda item: (not item[0][1], -item[1].total(), item[0][0])
    ):
        yield Row(
            group=group,
            style=styles[group, is_queue],
            total=by_model.total(),
            by_model=dict(by_model),
            is_queue=is_queue,
        )
