"""The fields that a browser sends of a form into which nobody typed. Pure."""

from approvals.forms import controls
from approvals.forms.controls import Control


def untouched(control: Control) -> dict[str, str]:
    """Return the fields that a browser sends of the form where nobody types into it."""
    fields: dict[str, str] = {}
    for inner in control.walk():
        text = _sent_of(inner)
        if text is not None:
            fields[inner.name] = text
    return fields


def _sent_of(control: Control) -> str | None:
    """Return the text that a browser sends for one control as it is drawn; None if it
    sends nothing.
    """
    if control.switch:
        return controls.NOT_SET if control.value is None else controls.SET
    # Only the controls at the bottom of the tree are fields of the form.
    if control.children:
        return None
    if control.kind == "bool":
        return "true" if control.value else None
    if control.value is None and control.kind in controls.RADIOS:
        return _sent_of_no_choice(control)
    return "" if control.value is None else str(control.value)


def _sent_of_no_choice(control: Control) -> str | None:
    """Return what radio buttons send if none is chosen: nothing, unless one of them
    says that there is no value.
    """
    has_button = control.nullable and control.kind == "radio"
    return "" if has_button else None
