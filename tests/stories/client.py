"""A service that talks to the API over HTTP, as another program would."""

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

JSON = "application/json"


class Client:
    """One user's token and the address of the web process."""

    def __init__(self, address: str, token: str) -> None:
        self._host = urlsplit(address).netloc
        self._headers = {"Authorization": f"Token {token}"}

    def get(self, path: str) -> Any:
        """The answer's JSON. Fails for anything but 200."""
        status, body = self.call("GET", path)
        assert status == 200, (status, body)
        return body

    def post(self, path: str, body: Any, *, key: str | None = None) -> tuple[int, Any]:
        """Status and JSON. Each call has an idempotency key of its own where none is
        given.
        """
        return self.call("POST", path, body, key=key or str(uuid4()))

    def upload(self, path: Path) -> Any:
        """The reference under which an input may name the file."""
        edge = uuid4().hex
        head = (
            f'--{edge}\r\nContent-Disposition: form-data; name="file";'
            f' filename="{path.name}"\r\n\r\n'
        )
        body = head.encode() + path.read_bytes() + f"\r\n--{edge}--\r\n".encode()
        status, reference = self.call(
            "POST", "/uploads/", body, kind=f"multipart/form-data; boundary={edge}"
        )
        assert status == 201, reference
        return reference

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        kind: str = JSON,
    ) -> tuple[int, Any]:
        connection = HTTPConnection(self._host, timeout=30)
        headers = {
            **self._headers,
            "Content-Type": kind,
            **({"Idempotency-Key": key} if key else {}),
        }
        data = (
            body
            if isinstance(body, bytes)
            else json.dumps(body).encode()
            if body is not None
            else None
        )
        try:
            connection.request(method, f"/api/v1{path}", body=data, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(text) if text else None
