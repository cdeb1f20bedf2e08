"""Writes pumps.csv and pumps.parquet: what a gateway of a waterworks might have recorded, made up.

40 pumps report about every 30 s for an hour; some events come late, some are missing, and one pump stops.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

BEGIN_S = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
SITES = ("Köln", "Ulm", "Graz")
COLUMNS = "time,pump_id,site,model,pressure_bar,flow_l_s,speed_rpm,state"


def make_rows(seed: int = 1) -> list[str]:
    """The rows of the file, in the order in which the gateway got them."""
    random = np.random.default_rng(seed)
    rows: list[tuple[float, str]] = []
    for pump in range(40):
        site, model = SITES[pump % 3], f"WP-{100 + pump % 4}"
        at, flow = float(random.uniform(0, 30)), random.uniform(5, 40)
        state = "running"
        while at < 3600:
            flow = max(0.0, flow + random.normal(0, 0.3))
            if random.uniform() < 0.01:
                state = {"running": "stopped", "stopped": "running"}[state]
            running = state == "running" and not (pump == 7 and at > 1800)
            pressure = f"{2 + 0.1 * flow + random.normal(0, 0.05):.2f}"
            if random.uniform() < 0.02:
                pressure = ""
            moment = datetime.fromtimestamp(BEGIN_S + at, UTC).isoformat(timespec="milliseconds")
            speed = int(random.integers(1440, 1460)) if running else 0
            values = [
                moment, f"pump-{pump}", site, model, pressure,
                f"{flow if running else 0:.1f}", str(speed), state,
            ]  # fmt: skip
            late = random.exponential(120) if random.uniform() < 0.02 else 0
            rows.append((at + late, ",".join(values)))
            at += 30 + random.normal(0, 1)
    return [row for _, row in sorted(rows)]


def main(folder: Path) -> None:
    """Write both files; the second if pyarrow is there."""
    file = folder / "pumps.csv"
    file.write_text("\n".join([COLUMNS, *make_rows(), ""]))
    try:
        from pyarrow import csv, parquet
    except ModuleNotFoundError:
        return
    parquet.write_table(csv.read_csv(file), folder / "pumps.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
