"""A directory as SCIM 2.0 lists it (RFC 7643 and 7644): its users and groups, from files
or from its address. A list that lacks a part is refused: a person who is not in it would
look as if they had left.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import requests

from checkpoints.core.strict_json import parse_strict

PAGE = 200
MOST_PAGES = 5_000
SECONDS = 30
"""How long the directory may take for a page."""

Resource = Mapping[str, Any]


class UnreadableDirectory(Exception):
    """The lists cannot be read, or lack a part. The message says what is wrong."""


@dataclass(frozen=True, slots=True)
class DirectoryUser:
    """A user of the directory, with the groups that name them."""

    active: bool
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes by which users are the people who sign in, and groups are those of
    the settings.
    """

    user: str = "id"
    group: str = "displayName"


def users_in(
    resources: Iterable[Resource], attributes: Attributes, mapped: Collection[str]
) -> dict[str, DirectoryUser]:
    """Return the users among these resources, by the id under which they sign in, with
    those of their groups that are `mapped`. Raises `UnreadableDirectory`, also where no
    mapped group is listed: everybody would look as if they had lost theirs.
    """
    users: list[Resource] = []
    groups: list[Resource] = []
    for resource in resources:
        (groups if _is_group(resource) else users).append(resource)
    if not users:
        raise UnreadableDirectory("the directory lists no users")
    group_ids = {str(group.get("id")) for group in groups}
    mapped_groups = _of_mapping(groups, attributes.group, mapped)
    memberships = _memberships(mapped_groups, group_ids)
    listed: dict[str, DirectoryUser] = {}
    for user in users:
        identifier = _text(user, attributes.user, "a user")
        if identifier in listed:
            raise UnreadableDirectory(
                f"two users have the {attributes.user} {identifier}"
            )
        listed[identifier] = DirectoryUser(
            active=_is_active(user, identifier),
            groups=frozenset(memberships[_text(user, "id", "a user")]),
        )
    return listed


def _text(resource: Resource, attribute: str, what: str) -> str:
    """Return an attribute by which something is known. Raises `UnreadableDirectory`."""
    value = resource.get(attribute)
    if not isinstance(value, str) or not value:
        raise UnreadableDirectory(f"{what} has no {attribute}")
    return value


def _is_group(resource: Resource) -> bool:
    schemas = resource.get("schemas") or ()
    return any(str(schema).endswith(":Group") for schema in schemas)


def _is_active(user: Resource, identifier: str) -> bool:
    # An account that does not say so is active (RFC 7643, 4.1.1).
    active = user.get("active", True)
    if not isinstance(active, bool):
        raise UnreadableDirectory(
            f"the user {identifier} has an active that is neither true nor false"
        )
    return active


def _of_mapping(
    groups: Iterable[Resource], attribute: str, mapped: Collection[str]
) -> dict[str, Resource]:
    """Return the groups that are mapped, by the attribute that the mapping names. Raises
    `UnreadableDirectory`, also where two groups share the name of a mapped one: anybody
    may have made the second.
    """
    listed: dict[str, Resource] = {}
    for group in groups:
        name = _text(group, attribute, "a group")
        if name in listed:
            raise UnreadableDirectory(f"two groups have the {attribute} {name}")
        if name in mapped:
            listed[name] = group
    if not listed:
        raise UnreadableDirectory(
            "the directory lists no group of COUNTERSIGN_COMPANY_GROUPS: is the list of "
            f"groups missing, or is {attribute} not what the mapping names?"
        )
    if not any("members" in group for group in listed.values()):
        raise UnreadableDirectory("the groups are listed without their members")
    return listed


def _memberships(
    groups: Mapping[str, Resource], group_ids: Collection[str]
) -> dict[str, set[str]]:
    """Return the groups of each user, by the id of the resource. Raises
    `UnreadableDirectory`, also for a group inside a group: its people would look as if
    they had left.
    """
    names: dict[str, set[str]] = defaultdict(set)
    for name, group in groups.items():
        members = group.get("members") or []
        if not isinstance(members, list) or not all(
            isinstance(member, dict) for member in members
        ):
            raise UnreadableDirectory(f"the members of the group {name} are no list")
        for member in members:
            identifier = _text(member, "value", f"a member of the group {name}")
            if identifier in group_ids or member.get("type") == "Group":
                raise UnreadableDirectory(
                    f"the group {name} contains a group: let the directory list people"
                )
            names[identifier].add(name)
    return names


def resources_of_file(text: str) -> list[Resource]:
    """Return the resources of a list in a file. Raises `UnreadableDirectory`."""
    try:
        content = parse_strict(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableDirectory("it is not JSON that names nothing twice") from error
    resources = _resources(content)
    # Without it nobody could say whether a page is all there is.
    if "totalResults" not in content:
        raise UnreadableDirectory("it is no list of SCIM: it has no totalResults")
    _require_whole(len(resources), content["totalResults"])
    return resources


def resources_of(address: str, token: str) -> Iterator[Resource]:
    """Yield all users and groups of the directory at an address. Raises
    `UnreadableDirectory`, `requests.RequestException`.
    """
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {token}"
        session.headers["Accept"] = "application/scim+json"
        for kind in ("Users", "Groups"):
            yield from _all_pages(session, f"{address.rstrip('/')}/{kind}")


def _all_pages(session: requests.Session, address: str) -> Iterator[Resource]:
    count = 0
    total = None
    for _ in range(MOST_PAGES):
        page = _page(session, address, start=count + 1)
        # After a removal, those behind it move up, and the next page leaves one out.
        if total not in (None, page.get("totalResults")):
            raise UnreadableDirectory(f"the list at {address} changed: try again")
        total = page.get("totalResults")
        resources = _resources(page)
        yield from resources
        count += len(resources)
        if not resources or not isinstance(total, int) or count >= total:
            _require_whole(count, total)
            return
    raise UnreadableDirectory(f"the list at {address} has no end")


def _page(session: requests.Session, address: str, *, start: int) -> dict[str, Any]:
    # Led elsewhere, the token would go there too.
    answer = session.get(
        address,
        params={"startIndex": start, "count": PAGE},
        timeout=SECONDS,
        allow_redirects=False,
    )
    if answer.status_code != 200:
        raise UnreadableDirectory(f"{address} answered {answer.status_code}")
    try:
        # JSON is UTF-8, whatever `answer.text` would take it for.
        content = parse_strict(answer.content)
    except (ValueError, RecursionError) as error:
        raise UnreadableDirectory(f"{address} did not answer with JSON") from error
    if not isinstance(content, dict):
        raise UnreadableDirectory(f"{address} did not answer with a list")
    return content


def _resources(content: Any) -> list[Resource]:
    resources = content.get("Resources", []) if isinstance(content, dict) else None
    if not isinstance(resources, list):
        raise UnreadableDirectory("it is no list of SCIM: it has no Resources")
    if not all(isinstance(resource, dict) for resource in resources):
        raise UnreadableDirectory("it is no list of SCIM: a resource is no object")
    return resources


def _require_whole(count: int, total: Any) -> None:
    if count != total:
        raise UnreadableDirectory(f"the list has {count} of {total} resources")
