"""The verbs: names, sections and summaries, without importing any of them."""

from __future__ import annotations

from kvg.frozen import frozen

EVERYDAY = "everyday"
UPKEEP = "naming and upkeep"
TRUST = "trust and audit"
FLYWHEEL = "flywheel"
RESIDENT = "resident model, long context"
MEASURE = "measure"
SECTIONS: tuple[str, ...] = (EVERYDAY, UPKEEP, TRUST, FLYWHEEL, RESIDENT, MEASURE)


@frozen
class Verb:
    """One verb. ``module`` under ``kvg.cli.verbs`` has ``COMMANDS`` and ``EXAMPLES`` for it.

    ``subverbs`` are (name, summary) pairs of a verb that has its own verbs. ``dry_run`` says which
    of them (or the verb itself) can show what they would do. ``shows``: what it writes is all that
    it is run for, so it ends once nobody reads that; any other comes to its end and its exit code.
    """

    name: str
    section: str
    summary: str
    module: str
    subverbs: tuple[tuple[str, str], ...] = ()
    dry_run: tuple[str, ...] = ()
    hidden: bool = False
    shows: bool = False


VERBS: tuple[Verb, ...] = (
    Verb("init", EVERYDAY, "make a store", "init", dry_run=("init",)),
    Verb(
        "model",
        EVERYDAY,
        "register local models",
        "model",
        subverbs=(
            ("add", "register a local model and its fingerprint"),
            ("list", "list the registered models"),
            ("show", "show one registered model"),
            ("default", "choose the model that is used without --model"),
        ),
        dry_run=("add", "default"),
    ),
    Verb(
        "deposit",
        EVERYDAY,
        "compute a text once, sign it and store it under a ref",
        "deposit",
        dry_run=("deposit",),
    ),
    Verb("ask", EVERYDAY, "graft a ref and answer a question", "ask", shows=True),
    Verb("graft", EVERYDAY, "verify a ref, restore it and continue the text", "graft", shows=True),
    Verb("verify", EVERYDAY, "check bytes, signatures, policy and log", "verify"),
    Verb("replay", EVERYDAY, "compare graft against fresh, bit for bit", "replay"),
    Verb("status", EVERYDAY, "show the store at a glance", "status"),
    Verb("log", EVERYDAY, "show what happened, newest first", "log", dry_run=("log",), shows=True),
    Verb("show", EVERYDAY, "show one artifact", "show", shows=True),
    Verb("ls", EVERYDAY, "list the refs", "ls", shows=True),
    Verb("diff", EVERYDAY, "compare two artifacts", "diff", shows=True),
    Verb("clone", EVERYDAY, "make a store from a remote", "clone"),
    Verb("fetch", EVERYDAY, "bring what a remote has here, verified", "fetch", dry_run=("fetch",)),
    Verb("pull", EVERYDAY, "fetch, and move your own refs along", "pull", dry_run=("pull",)),
    Verb("push", EVERYDAY, "bring refs and all they need to a remote", "push", dry_run=("push",)),
    Verb(
        "remote",
        EVERYDAY,
        "name the places to exchange with",
        "remote",
        subverbs=(
            ("add", "give a remote a name"),
            ("list", "list the remotes"),
            ("set", "change a remote"),
            ("remove", "forget a remote"),
            ("show", "show what a remote has and whose it is"),
            ("gc", "remove from a remote what no ref there needs"),
        ),
        dry_run=("add", "set", "remove", "gc"),
    ),
    Verb("lock", EVERYDAY, "write down what refs stand for, for ci", "lock", dry_run=("lock",)),
    Verb("tag", UPKEEP, "give an artifact a name", "tag", dry_run=("tag",)),
    Verb("mv", UPKEEP, "rename a ref", "mv", dry_run=("mv",)),
    Verb("rm", UPKEEP, "remove refs", "rm", dry_run=("rm",)),
    Verb("pin", UPKEEP, "keep an artifact whatever its refs do", "pin", dry_run=("pin",)),
    Verb("unpin", UPKEEP, "let a pinned artifact go", "unpin", dry_run=("unpin",)),
    Verb("rev-parse", UPKEEP, "print the digest a name stands for", "rev_parse"),
    Verb("cat", UPKEEP, "write an object's bytes, verified, to stdout", "cat", shows=True),
    Verb("gc", UPKEEP, "remove what nothing needs any more", "gc", dry_run=("gc",)),
    Verb("fsck", UPKEEP, "check every file of the store against every other", "fsck"),
    Verb("reindex", UPKEEP, "rebuild the index from the files", "reindex"),
    Verb("du", UPKEEP, "show what artifacts take on disk", "du", shows=True),
    Verb("stats", UPKEEP, "show the store in numbers", "stats"),
    Verb(
        "quota",
        UPKEEP,
        "show or set the limit on what the store takes",
        "quota",
        dry_run=("quota",),
    ),
    Verb(
        "forget",
        UPKEEP,
        "remove the content of an artifact for good",
        "forget",
        dry_run=("forget",),
    ),
    Verb(
        "bundle",
        UPKEEP,
        "carry artifacts in one file",
        "bundle",
        subverbs=(
            ("create", "write refs and all they need into one file"),
            ("verify", "check every byte and signature of a bundle"),
            ("list", "list what a bundle says it holds"),
            ("apply", "take a bundle in, verified"),
        ),
        dry_run=("create", "apply"),
    ),
    Verb(
        "key",
        TRUST,
        "manage your signing keys",
        "key",
        subverbs=(
            ("new", "make a signing key"),
            ("list", "list your keys"),
            ("show", "show one key"),
            ("import", "take in a private key"),
            ("export", "print a public key"),
            ("rekey", "replace the key that signs the store's log"),
        ),
        dry_run=("rekey",),
    ),
    Verb(
        "trust",
        TRUST,
        "say whose signatures count",
        "trust",
        subverbs=(
            ("add", "trust a key in this store"),
            ("list", "list the trusted keys"),
            ("remove", "trust a key no longer, or not for a role"),
            ("revoke", "let a key count only for what a log already holds"),
            ("threshold", "show or set how many distinct keys a role needs"),
        ),
        dry_run=("add", "remove", "revoke", "threshold"),
    ),
    Verb("audit", TRUST, "show everything at once, and what was not checked", "audit"),
    Verb(
        "prereg",
        TRUST,
        "commit to expected digests before a run",
        "prereg",
        subverbs=(
            ("create", "commit to the digests of a run before it is run"),
            ("run", "run it here and compare with what was expected"),
            ("show", "show what a preregistration expects"),
        ),
    ),
    Verb("logits", TRUST, "compute raw logits and their digest, grafted or fresh", "logits"),
    Verb(
        "gate",
        FLYWHEEL,
        "check answers by machine",
        "gate",
        subverbs=(
            ("list", "list the kinds of gates"),
            ("run", "run gates on a text and an answer"),
        ),
    ),
    Verb(
        "family",
        FLYWHEEL,
        "address problems by their exact structure",
        "family",
        subverbs=(
            ("hash", "print the exact address of a problem"),
            ("show", "show one family"),
            ("list", "list the families that the store knows"),
        ),
    ),
    Verb(
        "method",
        FLYWHEEL,
        "programs that answer a family, proved before they are stored",
        "method",
        subverbs=(
            ("add", "prove a method and store it under its family"),
            ("show", "show one method"),
            ("run", "run a method on values"),
        ),
        dry_run=("add",),
    ),
    Verb("solve", FLYWHEEL, "answer a problem from what is stored for its structure", "solve"),
    Verb(
        "session",
        RESIDENT,
        "keep a model loaded",
        "session",
        subverbs=(
            ("start", "start a session: a process that keeps a model loaded"),
            ("list", "list the sessions of this user"),
            ("stop", "end a session"),
            ("slots", "show what the numbered slots of a session hold"),
        ),
    ),
    Verb(
        "context",
        RESIDENT,
        "a corpus wider than the window",
        "context",
        subverbs=(
            ("create", "cut a corpus into blocks that fit the window, and deposit them"),
            ("list", "list the contexts"),
            ("show", "show the blocks of a context and what is in them"),
            ("at", "find the block that holds a place, and move the window there"),
            ("search", "find passages by their words"),
            ("ask", "search, graft the one best block, and answer with citations"),
        ),
        dry_run=("create",),
    ),
    Verb("doctor", MEASURE, "look at this machine and say what it can do", "doctor"),
    Verb(
        "bench",
        MEASURE,
        "measure what kvg promises",
        "bench",
        subverbs=(
            ("exactness", "compute texts in every way and compare every byte"),
            ("own-position", "move a graft to other offsets and see what differs"),
            ("capability", "a model alone, and with one routed block grafted"),
            ("acceptance", "how much of what all seeds agree on is right"),
            ("recurring", "what deposited solutions leave a model to decode"),
            ("restore", "graft and first token against cold prefill, and where the time goes"),
            ("store", "what storing costs over computing, on disk, and to verify"),
            ("energy", "what the first token costs by prefill and by graft"),
            ("context", "move the window over a context by chance, time against depth"),
            ("select", "find the methods of many near twins by exact address"),
            ("speed", "time the invariant reference against stock attention on this machine"),
            ("all", "each of them once, at sizes that take minutes"),
        ),
    ),
    Verb(
        "config",
        MEASURE,
        "read and write settings",
        "config",
        subverbs=(
            ("get", "print the value of a setting"),
            ("set", "write a setting"),
            ("unset", "take a setting out"),
            ("list", "list the settings"),
        ),
        dry_run=("set", "unset"),
    ),
    Verb("completion", MEASURE, "print a shell's completion script", "completion"),
    Verb("version", MEASURE, "print the version", "version"),
    Verb("help", MEASURE, "show the help of a verb or a topic", "help"),
    Verb("__session", RESIDENT, "be a session", "session", hidden=True),
    Verb("__complete", MEASURE, "print what can come next", "completion", hidden=True),
    Verb("__serve", MEASURE, "serve a remote to the far side of ssh", "serve", hidden=True),
)

BY_NAME: dict[str, Verb] = {verb.name: verb for verb in VERBS}

MISTAKES: dict[str, str] = {
    "add": "kvg deposit NAME FILE",
    "commit": "kvg deposit NAME FILE",
    "put": "kvg deposit NAME FILE",
    "get": "kvg graft REF",
    "restore": "kvg graft REF",
    "run": "kvg ask REF QUESTION",
    "chat": "kvg ask REF QUESTION",
    "list": "kvg ls",
    "models": "kvg model list",
    "keys": "kvg key list",
    "remove": "kvg rm REF",
    "delete": "kvg rm REF",
    "rename": "kvg mv OLD NEW",
    "move": "kvg mv OLD NEW",
    "check": "kvg verify",
    "sign": "kvg replay REF --sign",
    "inspect": "kvg show REF",
    "info": "kvg status",
    "upload": "kvg push",
    "download": "kvg pull",
    "sync": "kvg pull",
    "serve": "kvg session start NAME",
    "start": "kvg session start NAME",
    "stop": "kvg session stop NAME",
}
"""What people type when they mean something else, and the command they want."""
