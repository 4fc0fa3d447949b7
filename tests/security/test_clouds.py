"""`ironic.cloud`: what the daemon is told of a cloud, and nothing of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import ProviderError, SpecError
from nospoon.model.cloud import refused
from nospoon.providers.clouds import connection

AUTH = "auth: {auth_url: 'http://k/v3', username: u, password: hush}"
WRONG = {
    "cloud: theirs": "unknown key 'cloud'",
    "profile: rackspace": "unknown key 'profile'",
    "load_yaml_config: true": "unknown key 'load_yaml_config'",
    "load_envvars: true": "unknown key 'load_envvars'",
    "cacert: /etc/shadow": "expected no file",
    "cert: /etc/shadow": "expected no file",
    "key: /root/key": "expected no file",
    "verify: /etc/shadow": "expected true or false",
    "auth_type: v3oidcpassword": "expected one of",
    "auth_type: v3kerberos": "expected one of",
    "baremetal_endpoint_override: 'file:///etc/shadow'": "expected a URL",
}


def read(cloud: str) -> str:
    text = f"cluster: c\nironic:\n  cloud:\n    {cloud}\nnodes: [{{}}]\n"
    place = load(text, file="f").ironic
    assert place is not None
    return place.cloud


@pytest.mark.parametrize("given", WRONG)
def test_a_setting_that_leads_to_the_daemons_own_is_an_error_of_its_line(given: str) -> None:
    with pytest.raises(SpecError) as wrong:
        read(f"{AUTH}\n    {given}")
    (problem,) = wrong.value.problems
    assert (problem.file, problem.line) == ("f", 5)
    assert WRONG[given] in problem.message


@pytest.mark.parametrize("key", ["cacert", "client_cert", "mutual_auth", "identity_provider"])
def test_an_unknown_key_of_auth_is_an_error_of_its_line(key: str) -> None:
    with pytest.raises(SpecError) as wrong:
        read(f"auth:\n      auth_url: http://k/v3\n      {key}: /etc/shadow")
    assert [(each.line, each.message) for each in wrong.value.problems] == [
        (6, f"unknown key {key!r}")
    ]


def test_what_clouds_have_is_passed_on() -> None:
    given = {
        "auth_type": "v3applicationcredential", "region_name": "r", "interface": "internal",
        "auth": {"auth_url": "http://k/v3", "application_credential_id": "i",
                 "application_credential_secret": "s"},
        "verify": False, "api_timeout": 3.0, "baremetal_endpoint_override": "http://i",
        "compute_endpoint_override": "http://n", "identity_api_version": "3",
    }  # fmt: skip
    assert json.loads(read(json.dumps({"name": "x", **given}))) == given


def test_no_message_repeats_a_secret() -> None:
    for name in ("password", "token", "application_credential_secret"):
        with pytest.raises(SpecError) as wrong:
            read(f"auth: {{{name}: [hush]}}")
        assert "hush" not in str(wrong.value)


def test_settings_of_an_earlier_store_are_refused_before_openstacksdk_sees_them() -> None:
    auth = {"auth_url": "http://k/v3", "password": "p"}
    for told in (
        {"cloud": "theirs"}, {"load_envvars": True}, {"auth": auth, "cacert": "/x"},
        {"auth": {**auth, "private_key": "/x"}}, {"auth": "/x"}, {"verify": "/x"},
        {"auth_type": "v3kerberos"},
    ):  # fmt: skip
        assert list(refused(told))
        with pytest.raises(ProviderError, match="not supported"):
            connection(told, purpose="test")


SECRET = "the daemon's own"
CONNECT = """
import json, sys
from nospoon.providers.clouds import connection
made = connection(json.loads(sys.argv[1]), purpose="test")
netrc = made.session.session.auth
print(json.dumps([made.config.config.get("auth"), made.config.name, callable(netrc)], default=str))
"""


def test_the_environment_and_clouds_yaml_of_the_daemon_are_not_used(tmp_path: Path) -> None:
    auth = {"auth_url": "http://daemons/v3", "username": "root", "password": SECRET}
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(json.dumps({"clouds": {"envvars": {"auth": auth}, "theirs": {"auth": auth}}}))
    own = {
        "OS_CLIENT_CONFIG_FILE": str(clouds), "OS_CLOUD": "theirs", "OS_PASSWORD": SECRET,
        "OS_USERNAME": "root", "OS_AUTH_URL": "http://daemons/v3",
    }  # fmt: skip
    told = {"auth": {"auth_url": "http://members/v3"}}
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, json.dumps(told)],
        env={**os.environ, **own}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert SECRET not in done.stdout + done.stderr
    assert json.loads(done.stdout)[0] == told["auth"], done.stderr
