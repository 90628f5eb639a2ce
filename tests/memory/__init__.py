"""Memory: semantics §9 rule by rule."""
