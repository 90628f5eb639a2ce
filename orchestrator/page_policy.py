"""The Content-Security-Policy of our pages: scripts, styles and everything else come from the site itself alone."""

_SELF, _NONE = "'self'", "'none'"

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
HEADER = "; ".join(f"{name} {' '.join(sources)}" for name, sources in DIRECTIVES.items())
