"""The state as a node sees it: an instance of the author's model that loads each channel
on first use.

A node that looks at one number of a large state pays for that number only. A dump, a
comparison or a copy gets everything, as from any other instance. Only `state` makes
views.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.values.hints import nearest

_OWN = (
    "__getattr__",
    "__getattribute__",
    "__init__",
    "__new__",
    "__reduce__",
    "model_post_init",
)
"""Methods that an author's model may define and that a view could not honour."""

Loaders = dict[str, Callable[[], Any]]

STATE = "state"
INPUT = "input"
"""The roles of what a node reads, as it names them."""
_PUT = object.__setattr__
# The descriptor itself: a read-only class hides it behind a property without setter.
_CLASS = object.__dict__["__class__"]


class _ReadOnly:
    """Refuses changes that would be lost: a node changes nothing by changing what it
    reads. A copy is a plain instance of the author's model, which can be changed.
    """

    __slots__ = ()
    _role: ClassVar[str] = STATE
    _model: ClassVar[type[BaseModel]]

    def __setattr__(
        self,
        name: str,
        value: Any,
    ) -> None:
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
        """Return an item if the author's model has items. Raises `TypeError` if not."""
        items = getattr(super(), "__getitem__", None)
        if items is None:
            raise TypeError(
                f"{self._role}[{name!r}] cannot be read; write {self._role}.{name}"
            )
        return items(name)

    @classmethod
    def _as_plain(cls, copied: BaseModel) -> BaseModel:
        """Return a copy as an instance of the author's model itself."""
        _CLASS.__set__(copied, cls._model)
        return copied

    def __copy__(self) -> Any:
        return self._as_plain(super().__copy__())  # type: ignore[misc]

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Any:
        return self._as_plain(super().__deepcopy__(memo))  # type: ignore[misc]


def _refused_change(role: str, name: str) -> InvalidValue:
    if role == INPUT:
        cure = (
            "the input of a run never changes; "
            "keep what changes in a channel of the state"
        )
    else:
        cure = (
            "a node changes the state by what it returns, "
            f"as in return {{{name!r}: ...}}"
        )
    return InvalidValue(f"{role}.{name} cannot be set: {cure}", path=name)


def _missing(
    model: type[BaseModel],
    role: str,
    name: str,
) -> AttributeError:
    if name in model.model_fields:
        cure = f"add it to the node's reads=[..., {name!r}]"
        return AttributeError(
            f"{role}.{name} is not among the channels that this node reads; {cure}"
        )
    thing = "field" if role == INPUT else "channel"
    return AttributeError(
        f"the {role} has no {thing} {name}; {nearest(name, model.model_fields)}"
    )


def read_only(instance: BaseModel, role: str) -> BaseModel:
    """Make the instance refuse changes of its attributes, and return it. `role`: STATE
    or INPUT.
    """
    _CLASS.__set__(instance, _read_only(type(instance), role))
    return instance


@cache
def _read_only(model: type[BaseModel], role: str) -> type[BaseModel]:
    class ReadOnly(_ReadOnly, model):  # type: ignore[misc, valid-type]
        __slots__ = ()
        _role: ClassVar[str] = role
        _model: ClassVar[type[BaseModel]] = model
        # pydantic compares classes by `__class__`, and the two are to be equal.
        __class__ = property(lambda self: model)

        def __reduce_ex__(self, protocol: Any) -> Any:
            """Pickle as an instance of the author's model, which another process can
            find.
            """
            return self.__copy__().__reduce_ex__(protocol)

    ReadOnly.__name__ = ReadOnly.__qualname__ = model.__name__
    return ReadOnly


@cache
def can_be_viewed(model: type[BaseModel]) -> bool:
    """Return whether an instance of the model is nothing but its fields. Any other model
    is read whole.
    """
    # A view loads fields only, so private and extra values would be lost.
    if model.__private_attributes__ or model.model_config.get("extra") == "allow":
        return False
    return all(getattr(model, name) is getattr(BaseModel, name) for name in _OWN)


def viewed(
    model: type[BaseModel], loaders: Mapping[str, Callable[[], Any]]
) -> BaseModel:
    """Return an instance of the model with these fields, each made by its loader on
    first use.
    """
    # Built without validation, for values were validated when they were staged.
    lazy = _lazy(model)
    view = lazy.__new__(lazy)
    put = _PUT
    put(view, "__dict__", {})
    # pydantic expects these of any instance, and its constructor is passed by.
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
            # A dump, a comparison and a copy read `__dict__`, so all is loaded.
            if name == "__dict__":
                _fill(self)
            elif name == "__class__":
                return model
            return super().__getattribute__(name)

        def __getattr__(self, name: str) -> Any:
            try:
                load = object.__getattribute__(self, "_later").pop(name, None)
            except AttributeError:
                # A copy has no loaders.
                load = None
            if load is None:
                return super().__getattr__(name)
            # Kept in `__dict__`, so that the next look finds it without this method.
            value = object.__getattribute__(self, "__dict__")[name] = load()
            return value

        @classmethod
        def _as_plain(cls, copied: BaseModel) -> BaseModel:
            return _plain_instance(
                model, dict(copied.__dict__), set(copied.__pydantic_fields_set__)
            )

        def __reduce__(self) -> Any:
            """Pickle as an instance of the author's model, which another process can
            find.
            """
            return _plain_instance, (
                model,
                dict(self.__dict__),
                set(self.__pydantic_fields_set__),
            )

    View.__name__ = View.__qualname__ = model.__name__
    return View


def _waiting(view: BaseModel) -> Loaders:
    """Return the loaders of fields that were not used yet; a copy has none."""
    try:
        later: Loaders = object.__getattribute__(view, "_later")
    except AttributeError:
        return {}
    return later


def _fill(view: BaseModel) -> None:
    """Load the remaining fields, and bring all into their declared order."""
    later = _waiting(view)
    if not later:
        return
    # By way of `object`, for the view's own `__dict__` fills it.
    fields: dict[str, Any] = object.__getattribute__(view, "__dict__")
    loaded = {name: later.pop(name)() for name in list(later)}
    fields.update(loaded)
    names = type(view).model_fields
    in_order = {name: fields[name] for name in names if name in fields}
    fields.clear()
    fields.update(in_order)


def _plain_instance(
    model: type[BaseModel],
    fields: dict[str, Any],
    fields_set: set[str],
) -> BaseModel:
    return model.model_construct(fields_set, **fields)
