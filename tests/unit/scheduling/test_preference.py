"""The hold of a gang that starts on none of the kinds that its queue prefers."""

from typing import Any

from admission.api.muster.preferences import DeviceKind, WhenCanBorrow
from admission.api.values import references
from admission.api.values.reasons import Hold, HoldReason
from admission.api.values.references import Kind, Referent
from admission.dra.planner.device_kinds import Attempt
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks import preference

GROUP: Any = None
ATTEMPTS = [Attempt(demands=(), kind=DeviceKind(name=name, classes=("gpu",))) for name in ("a100", "h100", "v100")]


def busy(gang: str) -> Hold:
    reference = references.refer([Referent(kind=Kind.GANG, key=gang, queue="q")], detail="gangs")
    details = {"gangs": reference.listing}
    return Hold(HoldReason.DEVICES_BUSY, f"in use by {reference.phrase}", details, (reference,))


def never() -> Hold:
    return Hold(HoldReason.NO_FEASIBLE_PLACEMENT, "no node takes it")


def held(*holds: Hold) -> Hold:
    found = dict(zip((one.name for one in ATTEMPTS), holds, strict=True))
    verdict = preference.first(
        ATTEMPTS,
        WhenCanBorrow.BORROW,
        lambda attempt, _: Verdict(group=GROUP, outcome=found[attempt.name]),
        lambda _: 0,
    )
    outcome: Hold = verdict.outcome
    return outcome


def test_the_reason_is_that_of_the_first_kind_over_quota_else_of_the_first_that_may_fit_in_time() -> None:
    over = Hold(HoldReason.QUOTA_EXCEEDED, "too much", {"meter": "v100"})

    assert (held(never(), busy("n/a"), over).reason, held(never(), busy("n/a"), over).details["meter"]) == (
        HoldReason.QUOTA_EXCEEDED,
        "v100",
    )
    assert held(never(), busy("n/a"), never()).reason is HoldReason.DEVICES_BUSY
    assert held(never(), never(), never()).reason is HoldReason.NO_FEASIBLE_PLACEMENT
    unread = Hold(HoldReason.POOL_INCOMPLETE, "slices are missing")
    assert held(never(), unread, never()).reason is HoldReason.POOL_INCOMPLETE


def test_a_reader_is_told_of_the_gangs_of_each_kind_what_the_reader_may_know() -> None:
    hold = held(busy("one/a"), busy("two/b"), busy("one/a"))

    assert references.words(hold.message, hold.references, {"one"}) == (
        "kind a100: in use by gang one/a; kind h100: in use by a gang of queue q; kind v100: in use by gang one/a"
    )
    assert [reference.detail for reference in hold.references] == ["gangs", "", ""]
    assert hold.details == {"gangs": ["one/a"], "kind": "a100", "kinds": ["a100", "h100", "v100"]}
