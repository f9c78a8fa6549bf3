"""Which namespaces may enter a queue."""

from typing import Any

import pytest

from admission.policy import entering
from tests.unit.webhook.cases import World

SELECTORS = {
    "": {},
    "a=b": {"matchLabels": {"a": "b"}},
    "a in (b,c)": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]},
    "a notin (b)": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]},
    "a,!b": {"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]},
}


@pytest.mark.parametrize(("text", "selector"), SELECTORS.items(), ids=SELECTORS)
def test_selectors_are_written_as_kubectl_takes_them(text: str, selector: dict[str, Any]) -> None:
    queue = World().queue("q", namespaceSelector=selector).build().queues
    (found,) = queue.values()

    assert found.namespaces is not None
    assert entering.describe(found.namespaces) == (text or "any labels")
