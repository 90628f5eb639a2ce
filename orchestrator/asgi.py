"""What daphne serves: pages and API, and the websockets of the live views."""

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")

# Before anything that imports models: this sets Django up.
http = get_asgi_application()

from orchestrator.live.routing import websocket_urlpatterns  # noqa: E402

websocket = AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))
application = ProtocolTypeRouter({"http": http, "websocket": websocket})
