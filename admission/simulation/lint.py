"""Lint of manifests without a cluster: what will be refused, can never fit, or does not mean what it seems to.

For `muster lint`. Objects are read as in `muster simulate`, so its problems are reported here too. Objects that are not
in the input are not assumed: without slices there is no remark on what fits, and without namespaces no policy that
selects by label applies.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from admission.api.kubernetes import claims, devices, meta
from admission.api.muster.policy_rules import Action
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import DenyReason
from admission.claimpolicy import admission, cel_subject, defaults, match, rules
from admission.claimpolicy.admission import ClaimContext, ClaimView
from admission.claimpolicy.cel_subject import Subject, User
from admission.claimpolicy.defaults import Requester
from admission.claimpolicy.rules import Finding
from admission.conversion import equivalents
from admission.device_cel import lint as cel_lint
from admission.device_cel.lint import LintRule, LintWarning, Name, Types
from admission.dra import compatibility
from admission.dra.compatibility import SchedulerProfile
from admission.dra.diagnosis import supply
from admission.dra.diagnosis.supply import Supply
from admission.dra.inventory.selectors import Selectors
from admission.dra.state import nodes_to_come
from admission.errors import MalformedObjectError, RetryError
from admission.objectpolicy import claim_policies, gangs, meters, node_shapes, queues, used_requests, workloads
from admission.objectpolicy.findings import ObjectFinding
from admission.podpolicy import outside_queues, workload_queue
from admission.quota.tree import Inactive
from admission.review.caches import ReviewCaches
from admission.simulation import expand, manifests, offline, validation
from admission.simulation.expand import Expanded
from admission.workloads import suspendable, template_labels
from admission.workloads.kinds import registry


class Severity(StrEnum):
    """The severity of a remark."""

    ERROR = "error"
    """It is refused, fails, or can never be satisfied."""

    WARNING = "warning"
    """It is probably a mistake, but may be intended."""


class Code(StrEnum):
    """The kind of a remark. Every member is described in docs/commands.md."""

    REFUSED = "Refused"
    DENIED = "Denied"
    UNGUARDED_LOOKUP = "UnguardedLookup"
    ALWAYS_TRUE = "AlwaysTrue"
    VERSION_AS_TEXT = "VersionAsText"
    NEVER_EQUAL = "NeverEqual"
    FAILS_ON_DEVICE = "FailsOnDevice"
    UNKNOWN_CLASS = "UnknownClass"
    UNKNOWN_PRIORITY_CLASS = "UnknownPriorityClass"
    UNKNOWN_REQUEST = "UnknownRequest"
    NEVER_FITS = "NeverFits"
    POLICY_VIOLATION = "PolicyViolation"
    POLICY_WARNING = "PolicyWarning"
    DOUBTFUL = "Doubtful"
    NOT_IN_ORDER = "NotInOrder"
    DEADLINE_WHILE_HELD = "DeadlineWhileHeld"
    OUTSIDE_QUEUES = "OutsideQueues"
    UNKNOWN_FIELD = "UnknownField"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One problem. index: the object's place in the input; instead: the corrected text, if it is known."""

    index: int
    severity: Severity
    code: Code
    field: str
    message: str
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """All problems, in the order of the input; notes: objects left out."""

    remarks: tuple[Remark, ...]
    notes: tuple[str, ...]


async def lint(
    objects: Sequence[Json], *, namespace: str = "default", profile: SchedulerProfile = compatibility.NEWEST
) -> Linted:
    """Return the problems of the objects, each of which must have an apiVersion and a kind."""
    cluster_state = expand.expand(objects, namespace=namespace, profile=profile)
    linter = _Linter(objects, cluster_state, namespace, profile)
    remarks = [*_refused(cluster_state), *linter.remarks(), *await linter.conditions(), *await linter.later()]
    ordered = sorted(dict.fromkeys(remarks), key=lambda remark: remark.index)
    return Linted(remarks=tuple(ordered), notes=(*cluster_state.notes, *_without_slices(cluster_state.snapshot)))


