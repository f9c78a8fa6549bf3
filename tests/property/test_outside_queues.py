"""Counting change by change what is used outside queues gives what counting anew does."""

from hypothesis import given, strategies

from admission.api.snapshot import Snapshot
from admission.status.outside_queues import OutsideQueues
from tests.unit.status.test_outside_queues import COUNTED, a_claim, a_pod, a_snapshot

STATES = strategies.lists(
    strategies.builds(
        lambda queued, used, devices: a_snapshot(
            *(a_pod(name, queue="q" if name in queued else "", claim=f"c-{name}") for name in "ab" if name in used),
            *(a_claim(f"c-{name}", name, devices=devices) for name in used),
        ),
        strategies.sets(strategies.sampled_from("ab")),
        strategies.sets(strategies.sampled_from("abc")),
        strategies.integers(1, 3),
    ),
    max_size=6,
)


@given(STATES)
def test_updates_one_by_one_give_what_a_look_at_the_last_snapshot_gives(snapshots: list[Snapshot]) -> None:
    outside = OutsideQueues()

    found = [outside.update(snapshot, COUNTED) for snapshot in snapshots]

    assert found == [OutsideQueues().update(snapshot, COUNTED) for snapshot in snapshots]
