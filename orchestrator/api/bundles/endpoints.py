"""Endpoints of bundles: a run leaves as a signed file, and one comes in."""

import tempfile
from typing import Any, BinaryIO, cast

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.exceptions import UnsupportedMediaType, ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import Body, describe, person, read_body
from approvals.downloads import file_answer
from approvals.permissions import visible_run
from checkpoints import bundle
from checkpoints.conf import conf
from checkpoints.models import Run
from orchestrator.api.serializers import RunOut
from orchestrator.runs.start_for_user import require

MEDIA_TYPE = "application/x-ndjson"
_WRAPPING = 64 * 1024
"""Bytes that a form may take around its file."""


class ExportQuery(Body):
    """What may be asked of an export."""

    as_is = serializers.BooleanField(required=False, default=False)


class ImportBody(serializers.Serializer[Any]):
    """A form with one bundle."""

    file = serializers.FileField()


class RunExport(APIView):
    """The signed bundle of a run; with `as_is` also of one that does not verify, which the bundle then says."""

    scopes = {"GET": "export", "HEAD": "export"}

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[Any, str]:
        """Whatever is asked for, it is a bundle; refusals are JSON."""
        return super().perform_content_negotiation(request, force=True)

    @describe(parameters=[ExportQuery], responses={(200, MEDIA_TYPE): OpenApiTypes.BINARY})
    def get(self, request: Request, run: str) -> StreamingHttpResponse:
        found, as_is = self._asked(request, run)
        file = tempfile.TemporaryFile()  # noqa: SIM115 the answer closes it
        try:
            bundle.export(found.id, file, by=person(request), as_is=as_is)
        except BaseException:
            file.close()
            raise
        return file_answer(request._request, file, name=f"run-{found.id}.jsonl", content_type=MEDIA_TYPE)

    @describe(exclude=True)
    def head(self, request: Request, run: str) -> HttpResponse:
        """Whether one may; nothing is exported."""
        self._asked(request, run)
        return HttpResponse(content_type=MEDIA_TYPE)

    def _asked(self, request: Request, run: str) -> tuple[Run, bool]:
        as_is = read_body(ExportQuery, request.query_params)["as_is"]
        found = visible_run(person(request), run)
        require(person(request), "export_run")
        return found, as_is


class Imports(APIView):
    """Take in a bundle that a trusted key signed: a run to be read and forked. The same again gives the same run."""

    scopes = {"POST": "steer"}
    parser_classes = [MultiPartParser]

    def most_bytes(self) -> int:
        return conf().max_upload_bytes + _WRAPPING

    @describe(request={"multipart/form-data": ImportBody}, responses={201: RunOut, 200: RunOut})
    def post(self, request: Request) -> Response:
        require(person(request), "import_run")
        if (coding := request.META.get("HTTP_CONTENT_ENCODING", "identity")) != "identity":
            raise UnsupportedMediaType(coding, detail="a bundle is sent as it is, not compressed")
        form: Any = request.data
        file = form.get("file")
        if not isinstance(file, UploadedFile) or [len(given) for _, given in form.lists()] != [1]:
            raise ValidationError({"file": ["Post a form with one file, in the field named file."]})
        run, new = bundle.load_or_find(cast(BinaryIO, file), by=person(request))
        return Response(RunOut(run).data, status=201 if new else 200)
