#!/bin/sh
# Keep a model loaded, graft from the shell at once, hold a conversation, and deposit it as it stands.
# usage: session.sh MODEL_FOLDER TEXT_FILE
set -eu
model=${1:?usage: session.sh MODEL_FOLDER TEXT_FILE}
text=${2:?usage: session.sh MODEL_FOLDER TEXT_FILE}

kvg init
kvg model add reader "$model" >/dev/null
kvg deposit notes "$text"
kvg session start desk --idle 10m
trap 'kvg session stop desk >/dev/null' EXIT

# The same text as without a session, and the same proof.
alone=$(kvg graft notes --prompt "In short:" --max-tokens 8)
through=$(kvg graft notes --prompt "In short:" --max-tokens 8 --session desk)
test "$alone" = "$through"

# A conversation in slot 0; --at says where it is expected to go on.
kvg ask notes "What is this about?" --max-tokens 12 --session desk --slot 0
position=$(kvg session slots desk --json | sed -n '1s/.*"position": \([0-9]*\).*/\1/p')
kvg ask notes "And what else?" --max-tokens 12 --session desk --slot 0 --at "$position"

# It becomes an artifact as it stands, and that artifact is true: a fresh computation gives its pages.
digest=$(kvg deposit talk --session desk --slot 0)
kvg replay talk --samples 2 --session desk
echo "deposited $digest"
