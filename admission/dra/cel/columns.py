"""What a program says of all devices of a slice, as sets of bits: bit i stands for the device at place i.

The sweep first, where the program has one; then the exact tier for the devices that the sweep left in doubt, or whose
names are written in a way that sweeps do not read.
"""

from typing import NamedTuple

from admission.api.devices import Device, Slice, Version
from admission.dra.cel import programs
from admission.dra.cel.failures import EvaluationError
from admission.dra.cel.readings import Readings

_PLAIN: frozenset[type] = frozenset({str, int, bool})
_READ = _PLAIN | {Version}


class Standing(NamedTuple):
    """How the devices of a slice can be read.

    unreadable: every text fails there; odd: a name is qualified with the driver's own domain, so that it may be written
    twice.
    """

    unreadable: int
    odd: int


def standing(slice_: Slice, readings: Readings, *, lists: bool) -> Standing:
    """Look at all names and values of a slice's devices, once for all texts."""
    unreadable = odd = 0
    prefix = f"{slice_.driver}/"
    bit = 1
    for device in slice_.devices:
        if not _is_readable(device, slice_.driver, readings, lists=lists):
            unreadable |= bit
        if prefix in "\n".join(device.attributes) or prefix in "\n".join(device.capacity):
            odd |= bit
        bit <<= 1
    return Standing(unreadable, odd)


def _is_readable(device: Device, driver: str, readings: Readings, *, lists: bool) -> bool:
    classes = set(map(type, device.attributes.values()))
    try:
        for amount in device.capacity.values():
            readings.amounts[amount.text]
        if classes <= _PLAIN:
            return True
        if not classes <= _READ:
            return isinstance(programs.device_value(driver, device, lists=lists), programs.DeviceValue)
        for value in device.attributes.values():
            if type(value) is Version:
                readings.versions[value]
    except EvaluationError:
        return False
    return True


class Values:
    """The devices of one slice as the exact tier sees them, built when asked for. Kept while columns are made."""

    def __init__(self, slice_: Slice, *, lists: bool) -> None:
        self.slice = slice_
        self._lists = lists
        self._built: dict[int, programs.DeviceValue | programs.UnreadableDevice] = {}

    def at(self, place: int) -> programs.DeviceValue | programs.UnreadableDevice:
        """Return the device at a place."""
        if place not in self._built:
            device = self.slice.devices[place]
            self._built[place] = programs.device_value(self.slice.driver, device, lists=self._lists)
        return self._built[place]


def fill(program: programs.Program, values: Values, known: Standing) -> tuple[int, int]:
    """Return the devices on which the program holds, and those on which it fails."""
    everyone = (1 << len(values.slice.devices)) - 1
    yes, doubt = 0, everyone
    if program.sweep is not None:
        yes, doubt = program.sweep.over(values.slice.devices, values.slice.driver)
        yes, doubt = yes & ~(known.unreadable | known.odd), doubt | known.odd
    bad, doubt = known.unreadable, doubt & ~known.unreadable
    while doubt:
        bit = doubt & -doubt
        doubt ^= bit
        try:
            if program.evaluate(values.at(bit.bit_length() - 1)) is True:
                yes |= bit
        except EvaluationError:
            bad |= bit
    return yes, bad
