"""The publication of signed heads, which runs beside the cycles: no admission waits for a signature or a publication.

Every place of publication has a queue and a task of its own, so that one that does not answer delays no other. A head
that could not be published is retried until the term ends; the next leader begins with a head of the same chain.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import structlog

from admission.api.muster.status_reports import EventType, Notice
from admission.api.values.names import Uid
from admission.api.values.reasons import EventReason
from admission.controller.head_signer import Foreign, HeadSigner
from admission.errors import ConflictError, DeposedError, LedgerCorruptError, MusterError
from admission.heads import head_document, retention, signed_head
from admission.heads.head_document import KeptHeads
from admission.heads.signed_head import Cause, SignedHead
from admission.ports import EntryStore, HeadSink

log = structlog.get_logger()

TICK = 0.5
"""Seconds between two checks whether a head is due."""

LONGEST_PAUSE = 60.0
"""Seconds between two tries, at most."""

ENDED_TERM_SECONDS = 5.0
"""How long `check_ended_term` may take at the end of a term."""

MOST_WAITING = 2_000
"""Heads that wait for one place; of more, the newest."""

MOST_LOGGED = 20
"""Foreign entries that are logged one by one for one head."""

TRIES = 5
"""How often a write is tried when another process changes the ConfigMap meanwhile."""

CONFIG_MAP = "configmap"


class HeadMetrics(Protocol):
    """Counts published heads, failures, and what the check of the chain found."""

    def head_published(self, place: str, at: datetime) -> None: ...

    def head_failed(self, place: str) -> None: ...

    def chain_checked(self, *, broken: bool, foreign: int = 0) -> None: ...


class ConfigMapSink:
    """The heads that are kept in the cluster, with the public keys."""

    def __init__(self, store: EntryStore, signer: HeadSigner, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._signer = signer
        self._clock = clock
        self._known: Mapping[str, bytes] = {}
        """The entries whose heads the signer has, since decoding hundreds of heads takes long."""

    async def read(self) -> KeptHeads:
        """Return what is kept. Raises FixError if it cannot be read as heads."""
        stored = await self._store.read()
        if stored is None:
            return KeptHeads()
        kept = await asyncio.to_thread(head_document.from_entries, stored[0])
        self._known = stored[0]
        return kept

    async def publish(self, heads: object) -> None:  # noqa: ARG002 - the signer keeps them with those of before
        """Write all heads that are kept. One that was deleted or changed is written again."""
        for attempt in range(1, TRIES + 1):
            stored, version = await self._store.read() or ({}, None)
            entries = await asyncio.to_thread(self._merged, stored)
            if version is not None and entries == stored:
                return
            try:
                await self._store.write(entries, version)
            except ConflictError:
                if attempt == TRIES:
                    raise
            else:
                self._known = entries
                return

    def _merged(self, stored: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the entries with the heads that are stored, and those that the signer has."""
        kept = self._signer.kept
        if stored != self._known:
            kept = retention.retained((*head_document.from_entries(stored).heads, *kept), now=self._clock())
        return head_document.to_entries(KeptHeads(heads=tuple(kept), keys=self._signer.public))


@dataclass(slots=True, kw_only=True)
class _Place:
    """A place of publication, and the heads that wait for it."""

    name: str
    sink: HeadSink
    metrics: HeadMetrics
    waiting: deque[SignedHead] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, signed: SignedHead) -> None:
        self.waiting.append(signed)
        self.wakeup.set()

    async def run(self) -> None:
        """Publish what waits until cancelled."""
        failed = 0
        while True:
            await self.wakeup.wait()
            heads = tuple(self.waiting)
            try:
                await self.sink.publish(heads)
            except Exception as error:  # noqa: BLE001 - a defect here must not end the term
                failed += 1
                self.metrics.head_failed(self.name)
                _warn("a head of the books is not published", error, place=self.name, failed=failed)
                await asyncio.sleep(_pause(failed))
                continue
            failed = 0
            self.metrics.head_published(self.name, heads[-1].head.at)
            while self.waiting and self.waiting[0] in heads:
                self.waiting.popleft()
            if not self.waiting:
                self.wakeup.clear()


