"""What a webhook alone does not watch is empty there, so nothing that answers a review may look at it."""

import re
from dataclasses import fields
from pathlib import Path

from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.kube.cache import watched_resources

ROOT = Path(__file__).parents[3] / "admission"
JUDGES = ("review", "podpolicy", "claimpolicy", "objectpolicy")
CONTROLLERS = {"claimpolicy/templates.py", "review/expected_pods.py"}
"""What the controller asks: which templates the pods that are there need, and which pods are still expected."""

_READ = re.compile(r"\bsnapshot(?:\(\))?\.(\w+)")


def test_reviews_read_only_kinds_that_a_webhook_alone_watches() -> None:
    unwatched = {field.name for field in fields(Snapshot)} & {
        kind.field for kind in set(watched_resources.ALL) - set(watched_resources.ADMISSION)
    }
    read = {
        (path.relative_to(ROOT).as_posix(), name)
        for package in JUDGES
        for path in (ROOT / package).rglob("*.py")
        for name in _READ.findall(path.read_text())
    }

    assert unwatched == {
        *("node_pools", "nodes", "pods", "priorities", "provisioning_requests", "shapes", "slices", "taint_rules")
    }
    assert {where for where, name in read if name in unwatched} == CONTROLLERS


def test_muster_works_on_where_its_roles_are_older_than_the_shapes_of_nodes() -> None:
    own = {kind.plural: kind.may_be_forbidden for kind in watched_resources.ALL if kind.group == names.GROUP}

    assert own == {"queues": False, "meters": False, "gangs": False, "claimpolicies": False, "nodeshapes": True}
