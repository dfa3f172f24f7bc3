"""Lookahead leaves no trace, not even one that shows only after the next committed token."""

import numpy as np

from infernix_plugin import ConstraintCompiler, OutputConstraint, Session, TokenDomain


def allowed(session: Session, domain: TokenDomain) -> list[int]:
    row = np.zeros(domain.mask_words, dtype=np.int32)
    session.fill_mask(row)
    return row.tolist()


def test_a_rejected_draft_does_not_show_in_the_mask_after_the_next_token(tiny_model):
    """Found in llguidance 1.7.6, whose rollback keeps something of the undone branch."""
    domain = TokenDomain.from_pretrained(tiny_model)
    token_of = {domain.token_bytes(token): token for token in reversed(range(domain.vocab_size))}
    compiled = ConstraintCompiler(domain).compile(OutputConstraint.json_object())
    looked, plain = compiled.session(), compiled.session()
    for piece in (b'{"', b'],"', b" :"):
        assert looked.accept(token_of[piece])
        assert plain.accept(token_of[piece])
    looked.lookahead([token_of[b' "",\n']], np.zeros((2, domain.mask_words), dtype=np.int32))
    assert looked.accept(token_of[b" []\n"])
    assert plain.accept(token_of[b" []\n"])
    assert allowed(looked, domain) == allowed(plain, domain)


def test_structural_drafts_at_random_leave_no_trace(tiny_model):
    domain = TokenDomain.from_pretrained(tiny_model)
    compiled = ConstraintCompiler(domain).compile(OutputConstraint.json_schema("{}"))
    structural = [
        token
        for token in range(domain.vocab_size)
        if domain.is_generable(token) and domain.token_bytes(token)[:1] in list(map(bytes, zip(b' "[]{},:\n')))
    ]
    rng = np.random.default_rng(5)
    rows = np.zeros((3, domain.mask_words), dtype=np.int32)
    for _ in range(150):
        looked, plain = compiled.session(), compiled.session()
        for _ in range(20):
            looked.lookahead(rng.choice(structural, 2).tolist(), rows)
            token = int(rng.choice(structural))
            assert looked.accept(token) is plain.accept(token)
            looked.lookahead([], rows)
            plain.lookahead([], rows[1:])
            assert (rows[0] == rows[1]).all()
