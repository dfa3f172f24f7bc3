"""What counts as parity, and the page of ``benchmarks/parity.py``: every figure in its place, faults said."""

import pytest
import torch

from benchmarks import parity
from tests.parity.checkpoints import Bounds
from tests.parity.judgement import Comparison, Judged, Verdict, compare
from tests.parity.modes import LENGTHS, Engine, Round
from tests.parity.rows import Row, complaints

TIE = Bounds().tie


def verdict(behind=(), off=0.001, tokens=None):
    """Forty tokens, of which the first ones are so far behind the best."""
    gaps = torch.zeros(40)
    gaps[: len(behind)] = torch.tensor(behind)
    return Verdict([Judged(tokens or list(range(40)), gaps, torch.full((40,), off), gaps < TIE)])


def test_ties_are_counted_and_more_is_a_fault():
    tied = verdict([TIE / 2, TIE / 3])
    assert (tied.equal, tied.ties, tied.tokens, tied.complaints) == (38, 2, 40, [])
    assert verdict([2 * TIE]).complaints == [f"a token is {2 * TIE:.3f} behind the best"]
    assert verdict([TIE / 2] * 3).complaints == ["37 of 40 tokens are the best"]
    assert verdict(off=0.006).complaints == ["log-probabilities differ by 0.0060 in the mean"]


def test_texts_may_part_at_ties_only():
    other = [*range(5), 99, *range(6, 40)]
    assert compare(verdict(), verdict()) == Comparison(equal=40, parted=0, wrong=0)
    assert compare(verdict([0.0] * 5 + [TIE / 2], tokens=other), verdict()) == Comparison(equal=5, parted=1, wrong=0)
    assert compare(verdict([0.0] * 5 + [2 * TIE], tokens=other), verdict()) == Comparison(equal=5, parted=0, wrong=1)


FINE = Row("", verdict(), Comparison(40, 0, 0), drafted=60, accepted=40)
FROM_CACHE = {"cached": [544] * len(LENGTHS)}
COLD = {"cached": [0] * len(LENGTHS)}


@pytest.mark.parametrize(
    ("drafting", "part", "outcome", "row", "says"),
    [
        (True, Round("x"), COLD, FINE, None),
        (True, Round("x", warm=True), FROM_CACHE, FINE, None),
        (True, Round("x", warm=True), COLD, FINE, "from the cache came"),
        (True, Round("x"), FROM_CACHE, Row("", FINE.verdict, FINE.beside_plain, 60, 40, cached=9), "an empty cache"),
        (True, Round("x"), COLD, Row("", FINE.verdict, FINE.beside_plain), "nothing was drafted"),
        (True, Round("x", oracle="full"), COLD, Row("", FINE.verdict, FINE.beside_plain, 60, 10), "10 of 60 drafts"),
        (False, Round("x", preempted=True), COLD, FINE, "0 preemptions"),
        (False, Round("x"), COLD, Row("", FINE.verdict, Comparison(5, 0, 1)), "1 requests part"),
        (False, Round("x"), COLD, Row("", verdict([2 * TIE]), FINE.beside_plain), "behind the best"),
        (True, Round("x", broken="rollback"), COLD, FINE, "the fault is not noticed"),
        (True, Round("x", broken="rollback"), COLD, Row("", verdict([9.0]), Comparison(5, 0, 1)), None),
    ],
)
def test_what_a_row_has_to_show(drafting, part, outcome, row, says):
    found = list(complaints(Engine("", {}, (part,), drafting=drafting), part, outcome, row))
    assert found == [] if says is None else says in " ".join(found)


def test_figures_are_in_their_places():
    rows = [
        Row("MTP", verdict([TIE / 2]), Comparison(30, 1, 0), 60, 40, cached=1088, preempted=4),
        Row("DFlash", refused="only MTP"),
    ]
    text = parity.page({"qwen3.5": rows})
    assert "| MTP | 39 of 40 | 1 | 0.030 | 0.0010 | 30, 1 part | 40 of 60 | 1088 | 4 |" in text
    assert "| DFlash | refused | - | - | - | - | - | - | - |" in text
    assert 'DFlash: refused at the start with "only MTP".' in text
    assert "All rows are within the bounds." in text
    assert "- MTP: too far" in parity.page({"qwen3.5": [Row("MTP", verdict(), FINE.beside_plain, wrong=("too far",))]})


@pytest.mark.parametrize("wrong", [(), ("too far",)])
def test_the_exit_code_says_whether_a_row_is_wrong(monkeypatch, capsys, wrong):
    row = Row("MTP", verdict(), FINE.beside_plain, wrong=wrong)
    monkeypatch.setattr(parity, "run", lambda families, folder: {"qwen3.5": [row]})
    monkeypatch.setattr("sys.argv", ["parity"])
    if wrong:
        with pytest.raises(SystemExit, match="1"):
            parity.main()
    else:
        parity.main()
    assert "| MTP |" in capsys.readouterr().out
