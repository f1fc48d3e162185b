"""Ask a session through the OpenAI API, with the stock ``openai`` package.

    kvg session start open --tcp 0
    python openai_client.py open REF "What is it about?"

The address and the token are those that ``kvg session list`` tells; the one extra field names the
ref whose stored state is grafted before the question.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import openai


def session_named(name: str) -> dict[str, str]:
    """What ``kvg session list`` says of the session."""
    done = subprocess.run(
        ["kvg", "session", "list", "--json"], check=True, capture_output=True, text=True
    )
    records = map(json.loads, done.stdout.splitlines())
    return next(record for record in records if record["name"] == name)


def main(name: str, ref: str, question: str) -> int:
    session = session_named(name)
    token = Path(session["token_file"]).read_text().strip()
    client = openai.OpenAI(base_url=session["tcp"], api_key=token)
    stream = client.chat.completions.create(
        model=session["model"],
        messages=[{"role": "user", "content": question}],
        max_tokens=24,
        stream=True,
        extra_body={"kvg_ref": ref},
    )
    graft = None
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        graft = (chunk.model_extra or {}).get("kvg", graft)
    print()
    if not graft or not graft[0]["exact"]:
        print("not exact", file=sys.stderr)
        return 1
    print(f"{graft[0]['saved_tokens']} tokens restored, exact")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
