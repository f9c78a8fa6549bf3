"""The pages' ports to the cluster, to the API server's access reviews and lists, and to the ledger.

`app` injects the adapters.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from admission.accounting.books import Book
from admission.api.kubernetes.access_review import Question, UserInfo
from admission.api.listings import EventList, PodList
from admission.api.muster.observed import ObservedObjects
from admission.api.values.names import QueueName
from admission.dashboard.ledger_queries import (
    DoneBy,
    Extent,
    GangSearch,
    Grouping,
    Search,
    Statement,
    Step,
    Transaction,
    Use,
    UsedReport,
    WaitedShape,
    Window,
)


class View(Protocol):
    """The latest view of the cluster."""

    @property
    def synced(self) -> bool: ...

    def observe(self) -> ObservedObjects: ...


class Reviewer(Protocol):
    """The API server's reviews of tokens and rights. Raises RetryError or FixError if it cannot answer."""

    async def authenticate(self, token: str) -> UserInfo | None: ...

    async def allows(self, visitor: UserInfo, question: Question) -> bool: ...


class ListingReader(Protocol):
    """Lists of pods and Events in a namespace, by selectors. Raises RetryError or FixError if there is none in time."""

    async def pods(self, namespace: str, *, labels: str, fields: str, limit: int) -> PodList: ...

    async def events(self, namespace: str, *, fields: str, limit: int) -> EventList: ...


class Journal(Protocol):
    """The transactions of the ledger. Raises RetryError while the database is unavailable."""

    async def extent(self) -> Extent: ...

    async def search(self, search: Search) -> Sequence[Transaction]: ...

    async def of_gang(self, search: GangSearch) -> Sequence[Transaction]: ...


class Accounts(Protocol):
    """The sums of transactions. Raises RetryError while the database is unavailable."""

    async def statement(self, queue: QueueName, window: Window) -> Statement: ...

    async def use(self, grouping: Grouping, window: Window, step: Step, queue: str) -> Use: ...

    async def waiting(self, window: Window, step: Step, queue: str) -> Use: ...

    async def waited(self, window: Window, *, most: int) -> Sequence[WaitedShape]: ...

    async def used(self, by: DoneBy, window: Window, queue: str, *, most: int, most_empty: int) -> UsedReport: ...

    async def at(self, moment: datetime) -> Book: ...


class Ledger(Journal, Accounts, Protocol):
    """The ledger. Raises FixError for a time before `extent`, which has been archived."""
