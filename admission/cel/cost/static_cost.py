"""The static cost: the maximal cost of evaluating an expression, by the declared sizes of its inputs.

Mirrors cel-go's checker/cost.go (v0.26) as k8s.io/dynamic-resource-allocation/cel (v0.36) configures it. Macros are
charged as the folds to which cel-go expands them, including loop conditions and accumulators.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from admission.cel import environment
from admission.cel.check import type_checker
from admission.cel.core import ast, size_estimate, types
from admission.cel.core.declarations import Overload
from admission.cel.core.size_estimate import MAX, Entry, Path, Size
from admission.cel.core.types import Type
from admission.cel.cost import call_cost
from admission.cel.cost.call_cost import Part

LIMIT = 1_000_000
"""The largest static cost that Kubernetes' API server accepts, and the largest cost of one evaluation
(resource.k8s.io CELSelectorExpressionMaxCost)."""


def worst_case(root: ast.Node, checked: type_checker.CheckedAst, environment: environment.Environment) -> int:
    """Return the static cost, at most 2^64-1, by which the API server accepts or rejects an expression."""
    return _Estimator(checked, environment, call_cost.estimate).root_cost(root)


def bound(root: ast.Node, checked: type_checker.CheckedAst, environment: environment.Environment) -> int:
    """Return a cost that no evaluation exceeds on inputs of the declared sizes, a little above the static cost."""
    return _Estimator(checked, environment, call_cost.bound).root_cost(root)


CallRule = Callable[[Overload, Sequence[Part], int], call_cost.CallEstimate]


_NOWHERE = Path()


class _Variable(NamedTuple):
    path: Path = _NOWHERE
    size: Size | None = None
    entry: Entry | None = None


Scope = Mapping[str, _Variable]

_SCALARS = frozenset({types.BOOL, types.DOUBLE, types.DURATION, types.INT, types.TIMESTAMP, types.UINT})
_NO_ENTRY = Entry(is_list=True, key=size_estimate.ONE, value=size_estimate.EMPTY)

_ITERATION_COSTS = {"all": 3, "exists": 4, "exists_one": 2, "filter": 13, "map": 12, "transformList": 12}
"""The cost of one iteration besides the macro's body and condition."""


def _total(*costs: int) -> int:
    return min(sum(costs), MAX)


