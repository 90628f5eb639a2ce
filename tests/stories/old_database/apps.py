"""The old graphs are known by the fingerprints that they had when the first old database was made.

What a fingerprint covers was narrowed since (docs/versions.md), and the first release comes after that: only these runs
were ever pinned to the wider ones. So that their rows show that the tables are understood, the graphs keep their names.
"""

import os

from django.apps import AppConfig

WIDER = "OLD_DATABASE_WIDER_FINGERPRINTS"
"""The variable that says so of a process that goes on with that database: "yes"."""

FINGERPRINTS = {
    "old_remember": "1cd0b98d629721242ac0192b19f2b940d0c57271d66ee2983b1ea1f3dd0c8243",
    "old_payment": "ac732e81cadff2542e952759552d9e32e68193b1c198c1e86a4178d5d2550f94",
    "old_loop": "309e03571a2f1b20df743289ff6411d86f82cc7b2fb760d64fd8f699f15527cb",
    "old_payment_of_two": "747638f26bcad81781dbfa1d7a78e42049d80e103b4d1ae2c3482ef99170c392",
    "old_secret_payment": "43207bbc62f00ebceaab4d7e8a8502b2121ce9ab7f426d9c71521ab891ff90d4",
    "old_fragile": "c0865e945ae7cbe07731d36e22ac2fb12398f291426608e8e38be3f003cefaa4",
    "old_letter": "2c7a774866db6e95fd67e35fce5f8b08186b087bd5f3b700c065b5e8bb8c4c38",
    "old_patient": "2865cd91afa9a64e879997d2114b2762bca3499f2dcfb5b7fdd11be65bbc9b27",
    "old_recall": "09e2fef778cb55e387e6e85061e91a671fcb187b5c0a39ffb2e4f32550d59749",
}


class OldDatabase(AppConfig):
    name = "tests.stories.old_database"

    def ready(self) -> None:
        """After the graphs were found: this app is the last."""
        from orchestrator.engine import registry

        for compiled in registry.all() if os.environ.get(WIDER) == "yes" else ():
            if compiled.name in FINGERPRINTS:
                compiled.__dict__["fingerprint"] = FINGERPRINTS[compiled.name]
