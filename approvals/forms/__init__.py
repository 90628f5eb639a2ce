"""Forms made from a JSON Schema: `controls` says what is shown, `reading` turns what was posted into a value. Pure.

The review page edits a write with it, the start page fills in an input with it. It proves nothing: the verb that gets
the value checks it against the real type.
"""
