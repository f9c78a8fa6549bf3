"""What the pages ask of the cluster, of the API server's judgement, and of the books.

`app` puts the real ones in; the twins for tests stand in `tests/unit/dashboard/twins.py`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from admission.accounting.books import Book
from admission.api.kubernetes.access_review import Question, Visitor
from admission.api.muster.observed import ObservedObjects
from admission.api.values.names import QueueName
from admission.dashboard.ledger_queries import Extent, Grouping, Search, Statement, Step, Transaction, Use, Window


class View(Protocol):
    """The cluster as it was last seen."""

    @property
    def synced(self) -> bool: ...

    def observe(self) -> ObservedObjects: ...


class Reviewer(Protocol):
    """The API server's judgement of tokens and rights. Raises RetryError and FixError when there is none."""

    async def recognise(self, token: str) -> Visitor | None: ...

    async def allows(self, visitor: Visitor, question: Question) -> bool: ...


class Journal(Protocol):
    """The transactions of the books. Raises RetryError while the database is away."""

    async def extent(self) -> Extent: ...

    async def search(self, search: Search) -> Sequence[Transaction]: ...


class Accounts(Protocol):
    """What the transactions come to. Raises RetryError while the database is away."""

    async def statement(self, queue: QueueName, window: Window) -> Statement: ...

    async def use(self, grouping: Grouping, window: Window, step: Step, queue: str) -> Use: ...

    async def at(self, moment: datetime) -> Book: ...


class Ledger(Journal, Accounts, Protocol):
    """The books. Of a time before `extent`, FixError says that it was closed."""
