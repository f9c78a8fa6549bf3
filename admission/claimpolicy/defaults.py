"""Defaults for new claims and claim templates: a patch that only adds fields.

It changes nothing that the author wrote, except the alias of a class, which exists to be replaced. For each field the
first matching entry wins, in the order of the policies. Defaults are applied until a pass adds nothing, so applying
them again changes nothing: the API server may call the webhook twice.

The API server sets `count: 1` before any webhook runs (`pkg/apis/resource/v1/defaults.go`, v1.37.1). It cannot be
distinguished from a 1 that the author wrote, unless the annotation of `kubectl apply` shows what was written. Without
that annotation a 1 stays.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from admission.api.kubernetes import claims
from admission.api.muster.claim_policies import Default
from admission.api.values import formats, strict_json
from admission.api.values.decoding import Json
from admission.api.values.json_patch import Patch
from admission.api.values.work_budget import Work, WorkBudget
from admission.cel.core.errors import EvaluationError
from admission.cel.expressions import Budget
from admission.cel.front_end import Result
from admission.cel.limits import Inadmissible
from admission.claimpolicy import cel_environment, cel_subject, draft
from admission.claimpolicy.cel_environment import Term, Vocabulary
from admission.claimpolicy.cel_subject import Activation, Subject, User
from admission.claimpolicy.draft import Draft, JsonPath
from admission.device_cel import limits
from admission.errors import JsonError, Problem

COST, STEPS = 1_000_000, 100_000
"""The budget of all conditions together in one review: cost in CEL's units, and loop iterations."""

MAX_PASSES = 64
"""Every pass but the last adds something; longer chains of conditions that depend on one another are cut off here."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation with the object as its author wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """An entry of spec.defaults. problem: why it gives nothing; "" if it is valid."""

    policy: str
    index: int
    default: Default
    vocabulary: Vocabulary
    condition: Term | None = None
    problem: str = ""

    @property
    def general(self) -> bool:
        """Whether the entry applies to every claim, even one without requests."""
        return not self.default.classes and self.condition is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The user who creates the object, and where. namespace: the Namespace as JSON; queue: "" for none."""

    namespace: Json
    queue: str = ""
    user: User | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The fields to add. obj: the object with them. warnings: conditions that could not be evaluated."""

    obj: Json
    patch: Patch = ()
    warnings: tuple[str, ...] = ()


NO_PROBLEMS: Mapping[str, Sequence[Problem]] = MappingProxyType({})


def compile_defaults(
    policy: str,
    vocabulary: Vocabulary,
    defaults: Sequence[Default],
    known_problems: Mapping[str, Sequence[Problem]] = NO_PROBLEMS,
) -> tuple[tuple[Entry, ...], tuple[Problem, ...]]:
    """Compile spec.defaults of a policy. Return the entries, and all problems.

    known_problems: by the path of the entry; these are not returned.
    """
    entries: list[Entry] = []
    problems: list[Problem] = []
    for index, default in enumerate(defaults):
        at = f"spec.defaults[{index}]"
        known = known_problems.get(at, ())
        found = [] if known else [*_problems(at, default)]
        condition = vocabulary.compile(default.when, Result.BOOL) if default.when is not None and not known else None
        if isinstance(condition, Inadmissible):
            found.append(Problem(f"{at}.when", cel_environment.explain(condition)))
            condition = None
        problems += found
        entries.append(
            Entry(
                policy=policy,
                index=index,
                default=default,
                vocabulary=vocabulary,
                condition=condition,
                problem="; ".join(map(str, (*known, *found))),
            )
        )
    return tuple(entries), tuple(problems)


def uncertain(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Yield the conditions that are applied although they fit no type that Muster knows."""
    for entry in entries:
        if entry.condition is not None and entry.condition.uncertainty:
            yield Problem(f"spec.defaults[{entry.index}].when", f"looks wrong: {entry.condition.uncertainty}")


def complete(
    entries: Sequence[Entry], obj: Json, requester: Requester, *, template: bool, work: WorkBudget | None = None
) -> Completed:
    """Add a claim's, or a claim template's, missing fields. The object may have any version of resource.k8s.io.

    work: is charged. Raises TooMuchWorkError.
    """
    if not entries:
        return Completed(obj=obj)
    defaulter = _Defaulter(entries, Draft(obj, work), requester, template=template)
    for _ in range(MAX_PASSES):
        before = defaulter.draft.length
        defaulter.apply_once()
        # Another pass can add something only if a condition became true of what this pass added.
        if not defaulter.conditional or defaulter.draft.length == before:
            break
    return Completed(
        obj=defaulter.draft.obj, patch=defaulter.draft.patch, warnings=tuple(dict.fromkeys(defaulter.warnings))
    )


