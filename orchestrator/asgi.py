"""The ASGI application that daphne serves: pages and API, and the websockets of the
live views.
"""

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")

# Before anything that imports models: this sets Django up.
http = get_asgi_application()

from orchestrator.live.backpressure import PacedResponses  # noqa: E402
from orchestrator.live.origins import SameOrigin  # noqa: E402
from orchestrator.live.routing import websocket_urlpatterns  # noqa: E402

websocket = SameOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))
application = ProtocolTypeRouter({"http": PacedResponses(http), "websocket": websocket})
