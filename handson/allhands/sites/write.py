"""How do answers become a site file? As a copy of the nearest one, with its comments.

Only lines whose value changes are changed. `${NAME:-...}` stays: what the shell exports comes
before the file. A file is there whole or not at all.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from allhands.sites.folder import PREFIX

LINE = re.compile(r'^(\w+)=("[^"]*"|\$\{[^}]*\}|[^\s#]*)(\s+#.*)?$')
FROM_SHELL = re.compile(r"^\$\{(\w+)(:?-)")
COMMENT_AT = 46  # the column of comments in the site files


def name_of(text: str) -> str:
    """The site's name as the files carry it: my_<name>, which git ignores.

    ValueError for a name that cannot be a file's.
    """
    text = text.removesuffix(".env").removeprefix("my_")
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*", text):
        raise ValueError(f"A site was named '{text}'. Use letters, digits, - and _.")
    return f"my_{text}"


def quoted(value: str) -> str:
    return value if re.fullmatch(r"[\w./:=+,@^-]*", value) else f'"{value}"'


def render(
    name: str,
    template_name: str,
    template_text: str,
    template: Mapping[str, str],
    answers: Mapping[str, str],
    date: str,
) -> str:
    """The text of the new site file. template: the template's values; answers: by name.

    The head is new, unless the file is its own template: what was seen stands there.
    """
    changed = {key: value for key, value in answers.items() if value != template.get(key, "")}
    lines = [
        f"# {name}: written by `allhands site init` on {date}, after sites/{template_name}.env.",
        "# Checked so far: nothing. Next: allhands site check, and a job. Write here what you saw.",
        "# How the file is read, and what each name means: see slurm-generic.env.",
        "",
    ]
    body = template_text.splitlines()
    if name == template_name:
        lines = []
    while lines and body and (body[0].startswith("#") or not body[0].strip()):
        body.pop(0)  # it says what was checked there
    for line in body:
        found = LINE.match(line)
        key = found[1].removeprefix(PREFIX) if found else ""
        if key not in changed:
            lines.append(line)
            continue
        value, shell = quoted(changed.pop(key)), FROM_SHELL.match(found[2])
        if shell:
            value = f"${{{shell[1]}{shell[2]}{value}}}"
        start = f"{found[1]}={value}"
        comment = (found[3] or "").strip()
        lines.append(f"{start:<{COMMENT_AT}} {comment}".rstrip() if comment else start)
    if changed:
        lines += ["", "# Not in the file this one was made of."]
        lines += [f"{PREFIX}{key}={quoted(value)}" for key, value in changed.items()]
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Write the file in one step: a break leaves the old one, or none. ValueError if it cannot."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise ValueError(
            f"{path} could not be written: {error.strerror}. See: ls -ld {path.parent}"
        ) from error
    finally:
        part.unlink(missing_ok=True)
