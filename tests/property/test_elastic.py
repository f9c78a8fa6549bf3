"""However many pods fit: an elastic gang starts with just as many, or waits, and is not planned again and again."""

from hypothesis import given, strategies as st

from admission.api.values.names import GANG, GANG_MIN, GANG_SIZE
from admission.api.values.reasons import Hold, HoldReason
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks import elastic
from admission.workloads.gangs import Group
from tests.unit.workloads.kinds.herds import Herd, a_pod


@given(st.data())
def test_a_gang_starts_with_as_many_pods_as_fit_or_not_at_all(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 200), label="size")
    least = data.draw(st.integers(1, size), label="least")
    made = data.draw(st.integers(least, size), label="made")
    fit = data.draw(st.integers(0, size), label="fit")
    herd = Herd()
    for at in range(made):
        herd.put(a_pod(f"p-{at}", labels={GANG: "g"}, **{GANG_SIZE: str(size), GANG_MIN: str(least)}))
    planned: list[int] = []

    def decide(part: Group) -> Verdict:
        planned.append(len(part.waiting))
        if len(part.waiting) > fit:
            return Verdict(group=part, outcome=Hold(HoldReason.DEVICES_BUSY, f"{len(part.waiting)} are too many"))
        return Verdict(group=part, outcome=tuple(pod.meta.name for pod in part.waiting))

    found = elastic.largest(herd.gang, decide)

    assert found.group.pods == herd.gang.pods
    assert len(planned) <= 2 + made.bit_length()
    if fit >= least:
        assert sorted(found.outcome) == sorted(f"p-{at}" for at in range(min(fit, made)))
    else:
        assert found.outcome.message == f"{least} are too many"
