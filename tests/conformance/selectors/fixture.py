"""The devices and amounts that random expressions are about."""

from collections.abc import Sequence

from tests.conformance.corpus import Record

OWN = '"gpu.example.com"'
ATTRIBUTES = f"device.attributes[{OWN}]"
CAPACITY = f"device.capacity[{OWN}]"

DEVICE: Record = {
    "driver": "gpu.example.com",
    "attributes": {
        "name": {"string": "fish"},
        "count": {"int": 3},
        "on": {"bool": True},
        "rel": {"version": "1.2.3"},
        "other.example.com/name": {"string": "x"},
        "zero": {"int": 0},
    },
    "capacity": {
        "mem": {"value": "80Gi"},
        "max": {"value": "9223372036854775807"},
        "neg": {"value": "-9223372036854775808"},
        "dec": {"value": "0.5"},
        "huge": {"value": "1e30"},
        "pi": {"value": "8Ei"},
        "other.example.com/slots": {"value": "8"},
    },
}

AMOUNTS = (
    *("0m", "0.0", "0.00000000000", "00", "1", "0", "-1", "0.5", "1n", "-1n", "0.1n", "1500m", "1k", "1Ki", "1.5Gi"),
    *("9223372036854775806", "9223372036854775807", "9223372036854775808", "-9223372036854775807"),
    *("-9223372036854775808", "9223372036854775807m", "9223372036854775807n", "4611686018427387904"),
    *(
        "-4611686018427387905",
        "922337203685477580",
        "922337203685477581k",
        "922337203685477580e1",
        "999999999999999999",
    ),
    *("999999999999999999n", "-999999999999999999E", "12345678901234567890", "922337203685477580.7k"),
    *("4Ei", "7Ei", "8Ei", "-8Ei", "9E", "9.2E", "9.3E", "10E", "100E", "1e18", "9e18", "1e30"),
)

WITH_LISTS: Record = {
    **DEVICE,
    "allowMultipleAllocations": True,
    "attributes": {
        **DEVICE["attributes"],
        "names": {"strings": ["a", "b", "fish"]},
        "counts": {"ints": [1, 2, 3]},
        "flags": {"bools": [True, False]},
        "rels": {"versions": ["1.2.3", "2.0.0"]},
    },
}
WITHOUT_VALUE: Record = {**DEVICE, "attributes": {"name": {}, "count": {"int": 1}}}
BAD_VERSION: Record = {**DEVICE, "attributes": {"rel": {"version": "1.2"}, "on": {"bool": False}}}
BARE: Record = {"driver": "bare.example.com", "attributes": {}, "capacity": {}}

DEVICES: Sequence[Record] = (*(DEVICE,) * 12, *(WITH_LISTS,) * 4, WITHOUT_VALUE, BAD_VERSION, BARE)
"""Mostly the plain one."""
