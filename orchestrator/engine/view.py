"""The state as a node sees it: an instance of the author's model that reads each channel when it is first asked for.

A node that looks at one number of a large state pays for that number. Whoever asks for everything (a dump, a
comparison, a copy) gets everything, as from any other instance. Only `state` makes views.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.hints import nearest

_OWN = ("__getattr__", "__getattribute__", "__init__", "__new__", "__reduce__", "model_post_init")
"""What a model of the author's may define that a view could not honour."""

Loaders = dict[str, Callable[[], Any]]

STATE, INPUT = "state", "input"
"""The two that a node reads, by the names under which it has them."""
_PUT = object.__setattr__
_CLASS = object.__dict__["__class__"]


class _ReadOnly:
    """Refuses what would be lost: a node changes nothing by changing what it reads. A copy of it is a plain instance
    of the author's model, which can be changed.
    """

    __slots__ = ()
    _role: ClassVar[str] = STATE
    _model: ClassVar[type[BaseModel]]

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            raise _refused_change(self._role, name)

    def __delattr__(self, name: str) -> None:
        raise _refused_change(self._role, name)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:
            if name.startswith("_"):
                raise
            raise _missing(self._model, self._role, name) from None

    def __getitem__(self, name: Any) -> Any:
        """Raises, unless the author's model has items of its own."""
        items = getattr(super(), "__getitem__", None)
        if items is None:
            raise TypeError(f"{self._role}[{name!r}] cannot be read; write {self._role}.{name}")
        return items(name)

    @classmethod
    def _as_plain(cls, copied: BaseModel) -> BaseModel:
        """A copy, as an instance of the author's model itself."""
        _CLASS.__set__(copied, cls._model)
        return copied

    def __copy__(self) -> Any:
        return self._as_plain(super().__copy__())  # type: ignore[misc]

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Any:
        return self._as_plain(super().__deepcopy__(memo))  # type: ignore[misc]


def _refused_change(role: str, name: str) -> InvalidValue:
    if role == INPUT:
        cure = "the input of a run never changes; keep what changes in a channel of the state"
    else:
        cure = f"a node changes the state by what it returns, as in return {{{name!r}: ...}}"
    return InvalidValue(f"{role}.{name} cannot be set: {cure}", path=name)


def _missing(model: type[BaseModel], role: str, name: str) -> AttributeError:
    if name in model.model_fields:
        cure = f"add it to the node's reads=[..., {name!r}]"
        return AttributeError(f"{role}.{name} is not among the channels that this node reads; {cure}")
    thing = "field" if role == INPUT else "channel"
    return AttributeError(f"the {role} has no {thing} {name}; {nearest(name, model.model_fields)}")


def read_only(instance: BaseModel, role: str) -> BaseModel:
    """The instance, which can no longer be changed by attribute. `role`: STATE or INPUT."""
    _CLASS.__set__(instance, _read_only(type(instance), role))
    return instance


@cache
def _read_only(model: type[BaseModel], role: str) -> type[BaseModel]:
    class ReadOnly(_ReadOnly, model):  # type: ignore[misc, valid-type]
        __slots__ = ()
        _role: ClassVar[str] = role
        _model: ClassVar[type[BaseModel]] = model
        __class__ = property(lambda self: model)

        def __reduce_ex__(self, protocol: Any) -> Any:
            """As an instance of the author's model, which another process can find."""
            return self.__copy__().__reduce_ex__(protocol)

    ReadOnly.__name__ = ReadOnly.__qualname__ = model.__name__
    return ReadOnly


@cache
def can_be_viewed(model: type[BaseModel]) -> bool:
    """Whether an instance of the model is nothing but its fields. Any other model is read whole."""
    own = any(getattr(model, name) is not getattr(BaseModel, name) for name in _OWN)
    return not (own or model.__private_attributes__ or model.model_config.get("extra") == "allow")


def viewed(model: type[BaseModel], loaders: Mapping[str, Callable[[], Any]]) -> BaseModel:
    """An instance of the model with these fields, each made by its loader when it is first looked at."""
    lazy = _lazy(model)
    view = lazy.__new__(lazy)
    put = _PUT
    put(view, "__dict__", {})
    put(view, "__pydantic_fields_set__", set(loaders))
    put(view, "__pydantic_extra__", None)
    put(view, "__pydantic_private__", None)
    put(view, "_later", dict(loaders))
    return view


@cache
def _lazy(model: type[BaseModel]) -> type[BaseModel]:
    class View(_ReadOnly, model):  # type: ignore[misc, valid-type]
        __slots__ = ("_later",)
        _model: ClassVar[type[BaseModel]] = model

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

        @classmethod
        def _as_plain(cls, copied: BaseModel) -> BaseModel:
            return _again(model, dict(copied.__dict__), set(copied.__pydantic_fields_set__))

        def __reduce__(self) -> Any:
            """As an instance of the author's model, which another process can find."""
            return _again, (model, dict(self.__dict__), set(self.__pydantic_fields_set__))

    View.__name__ = View.__qualname__ = model.__name__
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
