"""The application over real sockets in a thread of the test's process: it shows the
test's own rows and graphs.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from daphne.endpoints import build_endpoint_description_strings
from daphne.server import Server

from tests.house.programs import free_port


@contextmanager
def serving() -> Iterator[str]:
    """The address of the application while the block lasts. Once a process: its event
    loop cannot be started again.
    """
    from orchestrator.asgi import application

    port = free_port()
    ready = threading.Event()
    server = Server(
        application=application,
        endpoints=build_endpoint_description_strings(host="127.0.0.1", port=port),
        signal_handlers=False,
        ready_callable=ready.set,
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(20), "the server does not listen"
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop()
        thread.join(10)


def _stop() -> None:
    from twisted.internet import reactor

    reactor.callFromThread(reactor.stop)  # type: ignore[attr-defined]
