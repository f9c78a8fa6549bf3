"""A message as those read it who may know every name: a log, the ledger, an administrator."""

from typing import Protocol

from admission.api.muster import gang_references
from admission.api.muster.gangs import GangReport
from admission.api.values import references
from admission.api.values.references import EVERYWHERE, References
from admission.scheduling.placement.protection import Protection


class Referring(Protocol):
    """A hold, the planner's answer and the like."""

    @property
    def message(self) -> str: ...

    @property
    def references(self) -> References: ...


def in_full(one: Referring) -> str:
    """Return a message with all names."""
    return references.render(one.message, one.references, EVERYWHERE)[0]


def why_in_full(one: Protection) -> str:
    """Return why devices are protected or not, with all names."""
    return references.render(one.why, one.references, EVERYWHERE)[0]


def report_in_full(report: GangReport) -> GangReport:
    """Return a gang's status with all names."""
    return gang_references.for_reader(report, EVERYWHERE)
