"""References to uploaded files, as inputs contain them. `checkpoints.uploads` keeps the
files themselves.
"""

from pydantic import BaseModel, ConfigDict


class FileRef(BaseModel):
    """An uploaded file: `file` is the id that its upload gave, never a path; `size` in
    bytes, `sha256` in hex.
    """

    model_config = ConfigDict(frozen=True)

    file: str
    name: str
    size: int
    sha256: str
