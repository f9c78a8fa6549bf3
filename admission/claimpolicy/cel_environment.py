"""The CEL environment of ClaimPolicies, with the types of Kubernetes' objects where Muster knows them.

Rules and the `when` of defaults share it. Expressions are compiled against the types of resource.k8s.io/v1 first, which
finds misspelt fields. An expression that fails there but compiles untyped is applied and reported as uncertain, because
Kubernetes may have fields that Muster does not know. ValidatingAdmissionPolicy does the same: it warns, and evaluates
untyped.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from admission.api.muster.policy_rules import Variable
from admission.cel import environment, expressions
from admission.cel.core import types
from admission.cel.core.size_estimate import DeclaredSize
from admission.cel.core.types import Type
from admission.cel.environment import Environment
from admission.cel.expressions import Expression
from admission.cel.front_end import Result
from admission.cel.limits import Inadmissible, Problem as LimitProblem
from admission.errors import Problem

RELEASE = 37
"""ClaimPolicies are Muster's own API, so they have the newest functions on every cluster."""

MAX_COST = 10_000_000
"""The largest estimated cost of an expression: ten times the budget of a review, since sizes are rarely at their
largest. ValidatingAdmissionPolicy estimates nothing and stops at this cost."""

UNBOUNDED_COST = 10**15
"""A larger estimate means that a size has no bound; the budget of each review limits such an expression."""

VARIABLES = "variables"

_TEXTS = types.map_of(types.STRING, types.STRING)
_META = Type("metadata")
_SELECTOR = Type("selector")
_CEL = Type("cel")
_TOLERATION = Type("toleration")
_CAPACITY = Type("capacity")
_EXACT = Type("exactly")
_SUB_REQUEST = Type("alternative")
_CLAIM_REQUEST = Type("request of a claim")
_REQUEST = Type("request")
_CONSTRAINT = Type("constraint")
_CONFIG = Type("config")
_OPAQUE = Type("opaque")
_DEVICES = Type("devices")
_SPEC = Type("spec")
_CLAIM = Type("claim")
_NAMESPACE = Type("namespaceObject")
_USER = Type("user")
_VARIABLES = Type("variables")

_DEVICE_REQUEST_FIELDS: Mapping[str, Type] = {
    "deviceClassName": types.STRING,
    "selectors": types.list_of(_SELECTOR),
    "allocationMode": types.STRING,
    "count": types.INT,
    "tolerations": types.list_of(_TOLERATION),
    "capacity": _CAPACITY,
    "derivedAttributes": types.DYN,
}
_OBJECT_FIELDS: Mapping[str, Type] = {"apiVersion": types.STRING, "kind": types.STRING, "metadata": _META}

_OBJECTS: Mapping[Type, Mapping[str, Type]] = {
    _META: {
        **dict.fromkeys(("name", "generateName", "namespace", "uid", "resourceVersion"), types.STRING),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), types.STRING),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), types.INT),
        **dict.fromkeys(("labels", "annotations"), _TEXTS),
        "finalizers": types.list_of(types.STRING),
        **dict.fromkeys(("ownerReferences", "managedFields"), types.list_of(types.DYN)),
    },
    _CEL: {"expression": types.STRING},
    _SELECTOR: {"cel": _CEL},
    _TOLERATION: {
        **dict.fromkeys(("key", "operator", "value", "effect"), types.STRING),
        "tolerationSeconds": types.INT,
    },
    _CAPACITY: {"requests": _TEXTS},
    _EXACT: {**_DEVICE_REQUEST_FIELDS, "adminAccess": types.BOOL},
    _SUB_REQUEST: {"name": types.STRING, **_DEVICE_REQUEST_FIELDS},
    _CLAIM_REQUEST: {"name": types.STRING, "exactly": _EXACT, "firstAvailable": types.list_of(_SUB_REQUEST)},
    _REQUEST: {"name": types.STRING, "exactly": _EXACT},
    _CONSTRAINT: {
        "requests": types.list_of(types.STRING),
        **dict.fromkeys(("matchAttribute", "distinctAttribute"), types.STRING),
    },
    _OPAQUE: {"driver": types.STRING, "parameters": types.DYN},
    _CONFIG: {"requests": types.list_of(types.STRING), "opaque": _OPAQUE},
    _DEVICES: {
        "requests": types.list_of(_CLAIM_REQUEST),
        "constraints": types.list_of(_CONSTRAINT),
        "config": types.list_of(_CONFIG),
    },
    _SPEC: {"devices": _DEVICES},
    _CLAIM: {**_OBJECT_FIELDS, "spec": _SPEC, "status": types.DYN},
    _NAMESPACE: _OBJECT_FIELDS,
    _USER: {
        **dict.fromkeys(("username", "uid"), types.STRING),
        "groups": types.list_of(types.STRING),
        "extra": types.map_of(types.STRING, types.list_of(types.STRING)),
    },
}

VARIABLE_TYPES: Mapping[str, Type] = MappingProxyType(
    {
        "request": _REQUEST,
        "claim": _CLAIM,
        "pod": types.DYN,
        "namespaceObject": _NAMESPACE,
        "user": _USER,
        "queue": types.STRING,
    }
)
"""The variables that an expression may read, in the order in which their values are given; the policy's variables
follow."""

