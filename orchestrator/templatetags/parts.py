"""The parts of a page that a script exchanges: `{% part %}<p id="…">…</p>{% part_ends %}`.

Each carries a digest of itself. A script that fetches the page again says which parts
it has, and of those that are as they were it is sent an empty element in their place.
"""

import hashlib
import re
from base64 import urlsafe_b64encode
from typing import Any

from django import template
from django.template.base import Parser, Token

register = template.Library()

HEADER = "X-Parts"
"""The header that names the parts that a script has: `id=digest,id=digest`."""
_OPENING = re.compile(r'\s*<(?P<tag>[a-z]+)(?P<before>[^>]*?) id="(?P<id>[\w-]+)"')
_TICKING = re.compile(r'(<time [^>]*data-tick="\w+">)[^<]*')
_COUNTED = re.compile(
    r' aria-(?:posinset|setsize)="\d+"|(?<= aria-label="Checkpoint )([\d,]+) of [\d,]*\d'
)
"""The place of an option in its list, which changes with each row that is added."""
_DIGEST_BYTES = 9


@register.tag
def part(parser: Parser, token: Token) -> template.Node:
    """Mark one element with an id as a part."""
    nodelist = parser.parse(["part_ends"])
    parser.delete_first_token()
    return _PartNode(nodelist)


class _PartNode(template.Node):
    def __init__(self, nodelist: template.NodeList) -> None:
        self._nodelist = nodelist

    def render(self, context: template.Context) -> Any:
        text = self._nodelist.render(context)
        opening = _OPENING.match(text)
        if opening is None:
            raise template.TemplateSyntaxError("a part is one element with an id")
        digest = digest_of(text)
        if _known_parts(context).get(opening["id"]) == digest:
            tag = opening["tag"]
            return f'<{tag} id="{opening["id"]}" data-same></{tag}>'
        return f'{opening[0]} data-digest="{digest}"{text[opening.end() :]}'


def digest_of(text: str) -> str:
    """Return a digest of a part, which stays as it is while only clocks go on in it, or
    its list becomes longer: scripts keep those right.
    """
    still = _TICKING.sub(r"\1", text)
    still = _COUNTED.sub(r"\1", still)
    hashed = hashlib.sha256(still.encode()).digest()
    return urlsafe_b64encode(hashed[:_DIGEST_BYTES]).decode()


def _known_parts(context: template.Context) -> dict[str, str]:
    """Return the digests of the parts that the script has, by their ids; nothing for a
    person who opens the page.
    """
    request = context.get("request")
    if request is None or not request.headers.get("X-Fragment"):
        return {}
    # A page has many parts, and reads the header once.
    digests: dict[str, str] | None = getattr(request, "known_parts", None)
    if digests is None:
        digests = {}
        for entry in request.headers.get(HEADER, "").split(","):
            name, _, digest = entry.partition("=")
            digests[name] = digest
        request.known_parts = digests
    return digests
