"""What each architecture computes with the transformers at hand, one line each, to be compared.

python -m tests.model.ends     # under either end of the versions that are supported
"""

from __future__ import annotations

import sys

import torch
import transformers

from kvg.model.exactness import made_ids, reference_run
from kvg.model.opening import session_of
from tests.model.test_architectures import EXACT, load

N_TOKENS = 270


def main() -> int:
    """The program: names, engines and digests on standard output, the version on standard error."""
    torch.set_num_threads(1)
    print(f"transformers {transformers.__version__}", file=sys.stderr)
    for name, config in EXACT.items():
        session = session_of(load(config(), "BF16", name), schedule=None)
        found, _ = reference_run(session, made_ids(0, N_TOKENS, session.model.vocabulary))
        print(name, session.engine.fingerprint, found.logits, found.state, sep="\t")
    return 0


if __name__ == "__main__":
    sys.exit(main())
