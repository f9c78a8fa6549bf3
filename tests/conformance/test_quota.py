"""Cases of quota, borrowing, preemption, reclaim, fair sharing and order: none may differ."""

import json

import pytest

from admission.conversion.findings import Level
from admission.conversion.queues import kueue
from tests.conformance import kueue_objects, quotas

pytestmark = pytest.mark.conformance

RECORDS = {record["id"]: record for record in quotas.records()}


@pytest.mark.parametrize("name", RECORDS)
def test_quota_is_decided_as_the_rules_say(name: str) -> None:
    record = RECORDS[name]

    assert quotas.difference(record) is None, record["rule"]


@pytest.mark.parametrize("name", [name for name, record in RECORDS.items() if "kinds" not in record])
def test_quota_is_decided_alike_where_pods_have_no_claims_and_request_the_same_of_nodes(name: str) -> None:
    record = RECORDS[name]

    assert quotas.difference(record, has_claims=False) is None, record["rule"]


OF_KUEUE = {name: found for name, record in RECORDS.items() if (found := kueue_objects.of(record)) is not None}


@pytest.mark.parametrize("name", OF_KUEUE)
def test_what_the_queues_of_kueue_become_decides_alike(name: str) -> None:
    """The round trip: the queues of a case as Kueue's objects, those converted, and the same gangs simulated."""
    record, converted = RECORDS[name], kueue.convert(OF_KUEUE[name])

    left = [one for found in converted.findings for one in found.found if one.level is Level.LEFT]
    assert quotas.difference(record, queues=converted.objects) is None, record["rule"]
    assert left == []


def test_kueue_can_say_as_many_cases_as_the_documentation_says() -> None:
    page = (quotas.ROOT / "docs" / "tasks" / "kueue.md").read_text()

    assert f"({len(OF_KUEUE)} of {len(RECORDS)})" in page
    assert len(OF_KUEUE) > 200


def test_every_case_has_an_id_and_a_rule_of_its_own() -> None:
    lines = quotas.FILE.read_text().splitlines()

    assert (
        len(RECORDS)
        == len(lines)
        == len({record["rule"] + json.dumps(record["queues"]) for record in RECORDS.values()})
    )
    assert {record["family"] for record in RECORDS.values()} == {
        *("quota", "borrowing", "cohorts", "preemption", "reclaim", "fair-sharing", "order", "flavors", "backfill")
    }


def test_a_case_with_a_wrong_answer_differs() -> None:
    record = dict(RECORDS["reclaim/partly"], evicted=[])

    assert "expected (['w'], [])" in str(quotas.difference(record))
    assert "{'w': 'two'}" in str(quotas.difference(dict(RECORDS["flavors/full"], on={"w": "one"})))


def test_what_kueue_decides_alike_by_the_documentation_has_cases() -> None:
    """docs/tasks/kueue.md says of each option of Kueue's objects whether it is the same, and what is has a case."""
    rows = dict(quotas.documented_options())
    shown = {option for record in RECORDS.values() for option in record["options"]}

    assert [
        row for row, verdict in rows.items() if not verdict.startswith(("the same", "differs: ", "nothing: "))
    ] == []
    assert {row for row, verdict in rows.items() if verdict.startswith("the same")} - shown == set()
    assert shown - rows.keys() == set()
    assert len(rows) > 40


def test_the_documentation_tells_of_every_field_of_the_objects_that_users_of_kueue_write() -> None:
    assert quotas.untold_fields() == []
    assert quotas.untold_values() == ["ClusterQueue.stopPolicy=None"], "the default, of which there is nothing to tell"
    assert len(quotas.FIELDS.read_text().split()) > 60
