"""One text, one manifest: whoever deposits it, in whatever steps, in whatever process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvg.errors import NotFound
from kvg.flow.deposit import deposit
from kvg.flow.logits import logits
from kvg.flow.requests import DepositRequest, LogitsRequest
from tests import models

FAMILIES = ("llama", "gemma3")
PARENTS = (1, 200, 256, 300, 512)


@pytest.mark.parametrize("reference", ["invariant", "scheduled"])
@pytest.mark.parametrize("family", FAMILIES)
def test_two_stores_two_keys_whole_or_by_parent_with_or_without_source(
    tmp_path: Path, tiny: dict[str, Path], family: str, reference: str
) -> None:
    text = models.text_of(tiny[family], 600)
    tokenizer = models.tokenizer(tiny[family])
    ids = tokenizer.encode(text)
    alice = models.User.make(tmp_path / "alice")
    alice.add("tiny", tiny[family])
    whole = deposit(
        alice.store,
        alice.settings,
        DepositRequest("whole", text=text, reference=reference),  # type: ignore[arg-type]
    )
    assert whole.tokens_computed == 600
    for n in PARENTS:
        start = tokenizer.decode(ids[:n])
        if tokenizer.encode(start) != ids[:n]:
            continue
        bob = models.User.make(tmp_path / f"bob{n}")
        bob.add("other-name", tiny[family])
        deposit(
            bob.store,
            bob.settings,
            DepositRequest("start", text=start, reference=reference),  # type: ignore[arg-type]
        )
        request = DepositRequest(
            "whole",
            text=text,
            parent="start",
            no_source=True,
            reference=reference,  # type: ignore[arg-type]
        )
        made = deposit(bob.store, bob.settings, request)
        assert made.digest == whole.digest, n
        assert made.attestation != whole.attestation
        if n % 256 == 0:
            assert made.tokens_computed == 600 - n
        grafted = logits(bob.store, bob.settings, LogitsRequest("whole", prompt=" x"))
        fresh = logits(alice.store, alice.settings, LogitsRequest("whole", prompt=" x", fresh=True))
        assert grafted.digest == fresh.digest


def test_a_stored_beginning_is_reused_without_being_named(
    user: models.User, tiny: dict[str, Path]
) -> None:
    text = models.text_of(tiny["llama"], 600)
    first = deposit(user.store, user.settings, DepositRequest("a", text=text))
    longer = models.text_of(tiny["llama"], 700)
    second = deposit(user.store, user.settings, DepositRequest("b", text=longer))
    assert (first.tokens_computed, second.tokens_computed) == (600, 100)
    again = deposit(user.store, user.settings, DepositRequest("c", text=text))
    assert (again.unchanged, again.tokens_computed, again.new_objects) == (True, 0, 0)
    assert user.store.ref("c") == first.digest
    with pytest.raises(NotFound, match="nope"):
        deposit(user.store, user.settings, DepositRequest("c", text=text, key="nope"))
    lone = models.User.make(user.folder / "lone")
    lone.add("tiny", tiny["llama"])
    assert (
        deposit(lone.store, lone.settings, DepositRequest("b", text=longer)).digest == second.digest
    )


DEPOSIT_TWICE = """
import sys
from pathlib import Path
from kvg.cli.main import main
sys.exit(main(["init"]) or main(["model", "add", "tiny", sys.argv[1]])
         or main(["deposit", "--json", "t", "f.md"])
         or main(["logits", "t", "--prompt", " x", "--json"]))
"""


def test_determinism_across_processes(tmp_path: Path, tiny: dict[str, Path]) -> None:
    found = []
    for seed in ("0", "4711"):
        folder = tmp_path / seed
        folder.mkdir()
        (folder / "f.md").write_text(models.text_of(tiny["gemma3"], 300))
        done = subprocess.run(
            [sys.executable, "-c", DEPOSIT_TWICE, str(tiny["gemma3"])],
            cwd=folder,
            env=models.program_env(folder, PYTHONHASHSEED=seed),
            capture_output=True,
            text=True,
            check=True,
        )
        records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        found.append([record["digest"] for record in records])
    assert found[0] == found[1]
    assert len(found[0]) == 2
