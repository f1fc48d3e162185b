"""Ed25519 keys, DSSE envelopes and C2SP signed notes: the only home of ``cryptography``."""
