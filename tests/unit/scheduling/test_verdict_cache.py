"""How long a verdict on a pending gang stands."""

import pytest

from admission.api.values.reasons import Hold, HoldReason
from admission.scheduling.cache.verdict_cache import KINDS, ORDER, PROOF, QUOTA, ShortageOf, Verdict, VerdictCache
from admission.workloads import gangs
from tests.builders import a_cluster

GROUP, *OTHERS = gangs.groups(
    a_cluster().job("train", queue="q").job("b", queue="q").job("c", queue="q").snapshot(), {}
)
INFEASIBLE = Hold(HoldReason.NO_FEASIBLE_PLACEMENT, "no node has any")


def short_of(gpus: int) -> Hold:
    return Hold(HoldReason.QUOTA_EXCEEDED, f"it needs {gpus} more")


def shortage(hold: Hold | None) -> ShortageOf:
    return lambda _queue, _needed, _open: hold


@pytest.mark.parametrize(
    ("ahead", "now", "stands"),
    [("", "", True), ("first", "first", True), ("first", "second", False), ("first", "", False), ("", "first", False)],
)
def test_a_verdict_stands_while_the_same_gang_is_ahead(ahead: str, now: str, *, stands: bool) -> None:
    cache, verdict = VerdictCache(), Verdict(group=GROUP, outcome=INFEASIBLE, by=ORDER if ahead else PROOF, ahead=ahead)
    cache.keep(verdict)

    assert cache.lookup(GROUP, now, shortage(None)) is (verdict if stands else None)


PART = Verdict(group=GROUP, outcome=INFEASIBLE, by=PROOF)


@pytest.mark.parametrize(
    ("verdict", "kept"),
    [
        (Verdict(group=GROUP, outcome=INFEASIBLE, by=KINDS, parts=(PART,)), True),
        (Verdict(group=GROUP, outcome=INFEASIBLE, by=KINDS), False),
        (Verdict(group=GROUP, outcome=INFEASIBLE, parts=(PART,)), False),
        (Verdict(group=GROUP, outcome=INFEASIBLE), False),
    ],
    ids=["by kinds that can be kept", "by kinds of which one cannot", "by none of its kinds", "by nothing that stands"],
)
def test_a_verdict_by_kinds_is_kept_with_those_of_all_kinds(verdict: Verdict, *, kept: bool) -> None:
    cache = VerdictCache()
    cache.keep(verdict)

    assert cache.is_kept(verdict) is kept


@pytest.mark.parametrize(
    ("by", "now", "outcome"),
    [
        (QUOTA, short_of(2), short_of(2)),
        (QUOTA, short_of(1), short_of(1)),
        (QUOTA, None, None),
        (PROOF, None, INFEASIBLE),
        (PROOF, short_of(1), None),
    ],
)
def test_a_verdict_follows_what_the_queue_is_short_of(by: str, now: Hold | None, outcome: Hold | None) -> None:
    cache = VerdictCache()
    cache.keep(Verdict(group=GROUP, outcome=short_of(2) if by == QUOTA else INFEASIBLE, by=by))

    found = cache.lookup(GROUP, "", shortage(now))

    assert (found.outcome if found is not None else None) == outcome


def test_verdicts_on_gangs_that_are_gone_are_dropped_once_they_are_most() -> None:
    cache, verdicts = VerdictCache(), [Verdict(group=one, outcome=INFEASIBLE, by=PROOF) for one in (GROUP, *OTHERS)]
    for verdict in verdicts:
        cache.keep(verdict)

    cache.keep_only([GROUP, OTHERS[0]])
    assert all(map(cache.is_kept, verdicts))
    cache.keep_only([GROUP])
    assert list(map(cache.is_kept, verdicts)) == [True, False, False]
