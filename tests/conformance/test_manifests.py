"""Random manifests with mistakes, compared with what API servers said of them: of 1.37, and of 1.36 if mutated."""

from typing import Any

import pytest

from tests.conformance import manifests, mutated_manifests

pytestmark = pytest.mark.conformance

RECORDS = list(manifests.kept())


@pytest.mark.parametrize("record", RECORDS, ids=[f"seed {record['seed']}" for record in RECORDS])
def test_what_the_api_server_refuses_is_refused_for_the_same_field(record: dict[str, Any]) -> None:
    for release, theirs in record["refused"].items():
        assert manifests.difference(manifests.refused(record["obj"], release), theirs) is None


def test_the_records_of_manifests_are_what_the_generator_makes() -> None:
    assert all(manifests.manifest(record["seed"]) == record["obj"] for record in RECORDS)


def test_the_records_are_of_every_kind_good_and_bad() -> None:
    found = {(record["obj"]["kind"], any(record["refused"].values())) for record in RECORDS}

    kinds = ("Pod", "Job", *manifests.KINDS)
    assert found == {(kind, is_refused) for kind in kinds for is_refused in (True, False)}


def test_what_api_servers_refuse_of_mutated_manifests_is_refused_and_nothing_else() -> None:
    records = list(manifests.kept(mutated_manifests.KEPT))
    different = {
        (record["seed"], release): told
        for record in records
        for release, theirs in record["refused"].items()
        if (told := manifests.difference(manifests.refused(record["obj"], release), theirs)) is not None
    }

    assert different == {}
    assert all(mutated_manifests.manifest(record["seed"]) == record["obj"] for record in records)
    assert {(record["obj"]["kind"], bool(record["refused"]["1.37"])) for record in records} == {
        (kind, is_refused) for kind in mutated_manifests.KINDS for is_refused in (True, False)
    }


def test_a_difference_is_told() -> None:
    assert manifests.difference(["spec.a"], []) == "we refuse ['spec.a'], the API server []"
    assert manifests.difference([], ["."]) == "we refuse [], the API server ['.']"
    assert manifests.difference(["spec.a"], ["spec.ab"]) == "we name ['spec.a'], the API server ['spec.ab']"
    assert manifests.difference(["spec.a"], ["spec.a[0].b"]) is None
    assert manifests.difference(["spec.a"], ["."]) is None
