"""Authorization: every right to see something is a right in Kubernetes' RBAC (the table is in docs/dashboard.md).

Queues, gangs, nodes and slices are visible to visitors who may `get` or `list` them with kubectl. The ledger is no
Kubernetes object: the right to a queue's account is that to `ledgers` of API group muster.dev with the queue's name, a
resource that exists only in roles. Names of gangs are visible only to visitors who may list gangs in their namespace,
also in the ledger.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from admission.api.kubernetes.access_review import Question, UserInfo
from admission.api.muster.observed import ObservedGang
from admission.dashboard.ports import Reviewer
from admission.dashboard.ttl_cache import TtlCache

CACHE_SECONDS = 30.0
"""Seconds for which a token and a right are cached: a withdrawn right still holds for that long."""

MOST_TOKENS = 2_000
MOST_RIGHTS = 50_000

MAX_CONCURRENT_REVIEWS = 16
"""Concurrent access reviews for one page."""

MOST_NAMESPACES = 500
"""The most namespaces that are reviewed one by one; with more of them, the visitor has to name one."""

QUEUES = Question("list", "queues")
GANGS = Question("list", "gangs")
NODES = Question("list", "nodes", group="")
SHAPES = Question("list", "nodeshapes")
SLICES = Question("list", "resourceslices", group="resource.k8s.io")
LEDGERS = Question("list", "ledgers")
PODS = Question("list", "pods", group="")
EVENTS = Question("list", "events", group="")


class RefusedError(Exception):
    """The visitor may not see this; the message names the missing right."""

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(f"you may not {question}")


class TooManyNamespacesError(Exception):
    """There are too many namespaces to review them one by one."""


class CachedReviewer:
    """The visitors of tokens and their rights, cached for a while."""

    def __init__(self, reviewer: Reviewer, clock: Callable[[], float]) -> None:
        self._reviewer = reviewer
        self._tokens: TtlCache[bytes, UserInfo] = TtlCache(seconds=CACHE_SECONDS, most=MOST_TOKENS, clock=clock)
        self._rights: TtlCache[tuple[UserInfo, Question], bool] = TtlCache(
            seconds=CACHE_SECONDS, most=MOST_RIGHTS, clock=clock
        )
        self._pending = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS * 2)

    async def authenticate(self, token: str) -> UserInfo | None:
        """Return the visitor of a token; None if it is invalid, which is not cached. Raises as the reviewer."""
        digest = hashlib.sha256(token.encode()).digest()
        cached = self._tokens.get(digest)
        if cached is not None:
            return cached
        async with self._pending:
            visitor = await self._reviewer.authenticate(token)
        if visitor is not None:
            self._tokens.put(digest, visitor)
        return visitor

    def forget(self, token: str) -> None:
        """Remove a token from the cache."""
        self._tokens.drop(hashlib.sha256(token.encode()).digest())

    async def allows(self, visitor: UserInfo, question: Question) -> bool:
        """Return whether a visitor has a right. Raises as the reviewer."""
        cached = self._rights.get((visitor, question))
        if cached is not None:
            return cached
        async with self._pending:
            allowed = await self._reviewer.allows(visitor, question)
        self._rights.put((visitor, question), allowed)
        return allowed


@dataclass(frozen=True, slots=True)
class VisibleNamespaces:
    """The namespaces whose gangs a visitor may see. all: every namespace."""

    all: bool = False
    names: frozenset[str] = frozenset()

    def __contains__(self, namespace: object) -> bool:
        return self.all or namespace in self.names

    def filter_gangs(self, gangs: Sequence[ObservedGang]) -> Sequence[ObservedGang]:
        """Return those of the gangs that the visitor may see."""
        return gangs if self.all else [gang for gang in gangs if gang.report.namespace in self.names]

    def shows(self, key: str) -> bool:
        """Return whether the namespace of `namespace/name` is visible; an empty key has none and always is."""
        return not key or key.partition("/")[0] in self


class Rights:
    """The rights of one visitor."""

    def __init__(self, visitor: UserInfo, reviewer: CachedReviewer) -> None:
        self.visitor = visitor
        self._reviewer = reviewer

    async def may(self, question: Question) -> bool:
        """Return whether the visitor has a right."""
        return await self._reviewer.allows(self.visitor, question)

    async def need(self, question: Question) -> None:
        """Raise RefusedError unless the visitor has a right."""
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

    async def may_see_account(self, queue: str) -> bool:
        """Return whether the visitor may see the ledger account of this queue."""
        return await self.may(LEDGERS) or await self.may(LEDGERS._replace(verb="get", name=queue))

    async def need_account(self, queue: str) -> None:
        """Raise RefusedError unless the visitor may see the account of this queue; "" for all queues."""
        if not await self.may(LEDGERS):
            await self.need(LEDGERS._replace(verb="get", name=queue) if queue else LEDGERS)

    async def visible_namespaces(self, namespaces: Collection[str]) -> VisibleNamespaces:
        """Return the namespaces, of these, in which the visitor may list gangs.

        Raises TooManyNamespacesError if the visitor may not list all gangs, and the namespaces are too many to review.
        """
        if await self.may(GANGS):
            return VisibleNamespaces(all=True)
        if len(namespaces) > MOST_NAMESPACES:
            raise TooManyNamespacesError
        names = sorted(namespaces)
        limit = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)

        async def review(namespace: str) -> bool:
            async with limit:
                return await self.may(GANGS._replace(namespace=namespace))

        answers = await asyncio.gather(*map(review, names))
        return VisibleNamespaces(names=frozenset(name for name, allowed in zip(names, answers, strict=True) if allowed))

    async def visible_namespaces_or_none(self, namespaces: Collection[str]) -> VisibleNamespaces:
        """Return the same, for hiding names only: if there are too many namespaces, none is visible."""
        try:
            return await self.visible_namespaces(namespaces)
        except TooManyNamespacesError:
            return VisibleNamespaces()
