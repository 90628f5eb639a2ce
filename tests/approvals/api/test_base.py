"""What all endpoints share: a described method takes the parameters that it declares,
and no others.
"""

from typing import Any

import pytest
from rest_framework import serializers

from approvals.api.base import describe, require_declared_query


class Narrowing(serializers.Serializer[Any]):
    status = serializers.CharField(required=False)


@describe(parameters=[Narrowing], open_prefixes=["metadata."])
def listed(view: Any, request: Any) -> None: ...


def test_declared_parameters_and_names_of_ones_own_behind_a_prefix_are_taken() -> None:
    require_declared_query(listed, {"status": "failed", "metadata.customer": "ACME"})


@pytest.mark.parametrize("name", ["foo", "metadata", "Status"])
def test_any_other_parameter_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(serializers.ValidationError) as refused:
        require_declared_query(listed, {name: "x"})
    assert list(refused.value.detail) == [name]
