"""Building blocks of structural schemas: every function returns a new mapping in the shape of a CRD.

The description comes first and is required, since `kubectl explain` shows it. Constraints are named as in JSON Schema.
Strings, lists and maps are always bounded: the API server estimates the cost of a validation rule from these bounds and
refuses a CRD whose rules might be expensive.
"""

from typing import Any

Schema = dict[str, Any]

NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
QUALIFIED = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"
CAMEL_CASE = r"^[A-Z][A-Za-z0-9]*$"
DURATION = r"^([0-9]{1,5}(\.[0-9]{1,3})?(h|m|s|ms)){1,4}$"

WHOLE = r"^[+-]?([0-9]{1,38}([kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?|[0-9]{1,19}\.[0-9]{1,18}([kMGTPE]|[KMGTPE]i))$"
"""A quantity without suffixes below one, and with decimals only before a suffix, so that it may be a whole number."""

QUANTITY = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?$"

STEP = r"^[1-9][0-9]{0,15}(m|[kMGTP]|[KMGTP]i)?$"
"""A quantity from one thousandth on, without decimals."""

HOURS = (
    r"^[+-]?([0-9]{1,35}([kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?"
    r"|[0-9]{1,15}(\.[0-9]{1,4}|m)|[0-9]{1,15}\.[0-9]{1,9}([kMGTPE]|[KMGTPE]i))$"
)
"""Without a large suffix, a number of hours with more than four decimals is not a whole number of seconds."""

STEPS_OF_HOURS = "([.][0-9]{0,2}|[.][0-9]{2}[05]|[.][0-9]{2}(00|25|50|75)|[05]m)$"
"""A decimal number of hours is whole in seconds if 400 times it is, since 3600 = 400 x 9, and 9 is prime to 10."""

HOURS_SEEN = r"^-?[0-9]{1,40}(\.[0-9]{1,4})?$"

DECIMAL = r"^[0-9]{1,9}(\.[0-9]{1,9})?m?$"

LONGEST_NAME = 63
"""Names of queues and meters appear in labels of pods, in metrics and in the ledger; a label has the lowest limit."""

LONGEST_AMOUNT = 40


def rule(expression: str, message: str, **more: Any) -> Schema:
    """Return a CEL rule; the message says what to change, and `fieldPath` may name the field to change."""
    return {"rule": one_line(expression), "message": one_line(message), **more}


def ruled(block: Schema, *rules: Schema) -> Schema:
    """Return a schema with CEL rules added."""
    return block | {"x-kubernetes-validations": list(rules)} if rules else block


def text(description: str, **constraints: Any) -> Schema:
    return _block("string", description, {"maxLength": 253, **constraints})


def integer(description: str, **constraints: Any) -> Schema:
    """Return a whole number; of 32 bits unless `format` is given."""
    return _block("integer", description, {"format": "int32", **constraints})


def flag(description: str, **constraints: Any) -> Schema:
    return _block("boolean", description, constraints)


def choice(description: str, *members: str, **constraints: Any) -> Schema:
    """Return an enum of strings; members and default may be of a StrEnum."""
    plain = {key: str(value) if key == "default" else value for key, value in constraints.items()}
    return _block("string", description, {"enum": [str(member) for member in members], **plain})


def record(
    description: str,
    properties: dict[str, Schema],
    *,
    required: tuple[str, ...] = (),
    rules: tuple[Schema, ...] = (),
    **constraints: Any,
) -> Schema:
    """Return an object with known fields."""
    block = _block("object", description, constraints)
    if properties:
        block["properties"] = properties
    if required:
        block["required"] = list(required)
    return ruled(block, *rules)


def sequence(
    description: str,
    item: Schema,
    *,
    most: int,
    keys: tuple[str, ...] = (),
    unique: bool = False,
    rules: tuple[Schema, ...] = (),
    **constraints: Any,
) -> Schema:
    """Return a list of at most `most` items: merged by `keys`, or a set when `unique`, or replaced as a whole."""
    block = _block("array", description, {"maxItems": most, **constraints, "items": item})
    block["x-kubernetes-list-type"] = "map" if keys else "set" if unique else "atomic"
    if keys:
        block["x-kubernetes-list-map-keys"] = list(keys)
    return ruled(block, *rules)


def mapping(description: str, value: Schema, *, most: int) -> Schema:
    """Return an object with at most `most` keys that the author chooses."""
    return _block("object", description, {"maxProperties": most, "additionalProperties": value})


def open_record(description: str, properties: dict[str, Schema], **constraints: Any) -> Schema:
    """Return an object that keeps unknown fields, for parts that another API defines."""
    return record(description, properties, **constraints) | {"x-kubernetes-preserve-unknown-fields": True}


def name(description: str, **constraints: Any) -> Schema:
    """Return the name of a queue or a meter."""
    return text(description, minLength=1, maxLength=LONGEST_NAME, pattern=NAME, **constraints)


