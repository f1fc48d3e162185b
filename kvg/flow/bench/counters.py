"""Counters of energy: RAPL of the processor, NVML of the graphics cards; nothing where none is."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass(slots=True)
class Energy:
    """What the counters say was used; ``joules`` None where there are none."""

    joules: float | None = None
    counter: str | None = None


@contextmanager
def counted(powercap: Path = POWERCAP) -> Iterator[Energy]:
    """Count over the time of the ``with`` block; the value is filled in at its end."""
    found = Energy()
    before_cpu, before_gpu = _rapl(powercap), _nvml()
    yield found
    used: dict[str, float] = {}
    if before_cpu:
        used["rapl"] = _used(before_cpu, _rapl(powercap))
    if before_gpu:
        used["nvml"] = (sum(_nvml()) - sum(before_gpu)) / 1e3
    if used:
        found.joules = sum(used.values())
        found.counter = "+".join(used)


def _rapl(powercap: Path) -> dict[Path, tuple[int, int]]:
    """Microjoules of each processor package, and where its counter begins anew."""
    found = {}
    for zone in sorted(powercap.glob("intel-rapl:*")):
        if zone.name.count(":") != 1:
            continue  # a part of a package
        try:
            value = int((zone / "energy_uj").read_text())
            found[zone] = (value, int((zone / "max_energy_range_uj").read_text()))
        except (OSError, ValueError):
            continue
    return found


def _used(before: dict[Path, tuple[int, int]], after: dict[Path, tuple[int, int]]) -> float:
    """Joules between two readings; a counter that began anew once is understood."""
    total = 0
    for zone, (value, most) in before.items():
        later = after.get(zone, (value, most))[0]
        total += later - value if later >= value else later + most - value
    return total / 1e6


def _nvml() -> list[int]:
    """Millijoules of each card since its driver was loaded."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if library.nvmlInit_v2():
        return []
    count, found = ctypes.c_uint(), []
    if not library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        for index in range(count.value):
            card, value = ctypes.c_void_p(), ctypes.c_ulonglong()
            if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(card)):
                continue
            if not library.nvmlDeviceGetTotalEnergyConsumption(card, ctypes.byref(value)):
                found.append(value.value)
    library.nvmlShutdown()
    return found
