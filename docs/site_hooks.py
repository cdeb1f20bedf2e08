"""What mkdocs does beside its own: the repository's pictures are part of the site, its first page has the
version and the README's findings, it links to the repository, and of links to other files the text stays."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from simulator import __version__

ROOT = Path(__file__).parents[1]
FINDINGS = "<!-- findings -->"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Link to the repository that this is a clone of, if it is one on the web."""
    asked = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    url = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    if url.startswith("https://"):
        config.repo_url = url.removesuffix(".git")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pictures."""
    for picture in sorted((ROOT / "img").glob("*.*g")):
        files.append(File.generated(config, f"img/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put in what the README found, and lead links that leave docs/ to the pictures, or nowhere."""
    found = (ROOT / "README.md").read_text(encoding="utf-8").split("## The comparison\n")[1]
    found = re.sub(r"\]\((?:docs/)?", "](", found.split("\nStored events")[0])
    markdown = markdown.replace(FINDINGS, f"Version {__version__}.\n{found}")
    up = "../" * (len(Path(page.file.src_uri).parts) - 1)
    leaving = re.escape(f"{up}../")
    markdown = re.sub(rf"\]\({leaving}(img/[\w.-]+\.\w+)\)", rf"]({up}\1)", markdown)
    return re.sub(rf"\[([^\]]+)\]\({leaving}[^)]*\)", r"\1", markdown)
