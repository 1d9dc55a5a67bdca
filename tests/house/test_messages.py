"""The table of what norms send against their cards: one message a pass, or the reason why more."""

import re
from pathlib import Path

import normkit as nk

PAGE = Path(__file__).parents[2] / "docs" / "parallel.md"


def rows():
    table = PAGE.read_text(encoding="utf-8").split("<!-- counts -->")[1].split("<!-- end of counts -->")[0]
    for line in table.splitlines():
        name, *cells = [cell.strip() for cell in line[1:-1].split("|")]
        if re.fullmatch(r"`[\w-]+`", name):
            yield name.strip("`"), cells


def is_more_than_one(cell):
    return any(re.search(r"gather|,|[2-9] (sum|exchange)", way) for way in cell.split(" / "))


def test_a_norm_that_sends_more_than_one_message_says_why_and_no_other_does():
    counted = {name: cells for name, cells in rows() if len(cells) > 1}
    assert len(counted) > 60
    more = {name for name, cells in counted.items() if any(map(is_more_than_one, cells))}
    assert more == {name for name in nk.methods(room="activation") if nk.card(name).messages}


def test_the_page_has_the_reasons_of_the_cards():
    reasons = {name: cells[0] for name, cells in rows() if len(cells) == 1}
    assert reasons == {name: nk.card(name).messages for name in reasons}
    assert len(reasons) == 8