_NAME = DeclaredSize(most=63)
_PATH = DeclaredSize(most=253)
_SELECTOR_SIZES = DeclaredSize(
    most=32, value=DeclaredSize(fields={"cel": DeclaredSize(fields={"expression": DeclaredSize(most=10240)})})
)
_TOLERATION_SIZES = DeclaredSize(
    most=16,
    value=DeclaredSize(fields={"key": DeclaredSize(most=317), **dict.fromkeys(("operator", "value", "effect"), _NAME)}),
)
_AMOUNTS = DeclaredSize(most=32, key=DeclaredSize(most=317), value=_NAME, named=_NAME)
_EXACT_SIZES = DeclaredSize(
    fields={
        "name": _NAME,
        "deviceClassName": _PATH,
        "allocationMode": _NAME,
        "selectors": _SELECTOR_SIZES,
        "tolerations": _TOLERATION_SIZES,
        "capacity": DeclaredSize(fields={"requests": _AMOUNTS}),
    }
)
_REQUEST_SIZES = DeclaredSize(
    fields={
        "name": DeclaredSize(most=127),
        "exactly": _EXACT_SIZES,
        "firstAvailable": DeclaredSize(most=8, value=_EXACT_SIZES),
    }
)
_NAMES = DeclaredSize(most=32, value=DeclaredSize(most=127))
_CONSTRAINT_SIZES = DeclaredSize(
    fields={"requests": _NAMES, "matchAttribute": DeclaredSize(most=317), "distinctAttribute": DeclaredSize(most=317)}
)
_DEVICES_SIZES = DeclaredSize(
    fields={
        "requests": DeclaredSize(most=32, value=_REQUEST_SIZES),
        "constraints": DeclaredSize(most=32, value=_CONSTRAINT_SIZES),
        "config": DeclaredSize(most=32, value=DeclaredSize(fields={"requests": _NAMES})),
    }
)
_META_SIZES = DeclaredSize(fields={"name": _PATH, "generateName": _PATH, "namespace": _NAME})
_SIZES: Mapping[str, DeclaredSize] = {
    "request": _REQUEST_SIZES,
    "claim": DeclaredSize(fields={"metadata": _META_SIZES, "spec": DeclaredSize(fields={"devices": _DEVICES_SIZES})}),
    "namespaceObject": DeclaredSize(fields={"metadata": _META_SIZES}),
    "queue": _NAME,
}
"""The sizes that the API bounds (resource.k8s.io/v1 types.go). All others are unbounded, so loops over them have no
estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """An expression of a policy.

    reads: the VARIABLE_TYPES that it reads, directly or through variables. uncertainty: why it fits no type that Muster
    knows; "" if it fits.
    """

    expression: Expression
    reads: frozenset[str]
    uncertainty: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What the expressions of one policy may read: VARIABLE_TYPES and its variables, which read those before them."""

    typed: Environment
    untyped: Environment
    variables: Mapping[str, Term] = field(default_factory=dict)

    def compile(self, text: str, result: Result | None) -> Term | Inadmissible:
        """Compile one expression. result: the type of its value; None for any type."""
        found = expressions.compile_text(text, self.typed, result=result)
        if isinstance(found, Inadmissible):
            untyped_expression = expressions.compile_text(text, self.untyped, result=result)
            if isinstance(untyped_expression, Inadmissible):
                # If neither compiles, the untyped error is the more serious one.
                return untyped_expression
            return Term(expression=untyped_expression, reads=self._reads(untyped_expression), uncertainty=found.message)
        if MAX_COST < found.cost < UNBOUNDED_COST:
            message = f"evaluating it may cost {found.cost:,}, the limit is {MAX_COST:,}; loop over less"
            return Inadmissible(LimitProblem.TOO_COSTLY, message)
        return Term(expression=found, reads=self._reads(found))

    def _reads(self, expression: Expression) -> frozenset[str]:
        reads = {name.partition(".")[0] for name in expression.names} & set(VARIABLE_TYPES)
        for name, term in self.variables.items():
            if f"{VARIABLES}.{name}" in expression.names or VARIABLES in expression.names:
                reads |= term.reads
        return frozenset(reads)


def build(variables: Sequence[Variable], invalid: Collection[str] = ()) -> tuple[Vocabulary, tuple[Problem, ...]]:
    """Compile a policy's variables. Those with a problem are left out, so what reads them does not compile.

    invalid: the paths of those that are known to have one.
    """
    terms: dict[str, Term] = {}
    problems: list[Problem] = []
    for index, variable in enumerate(variables):
        if f"spec.variables[{index}]" in invalid:
            continue
        term = _vocabulary(terms).compile(variable.expression, None)
        if isinstance(term, Inadmissible):
            problems.append(Problem(f"spec.variables[{index}].expression", explain(term)))
        else:
            terms[variable.name] = term
    return _vocabulary(terms), tuple(problems)


def explain(refusal: Inadmissible) -> str:
    """Return why an expression is refused, with line and column; for an unknown variable also the known ones."""
    if refusal.error is not None and "undeclared reference" in refusal.message:
        return f"is not CEL: {refusal.message}; there are {', '.join((*VARIABLE_TYPES, VARIABLES))}"
    return f"is not CEL that Muster takes: {refusal.message}"


def _vocabulary(variables: Mapping[str, Term]) -> Vocabulary:
    typed = {name: term.expression.result_type for name, term in variables.items()}
    objects = {kind.name: fields for kind, fields in _OBJECTS.items()}
    return Vocabulary(
        typed=_environment(VARIABLE_TYPES, {**objects, _VARIABLES.name: typed}),
        untyped=_environment(
            dict.fromkeys(VARIABLE_TYPES, types.DYN), {_VARIABLES.name: dict.fromkeys(typed, types.DYN)}
        ),
        variables=MappingProxyType(dict(variables)),
    )


def _environment(variables: Mapping[str, Type], objects: Mapping[str, Mapping[str, Type]]) -> Environment:
    base = environment.for_variables({**variables, VARIABLES: _VARIABLES}, objects, release=RELEASE)
    return replace(base, declared=_SIZES)
