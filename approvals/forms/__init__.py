"""Forms made from a JSON Schema: `controls` builds the controls that are shown,
`reading` turns a posted form into a value. Pure.

The review page uses them to edit a write, the start page to fill in an input. They
prove nothing: the verb that gets the value checks it against the real type.
"""
