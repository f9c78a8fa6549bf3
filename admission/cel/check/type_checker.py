"""The type checker: resolves variables, functions and fields of a parsed expression, and infers types.

The rules are those of cel-go's checker (checker/checker.go, v0.26): the result type is that of the overloads that fit,
or dyn where their results differ; list and map literals must be homogeneous (cel/validator.go).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from admission.cel import environment
from admission.cel.core import ast, declarations, errors, types
from admission.cel.core.declarations import Overload
from admission.cel.core.types import Type
from admission.cel.syntax import macros

ROOTED = 37
"""The first release in which a dot before a name means that it is no variable of a macro."""


@dataclass(slots=True)
class CheckedAst:
    """What the checker found out about the nodes of an expression, by their `id`.

    node_types: the type of each node. overloads: those that fit each call, operators included. type_names: the types
    that identifiers and selections name.
    """

    node_types: dict[int, Type] = field(default_factory=dict)
    overloads: dict[int, tuple[Overload, ...]] = field(default_factory=dict)
    namespaced: set[int] = field(default_factory=set)
    """Calls written as methods whose receiver is a function's namespace: `sets.contains`."""
    type_names: dict[int, Type] = field(default_factory=dict)
    enum_values: dict[int, int] = field(default_factory=dict)
    """Names of constants, which are ints."""

    def type_of(self, node: ast.Node) -> Type:
        return self.node_types[id(node)]

    def is_name(self, node: ast.Node) -> bool:
        """Whether a node is the name of a type or constant, not a variable or a field of one."""
        return id(node) in self.type_names or id(node) in self.enum_values

    def arguments(self, node: ast.Call) -> list[ast.Node]:
        """Return the arguments of a call, its receiver first."""
        if node.receiver is None or id(node) in self.namespaced:
            return list(node.arguments)
        return [node.receiver, *node.arguments]


def check(root: ast.Node, environment: environment.Environment) -> CheckedAst:
    """Return the types of all nodes. Raises RefusalError at the first ill-typed one."""
    checker = _Checker(environment)
    checker.check(root, environment.variables)
    checker.finalize()
    return checker.checked


