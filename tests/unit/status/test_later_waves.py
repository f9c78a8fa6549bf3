"""How many workloads are looked at for pods that they make later, and how often: thousands of them may wait."""

from dataclasses import replace
from datetime import timedelta

from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import LaterWave, Parent
from admission.api.values.names import GangUid, Uid
from admission.status.later_waves import MOST_KNOWN, RETRY, LaterWaves
from tests.builders import NOON

SECOND = timedelta(seconds=1)
WAVE = LaterWave(roles=("workers",), templates=(PodTemplate(path=(), body={}, pods=2, name="workers"),))


def parents(count: int) -> dict[str, Parent]:
    return {f"{at}": Parent(meta=Meta(name=f"{at}", uid=Uid(f"{at}")), later=(WAVE,)) for at in range(count)}


def test_a_cycle_looks_at_some_workloads_and_the_next_one_a_second_later_at_others() -> None:
    waves, found, now = LaterWaves(), {"JobSet": parents(MOST_KNOWN + 1)}, NOON

    first = waves.begin(found, (), now)
    for parent in first:
        waves.answer(parent, "question", ())

    assert len(first) == MOST_KNOWN
    assert waves.begin(found, (), now) == (), "many cycles may run in a second"
    assert waves.has_more
    (last,) = waves.begin(found, (), now + SECOND)
    waves.answer(last, "question", ("never",))
    assert dict(waves.answers) == {GangUid(last.meta.uid): ("never",)}
    assert not waves.has_more


def test_a_workload_is_looked_at_again_when_its_waves_change_and_all_are_once_a_minute_when_anything_else_has() -> None:
    waves, found, before, after = LaterWaves(), parents(2), (object(),), (object(),)
    for parent in waves.begin({"JobSet": found}, before, NOON):
        waves.answer(parent, "question", ("never",))

    ready = {**found, "0": replace(found["0"], attempt="1")}
    assert waves.begin({"JobSet": ready}, before, NOON + SECOND) == ()
    grown = {**ready, "1": replace(ready["1"], later=(WAVE, WAVE))}
    assert waves.begin({"JobSet": grown}, after, NOON + 2 * SECOND) == (grown["1"],)
    waves.answer(grown["1"], "question", ())
    assert waves.is_fitting("question")

    assert waves.begin({"JobSet": grown}, after, NOON + RETRY) == (grown["0"], grown["1"])
    assert not waves.is_fitting("question"), "it was known of other nodes"
    assert waves.begin({}, after, NOON + RETRY + SECOND) == ()
    assert waves.answers == {}


def test_of_a_workload_whose_answer_could_not_be_found_nothing_is_known_until_something_else_changes() -> None:
    waves, found, before, after = LaterWaves(), {"JobSet": parents(1)}, (object(),), (object(),)
    (parent,) = waves.begin(found, before, NOON)

    waves.answer(parent, "question", None)

    assert not waves.is_fitting("question")
    assert waves.begin(found, before, NOON + RETRY) == ()
    assert waves.begin(found, after, NOON + RETRY) == (parent,)
