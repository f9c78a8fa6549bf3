"""Validation of node selectors, and of the taints and tolerations of devices."""

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
        reader.problem("nodeSelectorTerms", "needs at least one term")
    for term in terms:
        for expression in term.children("matchExpressions"):
            _expression(expression)
        for requirement in term.children("matchFields"):
            _field(requirement)
    return len(terms)


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


def _value(reader: Reader) -> None:
    if reader.text("value"):
        fields.text(reader, "value", formats.value)


def _expression(reader: Reader) -> None:
    fields.text(reader, "key", formats.key)
    values = reader.texts("values")
    match reader.required("operator"):
        case "In" | "NotIn" as operator if not values:
            reader.problem("values", f"needs at least one value, since the operator is {operator}")
        case "Exists" | "DoesNotExist" as operator if values:
            reader.problem("values", f"must be left out, since the operator is {operator}")
        case "Gt" | "Lt" as operator if len(values) != 1:
            reader.problem("values", f"needs exactly one value, since the operator is {operator}")
        case "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" | "":
            pass
        case unknown:
            reader.problem("operator", f"is {unknown!r}, one of In, NotIn, Exists, DoesNotExist, Gt, Lt is expected")
    for index, value in enumerate(values):
        if message := formats.value(value):
            reader.problem(f"values[{index}]", message)


def _field(reader: Reader) -> None:
    key = reader.required("key")
    if key and key != NODE_NAME:
        reader.problem("key", f"is {key!r}, {NODE_NAME} is expected: nodes have no other field to select by")
    values = reader.texts("values")
    match reader.required("operator"):
        case "In" | "NotIn" as operator if len(values) != 1:
            reader.problem("values", f"needs exactly one value, since the operator is {operator}")
        case "In" | "NotIn" | "":
            pass
        case unknown:
            reader.problem("operator", f"is {unknown!r}, In or NotIn is expected")
    for index, value in enumerate(values):
        if message := formats.subdomain(value):
            reader.problem(f"values[{index}]", message)
