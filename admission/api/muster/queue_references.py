"""A queue's status for a reader: the names of gangs, claims and pods in its conditions follow from who reads it.

Queues are objects of no namespace, and tenants read them; so their statuses have no names of such objects.
"""

from collections.abc import Mapping
from dataclasses import replace

from admission.api.kubernetes.meta import Condition
from admission.api.muster.status_reports import QueueReport
from admission.api.values import references
from admission.api.values.references import Audience, References


def for_reader(report: QueueReport, audience: Audience) -> QueueReport:
    """Return a report with its conditions in the words for a reader, without names that the reader may not know."""
    if not report.references:
        return report
    _, shown = references.render("", report.references, audience)
    conditions = tuple(_condition(one, report.references, audience) for one in report.conditions)
    return replace(report, conditions=conditions, references=shown)


def resolved(report: QueueReport, keys: Mapping[str, str]) -> QueueReport:
    """Return a report with the names of objects that its references have by UID. keys: `namespace/name` by UID."""
    return replace(report, references=references.resolve(report.references, keys))


def _condition(condition: Condition, found: References, audience: Audience) -> Condition:
    own = tuple(reference for reference in found if reference.detail == condition.type)
    return replace(condition, message=references.words(condition.message, own, audience))
