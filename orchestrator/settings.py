"""Settings of our own project, all from the environment (docs/configuration.md). A host project writes its own instead.

Three modes: production (the default, refuses to start without a secret key), debug and demo.
"""

from datetime import timedelta
from typing import Any

from orchestrator import environment, logging, page_policy

BASE_DIR = environment.ROOT
# There templates and static files lie at the top. The wheel has them inside the app, where Django finds them by itself.
IN_CLONE = (BASE_DIR / "templates" / "orchestrator").is_dir()
DATA_DIR = environment.data_dir()

DEBUG = environment.flag("COUNTERSIGN_DEBUG")
DEMO = environment.demo()
PRODUCTION = not (DEBUG or DEMO)

SECRET_KEY = environment.secret_key(generate=not PRODUCTION)
ALLOWED_HOSTS = environment.words(
    "COUNTERSIGN_ALLOWED_HOSTS", () if PRODUCTION else ("localhost", "127.0.0.1", "[::1]")
)
CSRF_TRUSTED_ORIGINS = environment.words("COUNTERSIGN_TRUSTED_ORIGINS")

DEMO_APPS = ["orchestrator.demo.claims", "orchestrator.demo.imports"]
INSTALLED_APPS = [
    "daphne",
    "django_q",
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

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
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

DATABASES = {
    "default": environment.database(environment.text("DATABASE_URL"), sqlite_default=DATA_DIR / "countersign.sqlite3")
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

if REDIS_URL := environment.redis_url():
    # Optional: it spares the database one read per page and message; without it sessions are read from the database.
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": REDIS_URL,
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
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AXES_HANDLER = "orchestrator.login_throttle.LoginThrottle"
AXES_CLIENT_IP_CALLABLE = "orchestrator.login_throttle.axes_address"
AXES_LOCKOUT_CALLABLE = "orchestrator.views.locked_out.locked_out"
# A success forgives the failures of that name at that address, and no others: somebody with an account of his own must
# not reset what he did to others.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_FAILURE_LIMIT = environment.whole("COUNTERSIGN_LOGIN_FAILURES", default=5, least=1)
AXES_COOLOFF_TIME = timedelta(seconds=environment.number("COUNTERSIGN_LOGIN_PAUSE_SECONDS", default=900, least=1))
# What is refused unlooked at prolongs nothing, else anybody could keep anybody out for good.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
CSRF_FAILURE_VIEW = "orchestrator.views.errors.csrf_failed"

LANGUAGE_CODE = "en-gb"
TIME_ZONE = environment.text("COUNTERSIGN_TIME_ZONE", "UTC")
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
STATIC_ROOT.mkdir(exist_ok=True)
# The prefix keeps our files apart from a host project's: {% static "countersign/css/console.css" %}.
STATICFILES_DIRS = [("countersign", BASE_DIR / "static")] if IN_CLONE else []
MEDIA_ROOT = DATA_DIR / "files"
# Uploads are read by this process alone.
FILE_UPLOAD_PERMISSIONS, FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o600, 0o700
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

HTTPS = environment.flag("COUNTERSIGN_HTTPS", default=PRODUCTION)
SECURE_SSL_REDIRECT = HTTPS
# Probes come without TLS, from inside.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^readyz/workers$"]
SECURE_HSTS_SECONDS = environment.whole("COUNTERSIGN_HSTS_SECONDS", default=3600) if HTTPS else 0
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
if environment.flag("COUNTERSIGN_BEHIND_PROXY"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
# Subdomains and the browsers' preload list are for the owner of the domain to decide.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

# A value may be as large as COUNTERSIGN_MAX_VALUE_BYTES, and JSON needs room around it.
DATA_UPLOAD_MAX_MEMORY_SIZE = environment.whole("COUNTERSIGN_MAX_BODY_BYTES", default=8 * 1024 * 1024, least=1024)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}
SPECTACULAR_SETTINGS = {"TITLE": "Countersign", "VERSION": "1", "OAS_VERSION": "3.1.0"}

if DEMO:
    # The demo's letters become .eml files.
    EMAIL_BACKEND = "orchestrator.demo.claims.mail.EmailBackend"
    TEMPLATES[0]["OPTIONS"]["context_processors"].append("orchestrator.demo.people.people_to_sign_in_as")
EMAIL_FILE_PATH = DATA_DIR / "letters"

MODE = "Production" if PRODUCTION else "Demo" if DEMO else "Development"
# Only what the environment gives; the rest has its default in checkpoints.conf.
COUNTERSIGN = {
    "ENVIRONMENT": environment.text("COUNTERSIGN_ENVIRONMENT", MODE),
    **environment.given(
        LEASE_SECONDS=environment.number,
        SLICE_SECONDS=environment.number,
        NODE_TIMEOUT=environment.number,
        POLL_SECONDS=environment.number,
        GRACE_SECONDS=environment.number,
        WORKERS=environment.whole,
        MAX_VALUE_BYTES=environment.whole,
        MAX_CLAIMS_WITHOUT_PROGRESS=environment.whole,
        CLIENT_ADDRESS_HEADER=environment.text,
        API_FAILURES=environment.whole,
        API_FAILURE_SECONDS=environment.number,
        SOCKETS_PER_PERSON=environment.whole,
        SOCKET_MESSAGES_PER_SECOND=environment.number,
        SECRETS=environment.strings,
        SIGNING_KEYS=environment.strings,
        ENCRYPTION_KEYS=environment.strings,
        COMPROMISED_KEYS=environment.strings,
        PAYLOADS=environment.objects,
        DEFAULT_PAYLOADS=environment.text,
        DIRECT_STATEMENTS=environment.flag,
        AUDIT_HEAD_FILE=environment.text,
        MEMORY_DAYS=environment.number,
        ARCHIVE_FOLDER=environment.text,
        BUNDLE_KEY=environment.text,
        TRUSTED_KEYS=environment.strings,
    ),
}

# What `manage.py worker` goes by, and the stock `manage.py qcluster` too.
SLICE_TIMEOUT = environment.whole("COUNTERSIGN_SLICE_TIMEOUT", default=900, least=1)
Q_CLUSTER = {
    "name": "countersign",
    "broker_class": "orchestrator.worker.broker.RunBroker",
    "workers": COUNTERSIGN.get("WORKERS", 2),
    "queue_limit": COUNTERSIGN.get("WORKERS", 2),
    "bulk": 1,
    "timeout": SLICE_TIMEOUT,
    "retry": 4 * SLICE_TIMEOUT,
    "ack_failures": True,
    "max_attempts": 1,
    "save_limit": -1,
    "guard_cycle": 0.5,
    "recycle": 200,
    "catch_up": False,
    "scheduler": False,
}

LOGGING = logging.configure(
    as_json=PRODUCTION,
    level=environment.choice("COUNTERSIGN_LOG_LEVEL", default="INFO", allowed=("DEBUG", "INFO", "WARNING", "ERROR")),
)
