"""When a gang that runs should have ended."""

from datetime import datetime, timedelta

import pytest

from admission.dashboard import view_model
from tests.dashboard_clusters import NOW, Cluster

ADMITTED = NOW - timedelta(minutes=20)
"""When gangs of the test's cluster have been let in, and have run."""

ENDS: dict[str, tuple[str, dict[str, str], dict[str, str], datetime | None]] = {
    "its own runtime": ("Running", {"runtime": "1h"}, {}, ADMITTED + timedelta(hours=1)),
    "its queue's default": ("Running", {}, {"defaultRuntime": "2h"}, ADMITTED + timedelta(hours=2)),
    "its queue's limit, which is earlier": (
        *("Running", {"runtime": "5h"}, {"maxRuntime": "3h"}),
        ADMITTED + timedelta(hours=3),
    ),
    "the limit alone while its pods do not all run": (
        *("Admitted", {"runtime": "1h"}, {"maxRuntime": "3h"}),
        ADMITTED + timedelta(hours=3),
    ),
    "nobody says": ("Running", {}, {}, None),
    "it has not started": ("Pending", {"runtime": "1h"}, {"maxRuntime": "3h"}, None),
    "it never ends within the years that there are": ("Running", {"runtime": "99999999h"}, {}, None),
}


@pytest.mark.parametrize(("phase", "spec", "queue", "end"), ENDS.values(), ids=ENDS)
def test_the_end_that_is_expected(
    phase: str, spec: dict[str, str], queue: dict[str, str], end: datetime | None
) -> None:
    seen = Cluster().queue("q", spec=queue).gang("ns/g", "q", phase, spec=spec).observe()
    [observed_queue] = seen.queues.values()

    assert view_model.expected_end(seen.gangs["ns/g"], observed_queue.queue) == end
