"""The outside world of the demo's claims: the case register, and the books of the
payment endpoint.
"""

from django.db import models


class ClaimCase(models.Model):
    """The register's row of a claim. `changes` counts the updates, so that a doubled
    one would show.
    """

    claim_id = models.CharField(max_length=40, unique=True)
    policyholder = models.CharField(max_length=200)
    status = models.CharField(max_length=20, default="open")
    paid = models.DecimalField(max_digits=12, decimal_places=2, default=0)
    reserve = models.DecimalField(max_digits=12, decimal_places=2, default=0)
    note = models.TextField(blank=True, default="")
    changes = models.PositiveIntegerField(default=0)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-updated_at"]

    def __str__(self) -> str:
        return f"{self.claim_id} {self.status}"


class Payment(models.Model):
    """A payment that the endpoint holds: one per idempotency key, whatever number of
    calls carried it.
    """

    idempotency_key = models.CharField(max_length=200, unique=True)
    claim_id = models.CharField(max_length=40)
    payee = models.CharField(max_length=200)
    account = models.CharField(max_length=34)
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    currency = models.CharField(max_length=3)
    reference = models.CharField(max_length=140)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-at", "-id"]

    def __str__(self) -> str:
        return f"{self.amount} {self.currency} to {self.payee}"


class PaymentCall(models.Model):
    """One call to the endpoint, accepted or not. Rows are only ever added."""

    idempotency_key = models.CharField(max_length=200, blank=True)
    body = models.TextField(help_text="As it came, cut at 4,000 characters.")
    status = models.PositiveSmallIntegerField(
        help_text="The HTTP status of the answer."
    )
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["idempotency_key"], name="payment_call_key")]

    def __str__(self) -> str:
        return f"{self.idempotency_key} {self.status}"
