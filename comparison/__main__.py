"""`make comparison-table`: write what follows from the kept results."""

from __future__ import annotations

from . import growth, picture, table


def main() -> None:
    """Write the pages' tables and findings, and the pictures."""
    scale = growth.make_table(growth.FILE)
    growth.PAGE.write_text(table.complete_page(growth.PAGE.read_text(), [scale]))
    growth.PICTURE.write_text(growth.make_picture(growth.FILE))
    page, front = table.PAGE, table.FRONT
    page.write_text(table.complete_page(page.read_text(), map(table.make_block, table.BLOCKS)))
    findings = table.make_findings(table.list_published())
    front.write_text(table.complete_page(front.read_text(), [findings]))
    picture.PICTURE.write_text(picture.make_picture(table.FLEET))


if __name__ == "__main__":
    main()
