"""Random expressions over all declared functions, drawn by the type that they shall have, now and then a wrong one."""

from collections.abc import Mapping, Sequence
from random import Random

from admission.cel.core import declarations, types
from admission.cel.core.declarations import Overload
from admission.cel.core.types import Type
from admission.cel.library import catalog
from tests.conformance.selectors import texts
from tests.conformance.selectors.fixture import ATTRIBUTES, CAPACITY

_LITERALS: Mapping[str, Sequence[str]] = {
    "bool": ("true", "false"),
    "int": ("0", "1", "-1", "2", "3", "47", "-7", "0x1F", "9223372036854775807", "-9223372036854775808", "1000000"),
    "uint": ("0u", "1u", "3u", "18446744073709551615u", "0xFFu"),
    "double": ("0.0", "1.0", "-1.5", "2.5e3", "1e308", "-0.0", "3.0", ".5", "9223372036854775808.0", "1e-9"),
    "bytes": ('b""', 'b"x"', 'b"\\xff\\x00"', 'b"é"'),
    "null": ("null",),
    "type": ("int", "string", "list", "map", "bool", "type", "null_type", "bytes", "double", "uint"),
    "kubernetes.NamedFormat": tuple(f"format.{name}()" for name in texts.FORMATS),
}
_OF_DEVICE: Mapping[str, Sequence[str]] = {
    "string": ("device.driver", f"{ATTRIBUTES}.name", *(f"device.attributes[{name}].name" for name in texts.DOMAINS)),
    "int": (f"{ATTRIBUTES}.count", f"{ATTRIBUTES}.zero"),
    "bool": (f"{ATTRIBUTES}.on", "device.allowMultipleAllocations"),
    "kubernetes.Semver": (f"{ATTRIBUTES}.rel",),
    "kubernetes.Quantity": (f"{CAPACITY}.mem", f"{CAPACITY}.dec", f"{CAPACITY}.huge"),
}
_SCALARS = ("bool", "int", "uint", "double", "string", "bytes", "duration", "timestamp")
_OTHERS = ("kubernetes.Quantity", "kubernetes.Semver", "net.IP", "net.CIDR", "kubernetes.URL")
_OPERATORS = {
    **{f"_{sign}_": sign for sign in ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%")},
    "@in": "in",
}
_VARIABLES = ("x", "y", "k", "v")
_OVERLOADS = tuple(one for overloads in catalog.FUNCTIONS_37.values() for one in overloads)


class Draw:
    """Draws expressions of a type; scope: the names that macros bind around it, with their types."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.scope: dict[str, Type] = {}

    def selector(self) -> str:
        return self.of(types.BOOL, self.random.choice((1, 2, 3, 4)))

    def of(self, wanted: Type, depth: int) -> str:
        """Draw an expression of a type, or sometimes of another."""
        if self.random.random() < 0.012:
            wanted = self.any_type()
        named = [name for name, type_ in self.scope.items() if type_ == wanted]
        if named and self.random.random() < 0.45:
            return self.random.choice(named)
        if depth <= 0 or self.random.random() < 0.12:
            return self.leaf(wanted)
        text = self.compound(wanted, depth - 1)
        return f"dyn({text})" if self.random.random() < 0.02 else text

    def compound(self, wanted: Type, depth: int) -> str:
        if self.random.random() < 0.3:
            return self.macro(wanted, depth)
        fitting = [(one, bound) for one in _OVERLOADS if (bound := _unified(one.result, wanted)) is not None]
        names = sorted({one.name for one, _ in fitting})
        if not names:
            return self.leaf(wanted)
        name = self.random.choice(names)
        chosen, bound = self.random.choice([(one, bound) for one, bound in fitting if one.name == name])
        bound = {**{name: self.any_type(1) for name in chosen.variables}, **bound}
        return self.call(chosen, [declarations.instantiate(one, bound) for one in chosen.parameters], depth)

    def call(self, chosen: Overload, parameters: Sequence[Type], depth: int) -> str:
        """Write a call of the overload with arguments of these types."""
        arguments = [self.argument(chosen.name, place, one, depth) for place, one in enumerate(parameters)]
        match chosen.name:
            case "_?_:_":
                return f"({arguments[0]} ? {arguments[1]} : {arguments[2]})"
            case "_[_]":
                return f"{arguments[0]}[{arguments[1]}]"
            case "_[?_]":
                return f"{arguments[0]}[?{arguments[1]}]"
            case "!_" | "-_":
                return f"{chosen.name[0]}({arguments[0]})"
            case name if name in _OPERATORS:
                return f"({arguments[0]} {_OPERATORS[name]} {arguments[1]})"
            case name:
                receiver = f"{arguments.pop(0)}." if chosen.member else ""
                return f"{receiver}{name}({', '.join(arguments)})"

    def argument(self, function: str, place: int, wanted: Type, depth: int) -> str:
        """Draw an argument: of texts that a function parses, one which it may be able to."""
        likely = texts.ARGUMENTS.get((function, place))
        if likely is not None and self.random.random() < 0.8:
            return likely(self.random)
        return self.of(wanted, depth)

    def macro(self, wanted: Type, depth: int) -> str:
        if self.random.random() < 0.25:
            return self.bound(wanted, depth)
        match wanted.name:
            case "bool":
                return self.test(depth)
            case "list":
                return self.list_macro(wanted.parameters[0], depth)
            case "map":
                return self.map_macro(wanted, depth)
            case types.OPTIONAL:
                source = self.any_type(1)
                kind = self.random.choice(("optMap", "optFlatMap"))
                body = wanted if kind == "optFlatMap" else wanted.parameters[0]
                text = self.of(types.optional_of(source), depth)
                return f"{text}.{kind}(x, {self.within({'x': source}, body, depth)})"
            case _:
                return self.bound(wanted, depth)

    def bound(self, wanted: Type, depth: int) -> str:
        type_, name = self.any_type(2), self.random.choice(_VARIABLES)
        value = self.of(type_, depth)
        return f"cel.bind({name}, {value}, {self.within({name: type_}, wanted, depth)})"

    def within(self, names: Mapping[str, Type], wanted: Type, depth: int) -> str:
        outer, self.scope = self.scope, {**self.scope, **names}
        text = self.of(wanted, depth)
        self.scope = outer
        return text

    def test(self, depth: int) -> str:
        if self.random.random() < 0.35:
            operator = self.random.choice((" && ", " || "))
            parts = [self.of(types.BOOL, depth) for _ in range(self.random.choice((2, 2, 3)))]
            return f"({operator.join(parts)})"
        if self.random.random() < 0.3:
            value = self.any_type(1)
            field = self.random.choice(("a", "b", "name"))
            return f"has({self.of(types.map_of(types.STRING, value), depth)}.{field})"
        macro = self.random.choice(("all", "exists", "exists_one"))
        key, value = self.random.choice((types.INT, types.STRING)), self.any_type(1)
        is_map, two = key == types.STRING, self.random.random() < 0.4
        source = self.of(types.map_of(key, value) if is_map else types.list_of(value), depth)
        if two:
            macro = macro.replace("exists_one", "existsOne")
            return f"{source}.{macro}(k, v, {self.within({'k': key, 'v': value}, types.BOOL, depth)})"
        return f"{source}.{macro}(x, {self.within({'x': key if is_map else value}, types.BOOL, depth)})"

    def list_macro(self, element: Type, depth: int) -> str:
        kind = self.random.choice(("filter", "map", "map3", "transformList", "sortBy"))
        source = element if kind in {"filter", "sortBy"} else self.any_type(1)
        text = self.of(types.list_of(source), depth)
        names = {"x": source}
        match kind:
            case "filter":
                return f"{text}.filter(x, {self.within(names, types.BOOL, depth)})"
            case "sortBy":
                return f"{text}.sortBy(x, {self.within(names, Type(self.random.choice(_SCALARS)), depth)})"
            case "map":
                return f"{text}.map(x, {self.within(names, element, depth)})"
            case "map3":
                condition = self.within(names, types.BOOL, depth)
                return f"{text}.map(x, {condition}, {self.within(names, element, depth)})"
            case _:
                return f"{text}.transformList(k, v, {self.within({'k': types.INT, 'v': source}, element, depth)})"

    def map_macro(self, wanted: Type, depth: int) -> str:
        key, value = wanted.parameters
        source = self.any_type(1)
        if self.random.random() < 0.5:
            text = self.of(types.map_of(key, source), depth)
            return f"{text}.transformMap(k, v, {self.within({'k': key, 'v': source}, value, depth)})"
        text, names = self.of(types.list_of(source), depth), {"k": types.INT, "v": source}
        entry = f"{{{self.within(names, key, depth)}: {self.within(names, value, depth)}}}"
        return f"{text}.transformMapEntry(k, v, {entry})"

    def any_type(self, depth: int = 2) -> Type:
        kind = self.random.random()
        if depth and kind < 0.12:
            return types.list_of(self.any_type(depth - 1))
        if depth and kind < 0.2:
            return types.map_of(Type(self.random.choice(("string", "string", "int", "bool"))), self.any_type(depth - 1))
        if depth and kind < 0.26:
            return types.optional_of(self.any_type(depth - 1))
        if kind < 0.4:
            return Type(self.random.choice(_OTHERS))
        return Type(self.random.choice((*_SCALARS, "string", "int", "string")))

    def leaf(self, wanted: Type) -> str:
        """Draw a literal or something of the device."""
        of_device = _OF_DEVICE.get(wanted.name)
        if of_device and self.random.random() < 0.4:
            return self.random.choice(of_device)
        if wanted.name in _LITERALS:
            return self.random.choice(_LITERALS[wanted.name])
        if wanted.name in texts.LEAVES:
            return texts.LEAVES[wanted.name](self.random)
        return self.container(wanted) if wanted.parameters else self.leaf(self.any_type(0))

    def container(self, wanted: Type) -> str:
        """Draw a literal of a list, map or optional."""
        one, other = (self.leaf(wanted.parameters[0]) for _ in range(2))
        match wanted.name:
            case "list":
                return self.random.choice(("[]", f"[{one}]", f"[{one}, {other}]"))
            case "map":
                key = self.random.choice(('"a"', '"b"', one)) if wanted.parameters[0] == types.STRING else one
                entry = f"{{{key}: {self.leaf(wanted.parameters[1])}}}"
                return self.random.choice(("{}", entry, entry))
            case _:
                return self.random.choice(("optional.none()", f"optional.of({one})", f"optional.ofNonZeroValue({one})"))


def _unified(declared: Type, wanted: Type) -> dict[str, Type] | None:
    """Return what a declared type's parameters must be for it to be the wanted one; None if it cannot be."""
    if declared.variable:
        return {declared.name: wanted}
    if declared.name != wanted.name or len(declared.parameters) != len(wanted.parameters):
        return None
    result: dict[str, Type] = {}
    for one, other in zip(declared.parameters, wanted.parameters, strict=True):
        inner = _unified(one, other)
        if inner is None:
            return None
        result |= inner
    return result
