"""Unexpected failures of Muster in one gang, contained so that they do not stop the others."""

from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from admission.api.values.reasons import Hold, HoldReason

T = TypeVar("T")


class During(StrEnum):
    """What was done with a gang when Muster failed of it; a label of a metric."""

    PLANNING = "planning"
    FOLLOWING = "following"
    PLACING = "placing"
    REPORTING = "reporting"


@dataclass(frozen=True, slots=True)
class Defect:
    """An exception that nobody expected, and the gang that was looked at, `namespace/name`."""

    during: During
    gang: str
    error: Exception

    @property
    def text(self) -> str:
        """Return the error in words."""
        return f"{type(self.error).__name__}: {self.error}"


def hold(defect: Defect) -> Hold:
    """Return why the gang waits."""
    message = f"Muster failed of it while {defect.during}: {defect.text}; please report this as a defect of Muster"
    return Hold(HoldReason.INTERNAL_ERROR, message, {"during": str(defect.during)})


def guard(during: During, gang: str, compute: Callable[[], T], found: MutableSequence[Defect]) -> T | None:
    """Return what is computed for one gang; None where that fails, with the defect among those that were found.

    For what is only computed. What a database or an API server answers is not caught here, nor a lack of memory: that
    is no gang's fault, and ends the leader's term.
    """
    try:
        return compute()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other gangs have nothing to do with it
        found.append(Defect(during, gang, error))
        return None