def _without_slices(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note where the input describes nodes and claims, and no device at all."""
    if snapshot.nodes and not snapshot.slices and (snapshot.claims or snapshot.templates):
        yield (
            "the input has nodes and no ResourceSlice: on a cluster like that no claim is ever allocated (are drivers"
            " installed?); if slices were left out, add them, and what does not fit is told"
        )


def _refused(cluster_state: Expanded) -> Iterator[Remark]:
    for index, error in cluster_state.problems:
        for problem in error.problems:
            yield _error(index, Code.REFUSED, problem.field, problem.message)


class _Linter:
    """Lints the well-formed objects one by one."""

    def __init__(
        self, objects: Sequence[Json], cluster_state: Expanded, namespace: str, profile: SchedulerProfile
    ) -> None:
        self._cluster_state = cluster_state
        self._snapshot = cluster_state.snapshot
        self._profile = profile
        self._namespace = namespace
        self._slices = (*self._snapshot.slices.values(), *nodes_to_come.slices(self._snapshot))
        self._selectors = Selectors(profile.cel)
        self._types = _types(cluster_state.snapshot)
        caches = ReviewCaches()
        self._policies = caches.policies(cluster_state.snapshot)
        self._queues = caches.defaults(cluster_state.snapshot)
        self._context = ClaimContext(
            snapshot=cluster_state.snapshot,
            defaults=self._queues,
            limits=caches.limits(cluster_state.snapshot),
            policies=self._policies,
        )
        malformed = {index for index, _ in cluster_state.problems}
        self._well_formed = [(index, obj) for index, obj in enumerate(objects) if index not in malformed]
        self._places = {(str(obj["kind"]), self._key(obj)): index for index, obj in self._well_formed}
        self._aliases = {
            alias
            for policy in cluster_state.snapshot.policies.values()
            for default in policy.defaults
            if default.device_class is not None
            for alias in default.classes
        }

    def _key(self, obj: Json) -> str:
        name = meta.name_in(obj)
        return name if "/" in name or str(obj["kind"]) not in _NAMESPACED else f"{self._namespace}/{name}"

    def remarks(self) -> Iterator[Remark]:
        """Yield the problems of each object."""
        for index, obj in self._well_formed:
            reader = Reader(equivalents.read(obj)[0])
            # Without a namespace, which the API server drops of objects of the whole cluster.
            name = reader.child("metadata").text("name")
            yield from _unserved(index, obj)
            match manifests.kind_read(obj):
                case "DeviceClass":
                    yield from self._lint_selectors(index, reader.child("spec"), ())
                    yield from self._fails_on_device(index, name)
                case "ResourceClaim" | "ResourceClaimTemplate" as kind:
                    spec = reader.child("spec")
                    yield from self._claim(index, spec.child("spec") if kind != "ResourceClaim" else spec)
                    yield from self._policy_findings(index, equivalents.read(obj)[0])
                case "ClaimPolicy":
                    yield from self._policy(index, reader)
                case "Meter":
                    meter = self._snapshot.meters[MeterName(name)]
                    yield from _from_findings(index, meters.unusable(meter))
                    for source in reader.child("spec").children("sources"):
                        yield from self._lint_text(index, source, "selector", (), unguarded=False)
                case "Queue":
                    queue = self._snapshot.queues[QueueName(name)]
                    yield from _from_findings(index, queues.check_write(queue, self._snapshot))
                    yield from self._kinds(index, queue)
                case "Gang" | "NodeShape":
                    yield from self._gang_or_shape(index, obj)
                case _:
                    yield from self._priority_classes(index, obj)
                    yield from self._workload(index, obj)
                    yield from self._used_requests(index, obj)
                    for problem in validation.doubts(obj):
                        yield _warning(index, Code.UNKNOWN_FIELD, problem.field, problem.message)
        yield from self._refusals()

    def _priority_classes(self, index: int, obj: Json) -> Iterator[Remark]:
        """Yield the labels of a workload that name a priority class which its queue does not have."""
        kind = template_labels.BY_GROUP.get((str(obj["apiVersion"]).rpartition("/")[0], str(obj["kind"])))
        if kind is None:
            return
        namespace = self._key(obj).rpartition("/")[0] or self._namespace
        with contextlib.suppress(MalformedObjectError, RetryError):
            workload = workload_queue.decode(kind, obj, namespace)
            findings = workloads.unknown_priority_classes(workload, self._snapshot, self._queues)
            yield from _from_findings(index, [*findings], Code.UNKNOWN_PRIORITY_CLASS)

    def _workload(self, index: int, obj: Json) -> Iterator[Remark]:
        group = str(obj["apiVersion"]).rpartition("/")[0]
        kind = suspendable.BY_KEY.get(registry.key(str(obj["kind"]), group))
        if kind is None:
            return
        namespace = self._key(obj).rpartition("/")[0] or self._namespace
        # Malformed workloads, and those in an unknown queue, have other remarks already.
        with contextlib.suppress(MalformedObjectError, RetryError):
            findings = workloads.check_write(
                kind, obj, namespace=namespace, snapshot=self._snapshot, defaults=self._queues
            )
            yield from _from_findings(index, [*findings], Code.DEADLINE_WHILE_HELD)

    def _used_requests(self, index: int, obj: Json) -> Iterator[Remark]:
        namespace = self._key(obj).rpartition("/")[0] or self._namespace
        for problem in used_requests.unknown(obj, namespace, self._snapshot):
            yield _warning(index, Code.UNKNOWN_REQUEST, problem.field, problem.message)

    def _kinds(self, index: int, queue: Queue) -> Iterator[Remark]:
        """Yield the kinds of devices of which the input has none, and those whose selector fails on a device."""
        for at, kind in enumerate(queue.preferences.kinds if queue.preferences is not None else ()):
            field = f"spec.preferences.kinds[{at}]"
            classes = [self._snapshot.classes[name] for name in kind.classes if name in self._snapshot.classes]
            own = (kind.selector,) if kind.selector is not None else ()
            supplied = [self._supply((*one.selectors, *own)) for one in classes if self._slices]
            broken = next((one.broken for one in supplied if one.broken is not None), None)
            if broken is not None:
                message = f"fails on device {broken[0]}, which stops gangs that may get it: {broken[1]}"
                yield _error(index, Code.FAILS_ON_DEVICE, f"{field}.selector", message)
            elif supplied and not any(one.everywhere for one in supplied):
                message = f"no device of the input is of kind {kind.name}"
                yield _warning(index, Code.NEVER_FITS, field, message)

    def _gang_or_shape(self, index: int, obj: Json) -> Iterator[Remark]:
        if obj["kind"] == "NodeShape":
            shape = self._snapshot.shapes[meta.name_in(obj)]
            yield from _from_findings(index, node_shapes.check_write(shape, self._snapshot.shapes.values()))
            return
        gang = self._snapshot.gangs[self._key(obj)]
        if gang.written_by_user and gang.meta.namespace in self._snapshot.namespaces:
            yield from _from_findings(index, gangs.check_write(gang, self._snapshot, gang.meta.namespace))

    def _lint_selectors(
        self, index: int, parent: Reader, before: tuple[str, ...], *, class_known: bool = True
    ) -> Iterator[Remark]:
        """Yield the lint warnings of `selectors`, each in the context of those before it.

        class_known: whether their class is.
        """
        for selector in parent.children("selectors"):
            cel = selector.child("cel")
            for remark in self._lint_text(index, cel, "expression", before):
                yield remark if class_known else _softened(remark)
            before = (*before, cel.text("expression"))

    def _lint_text(
        self, index: int, reader: Reader, name: str, before: tuple[str, ...], *, unguarded: bool = True
    ) -> Iterator[Remark]:
        text = reader.raw(name)
        if not isinstance(text, str):
            return
        field = f"{reader.path}.{name}"
        for lint_warning in cel_lint.find(text, before=before, types=self._types, profile=self._profile.cel):
            if unguarded or lint_warning.rule is not LintRule.UNGUARDED_LOOKUP:
                yield _from_lint(index, field, text, lint_warning)

    def _claim(self, index: int, spec: Reader) -> Iterator[Remark]:
        for request in spec.child("devices").children("requests"):
            options = list(request.children("firstAvailable")) or [request.child("exactly")]
            remarks = [remark for option in options for remark in self._device_request(index, option)]
            never_fits = [remark for remark in remarks if remark.code is Code.NEVER_FITS]
            yield from (remark for remark in remarks if remark.code is not Code.NEVER_FITS)
            # An alternative that cannot be satisfied is no problem if another one can.
            if len(never_fits) == len(options):
                yield from never_fits

    def _device_request(self, index: int, option: Reader) -> Iterator[Remark]:
        name = option.text("deviceClassName")
        device_class = self._snapshot.classes.get(name)
        yield from self._lint_selectors(
            index, option, device_class.selectors if device_class else (), class_known=device_class is not None
        )
        if device_class is None:
            if self._snapshot.classes and name not in self._aliases:
                message = f"asks for {name}, {devices.absent_class(name, self._snapshot.classes)}"
                yield _warning(index, Code.UNKNOWN_CLASS, f"{option.path}.deviceClassName", message)
        elif self._slices:
            yield from self._fits(index, option, device_class.selectors)

    def _fails_on_device(self, index: int, name: str) -> Iterator[Remark]:
        """Yield the device on which a class's own selectors fail, for whatever request of the class."""
        broken = self._supply(self._snapshot.classes[name].selectors).broken
        if broken is not None:
            device, why = broken
            message = (
                f"a selector fails on device {device}, which stops the scheduling of every pod that asks for the class"
                f" where it may go to a node that sees the device: {why}"
            )
            yield _error(index, Code.FAILS_ON_DEVICE, "spec.selectors", message)

    def _supply(self, texts: tuple[str, ...]) -> Supply:
        return supply.supply(texts, self._slices, self._selectors)

    def _fits(self, index: int, option: Reader, before: tuple[str, ...]) -> Iterator[Remark]:
        if self._supply(before).broken is not None:
            return  # reported for the class
        selectors = tuple(selector.child("cel").text("expression") for selector in option.children("selectors"))
        supplied = self._supply((*before, *selectors))
        if supplied.broken is not None:
            device, why = supplied.broken
            message = f"a selector fails on device {device}, which stops the scheduling of the pod: {why}"
            yield _error(index, Code.FAILS_ON_DEVICE, f"{option.path}.selectors", message)
            return
        takes_all = option.text("allocationMode") == claims.ALL
        count = 1 if takes_all else option.integer("count", 1) or 1
        if supplied.at_most < count and not (supplied.sharable and supplied.at_most):
            available = f"at most {supplied.at_most} that one node can use" if supplied.everywhere else "none"
            message = (
                f"asks for {'all' if takes_all else count} of class {option.text('deviceClassName')}; the input has"
                f" {available}"
            )
            yield _error(index, Code.NEVER_FITS, option.path, message)

    # Policies.

    def _policy_findings(self, index: int, obj: Json) -> Iterator[Remark]:
        """Yield the findings of policies on a claim or template, as if an unknown user created it now."""
        namespace = str((obj.get("metadata") or {}).get("namespace") or self._namespace)
        template = obj["kind"] == "ResourceClaimTemplate"
        claim_view = ClaimView(obj=obj, namespace=namespace, user=User(), template=template)
        denial = admission.judge(claim_view, self._context).denial
        if denial is not None and denial.reason is not DenyReason.POLICY_VIOLATION:
            yield _error(index, Code.DENIED, "spec", f"{denial.reason}: {denial.message}")
        queues = self._queues.open_to(namespace)
        matched = self._policies.choose(namespace, queues[0].name if queues else "")
        if not matched.rules:
            return
        namespace_object = self._snapshot.namespaces[namespace]
        variables: dict[str, Any] = {
            "namespace": {"metadata": {"name": namespace, "labels": dict(namespace_object.labels)}},
            "queue": queues[0].name if queues else "",
        }
        completed = defaults.complete(matched.defaults, obj, Requester(**variables), template=template).obj
        claim = (
            cel_subject.claim_from_template(completed.get("metadata") or {}, completed.get("spec") or {})
            if template
            else completed
        )
        # An invalid rule has remarks of its own, at its policy.
        valid = [rulebook.filtered(lambda rule: not rule.problem) for rulebook in matched.rules]
        for finding in rules.judge(valid, [Subject(claim, **variables)]).findings:
            yield from _from_rule(index, finding, "spec.spec.devices.requests" if template else "spec.devices.requests")

    def _policy(self, index: int, reader: Reader) -> Iterator[Remark]:
        policy = self._snapshot.policies[str(reader.child("metadata").raw("name"))]
        compiled = match.compile_policy(policy)
        yield from _from_findings(index, claim_policies.cel_findings(compiled), Code.DOUBTFUL)
        yield from _from_findings(index, claim_policies.unknown_queues(policy, self._snapshot))
        spec = reader.child("spec")
        for template in spec.children("templates"):
            yield from self._template(index, template)
        for default in spec.children("defaults"):
            yield from self._lint_selectors(index, default, (), class_known=False)
        for conversion in spec.children("conversions"):
            device_class = self._snapshot.classes.get(conversion.text("deviceClassName"))
            yield from self._lint_selectors(
                index, conversion, device_class.selectors if device_class else (), class_known=device_class is not None
            )

    def _template(self, index: int, template: Reader) -> Iterator[Remark]:
        """Yield the problems of a template that a policy provides, as if it were an object of its own."""
        body = {"metadata": {"name": template.text("name")}, "spec": {"spec": template.raw("spec")}}
        problems = validation.problems("ResourceClaimTemplate", body, self._profile)
        for problem in problems:
            field = problem.field.replace("metadata.name", f"{template.path}.name", 1)
            yield _error(index, Code.REFUSED, field.replace("spec.spec", f"{template.path}.spec", 1), problem.message)
        if not problems:
            yield from self._claim(index, template.child("spec"))

    # What the controller and the webhook would say.

    def _refusals(self) -> Iterator[Remark]:
        for index, metered in self._cluster_state.outside.items():
            yield _warning(index, Code.OUTSIDE_QUEUES, "spec", outside_queues.describe([metered]))
        workloads = self._cluster_state.refused_workloads
        for index, workload in workloads.items():
            message = f"is refused: {workload.denial.reason}: {workload.denial.message}"
            yield _error(index, Code.DENIED, workload.field, message)
        for refusal in self._cluster_state.refusals.values():
            if refusal.is_made and refusal.index in workloads:
                continue
            message = f"refused: {refusal.denial.reason}: {refusal.denial.message}"
            yield _error(
                refusal.index, Code.DENIED, "spec", f"its pods are {message}" if refusal.is_made else f"is {message}"
            )

    async def conditions(self) -> list[Remark]:
        """Return the problems that the status of queues and meters would report."""
        without_pods = replace(self._snapshot, pods={}, jobs={})
        cluster_state = replace(self._cluster_state, snapshot=without_pods, refusals={}, later=())
        outcome = await offline.simulate(cluster_state)
        reports = [("Queue", str(queue.name), queue.conditions) for queue in outcome.queues]
        reports += [
            ("Meter", report.name, report.conditions) for report in outcome.conditions if report.plural == "meters"
        ]
        found = []
        for kind, name, conditions in reports:
            index = self._places.get((kind, name))
            bad = [one for one in conditions if one.status != "True" and one.reason not in _REPORTED_BY_FIELD]
            if index is not None:
                found += [
                    _warning(index, Code.NOT_IN_ORDER, "spec", f"{one.type} is {one.status}: {one.message}")
                    for one in bad
                ]
        return found

    async def later(self) -> list[Remark]:
        """Return the workloads whose first pods may start, and others never; none without nodes and devices."""
        if not (self._snapshot.nodes and self._snapshot.slices):
            return []
        return [
            _error(wave.index, Code.NEVER_FITS, "spec", why)
            for wave, why in await offline.never_fitting(self._cluster_state)
        ]


_NAMESPACED = frozenset({"Pod", "Job", "ResourceClaim", "ResourceClaimTemplate", "Gang"})
_REPORTED_BY_FIELD = frozenset({"Malformed", "MeterMissing", *(set(Inactive) - {Inactive.TERMINATING})})
"""Reasons of conditions whose problem is reported with the object's field."""


def _types(snapshot: Snapshot) -> Types:
    found: Mapping[tuple[str, str], set[str]] = supply.types(snapshot.slices.values())
    return {Name("attributes", domain, name): kinds for (domain, name), kinds in found.items()}


def _from_lint(index: int, field: str, text: str, lint_warning: LintWarning) -> Remark:
    place = (
        f"column {lint_warning.column}"
        if "\n" not in text
        else f"line {lint_warning.line}, column {lint_warning.column}"
    )
    return Remark(
        index=index,
        severity=Severity.WARNING,
        code=Code(lint_warning.rule.value),
        field=field,
        message=f"{place}: {lint_warning.message}",
        instead=lint_warning.instead,
    )


def _softened(remark: Remark) -> Remark:
    if remark.code is not Code.UNGUARDED_LOOKUP:
        return remark
    message = f"{remark.message}; that is so unless its class, which is not in the input, selects one driver alone"
    return replace(remark, message=message)


def _from_rule(index: int, finding: Finding, field: str) -> Iterator[Remark]:
    match finding.rule.action:
        case Action.DENY:
            yield _error(index, Code.POLICY_VIOLATION, field, str(finding))
        case Action.WARN:
            yield _warning(index, Code.POLICY_WARNING, field, str(finding))
        case Action.AUDIT:
            pass


def _from_findings(index: int, findings: Iterable[ObjectFinding], code: Code = Code.NOT_IN_ORDER) -> Iterator[Remark]:
    """Yield the webhook's findings about one of Muster's own objects. code: that of its warnings."""
    for finding in findings:
        remark = _warning(index, code, finding.field, finding.message)
        if finding.denied is not None:
            malformed = finding.denied is DenyReason.MALFORMED_REQUEST
            remark = _error(index, Code.REFUSED if malformed else Code.DENIED, finding.field, finding.message)
        yield replace(remark, instead=finding.instead)


def _unserved(index: int, obj: Json) -> Iterator[Remark]:
    if not equivalents.is_served(obj):
        yield _error(index, Code.REFUSED, "apiVersion", equivalents.NOT_SERVED)


def _error(index: int, code: Code, field: str, message: str) -> Remark:
    return Remark(index=index, severity=Severity.ERROR, code=code, field=field, message=message)


def _warning(index: int, code: Code, field: str, message: str) -> Remark:
    return Remark(index=index, severity=Severity.WARNING, code=code, field=field, message=message)