@dataclass(frozen=True, slots=True)
class _MatchedRequest:
    """A request or an alternative: its name, its path, its classes by alias, and the entries that apply to it."""

    name: str
    path: JsonPath
    classes: Sequence[str]
    entries: Sequence[Entry]


@dataclass(slots=True)
class _Conditions:
    """Evaluates conditions on the object as it is now."""

    subject: Subject
    budget: Budget
    warnings: list[str]
    values: Mapping[str, cel_subject.Request] = field(init=False)

    def __post_init__(self) -> None:
        self.values = {request.name: request for request in self.subject.requests()}

    def holds(self, entry: Entry, name: str) -> bool:
        """Return whether an entry's condition is true of a request. One that fails is false, with a warning."""
        term, request = entry.condition, self.values.get(name)
        if term is None:
            return True
        if request is None or not term.reads <= self.subject.present:
            return False
        activation = Activation(entry.vocabulary, self.subject, term.reads, self.budget)
        activation.set_request(request)
        try:
            return term.expression.evaluate(activation.bindings, self.budget) is True
        except EvaluationError as error:
            self.warnings.append(
                f"muster: ClaimPolicy {entry.policy}: request {name} gets nothing from spec.defaults[{entry.index}],"
                f" whose condition could not be evaluated: {error}; the policy's author has to guard it"
            )
            return False


class _Defaulter:
    """One object while its defaults are added."""

    def __init__(self, entries: Sequence[Entry], draft: Draft, requester: Requester, *, template: bool) -> None:
        self.draft = draft
        self.warnings: list[str] = []
        self._entries = [entry for entry in entries if not entry.problem]
        self._invalid = [entry for entry in entries if entry.problem]
        self._requester = requester
        self._template = template
        self._devices: JsonPath = ("spec", "spec", "devices") if template else ("spec", "devices")
        self._budget = Budget(cost=COST, steps=STEPS)
        self._without_count = _requests_without_count(draft.obj, self._devices)
        self.conditional = any(entry.condition is not None for entry in self._entries)

    def apply_once(self) -> None:
        """Add to every request, and to the claim as a whole, what is missing in their present state."""
        self._budget.steps = min(self._budget.steps, self.draft.work.left)
        conditions = self._conditions() if self.conditional else None
        matched_requests = [
            self._match(name, path, conditions) for name, path in _requests(self.draft.obj, self._devices)
        ]
        for matched in matched_requests:
            self._apply(matched)
        self._add_config(matched_requests)
        self._add_labels(matched_requests)

    def _conditions(self) -> _Conditions:
        obj = self.draft.obj
        claim = (
            cel_subject.claim_from_template(obj.get("metadata") or {}, obj.get("spec") or {}) if self._template else obj
        )
        self.draft.work.charge_values(claim)
        requester = self._requester
        subject = Subject(claim, namespace=requester.namespace, user=requester.user, queue=requester.queue)
        return _Conditions(subject, self._budget, self.warnings)

    def _match(self, name: str, path: JsonPath, conditions: _Conditions | None) -> _MatchedRequest:
        self.draft.work.charge(Work.EVALUATION, len(self._entries))
        stated = self.draft.get(*path, "deviceClassName")
        matching = [entry for entry in self._entries if conditions is None or conditions.holds(entry, name)]
        classes = _resolve_alias(stated if isinstance(stated, str) else "", matching)
        applicable = [
            entry
            for entry in matching
            if not entry.default.classes or not set(entry.default.classes).isdisjoint(classes)
        ]
        for entry in self._invalid:
            if not entry.default.classes or not set(entry.default.classes).isdisjoint(classes):
                self.warnings.append(
                    f"muster: ClaimPolicy {entry.policy}: request {name} gets nothing from an invalid entry:"
                    f" {entry.problem}; the policy's author has to mend it"
                )
        return _MatchedRequest(name, path, classes, applicable)

    def _apply(self, matched: _MatchedRequest) -> None:
        if len(matched.classes) > 1:
            self.draft.put((*matched.path, "deviceClassName"), matched.classes[-1])
        count = next((entry.default.count for entry in matched.entries if entry.default.count is not None), None)
        if count is not None and self._lacks_count(matched) and self.draft.get(*matched.path, "count") != count:
            self.draft.put((*matched.path, "count"), count)
        for name in ("selectors", "tolerations"):
            value = next((found for entry in matched.entries if (found := getattr(entry.default, name))), None)
            if value and not self.draft.get(*matched.path, name):
                self.draft.put((*matched.path, name), [dict(item) for item in value])
        for entry in matched.entries:
            for name, amount in entry.default.capacity.items():
                if self.draft.get(*matched.path, "capacity", "requests", name) is None:
                    self.draft.put((*matched.path, "capacity", "requests", name), amount)

    def _lacks_count(self, matched: _MatchedRequest) -> bool:
        mode, count = (self.draft.get(*matched.path, name) for name in ("allocationMode", "count"))
        if not mode and not count:
            return True
        return mode == claims.EXACT_COUNT and count == 1 and matched.name in self._without_count

    def _add_config(self, matched_requests: Sequence[_MatchedRequest]) -> None:
        for entry in self._entries:
            names = [matched.name for matched in matched_requests if entry in matched.entries]
            if not entry.default.config or not (names or entry.general):
                continue
            configured = self._configured_drivers()
            for config in entry.default.config:
                if _driver(config) in configured:
                    continue
                scope = {} if len(names) == len(matched_requests) else {"requests": names}
                self.draft.put((*self._devices, "config", draft.END), {**scope, **config})

    def _configured_drivers(self) -> set[Any]:
        """Return the drivers that the claim has a configuration for."""
        configs = self.draft.get(*self._devices, "config")
        return {_driver(config) for config in configs} if isinstance(configs, list) else set()

    def _add_labels(self, matched_requests: Sequence[_MatchedRequest]) -> None:
        for entry in self._entries:
            if not entry.general and not any(entry in matched.entries for matched in matched_requests):
                continue
            for key, value in entry.default.labels.items():
                if self.draft.get("metadata", "labels", key) is None:
                    self.draft.put(("metadata", "labels", key), value)


