"""Files beside a model that others wrote: read whole, by the rules of their own formats."""

from __future__ import annotations

import json
from pathlib import Path

from kvg import canon, durable
from kvg.errors import Corrupt
from kvg.objects.manifest import FloatJson

MAX_FILE_BYTES = 256 << 20


def json_file(path: Path) -> FloatJson:
    """Foreign JSON with floats, duplicate keys refused. Raises ``NotFound`` and ``Corrupt``."""
    data = read_file(path)
    try:
        return json.loads(data, object_pairs_hook=canon.unique)  # type: ignore[no-any-return]
    except (ValueError, RecursionError) as error:
        raise Corrupt(
            f"{path}: malformed JSON: {error}", hint="the file is damaged: copy it again"
        ) from None


def read_file(path: Path) -> bytes:
    """The bytes of the file ``path``. Raises ``NotFound``, and ``Corrupt`` when it is too large."""
    with durable.translated(path), open(path, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise Corrupt(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    return data


def first_line(error: Exception) -> str:
    """The first line of what ``error`` says, cut short; its kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
