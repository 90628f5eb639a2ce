#!/usr/bin/env python
"""Entry point of every command of this project. A bad setting ends it with one sentence
instead of a traceback.
"""

import os
import sys


def main() -> None:
    """Run the command named on the command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orchestrator.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    from orchestrator import environment

    try:
        if sys.argv[1:2] == ["up"] and "--demo" in sys.argv[2:]:
            # The settings are read before the command sees its options.
            environment.enter_demo()
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"Bad settings: {error}")


if __name__ == "__main__":
    main()
