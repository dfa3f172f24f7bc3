"""The matcher without vLLM: which tokens may come next, and what happens to a speculated sequence.

infernix make-tiny-model /tmp/tiny && python examples/masks.py /tmp/tiny
"""

import sys
from pathlib import Path

import numpy as np

from infernix_plugin import ConstraintCompiler, MaskState, OutputConstraint, TokenDomain
from infernix_plugin.seams.cpu_faults import install_import_repairs


def main(checkpoint: str) -> None:
    """Generate one date, always taking the smallest legal token id; then look at a draft with a mistake in it."""
    from tokenizers import Tokenizer

    if not Path(checkpoint, "tokenizer.json").is_file():
        sys.exit(f"masks.py: there is no {checkpoint}/tokenizer.json")
    tokenizer = Tokenizer.from_file(f"{checkpoint}/tokenizer.json")
    compiler = ConstraintCompiler(TokenDomain.from_pretrained(checkpoint))
    compiled = compiler.compile(OutputConstraint.regex("(19|20)[0-9]{2}-[01][0-9]"))

    session = compiled.session()
    row = np.zeros(compiled.domain.mask_words, dtype=np.int32)
    tokens: list[int] = []
    while not session.terminated and session.fill_mask(row) is MaskState.READY:
        legal = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        tokens.append(int(legal[0]))
        session.accept(tokens[-1])
    print("smallest legal tokens:", repr(tokenizer.decode(tokens)))

    session = compiled.session()
    drafts = tokenizer.encode("19x7").ids
    rows = np.zeros((len(drafts) + 1, compiled.domain.mask_words), dtype=np.int32)
    states = session.lookahead(drafts, list(rows))
    print("drafts:", [tokenizer.decode([token]) for token in drafts], "rows:", [state.name for state in states])


if __name__ == "__main__":
    install_import_repairs()
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
