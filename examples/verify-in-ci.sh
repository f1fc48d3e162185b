#!/bin/sh
# A CI job that signs with a key from a secret and fails when anything in the store is not as signed.
# usage: verify-in-ci.sh MODEL_FOLDER TEXT_FILE
# In a real job KVG_KEY comes from the secrets of the CI service: the private key as PEM text.
set -eu
model=${1:?usage: verify-in-ci.sh MODEL_FOLDER TEXT_FILE}
text=${2:?usage: verify-in-ci.sh MODEL_FOLDER TEXT_FILE}
: "${KVG_KEY:?the private key, PEM text, from a secret}"

# A secret becomes a file that only this job can read, outside the store, gone when the job ends.
secret=$(mktemp -d)
trap 'rm -rf "$secret"' EXIT
(umask 077 && printf '%s\n' "$KVG_KEY" >"$secret/key.pem")
unset KVG_KEY
KVG_KEY_FILE="$secret/key.pem"
export KVG_KEY_FILE

kvg init
kvg model add reader "$model" >/dev/null
expected=$(kvg deposit notes "$text")

# Bytes, signatures, policy and log. No model and no torch are needed for this step.
kvg verify notes --json

# The name must still stand for the artifact that this job has built.
test "$(kvg rev-parse notes)" = "$expected"

# Exit codes tell a script what is wrong: 5 corrupt, 6 untrusted.
object=$(find .kvg/objects -type f -size +8k | head -n 1)
cp -p "$object" "$secret/object"
chmod u+w "$object"
python3 -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(5000); b = f.read(1)[0]; f.seek(5000); f.write(bytes([b ^ 1]))' "$object"
if kvg verify notes >/dev/null 2>&1; then code=0; else code=$?; fi
cp -p "$secret/object" "$object"
test "$code" -eq 5
kvg verify notes >/dev/null
echo "a changed byte was found: exit $code; the store is whole again"
