"""Starts InfluxDB; the first time it makes user, organisation, bucket and token first, on a port that nobody
else can reach."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

DATA = Path("/var/lib/influxdb2")
SETUP_PORT = 9999
OPTIONS = [
    f"--bolt-path={DATA}/influxd.bolt",
    f"--sqlite-path={DATA}/influxd.sqlite",
    f"--engine-path={DATA}/engine",
    "--reporting-disabled",
    "--log-level=warn",
]


def from_file(variable: str) -> str:
    """The content of the file that a variable names."""
    return Path(os.environ[variable]).read_text().strip()


def set_up() -> None:
    """Make what a first start makes."""
    url = f"http://127.0.0.1:{SETUP_PORT}/api/v2/setup"
    server = subprocess.Popen(["influxd", *OPTIONS, f"--http-bind-address=127.0.0.1:{SETUP_PORT}"])
    body = {
        "username": os.environ["DOCKER_INFLUXDB_INIT_USERNAME"],
        "password": from_file("DOCKER_INFLUXDB_INIT_PASSWORD_FILE"),
        "org": os.environ["DOCKER_INFLUXDB_INIT_ORG"],
        "bucket": os.environ["DOCKER_INFLUXDB_INIT_BUCKET"],
        "token": from_file("DOCKER_INFLUXDB_INIT_ADMIN_TOKEN_FILE"),
    }
    while server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                allowed = json.load(answer)["allowed"]
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
            continue
        if allowed:
            request = urllib.request.Request(
                url, json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            urllib.request.urlopen(request, timeout=30).close()
        break
    server.terminate()
    server.wait()


if not (DATA / "influxd.bolt").exists():
    set_up()
os.execvp("influxd", ["influxd", *OPTIONS])
