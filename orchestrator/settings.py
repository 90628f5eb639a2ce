"""Settings of our own project, all from the environment (docs/configuration.md). A host
project writes its own instead.

Three modes: production (the default, refuses to start without a secret key), debug and
demo.
"""

import sys
from datetime import timedelta
from typing import Any

from orchestrator import environment, logging, page_policy
from orchestrator.company_login import configuration as company_login

BASE_DIR = environment.ROOT
# There templates and static files lie at the top. The wheel has them inside the app,
# where Django finds them by itself.
IN_CLONE = (BASE_DIR / "templates" / "orchestrator").is_dir()
env = environment.load()
DATA_DIR = env.data_dir

DEBUG = env.debug
DEMO = env.is_demo
PRODUCTION = env.is_production

SECRET_KEY = env.key()
LOOPBACK = () if PRODUCTION else ("localhost", "127.0.0.1", "[::1]")
ALLOWED_HOSTS = list(env.allowed_hosts or LOOPBACK)
CSRF_TRUSTED_ORIGINS = list(env.trusted_origins)

DEMO_APPS = [
    "orchestrator.demo.accounts",
    "orchestrator.demo.claims",
    "orchestrator.demo.imports",
]
# Only its `runserver` is used, and it brings Twisted into every process: a sixth of a
# worker's memory.
DEVELOPMENT_SERVER = ["daphne"] if "runserver" in sys.argv else []
INSTALLED_APPS = [
    # Before staticfiles, whose `runserver` it replaces.
    *DEVELOPMENT_SERVER,
    "django_q",
    # Before the admin, some of whose templates it overrides.
    "orchestrator",
    "approvals",
    "checkpoints",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "axes",
]
if DEMO:
    INSTALLED_APPS += DEMO_APPS
if env.has_company_login:
    INSTALLED_APPS[:0] = company_login.APPS

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "orchestrator.middleware.Compression",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "orchestrator.middleware.Outages",
    "orchestrator.middleware.AdminForms",
    "orchestrator.middleware.Acting",
    "axes.middleware.AxesMiddleware",
]

if env.has_company_login:
    MIDDLEWARE += company_login.MIDDLEWARE

ROOT_URLCONF = "orchestrator.urls"
ASGI_APPLICATION = "orchestrator.asgi.application"
WSGI_APPLICATION = "orchestrator.wsgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"] if IN_CLONE else [],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": env.database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

if env.redis_url:
    # Optional: it spares the database one read per page and message; without it
    # sessions are read from the database.
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": env.redis_url,
            # A page must not wait for a host that does not answer.
            "OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5},
        }
    }
    SESSION_ENGINE = "orchestrator.sessions"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AXES_HANDLER = "orchestrator.login_throttle.LoginThrottle"
AXES_CLIENT_IP_CALLABLE = "orchestrator.login_throttle.axes_address"
AXES_LOCKOUT_CALLABLE = "orchestrator.views.locked_out.locked_out"
# A success forgives the failures of that name at that address, and no others: an
# attacker with an account must not reset his failures at other names.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_FAILURE_LIMIT = env.login_failures
AXES_COOLOFF_TIME = timedelta(seconds=env.login_pause_seconds)
# A log-in that is refused unchecked does not prolong the pause: otherwise anybody could
# keep a person out for good.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False
LOGIN_URL = "login"
SOCIALACCOUNT_ADAPTER = company_login.ADAPTER
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
CSRF_FAILURE_VIEW = "orchestrator.views.errors.csrf_failed"

LANGUAGE_CODE = "en-gb"
TIME_ZONE = env.time_zone
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = env.static_dir or DATA_DIR / "static"
# WhiteNoise warns at each start if it is missing.
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
# The prefix keeps our files apart from a host project's: {% static
# "countersign/css/console.css" %}.
STATICFILES_DIRS = [("countersign", BASE_DIR / "static")] if IN_CLONE else []
MEDIA_ROOT = DATA_DIR / "files"
# Uploads are read by this process alone.
FILE_UPLOAD_PERMISSIONS = 0o600
FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o700
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "orchestrator.staticfiles.HashedFiles"
        if PRODUCTION
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not PRODUCTION

CONTENT_SECURITY_POLICY = {"DIRECTIVES": page_policy.DIRECTIVES}
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

HTTPS = PRODUCTION if env.https is None else env.https
SECURE_SSL_REDIRECT = HTTPS
# Probes and scrapers come without TLS, from inside.
SECURE_REDIRECT_EXEMPT = [
    r"^healthz$",
    r"^readyz$",
    r"^readyz/workers$",
    r"^metrics$",
]
SECURE_HSTS_SECONDS = env.hsts_seconds if HTTPS else 0
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
if env.behind_proxy:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# Subdomains and the browsers' preload list are for the owner of the domain to decide.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

# A value may be as large as COUNTERSIGN_MAX_VALUE_BYTES, and JSON needs room around it.
DATA_UPLOAD_MAX_MEMORY_SIZE = env.max_body_bytes

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.SessionAuthentication"
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}
SPECTACULAR_SETTINGS = {"TITLE": "Countersign", "VERSION": "1", "OAS_VERSION": "3.1.0"}

if DEMO:
    # The demo's letters become .eml files.
    EMAIL_BACKEND = "orchestrator.demo.claims.mail.EmailBackend"
    TEMPLATES[0]["OPTIONS"]["context_processors"].append(
        "orchestrator.demo.people.people_to_sign_in_as"
    )
EMAIL_FILE_PATH = DATA_DIR / "letters"

if env.demo_payments_url:
    COUNTERSIGN_DEMO_PAYMENTS_URL = env.demo_payments_url

COUNTERSIGN = env.countersign()

# For `manage.py worker`, and for django-q2's own `manage.py qcluster`.
Q_CLUSTER = {
    "name": "countersign",
    "broker_class": "orchestrator.worker.broker.RunBroker",
    "workers": env.workers,
    # No more than its workers, so that no run waits in a local queue under a lease.
    "queue_limit": env.workers,
    "bulk": 1,
    "timeout": env.slice_timeout,
    # The worker refuses a retry that is not longer than the timeout.
    "retry": 4 * env.slice_timeout,
    "ack_failures": True,
    "max_attempts": 1,
    # Successes are not saved: with a positive limit, django-q2 locks rows at every
    # success.
    "save_limit": -1,
    "guard_cycle": 0.5,
    "recycle": 200,
    "catch_up": False,
    # It ticks every 30 s, and would run schedules twice on SQLite; standing work is
    # done by jobs.
    "scheduler": False,
}

LOGGING = logging.configure(as_json=PRODUCTION, level=env.log_level)