class _Checker:
    def __init__(self, environment: environment.Environment) -> None:
        self.environment = environment
        self.checked = CheckedAst()
        self.unifier = types.Unifier()

    def finalize(self) -> None:
        """Replace the type variables that are left."""
        self.checked.node_types = self.unifier.all_resolved(self.checked.node_types)

    def check(self, node: ast.Node, scope: Mapping[str, Type]) -> Type:
        """Return the node's type. Its parts are checked first, so that long chains do not nest calls."""
        known = self.checked.node_types
        if id(node) not in known:
            for part in ast.in_scope(node, scope):
                if id(part) not in known:
                    known[id(part)] = self._check(part, scope)
        return known[id(node)]

    def _check(self, node: ast.Node, scope: Mapping[str, Type]) -> Type:  # noqa: C901, PLR0911, PLR0912 - one line a node
        match node:
            case ast.Literal():
                return environment.literal_type(node.value)
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

    def _identifier(self, node: ast.Identifier, scope: Mapping[str, Type]) -> Type:
        if node.rooted and self.environment.release >= ROOTED and self._is_hidden(node.name, scope):
            # There it would be what the environment declares, or nothing.
            raise errors.RefusalError(node.at, f"Muster does not look behind a macro's variable for '.{node.name}'")
        if node.name in scope:
            return scope[node.name]
        if node.name in self.environment.types:
            self.checked.type_names[id(node)] = self.environment.types[node.name]
            return types.type_of(self.environment.types[node.name])
        raise errors.RefusalError(node.at, undeclared(node.name))

    def _is_hidden(self, name: str, scope: Mapping[str, Type]) -> bool:
        """Whether a macro's variable has a name."""
        return scope.get(name) is not self.environment.variables.get(name)

    def _select(self, node: ast.Select, scope: Mapping[str, Type]) -> Type:
        name = macros.qualified_name(node)
        if name is not None and name in self.environment.types:
            self.checked.type_names[id(node)] = self.environment.types[name]
            return types.type_of(self.environment.types[name])
        if name is not None and name in self.environment.enum_values:
            self.checked.enum_values[id(node)] = self.environment.enum_values[name]
            return types.INT
        type_ = self._field(node, node.operand, node.field, scope)
        return self.unifier.resolved(
            types.optional_of(type_) if node.optional and type_.name != "optional_type" else type_
        )

    def _field(self, node: ast.Node, operand: ast.Node, name: str, scope: Mapping[str, Type]) -> Type:
        target, is_optional = types.unwrapped(self.unifier.resolved(self.check(operand, scope)))
        if target.name == "map":
            type_ = target.parameters[1]
        elif target.name in self.environment.objects:
            fields = self.environment.objects[target.name]
            if name not in fields:
                raise errors.RefusalError(node.at, f"undefined field '{name}'")
            type_ = fields[name]
        elif target.variable:
            self.unifier.assignable(types.DYN, target)
            type_ = types.DYN
        elif types.is_dynamic(target):
            type_ = types.DYN
        else:
            raise errors.RefusalError(node.at, f"type '{target}' does not support field selection")
        return types.optional_of(type_) if is_optional else type_

    def _call(self, node: ast.Call, scope: Mapping[str, Type]) -> Type:
        if node.receiver is None:
            if node.function not in self.environment.functions:
                raise errors.RefusalError(node.at, undeclared(node.function))
            return self._resolve(node, node.function, None, node.arguments, scope)
        prefix = macros.qualified_name(node.receiver)
        name = f"{prefix}.{node.function}"
        if prefix is not None and name in self.environment.functions:
            self.checked.namespaced.add(id(node))
            return self._resolve(node, name, None, node.arguments, scope)
        self.check(node.receiver, scope)
        if node.function not in self.environment.functions:
            raise errors.RefusalError(node.at, undeclared(node.function))
        return self._resolve(node, node.function, node.receiver, node.arguments, scope)

    def _resolve(
        self,
        node: ast.Node,
        function: str,
        receiver: ast.Node | None,
        arguments: Sequence[ast.Node],
        scope: Mapping[str, Type],
    ) -> Type:
        """Find the overloads that fit the arguments. The type is their common result, or dyn."""
        given = tuple(self.check(argument, scope) for argument in arguments)
        if receiver is not None:
            given = (self.checked.type_of(receiver), *given)
        result: Type | None = None
        fitting: list[Overload] = []
        for overload in self.environment.functions[function]:
            if overload.member is not (receiver is not None):
                continue
            type_ = self._fit(overload, given)
            if type_ is None:
                continue
            fitting.append(overload)
            if result is None:
                result = type_
            elif not types.is_dynamic(result) and type_ != result:
                result = types.DYN
        if result is None:
            raise errors.RefusalError(node.at, self._no_overload(function, given, is_member=receiver is not None))
        self.checked.overloads[id(node)] = tuple(fitting)
        return result

    def _fit(self, overload: Overload, given: tuple[Type, ...]) -> Type | None:
        if len(given) != len(overload.parameters):
            return None
        if not overload.variables:
            return overload.result if self.unifier.all_assignable(given, overload.parameters) else None
        variables = {name: self.unifier.fresh() for name in overload.variables}
        target = tuple(declarations.instantiate(type_, variables) for type_ in overload.parameters)
        if not self.unifier.all_assignable(given, target):
            return None
        return self.unifier.resolved(declarations.instantiate(overload.result, variables))

    def _no_overload(self, function: str, given: tuple[Type, ...], *, is_member: bool) -> str:
        texts = [str(self.unifier.resolved(type_, to_dynamic=True)) for type_ in given]
        applied = f"{texts[0]}.({', '.join(texts[1:])})" if is_member else f"({', '.join(texts)})"
        return f"found no matching overload for '{function}' applied to '{applied}'"

    def _expect(self, node: ast.Node, target: Type, scope: Mapping[str, Type]) -> None:
        type_ = self.check(node, scope)
        if not self.unifier.assignable(type_, target):
            found = self.unifier.resolved(type_, to_dynamic=True)
            raise errors.RefusalError(node.at, f"expected type '{target}' but found '{found}'")

    def _list(self, node: ast.ListLiteral, scope: Mapping[str, Type]) -> Type:
        common: Type | None = None
        for entry in node.elements:
            common = self._join(common, self._entry(entry, scope))
        return types.list_of(common or self.unifier.fresh())

    def _map(self, node: ast.MapLiteral, scope: Mapping[str, Type]) -> Type:
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            if entry.key is not None:
                key = self._join(key, self.check(entry.key, scope))
            value = self._join(value, self._entry(entry, scope))
        return types.map_of(key or self.unifier.fresh(), value or self.unifier.fresh())

    def _message(self, node: ast.Message, scope: Mapping[str, Type]) -> Type:
        name = node.name
        if name not in self.environment.messages:
            known = name in self.environment.types
            raise errors.RefusalError(node.at, f"'{name}' is not a message type" if known else undeclared(name))
        message = self.environment.messages[name]
        for field_name, entry in zip(node.fields, node.entries, strict=True):
            if field_name not in message.fields:
                raise errors.RefusalError(entry.value.at, f"undefined field '{field_name}'")
            target, type_ = message.fields[field_name], self._entry(entry, scope)
            if not self.unifier.assignable(target, type_):
                raise errors.RefusalError(
                    entry.value.at,
                    f"expected type of field '{field_name}' is '{target}' but provided type is '{type_}'",
                )
        return message.result_type

    def _entry(self, entry: ast.Entry, scope: Mapping[str, Type]) -> Type:
        type_ = self.check(entry.value, scope)
        if not entry.optional:
            return type_
        inner, is_optional = types.unwrapped(self.unifier.resolved(type_))
        if not is_optional and not types.is_dynamic(inner):
            raise errors.RefusalError(entry.value.at, f"expected type '{types.optional_of(inner)}' but found '{inner}'")
        return inner

    def _join(self, before: Type | None, type_: Type) -> Type:
        if before is None:
            return type_
        if self.unifier.assignable(before, type_):
            return types.most_general(before, type_)
        return types.DYN

    def _comprehension(self, node: ast.Comprehension, scope: Mapping[str, Type]) -> Type:
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

    def _range(self, node: ast.Comprehension, scope: Mapping[str, Type]) -> tuple[Type, Type]:
        """Return the types of the two variables. With one variable, only the first counts."""
        type_ = self.unifier.resolved(self.check(node.range, scope))
        if type_.name == "list":
            return (type_.parameters[0], types.ERROR) if node.second is None else (types.INT, type_.parameters[0])
        if type_.name == "map":
            return type_.parameters[0], type_.parameters[1]
        if type_.name == "dyn" or type_.variable:
            self.unifier.assignable(types.DYN, type_)
            return types.DYN, types.DYN
        raise errors.RefusalError(
            node.range.at,
            f"expression of type '{type_}' cannot be range of a comprehension (must be list, map, or dynamic)",
        )

    def _result(self, node: ast.Comprehension, body: Type, first: Type) -> Type:
        match node.macro:
            case "map" | "transformList":
                return types.list_of(body)
            case "transformMap":
                return types.map_of(first, body)
            case "sortBy":
                self._comparable(node, body)
                self._expect_list(node)
                # Several overloads fit a key of any type, and of lists of any type each has a result of its own.
                range_type = self.checked.type_of(node.range)
                if not types.is_dynamic(range_type):
                    return types.list_of(first)
                is_any_key = types.is_dynamic(self.unifier.resolved(body))
                return types.DYN if is_any_key else types.list_of(self.unifier.fresh())
            case _:
                result = types.map_of(self.unifier.fresh(), self.unifier.fresh())
                if not self.unifier.assignable(body, result):
                    raise errors.RefusalError(node.body.at, f"expected type 'map' but found '{body}'")
                return result

    def _comparable(self, node: ast.Comprehension, body: Type) -> None:
        overloads = self.environment.functions["sort"]
        if all(self._fit(overload, (types.list_of(body),)) is None for overload in overloads):
            raise errors.RefusalError(node.at, self._no_overload("sortBy", (types.list_of(body),), is_member=True))

    def _expect_list(self, node: ast.Comprehension) -> None:
        range_type = self.checked.type_of(node.range)
        if not self.unifier.assignable(range_type, types.list_of(self.unifier.fresh())):
            raise errors.RefusalError(node.at, self._no_overload("sortBy", (range_type,), is_member=True))

    def _optional_map(self, node: ast.OptionalMap, scope: Mapping[str, Type]) -> Type:
        target = types.optional_of(self.unifier.fresh())
        operand = self.check(node.operand, scope)
        if not self.unifier.assignable(operand, target):
            raise errors.RefusalError(node.at, self._no_overload("hasValue", (operand,), is_member=True))
        value = self.unifier.resolved(target.parameters[0])
        body = self.check(node.body, {**scope, node.name: value})
        if not node.flat:
            return self.unifier.resolved(types.optional_of(body))
        result = types.optional_of(self.unifier.fresh())
        if not self.unifier.assignable(body, result):
            raise errors.RefusalError(node.body.at, f"expected type 'optional_type' but found '{body}'")
        return self.unifier.resolved(result)


def undeclared(name: str) -> str:
    return f"undeclared reference to '{name}' (in container '')"
