"""What a browser would post from the main form of a page, before anything is typed."""

from html.parser import HTMLParser


class _Fields(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        kind = given.get("type", "text")
        name = given.get("name", "")
        if tag == "textarea":
            self.area = name
            self.found[name] = ""
        elif (
            tag == "input"
            and name
            and (kind not in ("radio", "checkbox") or "checked" in given)
        ):
            self.found[name] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # A browser drops the first line break of an area.
            self.found[self.area] = self.found[self.area].removeprefix("\n")
            self.area = ""

    def handle_data(self, data: str) -> None:
        if self.area:
            self.found[self.area] += data


def fields_of(html: str) -> dict[str, str]:
    """Name -> value of the fields between the page's bar and its end, without the token
    against forgery.
    """
    parser = _Fields()
    parser.feed(html.split("<main")[1])
    parser.found.pop("csrfmiddlewaretoken", None)
    return parser.found
