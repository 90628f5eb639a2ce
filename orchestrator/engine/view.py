"""The state as a node sees it: an instance of the author's model that reads each channel when it is first asked for.

A node that looks at one number of a large state pays for that number. Whoever asks for everything (a dump, a
comparison, a copy) gets everything, as from any other instance. Only `state` makes views.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

_OWN = ("__getattr__", "__getattribute__", "__init__", "__new__", "__reduce__", "model_post_init")
"""What a model of the author's may define that a view could not honour."""

Loaders = dict[str, Callable[[], Any]]


@cache
def can_be_viewed(model: type[BaseModel]) -> bool:
    """Whether an instance of the model is nothing but its fields. Any other model is read whole."""
    own = any(getattr(model, name) is not getattr(BaseModel, name) for name in _OWN)
    return not (own or model.__private_attributes__ or model.model_config.get("extra") == "allow")


def viewed(model: type[BaseModel], loaders: Mapping[str, Callable[[], Any]]) -> BaseModel:
    """An instance of the model with these fields, each made by its loader when it is first looked at."""
    lazy = _lazy(model)
    view = lazy.__new__(lazy)
    put = object.__setattr__
    put(view, "__dict__", {})
    put(view, "__pydantic_fields_set__", set(loaders))
    put(view, "__pydantic_extra__", None)
    put(view, "__pydantic_private__", None)
    put(view, "_later", dict(loaders))
    return view


@cache
def _lazy(model: type[BaseModel]) -> type[BaseModel]:
    class View(model):  # type: ignore[misc, valid-type]
        __slots__ = ("_later",)

        def __getattribute__(self, name: str) -> Any:
            if name == "__dict__":
                _fill(self)
            elif name == "__class__":
                return model
            return super().__getattribute__(name)

        def __getattr__(self, name: str) -> Any:
            load = _waiting(self).pop(name, None)
            if load is None:
                return super().__getattr__(name)
            value = object.__getattribute__(self, "__dict__")[name] = load()
            return value

        def __reduce__(self) -> Any:
            """As an instance of the author's model, which another process can find."""
            return _again, (model, dict(self.__dict__), set(self.__pydantic_fields_set__))

    return View


def _waiting(view: BaseModel) -> Loaders:
    """The loaders of fields that nobody has looked at; a copy has none."""
    try:
        later: Loaders = object.__getattribute__(view, "_later")
    except AttributeError:
        return {}
    return later


def _fill(view: BaseModel) -> None:
    """Load what is left, and bring the fields into their declared order."""
    later = _waiting(view)
    if not later:
        return
    kept: dict[str, Any] = object.__getattribute__(view, "__dict__")
    kept.update({name: later.pop(name)() for name in list(later)})
    in_order = {name: kept[name] for name in type(view).model_fields if name in kept}
    kept.clear()
    kept.update(in_order)


def _again(model: type[BaseModel], fields: dict[str, Any], given: set[str]) -> BaseModel:
    return model.model_construct(given, **fields)
