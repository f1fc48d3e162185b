#!/bin/sh
# Deposit the beginning of a chat, then ask several questions about it, each from the same state.
# usage: chat.sh MODEL_FOLDER
set -eu
model=${1:?usage: chat.sh MODEL_FOLDER}

kvg init
kvg model add talker "$model" >/dev/null

cat >talk.json <<'JSON'
[
  {"role": "system", "content": "The bridge over the river Alba was opened in 1912. It is 640 metres long."},
  {"role": "user", "content": "I would like to know more about the bridge."},
  {"role": "assistant", "content": "Ask me anything about it."}
]
JSON

# The template renders the turns without the generation prompt, so that any next turn can follow.
kvg deposit bridge --chat talk.json

kvg ask bridge "How long is the bridge?" --max-tokens 24
kvg ask bridge "When was it opened?" --max-tokens 24

# The same with turns of one's own, sampled from a stream that anyone can recompute.
cat >next.json <<'JSON'
[{"role": "user", "content": "Say it in three words."}]
JSON
first=$(kvg graft bridge --chat next.json --max-tokens 12 --temperature 0.8 --seed 7)
second=$(kvg graft bridge --chat next.json --max-tokens 12 --temperature 0.8 --seed 7)
test "$first" = "$second"
echo "$first"
