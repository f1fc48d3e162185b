"""Work in a forked child, so that the most memory it takes can be told from all that came before.

``ru_maxrss`` only grows: in a process that once took much, a later leak does not show. A child's
starts at what it has when it is made.
"""

from __future__ import annotations

import json
import os
import resource
import traceback
from collections.abc import Callable
from typing import Any


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_child(work: Callable[[], Any]) -> tuple[Any, int]:
    """What ``work`` gives (values of JSON), and by how many KB the child grew at most while it ran.

    Raises ``AssertionError`` with the child's traceback when ``work`` raises.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        before = peak_kb()
        try:
            told: tuple[bool, Any] = (True, work())
        except BaseException:  # noqa: BLE001  told to the parent
            told = (False, traceback.format_exc())
        with open(writing, "w", encoding="utf-8") as pipe:
            json.dump((*told, peak_kb() - before), pipe)
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not data:
        raise AssertionError(f"the child ended with status {status}")
    is_done, value, grown_kb = json.loads(data)
    if not is_done:
        raise AssertionError(value)
    return value, grown_kb
