"""Label selectors, node selectors and tolerations, as Kubernetes matches them.

Sources: `k8s.io/apimachinery/pkg/labels`, `k8s.io/component-helpers/scheduling/corev1` (v0.37.1).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from admission.api.values import formats
from admission.api.values.decoding import Json, Reader

_DECIMAL = re.compile("0|-?[1-9][0-9]{0,18}")
"""A whole number, as tolerations compare them: without zeros before it."""

_INTEGER = re.compile("[+-]?[0-9]{1,64}")
"""A whole number, as label expressions compare them. A label has 63 characters at most."""

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
"""The operators of a label selector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One expression: key, operator (In, NotIn, Exists, DoesNotExist, Gt, Lt) and values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy the expression; an absent key satisfies NotIn and DoesNotExist."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                return False

    def _compares(self, value: str | None) -> bool:
        if value is None or len(self.values) != 1:
            return False
        left, right = _int64(value), _int64(self.values[0])
        if left is None or right is None:
            return False
        return left > right if self.operator == "Gt" else left < right


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """metav1.LabelSelector as a conjunction; without requirements it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTerm:
    """One node selector term; without expressions and fields it matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if not self.expressions and not self.fields:
            return False
        fields = {"metadata.name": name}
        return all(r.matches(labels) for r in self.expressions) and all(r.matches(fields) for r in self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelector:
    """v1.NodeSelector: a node matches when any term does."""

    terms: tuple[NodeTerm, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        return any(term.matches(name, labels) for term in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a node or a device. Only NoSchedule and NoExecute prevent scheduling."""

    key: str
    value: str = ""
    effect: str

    @property
    def blocks(self) -> bool:
        return self.effect in ("NoSchedule", "NoExecute")

    @property
    def text(self) -> str:
        """Return it as kubectl writes it: `key=value:NoSchedule`."""
        return f"{self.key}{'=' * bool(self.value)}{self.value}:{self.effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A toleration of a pod or a request; an empty key or effect matches every one.

    seconds: how long the taint is tolerated; irrelevant for placement, kept for the allocations that copy it.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("Gt", "Lt"):
            # Alpha and off in 1.36 and 1.37: while it is off, the API server takes no pod with these operators.
            return self._compares(taint.value)
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)

    def _compares(self, value: str) -> bool:
        """Return whether the taint's value is greater, or less, than that of the toleration; both must be numbers."""
        if not all(_DECIMAL.fullmatch(text) for text in (value, self.value)):
            return False
        theirs, own = _int64(value), _int64(self.value)
        if theirs is None or own is None:
            return False
        return theirs > own if self.operator == "Gt" else theirs < own


def _int64(text: str) -> int | None:
    """Return a number as Go's strconv.ParseInt reads it; Python's `int` also takes `1_0` and spaces."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def first_untolerated(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """Return the first taint that prevents scheduling the pod or claim, or None."""
    for taint in taints:
        if taint.blocks and not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None


def decode_labels(reader: Reader) -> LabelSelector:
    """Decode a metav1.LabelSelector. What the API server would refuse in a webhook's selector is a problem."""
    pairs = reader.pairs("matchLabels")
    for key, value in pairs.items():
        _check(reader, f"matchLabels[{key}]", formats.key(key) or formats.value(value))
    equal = [Requirement(key=k, operator="In", values=(v,)) for k, v in sorted(pairs.items())]
    return LabelSelector(requirements=(*equal, *map(_checked_requirement, reader.children("matchExpressions"))))


def _checked_requirement(reader: Reader) -> Requirement:
    found = _requirement(reader)
    operator, values = found.operator, found.values
    if operator and operator not in OPERATORS:
        reader.problem("operator", f"{operator!r} is not one of {', '.join(OPERATORS)}")
    elif operator in ("In", "NotIn") and not values:
        reader.problem("values", f"needs at least one value, since the operator is {operator}")
    elif operator in ("Exists", "DoesNotExist") and values:
        reader.problem("values", f"must be left out, since the operator is {operator}")
    _check(reader, "key", formats.key(found.key) if found.key else None)
    for index, value in enumerate(values):
        _check(reader, f"values[{index}]", formats.value(value))
    return found


def _check(reader: Reader, field: str, problem: str | None) -> None:
    if problem is not None:
        reader.problem(field, problem)


def decode_nodes(reader: Reader) -> NodeSelector:
    """Decode a v1.NodeSelector."""
    terms = (
        NodeTerm(
            expressions=tuple(map(_requirement, term.children("matchExpressions"))),
            fields=tuple(map(_requirement, term.children("matchFields"))),
        )
        for term in reader.children("nodeSelectorTerms")
    )
    return NodeSelector(terms=tuple(terms))


def decode_taint(reader: Reader) -> Taint:
    """Decode a taint of a node or a device."""
    return Taint(key=reader.text("key"), value=reader.text("value"), effect=reader.text("effect"))


def decode_toleration(reader: Reader) -> Toleration:
    """Decode a toleration of a pod or of a device request."""
    return Toleration(
        key=reader.text("key"),
        operator=reader.text("operator", "Equal"),
        value=reader.text("value"),
        effect=reader.text("effect"),
        seconds=reader.integer("tolerationSeconds") if "tolerationSeconds" in reader else None,
    )


def encode_toleration(toleration: Toleration) -> Json:
    """Return a toleration as Kubernetes writes it."""
    texts = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    seconds = {"tolerationSeconds": toleration.seconds} if toleration.seconds is not None else {}
    return {**{name: text for name, text in texts.items() if text}, **seconds}


def _requirement(reader: Reader) -> Requirement:
    return Requirement(key=reader.required("key"), operator=reader.required("operator"), values=reader.texts("values"))
