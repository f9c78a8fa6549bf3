"""A message as those read it who may know every name: a log, the ledger, an administrator."""

from typing import Protocol

from admission.api.values import references
from admission.api.values.references import EVERYWHERE, References


class Referring(Protocol):
    """A hold, the planner's answer and the like."""

    @property
    def message(self) -> str: ...

    @property
    def references(self) -> References: ...


def in_full(one: Referring) -> str:
    """Return a message with all names."""
    return references.render(one.message, one.references, EVERYWHERE)[0]
