"""The answer of a SAML provider: verified by python3-saml, and by more than that where it
accepts what an answer leaves out. Only what the provider signed in the assertion counts.
"""

from typing import Any

from django.http import HttpRequest
from lxml.etree import strip_elements, strip_tags
from onelogin.saml2.constants import OneLogin_Saml2_Constants
from onelogin.saml2.errors import OneLogin_Saml2_Error, OneLogin_Saml2_ValidationError
from onelogin.saml2.response import OneLogin_Saml2_Response
from onelogin.saml2.settings import OneLogin_Saml2_Settings
from onelogin.saml2.utils import OneLogin_Saml2_Utils

from checkpoints.conf import conf
from orchestrator.company_login import saml
from orchestrator.company_login.claims import ELSEWHERE, UnusableClaims

LONGEST_ANSWER = 500_000
"""The most characters of an answer that is read."""
UNSTABLE = (
    OneLogin_Saml2_Constants.NAMEID_TRANSIENT,
    OneLogin_Saml2_Constants.NAMEID_EMAIL_ADDRESS,
)
"""Formats of a NameID that is another one each time, or that others may have had."""
ALGORITHMS = frozenset(
    {
        *(
            f"http://www.w3.org/2001/04/xmldsig-more#{key}-sha{bits}"
            for key in ("rsa", "ecdsa")
            for bits in (256, 384, 512)
        ),
        *(
            f"http://www.w3.org/2007/05/xmldsig-more#sha{bits}-rsa-MGF1"
            for bits in (256, 384, 512)
        ),
        OneLogin_Saml2_Constants.SHA256,
        OneLogin_Saml2_Constants.SHA384,
        OneLogin_Saml2_Constants.SHA512,
        "http://www.w3.org/2000/09/xmldsig#enveloped-signature",
        "http://www.w3.org/2001/10/xml-exc-c14n#",
        "http://www.w3.org/2001/10/xml-exc-c14n#WithComments",
    }
)
"""The algorithms of a signature, of its digest, and of its transforms, for which SAML
allows these alone (Core 5.4.4). python3-saml takes any transform, MD5, and SHA-1 with ECDSA.
"""
XENC = f"{{{OneLogin_Saml2_Constants.NS_XENC}}}"
ENCRYPTED_ASSERTION = f"{{{OneLogin_Saml2_Constants.NS_SAML}}}EncryptedAssertion"
DS = f"{{{OneLogin_Saml2_Constants.NS_DS}}}"
REFERENCES = (
    f"{XENC}CipherReference",
    f"{DS}RetrievalMethod",
    "{http://www.w3.org/2009/xmldsig11#}KeyInfoReference",
)
"""Elements that name where a part of what is encrypted lies."""
TOO_MANY_GROUPS = "http://schemas.microsoft.com/claims/groups.link"
"""The attribute in which Entra ID says that a person is in more groups than it sends."""
ALIASES = {
    "email": (
        "mail",
        "urn:oid:0.9.2342.19200300.100.1.3",
        "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress",
    ),
    "given_name": (
        "givenName",
        "urn:oid:2.5.4.42",
        "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/givenname",
    ),
    "family_name": (
        "sn",
        "urn:oid:2.5.4.4",
        "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/surname",
    ),
}
"""The usual names of attributes, by the claim that they stand for."""


BEARER = (
    "/saml:Subject/saml:SubjectConfirmation"
    f"[@Method='{OneLogin_Saml2_Constants.CM_BEARER}']/saml:SubjectConfirmationData"
)
"""Where an assertion says who may bring it, to whom, and until when."""


class UnverifiedAnswer(Exception):
    """The answer is not one that the provider signed for this site, just now."""


def verified_claims(request: HttpRequest, posted: str) -> dict[str, Any]:
    """Return what an answer says of a person, with the id of the request that it answers
    as its `nonce`. Raises `UnverifiedAnswer`; `UnusableClaims` where nobody could be known
    again by it.
    """
    if not posted or len(posted) > LONGEST_ANSWER:
        raise UnverifiedAnswer("there is none")
    settings = OneLogin_Saml2_Settings(saml.settings_for(request))
    try:
        answer = CompanyAnswer(settings, posted)
        # It returns no for whatever is wrong.
        if not answer.is_valid(saml.here(request)):
            raise UnverifiedAnswer(answer.get_error())
        return answer.claims(saml.answer_address(request))
    # A text that is no XML is an error of syntax, and one with a DTD a wrong value.
    except (
        OneLogin_Saml2_Error,
        OneLogin_Saml2_ValidationError,
        SyntaxError,
        ValueError,
    ) as error:
        raise UnverifiedAnswer(str(error)) from error


