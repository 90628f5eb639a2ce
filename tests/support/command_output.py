"""What a management command prints."""

import io
import json
from typing import Any

from django.core.management import call_command


def call(name: str, *args: str) -> str:
    out = io.StringIO()
    call_command(name, *args, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def call_json(name: str, *args: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(call(name, *args, "--json"))
    return answer
