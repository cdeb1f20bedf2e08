"""The files of a site, and its folder."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from cli.commands.results import write_command
from cli.results.sources import MANIFEST, find_sources
from cli.results.store import NOTES
from cli.show.site import check_folder, make_site, write_site
from cli.system.errors import ConfigError

from .published import SPEEDS, TIMES, describe_server, judge, keep_campaign, make_results

FIRST_SIGHT = 2_000_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A site of three candidates, one of them at two versions, with what must not be in it."""
    folder = tmp_path_factory.mktemp("kept")
    secret = describe_server()
    secret["client"]["host"] = "build-7"
    secret["database"]["settings"]["data_directory"] = "/var/lib/postgresql/data"
    secret["database"]["settings"]["ssl_passphrase_command"] = "cat password=geheim"
    tags = {"alpha": {"no 'te": "</script><b>"}}
    results = make_results(environments={"alpha": secret}, tags=tags)
    night = keep_campaign(folder / "night", results, {"gamma load 4": "could not read /home/me/x"})
    (night / NOTES).write_text(
        "alpha: It waits for <no disk>.\nfindings: {alpha & beta lead: 400 instead of 100 events/s.}"
    )
    (night / "verdict.json").write_text(judge().model_dump_json())
    old = {"alpha": describe_server("PostgreSQL 16.2")}
    keep_campaign(folder / "before", make_results({"alpha": SPEEDS["beta"]}, environments=old))
    return make_site(find_sources([folder]), "Which <database>?", write_command)


def test_it_has_its_pages(files: dict[str, bytes]) -> None:
    assert {path for path in files if not path.startswith("results/")} == {
        "index.html", "method.html", "figures-temperature.html", "verdict-night.html",
        "candidates/alpha-postgresql-16-2.html", "candidates/alpha-postgresql-18-4.html",
        "candidates/beta.html", "candidates/gamma.html",
        *(f"queries/temperature-{query}.html" for query in ("mean", "newest")),
        "campaigns/before.yaml", "campaigns/night.yaml",
    }  # fmt: skip
    assert sum(path.startswith("results/") for path in files) == 24
    assert len(files["index.html"]) < FIRST_SIGHT
    assert b"PostgreSQL 18.4" in files["candidates/alpha-postgresql-18-4.html"]


def test_why_a_figure_surprises_stands_beside_it(files: dict[str, bytes]) -> None:
    own = files["candidates/alpha-postgresql-18-4.html"].decode()
    assert "It waits for &lt;no disk&gt;." in own
    assert (
        "<li><strong>alpha PostgreSQL 18.4</strong>: It waits for &lt;no"
        in files["index.html"].decode()
    )
    assert b"It waits" not in files["candidates/beta.html"]


def test_what_was_found_comes_first(files: dict[str, bytes]) -> None:
    findings = files["index.html"].decode().partition('<section id="findings">')[2]
    first, _ = findings.split("</li>", 1)
    assert "<strong>alpha &amp; beta lead</strong>: 400 instead of 100 events/s." in first


def test_links_lead_to_files_of_the_site_and_nowhere_else(files: dict[str, bytes]) -> None:
    for path, content in files.items():
        if path.endswith(".html"):
            page = content.decode()
            for link in re.findall(r'(?:href|src|action)="([^"#]*)', page):
                if link and link != "data:,":
                    parts = [*path.split("/")[:-1], *link.split("/")]
                    while ".." in parts:
                        place = parts.index("..")
                        del parts[place - 1 : place + 1]
                    assert "/".join(parts) in {*files, MANIFEST}, (path, link)


def test_no_secret_no_machine_and_no_path_is_in_it(files: dict[str, bytes], tmp_path: Path) -> None:
    for path, content in files.items():
        for word in (
            b"geheim",
            b"build-7",
            b"/var/lib",
            b"/home/me",
            str(tmp_path.parent).encode(),
        ):
            assert word not in content, (path, word)


