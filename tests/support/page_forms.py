"""What a browser would post from the main form of a page, before anything is typed."""

from html.parser import HTMLParser


class _Fields(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        kind = attributes.get("type", "text")
        name = attributes.get("name", "")
        if tag == "textarea":
            self.area = name
            self.fields[name] = ""
        elif (
            tag == "input"
            and name
            and (kind not in ("radio", "checkbox") or "checked" in attributes)
        ):
            self.fields[name] = attributes.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            # A browser drops the first line break of an area.
            self.fields[self.area] = self.fields[self.area].removeprefix("\n")
            self.area = ""

    def handle_data(self, data: str) -> None:
        if self.area:
            self.fields[self.area] += data


def fields_of(html: str) -> dict[str, str]:
    """Name -> value of the fields between the page's bar and its end, without the token
    against forgery.
    """
    parser = _Fields()
    parser.feed(html.split("<main")[1])
    parser.fields.pop("csrfmiddlewaretoken", None)
    return parser.fields
