#!/usr/bin/env bash
# Answers checked by machine: a contract's summary, an SQL query, a locked dependency. Needs bubblewrap.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/gates"

kvg gate run "cmd:python3 check_figures.py" --file contract.txt --answer-file contract-summary.txt
kvg gate run "cmd:python3 check_sql.py sales.sql sales-key.json" \
  --file sales-question.txt --answer-file sales-answer.sql
lock="$here/../constraints.txt"
pin="$(grep -m 1 '^rich==' "$lock")"
kvg gate run "cmd:python3 check_pin.py" --file "$lock" --answer "$pin"

# What is wrong is refused, with the reason and exit code 8.
kvg gate run "cmd:python3 check_figures.py" --file contract.txt \
  --answer "The price is 85.40 euro a housing." || test $? -eq 8
kvg gate run "cmd:python3 check_pin.py" --file "$lock" --answer "rich==0.1" || test $? -eq 8
