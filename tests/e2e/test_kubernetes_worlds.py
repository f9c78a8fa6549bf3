"""Forty worlds of the conformance corpus on a real cluster: what the corpus recorded and what Muster predicts, happens.

The corpus was recorded from the allocator's code alone. Here the API server, kube-scheduler's own view of claims and
slices, and Muster's reading of them are between the same question and the same answer. data/worlds.jsonl.gz holds the
worlds as they stand in the corpus, each with what it was `chosenFor`: features that decide its answer, and `releases`
where 1.36 and 1.37 answer differently.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import ControlPlane
from tests.controlplane.allocators import Oracle
from tests.controlplane.namespaces import Namespace
from tests.e2e import ablations, corpus_worlds
from tests.e2e.barriers import Barrier
from tests.e2e.corpus_worlds import Record, Stage

DATA = Path(__file__).parent / "data" / "worlds.jsonl.gz"
RECORDS: list[Record] = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
FEATURES = {*ablations.WITHOUT, *ablations.PARTS}
pytestmark = pytest.mark.since("1.36", "the order of pools is random, and features of these worlds are off")

ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, barrier: Barrier) -> Iterator[Stage]:
    """One namespace, whose claims may ask for admin access, for all worlds."""
    client = control_plane.client()
    namespace = Namespace(name="worlds", client=client)
    client.create("/api/v1/namespaces", {"metadata": {"name": namespace.name, "labels": ADMIN_ACCESS}})
    stage = Stage(namespace, barrier)
    yield stage
    stage.remove()
    client.delete(f"/api/v1/namespaces/{namespace.name}")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record["id"]))
def test_kube_scheduler_does_what_the_corpus_says_and_muster_predicts(
    stage: Stage, record: Record, kubernetes: str
) -> None:
    prediction, happened = stage.ask(record)

    assert happened == corpus_worlds.recorded(record, kubernetes)
    assert prediction == happened


def test_each_feature_decides_in_at_least_two_of_the_worlds(kubernetes: str) -> None:
    """By Kubernetes' own allocator, asked again without the feature."""
    with Oracle.of(kubernetes) as oracle:
        deciding = {record["id"]: ablations.deciding(record, oracle) for record in RECORDS}
    chosen_for = {record["id"]: set(record["chosenFor"]) - {"releases"} for record in RECORDS}

    assert {name: features - deciding[name] for name, features in chosen_for.items() if features - deciding[name]} == {}
    counts = Counter(feature for features in chosen_for.values() for feature in features)
    assert {feature for feature in FEATURES if counts[feature] < 2} == set()


def test_the_worlds_end_in_every_way(kubernetes: str) -> None:
    answers = [corpus_worlds.recorded(record, kubernetes) for record in RECORDS]
    other = "1.36" if kubernetes != "1.36" else "1.37"

    counts = Counter((answer.outcome, answer.fatal) for answer in answers)
    assert min(counts[way] for way in (("allocated", False), ("none", False), ("error", False), ("error", True))) >= 2
    differing = {record["id"] for record in RECORDS if "releases" in record["chosenFor"]}
    assert len(differing) >= 2
    for record, answer in zip(RECORDS, answers, strict=True):
        same = (answer.outcome, answer.fatal) == _way(record, other)
        assert same is (record["id"] not in differing)


def _way(record: Record, kubernetes: str) -> tuple[str, bool]:
    answer = corpus_worlds.recorded(record, kubernetes)
    return answer.outcome, answer.fatal
