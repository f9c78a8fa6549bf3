"""CEL: the time of a selector on a device, the first time and when its slice has been seen, and what stays in memory.

One process, one core: processor time, medians of rounds. cel-go needs 4.7 to 7.0 µs a device for such selectors.
"""

import gc
import math
import statistics
import time
import tracemalloc
from fractions import Fraction
from typing import Any

from rich.table import Table

from admission.api.kubernetes import devices
from admission.api.kubernetes.meta import Meta
from admission.device_cel import programs
from admission.dra.inventory.selectors import Selectors, Texts

DRIVER = "gpu.nvidia.com"
SIZES = (1_000, 10_000, 40_000)
MEASURED = 10_000
"""The number of devices for which goals are set."""

FIRST_GOAL = 2.0
SEEN_GOAL = 0.05
PER_SLICE = 64

_D = f'device.attributes["{DRIVER}"]'
SELECTORS = {
    "driver and an equality": f'device.driver == "{DRIVER}" && {_D}.brand == "Nvidia"',
    "two equalities": f'{_D}.model == "NVIDIA A100" && {_D}.ecc == true',
    "capacity": f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0',
    "version": f'{_D}.driverVersion.compareTo(semver("560.0.0")) >= 0',
    "in a list": f'{_D}.model in ["NVIDIA A100", "NVIDIA H100"]',
    "pattern": f'{_D}.model.matches("^NVIDIA (A|H)100")',
    "pattern on UUIDs": f'{_D}.uuid.matches("^GPU-0000.*7$")',
    "macro, exact tier": f'["NVIDIA A100", "NVIDIA H100"].exists(m, {_D}.model == m)',
}
TYPICAL = tuple(SELECTORS)[:6]
"""Those for which there are goals."""


def measure(rounds: int) -> dict[str, Any]:
    """Return microseconds a device, growth exponents, milliseconds of compiling and bytes a slice."""
    programs.compile_device("true")
    rows = {name: _measured((text,), rounds) for name, text in SELECTORS.items()}
    return {
        "rounds": rounds,
        "selectors": rows,
        "compile_ms": _compile_ms(rounds),
        "bytes_per_slice": _bytes_per_slice(),
        "met": all(rows[name]["first_us"] <= FIRST_GOAL and rows[name]["seen_us"] <= SEEN_GOAL for name in TYPICAL),
    }


def table(result: dict[str, Any]) -> Table:
    made = Table(title=f"CEL over {MEASURED:,} devices, medians of {result['rounds']} rounds")
    for column in ("selector", "first µs", "seen µs", "growth first", "growth seen"):
        made.add_column(column, justify="right" if column != "selector" else "left")
    for name, row in result["selectors"].items():
        numbers = (f"{row['first_us']:.2f}", f"{row['seen_us']:.4f}", f"n^{row['first_growth']:.2f}")
        made.add_row(name, *numbers, f"n^{row['seen_growth']:.2f}")
    made.add_section()
    made.add_row("compiling one, ms", f"{result['compile_ms']:.2f}")
    made.add_row(f"bytes a slice of {PER_SLICE}, all columns", f"{result['bytes_per_slice']:.0f}")
    made.add_row("", "goals met" if result["met"] else "goals missed")
    return made


def slices(count: int) -> list[devices.Slice]:
    """Return slices with so many GPUs in all, full ones and one that holds the rest."""
    return [
        devices.Slice(
            meta=Meta(name=f"slice-{start}"),
            driver=DRIVER,
            pool=f"pool-{start}",
            generation=1,
            slice_count=1,
            devices=tuple(_gpu(number) for number in range(start, min(start + PER_SLICE, count))),
        )
        for start in range(0, count, PER_SLICE)
    ]


def _gpu(number: int) -> devices.Device:
    newer = number % 2 == 1
    return devices.Device(
        name=f"gpu-{number}",
        attributes={
            "model": "NVIDIA H100" if newer else "NVIDIA A100",
            "brand": "Nvidia",
            "index": number % 8,
            "uuid": f"GPU-{number:08x}-0000-{number % 97:02d}",
            "driverVersion": devices.Version("570.86.15"),
            "cudaComputeCapability": devices.Version("9.0.0" if newer else "8.0.0"),
            "resource.kubernetes.io/pcieRoot": f"pci0000:{number % 8:02x}",
            "ecc": True,
        },
        capacity={"memory": devices.Capacity(value=Fraction(80 * 2**30), text="80Gi" if newer else "40Gi")},
    )


def _measured(texts: Texts, rounds: int) -> dict[str, float]:
    first: dict[int, float] = {}
    seen: dict[int, float] = {}
    for count in SIZES:
        made = slices(count)
        pairs = [_round(texts, made) for _ in range(rounds)]
        first[count] = statistics.median(pair[0] for pair in pairs)
        seen[count] = statistics.median(pair[1] for pair in pairs)
    return {
        "first_us": first[MEASURED] / MEASURED * 1e6,
        "seen_us": seen[MEASURED] / MEASURED * 1e6,
        "first_growth": _growth(first),
        "seen_growth": _growth(seen),
    }


def _round(texts: Texts, made: list[devices.Slice]) -> tuple[float, float]:
    selectors = Selectors()
    selectors.column(texts, slices(1)[0])
    gc.collect()
    start = time.process_time()
    for slice_ in made:
        selectors.column(texts, slice_)
    between = time.process_time()
    for slice_ in made:
        selectors.column(texts, slice_)
    return between - start, time.process_time() - between


def _growth(times: dict[int, float]) -> float:
    """Return the exponent of the time's growth with the number of devices, from the smallest to the largest."""
    least, most = min(times), max(times)
    return math.log(times[most] / times[least]) / math.log(most / least)


def _compile_ms(rounds: int) -> float:
    def once(number: int) -> float:
        start = time.process_time()
        Selectors().column((f"{SELECTORS['two equalities']} && {_D}.index != {number}",), slices(1)[0])
        return time.process_time() - start

    return statistics.median(once(number) for number in range(rounds * 10)) * 1e3


def _bytes_per_slice() -> float:
    """Return what the columns of all selectors, and of all of them folded, keep for one slice."""
    made, selectors = slices(MEASURED), Selectors()
    texts = tuple(SELECTORS[name] for name in TYPICAL)
    selectors.column(texts, slices(1)[0])
    tracemalloc.start()
    for slice_ in made:
        selectors.column(texts, slice_)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / len(made)
