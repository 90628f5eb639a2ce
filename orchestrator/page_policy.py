"""The Content-Security-Policy of our pages: scripts, styles and everything else come
from the site itself alone.
"""

_SELF = "'self'"
_NONE = "'none'"

# Without 'unsafe-inline' anywhere: no page of ours has inline scripts or styles.
DIRECTIVES: dict[str, list[str]] = {
    "default-src": [_NONE],
    "script-src": [_SELF],
    "style-src": [_SELF],
    "img-src": [_SELF, "data:"],
    "connect-src": [_SELF],
    "font-src": [_SELF],
    "form-action": [_SELF],
    "base-uri": [_NONE],
    "frame-ancestors": [_NONE],
}
_TEXTS = [f"{name} {' '.join(sources)}" for name, sources in DIRECTIVES.items()]
HEADER = "; ".join(_TEXTS)
"""The value of the header that carries the policy."""