def object_name(description: str, **constraints: Any) -> Schema:
    """Return the name of any other Kubernetes object."""
    return text(description, minLength=1, pattern=NAME, **constraints)


def qualified_name(description: str, **constraints: Any) -> Schema:
    """Return a name with an optional domain, such as `memory` or `gpu.example.com/memory`."""
    return text(description, minLength=1, maxLength=317, pattern=QUALIFIED, **constraints)


def cel(description: str, **constraints: Any) -> Schema:
    """Return a CEL expression of at most 10 KiB, as in DRA."""
    return text(description, minLength=1, maxLength=10240, **constraints)


def duration(description: str, **constraints: Any) -> Schema:
    """Return a duration longer than 0, in the notation of Go."""
    block = text(description, minLength=2, maxLength=32, pattern=DURATION, **constraints)
    return ruled(
        block, rule("duration(self) > duration('0s')", "must be longer than 0s, for example 90s, 30m or 1h30m")
    )


def time(description: str, **constraints: Any) -> Schema:
    """Return a point in time, RFC 3339."""
    return _block("string", description, {"format": "date-time", **constraints})


def amount(description: str, **constraints: Any) -> Schema:
    """Return a whole amount of a meter's base unit, as a number or as text."""
    return ruled(
        _int_or_string(description, WHOLE, constraints),
        rule("type(self) == int ? self >= 0 : !self.startsWith('-')", "must not be negative; write 0 for none"),
        rule(
            f"{_unread(WHOLE)} || quantity(self).compareTo(quantity('1e27')) <= 0",
            "is more than can be counted: an amount is at most 1e27 of the meter's base unit",
        ),
    )


def step(description: str, **constraints: Any) -> Schema:
    """Return a quantity of a resource from one thousandth to 1P, without decimals."""
    return ruled(
        _int_or_string(description, STEP, {"minimum": 1, **constraints}),
        rule(
            f"""type(self) == int ? self <= 1000000000000000 :
            {_unread(STEP)} || quantity(self).compareTo(quantity('1P')) <= 0""",
            "is more than can be counted with: at most 1P",
        ),
    )


def hours(description: str, **constraints: Any) -> Schema:
    """Return meter-hours: more than 0, and a whole number of meter-seconds."""
    return ruled(
        _int_or_string(description, HOURS, constraints),
        rule(
            f"type(self) == int ? self > 0 : {_unread(HOURS)} || quantity(self).isGreaterThan(quantity('0'))",
            "must be more than 0; to give nothing, set the quota's nominal to 0",
        ),
        rule(
            f"{_unread(HOURS)} || !self.matches('[.][0-9]*$|m$') || self.matches('{STEPS_OF_HOURS}')",
            "must be a whole number of seconds: hours come in steps of 0.0025",
        ),
    )


def decimal(description: str, **constraints: Any) -> Schema:
    """Return a number ≥ 0 that need not be whole, such as 2, "0.5" or "500m"."""
    return _int_or_string(description, DECIMAL, {"minimum": 0, **constraints})


def quantity(description: str, **constraints: Any) -> Schema:
    """Return any quantity, as a number or as text."""
    return _int_or_string(description, QUANTITY, constraints)


def amount_seen(description: str) -> Schema:
    """Return an amount in a status: always text, so that no reader loses digits."""
    return text(description, maxLength=LONGEST_AMOUNT, pattern=WHOLE)


def hours_seen(description: str) -> Schema:
    """Return meter-hours in a status: a decimal number as text."""
    return text(description, maxLength=LONGEST_AMOUNT + 6, pattern=HOURS_SEEN)


def column(name: str, kind: str, path: str, description: str, *, wide: bool = False) -> Schema:
    """Return a column of `kubectl get`; a wide one shows with `-o wide` only.

    A priority of 0 is omitted, as by the API server: otherwise another client that applies the same CRD would conflict.
    """
    seen = {"name": name, "type": kind, "jsonPath": path, "description": one_line(description)}
    return seen | {"priority": 1} if wide else seen


def age() -> Schema:
    return column("Age", "date", ".metadata.creationTimestamp", "Time since the object was made.")


def one_line(words: str) -> str:
    """Return text without the line breaks and indentation of its source."""
    return " ".join(words.split())


def _unread(pattern: str) -> str:
    """Return CEL that is true for a number, and for text that the pattern refuses anyway.

    The API server evaluates the rules even if the pattern does not match, and quantity('1e999999999') would take longer
    than a request may.
    """
    return f"type(self) == int || !self.matches(r'{pattern}')"


def _int_or_string(description: str, pattern: str, constraints: dict[str, Any]) -> Schema:
    # Without `type`: the API server adds one of the two while it validates.
    return {
        "description": one_line(description),
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": LONGEST_AMOUNT,
        "pattern": pattern,
        **constraints,
    }


def _block(kind: str, description: str, constraints: dict[str, Any]) -> Schema:
    return {"description": one_line(description), "type": kind, **constraints}
