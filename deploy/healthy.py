"""Ends with 0 if the web process of this container answers on port 8000, or on the port
that is named as the only word. Needs no package, so that a probe costs little.
"""

import os
import sys
from http.client import HTTPConnection, HTTPException

PATIENCE_SECONDS = 5.0


def first_host() -> str:
    """Return a host name that the web process answers."""
    names = os.environ.get("COUNTERSIGN_ALLOWED_HOSTS", "").split(",")
    first = names[0].strip()
    # A leading dot stands for the domain and all below it, an asterisk for any name.
    return first.lstrip(".*") or "localhost"


def answers(port: int) -> bool:
    """Return whether the web process answers, without an error of its own. One that
    refuses this host name is alive, too.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/healthz", headers={"Host": first_host()})
        return connection.getresponse().status < 500
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    sys.exit(0 if answers(port) else 1)
