"""Protocol buffer messages that an expression may build: the well-known types, `google.protobuf.Int64Value{value: 5}`.

All but Empty become plain values at once, as with cel-go's adapter (common/types/provider.go, v0.26). Integers within
Struct, Value and ListValue become doubles, those beyond 2^53 strings.
"""

import base64
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from admission.cel.core import arithmetic, errors, literals, types, values
from admission.cel.core.types import Type
from admission.cel.library import conversions, times

Fields = Mapping[str, Any]
_MAP = types.map_of(types.STRING, types.DYN)
_LIST = types.list_of(types.DYN)
_JSON_INT = 2**53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message type. result_type: the type of an expression that builds one; build: returns its value."""

    fields: Mapping[str, Type]
    result_type: Type
    build: Callable[[Fields], Any]


def _wrapper(type_: Type, read: Callable[[Any], Any], zero: Any) -> Message:
    def build(fields: Fields) -> Any:
        return read(fields["value"]) if "value" in fields else zero

    return Message(fields={"value": type_}, result_type=types.wrapper_of(type_), build=build)


def _wrong(value: Any) -> errors.EvaluationError:
    return errors.EvaluationError(f"field type conversion error: value type {values.type_name(value)}")


def _exactly(type_: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not type_:
            raise _wrong(value)
        return value

    return read


def _int32(value: Any) -> int:
    if type(value) is not int:
        raise _wrong(value)
    if not -(2**31) <= value < 2**31:
        raise errors.EvaluationError("integer overflow")
    return value


def _uint32(value: Any) -> values.Uint:
    if type(value) is not values.Uint:
        raise _wrong(value)
    if value >= 2**32:
        raise errors.EvaluationError("unsigned integer overflow")
    return value


def _single(value: Any) -> float:
    """Round to the nearest 32-bit float."""
    if type(value) is not float:
        raise _wrong(value)
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _duration(fields: Fields) -> values.Duration:
    total = _exactly(int)(fields.get("seconds", 0)) * times.SECOND + _int32(fields.get("nanos", 0))
    return values.Duration(max(literals.INT_MIN, min(total, literals.INT_MAX)))


def _timestamp(fields: Fields) -> values.Timestamp:
    return values.Timestamp(_exactly(int)(fields.get("seconds", 0)) * times.SECOND + _int32(fields.get("nanos", 0)))


def _struct(fields: Fields) -> Any:
    return _json(_map(fields["fields"])) if "fields" in fields else {}


def _list_value(fields: Fields) -> Any:
    return _json(_exactly(tuple)(fields["values"])) if "values" in fields else ()


def _value(fields: Fields) -> Any:
    """Return the value of the last field that is set: they are a oneof."""
    result: Any = None
    for name, value in fields.items():
        result = _VALUE_READERS[name](value)
    return result


def _map(value: Any) -> Any:
    if type(value) not in values.MAPS:
        raise _wrong(value)
    return value


_VALUE_READERS: Mapping[str, Callable[[Any], Any]] = {
    "null_value": lambda _: None,
    "bool_value": _exactly(bool),
    "number_value": _exactly(float),
    "string_value": _exactly(str),
    "struct_value": lambda value: _json(_map(value)),
    "list_value": lambda value: _json(_exactly(tuple)(value)),
}


def _json(value: Any) -> Any:
    """Return a value after a round trip through JSON."""
    match value:
        case None | bool() | float() | str():
            return value
        case int():
            return float(value) if abs(value) <= _JSON_INT else str(int(value))
        case bytes():
            return base64.b64encode(value).decode()
        case tuple():
            return tuple(map(_json, value))
        case dict():
            return {conversions.to_string(values.from_key(key)): _json(element) for key, element in value.items()}
        case values.Duration() | values.Timestamp():
            return conversions.to_string(value)
        case _:
            raise _wrong(value)


def _any(_: Fields) -> Any:
    raise errors.EvaluationError("unsupported conversion: Muster reads no packed messages")


MESSAGES: Mapping[str, Message] = MappingProxyType(
    {
        "google.protobuf.BoolValue": _wrapper(types.BOOL, _exactly(bool), zero=False),
        "google.protobuf.BytesValue": _wrapper(types.BYTES, _exactly(bytes), zero=b""),
        "google.protobuf.DoubleValue": _wrapper(types.DOUBLE, _exactly(float), zero=0.0),
        "google.protobuf.FloatValue": _wrapper(types.DOUBLE, _single, zero=0.0),
        "google.protobuf.Int32Value": _wrapper(types.INT, _int32, zero=0),
        "google.protobuf.Int64Value": _wrapper(types.INT, _exactly(int), zero=0),
        "google.protobuf.StringValue": _wrapper(types.STRING, _exactly(str), zero=""),
        "google.protobuf.UInt32Value": _wrapper(types.UINT, _uint32, zero=arithmetic.checked_uint(0)),
        "google.protobuf.UInt64Value": _wrapper(types.UINT, _exactly(values.Uint), zero=arithmetic.checked_uint(0)),
        "google.protobuf.Duration": Message(
            fields={"seconds": types.INT, "nanos": types.INT}, result_type=types.DURATION, build=_duration
        ),
        "google.protobuf.Timestamp": Message(
            fields={"seconds": types.INT, "nanos": types.INT}, result_type=types.TIMESTAMP, build=_timestamp
        ),
        "google.protobuf.Struct": Message(fields={"fields": _MAP}, result_type=_MAP, build=_struct),
        "google.protobuf.ListValue": Message(fields={"values": _LIST}, result_type=_LIST, build=_list_value),
        "google.protobuf.Value": Message(
            fields={
                "null_value": types.INT,
                "bool_value": types.BOOL,
                "number_value": types.DOUBLE,
                "string_value": types.STRING,
                "struct_value": _MAP,
                "list_value": _LIST,
            },
            result_type=types.DYN,
            build=_value,
        ),
        "google.protobuf.Any": Message(
            fields={"type_url": types.STRING, "value": types.BYTES}, result_type=types.ANY, build=_any
        ),
        "google.protobuf.Empty": Message(fields={}, result_type=types.EMPTY, build=lambda _: values.Empty()),
    }
)


ENUM_VALUES: Mapping[str, int] = MappingProxyType({"google.protobuf.NullValue.NULL_VALUE": 0})
"""The constants of enumerations in the files of the well-known types (common/types/pb/pb.go), which are ints."""


def unknown(name: str, fields: Mapping[str, Type], type_: Type) -> Message:
    """Return a declared object type, of which an expression cannot build a message."""

    def build(_: Fields) -> Any:
        raise errors.EvaluationError(f"unknown type {name!r}")

    return Message(fields=fields, result_type=type_, build=build)
