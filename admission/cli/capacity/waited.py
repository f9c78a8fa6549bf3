"""The shapes of gangs that waited, from the books: those that have waited for longest in the last 30 days."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from admission.api.capacity import gang_shapes
from admission.api.capacity.gang_shapes import GangShape, PodShape
from admission.api.kubernetes import claims
from admission.api.muster.ledger_entries import WaitingShape
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.cli.capacity.copies import MOST_PODS
from admission.errors import FixError, MusterError
from admission.ledger.sql_ledger import SqlLedger
from admission.settings import Ledger

DAYS = timedelta(days=30)

MOST = 10
"""The most shapes, those that have waited for longest."""

_NAME = "muster-waited"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedShape:
    """Pods that ask for what those of gangs asked for that waited, in their queue and namespace.

    key: tells shapes apart. seconds: how long such gangs have waited, in gang-seconds.
    """

    key: str
    title: str
    queue: str
    namespace: str
    gang: GangShape
    seconds: int

    @property
    def pods(self) -> int:
        return self.gang.size

    @property
    def shared(self) -> tuple[Json, ...]:
        return tuple(
            {
                "apiVersion": claims.VERSION,
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": f"{_NAME}-{self.key}-{part}-{at}", "namespace": self.namespace},
                "spec": {"spec": claims.encode_spec(spec)},
            }
            for part, of_part in enumerate(self.gang.pods)
            for at, spec in enumerate(of_part.claims)
        )

    def name(self, number: int) -> str:
        return f"{_NAME}-{self.key}-{number:04}"

    def copy(self, number: int) -> list[Json]:
        return [
            self._pod(f"{self.name(number)}-{part}-{at}", self.name(number), part, of_part)
            for part, of_part in enumerate(self.gang.pods)
            for at in range(of_part.count)
        ]

    def _pod(self, name: str, gang: str, part: int, one: PodShape) -> Json:
        own = [f"claim-{at}" for at in range(len(one.claims))]
        container = {
            "name": "main",
            "image": "none",
            "resources": {"requests": dict(one.requests), "claims": [{"name": claim} for claim in own]},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {names.QUEUE: self.queue, names.GANG: gang},
                "annotations": {names.GANG_SIZE: str(self.pods)},
            },
            "spec": {
                "restartPolicy": "Never",
                "resourceClaims": [
                    {"name": claim, "resourceClaimTemplateName": f"{_NAME}-{self.key}-{part}-{at}"}
                    for at, claim in enumerate(own)
                ],
                "containers": [container],
            },
        }


def shapes(ledger: Ledger) -> tuple[list[WaitedShape], int]:
    """Return the shapes that have waited for longest, and for how long all others have, in gang-seconds.

    Raises FixError if nothing has waited, and the errors of the ledger.
    """
    found, others = chosen(asyncio.run(_read(ledger, datetime.now(UTC))))
    if not found:
        raise FixError(
            "--waited: the books know of no gang with a shape that waited in the last 30 days; say --shape or --gang"
        )
    return found, others


def chosen(rows: Sequence[WaitingShape]) -> tuple[list[WaitedShape], int]:
    """Return the shapes of rows that have waited for longest, and for how long all others have."""
    total = Counter[tuple[str, str, str]]()
    for row in rows:
        total[row.queue, row.namespace, row.shape] += row.seconds
    found: list[WaitedShape] = []
    for (queue, namespace, text), seconds in sorted(total.items(), key=lambda one: (-one[1], one[0])):
        gang = _shape(text)
        if gang is not None and gang.size <= MOST_PODS and len(found) < MOST:
            key, title = str(len(found)), f"{gang.title} in {queue}"
            before = sum(one.title.startswith(title) for one in found)
            found.append(
                WaitedShape(
                    key=key,
                    title=f"{title} ({before + 1})" if before else title,
                    queue=queue,
                    namespace=namespace,
                    gang=gang,
                    seconds=seconds,
                )
            )
    return found, total.total() - sum(one.seconds for one in found)


async def _read(ledger: Ledger, now: datetime) -> Sequence[WaitingShape]:
    async with SqlLedger.open(ledger.url, ledger.cluster) as opened:
        return (await opened.waiting(now - DAYS, now)).shapes


def _shape(text: str) -> GangShape | None:
    """Return the shape of a text; None if there is none, or a later Muster wrote it."""
    try:
        return gang_shapes.parse(text) if text else None
    except MusterError:
        return None
