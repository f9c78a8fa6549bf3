"""Checked nodes → closures over native values: the exact tier, right in every case and the reference of any other.

A closure takes the frame of one evaluation and returns a value or raises EvaluationError; it keeps nothing, so a
program may run in several threads at once.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from admission.cel import environment
from admission.cel.check import type_checker, validators
from admission.cel.core import ast, budget, errors, frames, types, values
from admission.cel.core.frames import Frame, Run
from admission.cel.eval import comprehensions, dispatch, field_access

UNSET = object()


class _Failed:
    """A binding whose value failed: kept, so that reading it again costs nothing."""

    def __init__(self, error: errors.EvaluationError) -> None:
        self.error = error


Scope = Mapping[str, Run]


class Compiler:
    """Makes the closures of one text. `runtime_cost` has one whose closures count their cost as well."""

    def __init__(self, checked: type_checker.Checked, environment: environment.Environment) -> None:
        self.checked = checked
        self.environment = environment
        self.places = frames.FIRST_VARIABLE + len(environment.variables)
        self.constants: dict[int, Any] = {}
        self.runs: dict[int, Run] = {}

    def program(self, root: ast.Node) -> tuple[Run, int]:
        """Return the closure and its frame's length. Raises RefusalError where cel-go evaluates early and fails."""
        slots = {name: frames.FIRST_VARIABLE + place for place, name in enumerate(self.environment.variables)}
        run = self.compile(root, {name: reader(slot) for name, slot in slots.items()})
        return run, self.places

    def place(self) -> int:
        """Return a place of the frame that is nobody else's."""
        self.places += 1
        return self.places - 1

    def compile(self, node: ast.Node, scope: Scope) -> Run:
        """Return the node's closure, its parts' made first: long chains must not nest calls."""
        if id(node) not in self.runs:
            for part in ast.in_scope(node, scope):
                if id(part) not in self.runs:
                    self.runs[id(part)] = self._compile(part, scope)
        return self.runs[id(node)]

    def _compile(self, node: ast.Node, scope: Scope) -> Run:  # noqa: C901, PLR0911, PLR0912 - one line a node
        match node:
            case ast.Literal():
                return self.constant(node, node.value)
            case ast.Identifier():
                if node.name in scope:
                    return scope[node.name]
                return self.constant(node, _type_value(self.checked.named[id(node)]))
            case ast.Select():
                return self._select(node, scope)
            case ast.Has():
                return self._has(node, scope)
            case ast.Index():
                return self._index(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Logic():
                terms = [self.compile(term, scope) for term in node.terms]
                return _conjunction(terms) if node.conjunction else _disjunction(terms)
            case ast.Conditional():
                parts = (node.condition, node.then, node.otherwise)
                return conditional(*(self.compile(part, scope) for part in parts))
            case ast.ListLiteral():
                return self._list(node, scope)
            case ast.MapLiteral():
                return self._map(node, scope)
            case ast.Comprehension():
                return self._comprehension(node, scope)
            case ast.Bind():
                return self._bind(node, scope)
            case ast.OptionalMap():
                return self._optional_map(node, scope)
            case ast.Message():
                return self._message(node, scope)
            case _:
                raise AssertionError(node)

    def constant(self, node: ast.Node, value: Any) -> Run:
        """Remember that a node has the same value always."""
        self.constants[id(node)] = value
        return lambda _: value

    def constant_of(self, node: ast.Node) -> Any:
        return self.constants.get(id(node), validators.NOT_CONSTANT)

    def _select(self, node: ast.Select, scope: Scope) -> Run:
        if id(node) in self.checked.named:
            return self.constant(node, _type_value(self.checked.named[id(node)]))
        name = node.field
        operand = self.compile(node.operand, scope)
        if node.optional:
            return lambda frame: field_access.optional_field(operand(frame), name)
        return _field_reader(operand, name)

    def _has(self, node: ast.Has, scope: Scope) -> Run:
        """Test for a field: of an optional too, unless it is one that a map or list holds."""
        operand, name, is_there = self.compile(node.operand, scope), node.field, self.presence(node)
        return lambda frame: is_there(operand(frame), name)

    def presence(self, node: ast.Has) -> Callable[[Any, str], bool]:
        """Return the test of a value for a field."""
        inner = node.operand
        if isinstance(inner, ast.Select | ast.Index) and not (inner.optional or self._is_optional(inner.operand)):
            return field_access.has_plain_field
        return field_access.has_field

    def _is_optional(self, node: ast.Node) -> bool:
        return self.checked.kind(node).name == types.OPTIONAL

    def _index(self, node: ast.Index, scope: Scope) -> Run:
        operand = self.compile(node.operand, scope)
        key = self.compile(node.key, scope)
        if node.optional:
            return lambda frame: field_access.optional_index(operand(frame), key(frame))
        literal = self.constant_of(node.key)
        if type(literal) is str:
            return _field_reader(operand, literal)
        return lambda frame: field_access.index(operand(frame), key(frame))

    def _call(self, node: ast.Call, scope: Scope) -> Run:
        parts = list(node.arguments)
        if node.receiver is not None and id(node) not in self.checked.plain:
            parts.insert(0, node.receiver)
        runs = [self.compile(part, scope) for part in parts]
        constants = [self.constant_of(part) for part in parts]
        overloads = self.checked.calls[id(node)]
        folded = validators.fold(node, overloads, constants)
        if folded is not validators.NOT_CONSTANT:
            return self.constant(node, folded)
        try:
            return dispatch.compile_call(overloads, self.environment, runs, constants)
        except errors.EvaluationError as error:
            raise errors.RefusalError(node.at, f"program instantiation failed: {error}") from None

    def _list(self, node: ast.ListLiteral, scope: Scope) -> Run:
        runs = [self.compile(entry.value, scope) for entry in node.elements]
        constants = [self.constant_of(entry.value) for entry in node.elements]
        optional = [entry.optional for entry in node.elements]
        if any(optional):
            parts = list(zip(runs, optional, strict=True))
            return lambda frame: tuple(_present(parts, frame))
        if validators.NOT_CONSTANT not in map(_marker, constants):
            return self.constant(node, tuple(constants))
        return lambda frame: tuple([run(frame) for run in runs])

    def _map(self, node: ast.MapLiteral, scope: Scope) -> Run:
        parts = [
            (self.compile(entry.key, scope), self.compile(entry.value, scope), entry.optional)
            for entry in node.entries
            if entry.key is not None
        ]
        run = _map_builder(parts)
        if any(self.constant_of(part) is validators.NOT_CONSTANT for part in ast.children(node)):
            return run
        try:
            return self.constant(node, run([]))
        except errors.EvaluationError:
            return run

    def _message(self, node: ast.Message, scope: Scope) -> Run:
        build = self.environment.messages[node.name].build
        runs = [self.compile(entry.value, scope) for entry in node.entries]
        parts = [(name, run, entry.optional) for name, run, entry in zip(node.fields, runs, node.entries, strict=True)]

        def run(frame: Frame) -> Any:
            fields = {}
            for name, value_run, optional in parts:
                value = value_run(frame)
                frames.step(frame, budget.nested_work((value,)))
                if not optional:
                    fields[name] = value
                elif as_optional(value).present:
                    fields[name] = value.value
                else:
                    fields.pop(name, None)
            return build(fields)

        return run

    def _comprehension(self, node: ast.Comprehension, scope: Scope) -> Run:  # noqa: PLR0911 - one line a macro
        source = self.compile(node.range, scope)
        first = self.place()
        second = None if node.second is None else self.place()
        inner = {**scope, node.first: reader(first)}
        if node.second is not None and second is not None:
            inner[node.second] = reader(second)
        condition = None if node.condition is None else self.compile(node.condition, inner)
        body = self.compile(node.body, inner)
        slots = (first, second)
        match node.macro:
            case "all" | "exists":
                return comprehensions.decide(source, slots, body, conjunction=node.macro == "all")
            case "exists_one":
                return comprehensions.count_one(source, slots, body)
            case "filter":
                return comprehensions.collect(source, slots, body, reader(first))
            case "map" | "transformList":
                return comprehensions.collect(source, slots, condition, body)
            case "transformMap":
                return comprehensions.collect_map(source, slots, condition, body)
            case "transformMapEntry":
                return comprehensions.collect_entries(source, slots, condition, body)
            case _:
                keys = comprehensions.collect(source, slots, None, body)
                return dispatch.sort_by(source, dispatch.crashing(keys, tuple) if self.orders_one_kind(node) else keys)

    def orders_one_kind(self, node: ast.Comprehension) -> bool:
        """Whether the keys of a `sortBy` are of a known kind, so that one overload orders them."""
        return not types.is_dynamic(self.checked.kind(node.body))

    def _bind(self, node: ast.Bind, scope: Scope) -> Run:
        value = self.compile(node.value, scope)
        slot = self.place()
        body = self.compile(node.body, {**scope, node.name: lazy_reader(slot, value)})

        def run(frame: Frame) -> Any:
            frame[slot] = UNSET
            return body(frame)

        return run

    def _optional_map(self, node: ast.OptionalMap, scope: Scope) -> Run:
        operand = self.compile(node.operand, scope)
        slot = self.place()
        body = self.compile(node.body, {**scope, node.name: reader(slot)})
        flat = node.flat

        def run(frame: Frame) -> values.Optional:
            optional = as_optional(operand(frame))
            if not optional.present:
                return values.NONE
            frame[slot] = optional.value
            return as_optional(body(frame)) if flat else values.some(body(frame))

        return run


def reader(slot: int) -> Run:
    return operator.itemgetter(slot)


def lazy_reader(slot: int, value: Run) -> Run:
    def run(frame: Frame) -> Any:
        found = frame[slot]
        if found is UNSET:
            try:
                found = value(frame)
            except errors.AbortError:
                raise
            except errors.EvaluationError as error:
                found = _Failed(error)
            frame[slot] = found
        if type(found) is _Failed:
            raise found.error
        return found

    return run


def _field_reader(operand: Run, name: str) -> Run:
    def run(frame: Frame) -> Any:
        value = operand(frame)
        if type(value) in values.MAPS:
            try:
                return value[name]
            except KeyError:
                raise errors.no_such_key(name) from None
        return field_access.field(value, name)

    return run


def _type_value(kind: Any) -> values.TypeValue:
    return values.TypeValue(values.TYPE_NAMES.get(kind.name, kind.name))


def _marker(constant: Any) -> Any:
    return constant if constant is validators.NOT_CONSTANT else None


def as_optional(value: Any) -> values.Optional:
    if type(value) is not values.Optional:
        raise errors.no_such_overload()
    return value


def _map_builder(parts: Sequence[tuple[Run, Run, bool]]) -> Run:
    def run(frame: Frame) -> dict[Any, Any]:
        result = {}
        for key_run, value_run, optional in parts:
            key, value = dispatch.checked_key(key_run(frame)), value_run(frame)
            if not optional:
                result[key] = value
            elif as_optional(value).present:
                result[key] = value.value
            else:
                result.pop(key, None)
        return result

    return run


def _present(parts: Sequence[tuple[Run, bool]], frame: Frame) -> list[Any]:
    result = []
    for run, optional in parts:
        value = run(frame)
        if optional:
            value = as_optional(value)
            if value.present:
                result.append(value.value)
        else:
            result.append(value)
    return result


def _conjunction(terms: Sequence[Run]) -> Run:
    def run(frame: Frame) -> bool:
        error: errors.EvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                error = error or raised
                continue
            if value is False:
                return False
            if value is not True:
                error = error or errors.no_such_overload()
        if error is not None:
            raise error
        return True

    return run


def _disjunction(terms: Sequence[Run]) -> Run:
    def run(frame: Frame) -> bool:
        error: errors.EvaluationError | None = None
        for term in terms:
            try:
                value = term(frame)
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                error = error or raised
                continue
            if value is True:
                return True
            if value is not False:
                error = error or errors.no_such_overload()
        if error is not None:
            raise error
        return False

    return run


def conditional(condition: Run, then: Run, otherwise: Run) -> Run:
    def run(frame: Frame) -> Any:
        return then(frame) if comprehensions.truth(condition(frame)) else otherwise(frame)

    return run
