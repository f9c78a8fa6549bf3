"""Values of another type than their field has, such as a number where a text is expected.

The API server cannot read such an object, however it is asked. Of its own kinds it answers in the words of Go's JSON
decoder (where Go has a name for a kind of text, such as `v1.RestartPolicy`, `string` stands here), of
CustomResourceDefinitions in those of their schemas. Null is taken everywhere, as an absent field, and a number without
a fraction as an integer, since kubectl sends 2 for `2.0`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from admission.api.schemas import known_fields
from admission.api.values import names
from admission.api.values.decoding import MAX_PROBLEMS, Json
from admission.errors import Problem

LONGEST_VALUE = 40
"""Characters of a value that messages show."""

QUANTITY = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
"""What a quantity at least has to be (`apimachinery/pkg/api/resource`)."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d?:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")
"""A time that Go reads (`time.RFC3339`)."""

KEY = re.compile(r"\[[^]]*\]")

_GIVEN: Mapping[type, tuple[str, str]] = {
    str: ("string", "string"),
    bool: ("bool", "boolean"),
    int: ("number", "integer"),
    float: ("number", "number"),
    list: ("array", "array"),
    dict: ("object", "object"),
}
"""What values are called by Go and by schemas. Others come from no JSON and are not judged."""

_IN_SCHEMAS: Mapping[str, str] = {
    "bool": "boolean",
    "int32": "integer",
    "int64": "integer",
    "number": "number",
    "IntOrString": "integer,string",
    "Quantity": "integer,string",
    "string": "string",
    "Time": "string",
}


@dataclass(frozen=True, slots=True)
class _Field:
    """A field that has a value: its path in the object, the type of the object that it is of, and its own type."""

    path: str
    within: str
    type: str

    def element(self, key: Any) -> "_Field":
        """Return a field for an element of its list or mapping. key: in that."""
        return replace(self, path=f"{self.path}[{key}]", type=self.type[2:])


class _Fault(NamedTuple):
    """Why a value is wrong. expected: the type that it should have. advice: what to write.

    is_of_value: whether the value is wrong and not its type alone. words: what is said in place of the usual.
    """

    expected: str
    advice: str
    is_of_value: bool = False
    words: str = ""


class _Asked(NamedTuple):
    """Who has to read an object. words: what is said of a field and its value that have a fault.

    elsewhere: a type within it whose fields are judged elsewhere.
    """

    words: Callable[[_Field, Any, _Fault], str]
    release: str
    elsewhere: str = ""


def of_object(obj: Json, *, release: str = "") -> tuple[Problem, ...]:
    """Return the wrong values of a whole object; of a kind that is not known, those of its metadata.

    release: the release that has to read them; empty: any. Fields that it does not have are not judged.
    """
    api_version, kind = str(obj.get("apiVersion")), str(obj.get("kind"))
    type_name = known_fields.type_of(api_version, kind)
    if not type_name:
        return problems(obj.get("metadata"), known_fields.META, "metadata")
    return problems(obj, type_name, is_native=api_version != names.API_VERSION, release=release)


def of_workload(obj: Json) -> tuple[Problem, ...]:
    """Return the wrong values of a workload of another project outside its metadata and pod templates.

    None of other kinds. The release whose types are known is named, since another one may have others.
    """
    kind = str(obj.get("apiVersion")), str(obj.get("kind"))
    type_name = known_fields.type_of_workload(*kind)
    if not type_name:
        return ()
    release = known_fields.release_of_workload(*kind)
    others = {name: value for name, value in obj.items() if name != "metadata"}
    found = problems(others, type_name, elsewhere=known_fields.POD_TEMPLATE)
    return tuple(replace(one, message=f"{one.message} (as of {release})") for one in found)


def of_pod_template(template: Any, path: str, *, release: str = "") -> tuple[Problem, ...]:
    """Return the wrong values of a pod template in an object of another system. path: of the template."""
    return problems(template, known_fields.POD_TEMPLATE, path, release=release)


def problems(
    obj: Any, type_name: str, path: str = "", *, is_native: bool = False, release: str = "", elsewhere: str = ""
) -> tuple[Problem, ...]:
    """Return the wrong values of an object, none if it is none.

    type_name: one of `known_fields`. path: of the object in the whole one. is_native: whether it is of a kind that the
    API server has itself. elsewhere: a type within it whose fields are judged elsewhere.
    """
    if not isinstance(obj, Mapping) or _fits(obj, type_name):
        return ()
    asked = _Asked(_of_decoder if is_native else _of_schema, release, elsewhere)
    return tuple(islice(_within(obj, type_name, path, asked), MAX_PROBLEMS))


