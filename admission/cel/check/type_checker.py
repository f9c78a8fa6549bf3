"""Nodes → typed nodes: are variables, functions and fields known, and do the types agree.

The rules are those of cel-go's checker (checker/checker.go, v0.26): operands that agree fix the type, several
overloads that fit make it dyn, and lists and maps written out must be of one type (cel/validator.go).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from admission.cel import environment
from admission.cel.core import ast, declarations, errors, types
from admission.cel.core.declarations import Overload
from admission.cel.core.types import Kind
from admission.cel.syntax import macros


@dataclass(slots=True)
class Checked:
    """What the compiler has to know of a text beside its nodes.

    kinds: the type of each node; calls: the overloads that fit each call, a call of a namespaced function among
    them; named: identifiers and selections that name a type.
    """

    kinds: dict[int, Kind] = field(default_factory=dict)
    calls: dict[int, tuple[Overload, ...]] = field(default_factory=dict)
    plain: set[int] = field(default_factory=set)
    """Calls written as methods whose receiver is the namespace of a function: `sets.contains`."""
    named: dict[int, Kind] = field(default_factory=dict)

    def kind(self, node: ast.Node) -> Kind:
        return self.kinds[id(node)]


def check(root: ast.Node, environment: environment.Environment) -> Checked:
    """Return the types of all nodes. Raises RefusalError at the first that has none."""
    checker = _Checker(environment)
    checker.check(root, environment.variables)
    checker.settle()
    return checker.checked


class _Checker:
    def __init__(self, environment: environment.Environment) -> None:
        self.environment = environment
        self.checked = Checked()
        self.unifier = types.Unifier()

    def settle(self) -> None:
        """Replace what is left of type variables."""
        for key, kind in self.checked.kinds.items():
            self.checked.kinds[key] = self.unifier.resolved(kind, to_dynamic=True)

    def check(self, node: ast.Node, scope: Mapping[str, Kind]) -> Kind:
        """Return the node's type and remember it, its parts' first: long chains must not nest calls."""
        known = self.checked.kinds
        if id(node) not in known:
            for part in ast.in_scope(node, scope):
                if id(part) not in known:
                    known[id(part)] = self._check(part, scope)
        return known[id(node)]

    def _check(self, node: ast.Node, scope: Mapping[str, Kind]) -> Kind:  # noqa: C901, PLR0911, PLR0912 - one line a node
        match node:
            case ast.Literal():
                return environment.literal_kind(node.value)
            case ast.Identifier():
                return self._identifier(node, scope)
            case ast.Select():
                return self._select(node, scope)
            case ast.Has():
                self._field(node, node.operand, node.field, scope)
                return types.BOOL
            case ast.Index():
                function = "_[?_]" if node.optional else "_[_]"
                return self._resolve(node, function, None, (node.operand, node.key), scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Logic():
                for term in node.terms:
                    self._expect(term, types.BOOL, scope)
                return types.BOOL
            case ast.Conditional():
                return self._resolve(node, "_?_:_", None, (node.condition, node.then, node.otherwise), scope)
            case ast.ListLiteral():
                return self._list(node, scope)
            case ast.MapLiteral():
                return self._map(node, scope)
            case ast.Comprehension():
                return self._comprehension(node, scope)
            case ast.Bind():
                value = self.check(node.value, scope)
                return self.unifier.resolved(self.check(node.body, {**scope, node.name: value}))
            case ast.OptionalMap():
                return self._optional_map(node, scope)
            case ast.Message():
                return self._message(node, scope)
            case _:
                raise AssertionError(node)

    def _identifier(self, node: ast.Identifier, scope: Mapping[str, Kind]) -> Kind:
        if node.name in scope:
            return scope[node.name]
        if node.name in self.environment.types:
            self.checked.named[id(node)] = self.environment.types[node.name]
            return types.type_of(self.environment.types[node.name])
        raise errors.RefusalError(node.at, undeclared(node.name))

    def _select(self, node: ast.Select, scope: Mapping[str, Kind]) -> Kind:
        name = macros.qualified_name(node)
        if name is not None and name in self.environment.types:
            self.checked.named[id(node)] = self.environment.types[name]
            return types.type_of(self.environment.types[name])
        kind = self._field(node, node.operand, node.field, scope)
        return self.unifier.resolved(
            types.optional_of(kind) if node.optional and kind.name != "optional_type" else kind
        )

    def _field(self, node: ast.Node, operand: ast.Node, name: str, scope: Mapping[str, Kind]) -> Kind:
        target, is_optional = types.unwrapped(self.unifier.resolved(self.check(operand, scope)))
        if target.name == "map":
            kind = target.parameters[1]
        elif target.name in self.environment.objects:
            fields = self.environment.objects[target.name]
            if name not in fields:
                raise errors.RefusalError(node.at, f"undefined field '{name}'")
            kind = fields[name]
        elif target.variable:
            self.unifier.assignable(types.DYN, target)
            kind = types.DYN
        elif types.is_dynamic(target):
            kind = types.DYN
        else:
            raise errors.RefusalError(node.at, f"type '{target}' does not support field selection")
        return types.optional_of(kind) if is_optional else kind

    def _call(self, node: ast.Call, scope: Mapping[str, Kind]) -> Kind:
        if node.receiver is None:
            if node.function not in self.environment.functions:
                raise errors.RefusalError(node.at, self.environment.unknown(node.function))
            return self._resolve(node, node.function, None, node.arguments, scope)
        prefix = macros.qualified_name(node.receiver)
        name = f"{prefix}.{node.function}"
        if prefix is not None and name in self.environment.functions:
            self.checked.plain.add(id(node))
            return self._resolve(node, name, None, node.arguments, scope)
        if prefix is not None and name in self.environment.unsupported:
            raise errors.RefusalError(node.at, self.environment.unknown(name))
        self.check(node.receiver, scope)
        if node.function not in self.environment.functions:
            raise errors.RefusalError(node.at, self.environment.unknown(node.function))
        return self._resolve(node, node.function, node.receiver, node.arguments, scope)

    def _resolve(
        self,
        node: ast.Node,
        function: str,
        receiver: ast.Node | None,
        arguments: Sequence[ast.Node],
        scope: Mapping[str, Kind],
    ) -> Kind:
        """Find the overloads that fit the arguments; their common result, or dyn, is the type."""
        given = tuple(self.check(argument, scope) for argument in arguments)
        if receiver is not None:
            given = (self.checked.kind(receiver), *given)
        result: Kind | None = None
        fitting: list[Overload] = []
        for overload in self.environment.functions[function]:
            if overload.member is not (receiver is not None):
                continue
            kind = self._fit(overload, given)
            if kind is None:
                continue
            fitting.append(overload)
            if result is None:
                result = kind
            elif not types.is_dynamic(result) and kind != result:
                result = types.DYN
        if result is None:
            raise errors.RefusalError(node.at, self._no_overload(function, given, is_member=receiver is not None))
        self.checked.calls[id(node)] = tuple(fitting)
        return result

    def _fit(self, overload: Overload, given: tuple[Kind, ...]) -> Kind | None:
        if len(given) != len(overload.parameters):
            return None
        if not overload.variables:
            return overload.result if self.unifier.all_assignable(given, overload.parameters) else None
        variables = {name: self.unifier.fresh() for name in overload.variables}
        wanted = tuple(declarations.instantiate(kind, variables) for kind in overload.parameters)
        if not self.unifier.all_assignable(given, wanted):
            return None
        return self.unifier.resolved(declarations.instantiate(overload.result, variables))

    def _no_overload(self, function: str, given: tuple[Kind, ...], *, is_member: bool) -> str:
        texts = [str(self.unifier.resolved(kind, to_dynamic=True)) for kind in given]
        applied = f"{texts[0]}.({', '.join(texts[1:])})" if is_member else f"({', '.join(texts)})"
        return f"found no matching overload for '{function}' applied to '{applied}'"

    def _expect(self, node: ast.Node, wanted: Kind, scope: Mapping[str, Kind]) -> None:
        kind = self.check(node, scope)
        if not self.unifier.assignable(kind, wanted):
            found = self.unifier.resolved(kind, to_dynamic=True)
            raise errors.RefusalError(node.at, f"expected type '{wanted}' but found '{found}'")

    def _list(self, node: ast.ListLiteral, scope: Mapping[str, Kind]) -> Kind:
        common: Kind | None = None
        for entry in node.elements:
            common = self._join(common, self._entry(entry, scope))
        return types.list_of(common or self.unifier.fresh())

    def _map(self, node: ast.MapLiteral, scope: Mapping[str, Kind]) -> Kind:
        key: Kind | None = None
        value: Kind | None = None
        for entry in node.entries:
            if entry.key is not None:
                key = self._join(key, self.check(entry.key, scope))
            value = self._join(value, self._entry(entry, scope))
        return types.map_of(key or self.unifier.fresh(), value or self.unifier.fresh())

    def _message(self, node: ast.Message, scope: Mapping[str, Kind]) -> Kind:
        name = node.name
        if name not in self.environment.messages:
            known = name in self.environment.types
            raise errors.RefusalError(node.at, f"'{name}' is not a message type" if known else undeclared(name))
        message = self.environment.messages[name]
        for field_name, entry in zip(node.fields, node.entries, strict=True):
            if field_name not in message.fields:
                raise errors.RefusalError(entry.value.at, f"undefined field '{field_name}'")
            wanted, kind = message.fields[field_name], self._entry(entry, scope)
            if not self.unifier.assignable(wanted, kind):
                raise errors.RefusalError(
                    entry.value.at,
                    f"expected type of field '{field_name}' is '{wanted}' but provided type is '{kind}'",
                )
        return message.kind

    def _entry(self, entry: ast.Entry, scope: Mapping[str, Kind]) -> Kind:
        kind = self.check(entry.value, scope)
        if not entry.optional:
            return kind
        inner, is_optional = types.unwrapped(self.unifier.resolved(kind))
        if not is_optional and not types.is_dynamic(inner):
            raise errors.RefusalError(entry.value.at, f"expected type '{types.optional_of(inner)}' but found '{inner}'")
        return inner

    def _join(self, before: Kind | None, kind: Kind) -> Kind:
        if before is None:
            return kind
        if self.unifier.assignable(before, kind):
            return types.most_general(before, kind)
        return types.DYN

    def _comprehension(self, node: ast.Comprehension, scope: Mapping[str, Kind]) -> Kind:
        first, second = self._range(node, scope)
        names = {node.first: first} if node.second is None else {node.first: first, node.second: second}
        inner = {**scope, **names}
        if node.condition is not None:
            self._expect(node.condition, types.BOOL, inner)
        if node.macro in ("all", "exists", "exists_one", "filter"):
            self._expect(node.body, types.BOOL, inner)
            return types.list_of(first) if node.macro == "filter" else types.BOOL
        body = self.check(node.body, inner)
        return self.unifier.resolved(self._result(node, body, first))

    def _range(self, node: ast.Comprehension, scope: Mapping[str, Kind]) -> tuple[Kind, Kind]:
        """Return the types of the two variables (with one variable, only the first counts)."""
        kind = self.unifier.resolved(self.check(node.range, scope))
        if kind.name == "list":
            return (kind.parameters[0], types.ERROR) if node.second is None else (types.INT, kind.parameters[0])
        if kind.name == "map":
            return kind.parameters[0], kind.parameters[1]
        if kind.name == "dyn" or kind.variable:
            self.unifier.assignable(types.DYN, kind)
            return types.DYN, types.DYN
        raise errors.RefusalError(
            node.range.at,
            f"expression of type '{kind}' cannot be range of a comprehension (must be list, map, or dynamic)",
        )

    def _result(self, node: ast.Comprehension, body: Kind, first: Kind) -> Kind:
        match node.macro:
            case "map" | "transformList":
                return types.list_of(body)
            case "transformMap":
                return types.map_of(first, body)
            case "sortBy":
                self._comparable(node, body)
                return types.list_of(first)
            case _:
                result = types.map_of(self.unifier.fresh(), self.unifier.fresh())
                if not self.unifier.assignable(body, result):
                    raise errors.RefusalError(node.body.at, f"expected type 'map' but found '{body}'")
                return result

    def _comparable(self, node: ast.Comprehension, body: Kind) -> None:
        overloads = self.environment.functions["sort"]
        if all(self._fit(overload, (types.list_of(body),)) is None for overload in overloads):
            raise errors.RefusalError(node.at, self._no_overload("sortBy", (types.list_of(body),), is_member=True))

    def _optional_map(self, node: ast.OptionalMap, scope: Mapping[str, Kind]) -> Kind:
        wanted = types.optional_of(self.unifier.fresh())
        operand = self.check(node.operand, scope)
        if not self.unifier.assignable(operand, wanted):
            raise errors.RefusalError(node.at, self._no_overload("hasValue", (operand,), is_member=True))
        value = self.unifier.resolved(wanted.parameters[0])
        body = self.check(node.body, {**scope, node.name: value})
        if not node.flat:
            return self.unifier.resolved(types.optional_of(body))
        result = types.optional_of(self.unifier.fresh())
        if not self.unifier.assignable(body, result):
            raise errors.RefusalError(node.body.at, f"expected type 'optional_type' but found '{body}'")
        return self.unifier.resolved(result)


def undeclared(name: str) -> str:
    return f"undeclared reference to '{name}' (in container '')"
