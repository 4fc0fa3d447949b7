"""`ironic.cloud` as a mapping: what the nospoon command reads from clouds.yaml for the daemon."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from nospoon.clusterfile.fields import Url
from nospoon.clusterfile.section import Flag, Number, Section, Text, Whole
from nospoon.model.cloud import AUTH_TYPES


def _no_file(value: object) -> None:
    if value is not None:
        raise ValueError(
            "expected no file: the daemon reads none that a client names. Let its machine trust "
            "the certificate (update-ca-certificates), or write `verify: false`"
        )


def _secret(value: object) -> object:
    """Text; the message does not repeat it."""
    if not isinstance(value, str):
        raise ValueError("expected text. Put it in quotes")
    return value


Secret = Annotated[str, BeforeValidator(_secret)]
NoFile = Annotated[None, BeforeValidator(_no_file)]


class CloudAuthSection(Section):
    """Who logs in, as keystoneauth1 calls it."""

    auth_url: Url | None = Field(None, description="URL of Keystone.")
    endpoint: Url | None = Field(None, description="URL of the API, without Keystone.")
    username: Text | None = Field(None, description="User.")
    user_id: Text | None = Field(None, description="User, by id.")
    password: Secret | None = Field(None, description="Password.", repr=False)
    token: Secret | None = Field(None, description="Token, in place of a user.", repr=False)
    user_domain_id: Text | None = Field(None, description="Domain of the user, by id.")
    user_domain_name: Text | None = Field(None, description="Domain of the user.")
    project_id: Text | None = Field(None, description="Project, by id.")
    project_name: Text | None = Field(None, description="Project.")
    project_domain_id: Text | None = Field(None, description="Domain of the project, by id.")
    project_domain_name: Text | None = Field(None, description="Domain of the project.")
    domain_id: Text | None = Field(None, description="Domain as scope, by id.")
    domain_name: Text | None = Field(None, description="Domain as scope.")
    default_domain_id: Text | None = Field(None, description="Domain of user and project, by id.")
    default_domain_name: Text | None = Field(None, description="Domain of user and project.")
    system_scope: Text | None = Field(None, description="`all`: the system as scope.")
    trust_id: Text | None = Field(None, description="Trust as scope.")
    application_credential_id: Text | None = Field(None, description="Application credential.")
    application_credential_name: Text | None = Field(None, description="Its name, with a user.")
    application_credential_secret: Secret | None = Field(
        None, description="Its secret.", repr=False
    )


class CloudSection(Section):
    """What openstacksdk is told of a cloud; nothing of it names a file."""

    name: Text = Field("", description="Name of the cloud, for messages.")
    auth_type: Literal[AUTH_TYPES] = Field(  # type: ignore[valid-type]
        "password", description="Plugin of keystoneauth1; default `password`."
    )
    auth: CloudAuthSection = Field(
        default_factory=CloudAuthSection, description="Who logs in, and where."
    )
    region_name: Text | None = Field(None, description="Region.")
    interface: Text | None = Field(None, description="`public`, `internal` or `admin`.")
    verify: Flag | None = Field(None, description="Check certificates; default yes.")
    api_timeout: Annotated[Number, Field(gt=0, le=3600)] | None = Field(
        None, description="Seconds that a request may take."
    )
    identity_api_version: Text | Whole | None = Field(
        None, description="Version of Keystone's API."
    )
    baremetal_endpoint_override: Url | None = Field(None, description="URL of Ironic's API.")
    compute_endpoint_override: Url | None = Field(None, description="URL of Nova's API.")
    placement_endpoint_override: Url | None = Field(None, description="URL of Placement's API.")
    cacert: NoFile = Field(None, description="Not supported: a file.")
    cert: NoFile = Field(None, description="Not supported: a file.")
    key: NoFile = Field(None, description="Not supported: a file.")

    def told(self) -> dict[str, object]:
        """What openstacksdk is told."""
        given: dict[str, object] = self.model_dump(exclude_none=True, exclude={"name"})
        return given


def _form(value: object) -> str:
    return "settings" if isinstance(value, dict | CloudSection) else "name"


CloudOrName = Annotated[
    Annotated[Text, Tag("name")] | Annotated[CloudSection, Tag("settings")], Discriminator(_form)
]
"""The name of a cloud, which the nospoon command looks up, or what it found."""