class CompanyAnswer(OneLogin_Saml2_Response):
    """An answer whose signed assertion says all that a log-in rests on."""

    def _decrypt_assertion(self, xml: Any) -> Any:
        """Return the message with its assertion decrypted. Raises `UnverifiedAnswer`."""
        for method in xml.iter(f"{XENC}EncryptionMethod"):
            # Its errors would give away what was encrypted.
            if method.get("Algorithm") == OneLogin_Saml2_Constants.RSA_1_5:
                raise UnverifiedAnswer("it is encrypted by rsa-1_5")
        try:
            _decrypt(xml, self._settings.get_sp_key())
        except Exception as error:
            # Anybody can encrypt for this site, and xmlsec and lxml fail in many ways.
            raise UnverifiedAnswer("it cannot be decrypted") from error
        return xml

    def process_signed_elements(self) -> Any:
        """Return what is signed. Raises `UnverifiedAnswer` for a weak algorithm, and for
        what a signature must not ask for, before anything of it is done.
        """
        for name in ("SignatureMethod", "DigestMethod", "Transform"):
            for method in self._query(f"//ds:Signature//ds:{name}"):
                algorithm = method.get("Algorithm")
                if algorithm not in ALGORITHMS:
                    raise UnverifiedAnswer(f"it is signed by {algorithm}")
        return super().process_signed_elements()

    def claims(self, recipient: str) -> dict[str, Any]:
        """Return the claims of a valid answer. Raises `UnverifiedAnswer` where the
        assertion leaves out for whom it is, or which request it answers.
        """
        # Without any, python3-saml takes it for an answer to everybody.
        if not self.get_audiences():
            raise UnverifiedAnswer("it names no audience")
        claims = self._attributes()
        if conf().company_id_claim == "sub" and self.get_nameid_format() in UNSTABLE:
            raise UnusableClaims(
                f"{conf().company_name} did not say who you are by an id that stays: "
                "its administrator must let it send a persistent NameID."
            )
        return claims | {
            "sub": self.get_nameid(),
            "nonce": self._answered_request(recipient),
            "auth_time": self._asked_at(),
        }

    def _answered_request(self, recipient: str) -> str:
        """Return the id of the request. That of the message itself is not signed."""
        for confirmation in self._query_assertion(BEARER):
            identifier: str | None = confirmation.get("InResponseTo")
            is_for_us = confirmation.get("Recipient") == recipient
            # python3-saml judges the end of the first that could be for us.
            if identifier and is_for_us and _is_in_time(confirmation):
                return identifier
        raise UnverifiedAnswer("it answers no request of this site")

    def _asked_at(self) -> int:
        """Return when the provider asked the person who they are."""
        (statement,) = self._query_assertion("/saml:AuthnStatement")
        return _time_of(statement.get("AuthnInstant"))

    def _attributes(self) -> dict[str, Any]:
        """Return the attributes by both of their names; several values are a list."""
        named = self.get_friendlyname_attributes() | self.get_attributes()
        claims = {
            name: values[0] if len(values) == 1 else values
            for name, values in named.items()
        }
        if TOO_MANY_GROUPS in claims:
            claims[ELSEWHERE] = [conf().company_groups_claim]
        for claim, names in ALIASES.items():
            values = (claims[name] for name in names if name in claims)
            claims.setdefault(claim, next(values, None))
        return claims


def _decrypt(xml: Any, key: str) -> None:
    """Replace the encrypted assertion of a message by its decrypted form."""
    (encrypted,) = xml.findall(ENCRYPTED_ASSERTION)
    # xmlsec would read files and addresses of this host for whoever names them.
    strip_elements(encrypted, *REFERENCES)
    (data,) = encrypted.findall(f"{XENC}EncryptedData")
    # Some providers put the key beside the data.
    for encrypted_key in encrypted.findall(f"{XENC}EncryptedKey"):
        data.find(f"{DS}KeyInfo").append(encrypted_key)
    OneLogin_Saml2_Utils.decrypt_element(data, key, inplace=True)
    # Moved by lxml, the assertion would get other prefixes, which its signature covers.
    strip_tags(xml, ENCRYPTED_ASSERTION)


def _is_in_time(confirmation: Any) -> bool:
    """Return whether a confirmation names an end, and that is still to come."""
    end = confirmation.get("NotOnOrAfter")
    return bool(end) and _time_of(end) > int(OneLogin_Saml2_Utils.now())


def _time_of(text: str) -> int:
    return int(OneLogin_Saml2_Utils.parse_SAML_to_time(text))
