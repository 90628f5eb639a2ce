"""The entries of Django's settings for the log-in of a company. `orchestrator.settings` reads
it, so it imports no models and no django-allauth.
"""

APPS = (
    "orchestrator.company_login",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
)
"""The apps, of which the first must stand before `orchestrator`."""
MIDDLEWARE = ("allauth.account.middleware.AccountMiddleware",)
ADAPTER = "orchestrator.company_login.adapter.LogInAdapter"
"""For `SOCIALACCOUNT_ADAPTER`."""