class _Estimator:
    def __init__(
        self, checked: type_checker.CheckedAst, environment: environment.Environment, call_rule: CallRule
    ) -> None:
        self.call_rule = call_rule
        self.is_bound = call_rule is call_cost.bound
        self.checked = checked
        self.environment = environment
        self.costs: dict[int, int] = {}
        self.sizes: dict[int, Size] = {}
        self.entries: dict[int, Entry] = {}
        self.paths: dict[int, Path] = {}

    def root_cost(self, root: ast.Node) -> int:
        return self.cost(root, {name: _Variable(path=_NOWHERE.extended(name)) for name in self.environment.variables})

    def cost(self, node: ast.Node, scope: Scope) -> int:
        """Return the node's cost. Its parts are estimated first, so that long chains do not nest calls."""
        if id(node) not in self.costs:
            for part in ast.in_scope(node, scope):
                if id(part) not in self.costs:
                    self.costs[id(part)] = min(self._cost(part, scope), MAX)
        return self.costs[id(node)]

    def _cost(self, node: ast.Node, scope: Scope) -> int:  # noqa: C901, PLR0911, PLR0912 - one line a node
        match node:
            case ast.Literal():
                return 0
            case ast.Identifier():
                self.paths[id(node)] = self._path(node, scope)
                return 1
            case ast.Select():
                return self._select(node, scope)
            case ast.Index():
                return self._index(node, scope)
            case ast.Has():
                return self.cost(node.operand, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Logic():
                return sum(self.cost(term, scope) for term in node.terms)
            case ast.Conditional():
                return self._conditional(node, scope)
            case ast.ListLiteral():
                return self._list(node, scope)
            case ast.MapLiteral():
                return self._map(node, scope)
            case ast.Comprehension(macro="sortBy"):
                return self._sort_by(node, scope)
            case ast.Comprehension():
                return self._comprehension(node, scope)
            case ast.Bind():
                return self._bind(node, scope)
            case ast.OptionalMap():
                return self._optional_map(node, scope)
            case _:
                return size_estimate.MESSAGE_COST + sum(self.cost(part, scope) for part in ast.children(node))

    def _select(self, node: ast.Select, scope: Scope) -> int:
        if self.checked.is_name(node):
            return 1
        cost = self.cost(node.operand, scope)
        if node.optional:
            return cost + 1
        self.paths[id(node)] = self._path(node.operand, scope).extended(node.field)
        type_ = self.checked.type_of(node.operand)
        return cost + (self.is_bound or type_.name == "map" or type_.name in self.environment.objects)

    def _index(self, node: ast.Index, scope: Scope) -> int:
        cost = self.cost(node.operand, scope) + self.cost(node.key, scope) + 1
        if node.optional:
            return cost
        for overload in self.checked.overloads[id(node)]:
            operand = overload.parameters[0].name
            entry = self._entry(node.operand, scope)
            if operand in ("list", "map"):
                step = "@items" if operand == "list" else "@values"
                self.paths[id(node)] = self._path(node.operand, scope).extended(step)
                self._set_size(node, entry and entry.value)
        return cost

    def _call(self, node: ast.Call, scope: Scope) -> int:
        arguments = self.checked.arguments(node)
        cost = sum(self.cost(part, scope) for part in arguments)
        overloads = self.checked.overloads[id(node)]
        if overloads[0].name == "dyn":
            self._copy_size(node, arguments[0], scope)
            return cost + 1
        parts = [self._part(part, scope) for part in arguments]
        own, size = self._call_estimate(node, overloads, parts, scope)
        self._set_size(node, size)
        return cost + own

    def _call_estimate(
        self, node: ast.Node, overloads: Sequence[Overload], parts: Sequence[Part], scope: Scope
    ) -> tuple[int, Size | None]:
        """Return the cost of the most expensive overload, and a size that covers the results of all."""
        cost = 0
        size: Size | None = None
        for overload in overloads:
            estimate = self.call_rule(overload, parts, self.environment.release)
            cost = max(cost, estimate.cost)
            if estimate.size is not None:
                size = size.union(estimate.size) if size else estimate.size
            size = size or self._size(node, scope)
            if overload.name == "_+_" and len(parts) == 2 and overload.result.name in ("string", "bytes", "list"):
                self._unite_entries(node, parts[0].node, parts[1].node, scope)
        return cost, size

    def _conditional(self, node: ast.Conditional, scope: Scope) -> int:
        then, otherwise = self.cost(node.then, scope), self.cost(node.otherwise, scope)
        self._unite_entries(node, node.then, node.otherwise, scope)
        self._set_size(
            node, self._size_or_unknown(node.then, scope).union(self._size_or_unknown(node.otherwise, scope))
        )
        return self.cost(node.condition, scope) + max(then, otherwise)

    def _list(self, node: ast.ListLiteral, scope: Scope) -> int:
        values = [entry.value for entry in node.elements]
        self.entries[id(node)] = Entry(is_list=True, key=size_estimate.ONE, value=self._common(values, scope))
        return size_estimate.LIST_COST + sum(self.cost(value, scope) for value in values)

    def _map(self, node: ast.MapLiteral, scope: Scope) -> int:
        keys = [entry.key for entry in node.entries if entry.key is not None]
        values = [entry.value for entry in node.entries]
        self.entries[id(node)] = Entry(is_list=False, key=self._common(keys, scope), value=self._common(values, scope))
        return size_estimate.MAP_COST + sum(self.cost(part, scope) for part in (*keys, *values))

    def _common(self, parts: Sequence[ast.Node], scope: Scope) -> Size:
        if not parts:
            return size_estimate.EMPTY
        found = [self._size_or_unknown(part, scope) for part in parts]
        return Size(min(size.least for size in found), max(size.most for size in found))

    def _comprehension(self, node: ast.Comprehension, scope: Scope) -> int:
        inner = {**scope, **self._variables(node, scope)}
        iterations = self._size_or_unknown(node.range, scope)
        body = self.cost(node.body, inner)
        condition = 0 if node.condition is None else self.cost(node.condition, inner)
        start, end = self._ends(node.macro)
        if node.macro in ("filter", "map", "transformList"):
            element = self._size_or_unknown(node.body, inner)
            if node.macro == "filter":
                element = self._element(node, inner[node.first])
            self.entries[id(node)] = _NO_ENTRY.union(Entry(is_list=True, key=size_estimate.ONE, value=element))
        built = node.macro not in ("all", "exists", "exists_one")
        self.sizes[id(node)] = iterations if built else size_estimate.ONE
        iteration = _ITERATION_COSTS.get(node.macro, 3 if node.macro == "transformMap" else 2)
        loop = min(iterations.most * (body + condition + iteration), MAX)
        return _total(self.cost(node.range, scope), start, loop, end)

    def _element(self, node: ast.Comprehension, variable: _Variable) -> Size:
        type_ = self.checked.type_of(node.range)
        known = self._declared(variable.path.steps())
        if known is None and type_.parameters and _is_scalar(type_.parameters[0]):
            known = size_estimate.ONE
        return known or variable.size or size_estimate.UNKNOWN

    def _ends(self, macro: str) -> tuple[int, int]:
        """Return the costs of the accumulator's initial value and of the result."""
        if macro in ("all", "exists"):
            return 0, 1
        if macro == "exists_one":
            return 0, 2
        return (size_estimate.MAP_COST if macro.startswith("transformMap") else size_estimate.LIST_COST), 1

    def _variables(self, node: ast.Comprehension, scope: Scope) -> dict[str, _Variable]:
        self.cost(node.range, scope)
        entry, path = self._entry(node.range, scope), self._path(node.range, scope)
        is_list = entry.is_list if entry else self.checked.type_of(node.range).name == "list"
        if node.second is None:
            size = entry and (entry.value if is_list else entry.key)
            return {node.first: _Variable(path.extended("@items" if is_list else "@keys"), size)}
        key = _Variable(path.extended("@indices" if is_list else "@keys"), entry and entry.key)
        value = _Variable(path.extended("@items" if is_list else "@values"), entry and entry.value)
        return {node.first: key, node.second: value}

    def _bind(self, node: ast.Bind, scope: Scope) -> int:
        value = self.cost(node.value, scope)
        bound = _Variable(self._path(node.value, scope), self._size(node.value, scope), self._entry(node.value, scope))
        inner = {**scope, node.name: bound}
        body = self.cost(node.body, inner)
        # cel-go has forgotten the variable by then, also where the body is nothing else.
        self._copy_size(node, node.body, scope)
        return _total(size_estimate.LIST_COST, value, body)

    def _optional_map(self, node: ast.OptionalMap, scope: Scope) -> int:
        """Charge `o.hasValue() ? optional.of(cel.bind(x, o.value(), body)) : optional.none()`."""
        operand = self.cost(node.operand, scope)
        body = self.cost(node.body, {**scope, node.name: _Variable()})
        some = size_estimate.LIST_COST + operand + 1 + body + (not node.flat)
        self.sizes[id(node)] = size_estimate.UNKNOWN
        return _total(operand, 1, max(some, 1))

    def _sort_by(self, node: ast.Comprehension, scope: Scope) -> int:
        """Charge `cel.bind(l, list, l.@sortByAssociatedKeys(l.map(x, key)))`."""
        size = self._size_or_unknown(node.range, scope)
        body = self.cost(node.body, {**scope, **self._variables(node, scope)})
        keys = _total(1, size_estimate.LIST_COST, min(size.most * (body + 12), MAX), 1)
        part = Part(node.body, types.list_of(types.DYN), size, size_estimate.UNKNOWN)
        type_ = self.checked.type_of(node.body)
        texts = type_ if type_ in (*_SCALARS, types.STRING, types.BYTES) else types.STRING
        estimate = call_cost.sorting(part, texts)
        self._set_size(node, estimate.size)
        return _total(size_estimate.LIST_COST, self.cost(node.range, scope), 1, keys, estimate.cost)

    def _part(self, node: ast.Node, scope: Scope) -> Part:
        element = self._declared([*self._path(node, scope).steps(), "@items"])
        return Part(
            node, self.checked.type_of(node), self._size_or_unknown(node, scope), element or size_estimate.UNKNOWN
        )

    def _size_or_unknown(self, node: ast.Node, scope: Scope) -> Size:
        return self._size(node, scope) or size_estimate.UNKNOWN

    def _size(self, node: ast.Node, scope: Scope) -> Size | None:
        """Return the estimated size of a node's value, from the first source that knows it."""
        found = self.sizes.get(id(node)) or _literal_size(node) or self._declared(self._path(node, scope).steps())
        if found is None and _is_scalar(self.checked.type_of(node)):
            found = size_estimate.ONE
        if found is None and isinstance(node, ast.Identifier) and node.name in scope:
            found = scope[node.name].size
        return found

    def _declared(self, path: Sequence[str]) -> Size | None:
        if not path:
            return None
        declared = self.environment.declared.get(path[0])
        for step in path[1:]:
            if declared is None:
                return None
            declared = declared.part(step)
        return None if declared is None else Size(0, declared.most)

    def _path(self, node: ast.Node, scope: Scope) -> Path:
        if isinstance(node, ast.Identifier) and node.name in scope:
            return scope[node.name].path
        return self.paths.get(id(node), _NOWHERE)

    def _entry(self, node: ast.Node, scope: Scope) -> Entry | None:
        if id(node) in self.entries:
            return self.entries[id(node)]
        if isinstance(node, ast.Identifier) and node.name in scope:
            return scope[node.name].entry
        return None

    def _set_size(self, node: ast.Node, size: Size | None) -> None:
        if size is not None:
            self.sizes[id(node)] = size

    def _unite_entries(self, node: ast.Node, left: ast.Node, right: ast.Node, scope: Scope) -> None:
        one, other = self._entry(left, scope), self._entry(right, scope)
        if one is not None and other is not None:
            self.entries[id(node)] = one.union(other)

    def _copy_size(self, node: ast.Node, source: ast.Node, scope: Scope) -> None:
        self._set_size(node, self._size(source, scope))
        entry = self._entry(source, scope)
        if entry is not None:
            self.entries[id(node)] = entry


def _literal_size(node: ast.Node) -> Size | None:
    match node:
        case ast.Literal(value=str() | bytes() as text):
            length = len(text)
        case ast.Literal():
            length = 1
        case ast.ListLiteral():
            length = len(node.elements)
        case ast.MapLiteral():
            length = len(node.entries)
        case _:
            return None
    return Size(length, length)


def _is_scalar(type_: Type) -> bool:
    while type_.name in (types.OPTIONAL, "wrapper"):
        type_ = type_.parameters[0]
    return type_ in _SCALARS
