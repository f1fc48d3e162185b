#!/bin/sh
# Deposit a text once, then let any later process go on from it without reading it again.
# usage: deposit-and-graft.sh MODEL_FOLDER TEXT_FILE
set -eu
model=${1:?usage: deposit-and-graft.sh MODEL_FOLDER TEXT_FILE}
text=${2:?usage: deposit-and-graft.sh MODEL_FOLDER TEXT_FILE}

kvg init
kvg model add reader "$model" >/dev/null

# Not on a terminal, deposit prints the bare digest.
digest=$(kvg deposit notes "$text")
echo "deposited $digest"

# The same text again is found by its token ids and computes nothing.
kvg deposit notes "$text" --json | grep -q '"tokens_computed": 0'

# Each graft proves itself before it prints anything; --json says so.
kvg graft notes --prompt "In short:" --max-tokens 8 --json >graft.json
grep -q '"exact": true' graft.json

# The promise, checked: grafted and fresh logits have the same digest.
digest_of() { sed 's/.*"digest": "\([^"]*\)".*/\1/'; }
grafted=$(kvg logits notes --prompt "In short:" --json | digest_of)
fresh=$(kvg logits notes --prompt "In short:" --fresh --json | digest_of)
echo "grafted $grafted"
echo "fresh   $fresh"
test "$grafted" = "$fresh"
echo "exact: yes"
