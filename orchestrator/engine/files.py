"""References to uploaded files, as inputs hold them. What they lead to is known by the floor above."""

from pydantic import BaseModel, ConfigDict


class FileRef(BaseModel):
    """An uploaded file: `file` is the id that its upload gave, never a path; `size` in bytes, `sha256` in hex."""

    model_config = ConfigDict(frozen=True)

    file: str
    name: str
    size: int
    sha256: str
