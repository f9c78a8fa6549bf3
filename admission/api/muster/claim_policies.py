"""ClaimPolicies: defaults of claims, templates, conversions, and rules on claims.

This module checks the shape of a policy. `admission.claimpolicy` checks its CEL, since it knows the variables. Parts
that a policy copies into claims stay JSON, since that API grows with every release of Kubernetes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.muster import policy_rules
from admission.api.muster.policy_rules import Rule, Variable
from admission.api.values import quantities, selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import QueueName
from admission.api.values.selectors import LabelSelector
from admission.errors import Problem

MOST_DEVICES = 32
"""The largest default of a count: the number of devices that one claim can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """Defaults for matching requests. classes: those that match, empty for all; when: a condition in CEL, or None.

    device_class: replaces an alias, which is one of `classes`. selectors, tolerations, config: in the form of a claim.
    capacity: name → quantity. labels: of the claim or template.
    """

    classes: tuple[str, ...] = ()
    when: str | None = None
    device_class: str | None = None
    count: int | None = None
    selectors: tuple[Json, ...] = ()
    tolerations: tuple[Json, ...] = ()
    capacity: Mapping[str, Any] = field(default_factory=dict)
    config: tuple[Json, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A ResourceClaimTemplate for every selected namespace. spec: a ResourceClaimSpec of resource.k8s.io/v1."""

    name: str
    spec: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """An extended resource that becomes a request for devices of a class. selectors: in the form of a claim."""

    resource: str
    device_class: str
    selectors: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPolicy:
    """A ClaimPolicy object. queues: empty for all. variables: each may read those before it.

    problems: of single rules, variables and defaults, whose values are then meaningless.
    """

    meta: Meta
    namespaces: LabelSelector = field(default_factory=LabelSelector)
    queues: tuple[QueueName, ...] = ()
    order: int = 0
    defaults: tuple[Default, ...] = ()
    templates: tuple[Template, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    variables: tuple[Variable, ...] = ()
    rules: tuple[Rule, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def sort_key(self) -> tuple[int, str]:
        """Return the sort key of the policy; the lowest comes first."""
        return self.order, self.meta.name


def decode(obj: Json) -> ClaimPolicy:
    """Decode a ClaimPolicy. Raises MalformedObjectError with every problem."""
    reader = Reader(obj)
    result = _read(reader)
    reader.finish("ClaimPolicy", result.meta.key)
    return result


def decode_stored(obj: Json) -> ClaimPolicy:
    """Decode a ClaimPolicy that is stored already: problems of single entries are kept with it.

    Raises MalformedObjectError if there are others, such as of its namespaces: then it is not known what it is for.
    """
    reader = Reader(obj)
    result, problems = _read(reader), reader.problems
    if not all(entry_of(problem.field) for problem in problems):
        reader.finish("ClaimPolicy", result.meta.key)
    return replace(result, problems=problems) if problems else result


_ENTRY = re.compile(r"spec\.(?:rules|variables|defaults)\[\d+\]")


def entry_of(field: str) -> str:
    """Return the path of the rule, variable or default that a field is part of; "" for any other field."""
    found = _ENTRY.match(field)
    return found[0] if found is not None else ""


def _read(reader: Reader) -> ClaimPolicy:
    spec = reader.child("spec")
    return ClaimPolicy(
        meta=meta.decode(reader),
        namespaces=selectors.decode_labels(spec.child("namespaceSelector")),
        queues=tuple(map(QueueName, spec.texts("queues"))),
        order=spec.integer("order"),
        defaults=tuple(map(_default, spec.children("defaults"))),
        templates=_templates(spec),
        conversions=_conversions(spec),
        variables=policy_rules.decode_variables(spec),
        rules=policy_rules.decode(spec),
    )


def _default(reader: Reader) -> Default:
    result = Default(
        classes=reader.texts("deviceClasses"),
        when=reader.optional("when"),
        device_class=reader.optional("deviceClassName"),
        count=_count(reader),
        selectors=_selectors(reader),
        tolerations=reader.objects("tolerations"),
        capacity=_capacity(reader.child("capacity")),
        config=reader.objects("config"),
        labels=reader.pairs("labels"),
    )
    default_fields = ("deviceClassName", "count", "selectors", "tolerations", "capacity", "config", "labels")
    if not any(reader.raw(name) for name in default_fields):
        reader.problem("", f"gives nothing; write at least one of {', '.join(default_fields)}")
    if result.device_class is not None and not result.classes:
        reader.problem("deviceClasses", "is required beside deviceClassName, which replaces the aliases that it names")
    return result


def _count(reader: Reader) -> int | None:
    if "count" not in reader:
        return None
    found = reader.integer("count", 1)
    if not 1 <= found <= MOST_DEVICES:
        reader.problem("count", f"is {found}; write 1 to {MOST_DEVICES}, as many as one claim can hold")
    return found


def _selectors(reader: Reader) -> tuple[Json, ...]:
    for selector in reader.children("selectors"):
        selector.child("cel").required("expression")
    return reader.objects("selectors")


def _capacity(reader: Reader) -> Mapping[str, Any]:
    amounts = reader.child("requests")
    for name in reader.keys("requests"):
        amounts.parsed(name, quantities.parse, None)
    return reader.object("requests")


def _templates(spec: Reader) -> tuple[Template, ...]:
    found: dict[str, Template] = {}
    for reader in spec.children("templates"):
        template = Template(name=reader.required("name"), spec=reader.object("spec"))
        if "spec" not in reader:
            reader.problem("spec", "is required: what the claims ask for")
        if template.name in found:
            reader.problem("name", f"{template.name} stands twice; keep one template of the name")
        found[template.name] = template
    return tuple(found.values())


def _conversions(spec: Reader) -> tuple[Conversion, ...]:
    found: dict[str, Conversion] = {}
    for reader in spec.children("conversions"):
        conversion = Conversion(
            resource=reader.required("extendedResource"),
            device_class=reader.required("deviceClassName"),
            selectors=_selectors(reader),
        )
        if conversion.resource in found:
            reader.problem("extendedResource", f"{conversion.resource} stands twice; keep one entry per resource")
        found[conversion.resource] = conversion
    return tuple(found.values())
