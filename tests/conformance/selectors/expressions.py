"""Random expressions by kind. The same seed gives the same one; what a map's order decides is left out."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from tests.conformance.selectors import fixture, tokens, typed
from tests.conformance.selectors.fixture import AMOUNTS, ATTRIBUTES, CAPACITY

INTS = (
    *("1", "0", "-1", "1000", "4611686018427387904"),
    *("9223372036854775807", "-9223372036854775807", "-9223372036854775808"),
)
SCALARS = (
    *('"a"', "1", "1u", "2.5", "true", "null", 'b"x"', 'duration("1s")', "type(1)", 'quantity("1")', 'semver("1.2.3")'),
    *(
        "optional.of(1)",
        "optional.none()",
        'ip("1.2.3.4")',
        'url("https://a.b/")',
        'cidr("10.0.0.0/8")',
        "format.uri()",
    ),
    *(f"{ATTRIBUTES}.{name}" for name in ("name", "count", "on", "rel")),
)
CONTAINERS = ("[]", "[1]", '["a"]', "[[1]]", "{}", '{"a":1}', "[device.driver]", "device.attributes", ATTRIBUTES)
KEYS = (
    *(*SCALARS, *CONTAINERS, "int", "-1", "1.0", "1.5", "dyn(1)", "dyn([1])", "dyn(null)", "9223372036854775807"),
    *("18446744073709551615u", 'timestamp("2024-01-01T00:00:00Z")', f"{CAPACITY}.mem", "google.protobuf.Empty{}"),
)
CONSTANTS = (
    *(f"google.protobuf.{name}" for name in ("NullValue.NULL_VALUE", "NullValue", "NullValue.OTHER", "NULL_VALUE")),
    *("google.protobuf.NullValue.NULL_VALUE.x", ".google.protobuf.NullValue.NULL_VALUE", "NullValue.NULL_VALUE"),
    *('google.protobuf.NullValue["NULL_VALUE"]', "google.protobuf.NullValue.?NULL_VALUE", "google.rpc.Code.OK"),
    *("google.protobuf.Syntax.SYNTAX_PROTO3", "google.protobuf.Field.Kind.TYPE_INT32"),
)
MESSAGES = (
    *("Any", "BoolValue", "Duration", "Empty", "FloatValue", "Int32Value", "ListValue", "NullValue", "StringValue"),
    *("Struct", "Timestamp", "UInt64Value", "Value", "FieldMask", "Type", "Enum"),
)
CRASHING_KEYS = ("semver(", "format.uri()", ".rel", 'b"x"')
"""In keys: cel-go panics on them, and what it has charged until then tells nothing."""


class Draw:
    """Draws one expression of each kind."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def one(self, choices: Sequence[str]) -> str:
        return self.random.choice(choices)

    def likely(self, probability: float) -> bool:
        return self.random.random() < probability

    def dyn(self, text: str, probability: float) -> str:
        return f"dyn({text})" if self.likely(probability) else text

    def quantity(self, depth: int = 0, bound: Sequence[str] = ()) -> str:
        """Draw a quantity: written, a capacity, one that is bound to a name, or a sum of such."""
        if bound and self.likely(0.6):
            return self.one(bound)
        if depth > 2 or self.likely(0.4):
            return f'quantity("{self.one(AMOUNTS)}")'
        if self.likely(0.25):
            return f"{CAPACITY}.{self.one(('mem', 'max', 'neg', 'dec', 'huge', 'pi'))}"
        other = self.quantity(depth + 1, bound) if self.likely(0.5) else self.one(INTS)
        return f"{self.quantity(depth + 1, bound)}.{self.one(('add', 'sub'))}({other})"

    def of_quantity(self, bound: Sequence[str] = ()) -> str:
        one, other = self.quantity(0, bound), self.quantity(1, bound)
        tests = (
            *(f"{one}.isGreaterThan({other})", f"{one}.isLessThan({other})", f"{one} == {other}"),
            *(f"{one}.compareTo({other}) == {self.one(('-1', '0', '1'))}", f"{one}.isInteger()"),
            *(f"{one}.asInteger() == {self.one(INTS)}", f"sign({one}) == {self.one(('-1', '0', '1'))}"),
            f"{one}.asApproximateFloat() {self.one(('<', '>', '=='))} {other}.asApproximateFloat()",
        )
        return self.one(tests)

    def quantities(self) -> str:
        """Draw tests of quantities, which they may change in place for each other."""
        if self.likely(0.4):
            return self.of_quantity()
        tests = (self.of_quantity(("p", "q")) for _ in range(self.random.randint(1, 3)))
        joined = self.one((" && ", " || ")).join(tests)
        return f"cel.bind(p, {self.quantity(1)}, cel.bind(q, {self.quantity(1)}, {joined}))"

    def elements(self) -> str:
        parts = (
            self.dyn(self.one((*SCALARS, *CONTAINERS, '"bc"', '""')), 0.7) for _ in range(self.random.randint(0, 3))
        )
        return f"[{', '.join(parts)}]"

    def joins(self) -> str:
        joined = self.one(
            (
                *(
                    self.elements(),
                    self.elements(),
                    self.dyn(self.elements(), 1),
                    f"{self.elements()} + {self.elements()}",
                ),
                *(f"{self.elements()}.filter(x, true)", 'device.driver.split(".")', 'dyn("abc")', "dyn(null)"),
                *(f"{ATTRIBUTES}.name", f"{ATTRIBUTES}.count", f"{ATTRIBUTES}.map(k, size(k))"),
            )
        )
        separators = ("", '""', '","', "dyn(1)", 'dyn("-")', f"{ATTRIBUTES}.name", f"{ATTRIBUTES}.count")
        text = f"{joined}.join({self.one(separators)})"
        tests = ("{} == ''", "{}.size() > 2", "{} == 'a' || true", "{}.startsWith('a') && false", "size({}) >= 0")
        return self.one(tests).format(text)

    def map_literal(self, depth: int = 0) -> str:
        entries, same = [], self.one(KEYS) if self.likely(0.5) else None
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 2, 3))):
            key = self.dyn(same or self.one(KEYS), 0.2)
            value = self.map_literal(1) if depth == 0 and self.likely(0.2) else self.one(("1", '"v"', "true", "[1]"))
            optional = self.likely(0.08)
            value = self.one(("optional.of(1)", "optional.none()")) if optional else self.dyn(value, 0.4)
            entries.append(f"{'?' * optional}{key}: {value}")
        text = f"{{{', '.join(entries)}}}"
        return self.map_literal(depth) if any(key in text for key in CRASHING_KEYS) else text

    def maps(self) -> str:
        literal, other, key = self.dyn(self.map_literal(), 0.2), self.map_literal(), self.dyn(self.one(KEYS), 0.4)
        tests = (
            *(
                f"{key} in {literal}",
                f"{literal}[{key}] == 1",
                f"{literal}[?{key}].hasValue()",
                f"size({literal}) == 1",
            ),
            *(f"{literal} == {other}", f"{literal} == {literal} || true", f"false && {literal} == {{}}"),
            *(f"{literal}.exists(k, k == {key})", f"{literal}.all(k, v, true)", f"has({literal}.a)"),
            *(f"{literal}.map(k, k).size() == 1", f"type({literal}) == map"),
            f"[{self.one(CONTAINERS)}].transformMapEntry(i, v, {{{self.one(('v', '[v]', 'dyn(v)'))}: i}}) == {{}}",
        )
        return self.one(tests)

    def constants(self) -> str:
        others = (*CONSTANTS, *(f"google.protobuf.{name}" for name in MESSAGES), "0", "1", "null", "0u", "0.0", "int")
        name, other, message = self.one(CONSTANTS), self.one(others), self.one(MESSAGES)
        tests = (
            *(f"{name} == {other}", f"type({name}) == {other}", f"{name} + {other} == 0", f"{name} >= {other}"),
            *(f"google.protobuf.Value{{null_value: {name}}} == {other}", f"google.protobuf.{message}{{}} == {other}"),
            *(f"{name} in [{other}, 1]", f"{{{name}: 1}}[{other}] == 1", f'string({name}) == "0"', f"has({name})"),
            *(f"[1, 2].exists(x, {name} == 0)", f"{ATTRIBUTES}.zero == {name}"),
        )
        return self.one(tests)

    def range(self, names: Sequence[str]) -> str:
        if names and self.likely(0.55):
            name = self.one(names)
            return self.one((name, name, name, f"device.capacity[{name}]", f"[{name}]", f"dyn({name})"))
        literals = ('["a", "b"]', '{"a": {"b": 1}}', "[[1, 2], [3]]", "lists.range(3)", f"[{CAPACITY}]")
        return self.one(
            ("device.capacity", "device.attributes", CAPACITY, ATTRIBUTES, "dyn(device.capacity)", *literals)
        )

    def body(self, names: Sequence[str], depth: int) -> str:
        if depth < 3 and self.likely(0.55):
            return self.nested(names, depth + 1)
        one, other = self.one(names), self.one(names)
        tests = (
            *(f'{one} == "a"', f"{one} == {other}", f"size({one}) > 1", f'{one}.startsWith("a")', f"{one} in {other}"),
            *(f'{one}.isGreaterThan(quantity("1"))', f"{one} in device.capacity", f'"a" in {one}', f"{one} > {other}"),
            *(f'{one}.contains("e")', f'{one}.matches("a.*b")', f"dyn({one}) == 1", f'{one} + "x" == "y"', "true"),
        )
        return self.one(tests)

    def nested(self, names: Sequence[str] = (), depth: int = 0) -> str:
        """Draw macros within each other, which count by the sizes of what they range over."""
        source, own = self.range(names), self.random.sample(("k", "v", "i", "x", "y", "k2", "v2"), 2)
        if self.likely(0.6):
            inner = [*names, *own]
            macro = self.one(("all", "exists", "existsOne", "all", "exists", "transformList", "transformMap"))
        else:
            inner, own = [*names, own[0]], own[:1]
            macro = self.one(("all", "exists", "exists_one", "filter", "bind"))
        if macro == "bind":
            return f"cel.bind({own[0]}, {source}, {self.body(inner, depth)})"
        value = self.one(inner) if macro.startswith("transform") and self.likely(0.5) else self.body(inner, depth)
        text = f"{source}.{macro}({', '.join(own)}, {value})"
        if macro in {"all", "exists", "existsOne", "exists_one"}:
            return text
        if self.likely(0.4):
            return f"size({text}) > 1"
        ends = self.random.sample(("a", "b", "c"), self.random.randint(1, 2))
        end = "all" if len(ends) > 1 else "exists"
        return f"{text}.{end}({', '.join(ends)}, {self.body([*names, *ends], depth + 1)})"


KINDS: Mapping[str, Callable[[Draw], str]] = {
    "quantities": Draw.quantities,
    "joins": Draw.joins,
    "maps": Draw.maps,
    "constants": Draw.constants,
    "nested": Draw.nested,
    "typed": lambda draw: typed.Draw(draw.random).selector(),
    "tokens": lambda draw: tokens.changed(typed.Draw(draw.random).selector(), draw.random),
}


def record(kind: str, seed: int) -> dict[str, Any]:
    """Return a record of the conformance corpus without its answer."""
    random = Random(f"{kind}-{seed}")  # noqa: S311 - examples
    features = {"consumableCapacity": True, "listTypeAttributes": random.random() < 0.25}
    mode = random.choice(("new", "stored"))
    text = KINDS[kind](Draw(random))
    device = random.choice(fixture.DEVICES) if kind in {"typed", "tokens"} else fixture.DEVICE
    given = {"features": features, "mode": mode, "expression": text, "device": device}
    return {"id": f"{kind}-{seed}", "origin": "random", "touches": [kind], **given}
