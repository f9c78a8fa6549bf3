"""Whatever a queue holds, decoding it finds problems and raises nothing else."""

import contextlib
from typing import Any

from hypothesis import given, strategies as st

from admission.api.values import quantities
from admission.errors import MalformedObjectError
from tests.unit.api.crds import a_queue
from tests.unit.api.test_queues import END, START, read

SPEC = ["quotas", "budgets", "fairSharing", "preemption", "maxRuntime", "defaultRuntime"]

FIELDS = ["meter", "nominal", "hours", "period", "start", "end", "timeZone", "onExhausted", "scope", "weight"]

FIELDS += ["halfLife", "withinQueue", "reclaim", "borrowWithinCohort", "lending"]

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)

SCALARS |= st.sampled_from(["1e999999999", "1e999", "-1e-999", "9" * 5000, START, END, "Day", "Etc/GMT+1", "5m"])

INNER = st.dictionaries(st.sampled_from(FIELDS), SCALARS, max_size=6)


@given(st.dictionaries(st.sampled_from(SPEC), SCALARS | INNER | st.lists(INNER | SCALARS, max_size=3)))
def test_decoding_a_hostile_queue_raises_nothing_but_problems(spec: dict[str, Any]) -> None:
    with contextlib.suppress(MalformedObjectError):
        queue = read(a_queue(**spec))
        assert all(0 < budget.seconds <= quantities.LIMIT for budget in queue.budgets)
        assert all(0 <= quota.nominal <= quantities.MOST for quota in queue.quotas)
