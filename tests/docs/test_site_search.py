"""The search of the site: what it must find stands where it must be found; ``make site`` asks the search itself."""

from __future__ import annotations

import pytest
from support.site_search import ROOT, expected, message_entries, search_words


def test_the_site_asks_its_search() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    site = makefile.partition("\nsite:")[2].partition("\n\n")[0]
    assert "-m tests.support.site_search docs/_build/html" in site
    assert {"PPO": "learners", "no brain dump": "troubleshooting"}.items() <= expected().items()
    assert len(message_entries()) > 200


@pytest.mark.parametrize("page", search_words())
def test_words_that_people_search_for_lead_to_a_page(page: str) -> None:
    assert (ROOT / "docs" / f"{page}.md").is_file()
