"""kvg as a library: the flows behind the commands, their requests and their records.

    from pathlib import Path
    from kvg import api

    here = api.settings(Path("project"))
    api.init(here, None, bare=False)
    store = api.open_store(here)
    api.model_add(store, here, api.ModelAddRequest("smol", Path("models/smollm2")))
    made = api.deposit(store, here, api.DepositRequest("handbook", files=(Path("handbook.md"),)))
    (found,) = api.graft(store, here, api.GraftRequest("handbook", prompt="In short, "))
    print(found.text, found.exact, made.digest)

A flow takes the store, the settings and a request, and returns a record or yields records: frozen,
with the names that ``--json`` has. It prints nothing and never exits; each failure is a class of
``kvg.errors`` with the exit code that the command has. Nothing heavy is imported before a flow that
needs it runs: everything but deposit, graft, ask, logits, replay and a solve that has a model try
works where torch is absent.

Under which names the description that kvg started from has its notions:

| there | here |
|---|---|
| ``pageId``, ``sha256Payload`` | the digest of a page, in ``show(…).pages`` |
| ``problemFamilyHash`` | ``family`` of ``show``; its 32 digits are ``family_seed_hash`` |
| ``tokenCount`` | ``tokens["count"]`` of ``show`` |
| ``byteOffset``, ``byteSize`` | ``offset`` and ``size`` of a page |
| ``ropePositionRange`` | ``positions`` |
| ``quantization`` | ``dtype`` of a page, shown as FP16, BF16 or FP32 |
| ``VerificationArtifact`` | ``verification`` of ``show``: formalProofChecked, unitTestPass, |
| | consistencyGated, executionSignature; null where not run |
| ``GraftInjectionTarget`` | ref and positions of a ``GraftRequest``; the slot is the session's |
| ``commitVerifiedTraceKV`` | ``deposit`` with gates, ``solve_or_try`` with ``learn``: refused |
| | unless those that the store requires passed |
| ``graftIntoContext`` | ``graft``: ``status`` GRAFT_HIT or CACHE_MISS, ``latency_ms``, |
| | ``saved_tokens``, ``exact`` |
| ``CORRUPT_KV_PAGE`` | ``kvg.errors.Corrupt`` |
| ``REJECTED`` | ``kvg.errors.GateFailed`` |
| its folder of pages | the store: ``KVG_STORE``, or ``store_path`` of the settings |
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvg.flow.ask import ask
    from kvg.flow.attempt import SolveRequest, solve_or_try
    from kvg.flow.audit import audit
    from kvg.flow.clone import clone
    from kvg.flow.deposit import deposit
    from kvg.flow.family import hash_family, list_families, show_family
    from kvg.flow.gate import list_gates, run_gates
    from kvg.flow.gc import gc
    from kvg.flow.graft import graft
    from kvg.flow.init import init
    from kvg.flow.log import log
    from kvg.flow.logits import logits
    from kvg.flow.ls import ls
    from kvg.flow.method import MethodRequest, add_method, show_method
    from kvg.flow.model_add import model_add
    from kvg.flow.pull import pull
    from kvg.flow.push import push
    from kvg.flow.refs import mv, pin, rev_parse, rm, tag
    from kvg.flow.replay import replay
    from kvg.flow.requests import (
        AskRequest,
        DepositRequest,
        GraftRequest,
        LogitsRequest,
        ModelAddRequest,
        ReplayRequest,
        Sampling,
    )
    from kvg.flow.sandboxed import caller_of
    from kvg.flow.settings import Settings, open_store
    from kvg.flow.show import show
    from kvg.flow.solve import run_method, solve
    from kvg.flow.status import status
    from kvg.flow.verify import verify
    from kvg.report import Report
    from kvg.store import Store
    from kvg.verify.method import Verdicts

_HOMES = {
    "AskRequest": "kvg.flow.requests",
    "DepositRequest": "kvg.flow.requests",
    "GraftRequest": "kvg.flow.requests",
    "LogitsRequest": "kvg.flow.requests",
    "MethodRequest": "kvg.flow.method",
    "ModelAddRequest": "kvg.flow.requests",
    "ReplayRequest": "kvg.flow.requests",
    "Report": "kvg.report",
    "Sampling": "kvg.flow.requests",
    "Settings": "kvg.flow.settings",
    "SolveRequest": "kvg.flow.attempt",
    "Store": "kvg.store",
    "Verdicts": "kvg.verify.method",
    "add_method": "kvg.flow.method",
    "ask": "kvg.flow.ask",
    "audit": "kvg.flow.audit",
    "caller_of": "kvg.flow.sandboxed",
    "clone": "kvg.flow.clone",
    "deposit": "kvg.flow.deposit",
    "gc": "kvg.flow.gc",
    "graft": "kvg.flow.graft",
    "hash_family": "kvg.flow.family",
    "init": "kvg.flow.init",
    "list_families": "kvg.flow.family",
    "list_gates": "kvg.flow.gate",
    "log": "kvg.flow.log",
    "logits": "kvg.flow.logits",
    "ls": "kvg.flow.ls",
    "model_add": "kvg.flow.model_add",
    "mv": "kvg.flow.refs",
    "open_store": "kvg.flow.settings",
    "pin": "kvg.flow.refs",
    "pull": "kvg.flow.pull",
    "push": "kvg.flow.push",
    "replay": "kvg.flow.replay",
    "rev_parse": "kvg.flow.refs",
    "rm": "kvg.flow.refs",
    "run_gates": "kvg.flow.gate",
    "run_method": "kvg.flow.solve",
    "show": "kvg.flow.show",
    "show_family": "kvg.flow.family",
    "show_method": "kvg.flow.method",
    "solve": "kvg.flow.solve",
    "solve_or_try": "kvg.flow.attempt",
    "status": "kvg.flow.status",
    "tag": "kvg.flow.refs",
    "verify": "kvg.flow.verify",
}

__all__ = (
    "AskRequest",
    "DepositRequest",
    "GraftRequest",
    "LogitsRequest",
    "MethodRequest",
    "ModelAddRequest",
    "ReplayRequest",
    "Report",
    "Sampling",
    "Settings",
    "SolveRequest",
    "Store",
    "Verdicts",
    "add_method",
    "ask",
    "audit",
    "caller_of",
    "clone",
    "deposit",
    "gc",
    "graft",
    "hash_family",
    "init",
    "list_families",
    "list_gates",
    "log",
    "logits",
    "ls",
    "model_add",
    "mv",
    "open_store",
    "pin",
    "pull",
    "push",
    "replay",
    "rev_parse",
    "rm",
    "run_gates",
    "run_method",
    "settings",
    "show",
    "show_family",
    "show_method",
    "solve",
    "solve_or_try",
    "status",
    "tag",
    "verify",
)


def settings(folder: Path, *, keys: Path | None = None, store: Path | None = None) -> Settings:
    """The settings for work in ``folder``, whose nearest ``.kvg`` is the store unless it is named.

    ``keys`` is the folder of private keys, by default the one that the commands use. Environment
    variables are the command line's matter: make ``Settings`` for anything beyond this.
    """
    from kvg.flow.settings import Settings

    home = Path.home()
    return Settings(
        cwd=folder.absolute(),
        keys=keys or home / ".local/share/kvg/keys",
        cache=home / ".cache/kvg",
        user_config=home / ".config/kvg/config.toml",
        store_path=store,
    )


def __getattr__(name: str) -> object:
    """Import a name's module when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(_HOMES[name]), name)
