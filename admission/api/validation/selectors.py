"""Validation of selectors of nodes and of labels, and of the taints and tolerations of devices."""

from admission.api.validation import fields
from admission.api.values import formats
from admission.api.values.decoding import Reader

EFFECTS = ("NoSchedule", "NoExecute", "None")
OPERATORS = ("Equal", "Exists")
NODE_NAME = "metadata.name"


def node_selector(reader: Reader) -> int:
    """Judge a v1.NodeSelector, and return its number of terms."""
    terms = list(reader.children("nodeSelectorTerms"))
    if not terms:
        reader.problem("nodeSelectorTerms", "Required value: must have at least one node selector term")
    for term in terms:
        node_selector_term(term)
    return len(terms)


def node_selector_term(term: Reader, *, is_preferred: bool = False) -> None:
    """Judge a v1.NodeSelectorTerm. is_preferred: the values of a term that only ranks nodes may be any text."""
    for expression in term.children("matchExpressions"):
        _expression(expression, (*OF_LABELS, "Gt", "Lt"), is_any_value=is_preferred)
    for requirement in term.children("matchFields"):
        _field(requirement)


def label_selector(reader: Reader) -> None:
    """Judge a metav1.LabelSelector."""
    fields.labels(reader, "matchLabels")
    for expression in reader.children("matchExpressions"):
        _expression(expression, OF_LABELS)


def taint(reader: Reader) -> None:
    """Judge a taint of a device."""
    fields.text(reader, "key", formats.key)
    _value(reader)
    if not fields.one_of(reader, "effect", EFFECTS):
        reader.required("effect")


def toleration(reader: Reader) -> None:
    """Judge a toleration of a device request."""
    if reader.text("key"):
        fields.text(reader, "key", formats.key)
    if fields.one_of(reader, "operator", OPERATORS) == "Exists" and reader.text("value"):
        reader.problem("value", "must be left out, since the operator is Exists")
    _value(reader)
    fields.one_of(reader, "effect", EFFECTS)
    fields.integer(reader, "tolerationSeconds")


OF_LABELS = ("In", "NotIn", "Exists", "DoesNotExist")
"""The operators of all selectors."""


def _value(reader: Reader) -> None:
    if reader.text("value"):
        fields.text(reader, "value", formats.value)


def _expression(reader: Reader, operators: tuple[str, ...], *, is_any_value: bool = False) -> None:
    """Judge a requirement of labels."""
    key = reader.text("key")
    if message := formats.key(key):
        reader.problem("key", f"Invalid value: {message}")
    values = reader.texts("values")
    match reader.text("operator"):
        case unknown if unknown not in operators:
            reader.problem(
                "operator", f"Invalid value: {unknown!r}: not a valid selector operator: {_one_of(operators)}"
            )
        case "In" | "NotIn" if not values:
            reader.problem("values", "Required value: must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist" if values:
            reader.problem("values", "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        case "Gt" | "Lt" if len(values) != 1:
            reader.problem("values", "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'")
        case _:
            pass
    for index, value in enumerate(() if is_any_value else values):
        if message := formats.value(value):
            reader.problem(f"values[{index}]", f"Invalid value: {message}")


def _field(reader: Reader) -> None:
    """Judge a requirement of a node's fields."""
    key = reader.text("key")
    if key != NODE_NAME:
        reader.problem("key", f"Invalid value: {key!r}: not a valid field selector key: {NODE_NAME} is the only one")
    values = reader.texts("values")
    match reader.text("operator"):
        case "In" | "NotIn" if len(values) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            reader.problem("values", f"Required value: {why}")
        case "In" | "NotIn":
            pass
        case unknown:
            why = f"not a valid selector operator: {_one_of(('In', 'NotIn'))}"
            reader.problem("operator", f"Invalid value: {unknown!r}: {why}")
    for index, value in enumerate(values):
        if message := formats.subdomain(value):
            reader.problem(f"values[{index}]", f"Invalid value: {message}")


def _one_of(operators: tuple[str, ...]) -> str:
    return f"one of {', '.join(operators)} is expected"
