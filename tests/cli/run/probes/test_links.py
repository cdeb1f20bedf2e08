"""How much of its links a machine uses."""

from __future__ import annotations

import pytest

from cli.run.probes.network import Link, NetworkSnapshot, find_link_share, read_links
from cli.run.probes.timeline import Window


def snapshots(*steps: tuple[float, int, int], name: str = "eth0") -> list[NetworkSnapshot]:
    """At these instants so many bytes had come and gone by a link of 8 kbit/s."""
    return [NetworkSnapshot(at, links={name: Link(8000.0, came, gone)}) for at, came, gone in steps]


STEADY = snapshots(*((float(n), 100 * n, 900 * n) for n in range(11)))


def test_the_busier_direction_of_the_busiest_link_counts() -> None:
    assert find_link_share(STEADY, Window(2.5, 8.5, 2.5)) == pytest.approx(0.9)
    slow = [
        NetworkSnapshot(snapshot.at, links={**snapshot.links, "b": Link(80.0, 0, int(snapshot.at))})
        for snapshot in STEADY
    ]
    assert find_link_share(slow, Window(2.5, 8.5, 2.5)) == pytest.approx(0.9)
    slower = [
        NetworkSnapshot(snapshot.at, links={**snapshot.links, "b": Link(8.0, int(snapshot.at), 0)})
        for snapshot in STEADY
    ]
    assert find_link_share(slower, Window(2.5, 8.5, 2.5)) == pytest.approx(1.0)


def test_only_the_window_counts() -> None:
    idle = snapshots((0, 0, 0), (10, 0, 0), (12, 2000, 0), (20, 2000, 0))
    assert find_link_share(idle, Window(10, 12, 10)) == pytest.approx(1.0)
    assert find_link_share(idle, Window(12, 20, 12)) == 0.0


def test_what_is_not_known_is_not_told() -> None:
    assert find_link_share([], Window(0, 1, 0)) is None
    assert find_link_share(STEADY[:3], Window(0, 10, 0)) is None
    assert (
        find_link_share([NetworkSnapshot(float(n), links={}) for n in range(11)], Window(0, 10, 0))
        is None
    )
    # It came during the run, and has counted before.
    new = [NetworkSnapshot(0.0, links={}), *snapshots((1.0, 10**9, 10**9), (2.0, 10**9, 10**9))]
    assert find_link_share(new, Window(0, 2, 0)) == 0.0


def test_this_machines_links_have_a_speed() -> None:
    links = read_links()
    assert "lo" not in links
    assert all(link.bits_per_s > 0 for link in links.values())
