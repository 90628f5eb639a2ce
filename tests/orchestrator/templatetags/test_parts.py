"""The parts of a page: what a script has already is not sent again."""

import re
from typing import Any

import pytest
from django.template import Context, Template, TemplateSyntaxError
from django.test import RequestFactory

PART = '{% load parts %}{% part %}\n<li class="a"\n  id="row-1">{{ text|safe }}</li>{% part_ends %}'


def drawn(text: str, *, known: str = "", fragment: bool = True) -> str:
    headers: dict[str, Any] = {"X-Parts": known}
    if fragment:
        headers["X-Fragment"] = "1"
    request = RequestFactory().get("/", headers=headers)
    context = Context({"request": request, "text": text})
    return Template(PART).render(context)


def digest_in(part: str) -> str:
    [digest] = re.findall(r'data-digest="([\w-]+)"', part)
    return str(digest)


def test_a_part_is_not_sent_to_a_script_that_has_it() -> None:
    part = drawn("one")
    assert part.startswith('\n<li class="a"\n  id="row-1" data-digest="')
    assert part.endswith(">one</li>")
    known = f"other=x,row-1={digest_in(part)}"
    assert drawn("one", known=known) == '<li id="row-1" data-same></li>'
    assert drawn("two", known=known).endswith(">two</li>")


def test_a_person_who_opens_a_page_is_sent_all_of_it() -> None:
    known = f"row-1={digest_in(drawn('one'))}"
    assert drawn("one", known=known, fragment=False).endswith(">one</li>")
    # An error page may have no request.
    assert "one" in Template(PART).render(Context({"text": "one"}))


def test_a_clock_that_goes_on_changes_no_part() -> None:
    clock = '<time datetime="x" title="y" data-tick="since">{}</time> ago'
    assert digest_in(drawn(clock.format("3 min"))) == digest_in(
        drawn(clock.format("4 min"))
    )
    assert digest_in(drawn("<time>3 min</time>")) != digest_in(
        drawn("<time>4 min</time>")
    )


def test_a_part_without_an_id_is_refused() -> None:
    template = Template("{% load parts %}{% part %}<p>text</p>{% part_ends %}")
    with pytest.raises(TemplateSyntaxError, match="one element with an id"):
        template.render(Context())
