"""Columns: what texts say of a slice's devices, folded in order and remembered by the slice's version."""

import dataclasses
from fractions import Fraction

import pytest

from admission.api.kubernetes import devices
from admission.api.kubernetes.meta import Meta
from admission.api.values.names import Uid
from admission.device_cel import environment
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.inventory.selectors import Column, Selectors

D = 'device.attributes["d.example.com"]'
ODD = f"{D}.index % 2 == 1"
LARGE = f"{D}.index > 1"
SPARSE = f'{D}.model == "T4"'
"""Fails on the devices that have no model."""

BROKEN = "1 +"


def a_device(index: int) -> devices.Device:
    model: dict[str, devices.AttributeValue | None] = {"model": "T4"} if index == 3 else {}
    return devices.Device(name=f"gpu-{index}", attributes={"index": index, **model})


def a_slice(count: int = 4, *, uid: str = "", version: str = "") -> devices.Slice:
    return devices.Slice(
        meta=Meta(name="s", uid=Uid(uid), resource_version=version),
        driver="d.example.com",
        pool="p",
        generation=1,
        slice_count=1,
        devices=tuple(map(a_device, range(count))),
    )


def of_memory(amount: str) -> devices.Slice:
    """Return a slice of one device with a capacity, always of the same version."""
    capacity = {"memory": devices.Capacity(value=Fraction(amount), text=amount)}
    return dataclasses.replace(a_slice(uid="u", version="1"), devices=(devices.Device(name="x", capacity=capacity),))


FOLDED: dict[str, tuple[tuple[str, ...], Column]] = {
    "no texts hold on every device": ((), Column(0b1111, 0)),
    "a text holds on some": ((ODD,), Column(0b1010, 0)),
    "texts must hold together": ((ODD, LARGE), Column(0b1000, 0)),
    "an error is no answer": ((SPARSE,), Column(0b1000, 0b0111)),
    "an error behind a false text is not reached": ((LARGE, SPARSE), Column(0b1000, 0b0100)),
    "an error before a false text counts": ((SPARSE, LARGE), Column(0b1000, 0b0111)),
    "what does not compile fails everywhere": ((BROKEN,), Column(0, 0b1111)),
    "what does not compile is not reached behind false": ((LARGE, BROKEN), Column(0, 0b1100)),
}


@pytest.mark.parametrize(("texts", "column"), FOLDED.values(), ids=FOLDED)
def test_columns_are_folded_in_order(texts: tuple[str, ...], column: Column) -> None:
    assert Selectors().column(texts, a_slice()) == column


def test_a_slice_without_devices_has_empty_columns() -> None:
    assert Selectors().column((ODD,), a_slice(0)) == Column(0, 0)


def test_errors_name_the_text_the_device_and_the_reason() -> None:
    selectors = Selectors()

    assert selectors.error((LARGE, SPARSE), a_slice(), 2) == (
        f"selector {SPARSE!r} fails on device d.example.com/p/gpu-2: no such key: model"
    )
    assert "does not compile: 1:" in selectors.error((BROKEN,), a_slice(), 0)


def test_a_selector_answers_for_a_single_device_as_for_its_column() -> None:
    selectors, slice_ = Selectors(), a_slice()
    answers = [
        selectors.answer((LARGE, SPARSE), InventoryDevice(devices.DeviceId("", "", ""), device, slice_, at, True, True))
        for at, device in enumerate(slice_.devices)
    ]

    assert answers == [False, False, selectors.error((LARGE, SPARSE), slice_, 2), True]


def test_a_seen_slice_is_not_evaluated_again() -> None:
    selectors, slice_ = Selectors(), a_slice(uid="u", version="1")

    first = selectors.column((ODD, LARGE), slice_)
    read_again = dataclasses.replace(slice_)

    assert selectors.column((ODD, LARGE), slice_) is first
    assert selectors.column((ODD, LARGE), read_again) is first


def test_a_new_version_is_evaluated() -> None:
    selectors = Selectors()

    assert selectors.column((ODD,), a_slice(4, uid="u", version="1")) == Column(0b1010, 0)
    assert selectors.column((ODD,), a_slice(2, uid="u", version="2")) == Column(0b10, 0)


def test_a_version_that_says_something_else_is_read_again() -> None:
    """Manifests written by hand may repeat a UID."""
    selectors = Selectors()

    assert selectors.column((ODD,), a_slice(4, uid="u", version="1")) == Column(0b1010, 0)
    assert selectors.column((ODD,), a_slice(2, uid="u", version="1")) == Column(0b10, 0)


def test_a_capacity_that_was_changed_under_the_same_version_is_read_again() -> None:
    selectors, large = Selectors(), 'device.capacity["d.example.com"].memory.isGreaterThan(quantity("50"))'

    assert selectors.column((large,), of_memory("40")) == Column(0b0, 0)
    assert selectors.column((large,), of_memory("80")) == Column(0b1, 0)


@pytest.mark.parametrize(
    ("profile", "column"),
    [
        (environment.Profile(release=36), Column(0, 0b1)),
        (environment.Profile(release=36, lists=True), Column(0b1, 0)),
        (environment.Profile(release=37), Column(0b1, 0)),
    ],
    ids=["1.36", "1.36 with its gate", "1.37"],
)
def test_lists_are_read_as_the_profile_says(profile: environment.Profile, column: Column) -> None:
    slice_ = dataclasses.replace(a_slice(0), devices=(devices.Device(name="x", attributes={"all": ("a", "b")}),))

    assert Selectors(profile).column(("true",), slice_) == column
