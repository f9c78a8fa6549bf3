"""Seats and holdings as text: JSON with sorted keys and no blanks.

Amounts are decimal strings, since many readers of JSON round numbers beyond 2^53.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Holding, Seat
from admission.api.values.names import MeterName, NodeName, Uid

_compact = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def compact(value: Any) -> str:
    """Return the JSON of a value in the form that rows store."""
    return _compact(value).decode()


def text(value: Any) -> str:
    """Return the JSON of a value in ASCII, which transactions of format 1 hash."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def of_seats(seats: Iterable[Seat]) -> list[Any]:
    return [
        {
            **({"asked_as": seat.asked_as} if seat.asked_as else {}),
            "claims": list(seat.claims),
            "node": seat.node,
            "pod": seat.pod,
            "pod_uid": seat.pod_uid,
        }
        for seat in seats
    ]


def of_holdings(holdings: Iterable[Holding]) -> list[Any]:
    return [
        {
            "charge": of_charge(holding.charge),
            "claim": holding.claim,
            "claim_uid": holding.claim_uid,
            **({"classes": dict(holding.classes)} if holding.classes else {}),
            "devices": of_devices(holding.devices),
            "settled": holding.settled,
        }
        for holding in holdings
    ]


def of_charge(charge: Mapping[MeterName, int]) -> dict[str, str]:
    return {meter: str(amount) for meter, amount in charge.items()}


def of_devices(devices: Iterable[RequestDevice]) -> list[list[str]]:
    return [[device.request, *device.device] for device in devices]


def seats(encoded: str) -> tuple[Seat, ...]:
    return tuple(
        Seat(
            pod_uid=Uid(seat["pod_uid"]),
            pod=seat["pod"],
            node=NodeName(seat["node"]),
            claims=tuple(Uid(claim) for claim in seat["claims"]),
            asked_as=NodeName(seat.get("asked_as", "")),
        )
        for seat in _decode(encoded)
    )


def holdings(encoded: str) -> tuple[Holding, ...]:
    return tuple(
        Holding(
            claim_uid=Uid(holding["claim_uid"]),
            claim=holding["claim"],
            devices=_devices(holding["devices"]),
            charge=_charge(holding["charge"]),
            classes=_classes(holding.get("classes", {})),
            settled=holding["settled"],
        )
        for holding in _decode(encoded)
    )


def uids(encoded: str) -> tuple[Uid, ...]:
    return tuple(Uid(uid) for uid in _decode(encoded))


def devices(encoded: str) -> tuple[RequestDevice, ...]:
    return _devices(_decode(encoded))


def charge(encoded: str) -> dict[MeterName, int]:
    return _charge(_decode(encoded))


def classes(encoded: str) -> dict[str, int]:
    return _classes(_decode(encoded))


def _devices(items: Iterable[list[str]]) -> tuple[RequestDevice, ...]:
    return tuple(RequestDevice(request=request, device=DeviceId(*device)) for request, *device in items)


def _charge(items: Mapping[str, str]) -> dict[MeterName, int]:
    return {MeterName(meter): int(amount) for meter, amount in items.items()}


def _classes(items: Mapping[str, int]) -> dict[str, int]:
    return {name: int(number) for name, number in items.items()}
