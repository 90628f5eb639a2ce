"""The table that imports fill."""

from django.db import models


class ImportedRow(models.Model):
    """One row of one import. As (run, row) is unique, importing a row again replaces it
    and never doubles it.
    """

    run = models.UUIDField(help_text="The run that imported it.")
    row = models.PositiveIntegerField(
        help_text="As a spreadsheet counts: the header is row 1."
    )
    values = models.JSONField(help_text="{column: text}, all columns of the file.")
    corrected = models.BooleanField(
        default=False, help_text="Imported as people corrected it."
    )
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["run", "row"]
        constraints = [
            models.UniqueConstraint(fields=["run", "row"], name="imported_row_once")
        ]

    def __str__(self) -> str:
        return f"row {self.row} of {self.run}"
