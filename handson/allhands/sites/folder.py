"""Where are the site files, and what does one of them say?

What reads a site file is cluster_jobs/lib/sites.py, which also runs where this package is not
installed. Here it is asked as a program.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "ALLHANDS_"
CLONE = Path(__file__).parents[3]
UNSET = "not set"
ASSIGNED = re.compile(r"^(\w+)=(.*)$")


@dataclass(frozen=True)
class Jobs:
    """The folder cluster_jobs of a clone."""

    path: Path

    @classmethod
    def find(cls, start: Path | None = None, clone: Path = CLONE) -> "Jobs":
        """From `start` (the working folder) upwards, else in the clone of this package.

        Raises ValueError where there is none: a package without a clone has no jobs.
        """
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents, clone):
            if (folder / "cluster_jobs" / "submit").is_file():
                return cls(folder / "cluster_jobs")
        raise ValueError(
            f"There is no folder cluster_jobs at or above {start}. Go into the clone of the course."
        )

    @property
    def sites(self) -> Path:
        return self.path / "sites"

    def site(self, name: str) -> Path:
        return self.sites / f"{name}.env"

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.sites.glob("*.env"))

    def shown(self, path: Path) -> str:
        return str(path.relative_to(self.path.parent))

    def chosen(self, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
        """(name of the site that `submit` takes, why)."""
        default = self.sites / "default"
        if environ.get("ALLHANDS_SITE"):
            return environ["ALLHANDS_SITE"], "ALLHANDS_SITE is exported in your shell"
        if default.exists():
            return default.read_text().split("\n")[0].strip(), f"named in {self.shown(default)}"
        return "local", "no other one was chosen"

    def own(self) -> str:
        """The name of this site's own file, if sites/default names one; else ""."""
        name, _ = self.chosen({})
        return name if name.startswith("my_") and self.site(name).exists() else ""

    def known_names(self) -> set[str]:
        """The names that a site file may set, without the prefix."""
        text = (self.path / "lib/sites.py").read_text(encoding="utf-8")
        listed = re.search(r"SITE_NAMES = \((.*?)\)", text, re.DOTALL)[1]
        return set(re.findall(r"[A-Z_]+", listed))

    def values(self, name: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The site's values by name, without the prefix. ValueError if the file cannot be read."""
        ran = subprocess.run(
            [sys.executable, str(self.path / "lib/sites.py"), name],
            env=dict(environ),
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            raise ValueError(ran.stderr.strip())
        return json.loads(ran.stdout)

    def committed(self, name: str) -> list[tuple[str, str]]:
        """[(site, text of this value)] of the course's own site files, read without bash."""
        found = []
        for site in self.names():
            lines = lines_of(self.site(site).read_text(encoding="utf-8"))
            if PREFIX + name in lines and not site.startswith("my_"):
                value = re.match(r'"([^"]*)"|(\S*)', lines[PREFIX + name][1])
                found.append((site, value[1] or value[2] or ""))
        return found

    def submit(self, *words: str) -> subprocess.CompletedProcess:
        """Run `submit`; stdout and stderr come back together."""
        return subprocess.run(
            [sys.executable, str(self.path / "submit"), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def lines_of(text: str) -> dict[str, tuple[int, str]]:
    """{name: (line number from 1, what stands behind =)} of a site file; the last one counts."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if assigned := ASSIGNED.match(line):
            found[assigned[1]] = number, assigned[2]
    return found


@dataclass(frozen=True)
class Value:
    """One value of a site. origin: a line of the file, the shell, or nothing."""

    name: str
    text: str
    origin: str


def explain(jobs: Jobs, name: str, environ: Mapping[str, str] = os.environ) -> list[Value]:
    """Every value of the site, and where it came from, in the order of the file."""
    now = jobs.values(name, environ)
    clean = {key: value for key, value in environ.items() if not key.startswith(PREFIX)}
    alone = jobs.values(name, clean)
    path = jobs.site(name)
    stands = lines_of(path.read_text(encoding="utf-8"))
    values = []
    for full, (number, raw) in stands.items():
        key = full.removeprefix(PREFIX)
        line = f"{jobs.shown(path)}:{number}"
        if not full.startswith(PREFIX):
            values.append(Value(full, raw, f"{line}, for the trainer"))
        elif now[key] != alone[key]:
            values.append(Value(full, now[key], f"exported in your shell (the default: {line})"))
        else:
            values.append(Value(full, now[key], line))
    unset = sorted(jobs.known_names() - {full.removeprefix(PREFIX) for full in stands})
    values += [
        Value(PREFIX + key, now.get(key, ""), "exported in your shell" if now.get(key) else UNSET)
        for key in unset
    ]
    return values
