"""Objects in v1beta1 are read as Kubernetes 1.37 converts them."""

from typing import Any

import pytest

from tests.conformance import conversions

pytestmark = pytest.mark.conformance

RECORDS = list(conversions.kept())


def test_objects_are_converted_as_by_kubernetes() -> None:
    assert [record["seed"] for record in RECORDS if conversions.ours(record["obj"]) != record["v1"]] == []


def test_the_records_of_conversions_are_what_the_generator_makes() -> None:
    assert all(conversions.manifest(record["seed"]) == record["obj"] for record in RECORDS)


def test_the_records_use_every_field_that_moved() -> None:
    def names(value: Any) -> set[str]:
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {*(value if isinstance(value, dict) else ()), *(name for part in parts for name in names(part))}

    moved = {"deviceClassName", "selectors", "allocationMode", "count", "tolerations", "capacity", "basic", "taints"}
    assert moved | {"attributes", "firstAvailable"} <= names([record["obj"] for record in RECORDS])
