"""Defaults for new claims and claim templates: a patch that only adds fields.

It changes nothing that the author wrote, except the alias of a class, which exists to be replaced. For each field the
first matching entry wins, in the order of the policies. Defaults are applied until a pass adds nothing, so applying
them again changes nothing: the API server may call the webhook twice.

The API server sets `count: 1` before any webhook runs (`pkg/apis/resource/v1/defaults.go`, v1.37.1). It cannot be told
from a 1 that the author wrote, unless the annotation of `kubectl apply` shows what was written. Without that annotation
a 1 stays.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from admission.api.kubernetes import claims
from admission.api.muster.claim_policies import Default
from admission.api.values import formats
from admission.api.values.decoding import Json
from admission.api.values.json_patch import Patch
from admission.cel import limits
from admission.cel.core.errors import EvaluationError
from admission.cel.expressions import Budget
from admission.cel.limits import Inadmissible
from admission.cel.programs import Result
from admission.claimpolicy import cel_environment, cel_subject, draft
from admission.claimpolicy.cel_environment import Term, Vocabulary
from admission.claimpolicy.cel_subject import Activation, Subject, User
from admission.claimpolicy.draft import Draft, Way
from admission.errors import Problem

COST, STEPS = 1_000_000, 100_000
"""The budget of all conditions together in one review: cost in CEL's units, and loop iterations."""

MOST_PASSES = 64
"""Every pass but the last adds something; longer chains of conditions that depend on one another are cut off here."""

WRITTEN = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation with the object as its author wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """An entry of spec.defaults that compiled."""

    policy: str
    index: int
    default: Default
    vocabulary: Vocabulary
    condition: Term | None = None

    @property
    def general(self) -> bool:
        """Whether the entry applies to every claim, even one without requests."""
        return not self.default.classes and self.condition is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
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


def compile_defaults(
    policy: str, vocabulary: Vocabulary, defaults: Sequence[Default]
) -> tuple[tuple[Entry, ...], tuple[Problem, ...]]:
    """Compile spec.defaults of a policy. Return the entries, and all problems."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    for index, default in enumerate(defaults):
        at = f"spec.defaults[{index}]"
        problems += _problems(at, default)
        condition = vocabulary.compile(default.when, Result.BOOL) if default.when is not None else None
        if isinstance(condition, Inadmissible):
            problems.append(Problem(f"{at}.when", cel_environment.explained(condition)))
        else:
            entry = Entry(policy=policy, index=index, default=default, vocabulary=vocabulary, condition=condition)
            entries.append(entry)
    return tuple(entries), tuple(problems)


def uncertain(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Yield the conditions that are applied although they fit no type that Muster knows."""
    for entry in entries:
        if entry.condition is not None and entry.condition.uncertainty:
            yield Problem(f"spec.defaults[{entry.index}].when", f"looks wrong: {entry.condition.uncertainty}")


def complete(entries: Sequence[Entry], obj: Json, asker: Asker, *, template: bool) -> Completed:
    """Add a claim's, or a claim template's, missing fields. The object may have any version of resource.k8s.io."""
    if not entries:
        return Completed(obj=obj)
    work = _Work(entries, obj, asker, template=template)
    for _ in range(MOST_PASSES):
        before = len(work.draft.patch)
        work.pass_through()
        # Another pass can add something only if a condition became true of what this pass added.
        if not work.conditional or len(work.draft.patch) == before:
            break
    return Completed(obj=work.draft.obj, patch=work.draft.patch, warnings=tuple(dict.fromkeys(work.warnings)))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request or an alternative: its name, its path, its classes by alias, and the entries that apply to it."""

    name: str
    way: Way
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

    def hold(self, entry: Entry, name: str) -> bool:
        """Return whether an entry's condition is true of a request. One that fails is false, with a warning."""
        term, request = entry.condition, self.values.get(name)
        if term is None:
            return True
        if request is None or not term.reads <= self.subject.present:
            return False
        activation = Activation(entry.vocabulary, self.subject, term.reads, self.budget)
        activation.turn_to(request)
        try:
            return term.expression.evaluate(activation.given, self.budget) is True
        except EvaluationError as error:
            self.warnings.append(
                f"muster: ClaimPolicy {entry.policy}: request {name} gets nothing from spec.defaults[{entry.index}],"
                f" whose condition could not be evaluated: {error}; the policy's author has to guard it"
            )
            return False


