"""Tables in terminals: what has no room is left out, and named."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nospoon.cli.output import print_rows

ROWS = [{"node": "worker-0", "ipmi": "127.0.0.1:6230", "redfish": "http://[::1]/" + "s" * 60}]
NAMES = ("node", "ipmi", "redfish")
NOTE = "Left out for the width of the terminal: redfish. Use -c or -f json.\n"


@contextmanager
def terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Standard output is a terminal of so many columns; afterwards the list has its lines."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    shown: list[str] = []
    with os.fdopen(side, "w") as standard_output:
        monkeypatch.setattr("sys.stdout", standard_output)
        monkeypatch.setenv("NO_COLOR", "1")
        yield shown
    said = b""
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while part := os.read(main, 65536):
            said += part
    shown.extend(said.decode().splitlines())
    os.close(main)


def test_a_narrow_terminal_does_without_spare_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal(80, monkeypatch) as shown:
        print_rows(ROWS, format_="table", names=NAMES, spare=("redfish",))
    assert shown == ["NODE      IPMI", "worker-0  127.0.0.1:6230"]
    assert capsys.readouterr().err == NOTE


@pytest.mark.parametrize(
    ("width", "columns", "format_"),
    [(120, (), "table"), (0, (), "table"), (80, NAMES, "table"), (80, (), "value")],
    ids=["wide enough", "of unknown width", "columns that were asked for", "for programs"],
)
def test_everything_is_shown(
    width: int,
    columns: tuple[str, ...],
    format_: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with terminal(width, monkeypatch) as shown:
        print_rows(ROWS, format_=format_, columns=columns, names=NAMES, spare=("redfish",))
    assert ROWS[0]["redfish"] in shown[-1]
    assert capsys.readouterr().err == ""


def test_reasons_are_not_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"what": "kvm", "detail": "d" * 90}]
    with terminal(40, monkeypatch) as shown:
        print_rows(rows, format_="table", names=("what", "detail"))
    assert shown[-1] == f"kvm   {'d' * 90}"
    assert capsys.readouterr().err == ""


def test_what_is_no_terminal_gets_all(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(ROWS, format_="table", names=NAMES, spare=("redfish",))
    assert str(ROWS[0]["redfish"]) in capsys.readouterr().out


def test_a_text_with_line_ends_makes_no_rows_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """BMC clients write the messages of events, and guests those of consoles."""
    rows = [{"at": "10:00", "message": "a\n10:01  fan failed"}, {"at": "10:02", "message": "b"}]
    print_rows(rows, format_="table", names=("at", "message"))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["AT     MESSAGE", "10:00  a 10:01  fan failed", "10:02  b"]


def test_columns_are_as_wide_as_their_widest_cell_whatever_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        {"node": "n-1", "is_on": True, "nics": ["a", "b"], "why": None},
        {"node": "n-10", "is_on": False, "nics": [], "why": "x\x1b"},
        {"node": "n-1", "is_on": True, "nics": ["a", "b"], "why": ""},
    ]
    print_rows(rows, format_="table", names=tuple(rows[0]))
    assert capsys.readouterr().out.splitlines() == [
        "NODE  IS ON  NICS  WHY",
        "n-1   yes    a,b",
        "n-10  no           x\\u001b",
        "n-1   yes    a,b",
    ]
