"""What a visitor may see: every question is one that Kubernetes' RBAC answers (docs/dashboard.md has the table).

Queues, gangs, nodes and slices are seen by who may `get` or `list` them with kubectl. The books are no Kubernetes
objects: the right to them is that to the resource `ledgers` of API group muster.dev, which exists in roles alone; its
name is the queue's. Names of gangs are shown to those alone who may list the gangs of their namespace, in the books,
too.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from admission.api.kubernetes.access_review import Question, Visitor
from admission.api.muster.observed import ObservedGang
from admission.dashboard.auth.ttl_cache import Memory
from admission.dashboard.ports import Reviewer

REMEMBERED = 30.0
"""Seconds after which a token and a right are asked for again: so long does what was withdrawn still hold."""

MOST_TOKENS = 2_000
MOST_RIGHTS = 50_000

AT_ONCE = 16
"""Questions to the API server at a time, for one page."""

MOST_NAMESPACES = 500
"""Namespaces that are asked for one by one; where there are more, the visitor has to name one."""

QUEUES = Question("list", "queues")
GANGS = Question("list", "gangs")
NODES = Question("list", "nodes", group="")
SLICES = Question("list", "resourceslices", group="resource.k8s.io")
LEDGERS = Question("list", "ledgers")


class RefusedError(Exception):
    """The visitor may not see this; the text names the right that is missing."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(f"you may not {question}")


class TooManyNamespacesError(Exception):
    """There are more namespaces than are asked for one by one."""


class Judge:
    """Who a token belongs to and what they may do, remembered for a while."""

    def __init__(self, reviewer: Reviewer, clock: Callable[[], float]) -> None:
        self._reviewer = reviewer
        self._tokens: Memory[bytes, Visitor] = Memory(seconds=REMEMBERED, most=MOST_TOKENS, clock=clock)
        self._rights: Memory[tuple[Visitor, Question], bool] = Memory(seconds=REMEMBERED, most=MOST_RIGHTS, clock=clock)
        self._pending = asyncio.Semaphore(AT_ONCE * 2)

    async def recognise(self, token: str) -> Visitor | None:
        """Return whose token it is; None for no one's. A refusal is not remembered. Raises as the reviewer."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self._tokens.get(digest)
        if known is not None:
            return known
        async with self._pending:
            visitor = await self._reviewer.recognise(token)
        if visitor is not None:
            self._tokens.put(digest, visitor)
        return visitor

    def forget(self, token: str) -> None:
        """Ask for a token again the next time."""
        self._tokens.drop(hashlib.sha256(token.encode()).digest())

    async def allows(self, visitor: Visitor, question: Question) -> bool:
        """Return whether a visitor may do something. Raises as the reviewer."""
        known = self._rights.get((visitor, question))
        if known is not None:
            return known
        async with self._pending:
            allowed = await self._reviewer.allows(visitor, question)
        self._rights.put((visitor, question), allowed)
        return allowed


@dataclass(frozen=True, slots=True)
class Seen:
    """Namespaces whose gangs a visitor may see. all: of the whole cluster."""

    all: bool = False
    namespaces: frozenset[str] = frozenset()

    def __contains__(self, namespace: object) -> bool:
        return self.all or namespace in self.namespaces

    def visible(self, gangs: Sequence[ObservedGang]) -> Sequence[ObservedGang]:
        """Return those of some gangs that the visitor may see."""
        return gangs if self.all else [gang for gang in gangs if gang.report.namespace in self.namespaces]

    def sees(self, key: str) -> bool:
        """Return whether `namespace/name` is in one of them; nothing is in none."""
        return not key or key.partition("/")[0] in self


class Rights:
    """What one visitor may see."""

    def __init__(self, visitor: Visitor, judge: Judge) -> None:
        self.visitor = visitor
        self._judge = judge

    async def may(self, question: Question) -> bool:
        """Return whether the API server allows it."""
        return await self._judge.allows(self.visitor, question)

    async def need(self, question: Question) -> None:
        """Raise RefusedError unless the API server allows it."""
        if not await self.may(question):
            raise RefusedError(question)

    async def need_queue(self, name: str) -> None:
        """Raise RefusedError unless the visitor may see this queue."""
        if not await self.may(QUEUES):
            await self.need(QUEUES._replace(verb="get", name=name))

    async def need_gang(self, namespace: str, name: str) -> None:
        """Raise RefusedError unless the visitor may see this gang."""
        if not await self.may(GANGS) and not await self.may(GANGS._replace(namespace=namespace)):
            await self.need(GANGS._replace(verb="get", namespace=namespace, name=name))

    async def may_account(self, queue: str) -> bool:
        """Return whether the visitor may see the account of this queue in the books."""
        return await self.may(LEDGERS) or await self.may(LEDGERS._replace(verb="get", name=queue))

    async def need_account(self, queue: str) -> None:
        """Raise RefusedError unless the visitor may see the account of this queue; the empty name: of every queue."""
        if not await self.may(LEDGERS):
            await self.need(LEDGERS._replace(verb="get", name=queue) if queue else LEDGERS)

    async def seen(self, namespaces: Collection[str]) -> Seen:
        """Return of which of these namespaces the visitor may list gangs.

        Raises TooManyNamespacesError where they may not list them all, and would have to be asked for too many.
        """
        if await self.may(GANGS):
            return Seen(all=True)
        if len(namespaces) > MOST_NAMESPACES:
            raise TooManyNamespacesError
        asked = sorted(namespaces)
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(namespace: str) -> bool:
            async with turns:
                return await self.may(GANGS._replace(namespace=namespace))

        answers = await asyncio.gather(*map(one, asked))
        return Seen(namespaces=frozenset(name for name, allowed in zip(asked, answers, strict=True) if allowed))

    async def seen_of(self, namespaces: Collection[str]) -> Seen:
        """Return the same, where it is only about names that may be shown: of too many namespaces, none is."""
        try:
            return await self.seen(namespaces)
        except TooManyNamespacesError:
            return Seen()