def test_what_strangers_wrote_is_text(files: dict[str, bytes]) -> None:
    page = files["index.html"].decode()
    assert "<h1>Which &lt;database&gt;?</h1>" in page
    assert "</script><b>" not in page
    assert page.count("</script>") == 1


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    folder = keep_campaign(tmp_path / "night", make_results())
    first, second = (make_site(find_sources([folder]), "A", write_command) for _ in range(2))
    assert first == second


def test_each_version_stands_beside_the_one_before(files: dict[str, bytes]) -> None:
    page = files["candidates/alpha-postgresql-18-4.html"].decode()
    assert "Over its versions" in page
    assert re.search(r"<td>100,\d{3} \(2\.00× better, [^)]*\)</td>", page)
    assert "Over its versions" not in files["candidates/beta.html"].decode()


def test_a_question_has_all_candidates(files: dict[str, bytes]) -> None:
    page = files["queries/temperature-newest.html"].decode()
    assert all(f'<td class="left">{name}</td>' in page for name in ("beta", "gamma"))
    assert "gamma" not in files["queries/temperature-mean.html"].decode()


def test_statements_stand_beside_each_other(files: dict[str, bytes]) -> None:
    page = files["queries/temperature-newest.html"].decode()
    statements = page[page.index("<h3>Statements") :]
    assert statements.count("<pre") == 2
    assert statements.count("SELECT row\nFROM newest") == 1
    assert "SELECT vector" in statements
    beta = files["candidates/beta.html"].decode()
    assert "CREATE TABLE events_beta" in beta and "events_alpha" not in beta


def test_the_verdict_leads_to_candidates_and_results(files: dict[str, bytes]) -> None:
    page = files["verdict-night.html"].decode()
    assert "Who meets the requirements: A fleet" in page
    assert re.search(r'<a href="candidates/beta.html">.*beta</span></a>.*missed', page)
    assert 'href="verdict-night.html"' in files["index.html"].decode()


def test_what_failed_is_told(files: dict[str, bytes]) -> None:
    assert "gamma, load: could not read (a path)" in files["index.html"].decode()


# --- the folder -----------------------------------------------------------------------------------


def test_a_site_replaces_an_earlier_one(tmp_path: Path) -> None:
    site = tmp_path / "site"
    write_site(site, {"index.html": b"1", "candidates/old.html": b"2"})
    write_site(site, {"index.html": b"3", "candidates/new.html": b"4", "method.html": b"5"})
    paths = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert paths == {MANIFEST, "index.html", "candidates/new.html", "method.html"}
    assert json.loads((site / MANIFEST).read_bytes())["index.html"] == sha256(b"3").hexdigest()


def test_folders_that_are_emptied_go(tmp_path: Path) -> None:
    write_site(tmp_path / "site", {"index.html": b"1", "queries/old.html": b"2"})
    write_site(tmp_path / "site", {"index.html": b"1"})
    assert not (tmp_path / "site" / "questions").exists()


@pytest.mark.parametrize("path", ["notes.txt", "candidates/mine.html"])
def test_files_of_somebody_else_stay(tmp_path: Path, path: str) -> None:
    site = tmp_path / "site"
    write_site(site, {"index.html": b"1", "candidates/a.html": b"2"})
    (site / path).write_text("mine")
    with pytest.raises(ConfigError) as caught:
        write_site(site, {"index.html": b"3"})
    assert caught.value.message == (
        f"{site} has files that publish didn't make ({path}): it writes only to a new or empty folder, or"
        " over an earlier site; name another one with --output"
    )
    assert (site / "index.html").read_bytes() == b"1"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "site").touch()
    with pytest.raises(ConfigError, match="site isn't a folder: name another one with --output"):
        check_folder(tmp_path / "site")


def test_times_are_those_of_the_results(files: dict[str, bytes]) -> None:
    assert TIMES["beta"]["newest"][0] == 0.010
    assert re.search(
        r'<td class="left">beta</td><td class="left">questions</td><td>1</td><td>10</td>',
        files["queries/temperature-newest.html"].decode(),
    )
