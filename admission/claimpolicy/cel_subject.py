"""What the expressions read in one review: a claim or the spec of a template, its namespace, its queue and its user.

Each value is converted for CEL once, when an expression first reads it. A missing value (the pod of a claim that no pod
uses yet) is None; expressions that read it are not evaluated.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from admission.api.kubernetes import claims, meta
from admission.api.kubernetes.nodes import Namespace
from admission.api.values.decoding import Json
from admission.cel.core import values
from admission.cel.core.errors import EvaluationError
from admission.cel.expressions import Budget
from admission.claimpolicy import cel_environment
from admission.claimpolicy.cel_environment import Vocabulary
from admission.errors import MalformedObjectError, Problem

VARIABLE_NAMES = tuple(cel_environment.VARIABLE_TYPES)

CONTROLLER_PREFIXES = ("system:serviceaccount:kube-system:", "system:kube-controller-manager")
"""How the user names of Kubernetes' controllers begin: one service account each, or one for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """userInfo of a review. extra: as the authenticator gave it."""

    username: str = ""
    uid: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, or one alternative of `firstAvailable` as `request/alternative`. value: as CEL reads it."""

    name: str
    value: Any


class Subject:
    """A claim with its pod, user, namespace and queue, for one review.

    claim: `metadata` and `spec` of a ResourceClaim of resource.k8s.io/v1; for a template, those of the claims that it
    makes. pod: called when an expression first reads it. label: the claim's name in messages; "" for the object under
    review. queue: "" for none. Raises MalformedObjectError for a value that is nested too deeply.
    """

    def __init__(
        self,
        claim: Json,
        *,
        namespace: Json,
        pod: Callable[[], Json] | None = None,
        user: User | None = None,
        queue: str = "",
        label: str = "",
    ) -> None:
        self.label = label
        self._raw: dict[str, Any] = {"pod": pod, "namespaceObject": namespace, "queue": queue, "user": _user(user)}
        self._claim = _to_cel("claim", claim)
        self._values: dict[str, Any] = {"claim": self._claim, "queue": queue}
        self._requests: list[Request] | None = None

    def with_pod(self, *, pod: Callable[[], Json], user: User | None) -> Self:
        """Return the same claim with the pod that uses it; values that were converted already are kept."""
        other = copy.copy(self)
        kept = {name: value for name, value in self._values.items() if name not in ("pod", "user")}
        other._raw = {**self._raw, "pod": pod, "user": _user(user)}  # noqa: SLF001 - another of this class
        other._values = kept  # noqa: SLF001 - another of this class
        return other

    @property
    def present(self) -> frozenset[str]:
        """Return the names of the variables that have a value."""
        return frozenset(name for name in VARIABLE_NAMES if name not in ("pod", "user") or self._raw[name] is not None)

    def requests(self) -> list[Request]:
        """Return the requests of the claim, with the defaults that the API server gives them."""
        if self._requests is None:
            spec = _object(_object(self._claim, "spec"), "devices")
            self._requests = [request for entry in _list(spec, "requests") for request in _requests(entry)]
        return self._requests

    def values(self, reads: frozenset[str]) -> list[Any]:
        """Return the values in the order of VARIABLE_TYPES, null for those not in `reads`. The first is the request."""
        return [self._value(name) if name in reads else None for name in VARIABLE_NAMES]

    def _value(self, name: str) -> Any:
        if name not in self._values:
            raw = self._raw.get(name)
            self._values[name] = _to_cel(name, raw() if name == "pod" and raw is not None else raw)
        return self._values[name]


class Activation:
    """The values for the expressions of one policy on one claim, for one request at a time.

    bindings: a value for each of VARIABLE_TYPES, then the policy's variables. Variables that read no request are
    computed once.
    """

    def __init__(self, vocabulary: Vocabulary, subject: Subject, reads: frozenset[str], budget: Budget) -> None:
        self.budget = budget
        self.bindings = [*subject.values(reads), None]
        self._variables = vocabulary.variables
        self._request_independent = values.LazyMap(self._variables.keys(), self._evaluate)

    def set_request(self, request: Request) -> None:
        """Make this the request that expressions read."""
        self.bindings[0] = request.value
        if self._variables:
            self.bindings[-1] = values.LazyMap(self._variables.keys(), self._variable)

    def _variable(self, name: str) -> Any:
        return self._evaluate(name) if "request" in self._variables[name].reads else self._request_independent[name]

    def _evaluate(self, name: str) -> Any:
        try:
            return self._variables[name].expression.evaluate(self.bindings, self.budget)
        except EvaluationError as error:
            raise type(error)(f"variables.{name}: {error}") from None


def requesting_user(user: User) -> User | None:
    """Return the user that rules may read; None for controllers of Kubernetes, which act for another client.

    The controllers make pods from Jobs and claims from templates; the rules were evaluated for the authors of those.
    None also if the user is unknown, as offline; the API server names every user.
    """
    return None if not user.username or user.username.startswith(CONTROLLER_PREFIXES) else user


def namespace(name: str, known: Namespace | None) -> Json:
    """Return a namespace as expressions read it: the metadata that is known."""
    data: dict[str, Any] = {"name": name}
    if known is not None:
        data |= {"labels": dict(known.labels), "annotations": dict(known.meta.annotations), "uid": known.meta.uid}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": data}


def claim_from_template(metadata: Json, spec: Json) -> Json:
    """Return the claim that a template makes, with the metadata known so far. spec: of the ResourceClaimTemplate."""
    inner = spec.get("metadata") or {}
    return {"metadata": {**inner, "namespace": metadata.get("namespace", "")}, "spec": spec.get("spec") or {}}


def _to_cel(name: str, value: Any) -> Any:
    try:
        return values.from_json(value)
    except (RecursionError, OverflowError) as error:
        deep = isinstance(error, RecursionError)
        message = "is nested too deeply to be read" if deep else "has a number that is out of range"
        raise MalformedObjectError(name, meta.name_in(value), (Problem(".", message),)) from None


def _user(user: User | None) -> Json | None:
    if user is None:
        return None
    extra = {name: list(given) for name, given in user.extra.items()}
    return {"username": user.username, "uid": user.uid, "groups": list(user.groups), "extra": extra}


def _requests(entry: Any) -> list[Request]:
    """Return the requests of one entry of spec.devices.requests; in v1beta1 the entry has the fields of `exactly`."""
    name = str(_as_object(entry).get("name", ""))
    alternatives = _list(entry, "firstAvailable")
    if alternatives:
        return [
            _request(f"{name}/{_as_object(alternative).get('name', '')}", alternative) for alternative in alternatives
        ]
    exactly = _object(entry, "exactly") or entry
    return [_request(name, exactly)]


def _request(name: str, device_request: Any) -> Request:
    exactly = {
        field: value for field, value in _as_object(device_request).items() if field not in ("name", "firstAvailable")
    }
    # pkg/apis/resource/v1/defaults.go (v1.37)
    if not exactly.get("allocationMode"):
        exactly["allocationMode"] = claims.EXACT_COUNT
    if exactly["allocationMode"] == claims.EXACT_COUNT and not exactly.get("count"):
        exactly["count"] = 1
    return Request(name=name, value={"name": name, "exactly": exactly})


def _object(value: Any, name: str) -> Any:
    return _as_object(_as_object(value).get(name))


def _as_object(value: Any) -> Any:
    """Return an object, or an empty one for any other type: offline input may have any shape."""
    return value if isinstance(value, dict) else {}


def _list(value: Any, name: str) -> Any:
    found = _as_object(value).get(name)
    return found if isinstance(found, tuple) else ()
