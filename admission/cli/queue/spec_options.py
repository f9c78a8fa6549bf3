"""The options that set fields of a Queue, for `muster queue create` and `edit`, and the spec that they make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from admission.api import suggestions
from admission.api.device_use.idle import IdleAction
from admission.api.muster.queues import HoldAt
from admission.api.values import names, quantities
from admission.api.values.decoding import Json
from admission.cli import completion, object_writes
from admission.errors import AmountError, FixError

T = TypeVar("T")

NAMESPACE_LABEL = "kubernetes.io/metadata.name"

QuotaOption = Annotated[
    list[str] | None,
    typer.Option("--quota", metavar="METER=AMOUNT", help="Nominal quota, repeatable: gpus=16, memory=640Gi."),
]
BorrowOption = Annotated[
    list[str] | None,
    typer.Option("--borrowing-limit", metavar="METER=AMOUNT", help="The most to borrow of a meter, repeatable."),
]
LendOption = Annotated[
    list[str] | None,
    typer.Option("--lending-limit", metavar="METER=AMOUNT", help="The most to lend of a meter, repeatable."),
]
ParentOption = Annotated[
    str, typer.Option("--parent", help="The queue above, which it borrows from.", autocompletion=completion.queues)
]
NamespacesOption = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", metavar="NAMESPACE", help="A namespace that may enter it, repeatable."),
]
SelectorOption = Annotated[
    str, typer.Option("--namespace-selector", metavar="LABELS", help="Namespaces with these labels may: team=a,tier=b.")
]
DefaultOption = Annotated[
    bool | None,
    typer.Option("--default/--no-default", help="Its namespaces' pods enter it unnamed.", show_default=False),
]
ClassOption = Annotated[
    list[str] | None,
    typer.Option("--priority-class", metavar="NAME=NUMBER", help="A priority class, repeatable: urgent=100."),
]
RemoveQuotaOption = Annotated[
    list[str] | None,
    typer.Option("--remove-quota", metavar="METER", help="Remove a meter's quota and limits, repeatable."),
]
RemoveClassOption = Annotated[
    list[str] | None,
    typer.Option("--remove-priority-class", metavar="NAME", help="Remove a priority class, repeatable."),
]
HoldAtOption = Annotated[
    HoldAt | None, typer.Option("--hold-at", help="Hold pods, or workloads as a whole.", show_default=False)
]
MaxWaitOption = Annotated[
    str, typer.Option("--max-wait", help="How long its gangs may wait before an alert tells of it: 4h.")
]
IdleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--idle",
        metavar="FIELD=VALUE",
        help="When a gang of it is idle, and what follows, repeatable: after=4h, belowPercent=10, action=Evict.",
    ),
]
RemoveIdleOption = Annotated[bool, typer.Option("--remove-idle", help="Remove idle: no gang of it counts as idle.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecOptions:
    """The options as they were given; nothing of what was not."""

    quotas: Sequence[str] = ()
    borrow_limits: Sequence[str] = ()
    lend_limits: Sequence[str] = ()
    parent: str = ""
    namespaces: Sequence[str] = ()
    namespace_selector: str = ""
    is_default: bool | None = None
    priority_classes: Sequence[str] = ()
    hold_at: HoldAt | None = None
    max_wait: str = ""
    idle: Sequence[str] = ()
    removed_quotas: Sequence[str] = ()
    removed_classes: Sequence[str] = ()
    removes_idle: bool = False

    def __bool__(self) -> bool:
        return self != SpecOptions()

    def applied_to(self, spec: Json) -> Json:
        """Return a spec with what the options say; what they do not say stays.

        What is removed goes first; a meter or a priority class that is there then is changed in its place. Raises
        FixError.
        """
        changed = _without(spec, "quotas", "meter", self.removed_quotas, "--remove-quota")
        changed = _without(changed, "priorityClasses", "name", self.removed_classes, "--remove-priority-class")
        if self.parent:
            changed["parent"] = self.parent
        selector = self._selector()
        if selector is not None:
            changed["namespaceSelector"] = selector
        if self.is_default is not None:
            changed["default"] = self.is_default
        if self.hold_at is not None:
            changed["holdAt"] = str(self.hold_at)
        if self.max_wait:
            changed["maxWait"] = object_writes.duration("--max-wait", self.max_wait)
        if self.removes_idle:
            changed.pop("idle", None)
        if self.idle:
            changed["idle"] = {**(changed.get("idle") or {}), **_idle(self.idle)}
        if self.quotas or self.borrow_limits or self.lend_limits:
            changed["quotas"] = self._quotas(changed.get("quotas") or ())
        if self.priority_classes:
            given = object_writes.amounts("--priority-class", self.priority_classes, "urgent=100")
            values = {name: {"value": _priority(name, text)} for name, text in given.items()}
            changed["priorityClasses"] = _merged(changed.get("priorityClasses") or (), "name", values)
        return changed

    def _selector(self) -> Json | None:
        if self.namespaces and self.namespace_selector:
            raise FixError("--namespace and --namespace-selector: give one of them")
        if self.namespace_selector:
            labels = self.namespace_selector.split(",")
            return {"matchLabels": object_writes.amounts("--namespace-selector", labels, "team=a,tier=b")}
        if len(self.namespaces) == 1:
            return {"matchLabels": {NAMESPACE_LABEL: self.namespaces[0]}}
        if self.namespaces:
            named = {"key": NAMESPACE_LABEL, "operator": "In", "values": [*self.namespaces]}
            return {"matchExpressions": [named]}
        return None

    def _quotas(self, before: Sequence[Json]) -> list[Json]:
        quotas = _amounts("--quota", self.quotas, "nominal")
        for option, texts, field in (
            ("--borrowing-limit", self.borrow_limits, "borrowingLimit"),
            ("--lending-limit", self.lend_limits, "lendingLimit"),
        ):
            for meter, limit in _amounts(option, texts, field).items():
                if meter not in quotas and all(quota.get("meter") != meter for quota in before):
                    raise FixError(f"{option}: the queue has no quota of {meter}; add --quota {meter}=AMOUNT")
                quotas[meter] = {**quotas.get(meter, {}), **limit}
        return _merged(before, "meter", quotas)


def a_queue(name: str, options: SpecOptions) -> Json:
    """Return a new Queue."""
    spec = options.applied_to({})
    return {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _amounts(option: str, texts: Sequence[str], field: str) -> dict[str, dict[str, str]]:
    """Return the amounts of an option as fields of quotas, by meter. Raises FixError for what is no amount."""
    given = object_writes.amounts(option, texts, "gpus=16")
    for meter, text in given.items():
        try:
            quantities.parse_amount(text)
        except AmountError as error:
            raise FixError(f"{option}: {meter}={text}: {error}") from error
    return {meter: {field: text} for meter, text in given.items()}


def _idle(texts: Sequence[str]) -> dict[str, str | int]:
    """Return fields of `spec.idle`. Raises FixError for what they cannot be."""
    found: dict[str, str | int] = {}
    for name, text in object_writes.amounts("--idle", texts, "after=4h").items():
        match name:
            case "belowPercent":
                if text not in _PERCENTAGES:
                    raise FixError(f"--idle: belowPercent={text}: it is a whole number from 1 to 100")
                found[name] = int(text)
            case "after":
                found[name] = object_writes.duration("--idle after", text)
            case "action":
                if text not in tuple(IdleAction):
                    raise FixError(f"--idle: action={text}: it is one of {', '.join(IdleAction)}")
                found[name] = text
            case _:
                raise FixError(f"--idle: there is no {name}; it has belowPercent, after, action")
    return found


_PERCENTAGES = frozenset(map(str, range(1, 101)))


def _priority(name: str, text: str) -> int:
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > _LONGEST_PRIORITY:
        raise FixError(f"--priority-class: {name}={text}: a priority is a whole number such as 100; higher goes first")
    return int(text)


_LONGEST_PRIORITY = 11
"""Characters of a 32-bit number."""


def _merged(before: Sequence[Json], key: str, values: Mapping[str, Mapping[str, Any]]) -> list[Json]:
    """Return a list of objects with some fields changed by the name under `key`, and new objects behind."""
    known = {str(one.get(key)) for one in before}
    return [
        *({**one, **values.get(str(one.get(key)), {})} for one in before),
        *({key: name, **fields} for name, fields in values.items() if name not in known),
    ]


def _without(spec: Json, field: str, key: str, removed: Sequence[str], option: str) -> dict[str, Any]:
    """Return a spec whose list `field` lacks the objects with these names under `key`, without it if none is left.

    Raises FixError for a name that none of them has.
    """
    before = spec.get(field) or ()
    known = {str(one.get(key)) for one in before}
    for name in removed:
        if name not in known:
            there = suggestions.listed(name, known)
            raise FixError(f"{option}: the queue has no {name}; it has: {there or 'none'}")
    left = [one for one in before if one.get(key) not in removed]
    others = {name: value for name, value in spec.items() if name != field}
    return {**spec, field: left} if left else others
