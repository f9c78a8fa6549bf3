"""A gang's status for a reader: its names of other gangs, claims and pods depend on the reader.

The controller writes it for readers of the gang's own namespace, with the UIDs of what it does not name. A user who
may read these objects finds their names by UID (`resolved`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from admission.api.muster.gangs import MADE_ROOM_FOR, Evicted, Gang, GangReport
from admission.api.values import reasons, references
from admission.api.values.reasons import Hold
from admission.api.values.references import Audience, Reference, References


def for_reader(report: GangReport, audience: Audience) -> GangReport:
    """Return a report in the words for a reader, without names that the reader may not know."""
    placement_reason, placement_references = references.render(
        report.placement_reason, report.placement_references, audience
    )
    start_reason, start_references = references.render(report.start_reason, report.start_references, audience)
    return replace(
        report,
        hold=reasons.for_reader(report.hold, audience) if report.hold is not None else None,
        placement_reason=placement_reason,
        placement_references=placement_references,
        start_reason=start_reason,
        start_references=start_references,
        evicted=evicted_for_reader(report.evicted, audience) if report.evicted is not None else None,
    )


def evicted_for_reader(evicted: Evicted, audience: Audience) -> Evicted:
    """Return an eviction in the words for a reader."""
    message, shown = references.render(evicted.message, evicted.references, audience)
    made_room_for = evicted.made_room_for or _made_room_for(evicted.references)
    if made_room_for.partition("/")[0] not in audience:
        made_room_for = ""
    return replace(evicted, message=message, references=shown, made_room_for=made_room_for)


def _made_room_for(found: References) -> str:
    """Return the name of the gang that an evicted one made room for; empty if it is not known."""
    keys = (one.key for reference in found if reference.detail == MADE_ROOM_FOR for one in reference.referents)
    return next(keys, "")


def references_of(report: GangReport) -> References:
    """Return all references of a report."""
    hold = report.hold.references if isinstance(report.hold, Hold) else ()
    evicted = report.evicted.references if report.evicted is not None else ()
    return (*hold, *evicted, *report.placement_references, *report.start_references)


def resolved(report: GangReport, keys: Mapping[str, str]) -> GangReport:
    """Return a report with the names of objects that its references have by UID. keys: `namespace/name` by UID."""
    if not keys or not references.uids(references_of(report)):
        return report
    hold, evicted = report.hold, report.evicted
    if isinstance(hold, Hold):
        hold = replace(hold, references=references.resolve(hold.references, keys))
    return replace(
        report,
        hold=hold,
        evicted=evicted_resolved(evicted, keys) if evicted is not None else None,
        placement_references=references.resolve(report.placement_references, keys),
        start_references=references.resolve(report.start_references, keys),
    )


def evicted_resolved(evicted: Evicted, keys: Mapping[str, str]) -> Evicted:
    """Return an eviction with the name of the gang that it made room for, if that is known by UID."""
    found = references.resolve(evicted.references, keys)
    return replace(evicted, references=found, made_room_for=evicted.made_room_for or _made_room_for(found))


def evicted_by_name(evicted: Evicted, records: Mapping[str, Gang]) -> Evicted:
    """Return an eviction that was read from a status, with the names that other Gang objects have."""
    unknown = references.uids(evicted.references)
    keys = {str(record.meta.uid): key for key, record in records.items() if record.meta.uid in unknown}
    return evicted_resolved(evicted, keys) if unknown else evicted


def is_made_for(evicted: Evicted, key: str, record: Gang | None) -> bool:
    """Return whether a gang was evicted for another one. record: the Gang object of the other one."""
    if evicted.made_room_for:
        return evicted.made_room_for == key
    return record is not None and record.meta.uid in references.uids(evicted.references)


def identified(report: GangReport, identify: Callable[[Reference], Reference]) -> GangReport:
    """Return a report with what is known of the objects that it refers to, in the words for any reader."""
    if not references_of(report):
        return report
    placement, start = (tuple(map(identify, one)) for one in (report.placement_references, report.start_references))
    evicted = report.evicted
    if evicted is not None and evicted.references:
        found = tuple(map(identify, evicted.references))
        message = references.rephrase(evicted.message, evicted.references, found)
        evicted = replace(evicted, message=message, references=found)
    return replace(
        report,
        hold=reasons.identified(report.hold, identify) if report.hold is not None else None,
        evicted=evicted,
        placement_reason=references.rephrase(report.placement_reason, report.placement_references, placement),
        placement_references=placement,
        start_reason=references.rephrase(report.start_reason, report.start_references, start),
        start_references=start,
    )
