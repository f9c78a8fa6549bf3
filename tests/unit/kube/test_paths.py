"""Paths that are made from names lead to one object, whatever the name is."""

from typing import Any

import pytest

from admission.errors import FixError
from admission.kube.client import errors, paths

PATHS: dict[str, tuple[tuple[str, ...], str]] = {
    "an object of the cluster": (("queues", "a"), "/apis/g/v1/queues/a"),
    "an object of a namespace": (("namespaces", "team", "gangs", "a.b-c"), "/apis/g/v1/namespaces/team/gangs/a.b-c"),
    "a path for a name": (("queues", "../../x"), "/apis/g/v1/queues/..%2F..%2Fx"),
    "a query for a name": (("queues", "a?dryRun=All#b"), "/apis/g/v1/queues/a%3FdryRun%3DAll%23b"),
}


@pytest.mark.parametrize(("segments", "path"), PATHS.values(), ids=PATHS)
def test_an_object_name_is_a_single_path_segment(segments: tuple[str, ...], path: str) -> None:
    assert paths.join("/apis/g/v1", *segments) == path


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_lead_to_another_path_is_refused(name: str) -> None:
    with pytest.raises(FixError, match="no object is called"):
        paths.within("/apis/muster.dev/v1alpha1", "team", "gangs", name)


def test_a_quoted_name_is_shown_as_it_was_given() -> None:
    target: Any = errors.target("GET", paths.within("/api/v1", "team", "pods", "a/b"))

    assert (target.namespace, target.resource, target.name) == ("team", "pods", "a/b")