class HeadPublisher:
    """Signs and publishes during one term."""

    def __init__(
        self,
        signer: HeadSigner,
        *,
        config_map: ConfigMapSink,
        sinks: Mapping[str, HeadSink],
        metrics: HeadMetrics,
        notify: Callable[[Notice], Awaitable[None]],
        subject: tuple[str, str],
    ) -> None:
        """subject: namespace and name of the ConfigMap, which Events are about."""
        self._signer = signer
        self._config_map = config_map
        self._metrics = metrics
        self._notify = notify
        self._subject = subject
        places = {CONFIG_MAP: config_map, **sinks}
        self._places = [_Place(name=name, sink=sink, metrics=metrics) for name, sink in places.items()]
        self._failed = 0

    async def run(self, epoch: int) -> None:
        """Sign and publish until cancelled. Raises DeposedError if a later leader has begun."""
        async with asyncio.TaskGroup() as tasks:
            for place in self._places:
                # Before the first publication, the age of the last head counts from the beginning of the term.
                self._metrics.head_published(place.name, self._signer.clock())
                tasks.create_task(place.run(), name=f"publish heads: {place.name}")
            await self._sign_when_due(epoch)

    async def check_ended_term(self, epoch: int) -> None:
        """Report what other clients wrote during a term that was ended by another client's write."""
        try:
            async with asyncio.timeout(ENDED_TERM_SECONDS):
                await self._signer.check_ended_term(epoch)
        except (MusterError, TimeoutError) as error:
            log.warning("what others have written at the end of the term is not known", error=str(error))
            return
        self._metrics.chain_checked(broken=False, foreign=self._signer.foreign_count)
        if self._signer.foreign:
            await self._report_foreign(self._signer.foreign)

    async def _sign_when_due(self, epoch: int) -> None:
        has_begun = False
        while True:
            try:
                if not has_begun:
                    self._signer.begin(await self._config_map.read())
                    has_begun = True
                if self._signer.is_due():
                    await self._sign(epoch)
                self._failed = 0
            except DeposedError:
                raise
            except LedgerCorruptError as error:
                await self._report_broken(error)
                await asyncio.sleep(_pause(self._failed))
            except Exception as error:  # noqa: BLE001 - a defect here must not end the term
                self._failed += 1
                self._metrics.head_failed("signature")
                _warn("the head of the books is not signed", error, failed=self._failed)
                await asyncio.sleep(_pause(self._failed))
            await asyncio.sleep(TICK)

    async def _sign(self, epoch: int) -> None:
        signed = await self._signer.sign(epoch)
        self._metrics.chain_checked(broken=False, foreign=self._signer.foreign_count)
        if signed is None:
            return
        log.info("the head of the books is signed", head=signed_head.to_json(signed))
        for place in self._places:
            place.add(signed)
        head = signed.head
        if self._signer.foreign:
            await self._report_foreign(self._signer.foreign)
        if head.cause is not Cause.TIME:
            message = f"the books end at transaction {head.sequence}, digest {head.digest}, epoch {head.epoch}"
            await self._event(EventType.NORMAL, EventReason.HEAD_SIGNED, message)

    async def _report_broken(self, error: LedgerCorruptError) -> None:
        self._failed += 1
        self._metrics.chain_checked(broken=True)
        log.error("the books are not those that were signed", error=str(error))
        message = f"{error}; no head is signed until this is settled: run `muster ledger verify --heads cluster`"
        await self._event(EventType.WARNING, EventReason.HEAD_NOT_PASSED, message)

    async def _report_foreign(self, foreign: tuple[Foreign, ...]) -> None:
        for sequence, entry in foreign[:MOST_LOGGED]:
            log.warning(
                "another client has written into the books",
                sequence=sequence,
                kind=str(entry.kind),
                queue=entry.queue,
                actor=entry.actor,
                reason=entry.reason,
            )
        (first, entry), (last, _) = foreign[0], foreign[-1]
        message = (
            f"another client has written into the books ({self._signer.foreign_count}): transactions {first} to {last},"
            f" the first of them ({entry.kind}) by {entry.actor}"
        )
        await self._event(EventType.WARNING, EventReason.FOREIGN_ENTRIES, message)

    async def _event(self, kind: EventType, reason: EventReason, message: str) -> None:
        await self._notify(notice(self._subject, kind, reason, message))


def notice(subject: tuple[str, str], kind: EventType, reason: EventReason, message: str) -> Notice:
    """Return an Event about the ConfigMap with the heads. subject: its namespace and name."""
    namespace, name = subject
    return Notice(
        api_version="v1",
        kind="ConfigMap",
        namespace=namespace,
        name=name,
        uid=Uid(""),
        type=kind,
        reason=reason,
        message=message,
        action="Signature",
    )


def _warn(event: str, error: Exception, **fields: Any) -> None:
    """Log a failure; a defect of Muster with its traceback."""
    if isinstance(error, MusterError):
        log.warning(event, error=str(error), **fields)
    else:
        log.error(event, exc_info=error, **fields)


def _pause(failed: int) -> float:
    return min(LONGEST_PAUSE, 0.5 * 2.0 ** min(failed, 10))
