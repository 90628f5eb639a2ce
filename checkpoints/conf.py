"""The COUNTERSIGN settings, each declared once: type, default and meaning. All other
modules read them here.

`Conf` checks the dictionary of Django's settings when it is first read. The variables of
the environment (`orchestrator.environment`) are checked by the same declarations.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from checkpoints.core.keyring import Keyring, derived
from checkpoints.core.setting_types import (
    GroupsOfDirectory,
    HeaderName,
    Hosts,
    Keys,
    KeysOfOthers,
    LongToken,
    MailSender,
    Moments,
    NumberFromZero,
    OwnKeyOfBundles,
    PayloadBackends,
    PositiveNumber,
    ProviderAddress,
    ProviderName,
    Scopes,
    Secrets,
    SecretText,
    SignInAddress,
    SiteAddress,
    Switch,
    Text,
    WholeFromOne,
    first_fault,
)


class Variables(BaseModel):
    """The settings that can also be given as environment variables, as COUNTERSIGN_ and
    the name. Seconds are floats, sizes are bytes; docs/configuration.md has the same
    descriptions.
    """

    model_config = ConfigDict(
        alias_generator=str.upper,
        extra="forbid",
        frozen=True,
        # A number written as text is not accepted as a number, nor 1 as a switch.
        strict=True,
    )

    workers: WholeFromOne = Field(2, description="worker processes")
    lease_seconds: PositiveNumber = Field(
        15.0, description="how long a worker that went silent keeps a run"
    )
    slice_seconds: PositiveNumber = Field(
        10.0, description="how long a run keeps a worker before others have their turn"
    )
    node_timeout: PositiveNumber = Field(
        60.0, description="seconds for a node without a timeout of its own"
    )
    poll_seconds: PositiveNumber = Field(
        0.05, description="pause between two looks at an empty queue"
    )
    grace_seconds: NumberFromZero = Field(
        10.0, description="time for tasks in hand when a worker is told to stop"
    )
    max_value_bytes: WholeFromOne = Field(
        4 * 1024 * 1024, description="largest value of a channel"
    )
    max_claims_without_progress: WholeFromOne = Field(
        5,
        description=(
            "a run claimed this many times without progress is parked as failed"
        ),
    )
    client_address_header: HeaderName = Field(
        "",
        description=(
            "the header in which your proxy says where a request came from, such as "
            "`X-Real-IP` or `X-Forwarded-For`; without it no header is believed "
            "([throttles](deployment.md#throttles))"
        ),
    )
    api_failures: WholeFromOne = Field(
        20,
        description=(
            "refused tokens of one address, or with one beginning, after which further "
            "ones are answered 429"
        ),
    )
    api_failure_seconds: PositiveNumber = Field(
        60.0, description="until counting begins anew"
    )
    sockets_per_person: WholeFromOne = Field(
        40,
        description=(
            "live views that one person may have open in one web process, at most two "
            "for each open page; another one is closed with 4429"
        ),
    )
    waits_per_person: WholeFromOne = Field(
        1000,
        description=(
            "calls that may wait for [an approval](approvals.md#waiting-for-the-answer) "
            "in one web process for one person; another one is answered 429"
        ),
    )
    socket_messages_per_second: PositiveNumber = Field(
        5.0,
        description=(
            "messages that a live view may send; one that sends more is closed with "
            "4429"
        ),
    )
    payloads: PayloadBackends = Field(
        default_factory=dict,
        repr=False,
        description="a JSON object: the [payload backends](payloads.md#choosing-one) by name",
    )
    default_payloads: Text = Field(
        "database", description="the backend of graphs that choose none"
    )
    direct_statements: Switch = Field(
        True,
        description=(
            "the commits of a run are sent [past Django's "
            "cursors](proof.md#past-djangos-cursors); turned off, the same statements "
            "go through them, and each commit is waited for"
        ),
    )
    audit_head_file: Text = Field(
        "",
        description=(
            "a file to which the head of the [audit log's "
            "chain](integrity.md#runs-that-are-gone-or-were-put-back-as-a-whole) is "
            "added each time it moves; keep it where no user of the database can write"
        ),
    )
    time_stamp_url: SiteAddress = Field(
        "",
        description=(
            "the address of an authority (RFC 3161) that [stamps the head of the audit "
            "log](audit.md#time-stamps) once a day; needs the package `rfc3161-client`"
        ),
    )
    time_stamp_roots: Text = Field(
        "",
        description=(
            "a file with the authority's root certificates, in PEM, by which its tokens "
            "are verified"
        ),
    )
    archive_folder: Text = Field(
        "",
        description=(
            "where [retention](retention.md#policies) writes the bundles of runs before "
            "anything of them goes"
        ),
    )
    memory_days: NumberFromZero = Field(
        0.0,
        description=(
            "what was remembered longer ago is "
            "[forgotten](retention.md#what-goes-by-itself); 0 keeps it for ever"
        ),
    )
    site_url: SiteAddress = Field(
        "",
        description=(
            "the address of this installation, such as `https://runs.example.org`, for "
            "the links in [notices](notices.md); without it they begin with the path"
        ),
    )
    mail_from: MailSender = Field(
        "",
        description=(
            "the sender of [notices by mail](notices.md#mail), such as "
            "`Countersign <runs@example.org>`; without one none is sent"
        ),
    )
    metrics_token: LongToken = Field(
        "",
        repr=False,
        description=(
            "opens [`/metrics`](watching.md#metrics) to a scraper: at least 32 "
            "characters; without it there are no metrics"
        ),
    )
    oidc_issuer: ProviderAddress = Field(
        "",
        description=(
            "the address of an OpenID Connect provider, exactly as it names itself: "
            "[the log-in of a company](login.md); needs the extra `login`"
        ),
    )
    oidc_client_id: Text = Field("", description="the name of this client there")
    oidc_client_secret: SecretText = Field(
        "", repr=False, description="its secret; none for a public client"
    )
    oidc_scopes: Scopes = Field(
        "openid profile email", description="what is asked for, with spaces between"
    )
    saml_issuer: ProviderName = Field(
        "",
        description=(
            "the entity id of a [SAML provider](login.md#saml), exactly as it names "
            "itself; needs the extra `saml`"
        ),
    )
    saml_sign_in_url: SignInAddress = Field(
        "", description="where it signs people in, by a redirect"
    )
    saml_certificate: Text = Field(
        "",
        description=(
            "a file with the certificate by which it signs, in PEM; two while it changes"
        ),
    )
    saml_key: Text = Field(
        "",
        description=(
            "a file with an RSA key and its certificate, in PEM: it [signs requests and "
            "decrypts assertions](login.md#a-key-of-this-site)"
        ),
    )
    company_name: Text = Field(
        "your company", description="what the button of the log-in says"
    )
    company_groups_claim: Text = Field(
        "groups",
        description=(
            "the claim that names the groups of a person; `realm_access.roles` looks "
            "inside"
        ),
    )
    company_groups: GroupsOfDirectory = Field(
        default_factory=dict,
        description=(
            "a JSON object: [the groups here by the group of the "
            "directory](login.md#groups)"
        ),
    )
    company_name_claim: Text = Field(
        "preferred_username",
        description="the claim that names a new account; people must not choose it",
    )
    company_id_claim: Text = Field(
        "sub",
        description=(
            "the claim by which an account is known again; it must never change; `sub` "
            "is the NameID of SAML"
        ),
    )
    company_session_hours: PositiveNumber = Field(
        12.0, description="hours after which a person of the company logs in anew"
    )
    local_login: Switch = Field(
        True,
        description=(
            "whether people with a password here may log in; turned off, only "
            "superusers, at [an address of their own](login.md#emergencies)"
        ),
    )
    scim_token: SecretText = Field(
        "",
        repr=False,
        description=(
            "the bearer token with which [`sync_groups`](login.md#between-log-ins) "
            "reads a directory"
        ),
    )
    webhooks_to_private_addresses: Switch = Field(
        False,
        description=(
            "whether [webhooks](notices.md#where-it-may-be-sent) may send to addresses "
            "of private networks and to this host"
        ),
    )
    webhooks_over_http: Switch = Field(
        False,
        description=(
            "whether [webhooks](notices.md#where-it-may-be-sent) may send without TLS; "
            "always in debug mode"
        ),
    )
    callback_hosts: Hosts = Field(
        (),
        description=(
            "the hosts, between commas, that may be named as the [callback of an "
            "approval](approvals.md#to-be-called), with a port that is not the usual; "
            "without any none may"
        ),
    )
    secrets: Secrets = Field(
        default_factory=dict,
        repr=False,
        description="a JSON object of texts: what nodes find in `ctx.secrets`",
    )
    signing_keys: Keys = Field(
        default_factory=dict,
        repr=False,
        description="a JSON object, id to key, that seals rows: 32 bytes each, in base64",
    )
    encryption_keys: Keys = Field(
        default_factory=dict,
        repr=False,
        description=(
            "the same for graphs that are `encrypted`; without one none of their runs "
            "starts"
        ),
    )
    encrypt_approvals: Switch = Field(
        False,
        description=(
            "whether new [approvals](approvals.md#encryption) are encrypted; needs "
            "`ENCRYPTION_KEYS`"
        ),
    )
    bundle_key: OwnKeyOfBundles = Field(
        b"",
        repr=False,
        description=(
            "the 32-byte Ed25519 seed that signs [bundles and "
            "receipts](bundles.md#keys), in base64 or hexadecimal"
        ),
    )
    trusted_keys: KeysOfOthers = Field(
        default_factory=dict,
        description=(
            "a JSON object, name to public key: the other installations whose bundles "
            "are imported; 32 bytes each, in base64 or hexadecimal"
        ),
    )
    compromised_keys: Moments = Field(
        default_factory=dict,
        description=(
            "a JSON object, id of a signing key to a date: what it sealed from then on "
            "is refused"
        ),
    )
    environment: Text = Field(
        "Development",
        description='the word in the console\'s corner; all but "Production" are tinted',
    )

    @field_validator("default_payloads")
    @classmethod
    def _is_among_the_payloads(cls, name: str, checked: ValidationInfo) -> str:
        # `checked.data` has the fields that are declared above, PAYLOADS among them.
        if name not in {"database", *checked.data.get("payloads", {})}:
            raise ValueError(f"names {name!r}, which PAYLOADS does not have")
        return name

    @property
    def company_issuer(self) -> str:
        """Return the provider at which people sign in, of either protocol; empty if
        there is none.
        """
        return self.oidc_issuer or self.saml_issuer


class Conf(Variables):
    """One installation's settings. A host project's own dictionary has further ones."""

    max_upload_bytes: WholeFromOne = Field(
        64 * 1024 * 1024, description="the largest uploaded file"
    )
    doorbell: Text = Field(
        "",
        description=(
            "the dotted path of a function that is called after each wake ([the "
            "worker](worker.md#in-your-own-task-queue))"
        ),
    )
    verbs_ask_rights: Switch = Field(
        False,
        description=(
            "whether the verbs of `runs` and `bundle` ask for [the rights of the "
            "person](api.md#rights-in-python) who is handed in"
        ),
    )


@cache
def conf() -> Conf:
    """Return the settings as they are now. Raises `ImproperlyConfigured` naming an
    unknown setting, or one whose value cannot be used.
    """
    dictionary = getattr(settings, "COUNTERSIGN", None) or {}
    if not isinstance(dictionary, Mapping):
        raise ImproperlyConfigured(
            f"COUNTERSIGN must be a dictionary, not {type(dictionary).__name__}"
        )
    _require_known(dictionary)
    try:
        return Conf.model_validate(dict(dictionary))
    except ValidationError as error:
        path, words = first_fault(error)
    # Raised outside the handler: a traceback must not show the error of pydantic, which
    # quotes the value, and that may be a secret.
    place = "".join(f"[{part!r}]" for part in path)
    raise ImproperlyConfigured(f"COUNTERSIGN{place} {words}")


def _require_known(dictionary: Mapping[str, Any]) -> None:
    setting_names = {name.upper() for name in Conf.model_fields}
    for name in dictionary:
        if name not in setting_names:
            raise ImproperlyConfigured(
                f"COUNTERSIGN has no setting {name!r}; known: "
                f"{', '.join(sorted(setting_names))}"
            )


@cache
def keyring() -> Keyring:
    """Return the keys that the settings name now, and those derived from the secret
    key, which seal where no other does. Raises `ImproperlyConfigured` naming a key that
    cannot be one.
    """
    settings_now = conf()
    # Django names the newest fallback first; a keyring seals with its last key.
    secrets = (
        *map(str, reversed(settings.SECRET_KEY_FALLBACKS)),
        str(settings.SECRET_KEY),
    )
    # Keys of the settings come last: if there are any, they seal.
    return Keyring(
        signing={**_derived_keys(secrets), **settings_now.signing_keys},
        encryption=settings_now.encryption_keys,
        compromised=settings_now.compromised_keys,
    )


def bundle_seed() -> bytes:
    """Return the 32 bytes of the Ed25519 key that signs bundles and receipts; derived
    from the secret key where the settings have none. Raises `ImproperlyConfigured`.
    """
    return conf().bundle_key or derived(
        str(settings.SECRET_KEY).encode(), "countersign bundle"
    )


def trusted_keys() -> Mapping[str, bytes]:
    """Return the public keys of other installations by name. Raises
    `ImproperlyConfigured` naming one that cannot be a key.
    """
    return conf().trusted_keys


@receiver(setting_changed)
def _forget_settings(**_: Any) -> None:
    conf.cache_clear()
    keyring.cache_clear()


def _derived_keys(secrets: Sequence[str]) -> dict[str, bytes]:
    """Return the keys that are derived from `secrets`, the newest last."""
    keys: dict[str, bytes] = {}
    for secret in secrets:
        key = derived(secret.encode(), "countersign seal")
        # The id stands for the key without revealing it, so that a seal made under
        # another secret key is recognized as such.
        keys[f"derived-{sha256(key).hexdigest()[:12]}"] = key
    return keys
