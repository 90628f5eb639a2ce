"""Addresses of the websockets."""

from django.urls import path

from orchestrator.live.consumers import InboxConsumer, RunConsumer, RunsConsumer

websocket_urlpatterns = [
    path("ws/reviews/", InboxConsumer.as_asgi()),
    path("ws/runs/", RunsConsumer.as_asgi()),
    path("ws/runs/<str:ref>/", RunConsumer.as_asgi()),
]
