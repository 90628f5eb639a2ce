"""Endpoints of bundles: export a run as a signed file, and import one."""

import tempfile
from typing import Any, BinaryIO, cast
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import Body, describe, person, read_body
from approvals.downloads import file_answer
from approvals.permissions import visible_run
from checkpoints import bundle
from checkpoints.conf import conf
from orchestrator.api.serializers import RunOut
from orchestrator.api.uploads import only_file_of
from orchestrator.runs.start_for_user import require

MEDIA_TYPE = "application/x-ndjson"
_WRAPPING = 64 * 1024
"""Bytes allowed for the form around its file."""


class ExportQuery(Body):
    """The query of an export."""

    as_is = serializers.BooleanField(required=False, default=False)


class ImportBody(serializers.Serializer[Any]):
    """A form with one bundle."""

    file = serializers.FileField()


class RunExport(APIView):
    """The signed bundle of a run; with `as_is` also of one that does not verify, which
    the bundle then says.
    """

    scopes = {"GET": "export", "HEAD": "export"}

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[Any, str]:
        """Answer with a bundle, whatever the request accepts; refusals are JSON."""
        return super().perform_content_negotiation(request, force=True)

    @describe(
        parameters=[ExportQuery], responses={(200, MEDIA_TYPE): OpenApiTypes.BINARY}
    )
    def get(self, request: Request, run: str) -> StreamingHttpResponse:
        run_id, as_is = self._check_export(request, run)
        # The bundle is written before the answer begins, so that an error can still be
        # answered as a problem.
        file = tempfile.TemporaryFile()  # noqa: SIM115 the answer closes it
        try:
            bundle.export(run_id, file, by=person(request), as_is=as_is)
        except BaseException:
            file.close()
            raise
        return file_answer(
            request._request,
            file,
            name=f"run-{run_id}.jsonl",
            content_type=MEDIA_TYPE,
        )

    @describe(exclude=True)
    def head(self, request: Request, run: str) -> HttpResponse:
        """Return whether the caller may export; nothing is exported."""
        self._check_export(request, run)
        return HttpResponse(content_type=MEDIA_TYPE)

    def _check_export(self, request: Request, run: str) -> tuple[UUID, bool]:
        """Return the id of the run, and whether it is exported even if it does not
        verify. Raises `UnknownThing`, `Forbidden`.
        """
        as_is = read_body(ExportQuery, request.query_params)["as_is"]
        # A run that may not be seen is unknown, before any right to export is judged.
        run_id = visible_run(person(request), run).id
        require(person(request), "export_run")
        return run_id, as_is


class Imports(APIView):
    """Take in a bundle that a trusted key signed: a run to be read and forked. The same
    again gives the same run.
    """

    scopes = {"POST": "steer"}
    parser_classes = [MultiPartParser]

    def most_bytes(self) -> int:
        return conf().max_upload_bytes + _WRAPPING

    @describe(
        request={"multipart/form-data": ImportBody},
        responses={201: RunOut, 200: RunOut},
    )
    def post(self, request: Request) -> Response:
        require(person(request), "import_run")
        coding = request.META.get("HTTP_CONTENT_ENCODING", "identity")
        if coding != "identity":
            raise UnsupportedMediaType(
                coding, detail="a bundle is sent as it is, not compressed"
            )
        file = cast(BinaryIO, only_file_of(request))
        run, new = bundle.load_or_find(file, by=person(request))
        return Response(RunOut(run).data, status=201 if new else 200)