def _requests(obj: Json, devices: JsonPath) -> Iterator[tuple[str, JsonPath]]:
    """Yield the name and path of each request: of `exactly`, of each alternative, or of a v1beta1 request itself."""
    requests = draft.value_at(obj, *devices, "requests")
    for index, request in enumerate(requests if isinstance(requests, list) else ()):
        if not isinstance(request, dict):
            continue
        path: JsonPath = (*devices, "requests", index)
        name, alternatives = str(request.get("name", "")), request.get("firstAvailable")
        if isinstance(alternatives, list) and alternatives:
            for at, alternative in enumerate(alternatives):
                if isinstance(alternative, dict):
                    yield f"{name}/{alternative.get('name', '')}", (*path, "firstAvailable", at)
        else:
            yield name, (*path, "exactly") if isinstance(request.get("exactly"), dict) else path


def _resolve_alias(stated: str, entries: Iterable[Entry]) -> Sequence[str]:
    """Return the stated class, then the classes that it is an alias of, the final one last.

    An alias that leads back to itself is not resolved.
    """
    aliases: dict[str, str] = {}
    for entry in entries:
        if entry.default.device_class is not None:
            for alias in entry.default.classes:
                if alias != entry.default.device_class:
                    aliases.setdefault(alias, entry.default.device_class)
    chain = [stated]
    while (target := aliases.get(chain[-1])) is not None:
        if target in chain:
            return [stated]
        chain.append(target)
    return chain


def _requests_without_count(obj: Json, devices: JsonPath) -> frozenset[str]:
    """Return the requests whose author is known to have written neither count nor allocationMode."""
    last_applied = draft.value_at(obj, "metadata", "annotations", LAST_APPLIED)
    if not isinstance(last_applied, str):
        return frozenset()
    try:
        written = strict_json.decode(last_applied.encode())
    except JsonError:
        return frozenset()
    return frozenset(
        name
        for name, path in _requests(written, devices)
        if not draft.value_at(written, *path, "count") and not draft.value_at(written, *path, "allocationMode")
    )


def _driver(config: Any) -> Any:
    return draft.value_at(config, "opaque", "driver")


def _problems(at: str, default: Default) -> Iterator[Problem]:
    """Yield what the API server would refuse in a claim with these defaults."""
    for index, selector in enumerate(default.selectors):
        refusal = limits.check(str(draft.value_at(selector, "cel", "expression")))
        if refusal is not None:
            yield Problem(f"{at}.selectors[{index}].cel.expression", str(refusal))
    for key, value in default.labels.items():
        message = formats.key(key) or (formats.value(value) if value else None)
        if message is not None:
            yield Problem(f"{at}.labels[{key}]", message)
    for index, config in enumerate(default.config):
        if not isinstance(_driver(config), str):
            yield Problem(f"{at}.config[{index}].opaque.driver", "is required: whose configuration it is")
        if config.get("requests"):
            message = "must be left out: a policy does not know how claims name their requests; use deviceClasses"
            yield Problem(f"{at}.config[{index}].requests", message)
