#!/bin/sh
# The entry of the image. It becomes the program that its first word names, so that a signal reaches that one:
#   web [OPTION...]   the web process, on port 8000; the options are daphne's
#   healthy [ROLE]    ends with 0 if the container's process is alive: ROLE is web or worker; a port may follow web
#   anything else     a command of manage.py: worker, migrate, check_versions, ...
set -eu
folder=$(dirname "$0")

web() {
  exec "$folder/python" -m daphne -b 0.0.0.0 -p 8000 "$@" orchestrator.asgi:application
}

healthy() {
  role=web
  case "${1:-}" in
    web | worker) role=$1; shift ;;
    # The words of process 1 end in those that the container was started with.
    *) if tr '\0' '\n' </proc/1/cmdline | grep -qx worker; then role=worker; fi ;;
  esac
  if [ "$role" = worker ]; then
    # A database that does not answer must not cost the worker its life.
    PGCONNECT_TIMEOUT="${PGCONNECT_TIMEOUT:-5}" exec "$folder/python" -m django worker --alive
  fi
  exec "$folder/python" "$folder/healthy.py" "$@"
}

case "${1:?names what to run: web, worker, healthy or a command of manage.py}" in
  web) shift; web "$@" ;;
  healthy) shift; healthy "$@" ;;
  *) exec "$folder/python" -m django "$@" ;;
esac
