"""`strata bench gpu`: refused in one line where there is no card or a flag makes no sense."""

import json

import pytest

from strata.cuda.card.found import find_cards
from tests.cli.calls import refusal, strata


@pytest.mark.skipif(bool(find_cards()), reason="there is a card here")
def test_without_a_card_it_says_why_in_one_line():
    assert "device cuda:0" in refusal("bench", "gpu")


@pytest.mark.parametrize(("flags", "what"), [
    (("--device", "host"), "device=host: this measures a card"),
    (("--rows", "9"), "rows=9: 9 is not from 1 to 8"),
    (("--rows", "two"), "rows=two"),
    (("--chunks", "8"), "chunks=8: 8 is not from 9"),
    (("--rows", "none", "--chunks", "none"), "nothing would be measured"),
    (("--profile", "3"), "profile=3: no such window is measured"),
    (("--experts", "BF16"), "experts=BF16: its rows are floats"),
    (("--dense-format", "Q9"), "'Q9'"),
    (("--seed", "-1"), "seed=-1"),
    (("--position", "-1"), "position=-1"),
    (("--context", "2000"), "context=2000: the windows need 3001 positions"),
    (("--resident", "0"), "resident=0.0: it is no share of the experts"),
    (("--resident", "1"), "resident=1.0: it is no share of the experts"),
    (("--resident", "0.3", "--pcie-frac", "2"), "pcie_frac=2.0"),
    (("--resident", "0.3", "--profile"), "launches are timed with all experts resident"),
    (("--resident", "0.3", "--rows", "none"), "nothing would be measured"),
])  # fmt: skip
def test_flags_that_make_no_sense_are_refused(flags, what):
    assert what in refusal("bench", "gpu", *flags)


def test_json_goes_to_a_file_where_one_is_named(tmp_path):
    target = tmp_path / "pool.json"
    outcome = strata("bench", "pool", "--formats", "Q8_0", "--rounds", 1, "--threads", 1, "--json", target)
    if outcome.code == 0:
        assert outcome.out == "" and json.loads(target.read_text())["n_rounds"] == 1


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    line = strata("bench", "pool", "--formats", "Q8_0", "--rounds", 1, "--threads", 1, "--json", tmp_path / "none" / "x.json").err
    assert "x.json" in line or "AVX2" in line
