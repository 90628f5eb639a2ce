"""The client of a service that calls the API: pure, without Django."""

from orchestrator.client.decision_set import DecisionSet

__all__ = ["DecisionSet"]
