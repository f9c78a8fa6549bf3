"""Random gangs of every kind, and random misfortunes between them: a script that follows from a seed alone.

What happens when is chosen beforehand, so a seed repeats the choices; how far Muster is at each of them is not.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.controlplane.fleet import Manifest
from tests.e2e.labs import PARTS

QUOTA = 14
"""Devices that the gangs of a script may have at a time, of the 16 cards, 4 partitioned and 4 shared ones there are."""

NODES = 4
CARDS = 4
"""Of each node, two on either side (attribute `numa`)."""


class Act(StrEnum):
    """What a step does."""

    SUBMIT = "a gang is submitted"
    OUTSIDER = "a pod comes that no queue asked for"
    DELETE_GANG = "a gang is deleted"
    DELETE_POD = "a pod of a gang is deleted"
    ROB = "the next claim that has devices and no pod yet loses them"
    KILL = "Muster is killed (-9)"
    KILL_WRITING = "Muster is killed (-9), and its successors as they are about to make a write"
    FREEZE = "Muster stands still until another leads, and goes on without knowing of it"
    KILL_API_SERVER = "the API server is killed (-9)"
    LOSE_NODE = "a node goes, and its slices"
    NODE_BACK = "it is back"
    LOSE_DEVICE = "a device leaves its slice"
    DEVICE_BACK = "it is back in it"
    UNPROTECT = "what protects the devices is taken away"
    PROTECT = "it is set up again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a gang asks for. shared: whether its pods have one claim together. cpu: what each of them asks for beside
    devices. held: the reason that holds it for ever, or nothing."""

    kind: str
    pods: int
    requests: tuple[Manifest, ...]
    constraints: tuple[Manifest, ...] = ()
    shared: bool = False
    cpu: str = ""
    held: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One act and the seconds of quiet after it. shape: of the gang that is submitted. gang: the number of the one that
    is meant. which: any number, to choose among pods, nodes or writes by."""

    act: Act
    gang: int = -1
    shape: Shape | None = None
    seconds: int = 0
    """How long the pods of the gang run."""
    which: int = 0
    pause: float = 0.0


def script(seed: int, gangs: int, device_class: str, *, parts: bool) -> list[Step]:
    """Return what happens to so many gangs: deaths and losses in proportion, of each kind at least one.

    parts: whether gangs may ask for partitions and shares of devices, which are features of the release.
    """
    chance = random.Random(seed)  # noqa: S311 - a test's dice
    return list(_Author(chance, gangs, _Shapes(chance, device_class, parts=parts)).steps())


# Each misfortune, after how many gangs it comes again, and what ends it some gangs later.
MISFORTUNES: Sequence[tuple[Act, int, Act | None]] = (
    (Act.KILL, 20, None),
    (Act.KILL_WRITING, 30, None),
    (Act.FREEZE, 60, None),
    (Act.KILL_API_SERVER, 50, None),
    (Act.LOSE_NODE, 25, Act.NODE_BACK),
    (Act.LOSE_DEVICE, 15, Act.DEVICE_BACK),
    (Act.UNPROTECT, 60, Act.PROTECT),
)
GANGS_UNTIL_BACK = 3

# What comes between two gangs, and how often.
BETWEEN: Sequence[tuple[Act, float]] = (
    (Act.OUTSIDER, 0.3),
    (Act.DELETE_GANG, 0.08),
    (Act.DELETE_POD, 0.08),
    (Act.ROB, 0.15),
)


@dataclass(slots=True)
class _Author:
    chance: random.Random
    gangs: int
    shapes: "_Shapes"
    ends: dict[int, list[Step]] = field(default_factory=dict)

    def steps(self) -> Iterator[Step]:
        misfortunes = self._misfortunes()
        for number in range(self.gangs):
            yield self._gang(number)
            for act, odds in BETWEEN:
                if self.chance.random() < odds:
                    yield self._step(act, gang=self.chance.randint(max(0, number - 8), number))
            for act, end in misfortunes.get(number, ()):
                step = self._step(act)
                yield step
                if end is not None:
                    back = Step(act=end, which=step.which)
                    self.ends.setdefault(min(self.gangs - 1, number + GANGS_UNTIL_BACK), []).append(back)
            yield from self.ends.pop(number, ())

    def _misfortunes(self) -> dict[int, list[tuple[Act, Act | None]]]:
        """Choose after which gangs misfortunes come."""
        found: dict[int, list[tuple[Act, Act | None]]] = {}
        for act, every, end in MISFORTUNES:
            times = max(1, self.gangs // every)
            for begin, after in itertools.pairwise([*range(0, self.gangs, -(-self.gangs // times)), self.gangs]):
                found.setdefault(self.chance.randrange(begin, after), []).append((act, end))
        return found

    def _gang(self, number: int) -> Step:
        shape = self.shapes.draw()
        return self._step(Act.SUBMIT, gang=number, shape=shape, seconds=self.chance.randint(1, 3))

    def _step(self, act: Act, **more: Any) -> Step:
        return Step(act=act, which=self.chance.randrange(1000), pause=self.chance.random() * 0.4, **more)


class _Shapes:
    """Draws gangs that fit an empty cluster within the quota, and a few that never do."""

    def __init__(self, chance: random.Random, device_class: str, *, parts: bool) -> None:
        self._chance = chance
        self._class = device_class
        self._kinds: Sequence[tuple[Callable[[], Shape], int]] = (
            (self._plain, 5),
            (self._several_requests, 2 if parts else 0),
            (self._one_of, 2 if parts else 0),
            (self._parts, 3 if parts else 0),
            (self._same_side, 2),
            (self._much_cpu, 2),
            (self._one_claim, 2),
            (self._shares, 2 if parts else 0),
            (self._impossible, 2),
        )

    def draw(self) -> Shape:
        makers, weights = zip(*self._kinds, strict=True)
        made: Shape = self._chance.choices(makers, weights)[0]()
        return made

    def _plain(self) -> Shape:
        count = self._chance.randint(1, 2)
        return Shape(kind="plain", pods=self._chance.randint(1, 8 if count == 1 else 6), requests=(self._card(count),))

    def _several_requests(self) -> Shape:
        requests = (self._card(1), self._request("part", "quarter"))
        return Shape(kind="several requests", pods=self._chance.randint(1, 6), requests=requests)

    def _one_of(self) -> Shape:
        options = [("whole", 1), ("card", 3), ("half", 1)]
        self._chance.shuffle(options)
        listed = [{"name": f"o{at}", **self._asked(what, count)} for at, (what, count) in enumerate(options)]
        return Shape(
            kind="one of", pods=self._chance.randint(1, 4), requests=({"name": "any", "firstAvailable": listed},)
        )

    def _parts(self) -> Shape:
        profile = self._chance.choice([*PARTS])
        most = min(8, NODES * len(PARTS[profile]))
        return Shape(kind="parts", pods=self._chance.randint(1, most), requests=(self._request("part", profile),))

    def _same_side(self) -> Shape:
        rule = {"matchAttribute": f"{self._class}/numa"}
        return Shape(kind="same side", pods=self._chance.randint(1, 6), requests=(self._card(2),), constraints=(rule,))

    def _much_cpu(self) -> Shape:
        """Return one of which a node has CPU for two pods, but devices for four."""
        return Shape(kind="much CPU", pods=self._chance.randint(3, 8), requests=(self._card(1),), cpu="12")

    def _one_claim(self) -> Shape:
        return Shape(
            kind="one claim",
            pods=self._chance.randint(2, 8),
            requests=(self._card(self._chance.randint(1, 4)),),
            shared=True,
        )

    def _shares(self) -> Shape:
        capacity = {"requests": {"memory": self._chance.choice(["8Gi", "16Gi", "20Gi"])}}
        request = self._request("part", "share", capacity=capacity)
        return Shape(kind="shares", pods=self._chance.randint(1, 8), requests=(request,))

    def _impossible(self) -> Shape:
        rule = {"matchAttribute": f"{self._class}/numa"}
        return self._chance.choice(
            [
                Shape(kind="too wide", pods=2, requests=(self._card(CARDS + 1),), held="NoFeasiblePlacement"),
                Shape(
                    kind="no such side",
                    pods=1,
                    requests=(self._card(3),),
                    constraints=(rule,),
                    held="NoFeasiblePlacement",
                ),
                Shape(kind="beyond the quota", pods=8, requests=(self._card(2),), held="QuotaExceeded"),
            ]
        )

    def _card(self, count: int) -> Manifest:
        return self._request("card", "card", count=count)

    def _request(self, name: str, profile: str, count: int = 1, **more: Any) -> Manifest:
        return {"name": name, "exactly": {**self._asked(profile, count), **more}}

    def _asked(self, profile: str, count: int) -> dict[str, Any]:
        expression = f"device.attributes['{self._class}'].profile == '{profile}'"
        return {"deviceClassName": self._class, "selectors": [{"cel": {"expression": expression}}], "count": count}
