"""The placement mode of a gang: whether Muster or kube-scheduler picks its devices, and why.

It follows from the requested placement and the protection of devices. It is decided once the plan is known, since it
depends on the drivers that the plan uses. If no requested mode can serve the gang, it is held, with a fix.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from admission.api.muster.gangs import Gang
from admission.api.muster.ledger_entries import Holding
from admission.api.muster.queues import PlacementMode, Queue
from admission.api.values import names
from admission.api.values.reasons import Hold, HoldReason
from admission.api.values.references import References
from admission.scheduling.placement.protection import Protection, Protections

MAY_ALLOCATE = frozenset({PlacementMode.AUTO, PlacementMode.ALLOCATE})
"""The modes in which Muster may pick the devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The mode in which a gang is placed, never `Auto`, and why, for people.

    fell_back: whether `Allocate` was requested and is not available. references: of the reason.
    """

    mode: PlacementMode
    reason: str
    fell_back: bool = False
    references: References = ()


def requested(record: Gang | None, queue: Queue) -> PlacementMode:
    """Return the placement that a gang's author requests, else that of its queue."""
    own = record.placement if record is not None and record.written_by_user else None
    return own or queue.placement


def may_allocate(wanted: PlacementMode, protections: Protections) -> bool:
    """Return whether to plan with a free choice of devices; whether the plan may be used so, `mode` decides."""
    return wanted in MAY_ALLOCATE and protections.any


def mode(wanted: PlacementMode, holdings: Collection[Holding], protections: Protections) -> Chosen | Hold:
    """Return the mode for a gang whose plan newly holds these devices, or why it cannot be placed now."""
    if wanted is PlacementMode.COUNT:
        return Chosen(mode=wanted, reason="Count was asked for: only the quota counts")
    touched = [protections.of_driver(driver) for driver in _drivers(holdings)]
    if not touched:
        return Chosen(mode=PlacementMode.PIN, reason="the gang takes no devices that are still to be allocated")
    barred = _barred(wanted, holdings)
    unprotected = [one for one in touched if one.by is None]
    if not barred and not unprotected:
        return Chosen(
            mode=PlacementMode.ALLOCATE,
            reason="; ".join(map(_protection_text, touched)),
            references=_references(touched),
        )
    soon = next((one for one in unprotected if one.soon), None)
    if not barred and soon is not None:
        return _soon(soon)
    chosen = Chosen(
        mode=PlacementMode.PIN,
        reason=barred or "; ".join(map(_protection_text, unprotected)),
        fell_back=wanted is PlacementMode.ALLOCATE,
        references=() if barred else _references(unprotected),
    )
    return _unless_closed(chosen, touched)


def _barred(wanted: PlacementMode, holdings: Iterable[Holding]) -> str:
    """Return why Muster may not allocate, whatever protects the devices; empty if it may."""
    if wanted not in MAY_ALLOCATE:
        return f"{wanted} was asked for"
    if any(names.is_extended_claim(holding.claim_uid) for holding in holdings):
        return "kube-scheduler makes the claims for extended resources itself"
    return ""


def _unless_closed(pinned: Chosen, touched: Iterable[Protection]) -> Chosen | Hold:
    """Return mode Pin, or a hold if a fence keeps kube-scheduler off one of the drivers' devices."""
    closed = next((one for one in touched if one.closed), None)
    if closed is None:
        return pinned
    return Hold(
        HoldReason.NO_FEASIBLE_PLACEMENT,
        f"driver {closed.driver} is fenced, so that kube-scheduler gives its devices to nobody, and Muster may not"
        f" allocate all claims of the gang itself: {pinned.reason}; mend that, or take the driver from the setting"
        " `fence`",
        {"driver": closed.driver},
        pinned.references,
    )


def _soon(one: Protection) -> Hold:
    message = f"it is about to be safe to allocate devices of driver {one.driver}: {one.why}"
    return Hold(HoldReason.WAITING_FOR_CLAIMS, message, {"driver": one.driver}, one.references)


def _protection_text(one: Protection) -> str:
    return f"driver {one.driver}: {one.why}"


def _references(protections: Iterable[Protection]) -> References:
    return tuple(reference for one in protections for reference in one.references)


def _drivers(holdings: Iterable[Holding]) -> list[str]:
    return sorted({device.device.driver for holding in holdings for device in holding.devices})
