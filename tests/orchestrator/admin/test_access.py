"""The Django admin shows; it does not act."""

from django.contrib import admin


def test_the_queue_cannot_be_told_from_the_admin_to_run_a_function() -> None:
    assert [
        model for model in admin.site._registry if model._meta.app_label == "django_q"
    ] == []
