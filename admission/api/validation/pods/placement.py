"""Validation of where a pod may be: its node selector, affinities, tolerations and spread constraints.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), for a pod that is made:
the API server adds the values of a pod's labels to its selectors before it judges them
(`pkg/registry/core/pod/strategy.go`).
"""

from collections.abc import Mapping

from admission.api.validation import fields, selectors
from admission.api.values import formats
from admission.api.values.decoding import Reader

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
HEAVIEST = 100
"""The largest weight of a preference."""


def validate(spec: Reader, labels: Mapping[str, str]) -> None:
    """Judge the fields of a pod's spec that say where it may be. labels: of the pod."""
    fields.labels(spec, "nodeSelector")
    affinity = spec.child("affinity")
    of_nodes = affinity.child("nodeAffinity")
    if REQUIRED in of_nodes:
        selectors.node_selector(of_nodes.child(REQUIRED))
    for preference in of_nodes.children(PREFERRED):
        _weight(preference)
        selectors.node_selector_term(preference.child("preference"), is_preferred=True)
    for field in ("podAffinity", "podAntiAffinity"):
        for term in affinity.child(field).children(REQUIRED):
            _pod_affinity_term(term, labels)
        for preference in affinity.child(field).children(PREFERRED):
            _weight(preference)
            _pod_affinity_term(preference.child("podAffinityTerm"), labels)
    validate_tolerations(spec)
    _spread(spec, labels)


def validate_tolerations(spec: Reader) -> None:
    """Judge the taints of nodes that a pod tolerates."""
    for toleration in spec.children("tolerations"):
        _toleration(toleration)


def validate_taints(spec: Reader) -> None:
    """Judge the taints of a node's spec."""
    seen: set[tuple[str, str]] = set()
    for taint in spec.children("taints"):
        key, effect = taint.text("key"), fields.needed(taint, "effect")
        if message := formats.key(key):
            taint.problem("key", f"Invalid value: {message}")
        if message := formats.value(taint.text("value")):
            taint.problem("value", f"Invalid value: {message}")
        if effect:
            fields.supported(taint, "effect", EFFECTS)
        if (key, effect) in seen:
            taint.problem("", f"Duplicate value: {key}:{effect}: taints must be unique by key and effect pair")
        seen.add((key, effect))


def _weight(preference: Reader) -> None:
    if not 1 <= preference.int32("weight") <= HEAVIEST:
        fields.invalid(preference, "weight", f"must be in the range 1-{HEAVIEST}")


def _pod_affinity_term(term: Reader, labels: Mapping[str, str]) -> None:
    selectors.label_selector(term.child("labelSelector"))
    selectors.label_selector(term.child("namespaceSelector"))
    for index, name in enumerate(term.texts("namespaces")):
        if message := formats.label(name):
            term.problem(f"namespaces[{index}]", f"Invalid value: {message}")
    _label_keys(term, labels)
    if fields.needed(term, "topologyKey", "can not be empty") and (message := formats.key(term.text("topologyKey"))):
        term.problem("topologyKey", f"Invalid value: {message}")


def _label_keys(reader: Reader, labels: Mapping[str, str]) -> None:
    """Judge the keys of labels whose values, as the pod has them, are added to a selector."""
    matched, mismatched = reader.texts("matchLabelKeys"), reader.texts("mismatchLabelKeys")
    for field, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)):
        if keys and "labelSelector" not in reader:
            reader.problem(field, "Forbidden: must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(keys):
            if message := formats.key(key):
                reader.problem(f"{field}[{index}]", f"Invalid value: {message}")
    selector = reader.child("labelSelector")
    seen = {*selector.keys("matchLabels")}
    added = (key for key in (*matched, *mismatched) if key in labels)
    for key in (*(expression.text("key") for expression in selector.children("matchExpressions")), *added):
        if "labelSelector" in reader and key in matched and key in seen:
            reader.problem(
                f"matchLabelKeys[{matched.index(key)}]",
                f"Invalid value: {key!r}: exists in both matchLabelKeys and labelSelector",
            )
        seen.add(key)
    for index, key in enumerate(matched):
        if key in mismatched:
            message = "exists in both matchLabelKeys and mismatchLabelKeys"
            reader.problem(f"matchLabelKeys[{index}]", f"Invalid value: {key!r}: {message}")


def _toleration(reader: Reader) -> None:
    """Judge a toleration of a node's taints."""
    key, operator, value, effect = (reader.text(field) for field in ("key", "operator", "value", "effect"))
    if key and (message := formats.key(key)):
        reader.problem("key", f"Invalid value: {message}")
    match operator:
        case "Exists" if value:
            reader.problem("operator", f"Invalid value: {value!r}: value must be empty when `operator` is 'Exists'")
        case "" | "Equal" if message := formats.value(value):
            reader.problem("operator", f"Invalid value: {message}")
        case "" | "Equal" | "Exists":
            pass
        case unknown:
            reader.problem("operator", fields.unsupported(unknown, ("Equal", "Exists")))
    if not key and operator != "Exists":
        message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        reader.problem("operator", f"Invalid value: {operator!r}: {message}")
    if "tolerationSeconds" in reader and effect != "NoExecute":
        message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        reader.problem("effect", f"Invalid value: {effect!r}: {message}")
    fields.integer(reader, "tolerationSeconds")
    if effect:
        fields.supported(reader, "effect", EFFECTS)


def _spread(spec: Reader, labels: Mapping[str, str]) -> None:
    """Judge the topology spread constraints."""
    constraints = list(spec.children("topologySpreadConstraints"))
    rules = [(constraint.text("topologyKey"), constraint.text("whenUnsatisfiable")) for constraint in constraints]
    for index, constraint in enumerate(constraints):
        if constraint.int32("maxSkew") <= 0:
            constraint.problem(
                "maxSkew", f"Invalid value: {constraint.raw('maxSkew') or 0!r}: must be greater than zero"
            )
        key = fields.needed(constraint, "topologyKey", "can not be empty")
        action = constraint.text("whenUnsatisfiable")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            message = fields.unsupported(action, ("DoNotSchedule", "ScheduleAnyway"))
            constraint.problem("whenUnsatisfiable", message)
        if (key, action) in rules[index + 1 :]:
            constraint.problem("{topologyKey, whenUnsatisfiable}", f"Duplicate value: '{{{key}, {action}}}'")
        if "minDomains" in constraint:
            if constraint.int32("minDomains") <= 0:
                fields.invalid(constraint, "minDomains", "must be greater than zero")
            if action != "DoNotSchedule":
                message = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                fields.invalid(constraint, "minDomains", message)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            fields.supported(constraint, field, ("Honor", "Ignore"))
        selectors.label_selector(constraint.child("labelSelector"))
        _label_keys(constraint, labels)
