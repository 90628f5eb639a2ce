"""The sockets of a page, which a test can cut."""

import json
from typing import Any

GOING_AWAY = 1012


class Wire:
    """The sockets of a page: they can be cut, and are refused until they are joined
    again.
    """

    def __init__(self, page: Any) -> None:
        self.is_cut = False
        self.open: list[Any] = []
        self.lines: list[dict[str, Any]] = []
        page.route_web_socket("**/ws/**", self._connect)

    def cut(self, *, refuse: bool) -> None:
        self.is_cut = refuse
        for socket in self.open:
            socket.close(code=GOING_AWAY)
        self.open.clear()

    def send(self, path: str, message: dict[str, Any]) -> None:
        """Send a message to the page as the server of its sockets below a path would."""
        for socket in self.open:
            if path in socket.url:
                socket.send(json.dumps(message))

    def _connect(self, socket: Any) -> None:
        if self.is_cut:
            socket.close(code=GOING_AWAY)
            return
        server = socket.connect_to_server()
        server.on_message(lambda text: self._pass_on(socket, text))
        self.open.append(socket)

    def _pass_on(self, socket: Any, text: str) -> None:
        # The server's side of a socket that was cut may go on for a while; the page
        # hears nothing of it.
        if socket not in self.open:
            return
        if "/ws/runs/" in socket.url:
            self.lines.append(json.loads(text))
        socket.send(text)