class _Work:
    """One object while its defaults are added."""

    def __init__(self, entries: Sequence[Entry], obj: Json, asker: Asker, *, template: bool) -> None:
        self.draft = Draft(obj)
        self.warnings: list[str] = []
        self._entries = entries
        self._asker = asker
        self._template = template
        self._devices: Way = ("spec", "spec", "devices") if template else ("spec", "devices")
        self._budget = Budget(cost=COST, steps=STEPS)
        self._silent = _silent_about_count(obj, self._devices)
        self.conditional = any(entry.condition is not None for entry in entries)

    def pass_through(self) -> None:
        """Add to every request, and to the claim as a whole, what is missing in their present state."""
        conditions = self._conditions() if self.conditional else None
        all_asked = [self._matched(name, way, conditions) for name, way in _requests(self.draft.obj, self._devices)]
        for asked in all_asked:
            self._give(asked)
        self._configure(all_asked)
        self._label(all_asked)

    def _conditions(self) -> _Conditions:
        obj = self.draft.obj
        claim = cel_subject.of_template(obj.get("metadata") or {}, obj.get("spec") or {}) if self._template else obj
        asker = self._asker
        subject = Subject(claim, namespace=asker.namespace, user=asker.user, queue=asker.queue)
        return _Conditions(subject, self._budget, self.warnings)

    def _matched(self, name: str, way: Way, conditions: _Conditions | None) -> _Asked:
        stated = self.draft.get(*way, "deviceClassName")
        holding = [entry for entry in self._entries if conditions is None or conditions.hold(entry, name)]
        classes = _resolved(stated if isinstance(stated, str) else "", holding)
        chosen = [e for e in holding if not e.default.classes or not set(e.default.classes).isdisjoint(classes)]
        return _Asked(name, way, classes, chosen)

    def _give(self, asked: _Asked) -> None:
        if len(asked.classes) > 1:
            self.draft.put((*asked.way, "deviceClassName"), asked.classes[-1])
        count = next((e.default.count for e in asked.entries if e.default.count is not None), None)
        if count is not None and self._lacks_count(asked) and self.draft.get(*asked.way, "count") != count:
            self.draft.put((*asked.way, "count"), count)
        for name in ("selectors", "tolerations"):
            given = next((found for e in asked.entries if (found := getattr(e.default, name))), None)
            if given and not self.draft.get(*asked.way, name):
                self.draft.put((*asked.way, name), [dict(item) for item in given])
        for entry in asked.entries:
            for name, amount in entry.default.capacity.items():
                if self.draft.get(*asked.way, "capacity", "requests", name) is None:
                    self.draft.put((*asked.way, "capacity", "requests", name), amount)

    def _lacks_count(self, asked: _Asked) -> bool:
        mode, count = (self.draft.get(*asked.way, name) for name in ("allocationMode", "count"))
        if not mode and not count:
            return True
        return mode == claims.EXACT_COUNT and count == 1 and asked.name in self._silent

    def _configure(self, all_asked: Sequence[_Asked]) -> None:
        for entry in self._entries:
            names = [asked.name for asked in all_asked if entry in asked.entries]
            if not entry.default.config or not (names or entry.general):
                continue
            configured = self._configured()
            for config in entry.default.config:
                if _driver(config) in configured:
                    continue
                only = {} if len(names) == len(all_asked) else {"requests": names}
                self.draft.put((*self._devices, "config", draft.END), {**only, **config})

    def _configured(self) -> set[Any]:
        """Return the drivers that the claim has a configuration for."""
        known = self.draft.get(*self._devices, "config")
        return {_driver(config) for config in known} if isinstance(known, list) else set()

    def _label(self, all_asked: Sequence[_Asked]) -> None:
        for entry in self._entries:
            if not entry.general and not any(entry in asked.entries for asked in all_asked):
                continue
            for key, value in entry.default.labels.items():
                if self.draft.get("metadata", "labels", key) is None:
                    self.draft.put(("metadata", "labels", key), value)


def _requests(obj: Json, devices: Way) -> Iterator[tuple[str, Way]]:
    """Yield the name and path of each request: of `exactly`, of each alternative, or of a v1beta1 request itself."""
    requests = draft.found(obj, *devices, "requests")
    for index, request in enumerate(requests if isinstance(requests, list) else ()):
        if not isinstance(request, dict):
            continue
        way: Way = (*devices, "requests", index)
        name, alternatives = str(request.get("name", "")), request.get("firstAvailable")
        if isinstance(alternatives, list) and alternatives:
            for at, alternative in enumerate(alternatives):
                if isinstance(alternative, dict):
                    yield f"{name}/{alternative.get('name', '')}", (*way, "firstAvailable", at)
        else:
            yield name, (*way, "exactly") if isinstance(request.get("exactly"), dict) else way


def _resolved(stated: str, entries: Iterable[Entry]) -> Sequence[str]:
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


def _silent_about_count(obj: Json, devices: Way) -> frozenset[str]:
    """Return the requests whose author is known to have written neither count nor allocationMode."""
    noted = draft.found(obj, "metadata", "annotations", WRITTEN)
    if not isinstance(noted, str):
        return frozenset()
    try:
        written = json.loads(noted)
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(
        name
        for name, way in _requests(written, devices)
        if not draft.found(written, *way, "count") and not draft.found(written, *way, "allocationMode")
    )


def _driver(config: Any) -> Any:
    return draft.found(config, "opaque", "driver")


def _problems(at: str, default: Default) -> Iterator[Problem]:
    """Yield what the API server would refuse in a claim with these defaults."""
    for index, selector in enumerate(default.selectors):
        refused = limits.check(str(draft.found(selector, "cel", "expression")))
        if refused is not None:
            yield Problem(f"{at}.selectors[{index}].cel.expression", str(refused))
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
