"""The allocator of kube-scheduler itself, in both versions: it answers as the corpus recorded, and we as it does."""

from typing import Any

import pytest
from hypothesis import given, settings

from admission.dra.compatibility import Release
from tests.conformance import corpus, kubernetes
from tests.controlplane.allocators import Oracle
from tests.controlplane.oracles import OracleEnded
from tests.e2e import fixtures
from tests.property import clusters

NO_PART_OF_AN_ANSWER = {"error", "invocations", "onlyConfig", "onlyQuantityText"}

Json = dict[str, Any]


oracle = fixtures.oracle(Oracle)


def test_kubernetes_answers_as_the_corpus_recorded(oracle: Oracle, version: str) -> None:
    records = [*corpus.records("allocator-upstream"), *corpus.records("allocator-random")]

    answers = {record["id"]: answer_of(oracle.ask(record)) for record in records}

    assert records
    assert answers == {record["id"]: answer_of(recorded(record, version)) for record in records}


@given(record=clusters.records(gates=True))
@settings(max_examples=300, deadline=None)
def test_we_answer_as_kubernetes_does(oracle: Oracle, version: str, record: Json) -> None:
    assert kubernetes.difference(record, Release(version), oracle.ask) is None


def test_a_question_that_is_none_is_named(version: str) -> None:
    oracle = Oracle.of(version)
    record = next(corpus.records("allocator-random"))

    with pytest.raises(OracleEnded, match=r"cannot unmarshal string into Go struct field .*[sS]lices"):
        oracle.ask({**record, "slices": "none"})


def recorded(record: Json, version: str) -> Json:
    newer = version == "1.37" and "expect137" in record
    found: Json = record["expect137" if newer else "expect"]
    return found


def answer_of(answer: Json) -> Json:
    """Leave out what an answer need not have: the wording, the steps, and a list of no results."""
    return {key: value for key, value in answer.items() if key not in NO_PART_OF_AN_ANSWER and value != []}
