"""What closes a node to pods."""

import pytest

from admission.dashboard.pages.devices import nodes
from admission.dashboard.view_model import ClusterView
from tests.dashboard_clusters import Cluster

CLOSED = {
    "nothing": ([], False, ""),
    "a taint": (["NoSchedule"], False, "example.com/old:NoSchedule"),
    "not one that is only a preference": (["PreferNoSchedule"], False, ""),
    "of several those that keep pods away": (
        *(["PreferNoSchedule", "NoSchedule", "NoExecute"], False),
        "example.com/old:NoSchedule, example.com/old:NoExecute",
    ),
    "its own mark": (["NoSchedule"], True, "unschedulable"),
}


@pytest.mark.parametrize(("taints", "cordoned", "closed"), CLOSED.values(), ids=CLOSED)
def test_a_node_is_closed_by_what_keeps_pods_away(taints: list[str], cordoned: bool, closed: str) -> None:
    seen = Cluster().node("node-1", taints=taints, cordoned=cordoned).observe()

    assert nodes.closed_by(ClusterView(seen), "node-1") == closed
