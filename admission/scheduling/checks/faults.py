"""Unexpected failures of Muster in one gang, contained so that they do not stop the others."""

from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from admission.api.values.reasons import Hold, HoldReason

T = TypeVar("T")


class During(StrEnum):
    """The step in which an unexpected exception was raised; a label of a metric."""

    PLANNING = "planning"
    FOLLOWING = "following"
    PLACING = "placing"
    REPORTING = "reporting"


@dataclass(frozen=True, slots=True)
class Defect:
    """An unexpected exception, and the gang that it was raised for, `namespace/name`."""

    during: During
    gang: str
    error: Exception

    @property
    def text(self) -> str:
        """Return type and message of the exception."""
        return f"{type(self.error).__name__}: {self.error}"


def hold(defect: Defect) -> Hold:
    """Return the hold of a gang with a defect."""
    # The log has the exception's message, which may name anything.
    error = type(defect.error).__name__
    message = f"Muster failed of it while {defect.during}: {error}; please report this as a defect of Muster"
    return Hold(HoldReason.INTERNAL_ERROR, message, {"during": str(defect.during)})


def guard(during: During, gang: str, compute: Callable[[], T], found: MutableSequence[Defect]) -> T | None:
    """Return what is computed for one gang; None if it raises, with the defect added to `found`.

    For pure computations only: errors of the database or API server must not be caught here. MemoryError is not caught
    either: no gang causes it, and it ends the leader's term.
    """
    try:
        return compute()
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other gangs have nothing to do with it
        found.append(Defect(during, gang, error))
        return None