def beside(wrong: tuple[Problem, ...], others: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return the other problems of an object that are not about a wrong value, which other rules may have met too."""
    paths = {_dotted(one.field) for one in wrong}
    # Other rules may name the list or mapping that has the value.
    holders = {_dotted(one.field.rpartition("[")[0]) for one in wrong if one.field.endswith("]")}
    return tuple(
        one
        for one in others
        if (field := _dotted(one.field)) not in paths | holders
        and not any(field.startswith((f"{path}.", f"{path}[")) for path in paths)
    )


def _dotted(path: str) -> str:
    """Return a path with a dot before the keys of mappings, as other rules write it too: `labels.run`."""
    return re.sub(r"\[([^]]*[^]\d][^]]*)\]", r".\1", path)


def _fits(value: Any, kind: str) -> bool:
    """Return whether a value certainly has no fault, as most: the fast way, which knows no paths."""
    if value is None or not kind:
        return True
    if type(value) not in _GIVEN or _fault(value, kind) is not None:
        return False
    if isinstance(value, list):
        return all(_fits(one, kind[2:]) for one in value)
    if not isinstance(value, dict):
        return True
    if kind.startswith(known_fields.MAPPING):
        return all(_fits(one, kind[2:]) for one in value.values())
    fields = known_fields.fields_of(kind)
    return all(_fits(inner, fields.get(name, known_fields.ANY)) for name, inner in value.items())


def _within(obj: Any, type_name: str, path: str, asked: _Asked) -> Iterator[Problem]:
    if not isinstance(obj, Mapping):
        return
    fields, absent = known_fields.fields_of(type_name), known_fields.absent(type_name, asked.release)
    for name, value in obj.items():
        if fields.get(name) and name not in absent:
            yield from _judge(value, _Field(f"{path}.{name}".removeprefix("."), type_name, fields[name]), asked)


def _judge(value: Any, field: _Field, asked: _Asked) -> Iterator[Problem]:
    if value is None or type(value) not in _GIVEN or not field.type:
        return
    fault = _fault(value, field.type)
    if fault is not None:
        yield Problem(field.path, f"{fault.words or asked.words(field, value, fault)}; {fault.advice}")
    elif field.type.startswith(known_fields.LIST):
        for at, one in enumerate(value):
            yield from _judge(one, field.element(at), asked)
    elif field.type.startswith(known_fields.MAPPING):
        for key, one in value.items():
            yield from _judge(one, field.element(key), asked)
    elif field.type not in known_fields.SCALARS and field.type != asked.elsewhere:
        yield from _within(value, field.type, field.path, asked)


def _fault(value: Any, kind: str) -> _Fault | None:
    """Return what is wrong with a value itself, apart from its elements and fields; None if nothing is."""
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    if kind.startswith(known_fields.LIST):
        return None if isinstance(value, list) else _Fault(kind, "a list is expected")
    return None if isinstance(value, dict) else _Fault(kind, "an object is expected")


def _fault_of_flag(value: Any) -> _Fault | None:
    return None if isinstance(value, bool) else _Fault("bool", "true or false is expected, without quotes")


def _fault_of_text(value: Any) -> _Fault | None:
    if isinstance(value, str):
        return None
    return _Fault("string", "a text is expected" if isinstance(value, list | dict) else "write it in quotes")


def _fault_of_time(value: Any) -> _Fault | None:
    if not isinstance(value, str) or TIME.fullmatch(value):
        return _fault_of_text(value)
    words = f'parsing time {_shown(value)} as "2006-01-02T15:04:05Z07:00"'
    return _Fault("Time", "a time is written as 2026-01-31T12:00:00Z", words=words)


def _fault_of_quantity(value: Any) -> _Fault | None:
    if not isinstance(value, bool | list | dict) and QUANTITY.fullmatch(str(value).strip()):
        return None
    words = f"quantities must match the regular expression '^{QUANTITY.pattern}$'"
    return _Fault("Quantity", f"{_shown(value)} is none; 500m and 4Gi are", words=words)


def _fault_of_integer(value: Any, bits: int = 32) -> _Fault | None:
    kind, limit = f"int{bits}", 2 ** (bits - 1)
    if isinstance(value, str):
        is_number = re.fullmatch(r"\s*[-+]?\d+\s*", value) is not None
        return _Fault(kind, "write it without quotes" if is_number else "an integer is expected")
    if isinstance(value, bool | list | dict):
        return _Fault(kind, "an integer is expected")
    if isinstance(value, float) and not value.is_integer():
        return _Fault(kind, "an integer is expected", is_of_value=True)
    if not -limit <= value < limit:
        return _Fault(kind, f"an integer from {-limit} to {limit - 1} is expected", is_of_value=True)
    return None


def _fault_of_number(value: Any) -> _Fault | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return None
    is_number = isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d+(\.\d+)?\s*", value) is not None
    return _Fault("number", "write it without quotes" if is_number else "a number is expected")


_SCALARS: Mapping[str, Callable[[Any], _Fault | None]] = {
    "bool": _fault_of_flag,
    "string": _fault_of_text,
    "Time": _fault_of_time,
    "Quantity": _fault_of_quantity,
    "int32": _fault_of_integer,
    "int64": partial(_fault_of_integer, bits=64),
    "number": _fault_of_number,
    "IntOrString": lambda value: None if isinstance(value, str) else _fault_of_integer(value),
}


def _of_decoder(field: _Field, value: Any, fault: _Fault) -> str:
    given, _ = _GIVEN[type(value)]
    number = f" {_shown(value)}" if fault.is_of_value else ""
    within, path = field.within.rpartition(".")[2], KEY.sub("", field.path)
    wanted = _in_go(fault.expected)
    return f"json: cannot unmarshal {given}{number} into Go struct field {within}.{path} of type {wanted}"


def _of_schema(field: _Field, value: Any, fault: _Fault) -> str:
    _, given = _GIVEN[type(value)]
    if fault.is_of_value and isinstance(value, int):
        return f"Invalid value: {_shown(value)}: {field.path} in body must be of type {fault.expected}"
    wanted = "array" if fault.expected.startswith(known_fields.LIST) else _IN_SCHEMAS.get(field.type, "object")
    return f'Invalid value: "{given}": {field.path} in body must be of type {wanted}: "{given}"'


def _in_go(kind: str) -> str:
    """Return how Go names a type: `[]v1.Container`, `map[string]string`."""
    if kind.startswith(known_fields.LIST):
        return f"[]{_in_go(kind[2:])}"
    if kind.startswith(known_fields.MAPPING):
        return f"map[string]{_in_go(kind[2:])}"
    if kind == "Quantity":
        return "resource.Quantity"
    return kind if kind in known_fields.SCALARS else ".".join(kind.split(".")[-2:])


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    cut = text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
    return f'"{cut}"' if isinstance(value, str) else cut
