#!/bin/sh
# The entry of the image. It becomes the program that its first word names, so that a signal reaches that one:
#   web [OPTION...]   the web process, on port 8000; the options are daphne's
#   worker            a worker, which touches a file as long as it is alive
#   healthy [ROLE]    ends with 0 if the container's process is alive: ROLE is web or worker; a port may follow web
#   anything else     a command of manage.py: migrate, check_versions, ...
set -eu
folder=$(dirname "$0")
# For the worker and for the probe that looks at it.
export COUNTERSIGN_ALIVE_FILE="${COUNTERSIGN_ALIVE_FILE:-${TMPDIR:-/tmp}/countersign-worker}"

web() {
  exec "$folder/python" -m daphne -b 0.0.0.0 -p 8000 "$@" orchestrator.asgi:application
}

worker() {
  # An earlier life of this container may have left it.
  rm -f "$COUNTERSIGN_ALIVE_FILE"
  exec "$folder/python" -m django worker "$@"
}

case "${1:?names what to run: web, worker, healthy or a command of manage.py}" in
  web) shift; web "$@" ;;
  worker) shift; worker "$@" ;;
  healthy) shift; exec "$folder/python" "$folder/healthy.py" "$@" ;;
  *) exec "$folder/python" -m django "$@" ;;
esac
