"""The one user data of a server: what is joined arrives as it would have, each apart."""

from __future__ import annotations

import email
import json
from email.message import Message
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

import pytest

from nospoon.clusterfile.load import load
from nospoon.model.connections import NOVAS_USER_DATA
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.user_data import SCRIPT, against_user_data, joined

OURS = "#!/bin/sh\necho ours\n"
CLOUD = """
cluster: dev
hosts:
  here: {}
  cloud: {openstack: {cloud: {name: c, auth: {auth_url: "http://k"}}, boot_address: 192.0.2.9}}
"""


def parts(archive: str) -> list[tuple[str, str | None, bytes]]:
    """Type, file name and content of each, as cloud-init walks over them."""
    message = email.message_from_string(archive)
    assert message.get_content_type() == "multipart/mixed"
    return [
        (each.get_content_type(), each.get_filename(), _content(each))
        for each in message.walk()
        if not each.is_multipart()
    ]


def _content(part: Message) -> bytes:
    found = part.get_payload(decode=True)
    assert isinstance(found, bytes)
    return found


def test_user_data_without_services_stays_as_it_is() -> None:
    assert joined("#!/bin/sh\n", "", ()) == "#!/bin/sh\n"
    assert joined("#!/bin/sh\n", "", ("ssh-rsa A",)) == "#!/bin/sh\n"
    assert joined("", "", ()) == ""
    head, _, keys = joined("", "", ("ssh-rsa A",)).partition("\n")
    assert (head, json.loads(keys)) == ("#cloud-config", {"ssh_authorized_keys": ["ssh-rsa A"]})


@pytest.mark.parametrize(
    "text",
    [
        "#cloud-config\nx: 1\n",
        "#cloud-config\nmerge_how: [{name: list, settings: [append]}]\nx: é 漢\n",
        "#!/bin/sh\nFrom me\n.\n--\n\ntrue",
        "#!/bin/sh\r\ntrue\r\n",
        "#!/bin/sh\ntrue\r",
        "#include\nhttp://example.org/x\n",
        "#cloud-boothook\n#!/bin/sh\n",
        "## template: jinja\n#cloud-config\n",
        "#cloud-config-archive\n- '#!/bin/sh'\n",
        "\n  #cloud-config\n",
    ],
)
def test_a_text_of_the_users_is_a_part_whose_first_line_says_what_it_is(text: str) -> None:
    ours, theirs = parts(joined(text, OURS, ()))
    assert ours == ("text/x-shellscript", SCRIPT, OURS.encode())
    assert theirs == ("text/plain", None, text.encode())
    first, second = parts(joined("", f"{OURS}# é\n", ("ssh-rsa A",)))
    assert first[2].decode() == f"{OURS}# é\n"
    assert second[2].startswith(b"#cloud-config\n")


def test_an_archive_of_the_users_keeps_its_parts_and_their_headers() -> None:
    archive = MIMEMultipart()
    config = MIMEText("#cloud-config\npackages: [a]\n", "cloud-config")
    config["Merge-Type"] = "list(append)+dict(recurse_array)+str()"
    script = MIMEText("#!/bin/sh\necho é\n", "x-shellscript", "utf-8")
    script.add_header("Content-Disposition", "attachment", filename="mine.sh")
    for each in (config, script):
        archive.attach(each)
    made = joined(archive.as_string(), OURS, ())
    assert archive.as_string() in made
    assert [each[:2] for each in parts(made)] == [
        ("text/x-shellscript", SCRIPT),
        ("text/cloud-config", None),
        ("text/x-shellscript", "mine.sh"),
    ]
    kept = [each for each in email.message_from_string(made).walk() if each["Merge-Type"]]
    assert [each["Merge-Type"] for each in kept] == [config["Merge-Type"]]
    alone = "MIME-Version: 1.0\nContent-Type: text/cloud-config\n\nx: 1\n"
    assert parts(joined(alone, OURS, ()))[1] == ("text/cloud-config", None, b"x: 1\n")


def test_what_is_longer_than_a_cloud_takes_is_refused_with_its_numbers() -> None:
    def found(own: int, role: int, host: str = "cloud") -> list[str]:
        data = f"#!/bin/sh\n{'x' * (own - 10)}" if own else ""
        services = {"a": {"health": 80, "role": f"#!/bin/sh\n{'y' * role}"}} if role else {}
        nodes = [{"name": "a", "kind": "vm", "image": "i", **({"user_data": data} if own else {})}]
        network = {"default": {"netboot": "builtin"}}
        sections = {"nodes": nodes, "services": services, "networks": network}
        lines = [f"{name}: {json.dumps(section)}" for name, section in sections.items()]
        cluster = load("\n".join([CLOUD, *lines]), file="x")
        return [*against_user_data(cluster, Allocations(hosts={"a": host}))]

    assert found(NOVAS_USER_DATA, 0) == []
    (why,) = found(NOVAS_USER_DATA + 1, 0)
    assert why == (
        "node a on host cloud: its user data has 49150 bytes, and a cloud takes 49149. Put it into "
        "the image, or fetch it: user data and roles may."
    )
    assert found(20_000, 20_000) == []
    (why,) = found(20_000, 40_000)
    assert why.startswith("node a on host cloud: its `user_data` of 20000 bytes, with roles and")
    assert why.endswith("Put it into the image, or fetch it: user data and roles may.")
    assert found(20_000, 40_000, "here") == []
