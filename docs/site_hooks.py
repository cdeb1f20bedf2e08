"""What mkdocs does beside its own: the repository's pictures are part of the site, and of links to its other
files the text stays."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pictures."""
    for picture in sorted((ROOT / "img").glob("*.*g")):
        files.append(File.generated(config, f"img/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to the pictures, or nowhere."""
    up = "../" * (len(Path(page.file.src_uri).parts) - 1)
    leaving = re.escape(f"{up}../")
    markdown = re.sub(rf"\]\({leaving}(img/[\w.-]+\.\w+)\)", rf"]({up}\1)", markdown)
    return re.sub(rf"\[([^\]]+)\]\({leaving}[^)]*\)", r"\1", markdown)
