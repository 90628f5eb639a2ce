"""Endpoints of the caller's notices. `approvals.urls` has their addresses."""

from django.db.models import Exists, OuterRef
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals import permissions
from approvals.api.base import Query, describe, page_schema, paginate, person, read_body
from approvals.api.serializers import NoticeOut, ReadNoticesBody, UnreadOut
from approvals.people.notice_list import count_unread, mark_read, notices_of
from checkpoints.models import Run


class Notices(APIView):
    """The notices of the caller, the newest first."""

    @describe(
        operation_id="notices_list",
        parameters=[Query],
        responses=page_schema(NoticeOut),
    )
    def get(self, request: Request) -> Response:
        read_body(Query, request.query_params)
        caller = person(request)
        runs = Run.objects.filter(id=OuterRef("run"))
        seen = permissions.visible_among(caller, runs).order_by()
        rows = notices_of(caller).annotate(is_visible=Exists(seen))
        return paginate(request, rows, NoticeOut, by=("-notice",))


class NoticesRead(APIView):
    """Mark notices of the caller as read, up to one of them. Those that came since stay
    unread.
    """

    scopes = {"POST": "decide"}

    @describe(request=ReadNoticesBody, responses=UnreadOut)
    def post(self, request: Request) -> Response:
        posted = read_body(ReadNoticesBody, request.data)
        caller = person(request)
        mark_read(caller, until=posted["until"])
        unread = count_unread(caller)
        return Response({"unread": unread})
