"""Somebody at an installation, over HTTP: keeps cookies, fills in the forms of pages,
follows redirects.
"""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection
from http.cookies import SimpleCookie
from urllib.parse import urlencode, urljoin, urlsplit


@dataclass
class Answer:
    """What came back for an address, after all redirects."""

    path: str
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Visitor:
    """A browser without scripts. `host` and `scheme` are those that a proxy before the
    installation answers for.
    """

    port: int
    host: str = ""
    scheme: str = "http"
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str) -> Answer:
        """The page, wherever it has moved to."""
        return self._call("GET", path, None)

    def send(self, path: str, **options: str) -> Answer:
        """Open a page, fill in the form that asks for these fields, send it, and see
        what comes back.
        """
        page = self.get(path)
        assert page.status == 200, (path, page.status, page.text[:2000])
        (form,) = [form for form in Forms.of(page.text) if set(options) <= form.names]
        values = {
            **form.values,
            **{name: [form.chosen(name, value)] for name, value in options.items()},
        }
        return self._call(
            "POST", urljoin(page.path, form.action), urlencode(values, doseq=True)
        )

    def log_in(self, name: str, password: str, path: str = "/login/") -> None:
        """Sign in on the page there, which must lead somewhere else."""
        answer = self.send(path, username=name, password=password)
        assert answer.status == 200, answer.text[:2000]
        assert "/login/" not in answer.path, answer.text[:2000]

    def _call(self, method: str, path: str, body: str | None) -> Answer:
        for _ in range(5):
            answer = self._once(method, path, body)
            if answer.status not in (301, 302, 303):
                return answer
            method = "GET"
            body = None
            path = urljoin(path, answer.headers["location"])
        raise AssertionError(f"redirected for ever, last to {path}")

    def _once(self, method: str, path: str, body: str | None) -> Answer:
        parts = urlsplit(path)
        site = self.host or f"127.0.0.1:{self.port}"
        assert parts.netloc in ("", site), f"sent elsewhere: {path}"
        headers = {
            "Host": site,
            "X-Forwarded-Proto": self.scheme,
            "Referer": f"{self.scheme}://{site}{parts.path}",
            "Cookie": "; ".join(
                f"{name}={value}" for name, value in self.cookies.items()
            ),
            **(
                {"Content-Type": "application/x-www-form-urlencoded"}
                if body is not None
                else {}
            ),
        }
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                method,
                parts.path + (f"?{parts.query}" if parts.query else ""),
                body,
                headers,
            )
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                self.cookies |= {
                    key: morsel.value for key, morsel in SimpleCookie(value).items()
                }
        return Answer(
            parts.path,
            answer.status,
            {name.lower(): v for name, v in answer.getheaders()},
            content,
        )


class Form:
    """A form as it stands on a page: where it goes, what is filled in, what one may
    choose from.
    """

    def __init__(self, action: str) -> None:
        self.action = action
        self.names: set[str] = set()
        self.values: dict[str, list[str]] = {}
        self.options: dict[str, dict[str, str]] = {}

    def chosen(self, name: str, value: str) -> str:
        """The value to send: one chooses from a list by the words on the page."""
        return self.options.get(name, {}).get(value, value)


class Forms(HTMLParser):
    """The forms of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._area = self._select = ""
        self._option: str | None = None

    @classmethod
    def of(cls, text: str) -> list[Form]:
        """The forms of a page, in their order."""
        parser = cls()
        parser.feed(text)
        return parser.forms

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(facts.get("action", "")))
        elif not self.forms:
            return
        elif tag == "option" and self._select:
            self._start_option(facts)
        elif facts.get("name"):
            self._start_field(tag, facts)

    def _start_option(self, facts: dict[str, str]) -> None:
        self._option = facts.get("value", "")
        if "selected" in facts:
            self._fill(self._select, self._option)

    def _start_field(self, tag: str, facts: dict[str, str]) -> None:
        name = facts["name"]
        self.forms[-1].names.add(name)
        if tag == "textarea":
            self._area = name
        elif tag == "select":
            self._select = name
        elif tag == "input":
            self._fill_input(name, facts)

    def _fill_input(self, name: str, facts: dict[str, str]) -> None:
        """Note the value that a browser would send for an input nobody touches."""
        kind = facts.get("type", "text")
        if kind in ("submit", "file"):
            return
        if kind in ("radio", "checkbox") and "checked" not in facts:
            return
        value = "on" if kind == "checkbox" else ""
        self._fill(name, facts.get("value", value))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("textarea", "select", "option"):
            self._area = ""
            self._option = None
            self._select = "" if tag == "select" else self._select

    def handle_data(self, data: str) -> None:
        if self._area:
            self._fill(self._area, data.removeprefix("\n"))
        elif self._option is not None:
            self.forms[-1].options.setdefault(self._select, {})[data.strip()] = (
                self._option
            )

    def _fill(self, name: str, value: str) -> None:
        self.forms[-1].values.setdefault(name, []).append(value)
