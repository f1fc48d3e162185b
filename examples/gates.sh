#!/usr/bin/env bash
# Answers checked by machine: a contract's summary, an SQL query, a locked dependency. Needs bubblewrap.
# With the folder of a model each is also deposited, signed and used:   examples/gates.sh [MODEL_FOLDER]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
lock="$here/../constraints.txt"
pin="$(grep -m 1 '^rich==' "$lock")"
figures="cmd:python3 check_figures.py"
rows="cmd:python3 check_sql.py sales.sql sales-key.json"
locked="cmd:python3 check_pin.py"
model="${1:+$(cd "$1" && pwd)}"
cd "$here/gates"

kvg gate run "$figures" --file contract.txt --answer-file contract-summary.txt
kvg gate run "$rows" --file sales-question.txt --answer-file sales-answer.sql
kvg gate run "$locked" --file "$lock" --answer "$pin"

# What is wrong is refused, with the reason and exit code 8.
kvg gate run "$figures" --file contract.txt --answer "The price is 85.40 euro a housing." || test $? -eq 8
kvg gate run "$locked" --file "$lock" --answer "rich==0.1" || test $? -eq 8

test -n "$model" || exit 0
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
export KVG_STORE="$folder/.kvg"
kvg -q -C "$folder" init
kvg -q model add m "$model"

deposit() { # REF QUESTION ANSWER GATE: a chat whose last message is the answer that is judged
  python3 -c 'import json, sys
print(json.dumps([{"role": r, "content": c} for r, c in zip(("user", "assistant"), sys.argv[1:])]))' \
    "$2" "$3" > "$folder/$1.json"
  kvg -q deposit "$1" --chat "$folder/$1.json" --gate "$4"
}
deposit contract "$(cat contract.txt)" "$(cat contract-summary.txt)" "$figures"
deposit sales "$(cat sales-question.txt)" "$(cat sales-answer.sql)" "$rows"
deposit rich "$(cat "$lock")" "$pin" "$locked"

# A wrong one leaves no artifact, only its evidence; what is there can be used under a policy.
deposit wrong "$(cat contract.txt)" "The price is 85.40 euro a housing." "$figures" || test $? -eq 8
kvg verify contract sales rich --require test
kvg ask contract "How long is the warranty? Answer in a few words." --require test
