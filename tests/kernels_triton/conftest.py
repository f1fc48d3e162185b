"""The checks of the operators run in a process of their own, whose Triton interprets kernels.

``TRITON_INTERPRET`` has to be set before triton is imported, which in a whole test run may have
happened already: ``test_interpreter.py`` starts that process.
"""

from __future__ import annotations

import importlib.util
import os

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["interpreted_*.py"]
elif importlib.util.find_spec("triton"):
    from tests.kernels_triton.rowwise_dot import install

    install()
