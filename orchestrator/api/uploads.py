"""The endpoint that stores uploaded files, and the form with one file."""

from typing import Any

from django.core.files.uploadedfile import UploadedFile
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import describe, person
from checkpoints import uploads
from checkpoints.conf import conf
from orchestrator.api.serializers import UploadOut
from orchestrator.runs.start_for_user import require

_WRAPPING = 64 * 1024
"""Bytes allowed for the form around its file."""


class UploadBody(serializers.Serializer[Any]):
    """A form with one file."""

    file = serializers.FileField()


class Uploads(APIView):
    """Keep a file, and return the reference with which an input names it."""

    scopes = {"POST": "start"}
    parser_classes = [MultiPartParser]

    def most_bytes(self) -> int:
        return conf().max_upload_bytes + _WRAPPING

    def require_rights(self, request: Request) -> None:
        require(person(request), "start_run")

    @describe(request={"multipart/form-data": UploadBody}, responses={201: UploadOut})
    def post(self, request: Request) -> Response:
        self.require_rights(request)
        file = only_file_of(request)
        reference = uploads.save_upload(file, name=file.name or "", by=person(request))
        return Response(reference, status=201)


def only_file_of(request: Request) -> "UploadedFile[Any]":
    """Return the file of a form with one file. Raises DRF's `ValidationError`."""
    form: Any = request.data
    file = form.get("file")
    # A request without a body has no form, so its lists are looked at last.
    if isinstance(file, UploadedFile) and _has_one_value(form):
        return file
    raise ValidationError(
        {"file": ["Post a form with one file, in the field named file."]}
    )


def _has_one_value(form: Any) -> bool:
    values_by_name = list(form.lists())
    return len(values_by_name) == 1 and len(values_by_name[0][1]) == 1
